//! The crate's error type.

use std::any::Any;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An error of this crate.
///
/// Its text names the path, key or library concerned and says what to do next. Match on [`kind`](Error::kind).
///
/// ```
/// use tracing_kineto::{ErrorKind, KinetoLayer};
///
/// let (_layer, guard) = KinetoLayer::builder().no_output().build()?;
/// let profiler = guard.profiler();
/// match profiler.start() {
///     Err(error) if error.kind() == ErrorKind::AlreadyActive => println!("{error}"),
///     started => started?,
/// }
/// # drop(guard.finish()?);
/// # Ok::<(), tracing_kineto::Error>(())
/// ```
#[derive(Clone)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    path: Option<PathBuf>,
    io: Option<Arc<io::Error>>,
    /// What the program may still use after the error.
    kept: Option<Arc<dyn Any + Send + Sync>>,
}

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A configuration key, variable or builder call has a value that cannot be used.
    Config,
    /// The operating system refused a file operation; [`Error::path`] names the file.
    Io,
    /// There was not enough memory. The recorded data is kept: free memory and try again.
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
    /// An assertion did not hold during the recording, and the builder was set to strict; [`Error::trace`] returns the
    /// recording.
    InvariantViolated,
    /// A trace handler failed or panicked.
    Handler,
    /// The calling process is a forked child of the one that records.
    Forked,
}

impl Error {
    /// Creates an error of that kind; `message` is lower case, without a full stop, and ends with a remedy.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error { kind, message: message.into(), path: None, io: None, kept: None }
    }

    /// Creates an [`ErrorKind::Io`] about `path`, or an [`ErrorKind::OutOfMemory`]: "cannot `what` `path`: `source`; `advice`".
    pub(crate) fn io(what: &str, path: &Path, source: io::Error, advice: &str) -> Self {
        kineto_model::Error::from_io(what, path, source, advice).into()
    }

    /// Removes the path, of an error about something that is no file.
    pub(crate) fn without_path(self) -> Self {
        Error { path: None, ..self }
    }

    /// Attaches a value, which [`kept`](Error::kept) returns by its type.
    pub(crate) fn keeping(self, value: impl Any + Send + Sync) -> Self {
        Error { kept: Some(Arc::new(value)), ..self }
    }

    /// Returns the attached value, if it has that type.
    pub(crate) fn kept<T: Any>(&self) -> Option<&T> {
        self.kept.as_deref()?.downcast_ref()
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
        self.io.as_deref()
    }
}

/// Converts an error of the analysis or of a file to the kind of the same name.
impl From<kineto_model::Error> for Error {
    fn from(error: kineto_model::Error) -> Error {
        let (kind, message, path, io) = error.into_parts();
        Error { kind: same_kind(kind), message, path, io: io.map(Arc::new), kept: None }
    }
}

/// Returns the kind of the same name.
fn same_kind(kind: kineto_model::ErrorKind) -> ErrorKind {
    use kineto_model::ErrorKind as Kind;

    match kind {
        Kind::Config => ErrorKind::Config,
        Kind::OutOfMemory => ErrorKind::OutOfMemory,
        Kind::Timeout => ErrorKind::Timeout,
        Kind::Json => ErrorKind::Json,
        Kind::Truncated => ErrorKind::Truncated,
        Kind::NotATrace => ErrorKind::NotATrace,
        Kind::TooLarge => ErrorKind::TooLarge,
        Kind::Unsupported => ErrorKind::Unsupported,
        // Unreachable: a test checks that all kinds have a counterpart.
        _ => ErrorKind::Io,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

// The message contains the cause, so there is no source.
impl std::error::Error for Error {}

/// Shows the message, for a `main` that returns this error.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_is_the_message() {
        let error = Error::new(ErrorKind::Config, "cannot use `\"x\"`; correct it");
        assert_eq!(format!("{error:?}"), "cannot use `\"x\"`; correct it");
        let error = Error::io("read", Path::new("/a \"b\""), io::Error::other("no luck"), "name another");
        assert_eq!(format!("{error:?}"), "cannot read /a \"b\": no luck; name another");
    }

    #[test]
    fn kinds_of_both_packages_have_the_same_names() {
        for kind in kineto_model::ErrorKind::ALL {
            assert_eq!(format!("{:?}", same_kind(*kind)), format!("{kind:?}"));
        }
    }

    #[test]
    fn lack_of_memory_has_its_own_kind_and_advice() {
        let error = Error::io("save", Path::new("/a"), io::ErrorKind::OutOfMemory.into(), "name another");
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert_eq!(error.to_string(), "cannot save /a: out of memory; free memory and try again");
    }

    /// Reports of errors print the text, and then each source.
    #[test]
    fn error_has_its_cause_once() {
        let error = Error::io("read", Path::new("/a"), io::Error::other("no luck"), "name another");
        assert!(error.to_string().contains("no luck") && std::error::Error::source(&error).is_none());
        assert_eq!(error.io_error().map(ToString::to_string).as_deref(), Some("no luck"));
    }
}
