//! Why a collector records nothing.

use std::fmt;

/// Why a collector records nothing, or not everything, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    why: Why,
    message: String,
    advice: String,
}

/// What stands in the way of a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Why {
    /// It was switched off, or nothing was asked of it.
    Disabled,
    /// There is no such device, or no driver for it.
    NoDevice,
    /// The vendor's library was not found.
    LibraryNotFound,
    /// The library that was found cannot be used: it is too old, too new for the driver, or lacks a function.
    Incompatible,
    /// Another profiler of this process, or of the machine, holds the library.
    Busy,
    /// The process may not do it.
    Forbidden,
    /// This platform, device or mode cannot do it.
    Unsupported,
    /// The vendor's library reported an error.
    Failed,
}

impl Unavailable {
    /// Makes a reason: what is the matter, and what to do about it. Both lower case and without a full stop.
    pub fn new(why: Why, message: impl Into<String>, advice: impl Into<String>) -> Unavailable {
        Unavailable { why, message: message.into(), advice: advice.into() }
    }

    /// Returns what kind of reason it is.
    pub fn why(&self) -> Why {
        self.why
    }

    /// Returns what is the matter.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns what to do about it; empty if nothing can be done.
    pub fn advice(&self) -> &str {
        &self.advice
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if self.advice.is_empty() { Ok(()) } else { write!(f, "; {}", self.advice) }
    }
}

impl std::error::Error for Unavailable {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_as_a_sentence() {
        let reason = Unavailable::new(Why::Busy, "another profiler has it", "stop that one");
        assert_eq!(reason.to_string(), "another profiler has it; stop that one");
        assert_eq!(Unavailable::new(Why::Disabled, "off", "").to_string(), "off");
    }
}
