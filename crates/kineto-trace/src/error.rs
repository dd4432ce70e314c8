//! The one error of the crate: a kind, what it is about, and what to do next.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// An error of this crate.
///
/// Its text names the path or key concerned and says what to do next. Match on [`kind`](Error::kind).
pub struct Error {
    kind: ErrorKind,
    message: String,
    path: Option<PathBuf>,
    io: Option<io::Error>,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What went wrong.
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
    /// An argument has a value that cannot be used.
    Config,
    /// The operating system refused a file operation; [`Error::path`] names the file.
    Io,
    /// There was not enough memory: free memory and try again.
    OutOfMemory,
    /// Something did not end within its time limit.
    Timeout,
    /// A text that should be JSON is not.
    Json,
    /// A file ends before its end.
    Truncated,
    /// A file is no trace.
    NotATrace,
    /// A file or a part of it is larger than allowed.
    TooLarge,
    /// This build cannot do it.
    Unsupported,
}

impl Error {
    /// Makes an error of that kind; `message` is lower case, without a full stop, and says what to do next.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error { kind, message: message.into(), path: None, io: None }
    }

    /// Makes an [`ErrorKind::Io`] about `path`, or an [`ErrorKind::OutOfMemory`]: "cannot `what` `path`: `source`; `advice`".
    #[doc(hidden)]
    pub fn io(what: &str, path: &Path, source: io::Error, advice: &str) -> Self {
        let (kind, advice) = match source.kind() {
            io::ErrorKind::OutOfMemory => (ErrorKind::OutOfMemory, "free memory and try again"),
            _ => (ErrorKind::Io, advice),
        };
        Error {
            kind,
            message: format!("cannot {what} {}: {source}; {advice}", path.display()),
            path: Some(path.to_owned()),
            io: Some(source),
        }
    }

    /// Puts the file concerned before the message.
    #[cfg(feature = "analysis")]
    pub(crate) fn about(mut self, path: &Path) -> Self {
        self.message = format!("{}: {}", path.display(), self.message);
        self.path = Some(path.to_owned());
        self
    }

    /// Returns what went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the file concerned, if the error is about one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Returns the error of the operating system that caused this one, if there is one; the text contains it.
    pub fn io_error(&self) -> Option<&io::Error> {
        self.io.as_ref()
    }

    /// Returns the parts: kind, message, file and what the operating system said.
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

// The message has the cause, so there is no source.
impl std::error::Error for Error {}

/// The message: what a `main` that returns this error shows.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
