//! What the spread of steps and runs explains: a test of the difference of two means.
//!
//! - Times have long tails: a first step that warms up, a neighbour on the machine. So means are trimmed by a fifth on both sides, and
//!   two of them are compared by Yuen's form of Welch's test (Yuen 1974, "The two-sample trimmed t for unequal population variances").
//! - Successive steps resemble each other, so they count for fewer than they are: the variance of a mean is scaled by the sum of the
//!   autocorrelations (Newey and West 1987), as is the number of degrees of freedom.
//! - Runs differ by more than their steps show. With several runs, the spread between them decides (`runs`).
//! - Many classes are tested, and one false alarm is too many. So Holm's method bounds the probability of any (Holm 1979). It
//!   assumes nothing about how classes depend on each other; Benjamini and Hochberg's would accept some false alarms.
use crate::sorting::sort_few_by;

/// The fewest values from which a spread is estimated.
pub(super) const MIN_VALUES: usize = 4;

/// The probability of any false alarm that is accepted, for spread that the values show.
pub(super) const FALSE_ALARM: f64 = 0.01;

/// The trimmed mean of one run's values, and how well they show it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub(super) mean: f64,
    /// The variance of the mean; 0 for a single value.
    pub(super) variance: f64,
    /// The degrees of freedom of the variance.
    pub(super) freedom: f64,
    /// The tenth percentile of the values.
    pub(super) low: f64,
    /// Whether there are fewer than [`MIN_VALUES`].
    pub(super) is_short: bool,
}

impl Estimate {
    /// Estimates the mean of one run's values, in order of time. Returns `None` if there are no values.
    pub(super) fn from_values(values: &[f64]) -> Option<Estimate> {
        let count = values.len() as f64;
        let cut = values.len() / 5;
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let kept = sorted.get(cut..sorted.len() - cut)?;
        let left = kept.len() as f64;
        let (low, high) = (kept.first().copied()?, kept.last().copied()?);
        let mean = kept.iter().sum::<f64>() / left;
        // Winsorized: what is trimmed counts as the outermost value that is kept.
        let limited: Vec<f64> = values.iter().map(|value| value.clamp(low, high)).collect();
        let center = limited.iter().sum::<f64>() / count;
        let squares: f64 = limited.iter().map(|value| (value - center).powi(2)).sum();
        let scale = correlation_scale(&limited, center, squares);
        let variance = if values.len() > 1 { squares / (left * (left - 1.0)) * scale } else { 0.0 };
        // A correlation that high cannot be told from a trend.
        let freedom = if scale >= MAX_SCALE { 1.0 } else { (left / scale - 1.0).max(1.0) };
        let low = sorted.get(values.len() / 10).copied()?;
        Some(Estimate { mean, variance, freedom, low, is_short: values.len() < MIN_VALUES })
    }

    /// Estimates the means of runs. Runs with few values take no part if others have enough.
    pub(super) fn from_runs(runs: impl Iterator<Item = Vec<f64>>) -> Vec<Option<Estimate>> {
        let mut found: Vec<Option<Estimate>> = runs.map(|values| Estimate::from_values(&values)).collect();
        if found.iter().flatten().any(|run| !run.is_short) {
            found.iter_mut().for_each(|run| *run = run.filter(|run| !run.is_short));
        }
        found
    }

    /// Makes an estimate of which only the logarithm and its variance are known.
    pub(super) fn from_log(log: f64, variance: f64) -> Estimate {
        /// A mean far above 1 ns, below which `log` is 0.
        const UNIT: f64 = 1e6;

        let mean = UNIT * log.exp();
        Estimate { mean, variance: variance * mean.powi(2), freedom: f64::INFINITY, low: mean, is_short: false }
    }

    /// Returns the logarithm of the mean. Means below 1 ns count as 1 ns.
    pub(super) fn log(&self) -> f64 {
        self.mean.max(1.0).ln()
    }

    /// Returns the variance of the logarithm of the mean.
    pub(super) fn log_variance(&self) -> f64 {
        self.variance / self.mean.max(1.0).powi(2)
    }
}

/// The largest first autocorrelation; a higher one counts as this.
const MAX_CORRELATION: f64 = 0.95;

/// The scale of that correlation.
const MAX_SCALE: f64 = (1.0 + MAX_CORRELATION) / (1.0 - MAX_CORRELATION);

/// Returns by how much correlation of successive values raises the variance of their mean; at least 1.
///
/// A sum of estimated autocorrelations is too low for few values, so that of a process of first order with the same first
/// autocorrelation, corrected for its bias (Kendall 1954), is used if it is higher.
pub(super) fn correlation_scale(values: &[f64], center: f64, squares: f64) -> f64 {
    if squares <= 0.0 {
        return 1.0;
    }
    let (window, count) = (values.len().isqrt() + 1, values.len() as f64);
    let deviation = |at: usize| values.get(at).map_or(0.0, |value| value - center);
    let first = (1..values.len()).map(|at| deviation(at - 1) * deviation(at)).sum::<f64>() / squares;
    let first = (first + (1.0 + 3.0 * first.max(0.0)) / count).clamp(0.0, MAX_CORRELATION);
    // The sum of autocorrelations with Bartlett's weights is that of the squared sums of all windows of successive values.
    let (mut sum, mut of_windows) = (0.0, 0.0);
    for at in 0..values.len() + window - 1 {
        sum += deviation(at) - at.checked_sub(window).map_or(0.0, deviation);
        of_windows += sum * sum;
    }
    let of_lags = of_windows / (window as f64 * squares);
    of_lags.max((1.0 + first) / (1.0 - first))
}

/// The ratio of two means, as a logarithm, and how well it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LogRatio {
    pub(super) value: f64,
    pub(super) variance: f64,
    pub(super) freedom: f64,
    /// The logarithm of the ratio of the tenth percentiles.
    pub(super) low: f64,
}

impl LogRatio {
    /// Returns the ratio of one run a side, with the spread of its values; `None` for few values.
    pub(super) fn new(a: &Estimate, b: &Estimate) -> Option<LogRatio> {
        let parts = [(a.log_variance(), a.freedom), (b.log_variance(), b.freedom)];
        let low = (b.low.max(1.0) / a.low.max(1.0)).ln();
        let (variance, freedom) = (parts[0].0 + parts[1].0, combined_freedom(&parts));
        let ratio = LogRatio { value: b.log() - a.log(), variance, freedom, low };
        (!a.is_short && !b.is_short).then_some(ratio)
    }

    /// Returns the ratio of values that belong together, such as the same calls of two runs. Their own differences are then no spread.
    pub(super) fn from_pairs(a: &[f64], b: &[f64]) -> Option<LogRatio> {
        let ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| (b.max(1.0) / a.max(1.0)).ln()).collect();
        let ratio = Estimate::from_values(&ratios).filter(|ratio| !ratio.is_short)?;
        let low = |values: &[f64]| Estimate::from_values(values).map(|found| found.low.max(1.0));
        Some(LogRatio {
            value: ratio.mean,
            variance: ratio.variance,
            freedom: ratio.freedom,
            low: (low(b)? / low(a)?).ln(),
        })
    }

    /// Returns the ratio that is left after a drift that all classes share, with the drift's spread.
    pub(super) fn without_drift(self, drift: &Drift) -> LogRatio {
        let shared = drift.center.clamp(-Drift::MAX, Drift::MAX);
        let value = self.value - self.value.clamp(shared.min(0.0), shared.max(0.0));
        LogRatio { value, ..self.with_spread(drift.variance, drift.freedom) }
    }

    /// Returns the ratio with an additional variance.
    pub(super) fn with_spread(self, variance: f64, freedom: f64) -> LogRatio {
        let parts = [(self.variance, self.freedom), (variance, freedom)];
        LogRatio { variance: self.variance + variance, freedom: combined_freedom(&parts), ..self }
    }

    /// Returns the relative change.
    pub(super) fn change(&self) -> f64 {
        self.value.exp() - 1.0
    }

    /// Returns whether the fastest values changed in the same direction, and at least half as much.
    ///
    /// Neighbours on a machine slow down some values, but hardly the fastest; a program that is slower always is.
    pub(super) fn is_of_all_values(&self) -> bool {
        self.low * self.value >= 0.5 * self.value * self.value
    }

    /// Returns the probability of such a ratio if both means are equal.
    pub(super) fn probability(&self) -> f64 {
        if self.variance <= 0.0 {
            return if self.value == 0.0 { 1.0 } else { 0.0 };
        }
        student_tails(self.value.abs() / self.variance.sqrt(), self.freedom)
    }
}

/// Returns the degrees of freedom of a sum of variances (Welch 1947, Satterthwaite 1946).
fn combined_freedom(parts: &[(f64, f64); 2]) -> f64 {
    let sum: f64 = parts.iter().map(|(variance, _)| variance).sum();
    let squares: f64 = parts.iter().map(|(variance, freedom)| variance.powi(2) / freedom.max(1.0)).sum();
    if squares > 0.0 { (sum.powi(2) / squares).max(1.0) } else { f64::INFINITY }
}

/// The deviation of the ratio of two runs that is expected on the host, whatever their steps show: layout of memory and code, for
/// example (Mytkowicz et al. 2009, "Producing wrong data without doing anything obviously wrong").
pub(super) const HOST_RUN_DEVIATION: f64 = 0.01;

/// The same for devices.
pub(super) const DEVICE_RUN_DEVIATION: f64 = 0.005;

/// What all classes of one place share: one run was slower as a whole, by its clocks or by the load of its machine.
///
/// One run a side does not show how runs differ, but the classes do: if the median class changed, or if classes scatter more than
/// their steps explain, then runs differ so much without a cause in any class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Drift {
    /// The median logarithm of the ratios.
    pub(super) center: f64,
    /// The variance between classes that their own spread does not explain.
    pub(super) variance: f64,
    freedom: f64,
    /// Whether classes scatter more than a drift may.
    pub(super) is_wide: bool,
}

impl Drift {
    /// The largest drift that is no change, as a logarithm: a factor of 1.5. More is no clock, and no neighbour that leaves the fastest
    /// values slow.
    const MAX: f64 = 0.405;

    /// The fewest classes that show a drift.
    const MIN_CLASSES: usize = 4;

    /// Returns the drift that ratios of classes of several kinds show, with at least an expected deviation between runs.
    ///
    /// The kind that scatters most decides: calls, for example, may scatter less than operations.
    pub(super) fn from_ratios<K: Copy + Eq>(ratios: &[(K, LogRatio)], expected: f64) -> Drift {
        /// The factor from the median absolute deviation to the standard deviation of a normal distribution.
        const TO_DEVIATION: f64 = 1.4826;

        /// The largest deviation between runs that is not a change of many classes.
        const MAX_SCATTER: f64 = 0.1;
        /// The degrees of freedom of that deviation, for each class (Rousseeuw and Croux 1993: its efficiency is 37 %).
        const EFFICIENCY: f64 = 0.37;

        let floor = Drift { center: 0.0, variance: expected.powi(2), freedom: f64::INFINITY, is_wide: false };
        if ratios.len() < Drift::MIN_CLASSES {
            return floor;
        }
        let center = median(ratios.iter().map(|(_, ratio)| ratio.value));
        let floor = Drift { center, ..floor };
        let scatter = |kind: K| {
            let of_kind = || ratios.iter().filter(|(of, _)| *of == kind).map(|(_, ratio)| ratio);
            let deviation = TO_DEVIATION * median(of_kind().map(|ratio| (ratio.value - center).abs()));
            let explained = median(of_kind().map(|ratio| ratio.variance));
            (deviation.powi(2) - explained, of_kind().count())
        };
        let all = ratios.iter().map(|(kind, _)| scatter(*kind)).filter(|(_, count)| *count >= Drift::MIN_CLASSES);
        let widest = all.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(variance, _)| *variance > floor.variance);
        widest.map_or(floor, |(variance, count)| match MAX_SCATTER.powi(2) {
            most if variance > most => Drift { variance: most, is_wide: true, ..floor },
            _ => Drift { variance, freedom: EFFICIENCY * (count - 1) as f64, ..floor },
        })
    }

    /// Returns the relative change that all share, in percent.
    pub(super) fn change_percent(&self) -> f64 {
        (self.center.exp() - 1.0) * 100.0
    }

    /// Returns the drift of several runs: classes that differ do not make its variance better known than the number of runs does.
    pub(super) fn of_runs(self, freedom: f64) -> Drift {
        if freedom < 1.0 { self } else { Drift { freedom: self.freedom.min(freedom), ..self } }
    }

    /// Returns a drift that covers both.
    pub(super) fn covering(self, other: Drift) -> Drift {
        let (wide, near) = if self.variance >= other.variance { (self, other) } else { (other, self) };
        let center = if wide.center.abs() >= near.center.abs() { wide.center } else { near.center };
        Drift { center, ..wide }
    }
}

/// Returns the median; of two values in the middle the one nearer to 0.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = |at: usize| sorted.get(at).copied().unwrap_or(0.0);
    let half = sorted.len() / 2;
    let (low, high) = (middle(sorted.len().saturating_sub(1) / 2), middle(half));
    if low.abs() < high.abs() { low } else { high }
}

/// Returns the probabilities corrected for their number by Holm's method, in the same order.
pub(super) fn correct_for_number(probabilities: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    let probability = |at: usize| probabilities.get(at).copied().unwrap_or(1.0);
    sort_few_by(&mut order, |a, b| probability(*a).total_cmp(&probability(*b)));
    let mut corrected = vec![1.0; probabilities.len()];
    let mut highest = 0.0f64;
    for (rank, at) in order.iter().enumerate() {
        highest = highest.max((probability(*at) * (probabilities.len() - rank) as f64).min(1.0));
        corrected.get_mut(*at).into_iter().for_each(|slot| *slot = highest);
    }
    corrected
}

/// Returns the probability of a value of Student's distribution that is further from 0 than `t`.
fn student_tails(t: f64, freedom: f64) -> f64 {
    if t.is_nan() {
        return 1.0;
    }
    // With more, the distribution is the normal one up to what matters here.
    let freedom = freedom.min(1e6);
    incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + t * t))
}

/// Returns the regularized incomplete beta function, by its continued fraction (Lentz's method).
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return if x <= 0.0 { 0.0 } else { 1.0 };
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp();
    // The fraction converges fast below the mean; above, the symmetric one does.
    if x < (a + 1.0) / (a + b + 2.0) {
        front * beta_fraction(a, b, x) / a
    } else {
        1.0 - front * beta_fraction(b, a, 1.0 - x) / b
    }
}

fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    const TERMS: u32 = 10_000;
    const TINY: f64 = 1e-300;

    let avoid_zero = |value: f64| if value.abs() < TINY { TINY } else { value };
    let (mut c, mut d) = (1.0, 1.0 / avoid_zero(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    for term in 1..TERMS {
        let m = f64::from(term);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut step = 1.0;
        for factor in [even, odd] {
            d = 1.0 / avoid_zero(1.0 + factor * d);
            c = avoid_zero(1.0 + factor / c);
            step = d * c;
            fraction *= step;
        }
        if (step - 1.0).abs() < 1e-14 {
            break;
        }
    }
    fraction
}

/// Returns the logarithm of the gamma function of a positive number (Lanczos 1964, as in Numerical Recipes).
pub(super) fn ln_gamma(x: f64) -> f64 {
    const TERMS: [f64; 6] = [
        76.180_091_729_471_46,
        -86.505_320_329_416_77,
        24.014_098_240_830_91,
        -1.231_739_572_450_155,
        0.120_865_097_386_617_9e-2,
        -0.539_523_938_495_3e-5,
    ];

    let shifted = x + 5.5;
    let sum = TERMS.iter().zip(1u32..).fold(1.000_000_000_190_015, |sum, (term, n)| sum + term / (x + f64::from(n)));
    (x + 0.5) * shifted.ln() - shifted + (2.506_628_274_631_000_5 * sum / x).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn student_tails_match_tables() {
        // Two-sided quantiles of tables.
        for (t, freedom, expected) in
            [(12.706, 1.0, 0.05), (2.776, 4.0, 0.05), (2.576, 1e9, 0.01), (3.169, 10.0, 0.01), (0.0, 5.0, 1.0)]
        {
            let found = student_tails(t, freedom);
            assert!((found - expected).abs() < 2e-4, "{t} {freedom}: {found}");
        }
        assert!(student_tails(40.0, 30.0) < 1e-20 && student_tails(40.0, 30.0) > 0.0);
    }

    #[test]
    fn holm_corrects_for_the_number() {
        assert_eq!(correct_for_number(&[0.01, 0.5, 0.02]), [0.03, 0.5, 0.04]);
        assert_eq!(correct_for_number(&[0.9, 0.001, 0.9]), [1.0, 0.003, 1.0]);
        assert!(correct_for_number(&[]).is_empty());
    }

    #[test]
    fn outliers_and_trends_do_not_count_as_precise() {
        let values = [100.0, 101.0, 99.0, 100.0, 102.0, 98.0, 100.0, 101.0, 99.0, 1e6];
        let found = Estimate::from_values(&values).unwrap();
        assert!((found.mean - 100.3).abs() < 0.5, "{found:?}");
        let alternating: Vec<f64> = (0..64).map(|n| f64::from(100 + n % 2)).collect();
        let trend: Vec<f64> = (0..64).map(|n| f64::from(100 + n / 32)).collect();
        let (alternating, trend) =
            (Estimate::from_values(&alternating).unwrap(), Estimate::from_values(&trend).unwrap());
        assert!(trend.variance > 5.0 * alternating.variance && trend.freedom < alternating.freedom, "{trend:?}");
        assert_eq!(Estimate::from_values(&[1.0; 3]).map(|found| found.is_short), Some(true));
        assert_eq!(Estimate::from_values(&[5.0; 4]).map(|found| (found.mean, found.variance)), Some((5.0, 0.0)));
    }

    #[test]
    fn pairs_show_a_change_that_sizes_hide() {
        let a: Vec<f64> = (1..=40).map(|size| f64::from(size * size) * 1000.0).collect();
        let b: Vec<f64> = a.iter().zip(0..).map(|(ns, at)| ns * (1.05 + 0.001 * f64::from(at % 3))).collect();
        let (paired, whole) =
            (LogRatio::from_pairs(&a, &b).unwrap(), [&a, &b].map(|values| Estimate::from_values(values).unwrap()));
        assert!(
            paired.probability() < 1e-9 && (paired.change() - 0.051).abs() < 1e-3 && paired.is_of_all_values(),
            "{paired:?}"
        );
        assert!(LogRatio::new(&whole[0], &whole[1]).unwrap().probability() > 0.1);
    }

    #[test]
    fn short_runs_count_only_without_others() {
        let runs = |lengths: &[usize]| {
            let runs = lengths.iter().map(|length| (0..*length).map(|n| 100.0 + n as f64).collect());
            Estimate::from_runs(runs).iter().map(Option::is_some).collect::<Vec<_>>()
        };
        assert_eq!(runs(&[9, 3, 0, 8]), [true, false, false, true]);
        assert_eq!(runs(&[3, 0, 1]), [true, false, true]);
    }

    #[test]
    fn windows_sum_autocorrelations_with_weights() {
        // Blocks of ten alike values, and noise: the sum of autocorrelations is larger than the first one tells.
        let mut state = 7u32;
        let mut uniform = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(state >> 16) / 65_536.0
        };
        let blocks: Vec<f64> = (0..20).map(|_| uniform()).collect();
        let values: Vec<f64> = (0..200).map(|at| blocks[at / 10] + 1.5 * uniform()).collect();
        let center = values.iter().sum::<f64>() / 200.0;
        let squares: f64 = values.iter().map(|value| (value - center).powi(2)).sum();
        let of_lag = |lag: usize| {
            values.iter().zip(&values[lag..]).map(|(a, b)| (a - center) * (b - center)).sum::<f64>() / squares
        };
        let expected: f64 = 1.0 + 2.0 * (1..=14usize).map(|lag| (1.0 - lag as f64 / 15.0) * of_lag(lag)).sum::<f64>();
        let found = correlation_scale(&values, center, squares);
        assert!(expected > 1.5 && (found / expected - 1.0).abs() < 1e-12, "{found} {expected}");
    }

    #[test]
    fn trends_have_one_degree_of_freedom() {
        let trend: Vec<f64> = (0..1000).map(|n| 1000.0 + f64::from(n)).collect();
        assert_eq!(Estimate::from_values(&trend).unwrap().freedom, 1.0);
    }

    #[test]
    fn common_change_is_drift() {
        let ratio = |value: f64| LogRatio { value, variance: 1e-6, freedom: 20.0, low: value };
        let of_kind = |value: f64| ((), ratio(value));
        let drift = Drift::from_ratios(&[0.099, 0.1, 0.101, 0.1, 0.3].map(of_kind), 0.01);
        assert!((drift.center - 0.1).abs() < 1e-9, "{drift:?}");
        assert_eq!(ratio(0.1).without_drift(&drift).value, 0.0);
        assert!((ratio(0.3).without_drift(&drift).value - 0.2).abs() < 1e-9);
        let few = Drift::from_ratios(&[0.1, 0.1].map(of_kind), 0.01);
        assert_eq!((few.center, few.variance), (0.0, 1e-4));
    }
}
