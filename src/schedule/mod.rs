//! PyTorch's schedules: functions from a step's number to an action.

mod iterations;
mod transition;

pub(crate) use iterations::{Iterations, PROFILER_STEP};
pub(crate) use transition::{SchedulePosition, Transition, transitions_between};

use crate::error::{Error, ErrorKind};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Maps each step of a program to an action of the profiler, like torch.profiler's `schedule`.
///
/// After `skip_first` steps, cycles follow: `wait` idle steps, `warmup` steps during which collectors run, and `active`
/// recorded steps, whose last one ends the trace. Cycles repeat without end unless `repeat` limits them.
///
/// ```
/// use tracing_kineto::{ProfilerAction, Schedule};
///
/// let schedule = Schedule::default().wait(1).warmup(1).active(2).repeat(1);
/// let actions: Vec<_> = (0..5).map(|step| schedule.action(step)).collect();
/// assert_eq!(
///     actions,
///     [
///         ProfilerAction::None,
///         ProfilerAction::Warmup,
///         ProfilerAction::Record,
///         ProfilerAction::RecordAndSave,
///         ProfilerAction::None,
///     ]
/// );
/// ```
///
/// Invalid numbers, such as `active(0)`, are an error where the schedule begins or is set:
/// [`build`](crate::KinetoLayerBuilder::build), [`Profiler::start`](crate::Profiler::start) and
/// [`Profiler::schedule`](crate::Profiler::schedule).
#[derive(Clone)]
pub struct Schedule {
    /// Without effect on a custom schedule.
    cycles: Cycles,
    custom: Option<Arc<Custom>>,
}

type Custom = dyn Fn(u64) -> ProfilerAction + Send + Sync;

#[derive(Clone, Copy, Debug)]
struct Cycles {
    wait: u64,
    warmup: u64,
    active: u64,
    /// 0 means unlimited.
    repeat: u64,
    skip_first: u64,
    skip_first_wait: bool,
}

/// What the profiler does during a step; PyTorch's names and numbers.
///
/// ```
/// use tracing_kineto::{ProfilerAction, Schedule};
///
/// let schedule = Schedule::custom(|step| match step {
///     10 => ProfilerAction::Warmup,
///     11 => ProfilerAction::RecordAndSave,
///     _ => ProfilerAction::None,
/// });
/// assert_eq!(schedule.action(11), ProfilerAction::RecordAndSave);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ProfilerAction {
    /// Nothing.
    None = 0,
    /// Collectors run; recording has not started.
    Warmup = 1,
    /// It records.
    Record = 2,
    /// It records, and the trace ends with the step.
    RecordAndSave = 3,
    /// Nothing until the next cycle, because a collector has stopped on its own. A schedule must not return it.
    DeviceStopped = 4,
}

impl Schedule {
    /// Creates a schedule of cycles: steps to wait, to warm up, and to record.
    ///
    /// Without warm-up, the first recorded step includes the start of the collectors.
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config) if `active` is 0, or a cycle has more than 2^64 steps.
    pub fn new(wait: u64, warmup: u64, active: u64) -> Result<Schedule, Error> {
        let schedule = Schedule::default().wait(wait).warmup(warmup).active(active);
        schedule.checked_action(0).map(|_| schedule)
    }

    /// Creates a schedule from a function that maps the number of a step, from 0, to an action.
    ///
    /// The function is called once for each step. Only [`RecordAndSave`](ProfilerAction::RecordAndSave) ends a trace:
    /// recorded steps without it are dropped, with a warning. If the function returns
    /// [`DeviceStopped`](ProfilerAction::DeviceStopped) or panics, the step is refused and nothing changes.
    pub fn custom(action: impl Fn(u64) -> ProfilerAction + Send + Sync + 'static) -> Schedule {
        Schedule { custom: Some(Arc::new(action)), ..Schedule::default() }
    }

    /// Sets the number of idle steps at the beginning of a cycle. Default: 0. No effect on a custom schedule.
    #[must_use]
    pub fn wait(self, steps: u64) -> Schedule {
        self.with_cycles(|plan| plan.wait = steps)
    }

    /// Sets the number of steps during which collectors run before a cycle is recorded. Default: 0. No effect on a custom
    /// schedule.
    ///
    /// Without warm-up, the first recorded step includes the start of the collectors.
    #[must_use]
    pub fn warmup(self, steps: u64) -> Schedule {
        self.with_cycles(|plan| plan.warmup = steps)
    }

    /// Sets the number of steps that a cycle records into one trace. Default: 1. No effect on a custom schedule.
    #[must_use]
    pub fn active(self, steps: u64) -> Schedule {
        self.with_cycles(|plan| plan.active = steps)
    }

    /// Sets the number of cycles; 0, the default, is without end. No effect on a custom schedule.
    #[must_use]
    pub fn repeat(self, cycles: u64) -> Schedule {
        self.with_cycles(|plan| plan.repeat = cycles)
    }

    /// Sets the number of idle steps before the first cycle. Default: 0. No effect on a custom schedule.
    #[must_use]
    pub fn skip_first(self, steps: u64) -> Schedule {
        self.with_cycles(|plan| plan.skip_first = steps)
    }

    /// Sets whether the first cycle omits its wait. Default: false. No effect on a custom schedule.
    #[must_use]
    pub fn skip_first_wait(self, skip: bool) -> Schedule {
        self.with_cycles(|plan| plan.skip_first_wait = skip)
    }

    fn with_cycles(mut self, change: impl FnOnce(&mut Cycles)) -> Schedule {
        change(&mut self.cycles);
        self
    }

    /// Returns the action of a step; the first is 0.
    pub fn action(&self, step: u64) -> ProfilerAction {
        self.custom.as_ref().map_or_else(|| self.cycles.action(step), |action| action(step))
    }

    /// Returns the action of a step, if it is valid.
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config) if a custom schedule panics or returns [`ProfilerAction::DeviceStopped`].
    pub(crate) fn checked_action(&self, step: u64) -> Result<ProfilerAction, Error> {
        let refused = |what: &str, advice: &str| {
            let message = format!("the schedule {what} at step {step}; {advice}");
            Err(Error::new(ErrorKind::Config, message))
        };
        if let Some(why) = self.cycles.invalid_reason().filter(|_| self.custom.is_none()) {
            return Err(Error::new(ErrorKind::Config, format!("cannot use this schedule: {why}")));
        }
        match catch_unwind(AssertUnwindSafe(|| self.action(step))) {
            Ok(ProfilerAction::DeviceStopped) => {
                refused("returned DeviceStopped", "return None, Warmup, Record or RecordAndSave")
            }
            Ok(action) => Ok(action),
            Err(_) => refused("panicked", "fix its function"),
        }
    }

    /// Returns how many steps after `step` recording begins; `None` if it does not, or this is unknown.
    pub(crate) fn steps_to_record(&self, step: u64) -> Option<u64> {
        if self.custom.is_none() { self.cycles.steps_to_record(step) } else { None }
    }

    /// Returns whether the schedule has ended at `step`.
    pub(crate) fn is_over(&self, step: u64) -> bool {
        self.custom.is_none() && matches!(self.cycles.cycle_position(step), CyclePosition::Over)
    }

    /// Returns whether the schedule produces at most one trace.
    pub(crate) fn is_single(&self) -> bool {
        self.custom.is_none() && self.cycles.repeat == 1
    }
}

/// The position of a step.
enum CyclePosition {
    /// This many steps before the first cycle.
    Before(u64),
    /// This many steps after the beginning of a cycle.
    In(u64),
    Over,
}

impl Cycles {
    /// Returns why the numbers are invalid, if they are.
    fn invalid_reason(&self) -> Option<&'static str> {
        let steps = self.wait.checked_add(self.warmup).and_then(|steps| steps.checked_add(self.active));
        match steps {
            _ if self.active == 0 => Some("active is 0, so it would never record; give at least 1"),
            None => Some("a cycle has more than 2^64 steps; give smaller numbers"),
            Some(_) => None,
        }
    }

    fn cycle_position(&self, step: u64) -> CyclePosition {
        if self.invalid_reason().is_some() {
            return CyclePosition::Over;
        }
        let Some(step) = step.checked_sub(self.skip_first) else {
            return CyclePosition::Before(self.skip_first - step);
        };
        // Without the first wait, the first cycle begins after its wait.
        let step = step.saturating_add(if self.skip_first_wait { self.wait } else { 0 });
        let steps = self.wait + self.warmup + self.active;
        if self.repeat > 0 && step / steps >= self.repeat {
            CyclePosition::Over
        } else {
            CyclePosition::In(step % steps)
        }
    }

    fn action(&self, step: u64) -> ProfilerAction {
        match self.cycle_position(step) {
            CyclePosition::Before(_) | CyclePosition::Over => ProfilerAction::None,
            CyclePosition::In(position) if position < self.wait => ProfilerAction::None,
            CyclePosition::In(position) if position < self.wait + self.warmup => ProfilerAction::Warmup,
            CyclePosition::In(position) if position == self.wait + self.warmup + self.active - 1 => {
                ProfilerAction::RecordAndSave
            }
            CyclePosition::In(_) => ProfilerAction::Record,
        }
    }

    fn steps_to_record(&self, step: u64) -> Option<u64> {
        let idle = self.wait.saturating_add(self.warmup);
        match self.cycle_position(step) {
            CyclePosition::Before(steps) if self.skip_first_wait => steps.checked_add(self.warmup),
            CyclePosition::Before(steps) => steps.checked_add(idle),
            CyclePosition::In(position) => idle.checked_sub(position),
            CyclePosition::Over => None,
        }
    }
}

/// Records each step into its own trace, without end.
impl Default for Schedule {
    fn default() -> Schedule {
        let cycles = Cycles { wait: 0, warmup: 0, active: 1, repeat: 0, skip_first: 0, skip_first_wait: false };
        Schedule { cycles, custom: None }
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.custom.is_some() { f.write_str("Custom") } else { self.cycles.fmt(f) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The body of torch.profiler's `schedule`, statement by statement, with its numbers of actions.
    fn torch(step: i64, [wait, warmup, active, repeat, skip_first, skip_first_wait]: [i64; 6]) -> u8 {
        assert!(step >= 0);
        if step < skip_first {
            return 0;
        }
        let mut step = step - skip_first;
        if skip_first_wait != 0 {
            step += wait;
        }
        let num_steps = wait + warmup + active;
        if repeat > 0 && step / num_steps >= repeat {
            return 0;
        }
        let mod_step = step % num_steps;
        if mod_step < wait {
            0
        } else if mod_step < wait + warmup {
            1
        } else if mod_step < num_steps - 1 {
            2
        } else {
            3
        }
    }

    /// All six numbers from 0 to 3, but for an active of 0.
    fn all() -> impl Iterator<Item = ([i64; 6], Schedule)> {
        (0..4i64.pow(6)).filter_map(|number| {
            let digits = std::array::from_fn(|at| number / 4i64.pow(u32::try_from(at).unwrap()) % 4);
            let [wait, warmup, active, repeat, skip_first, skip_first_wait] = digits.map(i64::cast_unsigned);
            let schedule = Schedule::new(wait, warmup, active).ok()?;
            let schedule = schedule.repeat(repeat).skip_first(skip_first).skip_first_wait(skip_first_wait != 0);
            Some((digits, schedule))
        })
    }

    #[test]
    fn small_schedules_equal_those_of_torch() {
        let mut steps = 0;
        for (numbers, schedule) in all() {
            for step in 0..40 {
                let expected = torch(step, numbers);
                assert_eq!(schedule.action(step.cast_unsigned()) as u8, expected, "{numbers:?} at {step}");
                steps += 1;
            }
        }
        assert_eq!(steps, 4 * 4 * 3 * 4 * 4 * 4 * 40);
    }

    #[test]
    fn schedule_of_two_cycles_after_a_skipped_step() {
        let schedule = Schedule::new(2, 1, 2).unwrap().repeat(2).skip_first(1);
        let actions: String = (0..14).map(|step| char::from(b'0' + schedule.action(step) as u8)).collect();
        assert_eq!(actions, "00012300123000");
    }

    #[test]
    fn steps_to_record_counts_to_the_first_recorded_step() {
        for (numbers, schedule) in all() {
            for step in 0..20 {
                let records = |step: &u64| schedule.action(*step) as u8 >= ProfilerAction::Record as u8;
                if records(&step) {
                    continue;
                }
                let next = (step..100).find(records).map(|found| found - step);
                assert_eq!(schedule.steps_to_record(step), next, "{numbers:?} at {step}");
                assert_eq!(schedule.is_over(step), next.is_none(), "{numbers:?} at {step}");
            }
        }
    }

    #[test]
    fn invalid_numbers_are_refused() {
        for (wait, warmup, active) in [(1, 1, 0), (u64::MAX, 1, 1), (0, u64::MAX, 1)] {
            assert_eq!(Schedule::new(wait, warmup, active).unwrap_err().kind(), ErrorKind::Config);
            let named = Schedule::default().active(active).warmup(warmup).wait(wait);
            assert_eq!(named.checked_action(0).unwrap_err().kind(), ErrorKind::Config);
            assert_eq!((named.action(0), named.is_over(0)), (ProfilerAction::None, true));
        }
        let long = Schedule::new(u64::MAX - 1, 0, 1).unwrap().skip_first_wait(true);
        assert_eq!(long.action(0), ProfilerAction::RecordAndSave);
        assert_eq!(long.action(u64::MAX), ProfilerAction::None);
        assert_eq!(long.skip_first(u64::MAX).steps_to_record(0), Some(u64::MAX));
    }

    #[test]
    fn custom_schedule_is_refused_on_invalid_action_or_panic() {
        let schedule = Schedule::custom(|step| match step {
            0 => ProfilerAction::Record,
            1 => ProfilerAction::DeviceStopped,
            _ => std::panic::resume_unwind(Box::new(())),
        });
        assert_eq!(schedule.checked_action(0).unwrap(), ProfilerAction::Record);
        assert!(schedule.checked_action(1).unwrap_err().to_string().contains("DeviceStopped"));
        assert_eq!(
            schedule.checked_action(2).unwrap_err().to_string(),
            "the schedule panicked at step 2; fix its function"
        );
    }
}
