//! Which steps of a program are recorded: PyTorch's schedules, as functions from a step's number to an action.

mod course;
mod iterations;

pub(crate) use course::{Act, Course, acts};
pub(crate) use iterations::{Iterations, PROFILER_STEP};

use crate::error::{Error, ErrorKind};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Says for each step of a program what the profiler does during it; as torch.profiler's `schedule`.
///
/// After `skip_first` steps, cycles follow: `wait` steps of nothing, `warmup` steps in which collectors run already, and
/// `active` steps that are recorded, the last of which ends in a trace. Cycles go on for ever unless `repeat` says how
/// many there are.
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
/// Numbers that cannot be followed, such as `active(0)`, are an error where the schedule begins or is set:
/// [`build`](crate::KinetoLayerBuilder::build), [`Profiler::start`](crate::Profiler::start) and
/// [`Profiler::schedule`](crate::Profiler::schedule).
#[derive(Clone)]
pub struct Schedule {
    plan: Plan,
}

#[derive(Clone)]
enum Plan {
    Cycles(Cycles),
    Custom(Arc<Custom>),
}

type Custom = dyn Fn(u64) -> ProfilerAction + Send + Sync;

#[derive(Clone, Copy, Debug)]
struct Cycles {
    wait: u64,
    warmup: u64,
    active: u64,
    /// 0 is for ever.
    repeat: u64,
    skip_first: u64,
    skip_first_wait: bool,
}

/// What the profiler does during a step; PyTorch's names and numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ProfilerAction {
    /// Nothing.
    None = 0,
    /// Collectors run, and nothing is recorded.
    Warmup = 1,
    /// It records.
    Record = 2,
    /// It records, and the trace ends with the step.
    RecordAndSave = 3,
    /// A collector has stopped by itself, so nothing is recorded until the next cycle. No schedule may say it.
    DeviceStopped = 4,
}

impl Schedule {
    /// Makes a schedule of cycles: steps to wait, to warm up, and to record.
    ///
    /// Without warm-up, the first recorded step has the start of the collectors in it.
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config) if `active` is 0, or a cycle has more than 2^64 steps.
    pub fn new(wait: u64, warmup: u64, active: u64) -> Result<Schedule, Error> {
        let schedule = Schedule::default().wait(wait).warmup(warmup).active(active);
        schedule.checked(0).map(|_| schedule)
    }

    /// Makes a schedule of a function from the number of a step, which begins at 0, to an action.
    ///
    /// It is asked once for each step. A trace ends only where it says [`RecordAndSave`](ProfilerAction::RecordAndSave):
    /// recorded steps that it does not lead there are dropped, with a warning. If it says
    /// [`DeviceStopped`](ProfilerAction::DeviceStopped) or panics, the step is refused and nothing changes.
    pub fn custom(action: impl Fn(u64) -> ProfilerAction + Send + Sync + 'static) -> Schedule {
        Schedule { plan: Plan::Custom(Arc::new(action)) }
    }

    /// Does nothing for so many steps at the beginning of a cycle. Default: 0. Changes nothing of a custom schedule.
    #[must_use]
    pub fn wait(self, steps: u64) -> Schedule {
        self.with(|plan| plan.wait = steps)
    }

    /// Runs collectors for so many steps before a cycle is recorded. Default: 0. Changes nothing of a custom schedule.
    ///
    /// Without warm-up, the first recorded step has the start of the collectors in it.
    #[must_use]
    pub fn warmup(self, steps: u64) -> Schedule {
        self.with(|plan| plan.warmup = steps)
    }

    /// Records so many steps of a cycle, into one trace. Default: 1. Changes nothing of a custom schedule.
    #[must_use]
    pub fn active(self, steps: u64) -> Schedule {
        self.with(|plan| plan.active = steps)
    }

    /// Ends after so many cycles; 0, the default, never. Changes nothing of a custom schedule.
    #[must_use]
    pub fn repeat(self, cycles: u64) -> Schedule {
        self.with(|plan| plan.repeat = cycles)
    }

    /// Does nothing for so many steps before the first cycle. Default: 0. Changes nothing of a custom schedule.
    #[must_use]
    pub fn skip_first(self, steps: u64) -> Schedule {
        self.with(|plan| plan.skip_first = steps)
    }

    /// Leaves the wait of the first cycle out. Default: false. Changes nothing of a custom schedule.
    #[must_use]
    pub fn skip_first_wait(self, skip: bool) -> Schedule {
        self.with(|plan| plan.skip_first_wait = skip)
    }

    fn with(mut self, change: impl FnOnce(&mut Cycles)) -> Schedule {
        if let Plan::Cycles(cycles) = &mut self.plan {
            change(cycles);
        }
        self
    }

    /// Returns what is done during a step; the first is 0.
    pub fn action(&self, step: u64) -> ProfilerAction {
        match &self.plan {
            Plan::Cycles(cycles) => cycles.action(step),
            Plan::Custom(action) => action(step),
        }
    }

    /// Returns what is done during a step, if that can be done.
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config) if a custom schedule panics or says [`ProfilerAction::DeviceStopped`].
    pub(crate) fn checked(&self, step: u64) -> Result<ProfilerAction, Error> {
        let refused = |what: &str, advice: &str| {
            let message = format!("the schedule {what} at step {step}; {advice}");
            Err(Error::new(ErrorKind::Config, message))
        };
        if let Plan::Cycles(cycles) = &self.plan {
            let fault = |why| Error::new(ErrorKind::Config, format!("cannot use this schedule: {why}"));
            cycles.fault().map_or(Ok(()), |why| Err(fault(why)))?;
        }
        match catch_unwind(AssertUnwindSafe(|| self.action(step))) {
            Ok(ProfilerAction::DeviceStopped) => {
                refused("says DeviceStopped, which only the profiler may", "say None, Warmup, Record or RecordAndSave")
            }
            Ok(action) => Ok(action),
            Err(_) => refused("panicked", "correct it"),
        }
    }

    /// Returns how many steps after `step` recording begins; `None` if it does not again, or nobody knows.
    pub(crate) fn steps_to_record(&self, step: u64) -> Option<u64> {
        match &self.plan {
            Plan::Cycles(cycles) => cycles.steps_to_record(step),
            Plan::Custom(_) => None,
        }
    }

    /// Whether nothing is done from `step` on.
    pub(crate) fn is_over(&self, step: u64) -> bool {
        match &self.plan {
            Plan::Cycles(cycles) => matches!(cycles.place(step), Place::Over),
            Plan::Custom(_) => false,
        }
    }

    /// Whether it ends in one trace at most.
    pub(crate) fn is_single(&self) -> bool {
        matches!(&self.plan, Plan::Cycles(cycles) if cycles.repeat == 1)
    }
}

/// Where a step lies.
enum Place {
    /// So many steps before the cycles.
    Before(u64),
    /// So many steps behind the beginning of a cycle.
    In(u64),
    Over,
}

impl Cycles {
    /// Returns why it cannot be followed, if it cannot.
    fn fault(&self) -> Option<&'static str> {
        let steps = self.wait.checked_add(self.warmup).and_then(|steps| steps.checked_add(self.active));
        match steps {
            _ if self.active == 0 => Some("active is 0, so it would never record; give at least 1"),
            None => Some("a cycle has more than 2^64 steps; give smaller numbers"),
            Some(_) => None,
        }
    }

    fn place(&self, step: u64) -> Place {
        if self.fault().is_some() {
            return Place::Over;
        }
        let Some(step) = step.checked_sub(self.skip_first) else { return Place::Before(self.skip_first - step) };
        // Without the first wait, the first cycle is one that has waited already.
        let step = step.saturating_add(if self.skip_first_wait { self.wait } else { 0 });
        let steps = self.wait + self.warmup + self.active;
        match self.repeat > 0 && step / steps >= self.repeat {
            true => Place::Over,
            false => Place::In(step % steps),
        }
    }

    fn action(&self, step: u64) -> ProfilerAction {
        match self.place(step) {
            Place::Before(_) | Place::Over => ProfilerAction::None,
            Place::In(position) if position < self.wait => ProfilerAction::None,
            Place::In(position) if position < self.wait + self.warmup => ProfilerAction::Warmup,
            Place::In(position) if position == self.wait + self.warmup + self.active - 1 => {
                ProfilerAction::RecordAndSave
            }
            Place::In(_) => ProfilerAction::Record,
        }
    }

    fn steps_to_record(&self, step: u64) -> Option<u64> {
        let idle = self.wait.saturating_add(self.warmup);
        match self.place(step) {
            Place::Before(steps) if self.skip_first_wait => steps.checked_add(self.warmup),
            Place::Before(steps) => steps.checked_add(idle),
            Place::In(position) => idle.checked_sub(position),
            Place::Over => None,
        }
    }
}

/// Records each step into a trace of its own, for ever.
impl Default for Schedule {
    fn default() -> Schedule {
        let cycles = Cycles { wait: 0, warmup: 0, active: 1, repeat: 0, skip_first: 0, skip_first_wait: false };
        Schedule { plan: Plan::Cycles(cycles) }
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.plan {
            Plan::Cycles(cycles) => cycles.fmt(f),
            Plan::Custom(_) => f.write_str("Custom"),
        }
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
    fn every_small_schedule_is_as_torch_has_it() {
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
    fn a_step_skipped_two_waited_one_warmed_up_two_recorded_twice() {
        let schedule = Schedule::new(2, 1, 2).unwrap().repeat(2).skip_first(1);
        let actions: String = (0..14).map(|step| char::from(b'0' + schedule.action(step) as u8)).collect();
        assert_eq!(actions, "00012300123000");
    }

    #[test]
    fn the_steps_that_are_missing_are_those_until_the_first_recorded_one() {
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
    fn what_cannot_be_followed_is_refused() {
        for (wait, warmup, active) in [(1, 1, 0), (u64::MAX, 1, 1), (0, u64::MAX, 1)] {
            assert_eq!(Schedule::new(wait, warmup, active).unwrap_err().kind(), ErrorKind::Config);
            let named = Schedule::default().active(active).warmup(warmup).wait(wait);
            assert_eq!(named.checked(0).unwrap_err().kind(), ErrorKind::Config);
            assert_eq!((named.action(0), named.is_over(0)), (ProfilerAction::None, true));
        }
        let long = Schedule::new(u64::MAX - 1, 0, 1).unwrap().skip_first_wait(true);
        assert_eq!(long.action(0), ProfilerAction::RecordAndSave);
        assert_eq!(long.action(u64::MAX), ProfilerAction::None);
        assert_eq!(long.skip_first(u64::MAX).steps_to_record(0), Some(u64::MAX));
    }

    #[test]
    fn a_function_is_a_schedule_unless_it_says_what_it_may_not() {
        let schedule = Schedule::custom(|step| match step {
            0 => ProfilerAction::Record,
            1 => ProfilerAction::DeviceStopped,
            _ => std::panic::resume_unwind(Box::new(())),
        });
        assert_eq!(schedule.checked(0).unwrap(), ProfilerAction::Record);
        assert!(schedule.checked(1).unwrap_err().to_string().contains("DeviceStopped"));
        assert_eq!(schedule.checked(2).unwrap_err().to_string(), "the schedule panicked at step 2; correct it");
    }
}
