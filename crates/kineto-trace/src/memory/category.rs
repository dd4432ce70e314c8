//! What memory is for.

use std::fmt;
use std::str::FromStr;

/// What memory is for; the numbers are those of PyTorch's memory timeline.
///
/// PyTorch finds out by looking at modules and optimizers. A Rust program says it: by a scope
/// (`tracing_kineto::memory::scope`), or by the field `mem.category` of a span, whose value is one of these names. The
/// innermost scope of the thread counts; without one, the innermost span around that has such a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Category {
    /// What a model has learned.
    Parameter = 0,
    /// What an optimizer keeps of its own.
    OptimizerState = 1,
    /// What a model is given.
    Input = 2,
    /// What is needed for a moment.
    Temporary = 3,
    /// What a forward pass leaves for the backward pass.
    Activation = 4,
    /// Gradients of parameters.
    Gradient = 5,
    /// What else a backward pass makes.
    AutogradDetail = 6,
    /// Nobody has said.
    #[default]
    Unknown = 7,
}

impl Category {
    /// Every category, by number.
    pub const ALL: [Category; 8] = [
        Category::Parameter,
        Category::OptimizerState,
        Category::Input,
        Category::Temporary,
        Category::Activation,
        Category::Gradient,
        Category::AutogradDetail,
        Category::Unknown,
    ];

    /// Returns its number in PyTorch's exports.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns the category of that number.
    pub fn from_number(number: u8) -> Option<Category> {
        Category::ALL.get(usize::from(number)).copied()
    }

    /// Returns PyTorch's name of it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Category::Parameter => "PARAMETER",
            Category::OptimizerState => "OPTIMIZER_STATE",
            Category::Input => "INPUT",
            Category::Temporary => "TEMPORARY",
            Category::Activation => "ACTIVATION",
            Category::Gradient => "GRADIENT",
            Category::AutogradDetail => "AUTOGRAD_DETAIL",
            Category::Unknown => "Unknown",
        }
    }
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A text that names no [`Category`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownCategory(String);

impl fmt::Display for UnknownCategory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Category::ALL.map(Category::as_str).join(", ");
        write!(f, "no memory category is called {:?}; there are {known}", self.0)
    }
}

impl std::error::Error for UnknownCategory {}

impl FromStr for Category {
    type Err = UnknownCategory;

    /// Reads a name, in any case.
    fn from_str(name: &str) -> Result<Category, UnknownCategory> {
        let named = Category::ALL.into_iter().find(|category| category.as_str().eq_ignore_ascii_case(name));
        named.ok_or_else(|| UnknownCategory(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_those_of_pytorch() {
        for (number, category) in (0..).zip(Category::ALL) {
            assert_eq!((category.number(), Category::from_number(number)), (number, Some(category)));
            assert_eq!(category.as_str().to_lowercase().parse(), Ok(category));
        }
        assert_eq!(Category::from_number(8), None);
        assert!("weights".parse::<Category>().unwrap_err().to_string().contains("OPTIMIZER_STATE"));
    }
}
