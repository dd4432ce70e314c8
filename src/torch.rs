//! What torch.profiler and libkineto offer and few Rust programs need, under their names.
//!
//! [`TorchOptions`] are settings of the builder, [`Libkineto`] is a view of a [`Profiler`] with the rest.

pub use crate::builder::TorchOptions;
use crate::error::Error;
use crate::os::platform;
use crate::profiler::{NoSession, Profiler};
use crate::session::Session;
use crate::time::Timestamp;
use crate::trace::{CpuTraceBuilder, Trace};
use kineto_devices::CollectorReport;
use kineto_model::activity::{ActivityGroup, ActivityTypes};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A view of a [`Profiler`] with the functions of libkineto and torch.profiler that few Rust programs need.
///
/// ```
/// use tracing_kineto::KinetoLayer;
/// use tracing_kineto::torch::Libkineto;
///
/// let (_layer, guard) = KinetoLayer::builder().no_output().record_from_start(false).build()?;
/// let profiler = guard.profiler();
/// let prepared = Libkineto::of(&profiler).prepare()?; // loads the GPUs' libraries
/// prepared.start()?;
/// # drop(guard.finish()?);
/// # Ok::<(), tracing_kineto::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Libkineto<'p> {
    profiler: &'p Profiler,
}

impl<'p> Libkineto<'p> {
    /// Returns the view of a profiler.
    pub fn of(profiler: &'p Profiler) -> Libkineto<'p> {
        Libkineto { profiler }
    }

    fn session(self) -> Result<&'p Arc<Session>, NoSession> {
        self.profiler.session()
    }

    /// Loads the collectors' libraries and starts the collectors, so that [`Prepared::start`] takes no time.
    ///
    /// Use it to check the collectors before measuring, or if the first kernels matter: loading a vendor's library takes from
    /// a tenth of a second to a second. Nothing is recorded until the start. Dropping the value stops the collectors.
    ///
    /// # Errors
    /// [`AlreadyActive`](crate::ErrorKind::AlreadyActive) if a recording is running. A collector that cannot record is not an
    /// error: its [report](Prepared::reports) has the reason.
    pub fn prepare(self) -> Result<Prepared, Error> {
        let session = self.session()?;
        session.check_guard()?;
        let (preparation, reports) = session.prepare()?;
        Ok(Prepared { session: session.clone(), preparation, reports })
    }

    /// Returns the types that can be recorded on this machine: those of the host, and of collectors that find their
    /// libraries.
    pub fn supported_activities(self) -> ActivityTypes {
        let reports = self.profiler.probe_collectors();
        let can = reports.iter().filter_map(|report| report.state.as_ref().ok()).map(|can| can.types);
        let host = if platform::CAN_RECORD { ActivityGroup::Cpu.types() } else { ActivityTypes::EMPTY };
        can.fold(host, ActivityTypes::union)
    }

    /// Pauses a group until [`resume_activities`](Self::resume_activities), like PyTorch's
    /// `toggle_collection_dynamic(False, …)`: [`ActivityGroup::Cpu`] means spans and events, every other group the collectors
    /// that record some of its types, including calls of runtime and driver.
    ///
    /// It accepts sets of types too: types of spans mean the host, those of devices their collectors. Work that is launched
    /// while only the host is paused has no span. [`Status::Paused`](crate::Status::Paused) refers to the host.
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if no recording is running.
    pub fn pause_activities(self, types: impl Into<ActivityTypes>) -> Result<(), Error> {
        self.session()?.recording.pause(types.into())
    }

    /// Resumes a group, whether it was paused with others or by itself.
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if no recording is running.
    pub fn resume_activities(self, types: impl Into<ActivityTypes>) -> Result<(), Error> {
        self.session()?.recording.resume(types.into())
    }

    /// Returns the traces of the cycles that have ended, if
    /// [`TorchOptions::acc_events`] is set.
    pub fn traces(self) -> Vec<Trace> {
        self.session().map(|session| session.steps.kept_traces()).unwrap_or_default()
    }

    /// Returns the trace id of the recording that is running or prepared: 32 upper-case hexadecimal digits, the result of
    /// [`TorchOptions::trace_id_callback`], or `REQUEST_TRACE_ID`.
    pub fn trace_id(self) -> Option<String> {
        self.session().ok()?.recording.trace_id()
    }

    /// Returns the current iteration of the program: the largest count of all requesters.
    pub fn iteration(self) -> u64 {
        self.session().map_or(0, |session| session.steps.with_iterations(|iterations| iterations.current()))
    }

    /// Counts an iteration for `requester`, such as an optimizer; returns the current iteration.
    ///
    /// A requester that starts late starts at the current iteration. [`step`](Profiler::step) counts as "ProfilerStep".
    pub fn count_iteration(self, requester: &str) -> u64 {
        self.session().map_or(0, |session| session.count_iteration(requester))
    }

    /// Forgets a requester's count, without changing the current iteration; returns whether there was one.
    pub fn forget_iterations(self, requester: &str) -> bool {
        self.session().is_ok_and(|session| session.steps.with_iterations(|counts| counts.erase(requester)))
    }

    /// Adds a text to the header of each recording that starts from now on.
    pub fn preset_metadata(self, key: &str, value: &str) {
        if let Ok(session) = self.session() {
            session.recording.presets.add_text(key, value);
        }
    }

    /// Adds a JSON value to the header of each recording that starts from now on.
    ///
    /// # Errors
    /// [`Json`](crate::ErrorKind::Json) if `json` is not valid JSON.
    pub fn preset_metadata_json(self, key: &str, json: &str) -> Result<(), Error> {
        self.session().map_or(Ok(()), |session| session.recording.presets.add_json(key, json))
    }

    /// Adds a builder's activities to the running recording; `end` is the end of the period that the builder covers.
    ///
    /// The trace shows its activities, and one row for the whole period, like libkineto's `transferCpuTrace`; types that the
    /// recording does not select are omitted. The activities count towards the recording's buffer limit, and need not lie
    /// within its times.
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if no recording is running; [`TooLarge`](crate::ErrorKind::TooLarge) at the
    /// buffer limit. The builder is dropped then.
    pub fn transfer(self, builder: CpuTraceBuilder, end: Timestamp) -> Result<(), Error> {
        self.session()?.recording.transfer(builder, end)
    }

    /// Records that an assertion did not hold in the running recording, like kineto's `logInvariantViolation`: the assertion,
    /// what happened instead, and the group of recordings that this one belongs to (empty for none).
    ///
    /// [`TraceStats::violations`](crate::TraceStats::violations) and the file's header contain it with the recording's trace
    /// id; at most 100 distinct ones, each with its count. With
    /// [`TorchOptions::strict`], the recording's stop, step or save fails.
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if no recording is running.
    pub fn log_invariant_violation(self, assertion: &str, error: &str, group: &str) -> Result<(), Error> {
        self.session()?.recording.log_violation(assertion, error, group)
    }

    /// Starts a memory profile: it records only what allocators report, independent of other recordings.
    ///
    /// It corresponds to libkineto's `PROFILE_MEMORY`, and does not need the builder's
    /// [`with_memory`](crate::KinetoLayerBuilder::with_memory). The records have no slices; categories come only from
    /// [`memory::scope`](crate::memory::scope). It has its own memory, up to the layer's buffer limit. It evicts a memory
    /// profile of an external request.
    ///
    /// # Errors
    /// [`AlreadyActive`](crate::ErrorKind::AlreadyActive) if a memory profile is running.
    pub fn start_memory_profile(self) -> Result<(), Error> {
        self.session()?.memory_profile.start()
    }

    /// Ends the memory profile and returns it; it is kept for
    /// [`export_memory_profile`](Self::export_memory_profile) until the next one ends.
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if none is running.
    pub fn stop_memory_profile(self) -> Result<Trace, Error> {
        self.session()?.memory_profile.stop()
    }

    /// Writes the timeline of the last memory profile: that of the first device, or of the host if there is none. The
    /// extension selects the format, as for [`MemoryTimeline::save`](crate::MemoryTimeline::save).
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if there is no profile, or no allocator has reported anything; those of
    /// [`MemoryTimeline::save`](crate::MemoryTimeline::save).
    pub fn export_memory_profile(self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.session()?.memory_profile.export(path.as_ref())
    }
}

/// Collectors that run and wait for a recording to begin; see [`Libkineto::prepare`].
#[must_use = "dropping it stops the collectors"]
pub struct Prepared {
    session: Arc<Session>,
    preparation: u64,
    reports: Vec<CollectorReport>,
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("collectors", &self.reports.len()).finish_non_exhaustive()
    }
}

impl Prepared {
    /// Returns a report for each selected collector.
    pub fn reports(&self) -> &[CollectorReport] {
        &self.reports
    }

    /// Starts the recording, or the schedule if there is one, whose warm-up starts the collectors again.
    ///
    /// # Errors
    /// Those of [`Profiler::start`].
    pub fn start(self) -> Result<(), Error> {
        let session = self.session.clone();
        session.check_guard()?;
        // The warm-up of a schedule prepares the collectors itself.
        let _prepared = (!session.has_schedule()).then_some(self);
        session.begin_schedule()
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.session.recording.cancel_preparation(self.preparation);
    }
}
