//! The crate's error type.

pub use kineto_model::ErrorKind;
use std::any::Any;
use std::fmt;
use std::io;
use std::path::Path;
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
    error: Arc<kineto_model::Error>,
    /// What the program may still use after the error.
    kept: Option<Arc<dyn Any + Send + Sync>>,
}

impl Error {
    /// Creates an error of that kind; `message` is lower case, without a full stop, and ends with a remedy.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        kineto_model::Error::new(kind, message).into()
    }

    /// Creates an [`ErrorKind::Io`] about `path`, or an [`ErrorKind::OutOfMemory`]: "cannot `what` `path`: `source`; `advice`".
    pub(crate) fn io(what: &str, path: &Path, source: io::Error, advice: &str) -> Self {
        kineto_model::Error::from_io(what, path, source, advice).into()
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
        self.error.kind()
    }

    /// Returns the file concerned, if the error is about one.
    pub fn path(&self) -> Option<&Path> {
        self.error.path()
    }

    /// Returns the error of the operating system that caused this one, if there is one; the text contains it.
    pub fn io_error(&self) -> Option<&io::Error> {
        self.error.io_error()
    }
}

/// Converts an error of the analysis or of a file.
impl From<kineto_model::Error> for Error {
    fn from(error: kineto_model::Error) -> Error {
        Error { error: Arc::new(error), kept: None }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

// The message contains the cause, so there is no source.
impl std::error::Error for Error {}

/// Shows the message, for a `main` that returns this error.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
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
