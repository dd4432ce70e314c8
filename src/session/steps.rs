//! Steps of a program through its schedule: what each one starts, stops and delivers.

use super::annotation::{self, Annotation};
use super::outcome::{Cycle, StepOutcome, StepState};
use super::spill::SpilledRecording;
use super::step_times::StepTimes;
use super::writes::report_written_trace;
use super::{FORKED_LOCK, Session, Status, lock_within};
use crate::config::Output;
use crate::diag::diag;
use crate::error::{Error, ErrorKind};
use crate::handler::{self, TraceHandler};
use crate::os::{fork, thread};
use crate::recorder::TriggerCause;
use crate::schedule::{
    Iterations, PROFILER_STEP, ProfilerAction, Schedule, SchedulePosition, Transition, transitions_between,
};
use crate::text::count_with_noun;
use crate::trace::Trace;
use crate::wait::steady;
use kineto_devices::CollectorReport;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The state of a program's steps.
#[derive(Debug, Default)]
pub(crate) struct StepControl {
    run: Mutex<ScheduleRun>,
    /// The thread that holds `run`; 0 if none does.
    owner: AtomicI64,
    /// The fork generation in which `run` was locked last.
    generation: AtomicU64,
    /// The number in the next file's name; 0 for none.
    file: AtomicU64,
    has_handler: AtomicBool,
    iterations: fork::PerProcess<Mutex<Iterations>>,
    kept: Mutex<Vec<Trace>>,
}

#[derive(Default)]
struct ScheduleRun {
    schedule: Option<Schedule>,
    handler: Option<Box<dyn TraceHandler>>,
    /// The position in the schedule, once it has begun.
    position: Option<SchedulePosition>,
    /// The fork generation in which the schedule began.
    generation: u64,
    step: u64,
    times: StepTimes,
    /// How many recordings have ended.
    cycles: u64,
    annotation: Annotation,
    reports: Arc<[CollectorReport]>,
    /// The collector that stopped on its own, and the cause.
    stopped: String,
}

/// What ends a recording, and so what becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndedBy {
    /// The program, which gets the trace.
    Program,
    /// The guard of the layer, which writes the last recording, or the one before a new output.
    Guard,
    /// The guard of one recording, which writes it; the next one has another file.
    RecordingGuard,
}

/// A recording that has ended, which the caller must save. The next one may begin meanwhile, and have another file.
#[derive(Debug)]
pub(crate) struct EndedRecording {
    pub(crate) trace: Trace,
    /// Its file, if it has an output.
    pub(crate) path: Option<PathBuf>,
    /// What was moved to disk.
    parts: Option<Arc<SpilledRecording>>,
}

impl EndedRecording {
    /// Takes the parts that were moved to disk, if there are any. Waits for the one that is being written.
    pub(crate) fn take_parts(&mut self, session: &Session) -> Option<Arc<SpilledRecording>> {
        self.parts.take()?.when_written(session.settings.exit_deadline(steady()))
    }
}

/// The result of ending a program's steps.
#[derive(Debug)]
pub(crate) enum Ending {
    Recording(EndedRecording),
    /// A cycle, which was saved or delivered to the handler.
    Cycle(Cycle),
    /// Nothing was being recorded.
    Nothing {
        why: String,
        /// Whether earlier cycles have ended in traces.
        has_traces: bool,
    },
}

/// The right to step, for one thread at a time.
struct StepLock<'s> {
    run: MutexGuard<'s, ScheduleRun>,
    owner: &'s AtomicI64,
}

impl Drop for StepLock<'_> {
    fn drop(&mut self) {
        self.owner.store(0, Ordering::Relaxed);
    }
}

impl StepControl {
    /// Applies the builder's settings.
    pub(crate) fn configure(
        &self,
        schedule: Option<Schedule>,
        handler: Option<Box<dyn TraceHandler>>,
    ) -> Result<(), Error> {
        self.has_handler.store(handler.is_some(), Ordering::Relaxed);
        let mut lock = self.lock_step(None)?;
        lock.run.handler = handler;
        self.set_schedule(&mut lock.run, schedule);
        Ok(())
    }

    /// Locks out other threads that step. Waits at most `patience`, and only briefly in a forked child.
    fn lock_step(&self, patience: Option<Duration>) -> Result<StepLock<'_>, Error> {
        let own = thread::id();
        if self.owner.load(Ordering::Relaxed) == own {
            let why = "a trace handler cannot step, start or stop its own profiler; do it after the handler returns";
            return Err(Error::new(ErrorKind::AlreadyActive, why));
        }
        // In a forked child, the thread that held the lock may not exist.
        let generation = fork::generation();
        let is_new = self.generation.load(Ordering::Relaxed) != generation;
        let patience = patience.or(is_new.then_some(FORKED_LOCK));
        let run = match patience {
            None => self.run.lock().unwrap_or_else(PoisonError::into_inner),
            Some(patience) => lock_within(&self.run, patience).ok_or_else(|| {
                Error::new(ErrorKind::Timeout, "another thread is still in a step; try again when it has ended")
            })?,
        };
        self.owner.store(own, Ordering::Relaxed);
        self.generation.store(generation, Ordering::Relaxed);
        Ok(StepLock { run, owner: &self.owner })
    }

    fn set_schedule(&self, run: &mut ScheduleRun, schedule: Option<Schedule>) {
        run.schedule = schedule;
        (run.step, run.cycles) = (0, 0);
        self.number_next_file(run);
    }

    /// Numbers the next file by its cycle, unless there is only one cycle.
    fn number_next_file(&self, run: &ScheduleRun) {
        let is_numbered = run.schedule.as_ref().is_some_and(|schedule| !schedule.is_single());
        self.file.store(if is_numbered { run.cycles + 1 } else { 0 }, Ordering::Relaxed);
    }

    /// Gives the next file an unused number, unless cycles number their files themselves.
    pub(crate) fn skip_file_number(&self) {
        if let Ok(lock) = self.lock_step(None) {
            self.end_numbered_file(&lock.run);
        }
    }

    fn end_numbered_file(&self, run: &ScheduleRun) {
        if run.schedule.is_some() {
            return;
        }
        self.file.store(self.file.load(Ordering::Relaxed).max(1) + 1, Ordering::Relaxed);
    }

    /// Returns the file of the current recording, derived from the output's `path`.
    pub(super) fn output_file(&self, path: PathBuf, output: &Output) -> Option<PathBuf> {
        // A handler replaces the default output.
        if self.has_handler() && matches!(output, Output::Default) {
            return None;
        }
        match self.file.load(Ordering::Relaxed) {
            0 => Some(path),
            number => Some(handler::numbered_path(&path, number)),
        }
    }

    pub(crate) fn has_handler(&self) -> bool {
        self.has_handler.load(Ordering::Relaxed)
    }

    /// Returns the accumulated traces.
    pub(crate) fn kept_traces(&self) -> Vec<Trace> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the iteration that the program is in, if it counts them.
    pub(crate) fn current_iteration(&self) -> Option<u64> {
        self.with_iterations(|iterations| iterations.is_counted().then(|| iterations.current()))
    }

    /// Calls `work` with the counts of iterations.
    pub(crate) fn with_iterations<R>(&self, work: impl FnOnce(&mut Iterations) -> R) -> R {
        // A forked child continues its parent's counts, unless they were locked at the fork.
        let copy = |parents: &Mutex<Iterations>| parents.try_lock().map(|counts| counts.clone()).unwrap_or_default();
        let iterations = self.iterations.get(|parents| Mutex::new(copy(parents)));
        work(&mut iterations.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Session {
    /// Begins the schedule, or a recording if there is no schedule.
    pub(crate) fn begin_schedule(&self) -> Result<(), Error> {
        let _scope = self.recording.observers.notify_scope();
        let mut lock = self.steps.lock_step(None)?;
        let run = &mut *lock.run;
        if run.is_of_parent() {
            // The counters restart.
            run.position = None;
            (run.step, run.cycles) = (0, 0);
            self.steps.number_next_file(run);
        }
        let active = |why: &str| Err(Error::new(ErrorKind::AlreadyActive, why));
        if run.position.is_some() {
            return active("the schedule is running already; stop it first");
        }
        let Some(schedule) = &run.schedule else { return self.start() };
        let action = schedule.checked_action(run.step)?;
        self.requests.evict_request();
        if self.recording.status() != Status::Idle {
            return active("a recording is running or prepared already; stop it first");
        }
        let filter = self.settings.first_config().filter.as_ref();
        if filter.is_some_and(|filter| !filter.would_enable(annotation::TARGET, &tracing_core::Level::INFO)) {
            run.annotation.report_own_filter();
        }
        run.reports = Arc::default();
        let (_, failed) = self.perform_transitions(run, transitions_between(ProfilerAction::None, Some(action)), false);
        failed.map_or(Ok(()), Err)?;
        (run.position, run.generation) = (Some(SchedulePosition::new(action)), fork::generation());
        run.annotation.begin(run.step);
        Ok(())
    }

    /// Starts the recording of a block. Returns whether it is apart from a schedule, which waits or has ended;
    /// [`stop`](Session::stop) ends it then.
    #[cfg(feature = "analysis")]
    pub(crate) fn start_block(&self) -> Result<bool, Error> {
        self.check_guard()?;
        let position = self.steps.lock_step(None)?.run.position;
        let is_apart = position.is_some_and(|position| position.action == ProfilerAction::None);
        if is_apart { self.start() } else { self.begin_schedule() }.map(|()| is_apart)
    }

    /// Ends the current step and begins the next one.
    pub(crate) fn step(&self) -> StepOutcome {
        let _scope = self.recording.observers.notify_scope();
        let mut lock = match self.steps.lock_step(None) {
            Ok(lock) => lock,
            Err(why) => return StepOutcome::from_error(0, &why),
        };
        let run = &mut *lock.run;
        self.check_step_time(run);
        let outcome = self.step_in(run);
        run.times.begin_step();
        outcome
    }

    /// Calls for a dump if the current step was slow, and that triggers one.
    fn check_step_time(&self, run: &mut ScheduleRun) {
        let times = self.settings.first_config().dumps.slow_step();
        if let Some((took, median)) = times.and_then(|times| run.times.end_step(times))
            && self.is_recording()
        {
            self.recorder.post_trigger(TriggerCause::SlowStep { step: run.step, took, median });
        }
    }

    fn step_in(&self, run: &mut ScheduleRun) -> StepOutcome {
        match (run.position, run.schedule.clone()) {
            (Some(_), _) if run.is_of_parent() => StepOutcome::from_error(run.step, &foreign_schedule()),
            (Some(position), Some(schedule)) => self.advance_schedule(run, position, &schedule),
            (_, None) => {
                self.spill.end_step(&self.recorder);
                run.step += 1;
                self.count_iteration(PROFILER_STEP);
                let state = match self.recording.status_now() {
                    Status::Recording => StepState::Recording { is_last: false },
                    status => StepState::Nothing { reason: why_nothing(status).to_owned() },
                };
                StepOutcome::from_state(run.step, state)
            }
            (None, Some(_)) => {
                let why = "the schedule has not begun; call start first";
                StepOutcome::from_error(run.step, &Error::new(ErrorKind::NotActive, why))
            }
        }
    }

    fn advance_schedule(&self, run: &mut ScheduleRun, position: SchedulePosition, schedule: &Schedule) -> StepOutcome {
        // Before anything changes.
        let scheduled = match schedule.checked_action(run.step + 1) {
            Ok(scheduled) => scheduled,
            Err(why) => {
                diag!(Error, "schedule", "{why}; the previous step continues");
                return StepOutcome::from_error(run.step, &why);
            }
        };
        let stopped = self.recording.collectors.early_stop_reason();
        let next = position.next_position(scheduled, stopped.is_some());
        run.stopped = match next.action {
            ProfilerAction::DeviceStopped => stopped.unwrap_or_else(|| std::mem::take(&mut run.stopped)),
            _ => String::new(),
        };
        run.annotation.end();
        let transitions = transitions_between(position.action, Some(next.action));
        // The end of a recording ends its last part.
        if !transitions.contains(&Transition::Stop) {
            self.spill.end_step(&self.recorder);
        }
        let (cycle, failed) = self.perform_transitions(run, transitions, false);
        run.step += 1;
        run.position = Some(match failed {
            None => next,
            // Continues as after a wait.
            Some(_) => SchedulePosition::new(ProfilerAction::None),
        });
        self.count_iteration(PROFILER_STEP);
        run.annotation.begin(run.step);
        let state = match failed {
            Some(why) => {
                diag!(Error, "schedule", "step {} is not recorded: {why}", run.step);
                StepState::Nothing { reason: why.to_string() }
            }
            None => run.step_state(next.action, schedule),
        };
        StepOutcome { step: run.step, state, cycle, collectors: run.reports.clone() }
    }

    /// Ends the schedule, or the recording if there is no schedule.
    ///
    /// If the program does not end it, a violated assertion does not prevent saving.
    pub(crate) fn finish(&self, by: EndedBy) -> Result<Ending, Error> {
        let at_end = by != EndedBy::Program;
        let _scope = self.recording.observers.notify_scope();
        let mut lock = self.steps.lock_step(None)?;
        let run = &mut *lock.run;
        run.times.forget_step();
        if run.position.is_some() && run.is_of_parent() {
            return Err(foreign_schedule());
        }
        let Some(position) = run.position.take() else {
            run.annotation.end();
            let trace = self.stop()?;
            if run.handler.is_some() {
                let cycle = self.end_cycle(run, trace, at_end);
                self.leave_parts(&cycle, at_end);
                return Ok(Ending::Cycle(cycle));
            }
            // While no other recording can start.
            let (path, parts) = (self.output_path(), self.spill.take_last(self));
            if by == EndedBy::RecordingGuard {
                self.steps.end_numbered_file(run);
            }
            return Ok(Ending::Recording(EndedRecording { trace, path, parts }));
        };
        run.annotation.end();
        match self.perform_transitions(run, transitions_between(position.action, None), at_end) {
            (_, Some(failed)) => Err(failed),
            (Some(cycle), None) => Ok(Ending::Cycle(cycle)),
            (None, None) => Ok(Ending::Nothing { why: run.why_nothing(position.action), has_traces: run.cycles > 0 }),
        }
    }

    /// Performs transitions; returns the recording that ended, and the error that stopped the rest.
    fn perform_transitions(
        &self,
        run: &mut ScheduleRun,
        transitions: &[Transition],
        at_end: bool,
    ) -> (Option<Cycle>, Option<Error>) {
        let _ending = transitions.contains(&Transition::Stop).then(|| self.writes.register_ending());
        let (mut cycle, mut trace, mut discards) = (None, None, false);
        let mut act = |act: &Transition| -> Result<(), Error> {
            match act {
                Transition::Warn(what) if run.stopped.is_empty() => {
                    diag!(Warning, "schedule", "step {}: {what}", run.step)
                }
                Transition::Warn(what) => diag!(Warning, "schedule", "step {}: {what}: {}", run.step, run.stopped),
                Transition::Prepare => run.reports = self.prepare()?.1.into(),
                Transition::Start => {
                    discards = transitions.contains(&Transition::Stop);
                    self.start()?;
                }
                Transition::Stop => {
                    run.reports = Arc::default();
                    trace = Some(self.stop()?);
                }
                Transition::Save => cycle = trace.take().map(|trace| self.end_cycle(run, trace, at_end)),
            }
            Ok(())
        };
        let failed = transitions.iter().find_map(|each| act(each).err());
        if let Some(trace) = trace.filter(|_| !discards) {
            run.cycles += 1;
            self.steps.number_next_file(run);
            let why = "not saved: the schedule ended the recording without RecordAndSave; return it for the last step";
            let error = Some(Error::new(ErrorKind::Config, why));
            cycle = Some(Cycle { number: run.cycles, trace, path: None, error });
        }
        if let Some(cycle) = &cycle {
            self.leave_parts(cycle, at_end);
        }
        (cycle, failed)
    }

    /// Leaves the parts of a cycle on disk, unless they were written. The program gets the rest, unless it is ending.
    fn leave_parts(&self, cycle: &Cycle, at_end: bool) {
        self.spill.leave_ended(self, at_end.then(|| cycle.trace.clone()));
    }

    /// Delivers a trace to the handler, or saves it.
    fn end_cycle(&self, run: &mut ScheduleRun, trace: Trace, at_end: bool) -> Cycle {
        // At the end of the program, no caller could handle the error.
        let refused = trace.check_violations().err().filter(|_| !at_end);
        let (path, error) = match refused.map_or_else(|| self.deliver_trace(run, &trace), Err) {
            Ok(path) => (path, None),
            Err(error) => {
                diag!(Error, "schedule", "{error}");
                (None, Some(error))
            }
        };
        if self.recording.options.accumulates {
            self.steps.kept.lock().unwrap_or_else(PoisonError::into_inner).push(trace.clone());
        }
        run.cycles += 1;
        self.steps.number_next_file(run);
        Cycle { number: run.cycles, trace, path, error }
    }

    fn deliver_trace(&self, run: &mut ScheduleRun, trace: &Trace) -> Result<Option<PathBuf>, Error> {
        if let Some(handler) = &mut run.handler {
            let failed = |why: String| Error::new(ErrorKind::Handler, format!("the trace handler {why}"));
            return match catch_unwind(AssertUnwindSafe(|| handler.ready(trace.clone()))) {
                Ok(Ok(path)) => Ok(path.inspect(|path| report_written_trace(trace, path))),
                Ok(Err(error)) => Err(failed(format!("failed: {error}"))),
                Err(_) => Err(failed("panicked; fix its code".to_owned())),
            };
        }
        let Some(path) = self.output_path() else { return Ok(None) };
        match self.spill.take_ended(self, self.settings.exit_deadline(steady())) {
            Some(parts) => self.write_parts(&parts, Some(trace.clone()), Some(&path))?,
            None => self.writes.write_in_time(trace.clone(), path.clone(), self.settings.patience())?,
        }
        Ok(Some(path))
    }

    /// Delivers what is recorded so far to the handler when the process ends without the guard. Returns whether there is a
    /// handler.
    pub(super) fn deliver_at_exit(&self, deadline: Instant) -> bool {
        if !self.steps.has_handler() || self.requests.active_request().is_some() {
            return false;
        }
        let patience = deadline.saturating_duration_since(steady());
        let delivered = self.steps.lock_step(Some(patience)).and_then(|mut lock| {
            let trace = self.recording.snapshot()?;
            let _ = trace.check_violations();
            self.deliver_trace(&mut lock.run, &trace)
        });
        if let Err(error) = delivered {
            diag!(Error, "flush", "the trace was not delivered: {error}");
        }
        true
    }

    /// Reports why a schedule has recorded nothing so far, when the process ends without the guard.
    pub(super) fn report_why_nothing(&self) {
        let Ok(lock) = self.steps.lock_step(Some(Duration::ZERO)) else { return };
        let run = &*lock.run;
        let is_recording = self.recording.status_now() != Status::Idle;
        if let Some(position) =
            run.position.as_ref().filter(|_| !is_recording && run.cycles == 0 && !run.is_of_parent())
        {
            diag!(Warning, "flush", "nothing was recorded: {}", run.why_nothing(position.action));
        }
    }

    /// Sets the schedule of the next start; `None` means a recording without one.
    pub(crate) fn set_schedule(&self, schedule: Option<Schedule>) -> Result<(), Error> {
        let mut lock = self.steps.lock_step(None)?;
        let run = &mut *lock.run;
        if let Some(schedule) = &schedule {
            schedule.checked_action(0)?;
        }
        if run.position.is_some() && !run.is_of_parent() || self.requests.used_by_program().is_some() {
            let why = "cannot set the schedule: a schedule or a recording is running; stop it first";
            return Err(Error::new(ErrorKind::AlreadyActive, why));
        }
        run.position = None;
        self.steps.set_schedule(run, schedule);
        Ok(())
    }

    /// Returns whether a schedule is running.
    pub(crate) fn is_stepping(&self) -> bool {
        self.steps.lock_step(None).is_ok_and(|lock| lock.run.position.is_some() && !lock.run.is_of_parent())
    }

    /// Returns whether there is a schedule.
    pub(crate) fn has_schedule(&self) -> bool {
        self.steps.lock_step(None).is_ok_and(|lock| lock.run.schedule.is_some())
    }

    /// Opens the annotation of a step that began before there was a subscriber.
    pub(crate) fn annotate_late(&self) {
        // A thread inside a step has opened one.
        if let Ok(mut lock) = self.steps.lock_step(Some(Duration::ZERO)) {
            lock.run.annotation.begin_late();
        }
    }
}

/// Returns the error for a forked child that uses its parent's schedule.
fn foreign_schedule() -> Error {
    let why = "the schedule belongs to the parent process; start one in this process";
    Error::new(ErrorKind::Forked, why)
}

impl ScheduleRun {
    /// Returns whether the parent of this process began the schedule.
    fn is_of_parent(&self) -> bool {
        self.generation != fork::generation()
    }

    fn step_state(&self, action: ProfilerAction, schedule: &Schedule) -> StepState {
        let steps_to_record = schedule.steps_to_record(self.step);
        match action {
            ProfilerAction::None if schedule.is_over(self.step) => StepState::Finished,
            ProfilerAction::None => StepState::Waiting { steps_to_record },
            ProfilerAction::Warmup => StepState::WarmingUp { steps_to_record },
            ProfilerAction::Record => StepState::Recording { is_last: false },
            ProfilerAction::RecordAndSave => StepState::Recording { is_last: true },
            ProfilerAction::DeviceStopped => StepState::DeviceStopped { reason: self.stopped.clone() },
        }
    }

    /// Returns why nothing was recorded when the schedule ended in `action`.
    fn why_nothing(&self, action: ProfilerAction) -> String {
        let when = match action {
            ProfilerAction::Warmup => "during warm-up",
            ProfilerAction::DeviceStopped => {
                return "a collector had stopped on its own; its message names the cause".to_owned();
            }
            _ => "while it waited",
        };
        let steps = self.schedule.as_ref().and_then(|schedule| schedule.steps_to_record(self.step));
        let needed = match steps {
            Some(steps) => format!(", {} needed", count_with_noun(steps, "more step")),
            None => String::new(),
        };
        let advice = if self.step == 0 { "; call Profiler::step after each step of the program" } else { "" };
        format!("the schedule ended {when}{needed}{advice}")
    }
}

fn why_nothing(status: Status) -> &'static str {
    match status {
        Status::Paused => "the recording is paused; resume it",
        _ => "no recording is running and there is no schedule; call start, or set a schedule",
    }
}

impl fmt::Debug for ScheduleRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (schedule, position) = (&self.schedule, &self.position);
        f.debug_struct("ScheduleRun").field("schedule", schedule).field("position", position).finish_non_exhaustive()
    }
}
