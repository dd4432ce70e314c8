//! The current iteration of a program: the largest count of those that its requesters report.
use kineto_base::sorted::SortedMap;

/// The counts of all requesters, by their names.
///
/// As in PyTorch's `KinetoStepTracker`, a profiler and an optimizer may both count the same loop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Iterations {
    counts: SortedMap<String, u64>,
    current: u64,
}

/// The name under which [`Profiler::step`](crate::Profiler::step) counts.
pub(crate) const PROFILER_STEP: &str = "ProfilerStep";

impl Iterations {
    /// Counts an iteration for `requester`; returns the current iteration.
    ///
    /// A requester that starts late starts at the current iteration. In PyTorch it starts after that, which counts a loop
    /// twice that another requester has counted.
    pub(crate) fn increment(&mut self, requester: &str) -> u64 {
        let current = self.current.saturating_sub(1);
        let count = match self.counts.get_mut(requester) {
            Some(count) => count,
            None => self.counts.get_or_insert_with(requester.to_owned(), || current),
        };
        *count += 1;
        self.current = current.max(*count);
        self.current
    }

    /// Forgets a requester; returns whether it was known. The current iteration stays.
    pub(crate) fn erase(&mut self, requester: &str) -> bool {
        self.counts.remove(requester).is_some()
    }

    /// Returns whether any iteration was counted.
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
    fn two_requesters_count_the_same_loop_once() {
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
