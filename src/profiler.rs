//! The handle with which a program controls its recording.

use crate::error::{Error, ErrorKind};
use crate::os::platform;
use crate::record_while::RecordWhile;
use crate::schedule::Schedule;
use crate::session::{
    BackgroundSave, Cycle, EndedBy, Ending, Session, SessionHandle, Status, StepOutcome, StepState, ThreadRecording,
    newest_session,
};
use crate::time::Timestamp;
use crate::trace::Trace;
use kineto_devices::{CollectorReport, Unavailable};
use kineto_model::activity::{ActivityTypes, Args};
use std::fmt;
use std::sync::Arc;

/// Starts, stops and describes recordings; a cheap clone, for any thread.
///
/// Returned by [`KinetoGuard::profiler`](crate::KinetoGuard::profiler). One recording runs at a time. In WebAssembly there is
/// none, and methods that return an error return [`Unsupported`](crate::ErrorKind::Unsupported).
/// [`Libkineto`](crate::torch::Libkineto) has libkineto's and torch.profiler's further functions.
///
/// ```
/// use tracing::info_span;
/// use tracing_kineto::KinetoLayer;
/// use tracing_subscriber::prelude::*;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (layer, guard) = KinetoLayer::builder().no_output().record_from_start(false).build()?;
/// let profiler = guard.profiler();
/// # tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
/// info_span!("before").in_scope(|| ());
/// profiler.start()?;
/// info_span!("work").in_scope(|| ());
/// let trace = profiler.stop()?;
/// assert_eq!(trace.stats().slices, 1);
/// # Ok::<(), tracing_kineto::Error>(()) })?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Profiler {
    session: SessionHandle,
}

impl fmt::Debug for Profiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profiler")
            .field("status", &self.session.get().map_or(Status::Idle, |session| session.recording.status_now()))
            .finish_non_exhaustive()
    }
}

/// There is no session: the layer is off, or the platform cannot record. It becomes an [`Error`] where it is returned.
///
/// It has no size, so the compiler can remove code for sessions that can never exist.
#[derive(Debug)]
pub(crate) struct NoSession;

impl From<NoSession> for Error {
    fn from(_: NoSession) -> Error {
        if platform::CAN_RECORD {
            Error::new(ErrorKind::NotActive, "the profiler is disabled; set KINETO_ENABLED=1")
        } else {
            Error::new(ErrorKind::Unsupported, Unavailable::on_this_platform().to_string())
        }
    }
}

/// Returns the profiler of this process's newest idle layer, or of the newest one if none is idle.
///
/// For code that is not passed the [`KinetoGuard`](crate::KinetoGuard), such as a library. A layer counts until its guard and
/// all its profilers are dropped.
///
/// ```
/// fn serve(request: &str) {
///     if let Some(profiler) = tracing_kineto::profiler() {
///         profiler.add_metadata("last request", request);
///     }
/// }
/// # serve("/");
/// ```
pub fn profiler() -> Option<Profiler> {
    newest_session().map(|session| Profiler::new(session.into()))
}

impl Profiler {
    pub(crate) fn new(session: SessionHandle) -> Profiler {
        Profiler { session }
    }

    /// Returns whether spans are recorded now: not while the recording or its host types are paused.
    ///
    /// Costs about as much as reading an atomic. Use it to skip work that only a trace needs.
    #[inline]
    pub fn is_recording(&self) -> bool {
        self.session.get().is_some_and(|session| session.is_recording())
    }

    pub(crate) fn session(&self) -> Result<&Arc<Session>, NoSession> {
        self.session.get().ok_or(NoSession)
    }

    /// Returns a report on each collector: what those of the running recording record, or why they do not. If none is running,
    /// what each can record on this machine, without starting it.
    pub fn collectors(&self) -> Vec<CollectorReport> {
        let running = self.session.get().map(|session| session.recording.collectors.reports());
        running.filter(|reports| !reports.is_empty()).unwrap_or_else(|| self.probe_collectors())
    }

    pub(crate) fn probe_collectors(&self) -> Vec<CollectorReport> {
        self.session.get().map(|session| session.recording.probe_collectors()).unwrap_or_default()
    }

    /// Starts a recording, or begins the schedule if there is one.
    ///
    /// Spans that are open now appear when they are exited, from here on and marked `"clipped": true`.
    ///
    /// # Errors
    /// [`AlreadyActive`](crate::ErrorKind::AlreadyActive) if one is running; [`NotActive`](crate::ErrorKind::NotActive) if
    /// the guard was dropped; [`Config`](crate::ErrorKind::Config) if the schedule returns an invalid action.
    pub fn start(&self) -> Result<(), Error> {
        let session = self.session()?;
        session.check_guard()?;
        session.begin_schedule()
    }

    /// Ends the recording and returns it, without waiting for any thread of the program.
    ///
    /// With collectors, it waits until launched work has ended, at most the builder's
    /// [`flush_timeout`](crate::KinetoLayerBuilder::flush_timeout). Meanwhile, other profiler calls wait too.
    ///
    /// Spans that are open now end here, marked `"finished": false`.
    ///
    /// The output is not written: save the trace. A trace that is dropped unused is reported.
    ///
    /// This also ends a schedule: the current cycle's trace is saved or delivered to the handler, as for each cycle, and
    /// returned; a message reports any error. A later [`start`](Profiler::start) continues at the step where it ended.
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if no recording is running; for a schedule that waited or warmed up, the
    /// text has the number of missing steps. [`InvariantViolated`](crate::ErrorKind::InvariantViolated) in strict mode if an
    /// assertion did not hold: the recording has ended, and is in [`Error::trace`].
    pub fn stop(&self) -> Result<Trace, Error> {
        let session = self.session()?;
        match session.finish(EndedBy::Program)? {
            Ending::Recording(mut ended) => {
                if let Some(parts) = ended.take_parts(session) {
                    parts.leave_on_disk(session, None, None);
                }
                let trace = ended.trace;
                trace.check_violations().map(|()| trace.hand_out(session.output_at_end()))
            }
            Ending::Cycle(Cycle { error: Some(error), .. }) if error.kind() == ErrorKind::InvariantViolated => {
                Err(error)
            }
            Ending::Cycle(cycle) => Ok(cycle.trace),
            Ending::Nothing { why, .. } => Err(Error::new(ErrorKind::NotActive, why)),
        }
    }

    /// Ends a step of the program, begins the next one, and performs the schedule's action for it.
    ///
    /// Call it at the end of each step, from one thread: with a schedule, the span `ProfilerStep#n` is around that thread's
    /// work in step `n`. If several threads step, each one ends the previous span, whichever thread has entered it. A span
    /// that another thread ended remains the parent of new spans on its own thread until that thread steps again.
    ///
    /// Traces are saved or delivered here, on the calling thread. Without a schedule, it only counts.
    pub fn step(&self) -> StepOutcome {
        match self.session() {
            Ok(session) => session.step(),
            Err(none) => StepOutcome::from_state(0, StepState::Nothing { reason: Error::from(none).to_string() }),
        }
    }

    /// Sets the schedule that the next [`start`](Profiler::start) begins, at its step 0; `None` removes it.
    ///
    /// # Errors
    /// [`AlreadyActive`](crate::ErrorKind::AlreadyActive) if a recording or a schedule is running;
    /// [`Config`](crate::ErrorKind::Config) if a custom schedule returns an invalid action for step 0.
    pub fn schedule(&self, schedule: impl Into<Option<Schedule>>) -> Result<(), Error> {
        self.session()?.set_schedule(schedule.into())
    }

    /// Pauses the recording until [`resume`](Profiler::resume): spans, and device work that is launched from now on. No effect
    /// if paused already.
    ///
    /// Work that was launched before is recorded to its end; the call waits for no device. The trace's
    /// [statistics](crate::TraceStats::recorded) and its header have the recorded times. Each stretch between pauses takes at
    /// least 64 KiB of the [buffer limit](crate::KinetoLayerBuilder::buffer_limit_bytes) for each thread with spans in it.
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if no recording is running.
    pub fn pause(&self) -> Result<(), Error> {
        self.session()?.recording.pause(ActivityTypes::ALL)
    }

    /// Returns a layer that records only while a span of that name is entered, on any thread. Add it to the registry before
    /// the [`KinetoLayer`](crate::KinetoLayer). It [pauses](Profiler::pause) and resumes the recording; if others do so too,
    /// such as [`profiler_range`](crate::Devices::profiler_range), the last call counts.
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

    /// Resumes the recording; no effect if not paused.
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if no recording is running.
    pub fn resume(&self) -> Result<(), Error> {
        self.session()?.recording.resume(ActivityTypes::ALL)
    }

    /// Records the calling thread from now on, whatever [`ThreadFilter`](crate::ThreadFilter) is set; torch's
    /// `enableProfilerInChildThread`. Dropping the returned value excludes the thread again.
    ///
    /// Spans that the thread has entered already are not recorded. A span created before has its fields only with
    /// [`Fields::while_idle`](crate::Fields::while_idle).
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if no recording is running;
    /// [`AlreadyActive`](crate::ErrorKind::AlreadyActive) if the thread is recorded.
    pub fn enable_in_this_thread(&self) -> Result<ThreadRecording, Error> {
        self.session()?.recording.include_thread()
    }

    /// Excludes the calling thread from the recording: its spans, events and allocations, also for observers. Its open slices
    /// end here. torch's `disableProfilerInChildThread`.
    ///
    /// This lasts until [`enable_in_this_thread`](Profiler::enable_in_this_thread), or the end of the recording. Work that the
    /// thread launches on devices remains in the trace, without a span.
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if no recording is running, or the thread is not recorded.
    pub fn disable_in_this_thread(&self) -> Result<(), Error> {
        self.session()?.recording.exclude_thread()
    }

    /// Returns what was recorded so far, while the recording continues.
    ///
    /// While a device is busy, this waits up to 200 ms for the records of work that has ended.
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if no recording is running.
    pub fn snapshot(&self) -> Result<Trace, Error> {
        self.session()?.recording.snapshot()
    }

    /// Writes what was recorded so far to a file of its own, on a thread, while the recording continues.
    ///
    /// The file lies next to the layer's output, and is called `<output>_<pid>_<UTC time>_<number>_<reason>`, with the output's
    /// extensions; names sort by time. The header's `dump_reason` is the whole reason. With
    /// [`Overflow::KeepNewest`](crate::Overflow::KeepNewest), it holds the newest records, up to this call.
    ///
    /// The call notes the time, and waits at most while another snapshot is taken: the thread takes the spans and events up to
    /// then, and so does the end of the recording if that is earlier. Only [`BackgroundSave::wait`] and the end of the process
    /// wait for the file. Until it is complete, its records take memory within the buffer limit. Then the oldest dumps are
    /// [removed](crate::Dumps::keep). [Triggers](crate::Dumps::on) dump by themselves.
    ///
    /// ```
    /// use tracing_kineto::{KinetoLayer, Overflow};
    ///
    /// # fn main() -> Result<(), tracing_kineto::Error> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let output = folder.path().join("app.pt.trace.json.gz");
    /// let (layer, guard) = KinetoLayer::builder().output(output).overflow(Overflow::KeepNewest).build()?;
    /// # drop(layer);
    /// let profiler = guard.profiler();
    /// // When a request was slow, on any thread:
    /// let dump = profiler.dump("slow request")?;
    /// println!("{}", dump.path().display()); // app_4242_20261126T074938.123Z_001_slow-request.pt.trace.json.gz
    /// # dump.wait()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`NotActive`](crate::ErrorKind::NotActive) if no recording is running, or only that of a request;
    /// [`Config`](crate::ErrorKind::Config) if there is no output. Those of writing are returned by [`BackgroundSave::wait`].
    pub fn dump(&self, reason: &str) -> Result<BackgroundSave, Error> {
        self.session()?.dump(reason)
    }

    /// Writes what was recorded so far to the guard's output, while the recording continues; returns when the file is
    /// complete.
    ///
    /// # Errors
    /// Those of [`snapshot`](Profiler::snapshot) and of [`Trace::save`]; [`Config`](crate::ErrorKind::Config) if there
    /// is no output.
    pub fn flush(&self) -> Result<(), Error> {
        self.session()?.flush()
    }

    /// Records a finished slice on the calling thread's row, for work that a runtime or a delegate has timed itself.
    ///
    /// It corresponds to torch's `reportBackendEventToActiveKinetoProfiler`: an operation with the argument "Backend" (none if
    /// `backend` is empty) and those of `args`, such as "Record function scope". It is drawn among the spans of the thread if
    /// it nests with them, else on a second row. It takes the profiler's lock; for many slices, use a
    /// [`CpuTraceBuilder`](crate::integration::CpuTraceBuilder).
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
    /// [`NotActive`](crate::ErrorKind::NotActive) if no recording is running; [`TooLarge`](crate::ErrorKind::TooLarge) at the
    /// buffer limit.
    pub fn record_slice(
        &self,
        name: &str,
        backend: &str,
        start: Timestamp,
        end: Timestamp,
        args: &dyn Args,
    ) -> Result<(), Error> {
        self.session()?.recording.record_slice((name, backend), (start, end), args)
    }

    /// Adds a text to the header of the running recording, or of the next one; it has an effect until the file is written.
    ///
    /// A disabled profiler ignores it.
    pub fn add_metadata(&self, key: &str, value: &str) {
        if let Some(session) = self.session.get() {
            // It fails only in a child that was forked during a start, which has no recording to describe.
            let _ = session.recording.with_metadata(|metadata| metadata.add_text(key, value));
        }
    }

    /// Adds a JSON value to the header of the running recording, or of the next one.
    ///
    /// # Errors
    /// [`Json`](crate::ErrorKind::Json) if `json` is not valid JSON.
    pub fn add_metadata_json(&self, key: &str, json: &str) -> Result<(), Error> {
        match self.session.get() {
            Some(session) => session.recording.with_metadata(|metadata| metadata.add_json(key, json))?,
            None => Ok(()),
        }
    }

    /// Returns whether a recording is idle, prepared, recording or paused.
    pub fn status(&self) -> Status {
        self.session.get().map_or(Status::Idle, |session| session.recording.status())
    }
}
