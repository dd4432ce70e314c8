//! PyTorch's scopes of operations.

use crate::error::Error;
use crate::named_values;
use std::fmt;
use std::str::FromStr;

named_values! {
    /// The scope of an operation in PyTorch; the numbers are torch's (`at::RecordScope`) and do not change.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[non_exhaustive]
    #[repr(u8)]
    pub enum RecordScope {
        /// An operation, such as one of ATen's.
        Function = 0 => "FUNCTION",
        /// A node of the backward graph.
        BackwardFunction = 1 => "BACKWARD_FUNCTION",
        /// A function of TorchScript.
        TorchScriptFunction = 2 => "TORCHSCRIPT_FUNCTION",
        /// The dispatch of a kernel by element type.
        KernelFunctionDtype = 3 => "KERNEL_FUNCTION_DTYPE",
        /// A custom class.
        CustomClass = 4 => "CUSTOM_CLASS",
        /// A feature of the build.
        BuildFeature = 5 => "BUILD_FEATURE",
        /// A model run by the lite interpreter.
        LiteInterpreter = 6 => "LITE_INTERPRETER",
        /// A range that the user named.
        UserScope = 7 => "USER_SCOPE",
        /// An operation of the static runtime.
        StaticRuntimeOp = 8 => "STATIC_RUNTIME_OP",
        /// A model run by the static runtime.
        StaticRuntimeModel = 9 => "STATIC_RUNTIME_MODEL",
    }

    /// All scopes, by number.
    pub const ALL;

    /// Returns torch's name of the scope.
    pub const fn as_str;
}

impl RecordScope {
    /// Returns torch's number of the scope, 0 to 9.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns the scope with this number; `None` above 9.
    pub fn from_number(number: u8) -> Option<RecordScope> {
        RecordScope::ALL.get(usize::from(number)).copied()
    }
}

impl fmt::Display for RecordScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for RecordScope {
    type Err = Error;

    /// Parses torch's name of a scope, in any case.
    ///
    /// # Errors
    ///
    /// If no scope has that name.
    fn from_str(name: &str) -> Result<Self, Error> {
        let known = RecordScope::ALL.iter().copied().find(|scope| scope.as_str().eq_ignore_ascii_case(name));
        known
            .ok_or_else(|| Error::unknown_name("record scope", name, RecordScope::ALL.iter().map(|each| each.as_str())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_those_of_torch() {
        for (number, scope) in (0u8..).zip(RecordScope::ALL.iter().copied()) {
            assert_eq!((scope.number(), RecordScope::from_number(number)), (number, Some(scope)));
            assert_eq!(scope.as_str().to_lowercase().parse().ok(), Some(scope));
        }
        assert_eq!(RecordScope::from_number(10), None);
        assert_eq!(RecordScope::UserScope.number(), 7);
        assert!("user".parse::<RecordScope>().is_err());
    }
}
