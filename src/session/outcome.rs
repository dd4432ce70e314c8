//! The result of a step.

use crate::error::Error;
use crate::text::count_with_noun;
use crate::trace::Trace;
use crate::write::sink::Writers;
use kineto_devices::CollectorReport;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// The result of [`Profiler::step`](crate::Profiler::step).
///
/// Its `Display` is a sentence.
///
/// ```
/// use tracing_kineto::{KinetoLayer, Schedule, StepState};
///
/// let (_layer, guard) = KinetoLayer::builder().no_output().schedule(Schedule::new(0, 0, 2)?.repeat(1)).build()?;
/// let profiler = guard.profiler();
/// let outcome = profiler.step();
/// assert_eq!(outcome.state, StepState::Recording { is_last: true });
/// let outcome = profiler.step();
/// println!("{outcome}"); // step 2: nothing: the schedule is over; cycle 1 ended
/// assert!(outcome.trace().is_some());
/// # drop(guard.finish());
/// # Ok::<(), tracing_kineto::Error>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct StepOutcome {
    /// The number of the step that begins now; the start begins step 0.
    pub step: u64,
    /// What the profiler does during the step.
    pub state: StepState,
    /// The recording that ended with the previous step, if one did.
    pub cycle: Option<Cycle>,
    /// A report for each collector that this cycle started; empty if none was needed.
    /// [`Capabilities::proven`](kineto_devices::Capabilities::proven) names those that have delivered records.
    pub collectors: Arc<[CollectorReport]>,
}

/// What the profiler does during a step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepState {
    /// Nothing: the schedule waits.
    Waiting {
        /// How many steps remain until one is recorded, if known.
        steps_to_record: Option<u64>,
    },
    /// Collectors run, and nothing is recorded.
    WarmingUp {
        /// How many steps remain until one is recorded, if known.
        steps_to_record: Option<u64>,
    },
    /// The step is recorded.
    Recording {
        /// The trace ends with this step.
        is_last: bool,
    },
    /// Nothing until the next cycle: a collector has stopped on its own.
    DeviceStopped {
        /// The collector, and the cause.
        reason: String,
    },
    /// Nothing: the schedule has no further cycles.
    Finished,
    /// Nothing, for a reason other than the schedule.
    Nothing {
        /// The cause, and what to do.
        reason: String,
    },
}

/// A recording that has ended, and where it was saved.
#[derive(Debug)]
#[non_exhaustive]
pub struct Cycle {
    /// Its number; the first is 1.
    pub number: u64,
    /// The recorded trace.
    pub trace: Trace,
    /// The file that it was saved to, if the handler or the output saved it.
    pub path: Option<PathBuf>,
    /// Why it was not saved: the handler failed or panicked, the file could not be written, or the schedule has no
    /// [`RecordAndSave`](crate::ProfilerAction::RecordAndSave).
    pub error: Option<Error>,
}

impl StepOutcome {
    pub(super) fn from_error(step: u64, why: &Error) -> StepOutcome {
        StepOutcome::from_state(step, StepState::Nothing { reason: why.to_string() })
    }

    pub(crate) fn from_state(step: u64, state: StepState) -> StepOutcome {
        StepOutcome { step, state, cycle: None, collectors: Arc::default() }
    }

    /// Returns the trace of the recording that ended with the previous step, if one did.
    pub fn trace(&self) -> Option<&Trace> {
        self.cycle.as_ref().map(|cycle| &cycle.trace)
    }
}

impl fmt::Display for StepOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}: {}", self.step, self.state)?;
        self.cycle.as_ref().map_or(Ok(()), |cycle| write!(f, "; {cycle}"))
    }
}

impl fmt::Display for StepState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let until = |f: &mut fmt::Formatter<'_>, steps: &Option<u64>| match steps {
            Some(steps) => write!(f, ", {} until one is recorded", count_with_noun(*steps, "more step")),
            None => Ok(()),
        };
        match self {
            StepState::Waiting { steps_to_record } => {
                f.write_str("waiting")?;
                until(f, steps_to_record)
            }
            StepState::WarmingUp { steps_to_record } => {
                f.write_str("warming up")?;
                until(f, steps_to_record)
            }
            StepState::Recording { is_last: false } => f.write_str("recording"),
            StepState::Recording { is_last: true } => f.write_str("recording the last step of the cycle"),
            StepState::DeviceStopped { reason } => write!(f, "nothing until the next cycle: {reason}"),
            StepState::Finished => f.write_str("nothing: the schedule is over"),
            StepState::Nothing { reason } => write!(f, "nothing: {reason}"),
        }
    }
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cycle {} ended", self.number)?;
        match (&self.path, &self.error) {
            (_, Some(error)) => write!(f, ": {error}"),
            (Some(path), None) => write!(f, ": saved as {}", Writers::output_name(path)),
            (None, None) => Ok(()),
        }
    }
}
