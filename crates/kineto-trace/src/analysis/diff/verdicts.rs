//! Decides for each class, and for the total, what its change is.

use super::matching::{ClassPair, match_classes};
use super::noise::{
    DEVICE_RUN_DEVIATION, Drift, Estimate, FALSE_ALARM, HOST_RUN_DEVIATION, LogRatio, MIN_VALUES, correct_for_number,
};
use super::profile::ClassKind;
use super::runs::{RunSpread, RunValues};
use super::sides::{MergedSide, SideClass, occurring_share, step_counts, to_shares};
use super::slow::SlowSteps;
use super::totals::divide_totals;
use super::{ChangeVerdict, ClassChange, ClassMove, ClassSide, Diff, DiffTotal, DiffUnit, MatchReason};
use crate::analysis::events::TrackId;
use crate::analysis::summary::CallRole;
use crate::hash::{HashMap, HashSet};
use crate::sorting::{sort_few, sort_few_by, sort_few_by_key};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The share of events or time that must be elsewhere for a class to have moved.
const MIN_MOVED: f64 = 0.25;

/// The change of an event's time that the clock and the cost of recording may cause, in nanoseconds: on the host, on devices.
const RESOLUTION_NS: [f64; 2] = [350.0, 10.0];

/// Compares two sides.
pub(super) fn compare_sides(a: &MergedSide<'_>, b: &MergedSide<'_>, threshold_percent: f64) -> Diff {
    let has_steps = a.has_steps() && b.has_steps();
    let pairs = match_classes(a, b);
    let names = [a, b].map(|side| side.classes.iter().map(|class| class.name).collect());
    // Short traces among longer ones show nothing.
    let usable_runs = |side: &MergedSide<'_>| side.estimate_total(has_steps).iter().flatten().count();
    let has_enough_runs = usable_runs(a).min(usable_runs(b)) >= MIN_VALUES;
    let limits = Limits { threshold_percent, has_enough_runs };
    let comparison = Comparison { a, b, has_steps, limits, renamed: match_streams(a, b), names };
    let values: Vec<ClassValues> = pairs.iter().map(|pair| comparison.class_values(pair)).collect();
    let (ratios, [of_host, of_devices]) = comparison.ratios(&pairs, &values);
    let total = RatioTest {
        place: 0,
        ratio: comparison.total_ratio(of_host.covering(of_devices)),
        slow: comparison.slow_steps_of_total(),
    };
    let tests = pairs.iter().zip(ratios).zip(comparison.slow_steps(&pairs));
    let tests: Vec<_> =
        tests.map(|((pair, ratio), slow)| RatioTest { place: comparison.place(pair), ratio, slow }).collect();
    let (mut results, mut total_result) = test_all(&tests, &total, limits);
    comparison.demote_doubtful(&pairs, &mut results, of_host, of_devices);

    let class_change = |((pair, result), values)| comparison.class_change(pair, result, values);
    let mut classes: Vec<ClassChange> = pairs.iter().zip(&results).zip(&values).map(class_change).collect();
    comparison.doubt_total(&classes, &mut total_result);
    let (means, parts) = divide_totals((a, b), &pairs, &classes, has_steps);
    let change_ns = |change: &ClassChange| Reverse(change.change_ns().unsigned_abs());
    sort_few_by(&mut classes, |a, b| {
        let key = |change: &ClassChange| (!change.verdict.is_change(), change_ns(change));
        key(a).cmp(&key(b)).then_with(|| (a.name(), a.kind).cmp(&(b.name(), b.kind)))
    });
    Diff {
        threshold_percent,
        unit: if has_steps { DiffUnit::Step } else { DiffUnit::Trace },
        a: a.summary(),
        b: b.summary(),
        total: total_result.into_total(means, total.slow, limits),
        parts,
        classes,
        host_drift_percent: of_host.change_percent(),
        device_drift_percent: of_devices.change_percent(),
        has_enough_runs,
        side_without_steps: (a.has_steps() != b.has_steps()).then_some(if a.has_steps() { "B" } else { "A" }),
    }
}

/// From which change on, and with how many runs, a change is reported.
#[derive(Clone, Copy, Debug)]
struct Limits {
    threshold_percent: f64,
    /// Whether both sides have enough runs to show how runs differ.
    has_enough_runs: bool,
}

impl Limits {
    /// Returns whether a relative change in percent reaches the threshold. No change does not.
    fn are_reached(self, percent: f64) -> bool {
        percent.abs() >= self.threshold_percent && percent != 0.0
    }

    /// Returns whether the ratio of two times does.
    fn are_reached_by(self, ratio: &LogRatio) -> bool {
        self.are_reached(ratio.change() * 100.0)
    }

    /// Returns whether the change from one time to another does.
    fn are_reached_between(self, a_ns: u64, b_ns: u64) -> bool {
        self.are_reached(a_ns.abs_diff(b_ns) as f64 * 100.0 / a_ns.max(1) as f64)
    }
}

/// The change of a class or the total: what is tested.
#[derive(Clone, Copy, Debug, Default)]
struct RatioTest {
    /// 0 for the host, 1 for devices.
    place: usize,
    ratio: Option<TestedRatio>,
    slow: Option<SlowSteps>,
}

/// A ratio with several kinds of spread.
#[derive(Clone, Copy, Debug)]
struct TestedRatio {
    /// With its own spread.
    own: LogRatio,
    /// Without the drift of its place.
    beyond_drift: Option<LogRatio>,
    /// With its own spread and the one that all classes of a run share, if there are enough runs to show it.
    with_shared: Option<LogRatio>,
}

/// The result of a test; nothing if there are too few values.
#[derive(Clone, Debug, Default)]
struct TestResult {
    verdict: Option<ChangeVerdict>,
    change_percent: Option<f64>,
    probability: Option<f64>,
    /// The share of slow steps, if it decided.
    slow: Option<SlowSteps>,
    /// Whether steps show the change, but runs do not.
    needs_runs: bool,
}

impl TestResult {
    /// Counts a change as drift.
    fn demote_to_drift(&mut self) {
        if self.verdict.is_some_and(ChangeVerdict::is_change) {
            self.verdict = Some(ChangeVerdict::Drift);
        }
    }

    /// Returns the result of the total.
    fn into_total(self, [a_ns, b_ns]: [u64; 2], slow: Option<SlowSteps>, limits: Limits) -> DiffTotal {
        let is_slow = |slow: &SlowSteps| self.slow.is_some() || is_untrimmed(&self, slow, limits);
        let is_changed = limits.are_reached_between(a_ns, b_ns);
        DiffTotal {
            a_ns,
            b_ns,
            verdict: self.verdict.unwrap_or(if is_changed { ChangeVerdict::TooFew } else { ChangeVerdict::Same }),
            slow_steps: slow.filter(is_slow).map(|slow| slow.shares),
            change_percent: self.change_percent,
            probability: self.probability,
        }
    }
}

/// Returns whether the mean changed by at least the threshold, and the trimmed mean, if it is known, by less than half as much.
fn is_untrimmed(result: &TestResult, slow: &SlowSteps, limits: Limits) -> bool {
    let ([a, b], [share_a, share_b]) = (slow.means, slow.shares);
    let mean = (b - a) * 100.0 / a.max(1.0);
    let is_reached = limits.are_reached(mean) && share_a != share_b;
    result.change_percent.is_some_and(|trimmed| is_reached && trimmed * mean < 0.5 * mean * mean)
}

/// Tests all classes, and the total.
fn test_all(tests: &[RatioTest], total: &RatioTest, limits: Limits) -> (Vec<TestResult>, TestResult) {
    let decide = |tests: &[RatioTest]| {
        let results = tests.iter().zip(correct_tests(tests));
        results.map(|(test, probabilities)| test.decide(probabilities, limits)).collect::<Vec<_>>()
    };
    (decide(tests), decide(std::slice::from_ref(total)).pop().unwrap_or_default())
}

/// The probabilities of the tests of one class, corrected for the number of all tests.
#[derive(Clone, Copy, Debug, Default)]
struct Probabilities {
    beyond_drift: f64,
    with_shared: f64,
    slow_by_runs: f64,
    /// Decides only what may be a change that more runs would show.
    slow_by_steps: f64,
    /// Of its own spread: decides only what counts as drift.
    own: f64,
}

/// A third of the false alarms that are accepted is for means of classes, one for their slow steps, and one for the total.
const FAMILIES: f64 = 3.0;

/// Corrects the probabilities of all tests for their number. The host and devices have equal parts of the false alarms that are accepted: the host has
/// many more classes, which would hide changes of kernels.
fn correct_tests(tests: &[RatioTest]) -> Vec<Probabilities> {
    let of_ratios = |ratio: fn(&TestedRatio) -> Option<LogRatio>| -> Vec<Option<f64>> {
        tests.iter().map(|test| Some(ratio(test.ratio.as_ref()?)?.probability())).collect()
    };
    let of_slow = |probability: fn(&SlowSteps) -> Option<f64>| -> Vec<Option<f64>> {
        tests.iter().map(|test| probability(test.slow.as_ref()?)).collect()
    };
    let places: Vec<usize> = tests.iter().map(|test| test.place).collect();
    let own = correct_known(&of_ratios(|ratio| Some(ratio.own)), &[]);
    let means = [of_ratios(|ratio| ratio.beyond_drift), of_ratios(|ratio| ratio.with_shared)].concat();
    let means = correct_known(&means, &[places.as_slice(), &places].concat());
    let [by_runs, by_steps] = [of_slow(|slow| slow.by_runs), of_slow(|slow| slow.by_steps)]
        .map(|probabilities| correct_known(&probabilities, &places));
    let in_family = |corrected: &[f64], at: usize| corrected.get(at).map_or(1.0, |found| (FAMILIES * found).min(1.0));
    let of_test = |at: usize| Probabilities {
        beyond_drift: in_family(&means, at),
        with_shared: in_family(&means, at + tests.len()),
        slow_by_runs: in_family(&by_runs, at),
        slow_by_steps: in_family(&by_steps, at),
        own: own.get(at).copied().unwrap_or(1.0),
    };
    (0..tests.len()).map(of_test).collect()
}

/// Corrects the known probabilities for their number; others are 1. Each group has an equal part of the false alarms.
fn correct_known(probabilities: &[Option<f64>], groups: &[usize]) -> Vec<f64> {
    let mut by_group: BTreeMap<usize, Vec<(usize, f64)>> = BTreeMap::new();
    for (at, probability) in probabilities.iter().enumerate() {
        let group = groups.get(at).copied().unwrap_or(0);
        by_group.entry(group).or_default().extend(probability.map(|probability| (at, probability)));
    }
    by_group.retain(|_, known| !known.is_empty());
    let mut all = vec![1.0; probabilities.len()];
    for known in by_group.values() {
        let corrected = correct_for_number(&known.iter().map(|(_, probability)| *probability).collect::<Vec<_>>());
        for ((at, _), probability) in known.iter().zip(corrected) {
            let probability = f64::min(probability * by_group.len() as f64, 1.0);
            all.get_mut(*at).into_iter().for_each(|slot| *slot = probability);
        }
    }
    all
}

impl RatioTest {
    /// Decides by the trimmed means; if they do not show a change, by the share of slow steps.
    fn decide(&self, probabilities: Probabilities, limits: Limits) -> TestResult {
        let result = self.ratio.map_or_else(TestResult::default, |ratio| ratio.decide(probabilities, limits));
        let Some(slow) = self.slow else { return result };
        let change = slow.change().map(|change| change * 100.0).filter(|change| limits.are_reached(*change));
        let is_decided = result.verdict == Some(ChangeVerdict::Drift)
            || result.verdict.is_some_and(|verdict| verdict.is_change() && !is_untrimmed(&result, &slow, limits));
        let Some(change) = change.filter(|_| !is_decided) else { return result };
        let is_shown = probabilities.slow_by_runs < FALSE_ALARM;
        // With few runs, a change that only steps show is kept, and marked.
        if !is_shown && (limits.has_enough_runs || probabilities.slow_by_steps >= FALSE_ALARM) {
            return result;
        }
        TestResult {
            verdict: Some(direction(change)),
            change_percent: Some(change),
            probability: Some(if is_shown { probabilities.slow_by_runs } else { probabilities.slow_by_steps }),
            slow: Some(slow),
            needs_runs: !is_shown,
        }
    }
}

impl TestedRatio {
    /// Decides what a change is: real if it exceeds the drift of its place, or what runs differ by.
    fn decide(&self, probabilities: Probabilities, limits: Limits) -> TestResult {
        let exceeds_drift = self.beyond_drift.is_some_and(|ratio| limits.are_reached_by(&ratio));
        let is_explained = self.beyond_drift.is_some() && !exceeds_drift;
        let Probabilities { beyond_drift, with_shared, own, .. } = probabilities;
        let verdict = match () {
            () if !limits.are_reached_by(&self.own) => ChangeVerdict::Same,
            // Several runs show how neighbours slow down some values as their spread.
            () if !limits.has_enough_runs && !self.own.is_of_all_values() => ChangeVerdict::Noise,
            () if with_shared < FALSE_ALARM || (exceeds_drift && beyond_drift < FALSE_ALARM) => {
                direction(self.own.value)
            }
            // With enough runs, a change that the drift does not explain is what runs differ by.
            () if own < FALSE_ALARM && (!limits.has_enough_runs || is_explained) => ChangeVerdict::Drift,
            () => ChangeVerdict::Noise,
        };
        TestResult {
            verdict: Some(verdict),
            change_percent: Some(self.own.change() * 100.0),
            probability: Some(beyond_drift.min(with_shared)),
            ..TestResult::default()
        }
    }
}

fn direction(change: f64) -> ChangeVerdict {
    if change > 0.0 { ChangeVerdict::Slower } else { ChangeVerdict::Faster }
}

/// The share of steps in which a class must occur for its absence on the other side, and its typical time, to count.
const MOST_STEPS: f64 = 0.5;

/// The times of both sides of a class.
#[derive(Clone, Debug, Default)]
struct ClassValues {
    runs: RunValues,
    /// The share of steps in which it occurs, on both sides, if the times are of these and it occurs in most.
    shares: Option<[f64; 2]>,
    /// The ratio of events that belong together, if both traces have the same number of them.
    paired: Option<LogRatio>,
}

impl ClassValues {
    /// Returns the mean of the steps of a side in which it occurs, times their share.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a conversion to u64 saturates")]
    fn typical_ns(&self, side: usize) -> Option<u64> {
        let share = *self.shares?.get(side)?;
        let means: Vec<f64> = self.runs.get(side)?.iter().flatten().map(|run| run.mean).collect();
        let mean = means.iter().sum::<f64>() / means.len() as f64;
        (!means.is_empty()).then(|| (mean * share).round() as u64)
    }
}

/// Two sides that are compared.
struct Comparison<'c, 'p> {
    a: &'c MergedSide<'p>,
    b: &'c MergedSide<'p>,
    has_steps: bool,
    limits: Limits,
    /// The streams of the first side that have another number on the second.
    renamed: HashMap<Stream, Stream>,
    /// The names of the classes of both sides.
    names: [HashSet<&'p str>; 2],
}

/// A device and a stream.
type Stream = (TrackId, TrackId);

/// Matches streams that only one side has, in order of their time: they are the same with other numbers.
fn match_streams(a: &MergedSide<'_>, b: &MergedSide<'_>) -> HashMap<Stream, Stream> {
    let (all_a, all_b) = (a.stream_times(None), b.stream_times(None));
    let only = |own: &HashMap<&Stream, u64>, other: &HashMap<&Stream, u64>| {
        let mut only: Vec<_> = own.iter().filter(|(stream, _)| !other.contains_key(*stream)).collect();
        sort_few_by_key(&mut only, |(stream, ns)| (Reverse(**ns), **stream));
        only.into_iter().map(|(stream, _)| (*stream).clone()).collect::<Vec<_>>()
    };
    only(&all_a, &all_b).into_iter().zip(only(&all_b, &all_a)).collect()
}

impl<'p> Comparison<'_, 'p> {
    /// Returns the first class of each side of a pair, that of the second side first.
    fn first_classes(&self, pair: &ClassPair) -> impl Iterator<Item = &SideClass<'p>> {
        let sides = [(self.b, &pair.b), (self.a, &pair.a)];
        sides.into_iter().filter_map(|(side, list)| side.classes.get(*list.first()? as usize))
    }

    fn kind(&self, pair: &ClassPair) -> ClassKind {
        self.first_classes(pair).next().map_or(ClassKind::Operation, |class| class.kind)
    }

    /// Returns whether it is a call that waits for a device.
    fn is_wait(&self, pair: &ClassPair) -> bool {
        self.kind(pair) == ClassKind::Call && self.first_classes(pair).any(|class| CallRole::is_wait(class.name))
    }

    /// Returns 0 for the host, 1 for devices.
    fn place(&self, pair: &ClassPair) -> usize {
        usize::from(self.kind(pair).is_on_device())
    }

    /// Counts changes as drift that few runs cannot distinguish from the machine's load: waits for a device whose work or host drifted, and
    /// the host's classes if they scatter widely.
    fn demote_doubtful(&self, pairs: &[ClassPair], results: &mut [TestResult], host: Drift, devices: Drift) {
        // A wait ends with the device's work, and begins when the host is done.
        let has_drift = [host, devices].iter().any(|drift| self.limits.are_reached(drift.change_percent()));
        let is_doubtful = |pair: &ClassPair| {
            (has_drift && self.is_wait(pair)) || (host.is_wide && self.kind(pair) != ClassKind::Work)
        };
        if !self.limits.has_enough_runs {
            let doubtful = pairs.iter().zip(results).filter(|(pair, _)| is_doubtful(pair));
            doubtful.for_each(|(_, result)| {
                result.demote_to_drift();
                result.slow = None;
            });
        }
    }

    /// Counts a change of the total as drift if there are few runs and no work of a device explains it.
    fn doubt_total(&self, classes: &[ClassChange], total: &mut TestResult) {
        use ChangeVerdict as V;
        let is_slower = total.change_percent.is_some_and(|percent| percent > 0.0);
        let reasons = if is_slower { [V::Slower, V::New] } else { [V::Faster, V::Gone] };
        let explains = |change: &ClassChange| {
            change.kind == ClassKind::Work && !change.needs_runs && reasons.contains(&change.verdict)
        };
        if !self.limits.has_enough_runs && !classes.iter().any(explains) {
            total.demote_to_drift();
        }
    }

    /// Returns the times of both sides of a pair, by run: of steps, or of events.
    fn class_values(&self, pair: &ClassPair) -> ClassValues {
        let none = ClassValues::default();
        if pair.a.is_empty() || pair.b.is_empty() {
            return none;
        }
        let series = [self.a.step_series(&pair.a), self.b.step_series(&pair.b)];
        let shares = series.each_ref().map(|runs| occurring_share(runs));
        if self.has_steps && shares.iter().any(|share| *share > 0.0) {
            // Steps without it count with their share, by `SlowSteps`: as a time of 0 they would hide a change.
            let runs = series.map(|runs| Estimate::from_runs(runs.iter().map(|run| run.times().collect())));
            let is_frequent = shares.iter().any(|share| *share >= MOST_STEPS);
            return ClassValues { runs, shares: Some(shares).filter(|_| is_frequent), ..none };
        }
        if let (Some((number_a, a)), Some((number_b, b))) =
            (self.a.event_sequence(&pair.a), self.b.event_sequence(&pair.b))
            && number_a == number_b
        {
            return ClassValues { paired: LogRatio::from_pairs(&a, &b), ..none };
        }
        ClassValues { runs: [self.a.estimate_occurrences(&pair.a), self.b.estimate_occurrences(&pair.b)], ..none }
    }

    /// Returns the ratios of all pairs, and the drift of the host and of devices.
    fn ratios(&self, pairs: &[ClassPair], values: &[ClassValues]) -> (Vec<Option<TestedRatio>>, [Drift; 2]) {
        let mut ratios = vec![None; pairs.len()];
        let drifts = [(0, HOST_RUN_DEVIATION), (1, DEVICE_RUN_DEVIATION)].map(|(place, expected)| {
            let of_place = || pairs.iter().zip(values).enumerate().filter(|(_, (pair, _))| self.place(pair) == place);
            // An annotation on a device contains the work.
            let is_exclusive = |pair: &ClassPair| self.kind(pair) != ClassKind::DeviceAnnotation;
            let exclusive = of_place().filter(|(_, (pair, _))| is_exclusive(pair));
            let spread = RunSpread::new(exclusive.map(|(_, (_, values))| &values.runs));
            let own: Vec<_> = of_place()
                .filter_map(|(at, (pair, values))| {
                    Some((at, self.kind(pair), values.paired.or_else(|| spread.ratio(&values.runs))?, values))
                })
                .collect();
            let exclusive = own.iter().filter(|(_, kind, ..)| *kind != ClassKind::DeviceAnnotation);
            let exclusive: Vec<_> = exclusive.map(|(_, kind, ratio, _)| (*kind, *ratio)).collect();
            let drift =
                Drift::from_ratios(&exclusive, expected * self.variance_factor().sqrt()).of_runs(spread.freedom);
            // Where nothing drifted, both tests show the same: one costs less power.
            let has_drift = self.limits.are_reached(drift.change_percent());
            // Enough runs may contain too few with classes of this place.
            let has_freedom = spread.freedom >= 2.0 * (MIN_VALUES - 1) as f64;
            let shows_shared = self.limits.has_enough_runs && has_drift && has_freedom;
            for (at, _, own, values) in own {
                let with_shared = shows_shared.then(|| spread.with_shared(own, &values.runs));
                let tested = TestedRatio { own, beyond_drift: Some(own.without_drift(&drift)), with_shared };
                ratios.get_mut(at).into_iter().for_each(|ratio| *ratio = Some(tested));
            }
            drift
        });
        (ratios, drifts)
    }

    /// Returns the ratio of the mean steps or traces. Enough runs show how it differs; of few runs, the drift does.
    fn total_ratio(&self, drift: Drift) -> Option<TestedRatio> {
        let values = [self.a, self.b].map(|side| side.estimate_total(self.has_steps));
        let own = RunSpread::new([&values].into_iter()).ratio(&values)?;
        let has_enough_runs = self.limits.has_enough_runs;
        Some(TestedRatio {
            own,
            beyond_drift: (!has_enough_runs).then(|| own.without_drift(&drift)),
            with_shared: has_enough_runs.then_some(own),
        })
    }

    /// Returns the variance of a difference of two sides, in terms of that of two runs.
    fn variance_factor(&self) -> f64 {
        [self.a, self.b].iter().map(|side| 0.5 / side.runs().max(1) as f64).sum()
    }

    /// Compares the shares of slow steps of all pairs. Few runs cannot distinguish slow steps of the host from the machine's load.
    fn slow_steps(&self, pairs: &[ClassPair]) -> Vec<Option<SlowSteps>> {
        let mut found = vec![None; pairs.len()];
        for place in [0, 1] {
            let is_tested = |pair: &ClassPair| {
                let is_known = self.limits.has_enough_runs || self.kind(pair) == ClassKind::Work;
                self.has_steps && is_known && self.place(pair) == place
            };
            let series = |pair: &ClassPair| [self.a.step_series(&pair.a), self.b.step_series(&pair.b)];
            let of_place = SlowSteps::compare(pairs.iter().map(|pair| is_tested(pair).then(|| series(pair))));
            found.iter_mut().zip(of_place).for_each(|(slot, slow)| *slot = slot.or(slow));
        }
        found
    }

    /// Compares the shares of slow steps themselves.
    fn slow_steps_of_total(&self) -> Option<SlowSteps> {
        let lengths = self.has_steps.then(|| [self.a.step_lengths(), self.b.step_lengths()]);
        SlowSteps::compare([lengths].into_iter()).pop()?
    }

    fn class_change(&self, pair: &ClassPair, test: &TestResult, values: &ClassValues) -> ClassChange {
        // Trimmed means hide slow steps.
        let typical = |side| values.typical_ns(side).filter(|_| test.slow.is_none());
        let figures = |side: &MergedSide<'_>, list: &[u32], number| {
            let figures = || ClassSide { typical_ns: typical(number), ..side.figures(list, self.has_steps) };
            (!list.is_empty()).then(figures)
        };
        let (a, b) = (figures(self.a, &pair.a, 0), figures(self.b, &pair.b, 1));
        let has_both = a.is_some() && b.is_some();
        let mut moves = if has_both { self.moves(pair) } else { Vec::new() };
        let is_same_time = |a: &ClassSide, b: &ClassSide| !self.limits.are_reached_between(a.mean_ns, b.mean_ns);
        let is_frequent = || self.is_frequent(self.b, &pair.b) || self.is_frequent(self.a, &pair.a);
        let is_shown = || test.slow.is_some() || is_frequent();
        let verdict = match (&a, &b) {
            (None, _) if is_shown() => ChangeVerdict::New,
            (_, None) if is_shown() => ChangeVerdict::Gone,
            (None, _) | (_, None) => ChangeVerdict::TooFew,
            (Some(a), Some(b)) => match test.verdict {
                Some(ChangeVerdict::Same) if !moves.is_empty() => ChangeVerdict::Moved,
                None if !moves.is_empty() && is_same_time(a, b) => ChangeVerdict::Moved,
                Some(verdict) if verdict.is_change() && self.is_unresolved(pair, a, b) => ChangeVerdict::Noise,
                Some(verdict) => verdict,
                None if is_same_time(a, b) => ChangeVerdict::Same,
                None => ChangeVerdict::TooFew,
            },
        };
        let needs_runs = match verdict {
            ChangeVerdict::New | ChangeVerdict::Gone => test.needs_runs && !is_frequent(),
            ChangeVerdict::Slower | ChangeVerdict::Faster => {
                test.needs_runs || !(self.limits.has_enough_runs || self.kind(pair) == ClassKind::Work)
            }
            _ => false,
        };
        let slow = test.slow.filter(|_| has_both);
        moves.extend(slow.map(|SlowSteps { shares: [a, b], .. }| ClassMove::SlowSteps(a, b)));
        ClassChange {
            kind: self.kind(pair),
            work: self.first_classes(pair).next().and_then(|class| class.work),
            a,
            b,
            matched: pair.matched,
            verdict,
            needs_runs,
            change_percent: test.change_percent.filter(|_| has_both),
            probability: test.probability,
            moves,
        }
    }

    /// Returns whether the time of an event changed by less than can be measured.
    fn is_unresolved(&self, pair: &ClassPair, a: &ClassSide, b: &ClassSide) -> bool {
        // If their number changed more, the time of each does not matter.
        let is_same_count = a.mean_count.max(b.mean_count) <= 1.5 * a.mean_count.min(b.mean_count);
        let each = |side: &ClassSide| side.per_unit_ns() as f64 / side.mean_count.max(1.0);
        let resolution = RESOLUTION_NS.get(self.place(pair)).copied().unwrap_or(0.0);
        is_same_count && (each(a) - each(b)).abs() < resolution
    }

    /// Returns whether the absence of a class on the other side is no chance: it occurs in most steps, or outside of steps in most runs.
    fn is_frequent(&self, side: &MergedSide<'_>, list: &[u32]) -> bool {
        let share = if self.has_steps { occurring_share(&side.step_series(list)) } else { 0.0 };
        if share == 0.0 { side.run_share(list) >= MOST_STEPS } else { share >= MOST_STEPS }
    }

    fn moves(&self, pair: &ClassPair) -> Vec<ClassMove> {
        let mut moves = Vec::new();
        if pair.matched == MatchReason::Name {
            moves.extend(self.parent_move(pair));
            moves.extend(self.stream_move(pair));
        }
        moves.extend(self.count_move(pair));
        moves
    }

    /// Finds other operations around the events. Operations of other names on both sides are compared by name.
    fn parent_move(&self, pair: &ClassPair) -> Option<ClassMove> {
        let named = |side: &MergedSide<'_>, list: &[u32]| {
            let mut shares: HashMap<String, f64> = HashMap::default();
            for (parent, share) in side.parent_shares(list) {
                let parent = parent.and_then(|parent| side.classes.get(parent as usize));
                *shares.entry(parent.map_or(String::new(), |parent| parent.name.to_owned())).or_default() += share;
            }
            shares
        };
        let (a, b) = (named(self.a, &pair.a), named(self.b, &pair.b));
        let [of_a, of_b] = &self.names;
        let is_known = |names: &HashSet<&str>, name: &str| name.is_empty() || names.contains(name);
        let (before, after) = moved_most(&a, &b)?;
        // If one side lacks the operation, the operation is new or gone, or has another name.
        (is_known(of_b, &before) && is_known(of_a, &after)).then_some(ClassMove::Parent(before, after))
    }

    /// Finds another stream.
    fn stream_move(&self, pair: &ClassPair) -> Option<ClassMove> {
        let name = |(device, stream): &Stream| format!("{device}/{stream}");
        let shares = |side: &MergedSide<'_>, list: &[u32], rename: bool| {
            let times = side
                .stream_times(Some(list))
                .into_iter()
                .map(|(stream, ns)| (name(self.renamed.get(stream).filter(|_| rename).unwrap_or(stream)), ns));
            to_shares(times.collect())
        };
        let (a, b) = (shares(self.a, &pair.a, true), shares(self.b, &pair.b, false));
        moved_most(&a, &b).map(|(before, after)| ClassMove::Stream(before, after))
    }

    /// Finds another number of events in a step, if the numbers of both sides do not overlap.
    fn count_move(&self, pair: &ClassPair) -> Option<ClassMove> {
        if !self.has_steps {
            return None;
        }
        let counts = |side: &MergedSide<'_>, list: &[u32]| step_counts(&side.step_series(list));
        let ([low_a, a, high_a], [low_b, b, high_b]) = (counts(self.a, &pair.a)?, counts(self.b, &pair.b)?);
        let is_apart = high_a < low_b || high_b < low_a;
        let is_reached = self.limits.are_reached((b - a) * 100.0 / a.max(1.0));
        (is_apart && is_reached).then_some(ClassMove::Count(a, b))
    }
}

/// Returns where the largest share was and where it is now, if enough of it is elsewhere.
fn moved_most(a: &HashMap<String, f64>, b: &HashMap<String, f64>) -> Option<(String, String)> {
    let share = |of: &HashMap<String, f64>, key: &String| of.get(key).copied().unwrap_or(0.0);
    let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
    sort_few(&mut keys);
    keys.dedup();
    let elsewhere: f64 = keys.iter().map(|key| (share(b, key) - share(a, key)).max(0.0)).sum();
    let change = |key: &&&String| share(b, key) - share(a, key);
    let lost = keys.iter().min_by(|a, b| change(a).total_cmp(&change(b)))?;
    let gained = keys.iter().max_by(|a, b| change(a).total_cmp(&change(b)))?;
    (elsewhere >= MIN_MOVED && lost != gained).then(|| ((*lost).clone(), (*gained).clone()))
}

#[cfg(test)]
mod tests {
    use super::super::sides::StepSeries;
    use super::*;

    #[test]
    fn enough_runs_leave_no_drift_of_the_total() {
        let own = LogRatio { value: 0.04, variance: 1e-4, freedom: 6.0, low: 0.04 };
        let total = TestedRatio { own, beyond_drift: None, with_shared: Some(own) };
        let limits = Limits { threshold_percent: 3.0, has_enough_runs: true };
        let decide = |with_shared: f64| {
            let probabilities =
                Probabilities { with_shared, beyond_drift: 1.0, own: 0.005, ..Probabilities::default() };
            total.decide(probabilities, limits).verdict
        };
        assert_eq!([0.015, 0.009].map(decide), [Some(ChangeVerdict::Noise), Some(ChangeVerdict::Slower)]);
    }

    #[test]
    fn random_slow_steps_are_no_change() {
        // Both sides have the same program: each of 100 kernels is slow in a random tenth of 200 steps.
        let mut state = 1u64;
        let mut steps = || {
            let time = |_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                if state >> 60 < 2 { 150.0 } else { 100.0 }
            };
            vec![StepSeries::from_times((0..200).map(time))]
        };
        let mut alarms = 0;
        for _ in 0..30 {
            let slow = SlowSteps::compare((0..100).map(|_| Some([steps(), steps()])));
            let tests: Vec<_> = slow.into_iter().map(|slow| RatioTest { slow, ..RatioTest::default() }).collect();
            let limits = Limits { threshold_percent: 3.0, has_enough_runs: false };
            let (results, _) = test_all(&tests, &RatioTest::default(), limits);
            alarms += usize::from(results.iter().any(|result| result.verdict.is_some()));
        }
        assert!(alarms < 3, "{alarms} of 30");
    }
}
