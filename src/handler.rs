//! Trace handlers: the program's own, and one for TensorBoard's folder.

use crate::os::{platform, process};
use crate::trace::Trace;
use crate::write::file::{self, stem_and_end};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

/// Receives the traces of a schedule, one for each cycle, like torch.profiler's `on_trace_ready`.
///
/// A closure `FnMut(Trace) + Send` implements it, and may return nothing, the path at which it saved the trace, or a `Result`
/// of either.
///
/// ```
/// use tracing_kineto::{Error, Trace, TraceHandler};
///
/// fn takes(handler: impl TraceHandler) {}
/// takes(|trace: Trace| println!("{}", trace.stats()));
/// takes(|trace: Trace| trace.save("last.pt.trace.json"));
/// ```
pub trait TraceHandler: Send {
    /// Handles a trace; returns its path, if it was saved to a file.
    ///
    /// It runs on the thread that steps, which waits for it. A panic is caught, and counts as an error.
    ///
    /// # Errors
    /// Any error; its text becomes part of the step's outcome and of a message.
    fn ready(&mut self, trace: Trace) -> Result<Option<PathBuf>, HandlerError>;

    /// Checks that traces can be handled; [`build`](crate::KinetoLayerBuilder::build) calls it. The default does nothing.
    ///
    /// # Errors
    /// If traces could not be handled; `build` returns the error.
    fn prepare(&mut self) -> Result<(), crate::Error> {
        Ok(())
    }
}

/// The error of a handler.
pub type HandlerError = Box<dyn Error + Send + Sync>;

/// The values that a handler's closure may return.
pub trait Handled {
    /// Returns the path of the trace, if any.
    ///
    /// # Errors
    /// The error that the closure returned.
    fn handled(self) -> Result<Option<PathBuf>, HandlerError>;
}

impl Handled for () {
    fn handled(self) -> Result<Option<PathBuf>, HandlerError> {
        Ok(None)
    }
}

impl Handled for PathBuf {
    fn handled(self) -> Result<Option<PathBuf>, HandlerError> {
        Ok(Some(self))
    }
}

impl<T: Handled, E: Into<HandlerError>> Handled for Result<T, E> {
    fn handled(self) -> Result<Option<PathBuf>, HandlerError> {
        self.map_err(Into::into)?.handled()
    }
}

impl<F, R> TraceHandler for F
where
    F: FnMut(Trace) -> R + Send,
    R: Handled,
{
    fn ready(&mut self, trace: Trace) -> Result<Option<PathBuf>, HandlerError> {
        self(trace).handled()
    }
}

/// Saves each trace in a folder that TensorBoard's PyTorch plugin reads: `{worker}.{nanoseconds}.pt.trace.json`.
///
/// `build` creates the folder if it is missing, and fails if no file can be created there. The plugin reads the worker's name
/// and the time from the file's name.
///
/// ```no_run
/// use tracing_kineto::{KinetoLayer, Schedule, tensorboard_trace_handler};
///
/// let builder = KinetoLayer::builder()
///     .schedule(Schedule::new(1, 1, 3)?)
///     .on_trace_ready(tensorboard_trace_handler("runs/profile").gzip(true));
/// # Ok::<(), tracing_kineto::Error>(())
/// ```
pub fn tensorboard_trace_handler(folder: impl Into<PathBuf>) -> TensorboardTraceHandler {
    TensorboardTraceHandler { folder: folder.into(), worker: None, gzip: false }
}

/// The handler that [`tensorboard_trace_handler`] returns.
#[derive(Clone, Debug)]
pub struct TensorboardTraceHandler {
    folder: PathBuf,
    worker: Option<String>,
    gzip: bool,
}

impl TensorboardTraceHandler {
    /// Names the worker. Default: `{host}_{process id}`.
    #[must_use]
    pub fn worker_name(mut self, name: impl Into<String>) -> Self {
        self.worker = Some(name.into());
        self
    }

    /// Sets whether files are compressed and named `.json.gz`. Default: false.
    #[must_use]
    pub fn gzip(mut self, on: bool) -> Self {
        self.gzip = on;
        self
    }

    fn worker_or_default(&self) -> String {
        self.worker.clone().unwrap_or_else(|| {
            let host = Some(process::host_name()).filter(|host| !host.is_empty());
            format!("{}_{}", host.as_deref().unwrap_or("host"), platform::process_id())
        })
    }

    fn make_folder(&self) -> Result<(), crate::Error> {
        let failed = |error| crate::Error::io("make", &self.folder, error, "name a folder that can be made");
        fs::create_dir_all(&self.folder).map_err(failed)
    }

    fn trace_path(&self, nanoseconds: u128) -> PathBuf {
        let end = if self.gzip { ".gz" } else { "" };
        let name = format!("{}.{nanoseconds}.pt.trace.json{end}", self.worker_or_default());
        self.folder.join(name)
    }
}

impl TraceHandler for TensorboardTraceHandler {
    fn prepare(&mut self) -> Result<(), crate::Error> {
        let failed = |error| crate::Error::io("make", &self.folder, error, "name a folder that can be made");
        // The program may change its working directory later.
        self.folder = std::path::absolute(&self.folder).map_err(failed)?;
        self.make_folder()?;
        Ok(file::check_writable(&self.trace_path(0))?)
    }

    fn ready(&mut self, trace: Trace) -> Result<Option<PathBuf>, HandlerError> {
        self.make_folder()?;
        let path = self.trace_path(platform::unix_time().as_nanos());
        trace.save(&path)?;
        Ok(Some(path))
    }
}

/// Returns the file of cycle `number` for `path`: `app.3.pt.trace.json` for `app.pt.trace.json`, so that TensorBoard shows the
/// cycles as those of one worker.
pub(crate) fn numbered_path(path: &Path, number: u64) -> PathBuf {
    with_suffix(path, &format!(".{number}"))
}

/// Returns the file of part `number` of a recording: `app.part0003.json` for `app.json`. Up to 9999 parts sort by name.
pub(crate) fn part_path(path: &Path, number: u64) -> PathBuf {
    with_suffix(path, &format!(".part{number:04}"))
}

/// Returns the file of layer `number` of a process for that of the first: `app_2.json` for `app.json`, which differs from the
/// names of cycles.
pub(crate) fn numbered_layer(path: &Path, number: u64) -> PathBuf {
    with_suffix(path, &format!("_{number}"))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let Some(name) = path.file_name() else { return path.to_owned() };
    let (stem, end) = stem_and_end(name);
    let mut numbered = stem.to_owned();
    numbered.push(format!("{suffix}{end}"));
    path.with_file_name(numbered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_equal_those_of_torch() {
        let handler = tensorboard_trace_handler("runs");
        let worker = format!("{}_{}", process::host_name(), std::process::id());
        assert_eq!(handler.trace_path(17), Path::new("runs").join(format!("{worker}.17.pt.trace.json")));
        let handler = handler.worker_name("worker0").gzip(true);
        assert_eq!(handler.trace_path(18), Path::new("runs/worker0.18.pt.trace.json.gz"));
    }

    #[test]
    #[cfg(unix)]
    fn name_that_is_not_utf8_is_numbered_too() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;

        let path = |name: &[u8]| PathBuf::from(OsStr::from_bytes(name));
        assert_eq!(numbered_path(&path(b"/tmp/\xff.json"), 3), path(b"/tmp/\xff.3.json"));
        assert_eq!(numbered_layer(&path(b"/tmp/a.\xff.json.gz"), 2), path(b"/tmp/a.\xff_2.json.gz"));
    }

    #[test]
    fn cycle_number_precedes_the_extension() {
        for (path, expected) in [
            ("/tmp/app.pt.trace.json.gz", "/tmp/app.3.pt.trace.json.gz"),
            ("app.pt.trace.json", "app.3.pt.trace.json"),
            ("a.b.json", "a.b.3.json"),
            ("app.json.gz", "app.3.json.gz"),
            ("app", "app.3"),
            ("s3://bucket/app.json", "s3://bucket/app.3.json"),
            ("/", "/"),
        ] {
            assert_eq!(numbered_path(Path::new(path), 3), Path::new(expected));
        }
    }

    #[test]
    fn parts_sort_by_name() {
        let name = |number| part_path(Path::new("app.json.gz"), number);
        assert_eq!([name(2), name(12_345)], ["app.part0002.json.gz", "app.part12345.json.gz"].map(PathBuf::from));
        assert!((1..=9999).map(name).is_sorted());
    }

    #[test]
    fn closures_may_return_nothing_a_path_or_a_result() {
        assert_eq!(().handled().unwrap(), None);
        assert_eq!(Ok::<_, std::io::Error>(PathBuf::from("a")).handled().unwrap(), Some("a".into()));
        assert_eq!(Err::<(), _>("no luck").handled().unwrap_err().to_string(), "no luck");
    }
}
