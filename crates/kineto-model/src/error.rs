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

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A configuration key, variable, argument or builder call has a value that cannot be used.
    Config,
    /// The operating system refused a file operation; the error's path names the file.
    Io,
    /// There was not enough memory. Recorded data is kept: free memory and try again.
    OutOfMemory,
    /// A recording is running already; stop it first.
    AlreadyActive,
    /// No recording is running.
    NotActive,
    /// Something did not end within its time limit.
    Timeout,
    /// A text that should be JSON is not.
    Json,
    /// A file is truncated.
    Truncated,
    /// A file is not a trace.
    NotATrace,
    /// A file, a part of it, or data to record, is larger than allowed.
    TooLarge,
    /// No writer is registered for the scheme of a URL.
    UnknownScheme,
    /// A shared library was not found.
    LibraryNotFound,
    /// This platform or build does not support the operation.
    Unsupported,
    /// The trace was saved already, and the builder was set to strict.
    AlreadySaved,
    /// An assertion did not hold during the recording, and the builder was set to strict; the error has the recording's trace.
    InvariantViolated,
    /// A trace handler failed or panicked.
    Handler,
    /// The calling process is a forked child of the one that records.
    Forked,
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

    /// Removes the path, of an error about something that is no file.
    #[doc(hidden)]
    pub fn without_path(self) -> Self {
        Error { path: None, ..self }
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
