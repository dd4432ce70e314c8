//! The error for an unknown activity type or group.

use std::fmt;

/// An unknown name of an activity type, set of types or group; its message lists the known names.
#[derive(Clone, PartialEq, Eq)]
pub struct UnknownActivity {
    what: &'static str,
    name: String,
    known: Vec<&'static str>,
}

impl UnknownActivity {
    /// Returns the error for `name`, which is not a valid `what`.
    pub(super) fn new(what: &'static str, name: &str, known: impl IntoIterator<Item = &'static str>) -> Self {
        UnknownActivity { what, name: name.to_owned(), known: known.into_iter().collect() }
    }

    /// Returns the unknown name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the valid names.
    pub fn known(&self) -> &[&'static str] {
        &self.known
    }
}

/// Same as `Display`, so that a `main` that returns this error prints the message.
impl fmt::Debug for UnknownActivity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for UnknownActivity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown {} {:?}: expected one of {}", self.what, self.name, self.known.join(", "))
    }
}

impl std::error::Error for UnknownActivity {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_contains_the_name_and_known_names() {
        let error = UnknownActivity::new("colour", "gr\"een", ["red", "blue"]);
        assert_eq!(error.to_string(), r#"unknown colour "gr\"een": expected one of red, blue"#);
    }
}
