//! The error for a name of an activity type or group that is not known.

use std::fmt;

/// A name that stands for no activity type, set of types or group; its message lists those that are known.
#[derive(Clone, PartialEq, Eq)]
pub struct UnknownActivity {
    what: &'static str,
    name: String,
    known: Vec<&'static str>,
}

impl UnknownActivity {
    /// An error that says `name` is no `what`.
    pub(super) fn new(what: &'static str, name: &str, known: impl Into<Vec<&'static str>>) -> Self {
        UnknownActivity { what, name: name.to_owned(), known: known.into() }
    }

    /// Returns the name as it was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the names that could have stood there.
    pub fn known(&self) -> &[&'static str] {
        &self.known
    }
}

/// The message: what a `main` that returns this error shows.
impl fmt::Debug for UnknownActivity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for UnknownActivity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown {} {:?}, known are: {}", self.what, self.name, self.known.join(", "))
    }
}

impl std::error::Error for UnknownActivity {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_names_what_was_meant_and_what_is_known() {
        let error = UnknownActivity::new("colour", "gr\"een", ["red", "blue"]);
        assert_eq!(error.to_string(), r#"unknown colour "gr\"een", known are: red, blue"#);
    }
}
