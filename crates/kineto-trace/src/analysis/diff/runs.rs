//! How runs differ: the variance of each class between runs.
//!
//! The logarithm of a class's mean in a run is that of its side, plus what all classes of the run share (its clock, the load of the machine),
//! plus the class's own deviation. Both sides have the same variances, so those of both sides are pooled:
//!
//! 1. The shared deviation of a run is the median deviation of classes from the mean of their side.
//! 2. The rest of each class has its own variance. A few runs show it poorly.
//! 3. So classes inform each other: each variance is shrunk towards a typical one. The more alike the variances are, the stronger the shrinkage
//!    (Smyth 2004, "Linear models and empirical Bayes methods for assessing differential expression in microarray experiments").
//!
//! A change of one class is compared with its own variance, a change of all with the shared one. One run a side shows neither: then the spread
//! of its steps decides, and that of classes (`Drift`).

use super::noise::{Estimate, LogRatio, median};

/// The estimates of a class by side and run; `None` for runs without it.
pub(super) type RunValues = [Vec<Option<Estimate>>; 2];

/// The fewest classes that show what runs share, and a typical variance.
const MIN_CLASSES: usize = 10;

/// The spread between runs of the classes of one place, the host or devices.
#[derive(Clone, Debug, Default)]
pub(super) struct RunSpread {
    /// The deviation that all classes of a run share, by side and run.
    shared: [Vec<f64>; 2],
    /// The variance of that deviation.
    pub(super) shared_variance: f64,
    /// The runs of both sides less two: the degrees of freedom of variances between runs; 0 for one run a side.
    pub(super) freedom: f64,
    typical: TypicalVariance,
}

impl RunSpread {
    /// Estimates the spread that classes show. Fewer than [`MIN_CLASSES`] classes share nothing.
    pub(super) fn new<'v>(classes: impl Iterator<Item = &'v RunValues>) -> RunSpread {
        let classes: Vec<&RunValues> = classes.collect();
        let mut spread = RunSpread::default();
        spread.freedom = classes.iter().map(|values| spread.own_squares(values).1).fold(0.0, f64::max);
        let repeated = classes.iter().filter(|values| spread.own_squares(values).1 >= 1.0).count();
        if repeated < MIN_CLASSES || spread.freedom < 1.0 {
            return spread;
        }
        spread.shared = [0, 1].map(|side| shared_deviations(classes.iter().filter_map(|values| values.get(side))));
        spread.shared_variance =
            spread.shared.iter().flatten().map(|shared| shared * shared).sum::<f64>() / spread.freedom;
        let own = classes.iter().map(|values| spread.own_squares(values));
        spread.typical = TypicalVariance::from_variances(
            // Equal values differ by rounding.
            &own.filter(|(squares, freedom)| *freedom >= 1.0 && squares / freedom > 1e-12)
                .map(|(squares, freedom)| (squares / freedom, freedom))
                .collect::<Vec<_>>(),
        );
        spread
    }

    /// Returns the ratio of the means of both sides, with the class's own spread; `None` if there are too few runs or values.
    pub(super) fn ratio(&self, values: &RunValues) -> Option<LogRatio> {
        let sides = values.each_ref().map(|runs| runs.iter().flatten().copied().collect::<Vec<Estimate>>());
        if self.freedom < 1.0 {
            return LogRatio::new(sides[0].first()?, sides[1].first()?);
        }
        let (squares, own) = self.own_squares(values);
        let typical = &self.typical;
        let freedom = own + typical.freedom;
        let mean = |side: &[Estimate], of: fn(&Estimate) -> f64| side.iter().map(of).sum::<f64>() / side.len() as f64;
        let change = |of: fn(&Estimate) -> f64| mean(&sides[1], of) - mean(&sides[0], of);
        let variance = variance_factor(values) * (squares + typical.freedom * typical.variance) / freedom;
        // Runs that agree by chance are not more precise than their steps.
        let of_steps: f64 = sides.iter().map(|side| mean(side, Estimate::log_variance) / side.len() as f64).sum();
        let is_known = freedom >= 1.0 && sides.iter().all(|side| !side.is_empty());
        is_known.then(|| LogRatio {
            value: change(Estimate::log),
            variance: variance.max(of_steps),
            freedom,
            low: change(|run| run.low.max(1.0).ln()),
        })
    }

    /// Adds the spread of what all classes of a run share.
    pub(super) fn with_shared(&self, ratio: LogRatio, values: &RunValues) -> LogRatio {
        ratio.with_spread(variance_factor(values) * self.shared_variance, self.freedom)
    }

    /// Returns the probability of a class's change if both sides are equal; 1 if no side has two runs.
    pub(super) fn change_probability(&self, values: &RunValues) -> f64 {
        let ratio = self.ratio(values).filter(|_| self.freedom >= 1.0);
        ratio.map_or(1.0, |ratio| self.with_shared(ratio, values).probability())
    }

    /// Returns the sum of the squares of a class's own deviations, and their degrees of freedom.
    fn own_squares(&self, values: &RunValues) -> (f64, f64) {
        let of_side = |(runs, shared): (&Vec<Option<Estimate>>, &Vec<f64>)| {
            let own = runs
                .iter()
                .enumerate()
                .filter_map(|(run, found)| Some(found.as_ref()?.log() - shared.get(run).copied().unwrap_or(0.0)));
            let own: Vec<f64> = own.collect();
            let mean = own.iter().sum::<f64>() / own.len().max(1) as f64;
            (own.iter().map(|own| (own - mean).powi(2)).sum::<f64>(), own.len().saturating_sub(1) as f64)
        };
        let sides = values.iter().zip(&self.shared).map(of_side);
        sides.fold((0.0, 0.0), |sum, side| (sum.0 + side.0, sum.1 + side.1))
    }
}

/// Returns the variance of a difference of two means of runs, in terms of that of a run.
fn variance_factor(values: &RunValues) -> f64 {
    values.iter().map(|runs| 1.0 / runs.iter().flatten().count().max(1) as f64).sum()
}

/// Returns the median deviation of classes from their means, by run of a side.
fn shared_deviations<'v>(classes: impl Iterator<Item = &'v Vec<Option<Estimate>>>) -> Vec<f64> {
    let of_class = |runs: &Vec<Option<Estimate>>| {
        let known: Vec<f64> = runs.iter().flatten().map(Estimate::log).collect();
        let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
        // A single run does not differ from itself.
        (known.len() > 1).then(|| runs.iter().map(|run| run.map(|run| run.log() - mean)).collect::<Vec<_>>())
    };
    let deviations: Vec<Vec<Option<f64>>> = classes.filter_map(of_class).collect();
    let runs = deviations.iter().map(Vec::len).max().unwrap_or(0);
    let of_run = |run: usize| {
        let known: Vec<f64> = deviations.iter().filter_map(|of_class| *of_class.get(run)?).collect();
        // Of few classes, the median is that of one of them.
        if known.len() < MIN_CLASSES { 0.0 } else { median(known.into_iter()) }
    };
    (0..runs).map(of_run).collect()
}

/// The variance of a typical class, and for how many degrees of freedom it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct TypicalVariance {
    variance: f64,
    freedom: f64,
}

impl TypicalVariance {
    /// The degrees of freedom if variances do not differ by more than chance.
    const MAX_FREEDOM: f64 = 1e6;

    /// Fits a scaled inverse chi-squared distribution to variances and their degrees of freedom, by the mean and the variance of their
    /// logarithms (Smyth 2004, section 6.2).
    fn from_variances(found: &[(f64, f64)]) -> TypicalVariance {
        if found.len() < MIN_CLASSES {
            return TypicalVariance::default();
        }
        let count = found.len() as f64;
        let mean = |values: &[f64]| values.iter().sum::<f64>() / count;
        let logs: Vec<f64> = found.iter().map(|(variance, freedom)| variance.ln() - log_chi_mean(*freedom)).collect();
        let center = mean(&logs);
        let squares: Vec<f64> = logs.iter().map(|log| (log - center).powi(2)).collect();
        let spread = mean(&squares) * count / (count - 1.0);
        let by_chance: Vec<f64> = found.iter().map(|(_, freedom)| trigamma(freedom / 2.0)).collect();
        // The spread of few variances is not well known: the larger it may be, the less classes tell about each other.
        let error = 2.0 * spread / count.sqrt();
        let excess = (spread - mean(&by_chance)).max(0.0) + error;
        let freedom = (2.0 * inverse_trigamma(excess)).min(TypicalVariance::MAX_FREEDOM);
        TypicalVariance { variance: (center + log_chi_mean(freedom)).exp(), freedom }
    }
}

/// Returns the mean logarithm of a variance that so many degrees of freedom show, if the true one is 1.
fn log_chi_mean(freedom: f64) -> f64 {
    digamma(freedom / 2.0) - (freedom / 2.0).ln()
}

/// Returns the derivative of the logarithm of the gamma function, for positive numbers (Abramowitz and Stegun 6.3.18).
fn digamma(x: f64) -> f64 {
    let (x, shift) = shift_up(x, |x| -1.0 / x);
    let square = 1.0 / (x * x);
    shift + x.ln() - 0.5 / x - square * (1.0 / 12.0 - square * (1.0 / 120.0 - square / 252.0))
}

/// Returns the derivative of [`digamma`] (Abramowitz and Stegun 6.4.12).
fn trigamma(x: f64) -> f64 {
    let (x, shift) = shift_up(x, |x| 1.0 / (x * x));
    let square = 1.0 / (x * x);
    shift + 1.0 / x + 0.5 * square + square / x * (1.0 / 6.0 - square * (1.0 / 30.0 - square / 42.0))
}

/// Moves a number to where the asymptotic series are exact enough, and sums what that changes.
fn shift_up(mut x: f64, change: impl Fn(f64) -> f64) -> (f64, f64) {
    let mut sum = 0.0;
    while x < 10.0 {
        sum += change(x);
        x += 1.0;
    }
    (x, sum)
}

/// Returns the number whose [`trigamma`] this is, by bisection: it falls from infinity to 0.
fn inverse_trigamma(value: f64) -> f64 {
    let (mut low, mut high) = (1e-6f64, TypicalVariance::MAX_FREEDOM);
    for _ in 0..100 {
        let middle = (low * high).sqrt();
        if trigamma(middle) > value { low = middle } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::super::noise::{Drift, FALSE_ALARM, correct_for_number};
    use super::*;

    #[test]
    fn derivatives_of_gamma_match_tables() {
        for (x, first, second) in [(1.0, -0.577_215_664_9, 1.644_934_066_8), (0.5, -1.963_510_026_0, 4.934_802_200_5)] {
            assert!((digamma(x) - first).abs() < 1e-9 && (trigamma(x) - second).abs() < 1e-9, "{x}");
        }
        for x in [0.01, 0.7, 5.0, 300.0] {
            assert!((inverse_trigamma(trigamma(x)) / x - 1.0).abs() < 1e-6, "{x}");
        }
    }

    fn run(mean: f64) -> Option<Estimate> {
        Some(Estimate { mean, variance: 0.01, freedom: 20.0, low: mean, is_short: false })
    }

    #[test]
    fn one_class_has_the_spread_of_its_runs() {
        let near: RunValues = [vec![run(100.0), run(101.0)], vec![run(110.0), run(111.0)]];
        let far: RunValues = [vec![run(100.0), run(120.0)], vec![run(110.0), run(132.0)]];
        let [near, far] = [near, far].map(|values| RunSpread::new([&values].into_iter()).ratio(&values).unwrap());
        assert!((far.value - 1.1f64.ln()).abs() < 1e-9 && near.freedom == 2.0 && far.freedom == 2.0);
        assert!(near.probability() < 0.02 && far.probability() > 0.3, "{near:?} {far:?}");
    }

    #[test]
    fn classes_share_the_deviation_of_a_run() {
        // Twelve classes: each run has a clock of its own, and the classes differ by little beyond that.
        let clocks = [[1.0, 1.1, 0.95], [1.05, 0.9, 1.12]];
        let class = |number: u32| -> RunValues {
            clocks.map(|side| {
                let own = |at: u32| 1.0 + 0.001 * f64::from((number * 7 + at * 5) % 11);
                side.iter().zip(0..).map(|(clock, at)| run(1e6 * clock * own(at))).collect()
            })
        };
        let classes: Vec<RunValues> = (0..12).map(class).collect();
        let spread = RunSpread::new(classes.iter());
        assert!(spread.freedom == 4.0 && spread.shared_variance > 0.005, "{spread:?}");
        assert!(spread.typical.freedom > 4.0 && spread.typical.variance < 1e-4, "{spread:?}");
        let ratio = spread.ratio(&classes[0]).unwrap();
        assert!(ratio.variance < 1e-4 && ratio.freedom > 8.0, "{ratio:?}");
        assert!(spread.with_shared(ratio, &classes[0]).probability() > 0.5);
        // A run that lacks the class does not take part.
        let mut lacking = classes[0].clone();
        lacking[1][2] = None;
        assert!(spread.ratio(&lacking).unwrap().freedom < ratio.freedom);
    }

    /// A generator of pseudorandom numbers.
    struct RunNoise(u64);

    impl RunNoise {
        /// Returns a number of a distribution with the mean 0 and the deviation 1, nearly normal.
        fn normal(&mut self) -> f64 {
            let mut uniform = || {
                self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (self.0 >> 11) as f64 / (1u64 << 53) as f64
            };
            (0..12).map(|_| uniform()).sum::<f64>() - 6.0
        }
    }

    /// Compares runs of 100 classes whose deviations between runs differ, as do the speeds of runs; the first class changes by a factor. Returns in how
    /// many of 200 comparisons it is found, and in how many any other one is.
    fn compare_runs(runs: [usize; 2], speed: f64, factor: f64) -> (usize, usize) {
        let mut random = RunNoise(42);
        let (mut found, mut alarms) = (0, 0);
        for _ in 0..200 {
            let speeds = runs.map(|count| (0..count).map(|_| speed * random.normal()).collect::<Vec<_>>());
            let class = |number: u32| -> RunValues {
                let deviation = 0.01 * (0.5 * random.normal()).exp();
                std::array::from_fn(|side| {
                    let change = if side == 1 && number == 0 { factor } else { 1.0 };
                    let mean = |speed: &f64| 1e6 * change * (speed + deviation * random.normal()).exp();
                    speeds[side].iter().map(mean).map(run).collect()
                })
            };
            let classes: Vec<RunValues> = (0..100).map(class).collect();
            let spread = RunSpread::new(classes.iter());
            let ratios: Vec<_> = classes.iter().map(|values| ((), spread.ratio(values).unwrap())).collect();
            let drift = Drift::from_ratios(&ratios, 0.0).of_runs(spread.freedom);
            let left = ratios.iter().map(|(_, ratio)| ratio.without_drift(&drift));
            let probabilities = correct_for_number(&left.map(|ratio| ratio.probability()).collect::<Vec<_>>());
            let mut is_found = ratios
                .iter()
                .zip(probabilities)
                .map(|((_, ratio), probability)| 3.0 * probability < FALSE_ALARM && ratio.change().abs() >= 0.03);
            found += usize::from(is_found.next() == Some(true));
            alarms += usize::from(is_found.any(|is_found| is_found));
        }
        (found, alarms)
    }

    #[test]
    fn changes_exceed_what_runs_differ_by() {
        for (runs, speed, least) in [
            ([2, 2], 0.0, 0),
            ([3, 3], 0.03, 110),
            ([4, 4], 0.0, 150),
            ([4, 4], 0.03, 150),
            ([10, 10], 0.0, 195),
            ([10, 1], 0.03, 110),
        ] {
            let (found, alarms) = compare_runs(runs, speed, 1.1);
            // A third of a percent is less than one of 200.
            assert!(alarms < 5 && found >= least, "{runs:?} {speed}: {alarms} false alarms, {found} found");
        }
    }
}
