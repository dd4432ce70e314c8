//! Categories of memory.

use crate::error::Error;
use crate::named_values;
use std::fmt;
use std::str::FromStr;

named_values! {
    /// The purpose of memory; the numbers are those of PyTorch's memory timeline.
    ///
    /// PyTorch derives it from modules and optimizers. A Rust program declares it with a scope
    /// (`tracing_kineto::memory::scope`), or with the span field `mem.category`, whose value is one of these names. The
    /// innermost scope of the thread takes precedence; without a scope, the innermost span with such a field does.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[non_exhaustive]
    #[repr(u8)]
    pub enum Category {
        /// Parameters of a model.
        Parameter = 0 => "PARAMETER",
        /// State of an optimizer.
        OptimizerState = 1 => "OPTIMIZER_STATE",
        /// Inputs of a model.
        Input = 2 => "INPUT",
        /// Short-lived buffers.
        Temporary = 3 => "TEMPORARY",
        /// Values that a forward pass saves for the backward pass.
        Activation = 4 => "ACTIVATION",
        /// Gradients of parameters.
        Gradient = 5 => "GRADIENT",
        /// Other values of a backward pass.
        AutogradDetail = 6 => "AUTOGRAD_DETAIL",
        /// Not declared.
        #[default]
        Unknown = 7 => "Unknown",
    }

    /// All categories, by number.
    pub const ALL;

    /// Returns its name in PyTorch.
    pub const fn as_str;
}

impl Category {
    /// Returns its number in PyTorch's exports.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns the category of that name, in any case.
    pub fn from_name(name: &str) -> Option<Category> {
        Category::ALL.iter().copied().find(|category| category.as_str().eq_ignore_ascii_case(name))
    }

    /// Returns the category with this number.
    pub fn from_number(number: u8) -> Option<Category> {
        Category::ALL.get(usize::from(number)).copied()
    }
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Category {
    type Err = Error;

    /// Parses a name, in any case.
    ///
    /// # Errors
    ///
    /// If no category has that name.
    fn from_str(name: &str) -> Result<Category, Error> {
        Category::from_name(name)
            .ok_or_else(|| Error::unknown_name("memory category", name, Category::ALL.iter().map(|each| each.as_str())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_those_of_pytorch() {
        for (number, category) in (0..).zip(Category::ALL.iter().copied()) {
            assert_eq!((category.number(), Category::from_number(number)), (number, Some(category)));
            assert_eq!(Category::from_name(&category.as_str().to_lowercase()), Some(category));
        }
        assert_eq!(Category::from_number(8), None);
        assert!("weights".parse::<Category>().unwrap_err().to_string().contains("OPTIMIZER_STATE"));
    }
}
