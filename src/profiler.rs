//! The handle with which a program controls its recording.

use crate::collector::CollectorReport;
use crate::error::{Error, ErrorKind};
use crate::record_while::RecordWhile;
use crate::schedule::Schedule;
use crate::session::{Cycle, Ending, Session, Status, StepOutcome, StepState, ThreadRecording};
use crate::time::Timestamp;
use crate::trace::{CpuTraceBuilder, Trace};
use kineto_trace::activity::{ActivityGroup, ActivityTypes, Args};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Starts, stops and describes recordings; a cheap clone, for any thread.
///
/// Handed out by [`KinetoGuard::profiler`](crate::KinetoGuard::profiler). One recording goes on at a time.
#[derive(Clone)]
pub struct Profiler {
    session: Option<Arc<Session>>,
}

impl fmt::Debug for Profiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profiler")
            .field("status", &self.session.as_ref().map_or(Status::Idle, |session| session.status_now()))
            .finish_non_exhaustive()
    }
}

impl Profiler {
    pub(crate) fn new(session: Option<Arc<Session>>) -> Profiler {
        Profiler { session }
    }

    /// Whether spans are recorded now: not while a recording is paused, nor where its host types are.
    ///
    /// Costs about as much as reading an atomic; for work that is only worth its time in a trace.
    #[inline]
    pub fn is_recording(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_recording())
    }

    pub(crate) fn session(&self) -> Result<&Arc<Session>, Error> {
        let why = "the profiler is switched off (KINETO_ENABLED)";
        self.session.as_ref().ok_or_else(|| Error::new(ErrorKind::NotActive, why))
    }

    /// Loads what the collectors need and has them begin, and says how each fared; [`Prepared::start`] then takes no time.
    ///
    /// For programs that want to know before they measure, and for a first recording whose first kernels count: loading
    /// a vendor's library takes from a tenth of a second to a second. What happens until the start is recorded by
    /// nobody. Dropping the value lets go of the libraries.
    ///
    /// # Errors
    /// [`AlreadyActive`](crate::ErrorKind::AlreadyActive) if a recording is going on. A collector that cannot record is
    /// no error: its [report](Prepared::reports) says why.
    pub fn prepare(&self) -> Result<Prepared, Error> {
        let session = self.session()?;
        session.check_guard()?;
        let (ticket, reports) = session.prepare()?;
        Ok(Prepared { session: session.clone(), ticket, reports })
    }

    /// Returns what can be recorded on this machine: the host's types, and what the collectors that find their libraries
    /// can record.
    pub fn supported_activities(&self) -> ActivityTypes {
        let reports = self.collectors();
        let can = reports.iter().filter_map(|report| report.state.as_ref().ok()).map(|can| can.types);
        can.fold(ActivityGroup::Cpu.types(), ActivityTypes::union)
    }

    /// Asks each collector what it can do here, without starting it.
    pub fn collectors(&self) -> Vec<CollectorReport> {
        self.session.as_ref().map(|session| session.probe()).unwrap_or_default()
    }

    /// Starts a recording, or begins the schedule if there is one.
    ///
    /// Spans that are open now appear when they are exited, from here on and marked `"clipped": true`.
    ///
    /// # Errors
    /// [`AlreadyActive`](crate::ErrorKind::AlreadyActive) if one is going on; [`NotActive`](crate::ErrorKind::NotActive) if
    /// the guard was dropped; [`Config`](crate::ErrorKind::Config) if the schedule says what it may not.
    pub fn start(&self) -> Result<(), Error> {
        let session = self.session()?;
        session.check_guard()?;
        session.begin()
    }

    /// Ends the recording and returns it: no thread of the program is waited for, nothing is converted yet.
    ///
    /// Where collectors run, what was launched is waited for until it has ended, no longer than the builder's
    /// [`flush_timeout`](crate::KinetoLayerBuilder::flush_timeout). Until then, other calls of profilers wait too.
    ///
    /// Spans that are open now end here, marked `"finished": false`.
    ///
    /// The output is not written: save the trace. A trace that is dropped unused is reported.
    ///
    /// A schedule ends with it: what is recorded of the cycle at that time is saved or handed to the handler, as each cycle
    /// is, and returned; what goes wrong with that is said in a message. A later [`start`](Profiler::start) goes on with the
    /// step at which it ended.
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if none is going on; of a schedule that waited or warmed up, the text says
    /// how many more steps were needed. [`InvariantViolated`](crate::ErrorKind::InvariantViolated) in strict mode, if an
    /// assertion did not hold: the recording has ended all the same, and is in [`Error::trace`].
    pub fn stop(&self) -> Result<Trace, Error> {
        let session = self.session()?;
        match session.finish(false)? {
            Ending::Recording(trace) => trace.check_violations().map(|()| trace.hand_out(session.output())),
            Ending::Cycle(Cycle { error: Some(error), .. }) if error.kind() == ErrorKind::InvariantViolated => {
                Err(error)
            }
            Ending::Cycle(cycle) => Ok(cycle.trace),
            Ending::Nothing { why, .. } => Err(Error::new(ErrorKind::NotActive, why)),
        }
    }

    /// Says that a step of the program has ended and the next one begins, and does what the schedule says of it.
    ///
    /// Call it at the end of each step, from one thread: with a schedule, the span `ProfilerStep#n` is around what that thread
    /// does in step `n`. Where steps come from several threads, each ends the span of the one before, whichever thread is in
    /// it; a span that was ended from elsewhere stays the parent of new ones on its own thread until that thread steps again.
    ///
    /// Traces are saved or handed out here, on the calling thread. Without a schedule, it counts and does nothing else.
    pub fn step(&self) -> StepOutcome {
        match self.session() {
            Ok(session) => session.step(),
            Err(why) => StepOutcome::of(0, StepState::Nothing { reason: why.to_string() }),
        }
    }

    /// Sets the schedule that the next [`start`](Profiler::start) begins, at its step 0; `None` takes it away.
    ///
    /// # Errors
    /// [`AlreadyActive`](crate::ErrorKind::AlreadyActive) if a recording or a schedule is going on;
    /// [`Config`](crate::ErrorKind::Config) if a custom schedule says what it may not of step 0.
    pub fn schedule(&self, schedule: impl Into<Option<Schedule>>) -> Result<(), Error> {
        self.session()?.set_schedule(schedule.into())
    }

    /// Returns the traces of the cycles that have ended, if the builder was told to keep them
    /// ([`acc_events`](crate::KinetoLayerBuilder::acc_events)).
    pub fn traces(&self) -> Vec<Trace> {
        self.session.as_ref().map(|session| session.steps.traces()).unwrap_or_default()
    }

    /// Returns which iteration the program is in: the largest of the counts of all that count.
    pub fn iteration(&self) -> u64 {
        self.session.as_ref().map_or(0, |session| session.steps.iterations(|iterations| iterations.current()))
    }

    /// Counts an iteration in the name of `requester`, such as an optimizer; returns the current one then.
    ///
    /// Whose first count comes late is taken to be in the current iteration. [`step`](Profiler::step) counts as
    /// "ProfilerStep".
    pub fn count_iteration(&self, requester: &str) -> u64 {
        self.session.as_ref().map_or(0, |session| session.count_iteration(requester))
    }

    /// Forgets a requester's count, without changing the current iteration; returns whether there was one.
    pub fn forget_iterations(&self, requester: &str) -> bool {
        self.session.as_ref().is_some_and(|session| session.steps.iterations(|counts| counts.erase(requester)))
    }

    /// Returns the name of the recording that goes on or is prepared: 32 upper-case hexadecimal digits, what the builder's
    /// [`trace_id_callback`](crate::KinetoLayerBuilder::trace_id_callback) said, or `REQUEST_TRACE_ID`.
    pub fn trace_id(&self) -> Option<String> {
        self.session.as_ref()?.trace_id()
    }

    /// Stops recording until [`resume`](Profiler::resume): spans, and the work of devices that is launched from now on.
    /// Nothing if paused already.
    ///
    /// What was launched before is in the trace with its end, whenever that is; no device is waited for. The trace's
    /// [statistics](crate::TraceStats::recorded) and its header say when it was recorded. Each stretch between pauses takes
    /// at least 64 KiB of the [buffer limit](crate::KinetoLayerBuilder::buffer_limit_bytes) for each thread with spans in it.
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if no recording is going on.
    pub fn pause(&self) -> Result<(), Error> {
        self.session()?.pause(ActivityTypes::ALL)
    }

    /// Has recordings go on only while a span of that name is entered, on any thread: put the layer that this returns on the
    /// registry before the [`KinetoLayer`](crate::KinetoLayer). It [pauses](Profiler::pause) the recording and has it go on;
    /// of several that do so, such as the marks of [`profiler_range`](crate::KinetoLayerBuilder::profiler_range), the last
    /// one counts.
    ///
    /// ```
    /// # use tracing_subscriber::prelude::*;
    /// let (layer, guard) = tracing_kineto::KinetoLayer::builder().no_output().build()?;
    /// let while_training = guard.profiler().record_while("train");
    /// let subscriber = tracing_subscriber::registry().with(while_training).with(layer);
    /// # Ok::<(), tracing_kineto::Error>(())
    /// ```
    pub fn record_while(&self, span: &str) -> RecordWhile {
        RecordWhile::new(self.session.clone(), span)
    }

    /// Goes on recording; nothing if not paused.
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if no recording is going on.
    pub fn resume(&self) -> Result<(), Error> {
        self.session()?.resume(ActivityTypes::ALL)
    }

    /// Has the calling thread recorded from now on, whatever [`ThreadFilter`](crate::ThreadFilter) says of it; torch's
    /// `enableProfilerInChildThread`. It is left out again when the value that this returns is dropped.
    ///
    /// Spans that the thread is in already are not recorded; one that it has made, and enters now, has its fields only with
    /// [`fields_while_idle`](crate::KinetoLayerBuilder::fields_while_idle).
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if no recording is going on;
    /// [`AlreadyActive`](crate::ErrorKind::AlreadyActive) if the thread is recorded.
    pub fn enable_in_this_thread(&self) -> Result<ThreadRecording, Error> {
        self.session()?.join()
    }

    /// Leaves the calling thread out of the recording from now on: its spans, its events and its allocations, and observers
    /// are told nothing of it. Slices that it has open end here. torch's `disableProfilerInChildThread`.
    ///
    /// It holds until [`enable_in_this_thread`](Profiler::enable_in_this_thread), or the end of the recording. What the thread
    /// launches on devices stays in the trace, and belongs to no span.
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if no recording is going on, or the thread is not recorded.
    pub fn disable_in_this_thread(&self) -> Result<(), Error> {
        self.session()?.leave()
    }

    /// Stops recording a group until [`resume_activities`](Profiler::resume_activities), as PyTorch's
    /// `toggle_collection_dynamic(False, …)` does: [`ActivityGroup::Cpu`] stands for spans and events, every other group
    /// for the collectors that record something of it, calls of runtime and driver included.
    ///
    /// Takes sets of types too: those that spans have stand for the host, those of devices for their collectors. What is
    /// launched while the host alone is paused belongs to no span. [`Status::Paused`] is that of the host.
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if no recording is going on.
    pub fn pause_activities(&self, types: impl Into<ActivityTypes>) -> Result<(), Error> {
        self.session()?.pause(types.into())
    }

    /// Goes on recording a group, whether it was paused with others or by itself.
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if no recording is going on.
    pub fn resume_activities(&self, types: impl Into<ActivityTypes>) -> Result<(), Error> {
        self.session()?.resume(types.into())
    }

    /// Returns what was recorded so far, while the recording goes on.
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if no recording is going on.
    pub fn snapshot(&self) -> Result<Trace, Error> {
        self.session()?.look()
    }

    /// Writes what was recorded so far to the guard's output, while the recording goes on; returns when it is there.
    ///
    /// # Errors
    /// Those of [`snapshot`](Profiler::snapshot) and of [`Trace::save`]; [`Config`](crate::ErrorKind::Config) if there
    /// is no output.
    pub fn flush(&self) -> Result<(), Error> {
        self.session()?.flush()
    }

    /// Starts to record what allocators report, and nothing else, whatever else is recorded meanwhile.
    ///
    /// For a look at memory on demand (libkineto's `PROFILE_MEMORY`), without a recording or beside one; the builder's
    /// [`with_memory`](crate::KinetoLayerBuilder::with_memory) is not needed for it. What is recorded has no slices around
    /// it; categories come from [`memory::scope`](crate::memory::scope) alone. It takes memory of its own, as much as the
    /// layer's buffer limit at most. One that was asked for from outside makes way for it.
    ///
    /// # Errors
    /// [`AlreadyActive`](crate::ErrorKind::AlreadyActive) if a memory profile is being taken.
    pub fn start_memory_profile(&self) -> Result<(), Error> {
        self.session()?.start_memory_profile()
    }

    /// Ends the memory profile and returns it; it is kept for
    /// [`export_memory_profile`](Profiler::export_memory_profile) until the next one ends.
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if none is being taken.
    pub fn stop_memory_profile(&self) -> Result<Trace, Error> {
        self.session()?.stop_memory_profile()
    }

    /// Writes the timeline of the memory profile that was taken last: that of the first device that is not the host, else
    /// the host's. The name's end gives the form, as for [`MemoryTimeline::save`](crate::MemoryTimeline::save).
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if none was taken, or no allocator has reported anything; those of
    /// [`MemoryTimeline::save`](crate::MemoryTimeline::save).
    pub fn export_memory_profile(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.session()?.export_memory_profile(path.as_ref())
    }

    /// Puts what a builder has got into the recording that goes on; `end` is when what it was made for ended.
    ///
    /// Its rows are in the trace from then on, with a row of its own for the whole, as libkineto's `transferCpuTrace` does;
    /// types that the recording does not select are left out. They share the recording's buffer limit. Activities are not
    /// held to the times of the recording.
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if no recording is going on; [`TooLarge`](crate::ErrorKind::TooLarge) if
    /// there is no room left. The builder is dropped then.
    pub fn transfer(&self, builder: CpuTraceBuilder, end: Timestamp) -> Result<(), Error> {
        self.session()?.transfer(builder, end)
    }

    /// Records a slice that has ended, on the calling thread's row: what a runtime or a delegate has timed itself.
    ///
    /// As torch's `reportBackendEventToActiveKinetoProfiler`: an operation with the argument "Backend" (none if `backend` is
    /// empty) and those of `args`, such as "Record function scope". It lies among the spans of the thread where it nests with
    /// them, else on a second row. Takes the profiler's lock; for many slices, fill a [`CpuTraceBuilder`].
    ///
    /// ```no_run
    /// # fn f(profiler: &tracing_kineto::Profiler) -> Result<(), tracing_kineto::Error> {
    /// use std::time::SystemTime;
    /// use tracing_kineto::activity::NO_ARGS;
    ///
    /// let start = SystemTime::now();
    /// // ... the delegate runs ...
    /// profiler.record_slice("conv2d", "xnnpack", start.into(), SystemTime::now().into(), NO_ARGS)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if no recording is going on; [`TooLarge`](crate::ErrorKind::TooLarge) if
    /// there is no room left.
    pub fn record_slice(
        &self,
        name: &str,
        backend: &str,
        start: Timestamp,
        end: Timestamp,
        args: &dyn Args,
    ) -> Result<(), Error> {
        self.session()?.record_slice((name, backend), (start, end), args)
    }

    /// Says that an assertion did not hold in the recording that goes on, as kineto's `logInvariantViolation`: what should
    /// have been, what was, and of which group of recordings this one is (empty for none). The recording's own name goes with
    /// it.
    ///
    /// It stands in [`TraceStats::violations`](crate::TraceStats::violations) and in the file's header, 100 different ones at
    /// most, each with how often it came. Where the builder was told to be [`strict`](crate::KinetoLayerBuilder::strict), the
    /// recording's stop, step or save is an error.
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if no recording is going on.
    pub fn log_invariant_violation(&self, assertion: &str, error: &str, group: &str) -> Result<(), Error> {
        self.session()?.log_violation(assertion, error, group)
    }

    /// Adds a text to the header of the recording that goes on, or of the next one; legal until its file is written.
    ///
    /// A profiler that is switched off takes it and does nothing.
    pub fn add_metadata(&self, key: &str, value: &str) {
        if let Some(session) = &self.session {
            // The one error is that of a fork in the middle of a start; the child has no recording to describe.
            let _ = session.with_metadata(|metadata| metadata.add(key, value));
        }
    }

    /// Adds a JSON value to the header of the recording that goes on, or of the next one.
    ///
    /// # Errors
    /// [`Json`](crate::ErrorKind::Json) if `json` is not valid JSON.
    pub fn add_metadata_json(&self, key: &str, json: &str) -> Result<(), Error> {
        match &self.session {
            Some(session) => session.with_metadata(|metadata| metadata.add_json(key, json))?,
            None => Ok(()),
        }
    }

    /// Adds a JSON value to the header of each recording that starts from now on.
    ///
    /// # Errors
    /// [`Json`](crate::ErrorKind::Json) if `json` is not valid JSON.
    pub fn preset_metadata_json(&self, key: &str, json: &str) -> Result<(), Error> {
        self.session.as_ref().map_or(Ok(()), |session| session.steps.presets().add_json(key, json))
    }

    /// Adds a text to the header of each recording that starts from now on.
    pub fn preset_metadata(&self, key: &str, value: &str) {
        self.session.iter().for_each(|session| session.steps.presets().add(key, value));
    }

    /// Returns what is going on.
    pub fn status(&self) -> Status {
        self.session.as_ref().map_or(Status::Idle, |session| session.status())
    }
}

/// Collectors that run and wait for a recording to begin; see [`Profiler::prepare`].
#[must_use = "dropping it lets go of the collectors"]
pub struct Prepared {
    session: Arc<Session>,
    ticket: u64,
    reports: Vec<CollectorReport>,
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("collectors", &self.reports.len()).finish_non_exhaustive()
    }
}

impl Prepared {
    /// Returns how each collector fared of which something is selected.
    pub fn reports(&self) -> &[CollectorReport] {
        &self.reports
    }

    /// Starts the recording. A schedule begins instead, if there is one; its warm-up starts the collectors anew.
    ///
    /// # Errors
    /// Those of [`Profiler::start`].
    pub fn start(self) -> Result<(), Error> {
        let session = self.session.clone();
        if session.has_schedule() {
            drop(self);
            return session.begin();
        }
        session.check_guard()?;
        session.start()
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.session.disarm(self.ticket);
    }
}
