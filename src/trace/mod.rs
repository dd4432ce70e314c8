//! The result of a recording: an immutable value that walks its records whenever rows are requested.

#[cfg(feature = "analysis")]
mod analysis;
mod cpu;
#[cfg(feature = "devices")]
mod device;
#[cfg(not(feature = "devices"))]
#[path = "no_device.rs"]
mod device;
mod edit;
#[cfg(feature = "chakra")]
mod execution;
mod header;
mod index;
mod memory;
mod metadata;
mod progress;
mod recorded;
mod related;
mod saver;
mod stats;
mod thread;
mod violations;
mod walk;
mod window_set;

pub(crate) use cpu::CpuTrace;
pub use cpu::CpuTraceBuilder;
pub(crate) use device::DeviceRecords;
pub use edit::EventEdit;
pub(crate) use edit::PostProcess;
pub(crate) use header::TraceInfo;
pub(crate) use metadata::TraceMetadata;
pub(crate) use progress::Progress;
pub use progress::SaveProgress;
pub(crate) use recorded::{Recorded, Stretch, Window};
pub use saver::Saver;
pub use stats::{RecordedTime, TraceStats};
pub(crate) use thread::symbols::StackSymbols;
pub use violations::InvariantViolation;
pub(crate) use violations::Violations;
pub(crate) use window_set::WindowSet;

use crate::buffer::Loss;
use crate::clock::Converter;
use crate::diag::diag;
use crate::error::{Error, ErrorKind};
use crate::time::Timestamp;
use crate::write::chrome::{ChromeWriter, Header};
use crate::write::file::{self, Destination, FileContent, Format};
#[cfg(feature = "perfetto")]
use crate::write::perfetto::PerfettoWriter;
use crate::write::sink::Writers;
use edit::EditedRows;
use index::Index;
use index::omitted::OmittedEnters;
use index::requests::Requests;
use kineto_base::fallible::{self, Lazy};
use kineto_model::activity::{Activity, Track};
use kineto_model::rows::{Rows, ThreadRow};
use progress::{CountedBytes, PlainContent, ProgressReport};
use related::operations::WithOperations;
use related::{Finder, Related, WithRelated};
use std::cell::RefCell;
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use walk::{Walk, WalkCounts, site_rows};

/// A finished recording; a cheap handle that can be cloned, sent and shared.
///
/// It owns the records as the threads wrote them. Rows are created whenever they are requested and never kept, so saving a
/// trace takes a few megabytes whatever its size. The memory is returned when the last clone is dropped.
///
/// ```
/// use tracing::info_span;
/// use tracing_kineto::Trace;
///
/// # fn main() -> Result<(), tracing_kineto::Error> {
/// let trace = Trace::of(|| info_span!("work", items = 3).in_scope(|| ()))?;
/// trace.for_each(|row| println!("{} {}", row.kind, row.name));
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("app.pt.trace.json.gz");
/// trace.save(path)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Trace {
    inner: Arc<TraceContents>,
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace")
            .field("id", &self.inner.info.trace_id)
            .field("bytes", &self.inner.recorded.record_bytes())
            .finish_non_exhaustive()
    }
}

/// The contents of a trace, from which it can be made again, and what was found in them.
#[derive(Debug)]
pub(crate) struct TraceContents {
    pub(crate) recorded: Recorded,
    /// The records of collectors.
    pub(crate) devices: DeviceRecords,
    /// The activities that the program pushed.
    pub(crate) own: Vec<Arc<CpuTrace>>,
    pub(crate) converter: Converter,
    pub(crate) metadata: Arc<TraceMetadata>,
    pub(crate) info: TraceInfo,
    found: Findings,
}

/// What was found in a trace on first use, and what became of the trace.
#[derive(Debug, Default)]
struct Findings {
    index: Lazy<Index>,
    related: Lazy<Related>,
    omitted: Lazy<OmittedEnters>,
    requests: Lazy<Requests>,
    counts: Lazy<WalkCounts>,
    violations: OnceLock<Violations>,
    is_saved: AtomicBool,
    /// The output that was not written because the program took the trace.
    unwritten: OnceLock<PathBuf>,
    progress: Progress,
    /// Whether a caller has received the error about a violated assertion.
    is_violation_reported: AtomicBool,
}

impl Drop for Findings {
    fn drop(&mut self) {
        // Each use of a trace creates its index first.
        if let (Some(output), None) = (self.unwritten.get(), self.index.get()) {
            diag!(
                Warning,
                "trace",
                "a trace was dropped unused, and {} was not written; save what `finish` or `stop` returns, or drop the \
                 guard instead",
                Writers::output_name(output)
            );
        }
    }
}

/// A thread's row of a trace.
///
/// ```
/// use tracing::info_span;
/// use tracing_kineto::KinetoLayer;
/// use tracing_subscriber::prelude::*;
///
/// let (layer, guard) = KinetoLayer::builder().no_output().build()?;
/// tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || info_span!("work").in_scope(|| ()));
/// for track in guard.finish()?.tracks() {
///     println!("{} of process {}", track.name, track.process);
/// }
/// # Ok::<(), tracing_kineto::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceTrack {
    /// The process, as in [`Activity::track`].
    pub process: i64,
    /// The thread or stream.
    pub thread: i64,
    /// The name shown by viewers, such as "worker", or "thread 1235" if it has no name.
    pub name: String,
}

impl Trace {
    pub(crate) fn new(
        recorded: Recorded,
        mut devices: DeviceRecords,
        own: Vec<Arc<CpuTrace>>,
        converter: Converter,
        metadata: Arc<TraceMetadata>,
        info: TraceInfo,
    ) -> Trace {
        if let Some(range) = converter.stepped_range() {
            devices.allow_times(range);
        }
        let found = Findings::default();
        Trace { inner: Arc::new(TraceContents { recorded, devices, own, converter, metadata, info, found }) }
    }

    /// Replaces the ids in the header by those that are not empty.
    pub(crate) fn set_ids(&mut self, trace_id: &str, group_trace_id: &str) {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            let info = &mut inner.info;
            for (id, given) in [(&mut info.trace_id, trace_id), (&mut info.group_trace_id, group_trace_id)] {
                if !given.is_empty() {
                    given.clone_into(id);
                }
            }
        }
    }

    /// Returns the contents.
    pub(crate) fn contents(&self) -> &TraceContents {
        &self.inner
    }

    /// Replaces the metadata, which later traces may share, by a copy, unless there are other handles to the trace.
    pub(crate) fn separate_metadata(&mut self) -> &TraceMetadata {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.metadata = Arc::new(inner.metadata.copy());
        }
        &self.inner.metadata
    }

    /// Writes the trace to a file, in the format that the extension names: `.json`, or `.json.gz` (compressed).
    ///
    /// It may be called any number of times, with any paths, unless the builder was set to
    /// [`strict`](crate::torch::TorchOptions::strict). The file appears complete or not at all: it is written under a
    /// temporary name in the same folder and then renamed. A path such as `"sink://name"` goes to the handler registered for
    /// its scheme with [`KinetoLayerBuilder::sink`](crate::KinetoLayerBuilder::sink); `file://` is a path. Nothing is
    /// inserted into the path, as in libkineto's `save`.
    ///
    /// # Errors
    /// If the file cannot be written, its folder is missing, the disk is full, or no handler is registered for the scheme;
    /// the trace can be saved elsewhere. [`OutOfMemory`](crate::ErrorKind::OutOfMemory) if there is too little memory to sort
    /// the records; free some and save again. In strict mode, [`AlreadySaved`](crate::ErrorKind::AlreadySaved) the second
    /// time, and once [`InvariantViolated`](crate::ErrorKind::InvariantViolated) if an assertion did not hold.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.saver().save(path)
    }

    /// Returns the destination of [`save`](Trace::save): files, and the program's own sinks.
    pub(crate) fn destination(&self) -> &dyn Destination {
        &*self.inner.info.sinks
    }

    /// Writes the trace for `path` to that destination; returns the name of the file.
    pub(crate) fn save_to(
        &self,
        to: &dyn Destination,
        path: &Path,
        report: &ProgressReport<'_>,
    ) -> Result<PathBuf, Error> {
        let info = &self.inner.info;
        self.check_violations()?;
        // Set first, so that only one of two threads saves.
        if self.inner.found.is_saved.swap(true, Ordering::Relaxed) && info.is_strict {
            let why = format!(
                "the trace is not saved as {}: it was saved already; copy that file",
                Writers::output_name(path)
            );
            return Err(Error::new(ErrorKind::AlreadySaved, why));
        }
        let saved = to.write_file(path, info.config.gzip_level, &mut |name, out| {
            let format = file::FileFormat::from_path(name).map_or(Format::Json, |format| format.kind);
            let url = name.to_string_lossy();
            self.try_write(out, format, url.strip_prefix("file://").unwrap_or(&url), report)
        });
        if saved.is_err() {
            self.inner.found.is_saved.store(false, Ordering::Relaxed);
        }
        self.settle_live_file(saved.is_ok());
        saved
    }

    /// Writes the trace, not compressed.
    ///
    /// # Errors
    /// Those of `out`, [`Unsupported`](io::ErrorKind::Unsupported) if the format's feature is off, and
    /// [`OutOfMemory`](io::ErrorKind::OutOfMemory), after which it can be written again.
    pub fn write(&self, mut out: impl Write, format: Format) -> io::Result<()> {
        self.try_write(&mut PlainContent(&mut out), format, "", &ProgressReport::default())
    }

    /// Saves the trace, and next to it the execution trace if the builder enabled that; returns the name of the trace's file.
    pub(crate) fn save_all(&self, to: &dyn Destination, path: &Path) -> Result<PathBuf, Error> {
        let saved = self.save_to(to, path, &ProgressReport::with_limit(self.inner.info.config.dumps.file_limit))?;
        #[cfg(feature = "chakra")]
        self.save_next_execution_trace(to, &saved)?;
        Ok(saved)
    }

    fn try_write(
        &self,
        out: &mut dyn FileContent,
        format: Format,
        name: &str,
        report: &ProgressReport<'_>,
    ) -> io::Result<()> {
        fallible::attempt(|| {
            report.content_bytes.set(0);
            let out = &mut CountedBytes { out, report };
            let (metadata, base) = self.header_and_base();
            let devices = self.inner.devices.properties();
            let header = Header { metadata: &metadata, device_properties: &devices, base };
            let distributed = self.distributed_info().map(|info| info.to_json());
            match format {
                Format::Json => {
                    let mut writer = ChromeWriter::new(out, &header)?;
                    if let Some(rows) = self.write_rows(&mut writer, report)? {
                        writer.mark_incomplete(rows, self.row_count());
                    }
                    writer.finish(self.window().1, distributed.as_deref(), name)?;
                }
                #[cfg(feature = "perfetto")]
                Format::Perfetto => {
                    let mut writer = PerfettoWriter::new(out, &header)?;
                    let several = self.devices().arrows_with_several_ends().into_iter();
                    several.for_each(|(flow, ends)| writer.set_ends(flow, ends));
                    if let Some(rows) = self.write_rows(&mut writer, report)? {
                        writer.mark_incomplete(rows, self.row_count());
                    }
                    writer.finish(self.window().1, distributed.as_deref(), name)?;
                }
                _ => return Err(format.missing_feature()),
            }
            Ok(())
        })?
    }

    /// Writes all rows; returns how many were written if the deadline or the file's limit came first.
    fn write_rows(&self, writer: &mut dyn Rows, report: &ProgressReport<'_>) -> io::Result<Option<u64>> {
        let mut rows = self.inner.found.progress.of_file(writer, report, self.row_count());
        let written = self.deliver_rows(&mut rows).inspect(|()| rows.report_end());
        match self.inner.found.progress.file_cut() {
            None => written.map(|()| None),
            Some(cut) => Ok(Some(cut.rows)),
        }
    }

    /// Sets the output that the trace replaces, which a warning names if the trace is dropped unused.
    pub(crate) fn hand_out(self, output: Option<PathBuf>) -> Trace {
        if let Some(output) = output {
            drop(self.inner.found.unwritten.set(output));
        }
        self
    }

    /// Returns the progress of writing a file.
    pub(crate) fn progress(&self) -> &Progress {
        &self.inner.found.progress
    }

    /// Returns how long the end of the process waits for a file.
    pub(crate) fn flush_timeout(&self) -> Duration {
        self.inner.info.config.flush_timeout
    }

    /// Returns the approximate number of rows of a file.
    pub(crate) fn row_count(&self) -> u64 {
        let index = self.index();
        index.slices + index.events + index.memory + self.devices().counts().work + self.inner.own_rows()
    }

    /// Calls `each` with every activity: slices, instants and counters, thread by thread, in order of their start.
    ///
    /// Async tracks and arrows, which a file has too, are no activities and are left out.
    pub fn for_each(&self, each: impl FnMut(&Activity<'_>)) {
        // `Each` has no errors.
        let _ = self.deliver_rows(&mut Each(each));
    }

    /// Delivers all rows to `rows`, in the order of a file, with the program's changes.
    pub(crate) fn deliver_rows(&self, rows: &mut dyn Rows) -> io::Result<()> {
        match &self.related_rows().additions[..] {
            [] => self.edited_rows(rows),
            left => self.edited_rows(&mut WithRelated { rows, row: 0, left }),
        }
    }

    /// Delivers the changed rows without relations between rows.
    fn edited_rows(&self, rows: &mut dyn Rows) -> io::Result<()> {
        let (info, walk) = (&self.inner.info, self.walk());
        let mut edited;
        let rows: &mut dyn Rows = match &info.post_process {
            Some(edit) => {
                edited = EditedRows { rows, edit, left_out: false };
                &mut edited
            }
            None => rows,
        };
        if info.config.flags.with_modules || info.config.overload_names {
            walk.deliver_rows(&mut WithOperations::new(&walk, rows)).map(drop)
        } else {
            walk.deliver_rows(rows).map(drop)
        }
    }

    /// Returns the relations between rows; needs a walk only if there may be some.
    fn related_rows(&self) -> &Related {
        self.inner.found.related.get_or_init(|| {
            let mut finder = Finder::default();
            let sites = &self.inner.recorded.sites;
            if self.inner.own.iter().any(|own| own.has_any_arg(&Finder::KEYS)) || sites.iter().any(Finder::may_need) {
                // `Finder` has no errors.
                let _ = self.edited_rows(&mut self.inner.found.progress.of_walk(&mut finder));
            }
            finder.finish(self.inner.info.config.fwd_bwd)
        })
    }

    /// Returns the rows of the trace: the threads that recorded something.
    pub fn tracks(&self) -> Vec<TraceTrack> {
        let mut tracks = Tracks(Vec::new());
        let _ = self.walk().deliver_rows(&mut tracks);
        tracks.0
    }

    /// Returns when the recording began and ended; if the wall clock was set meanwhile, its earliest and its latest time.
    pub fn window(&self) -> (Timestamp, Timestamp) {
        // Each use of a trace creates its index.
        let _ = self.index();
        let (start, end) = self.inner.recorded.whole;
        self.inner.converter.time_range(start, end)
    }

    /// Returns the keys and JSON texts of the file's header, except those that Kineto always writes.
    pub fn metadata(&self) -> Vec<(String, String)> {
        self.header_and_base().0
    }

    /// Adds a text to the header of the files that are saved from now on.
    pub fn add_metadata(&self, key: &str, value: &str) {
        self.inner.metadata.add_text(key, value);
    }

    /// Adds a JSON value to the header of the files that are saved from now on.
    ///
    /// # Errors
    /// If `json` is not valid JSON.
    pub fn add_metadata_json(&self, key: &str, json: &str) -> Result<(), Error> {
        self.inner.metadata.add_json(key, json)
    }

    /// Returns whether something began, ended, was delivered, or was lost in the time of the trace.
    pub(crate) fn has_new_records(&self) -> bool {
        let index = self.index();
        index.slices > index.cut_slices.min(index.unfinished.len() as u64)
            || index.events + index.memory + self.inner.own_rows() > 0
            || self.inner.devices.record_bytes() > 0
            || self.stats().losses.iter().any(|(loss, _)| loss.is_loss())
    }

    /// Returns why the trace is empty; `None` if it is not.
    pub fn why_empty(&self) -> Option<&'static str> {
        let index = self.index();
        let sites = &self.inner.recorded.sites;
        let devices = self.devices().counts();
        let of_host = index.slices + index.events + index.memory + self.inner.own_rows();
        if of_host + devices.work + devices.memory > 0 {
            None
        } else if self.inner.devices.unread_collectors() > 0 {
            Some(
                "its records of devices need tracing-kineto's feature `devices`, which is off; enable it in Cargo.toml",
            )
        } else if !self.inner.info.config.mode.has_recording_mode() {
            Some("the mode excludes kineto, so spans were only sent to other profilers; add kineto to the mode")
        } else if self.inner.info.losses.get(Loss::SlicesOverLimit as usize).is_some_and(|lost| *lost > 0) {
            Some("there was no memory for records; raise buffer_limit_bytes, or the process's limits (ulimit -v, -d)")
        } else if self.inner.info.config.gpu.profiler_range && self.inner.recorded.windows.is_empty() {
            Some(if self.inner.devices.stretches().next().is_some() {
                "cudaProfilerStart was not called while the recording waited for it; call it, or unset CUDA_PROFILER_RANGE"
            } else {
                "the recording waited for cudaProfilerStart (CUDA_PROFILER_RANGE), which needs CUPTI, and CUPTI did not \
                 record; run `kineto doctor` for the cause"
            })
        } else if self.inner.info.some_threads {
            Some("no selected thread has entered a span; see KinetoLayerBuilder::threads")
        } else if sites.is_empty() {
            Some(
                "no span reached the layer: the program made none, a filter in front of all layers hides them, or another \
                  subscriber was set before; install the layer first",
            )
        } else if sites.iter().all(|site| !site.is_recorded) {
            Some(
                "every span that reached the layer is left out by its filter, or by the selected activity types or scopes; widen them",
            )
        } else {
            Some("no span was entered while the recording ran; start it earlier, or stop it later")
        }
    }

    fn index(&self) -> &Index {
        let inner = &self.inner;
        let read =
            || Index::new(&inner.recorded, &inner.converter, inner.info.config.async_spans, &inner.found.progress);
        inner.found.index.get_or_init(read)
    }

    fn omitted(&self) -> &OmittedEnters {
        let inner = &*self.inner;
        let find = || OmittedEnters::new(self.index(), self.devices(), inner.converter.error_ns());
        inner.found.omitted.get_or_init(find)
    }

    fn requests(&self) -> &Requests {
        self.inner.found.requests.get_or_init(|| Requests::new(&self.inner, self.index()))
    }

    /// Returns the counts of a walk; needs a walk only if slices may overlap.
    fn walk_counts(&self) -> WalkCounts {
        *self.inner.found.counts.get_or_init(|| {
            let mut none = Each(|_: &Activity<'_>| {});
            let counts = match (
                self.inner.recorded.disorder || !self.inner.own.is_empty() || self.inner.converter.repeats_times(),
                self.devices().counts().may_overlap,
            ) {
                (true, _) => self.walk().deliver_rows(&mut none),
                (false, true) => {
                    let mut counts = WalkCounts::default();
                    self.walk().device_rows(&mut none, &mut counts).map(|()| counts)
                }
                (false, false) => Ok(WalkCounts::default()),
            };
            counts.unwrap_or_default()
        })
    }

    fn walk(&self) -> Walk<'_> {
        let TraceContents { recorded, own, converter, info, .. } = &*self.inner;
        Walk {
            recorded,
            index: self.index(),
            omitted: self.omitted(),
            requests: self.requests(),
            devices: self.devices(),
            own,
            converter,
            info,
            window: self.window(),
            sites: site_rows(recorded, &info.config),
            words: RefCell::default(),
        }
    }
}

impl TraceContents {
    /// Returns the number of rows that the program has pushed.
    fn own_rows(&self) -> u64 {
        let counts = self.own.iter().map(|own| own.count_records(self.info.config.activities));
        counts.map(|counts| counts.slices + counts.events).sum()
    }
}

/// Passes rows on as activities only.
struct Each<F>(F);

impl<F: FnMut(&Activity<'_>)> Rows for Each<F> {
    fn write_activity(&mut self, activity: &Activity<'_>) -> io::Result<()> {
        (self.0)(activity);
        Ok(())
    }
}

/// Collects the names of rows.
struct Tracks(Vec<TraceTrack>);

impl Rows for Tracks {
    fn write_thread(&mut self, row: &ThreadRow<'_>) -> io::Result<()> {
        use kineto_model::activity::Lane::Id;
        if let Track { process: Id(process), thread: Id(thread) } = row.track {
            self.0.push(TraceTrack { process, thread, name: row.name.to_owned() });
        }
        Ok(())
    }
}
