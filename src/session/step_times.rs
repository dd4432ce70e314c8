//! How long steps take, to notice slow ones.

use crate::wait::{since, steady};
use kineto_base::sorting::sort_few;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The times of the latest steps.
#[derive(Debug, Default)]
pub(super) struct StepTimes {
    begun: Option<Instant>,
    latest: VecDeque<Duration>,
}

/// How many steps the median is taken of.
const STEPS: usize = 100;
/// How many steps precede the first that can be slow.
const WARMUP: usize = 20;
/// A step that is shorter is never slow.
const LEAST: Duration = Duration::from_millis(10);

impl StepTimes {
    /// Begins a step.
    pub(super) fn begin_step(&mut self) {
        self.begun = Some(steady());
    }

    /// Forgets the step: no further one follows it directly.
    pub(super) fn forget_step(&mut self) {
        self.begun = None;
    }

    /// Ends the step. If it took `times` as long as the median of those before it, returns its time and the median.
    pub(super) fn end_step(&mut self, times: u32) -> Option<(Duration, Duration)> {
        let took = since(self.begun.take()?);
        self.add_step(took, times)
    }

    fn add_step(&mut self, took: Duration, times: u32) -> Option<(Duration, Duration)> {
        let median = self.median();
        self.latest.push_back(took);
        if self.latest.len() > STEPS {
            self.latest.pop_front();
        }
        let median = median?;
        (took >= LEAST && took > median.saturating_mul(times)).then_some((took, median))
    }

    /// Returns the median of the steps so far, unless there are too few.
    fn median(&self) -> Option<Duration> {
        let mut sorted: Vec<_> = self.latest.iter().copied().collect();
        sort_few(&mut sorted);
        sorted.get(sorted.len() / 2).copied().filter(|_| sorted.len() >= WARMUP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_steps_take_a_multiple_of_the_median() {
        let ms = Duration::from_millis;
        let mut times = StepTimes::default();
        assert!((0..WARMUP).all(|step| times.add_step(ms(if step == 7 { 900 } else { 5 }), 3).is_none()), "warm-up");
        assert_eq!(times.add_step(ms(15), 3), None, "three times the median");
        assert_eq!(times.add_step(ms(16), 3), Some((ms(16), ms(5))));
        let mut short = StepTimes::default();
        assert!((0..WARMUP).all(|_| short.add_step(ms(1), 3).is_none()));
        assert_eq!(short.add_step(ms(9), 3), None, "less than 10 ms");
        assert!(short.add_step(ms(10), 3).is_some());
        // The latest 100 steps count.
        assert!((0..STEPS).all(|_| short.add_step(ms(40), 100).is_none()));
        assert_eq!(short.add_step(ms(100), 3), None);
        assert_eq!(short.latest.len(), STEPS);
        assert_eq!(StepTimes::default().end_step(3), None, "no step has begun");
    }
}
