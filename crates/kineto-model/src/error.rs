//! The error type of the crate.

use kineto_base::text::escaped_path;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// An error of this crate.
///
/// Its message names the path or key, and says what to do next. Match on [`kind`](Error::kind).
pub struct Error {
    kind: ErrorKind,
    message: String,
    path: Option<PathBuf>,
    io: Option<io::Error>,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The kind of an [`Error`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind { $($(#[$doc])* $name,)* }

        impl ErrorKind {
            /// All kinds.
            #[doc(hidden)]
            pub const ALL: &[ErrorKind] = &[$(ErrorKind::$name,)*];
        }
    };
}

kinds! {
    /// An argument has an invalid value.
    Config,
    /// The operating system refused a file operation; [`Error::path`] names the file.
    Io,
    /// Memory is short; free memory and try again.
    OutOfMemory,
    /// An operation exceeded its time limit.
    Timeout,
    /// A text is not valid JSON.
    Json,
    /// A file is truncated.
    Truncated,
    /// A file is not a trace.
    NotATrace,
    /// A file or a part of it exceeds a limit.
    TooLarge,
    /// This build does not support it.
    Unsupported,
}

impl Error {
    /// Returns an error; `message` is lower case, without a full stop, and says what to do next.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error { kind, message: message.into(), path: None, io: None }
    }

    /// Returns an [`ErrorKind::Io`] or [`ErrorKind::OutOfMemory`]: "cannot `what` `path`: `source`; `advice`".
    #[doc(hidden)]
    pub fn from_io(what: &str, path: &Path, source: io::Error, advice: &str) -> Self {
        let (kind, advice) = match source.kind() {
            io::ErrorKind::OutOfMemory => (ErrorKind::OutOfMemory, "free memory and try again"),
            _ => (ErrorKind::Io, advice),
        };
        Error {
            kind,
            message: format!("cannot {what} {}: {source}; {advice}", escaped_path(path)),
            path: Some(path.to_owned()),
            io: Some(source),
        }
    }

    /// Returns the error for `name`, which is not a valid `what`.
    pub(crate) fn unknown_name(what: &str, name: &str, known: impl IntoIterator<Item = &'static str>) -> Self {
        let known = known.into_iter().collect::<Vec<_>>().join(", ");
        Error::new(ErrorKind::Config, format!("unknown {what} {name:?}: expected one of {known}"))
    }

    /// Prepends the file's path to the message.
    pub fn with_path(mut self, path: &Path) -> Self {
        self.message = format!("{}: {}", escaped_path(path), self.message);
        self.path = Some(path.to_owned());
        self
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the path of the file, if the error is about one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Returns the underlying error of the operating system, if any; the message contains it.
    pub fn io_error(&self) -> Option<&io::Error> {
        self.io.as_ref()
    }

    /// Returns the kind, message, path and underlying error.
    #[doc(hidden)]
    pub fn into_parts(self) -> (ErrorKind, String, Option<PathBuf>, Option<io::Error>) {
        (self.kind, self.message, self.path, self.io)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

// The message contains the cause, so there is no source.
impl std::error::Error for Error {}

/// Same as `Display`, so that a `main` that returns this error prints the message.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_name_error_lists_known_names() {
        let error = Error::unknown_name("colour", "gr\"een", ["red", "blue"]);
        assert_eq!(error.kind(), ErrorKind::Config);
        assert_eq!(error.to_string(), r#"unknown colour "gr\"een": expected one of red, blue"#);
    }
}
