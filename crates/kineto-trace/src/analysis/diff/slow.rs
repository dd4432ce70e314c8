//! Compares how many steps are slow, or contain a class at all: what trimmed means do not see.
//!
//! Slow steps come in bursts, and more of them in some runs than in others. So there are two tests:
//!
//! - Fisher's exact test of steps (Fisher 1922). Steps count for fewer than they are: by the correlation of successive steps, and by how the shares
//!   of runs differ. It does not know how runs differ if there are few of them.
//! - A test of runs, in which each run has one share. Runs differ in it as they do in the logarithms of times (`runs`), so classes inform each other
//!   here, too. Shares are not normal: most are near 0, and few are large. On the scale of the arcsine of the root few runs with large shares look
//!   like a change, on that of the logarithm of the odds few with small ones. So both scales must show it.

use super::noise::{Estimate, FALSE_ALARM, MIN_VALUES, correlation_scale, ln_gamma};
use super::runs::{RunSpread, RunValues};
use super::sides::StepSeries;

/// The share of slow steps of each run: the arcsine of its root, and the logarithm of its odds.
type ScaledShares = [RunValues; 2];

/// The share of slow steps of both sides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SlowSteps {
    pub(super) shares: [f64; 2],
    /// The means of all steps, outliers included.
    pub(super) means: [f64; 2],
    /// The probability of such shares if both sides are equal, as far as steps show. `None` if there are too few slow steps for any test: such
    /// classes are not counted in the correction (Tarone 1990).
    pub(super) by_steps: Option<f64>,
    /// The same as far as runs show; 1 if a side has fewer than four, of which all may be the ones with many slow steps.
    pub(super) by_runs: Option<f64>,
}

impl SlowSteps {
    /// Compares the times of the steps of both sides, by class and run. Classes are those of one place.
    pub(super) fn compare(classes: impl Iterator<Item = Option<[Vec<StepSeries>; 2]>>) -> Vec<Option<SlowSteps>> {
        let found: Vec<_> = classes.map(|runs| SlowSteps::compare_steps(&runs?)).collect();
        let spreads = [0, 1].map(|scale| {
            RunSpread::new(found.iter().flatten().filter_map(|(_, of_runs): &(_, ScaledShares)| of_runs.get(scale)))
        });
        let with_runs = |(slow, of_runs): (SlowSteps, ScaledShares)| {
            let has_runs = of_runs.iter().flatten().all(|runs| runs.len() >= MIN_VALUES);
            let scales = spreads.iter().zip(&of_runs).map(|(spread, values)| spread.change_probability(values));
            let of_runs = if has_runs { scales.fold(0.0, f64::max) } else { 1.0 };
            SlowSteps { by_runs: slow.by_steps.map(|by_steps| by_steps.max(of_runs)), ..slow }
        };
        found.into_iter().map(|class| class.map(with_runs)).collect()
    }

    /// Compares the steps of one class; also returns the share of each run on both scales. Returns `None` for few steps, and if none or all are slow.
    ///
    /// A step is slow if it is further above the median of both sides than four times what the fast ones are below, and than a tenth.
    /// If most steps or one side lack a class, all steps that have it are slow.
    fn compare_steps(runs: &[Vec<StepSeries>; 2]) -> Option<(SlowSteps, ScaledShares)> {
        let steps = runs.each_ref().map(|runs| runs.iter().map(|run| run.steps).sum::<usize>());
        if steps.iter().any(|steps| *steps < MIN_VALUES) {
            return None;
        }
        let limit = slow_limit(runs);
        let times = |side: usize| runs.get(side).into_iter().flatten().flat_map(StepSeries::times);
        let slow = [0, 1].map(|side| times(side).filter(|ns| *ns > limit).count());
        if slow == [0, 0] || slow == steps {
            return None;
        }
        let counts = [(slow[0] as u64, steps[0] as u64), (slow[1] as u64, steps[1] as u64)];
        let sides = runs.each_ref().map(|runs| SlowShare::new(runs, limit));
        let others: f64 = sides.iter().map(|side| side.other_runs).sum();
        let differ = sides.iter().map(|side| side.scaled).sum::<f64>() / others.max(1.0);
        // Fewer independent steps never show more.
        let effective = fisher_probability(sides.each_ref().map(|side| side.effective_counts(differ)));
        let slow = SlowSteps {
            shares: counts.map(|(slow, all)| slow as f64 / all as f64),
            means: [times(0).sum::<f64>() / steps[0] as f64, times(1).sum::<f64>() / steps[1] as f64],
            by_steps: can_differ(counts).then(|| fisher_probability(counts).max(effective)),
            by_runs: None,
        };
        let [[angles_a, odds_a], [angles_b, odds_b]] = sides.map(|side| side.of_runs);
        Some((slow, [[angles_a, angles_b], [odds_a, odds_b]]))
    }

    /// Returns the relative change of the mean, if it and the share of slow steps changed in the same direction.
    pub(super) fn change(&self) -> Option<f64> {
        let ([share_a, share_b], [a, b]) = (self.shares, self.means);
        ((share_b - share_a) * (b - a) > 0.0).then(|| (b - a) / a.max(1.0))
    }
}

/// Returns the time above which a step is slow.
fn slow_limit(runs: &[Vec<StepSeries>; 2]) -> f64 {
    let times = |runs: &Vec<StepSeries>| runs.iter().flat_map(StepSeries::times).collect::<Vec<_>>();
    let sides = runs.each_ref().map(times);
    if sides.iter().any(Vec::is_empty) {
        return -1.0;
    }
    let mut sorted = sides.concat();
    sorted.sort_unstable_by(f64::total_cmp);
    let all: usize = runs.iter().flatten().map(|run| run.steps).sum();
    // Steps without the class come first, with a time of 0.
    let lacking = all.saturating_sub(sorted.len());
    let at = |place: usize| place.checked_sub(lacking).and_then(|place| sorted.get(place).copied()).unwrap_or(0.0);
    let (low, middle) = (at(all / 10), at(all / 2));
    middle + (4.0 * (middle - low)).max(0.1 * middle)
}

/// The share of slow steps of a side, and how well it is known.
#[derive(Clone, Debug, Default)]
struct SlowShare {
    share: f64,
    /// The number of independent steps, if runs did not differ.
    independent: f64,
    /// The sum of squares of how much the shares of runs differ, in terms of what their steps explain, and its degrees of freedom.
    scaled: f64,
    other_runs: f64,
    /// By scale.
    of_runs: [Vec<Option<Estimate>>; 2],
}

impl SlowShare {
    fn new(runs: &[StepSeries], limit: f64) -> SlowShare {
        let slow: Vec<Vec<f64>> = runs.iter().filter(|run| run.steps > 0).map(|run| run.slow_flags(limit)).collect();
        let count: usize = slow.iter().map(Vec::len).sum();
        let share = slow.iter().flatten().sum::<f64>() / count.max(1) as f64;
        let binomial = share * (1.0 - share);
        let mut found = SlowShare { share, other_runs: slow.len().saturating_sub(1) as f64, ..SlowShare::default() };
        for values in &slow {
            let number = values.len() as f64;
            let own = values.iter().sum::<f64>() / number;
            let squares = values.iter().map(|value| (value - own).powi(2)).sum();
            let left = number / correlation_scale(values, own, squares);
            found.independent += left;
            found.scaled += if binomial > 0.0 { left * (own - share).powi(2) / binomial } else { 0.0 };
            let odds = (own * number + 0.5) / ((1.0 - own) * number + 0.5);
            // Runs that agree by chance are not more precise than their steps. A run without slow steps has no such variance.
            let of_steps = if own > 0.0 { 0.25 / left } else { 0.0 };
            for (of_runs, (value, variance)) in
                found.of_runs.iter_mut().zip([(own.sqrt().asin(), of_steps), (odds.ln(), 0.0)])
            {
                of_runs.push(Some(Estimate::from_log(value, variance)));
            }
        }
        found
    }

    /// Returns the number of independent slow steps, and of all independent steps, if the shares of runs differ by that factor.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts are positive and small")]
    fn effective_counts(&self, differ: f64) -> (u64, u64) {
        let all = (self.independent / differ.max(1.0)).floor().max(1.0);
        ((self.share * all).round() as u64, all as u64)
    }
}

/// Returns whether so many slow steps would be no chance if one side had as many of them as it can.
fn can_differ([(slow_a, all_a), (slow_b, all_b)]: [(u64, u64); 2]) -> bool {
    let slow = slow_a + slow_b;
    let (most_a, most_b) = (slow.min(all_a), slow.min(all_b));
    let extremes = [[(most_a, all_a), (slow - most_a, all_b)], [(slow - most_b, all_a), (most_b, all_b)]];
    extremes.into_iter().any(|counts| fisher_probability(counts) < FALSE_ALARM)
}

/// Returns the probability that two shares differ as much or more by chance: twice that of the direction that is seen.
fn fisher_probability([(slow_a, all_a), (slow_b, all_b)]: [(u64, u64); 2]) -> f64 {
    let choose = |of: u64, some: u64| {
        let factorial = |n: u64| ln_gamma(n as f64 + 1.0);
        factorial(of) - factorial(some) - factorial(of - some)
    };
    let slow = slow_a + slow_b;
    let all = choose(all_a + all_b, slow);
    let possible = slow.saturating_sub(all_a)..=slow.min(all_b);
    let (mut below, mut above) = (0.0, 0.0);
    for of_b in possible {
        let probability = (choose(all_b, of_b) + choose(all_a, slow - of_b) - all).exp();
        below += if of_b <= slow_b { probability } else { 0.0 };
        above += if of_b >= slow_b { probability } else { 0.0 };
    }
    (2.0 * f64::min(below, above)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fisher_probabilities_match_tables() {
        for (counts, expected) in
            [([(0, 100), (14, 100)], 7.49e-5), ([(1, 10), (9, 10)], 1.1e-3), ([(5, 50), (5, 50)], 1.0)]
        {
            let found = fisher_probability(counts);
            assert!((found / expected - 1.0).abs() < 0.1, "{counts:?}: {found}");
        }
        assert_eq!(fisher_probability([(0, 4), (0, 4)]), 1.0);
    }

    #[test]
    fn bursts_count_for_fewer_steps() {
        let steps =
            |slow: fn(u32) -> bool| vec![StepSeries::from_times((0..100).map(|n| if slow(n) { 900.0 } else { 100.0 }))];
        let of_steps = |slow: fn(u32) -> bool| SlowSteps::compare_steps(&[steps(|_| false), steps(slow)]).unwrap().0;
        let (single, burst) = (of_steps(|n| n % 8 == 0), of_steps(|n| (40..53).contains(&n)));
        assert!(single.by_steps < Some(1e-3) && burst.by_steps > Some(0.1), "{single:?} {burst:?}");
        assert_eq!((single.shares, single.change()), ([0.0, 0.13], Some(1.04)));
    }
}
