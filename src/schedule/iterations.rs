//! Which iteration a program is in, as those count that step it: the largest of their counts.

use std::collections::BTreeMap;

/// The counts of all that step, by their names.
///
/// As PyTorch's `KinetoStepTracker`: a loop may be stepped by the profiler and by an optimizer, and is not to be counted
/// twice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Iterations {
    counts: BTreeMap<String, u64>,
    current: u64,
}

/// The name under which [`Profiler::step`](crate::Profiler::step) counts.
pub(crate) const PROFILER_STEP: &str = "ProfilerStep";

impl Iterations {
    /// Counts one more for `requester`; returns the current iteration then.
    ///
    /// Whose first count comes late is taken to be in the iteration that others are in. PyTorch has it begin behind that
    /// one, so that a loop that another has stepped already is counted twice.
    pub(crate) fn increment(&mut self, requester: &str) -> u64 {
        let current = self.current.saturating_sub(1);
        let count = match self.counts.get_mut(requester) {
            Some(count) => count,
            None => self.counts.entry(requester.to_owned()).or_insert(current),
        };
        *count += 1;
        self.current = current.max(*count);
        self.current
    }

    /// Forgets a requester; returns whether it was known. The current iteration stays.
    pub(crate) fn erase(&mut self, requester: &str) -> bool {
        self.counts.remove(requester).is_some()
    }

    /// Whether anybody has counted.
    pub(crate) fn is_counted(&self) -> bool {
        self.current > 0
    }

    /// Returns the largest count so far.
    pub(crate) fn current(&self) -> u64 {
        self.current
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_that_step_the_same_loop_count_it_once() {
        let mut iterations = Iterations::default();
        for iteration in 1..=5 {
            iterations.increment(PROFILER_STEP);
            assert_eq!(iterations.increment("Optimizer"), iteration);
        }
        assert_eq!(iterations.increment("late"), 5);
        assert_eq!(iterations.increment("Optimizer"), 6);
        assert!(iterations.erase("late") && !iterations.erase("late"));
        assert_eq!(iterations.current(), 6);
        assert_eq!(iterations.increment(PROFILER_STEP), 6);
    }
}
