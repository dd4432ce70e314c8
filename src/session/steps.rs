//! A program that goes through a schedule: what each step starts, stops and hands out.

use super::annotation::{self, Annotation};
use super::outcome::{Cycle, StepOutcome, StepState};
use super::saving::report;
use super::{FORKED_LOCK, Session, Status, lock_within};
use crate::collector::CollectorReport;
use crate::config::Output;
use crate::diag::diag;
use crate::error::{Error, ErrorKind};
use crate::handler::{self, TraceHandler};
use crate::os::{fork, thread};
use crate::schedule::{Act, Course, Iterations, ProfilerAction, Schedule, acts};
use crate::text::counted;
use crate::trace::{Metadata, Trace};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// What a program's steps have come to, and what it said about them.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    run: Mutex<Run>,
    /// The thread that has `run`, 0 if none has.
    owner: AtomicI64,
    /// In which process somebody had it last.
    generation: AtomicU64,
    habits: OnceLock<Habits>,
    /// The number that the next file has in its name; 0 if it has none.
    file: AtomicU64,
    has_handler: AtomicBool,
    iterations: fork::PerProcess<Mutex<Iterations>>,
    kept: Mutex<Vec<Trace>>,
    presets: Metadata,
}

/// What does not change once the layer is made.
#[derive(Default)]
pub(crate) struct Habits {
    pub(crate) trace_id: Option<Arc<NewId>>,
    /// Traces of cycles are kept.
    pub(crate) accumulates: bool,
    /// A trace is saved once.
    pub(crate) is_strict: bool,
    /// How long events may be put together.
    pub(crate) post_processing_timeout: Option<Duration>,
    /// What the backend of PrivateUse1 calls itself.
    pub(crate) private_use1: Option<String>,
}

/// Names a recording.
type NewId = dyn Fn() -> String + Send + Sync;

#[derive(Default)]
struct Run {
    schedule: Option<Schedule>,
    handler: Option<Box<dyn TraceHandler>>,
    /// Where the schedule is, once it has begun.
    course: Option<Course>,
    /// In which process it began.
    generation: u64,
    step: u64,
    /// How many recordings have ended.
    cycles: u64,
    annotation: Annotation,
    reports: Arc<[CollectorReport]>,
    /// Which collector has stopped by itself, and why.
    stopped: String,
}

/// What the end of a program's steps came to.
#[derive(Debug)]
pub(crate) enum Ending {
    /// A recording, which is the caller's.
    Recording(Trace),
    /// A cycle, which is saved or was handed out.
    Cycle(Cycle),
    /// Nothing was recorded at that time.
    Nothing {
        why: String,
        /// Cycles before have ended in traces.
        has_traces: bool,
    },
}

/// The right to step, for one thread at a time.
struct Turn<'s> {
    run: MutexGuard<'s, Run>,
    owner: &'s AtomicI64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.owner.store(0, Ordering::Relaxed);
    }
}

impl Steps {
    /// Takes over what the builder was told.
    pub(crate) fn configure(
        &self,
        schedule: Option<Schedule>,
        handler: Option<Box<dyn TraceHandler>>,
        habits: Habits,
    ) -> Result<(), Error> {
        self.has_handler.store(handler.is_some(), Ordering::Relaxed);
        // Set once: a layer is built once.
        let _ = self.habits.set(habits);
        let mut turn = self.turn(None)?;
        turn.run.handler = handler;
        self.set_schedule(&mut turn.run, schedule);
        Ok(())
    }

    /// Waits for other threads that are stepping, no longer than `patience` or than makes sense in a forked child.
    fn turn(&self, patience: Option<Duration>) -> Result<Turn<'_>, Error> {
        let own = thread::id();
        if self.owner.load(Ordering::Relaxed) == own {
            let why = "a handler of traces cannot step, start or stop the profiler that calls it";
            return Err(Error::new(ErrorKind::AlreadyActive, why));
        }
        // In a forked child, the thread that had the turn may not exist.
        let generation = fork::generation();
        let is_new = self.generation.load(Ordering::Relaxed) != generation;
        let patience = patience.or(is_new.then_some(FORKED_LOCK));
        let run = match patience {
            None => self.run.lock().unwrap_or_else(PoisonError::into_inner),
            Some(patience) => lock_within(&self.run, patience)
                .ok_or_else(|| Error::new(ErrorKind::Timeout, "another thread is in the middle of a step"))?,
        };
        self.owner.store(own, Ordering::Relaxed);
        self.generation.store(generation, Ordering::Relaxed);
        Ok(Turn { run, owner: &self.owner })
    }

    fn set_schedule(&self, run: &mut Run, schedule: Option<Schedule>) {
        run.schedule = schedule;
        (run.step, run.cycles) = (0, 0);
        self.number(run);
    }

    /// Has the next file carry the number of its cycle, unless there is to be only one.
    fn number(&self, run: &Run) {
        let is_numbered = run.schedule.as_ref().is_some_and(|schedule| !schedule.is_single());
        self.file.store(if is_numbered { run.cycles + 1 } else { 0 }, Ordering::Relaxed);
    }

    /// Gives the next file a number that no file has yet.
    pub(crate) fn end_numbered_file(&self) {
        // Cycles have numbers of their own.
        if self.turn(None).is_ok_and(|turn| turn.run.schedule.is_none()) {
            self.file.store(self.file.load(Ordering::Relaxed).max(1) + 1, Ordering::Relaxed);
        }
    }

    /// Returns where the recording of this time goes by itself, if `path` is where one goes.
    pub(super) fn place(&self, path: PathBuf, output: &Output) -> Option<PathBuf> {
        // A handler takes the place of an output that nobody has asked for.
        if self.has_handler() && matches!(output, Output::Default) {
            return None;
        }
        match self.file.load(Ordering::Relaxed) {
            0 => Some(path),
            number => Some(handler::numbered(&path, number)),
        }
    }

    /// Returns the name of a new recording, if the program names them.
    pub(super) fn new_trace_id(&self, status: Status) -> Option<String> {
        let name = self.habits.get().and_then(|habits| habits.trace_id.as_ref())?;
        // One that is prepared has its name.
        (status == Status::Idle).then_some(())?;
        let named = catch_unwind(AssertUnwindSafe(|| name())).ok();
        if named.is_none() {
            diag!(Error, "schedule", "the callback that names traces panicked; this one has a random name");
        }
        named.filter(|name| !name.is_empty())
    }

    pub(crate) fn has_handler(&self) -> bool {
        self.has_handler.load(Ordering::Relaxed)
    }

    /// Returns what does not change once the layer is made.
    pub(super) fn habits(&self) -> Option<&Habits> {
        self.habits.get()
    }

    /// What each recording has in its header.
    pub(crate) fn presets(&self) -> &Metadata {
        &self.presets
    }

    /// Returns the traces that were kept.
    pub(crate) fn traces(&self) -> Vec<Trace> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Looks at the counts of iterations, or changes them.
    pub(crate) fn iterations<R>(&self, work: impl FnOnce(&mut Iterations) -> R) -> R {
        // A forked child continues its parent's counts, unless they were being changed at the fork.
        let copy = |parents: &Mutex<Iterations>| parents.try_lock().map(|counts| counts.clone()).unwrap_or_default();
        let iterations = self.iterations.get(|parents| Mutex::new(copy(parents)));
        work(&mut iterations.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Session {
    /// Begins the schedule, or a recording if there is none.
    pub(crate) fn begin(&self) -> Result<(), Error> {
        let _call = self.call();
        let mut turn = self.steps.turn(None)?;
        let run = &mut *turn.run;
        if run.is_of_parent() {
            // Steps begin anew.
            run.course = None;
            (run.step, run.cycles) = (0, 0);
            self.steps.number(run);
        }
        let active = |why: &str| Err(Error::new(ErrorKind::AlreadyActive, why));
        if run.course.is_some() {
            return active("the schedule is going on already; stop it first");
        }
        let Some(schedule) = &run.schedule else { return self.start() };
        let action = schedule.checked(run.step)?;
        self.make_way(&mut *self.lock()?);
        if self.status() != Status::Idle {
            return active("a recording is going on or prepared already; stop it first");
        }
        let filter = self.config.filter.as_ref();
        if filter.is_some_and(|filter| !filter.would_enable(annotation::TARGET, &tracing_core::Level::INFO)) {
            run.annotation.tell_own_filter();
        }
        run.reports = Arc::default();
        let (_, failed) = self.perform(run, acts(ProfilerAction::None, Some(action)), false);
        failed.map_or(Ok(()), Err)?;
        (run.course, run.generation) = (Some(Course::new(action)), fork::generation());
        run.annotation.begin(run.step);
        Ok(())
    }

    /// Ends a step and begins the next one.
    pub(crate) fn step(&self) -> StepOutcome {
        let _call = self.call();
        let mut turn = match self.steps.turn(None) {
            Ok(turn) => turn,
            Err(why) => return StepOutcome::nothing(0, &why),
        };
        let run = &mut *turn.run;
        match (run.course, run.schedule.clone()) {
            (Some(_), _) if run.is_of_parent() => StepOutcome::nothing(run.step, &self.parents()),
            (Some(course), Some(schedule)) => self.step_along(run, course, &schedule),
            (_, None) => {
                run.step += 1;
                self.count_step();
                let state = match self.status_now() {
                    Status::Recording => StepState::Recording { is_last: false },
                    status => StepState::Nothing { reason: why_nothing(status).to_owned() },
                };
                StepOutcome::of(run.step, state)
            }
            (None, Some(_)) => {
                let why = "the schedule has not begun; call start first";
                StepOutcome::nothing(run.step, &Error::new(ErrorKind::NotActive, why))
            }
        }
    }

    fn step_along(&self, run: &mut Run, course: Course, schedule: &Schedule) -> StepOutcome {
        // Before anything changes.
        let scheduled = match schedule.checked(run.step + 1) {
            Ok(scheduled) => scheduled,
            Err(why) => {
                diag!(Error, "schedule", "{why}; the step before goes on");
                return StepOutcome::nothing(run.step, &why);
            }
        };
        let stopped = self.collectors.stopped();
        let next = course.next(scheduled, stopped.is_some());
        run.stopped = match next.action {
            ProfilerAction::DeviceStopped => stopped.unwrap_or_else(|| std::mem::take(&mut run.stopped)),
            _ => String::new(),
        };
        run.annotation.end();
        let (cycle, failed) = self.perform(run, acts(course.action, Some(next.action)), false);
        run.step += 1;
        run.course = Some(match failed {
            None => next,
            // What follows is as after a wait.
            Some(_) => Course::new(ProfilerAction::None),
        });
        self.count_step();
        run.annotation.begin(run.step);
        let state = match failed {
            Some(why) => {
                diag!(Error, "schedule", "step {} is not recorded: {why}", run.step);
                StepState::Nothing { reason: why.to_string() }
            }
            None => run.state(next.action, schedule),
        };
        StepOutcome { step: run.step, state, cycle, collectors: run.reports.clone() }
    }

    /// Ends the schedule, or the recording if there is no schedule.
    ///
    /// With `at_end`, the program ends: an assertion that did not hold is no reason to save nothing.
    pub(crate) fn finish(&self, at_end: bool) -> Result<Ending, Error> {
        let _call = self.call();
        let mut turn = self.steps.turn(None)?;
        let run = &mut *turn.run;
        if run.course.is_some() && run.is_of_parent() {
            return Err(self.parents());
        }
        let Some(course) = run.course.take() else {
            run.annotation.end();
            let trace = self.stop()?;
            return Ok(match run.handler.is_some() {
                true => Ending::Cycle(self.end_cycle(run, trace, at_end)),
                false => Ending::Recording(trace),
            });
        };
        run.annotation.end();
        match self.perform(run, acts(course.action, None), at_end) {
            (_, Some(failed)) => Err(failed),
            (Some(cycle), None) => Ok(Ending::Cycle(cycle)),
            (None, None) => Ok(Ending::Nothing { why: run.why_nothing(course.action), has_traces: run.cycles > 0 }),
        }
    }

    /// Does what a transition asks for; returns the recording that ended, and why the rest was not done.
    fn perform(&self, run: &mut Run, acts: &[Act], at_end: bool) -> (Option<Cycle>, Option<Error>) {
        let _ending = acts.contains(&Act::Stop).then(|| self.begin_ending());
        let (mut cycle, mut trace, mut discards) = (None, None, false);
        let mut act = |act: &Act| -> Result<(), Error> {
            match act {
                Act::Warn(what) if run.stopped.is_empty() => diag!(Warning, "schedule", "step {}: {what}", run.step),
                Act::Warn(what) => diag!(Warning, "schedule", "step {}: {what} ({})", run.step, run.stopped),
                Act::Prepare => run.reports = self.prepare()?.1.into(),
                Act::Start => {
                    discards = acts.contains(&Act::Stop);
                    self.start()?;
                }
                Act::Stop => {
                    run.reports = Arc::default();
                    trace = Some(self.stop()?);
                }
                Act::Save => cycle = trace.take().map(|trace| self.end_cycle(run, trace, at_end)),
            }
            Ok(())
        };
        let failed = acts.iter().find_map(|each| act(each).err());
        if let Some(trace) = trace.filter(|_| !discards) {
            run.cycles += 1;
            self.steps.number(run);
            let why = "the schedule ended it without RecordAndSave";
            let error = Some(Error::new(ErrorKind::Config, why));
            cycle = Some(Cycle { number: run.cycles, trace, path: None, error });
        }
        (cycle, failed)
    }

    /// Hands out a trace, or saves it.
    fn end_cycle(&self, run: &mut Run, trace: Trace, at_end: bool) -> Cycle {
        // At the end of the program, nobody could take it.
        let refused = trace.check_violations().err().filter(|_| !at_end);
        let (path, error) = match refused.map_or_else(|| self.deliver(run, &trace), Err) {
            Ok(path) => (path, None),
            Err(error) => {
                diag!(Error, "schedule", "{error}");
                (None, Some(error))
            }
        };
        if self.steps.habits.get().is_some_and(|habits| habits.accumulates) {
            self.steps.kept.lock().unwrap_or_else(PoisonError::into_inner).push(trace.clone());
        }
        run.cycles += 1;
        self.steps.number(run);
        Cycle { number: run.cycles, trace, path, error }
    }

    fn deliver(&self, run: &mut Run, trace: &Trace) -> Result<Option<PathBuf>, Error> {
        if let Some(handler) = &mut run.handler {
            let failed = |why: String| Error::new(ErrorKind::Handler, format!("the handler of traces {why}"));
            return match catch_unwind(AssertUnwindSafe(|| handler.ready(trace.clone()))) {
                Ok(Ok(path)) => Ok(path.inspect(|path| report(trace, path))),
                Ok(Err(error)) => Err(failed(format!("failed: {error}"))),
                Err(_) => Err(failed("panicked".to_owned())),
            };
        }
        let Some(path) = self.output() else { return Ok(None) };
        self.write_in_time(trace.clone(), self.patience())?;
        Ok(Some(path))
    }

    /// The process ends without the guard: hands what is recorded so far to the handler. Returns whether there is one.
    pub(super) fn hand_over(&self, deadline: Instant) -> bool {
        if !self.steps.has_handler() || self.guest().is_some() {
            return false;
        }
        let patience = deadline.saturating_duration_since(Instant::now());
        let taken = self.steps.turn(Some(patience)).and_then(|mut turn| {
            let trace = self.look()?;
            let _ = trace.check_violations();
            self.deliver(&mut turn.run, &trace)
        });
        if let Err(error) = taken {
            diag!(Error, "flush", "the trace was not handed out: {error}");
        }
        true
    }

    /// The process ends without the guard: says why a schedule has recorded nothing so far.
    pub(super) fn tell_why_nothing(&self) {
        let Ok(turn) = self.steps.turn(Some(Duration::ZERO)) else { return };
        let run = &*turn.run;
        let is_recording = self.status_now() != Status::Idle;
        if let Some(course) = run.course.as_ref().filter(|_| !is_recording && run.cycles == 0 && !run.is_of_parent()) {
            diag!(Warning, "flush", "nothing was recorded: {}", run.why_nothing(course.action));
        }
    }

    /// Sets the schedule of the next start; `None` is a recording without one.
    pub(crate) fn set_schedule(&self, schedule: Option<Schedule>) -> Result<(), Error> {
        let mut turn = self.steps.turn(None)?;
        let run = &mut *turn.run;
        if let Some(schedule) = &schedule {
            schedule.checked(0)?;
        }
        if run.course.is_some() && !run.is_of_parent() || self.used_by_program().is_some() {
            let why = "a schedule or a recording is going on; stop it before you set another schedule";
            return Err(Error::new(ErrorKind::AlreadyActive, why));
        }
        run.course = None;
        self.steps.set_schedule(run, schedule);
        Ok(())
    }

    /// Whether a schedule is going on.
    pub(crate) fn is_stepping(&self) -> bool {
        self.steps.turn(None).is_ok_and(|turn| turn.run.course.is_some() && !turn.run.is_of_parent())
    }

    /// Whether there is a schedule.
    pub(crate) fn has_schedule(&self) -> bool {
        self.steps.turn(None).is_ok_and(|turn| turn.run.schedule.is_some())
    }

    /// Opens the annotation of a step that began before there was a subscriber.
    pub(crate) fn annotate_late(&self) {
        // Who is in the middle of a step has opened one.
        if let Ok(mut turn) = self.steps.turn(Some(Duration::ZERO)) {
            turn.run.annotation.begin_late();
        }
    }

    fn parents(&self) -> Error {
        let why = "the schedule belongs to the parent process; start one of this process's own";
        Error::new(ErrorKind::Forked, why)
    }
}

impl Run {
    /// Whether what goes on was begun by the process that this one is a fork of.
    fn is_of_parent(&self) -> bool {
        self.generation != fork::generation()
    }

    fn state(&self, action: ProfilerAction, schedule: &Schedule) -> StepState {
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

    /// Says why nothing was recorded when the schedule ended in `action`.
    fn why_nothing(&self, action: ProfilerAction) -> String {
        let when = match action {
            ProfilerAction::Warmup => "during warm-up",
            ProfilerAction::DeviceStopped => return "a collector had stopped by itself".to_owned(),
            _ => "while it waited",
        };
        let steps = self.schedule.as_ref().and_then(|schedule| schedule.steps_to_record(self.step));
        let needed = match steps {
            Some(steps) => format!(", {} needed", counted(steps, "more step")),
            None => String::new(),
        };
        let advice = if self.step == 0 { "; call Profiler::step after each step of the program" } else { "" };
        format!("the schedule ended {when}{needed}{advice}")
    }
}

fn why_nothing(status: Status) -> &'static str {
    match status {
        Status::Paused => "the recording is paused",
        _ => "no recording is going on and there is no schedule; call start, or set a schedule",
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (schedule, course) = (&self.schedule, &self.course);
        f.debug_struct("Run").field("schedule", schedule).field("course", course).finish_non_exhaustive()
    }
}

impl fmt::Debug for Habits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Habits").field("accumulates", &self.accumulates).finish_non_exhaustive()
    }
}
