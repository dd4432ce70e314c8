//! Decides for each class, and for the total, what its change is.

use super::matching::{ClassPair, match_classes};
use super::noise::{
    DEVICE_RUN_DEVIATION, Drift, Estimate, FALSE_ALARM, HOST_RUN_DEVIATION, LogRatio, MIN_VALUES, correct_for_number,
};
use super::profile::ClassKind;
use super::runs::{RunSpread, RunValues};
use super::sides::{MergedSide, occurring_share, step_counts, to_shares};
use super::slow::SlowSteps;
use super::totals::divide_totals;
use super::{ChangeVerdict, ClassChange, ClassMove, ClassSide, Diff, DiffSide, DiffTotal, DiffUnit, MatchReason};
use crate::analysis::events::TrackId;
use crate::analysis::summary::CallRole;
use crate::hash::{HashMap, HashSet};
use std::cmp::Reverse;

/// The share of events or time that must be elsewhere for a class to have moved.
const MIN_MOVED: f64 = 0.25;

/// The change of an event's time that the clock and the cost of recording may cause, in nanoseconds: on the host, on devices.
const RESOLUTION_NS: [f64; 2] = [350.0, 10.0];

/// Compares two sides.
pub(super) fn compare_sides(a: &MergedSide<'_>, b: &MergedSide<'_>, threshold_percent: f64) -> Diff {
    // Fewer steps than that show no spread.
    let has_steps = a.steps().min(b.steps()) >= MIN_VALUES as u64;
    let pairs = match_classes(a, b);
    let names = [a, b].map(|side| side.classes.iter().map(|class| class.name).collect());
    // Short traces among longer ones show nothing.
    let usable_runs = |side: &MergedSide<'_>| side.estimate_total(has_steps).iter().flatten().count();
    let has_runs = usable_runs(a).min(usable_runs(b)) >= MIN_VALUES;
    let comparison = Comparison { a, b, has_steps, has_runs, renamed: match_streams(a, b), names };
    let values: Vec<ClassValues> = pairs.iter().map(|pair| comparison.class_values(pair)).collect();
    let (ratios, [of_host, of_devices]) = comparison.ratios(&pairs, &values);
    let slow_total = SlowSteps::new(&[a.step_lengths(), b.step_lengths()]).filter(|_| has_steps);
    let total = RatioTest { ratio: comparison.total_ratio(of_host.covering(of_devices)), slow: slow_total };
    let tests = pairs.iter().zip(ratios);
    let tests: Vec<_> = tests.map(|(pair, ratio)| RatioTest { ratio, slow: comparison.slow_steps(pair) }).collect();
    let (mut results, mut total_result) = test_all(&tests, &total, threshold_percent);
    comparison.share_drift(&pairs, &mut results, of_host, of_devices, threshold_percent);

    let class_change = |((pair, result), values)| comparison.class_change(pair, result, values, threshold_percent);
    let mut classes: Vec<ClassChange> = pairs.iter().zip(&results).zip(&values).map(class_change).collect();
    comparison.doubt_total(&classes, &mut total_result);
    let ([a_ns, b_ns], parts) = divide_totals((a, b), &pairs, &classes, has_steps);
    let change_ns = |change: &ClassChange| Reverse(change.change_ns().unsigned_abs());
    classes.sort_by(|a, b| {
        let key = |change: &ClassChange| (!change.verdict.is_change(), change_ns(change));
        key(a).cmp(&key(b)).then_with(|| (a.name(), a.kind).cmp(&(b.name(), b.kind)))
    });
    let result = total_result;
    let is_known = comparison.mean_change_percent(a_ns, b_ns) < threshold_percent;
    let slow_steps = slow_total.filter(|slow| result.slow.is_some() || is_untrimmed(&result, slow, threshold_percent));
    let verdict = result.verdict.unwrap_or(if is_known { ChangeVerdict::Same } else { ChangeVerdict::TooFew });
    let side = |side: &MergedSide<'_>| DiffSide {
        traces: side.profiles.len() as u64,
        steps: side.steps(),
        span_ns: side.profiles.iter().fold(0, |sum, profile| sum.saturating_add(profile.span_ns)),
    };
    Diff {
        threshold_percent,
        unit: if has_steps { DiffUnit::Step } else { DiffUnit::Trace },
        a: side(a),
        b: side(b),
        total: DiffTotal {
            a_ns,
            b_ns,
            verdict,
            slow_steps: slow_steps.map(|slow| slow.shares),
            change_percent: result.change_percent,
            probability: result.probability,
        },
        parts,
        classes,
        host_drift_percent: of_host.change_percent(),
        device_drift_percent: of_devices.change_percent(),
        has_runs: comparison.has_runs,
    }
}

/// The change of a class or the total: what is tested.
#[derive(Clone, Copy, Debug, Default)]
struct RatioTest {
    ratio: Option<TestedRatio>,
    slow: Option<SlowSteps>,
}

/// A ratio with several kinds of spread.
#[derive(Clone, Copy, Debug)]
struct TestedRatio {
    /// With its own spread.
    own: LogRatio,
    /// Without the drift of its place.
    left: LogRatio,
    /// With its own spread and the one that all classes of a run share, if there are enough runs to show it.
    whole: Option<LogRatio>,
}

impl TestedRatio {
    /// Returns whether it exceeds a relative change.
    fn exceeds(ratio: &LogRatio, threshold: f64) -> bool {
        ratio.change().abs() >= threshold && ratio.change() != 0.0
    }

    /// Returns whether fast values did not change, which several runs show as their spread.
    fn is_of_neighbours(&self) -> bool {
        self.whole.is_none() && !self.own.is_of_all_values()
    }
}

/// The result of a test; nothing if there are too few values.
#[derive(Clone, Debug, Default)]
struct TestResult {
    verdict: Option<ChangeVerdict>,
    change_percent: Option<f64>,
    probability: Option<f64>,
    /// The share of slow steps, if it decided.
    slow: Option<SlowSteps>,
}

impl TestResult {
    /// Counts a change as drift.
    fn share_drift(&mut self) {
        if self.verdict.is_some_and(ChangeVerdict::is_change) {
            (self.verdict, self.slow) = (Some(ChangeVerdict::Drift), None);
        }
    }
}

/// Returns whether the mean changed by at least the threshold, and the trimmed mean, if it is known, by less than half as much.
fn is_untrimmed(result: &TestResult, slow: &SlowSteps, threshold_percent: f64) -> bool {
    let ([a, b], [share_a, share_b]) = (slow.means, slow.shares);
    let mean = (b - a) * 100.0 / a.max(1.0);
    let exceeds = mean.abs() >= threshold_percent && mean != 0.0 && share_a != share_b;
    result.change_percent.is_some_and(|trimmed| exceeds && trimmed * mean < 0.5 * mean * mean)
}

/// Tests all classes, and the total.
fn test_all(tests: &[RatioTest], total: &RatioTest, threshold_percent: f64) -> (Vec<TestResult>, TestResult) {
    let decide = |tests: &[RatioTest]| {
        let results = tests.iter().zip(correct_tests(tests));
        results.map(|(test, probabilities)| test.decide(probabilities, threshold_percent)).collect::<Vec<_>>()
    };
    (decide(tests), decide(std::slice::from_ref(total)).pop().unwrap_or_default())
}

/// The probabilities of the tests of one class, corrected for the number of all tests.
#[derive(Clone, Copy, Debug, Default)]
struct Probabilities {
    left: f64,
    whole: f64,
    slow: f64,
    /// Of its own spread: decides nothing but what counts as drift.
    own: f64,
}

/// A third of the false alarms that are accepted is for means of classes, one for their slow steps, and one for the total.
const FAMILIES: f64 = 3.0;

fn correct_tests(tests: &[RatioTest]) -> Vec<Probabilities> {
    let of_ratios = |ratio: fn(&TestedRatio) -> Option<LogRatio>| {
        let found = tests.iter().map(|test| Some(ratio(test.ratio.as_ref()?)?.probability()));
        found.collect::<Vec<Option<f64>>>()
    };
    let [left, whole, own] =
        [of_ratios(|ratio| Some(ratio.left)), of_ratios(|ratio| ratio.whole), of_ratios(|ratio| Some(ratio.own))];
    let means = correct_known(&[left, whole].concat());
    let slow = correct_known(&tests.iter().map(|test| test.slow.map(|slow| slow.probability)).collect::<Vec<_>>());
    let own = correct_known(&own);
    let in_family = |corrected: &[f64], at: usize| corrected.get(at).map_or(1.0, |found| (FAMILIES * found).min(1.0));
    let of_test = |at: usize| Probabilities {
        left: in_family(&means, at),
        whole: in_family(&means, at + tests.len()),
        slow: in_family(&slow, at),
        own: own.get(at).copied().unwrap_or(1.0),
    };
    (0..tests.len()).map(of_test).collect()
}

/// Corrects the known probabilities for their number; others are 1.
fn correct_known(probabilities: &[Option<f64>]) -> Vec<f64> {
    let known: Vec<f64> = probabilities.iter().flatten().copied().collect();
    let mut corrected = correct_for_number(&known).into_iter();
    probabilities.iter().map(|known| known.and_then(|_| corrected.next()).unwrap_or(1.0)).collect()
}

impl RatioTest {
    /// Decides by the trimmed means; if they do not tell, by the share of slow steps.
    fn decide(&self, probabilities: Probabilities, threshold_percent: f64) -> TestResult {
        let result =
            self.ratio.map_or_else(TestResult::default, |ratio| ratio.decide(probabilities, threshold_percent / 100.0));
        let Some(slow) = self.slow else { return result };
        let change = slow.change().map(|change| change * 100.0).filter(|change| change.abs() >= threshold_percent);
        let is_decided = result.verdict == Some(ChangeVerdict::Drift)
            || result
                .verdict
                .is_some_and(|verdict| verdict.is_change() && !is_untrimmed(&result, &slow, threshold_percent));
        match change.filter(|_| probabilities.slow < FALSE_ALARM && !is_decided) {
            Some(change) => TestResult {
                verdict: Some(direction(change)),
                change_percent: Some(change),
                probability: Some(probabilities.slow),
                slow: Some(slow),
            },
            None => result,
        }
    }
}

impl TestedRatio {
    /// Decides what a change is: real if it exceeds the drift of its place, or what runs differ by.
    fn decide(&self, probabilities: Probabilities, threshold: f64) -> TestResult {
        let exceeds = |ratio: &LogRatio| TestedRatio::exceeds(ratio, threshold);
        let Probabilities { left, whole, own, .. } = probabilities;
        let verdict = match () {
            () if !exceeds(&self.own) => ChangeVerdict::Same,
            () if self.is_of_neighbours() => ChangeVerdict::Noise,
            () if whole < FALSE_ALARM || (exceeds(&self.left) && left < FALSE_ALARM) => direction(self.own.value),
            // Enough runs tell a drift from what runs differ by.
            () if own < FALSE_ALARM && (self.whole.is_none() || !exceeds(&self.left)) => ChangeVerdict::Drift,
            () => ChangeVerdict::Noise,
        };
        TestResult {
            verdict: Some(verdict),
            change_percent: Some(self.own.change() * 100.0),
            probability: Some(left.min(whole)),
            slow: None,
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
    /// Whether both sides have enough runs to show how runs differ.
    has_runs: bool,
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
        only.sort_by_key(|(stream, ns)| (Reverse(**ns), **stream));
        only.into_iter().map(|(stream, _)| (*stream).clone()).collect::<Vec<_>>()
    };
    only(&all_a, &all_b).into_iter().zip(only(&all_b, &all_a)).collect()
}

impl Comparison<'_, '_> {
    fn kind(&self, pair: &ClassPair) -> ClassKind {
        let class =
            |side: &MergedSide<'_>, list: &[u32]| side.classes.get(*list.first()? as usize).map(|class| class.kind);
        class(self.b, &pair.b).or(class(self.a, &pair.a)).unwrap_or(ClassKind::Operation)
    }

    /// Returns whether it is a call that waits for a device.
    fn is_wait(&self, pair: &ClassPair) -> bool {
        let is_wait = |side: &MergedSide<'_>, list: &[u32]| {
            list.first()
                .and_then(|class| side.classes.get(*class as usize))
                .is_some_and(|class| CallRole::is_wait(class.name))
        };
        self.kind(pair) == ClassKind::Call && (is_wait(self.b, &pair.b) || is_wait(self.a, &pair.a))
    }

    /// Returns 0 for the host, 1 for devices.
    fn place(&self, pair: &ClassPair) -> usize {
        usize::from(self.kind(pair).is_on_device())
    }

    /// Counts changes as drift that few runs do not tell from what the machine did: waits for a device whose work or host drifted, and
    /// the host's classes if they scatter widely.
    fn share_drift(
        &self,
        pairs: &[ClassPair],
        results: &mut [TestResult],
        host: Drift,
        devices: Drift,
        threshold: f64,
    ) {
        // A wait ends with the device's work, and begins when the host is done.
        let has_drift = [host, devices].iter().any(|drift| drift.change_percent().abs() >= threshold);
        let is_doubtful = |pair: &ClassPair| {
            (has_drift && self.is_wait(pair)) || (host.is_wide && self.kind(pair) != ClassKind::Work)
        };
        if !self.has_runs {
            let doubtful = pairs.iter().zip(results).filter(|(pair, _)| is_doubtful(pair));
            doubtful.for_each(|(_, result)| result.share_drift());
        }
    }

    /// Counts a change of the total as drift if there are few runs and no work of a device explains it.
    fn doubt_total(&self, classes: &[ClassChange], total: &mut TestResult) {
        use ChangeVerdict as V;
        let is_slower = total.change_percent.is_some_and(|percent| percent > 0.0);
        let reasons = if is_slower { [V::Slower, V::New] } else { [V::Faster, V::Gone] };
        let explains = |change: &ClassChange| change.kind == ClassKind::Work && reasons.contains(&change.verdict);
        if !self.has_runs && !classes.iter().any(explains) {
            total.share_drift();
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
            let drift = Drift::from_ratios(&exclusive, expected * self.run_share().sqrt()).of_runs(spread.freedom);
            for (at, _, own, values) in own {
                let whole = self.has_runs.then(|| spread.with_shared(own, &values.runs));
                let tested = TestedRatio { own, left: own.without_drift(&drift), whole };
                ratios.get_mut(at).into_iter().for_each(|ratio| *ratio = Some(tested));
            }
            drift
        });
        (ratios, drifts)
    }

    /// Returns the ratio of the mean steps or traces.
    fn total_ratio(&self, drift: Drift) -> Option<TestedRatio> {
        let values = [self.a, self.b].map(|side| side.estimate_total(self.has_steps));
        let own = RunSpread::new([&values].into_iter()).ratio(&values)?;
        Some(TestedRatio { own, left: own.without_drift(&drift), whole: self.has_runs.then_some(own) })
    }

    /// Returns the variance of a difference of two sides, in terms of that of two runs.
    #[expect(clippy::cast_precision_loss, reason = "a number of runs")]
    fn run_share(&self) -> f64 {
        [self.a, self.b].iter().map(|side| 0.5 / side.runs().max(1) as f64).sum()
    }

    /// Compares the shares of slow steps. Few runs do not tell slow steps of the host from the machine's load.
    fn slow_steps(&self, pair: &ClassPair) -> Option<SlowSteps> {
        let is_known = self.has_steps && (self.has_runs || self.kind(pair) == ClassKind::Work);
        is_known.then(|| SlowSteps::new(&[self.a.step_series(&pair.a), self.b.step_series(&pair.b)]))?
    }

    #[expect(clippy::cast_precision_loss, reason = "a share")]
    fn mean_change_percent(&self, a_ns: u64, b_ns: u64) -> f64 {
        a_ns.abs_diff(b_ns) as f64 * 100.0 / a_ns.max(1) as f64
    }

    fn class_change(
        &self,
        pair: &ClassPair,
        test: &TestResult,
        values: &ClassValues,
        threshold_percent: f64,
    ) -> ClassChange {
        // Trimmed means hide slow steps.
        let typical = |side| values.typical_ns(side).filter(|_| test.slow.is_none());
        let figures = |side: &MergedSide<'_>, list: &[u32], number| {
            let figures = || ClassSide { typical_ns: typical(number), ..side.figures(list, self.has_steps) };
            (!list.is_empty()).then(figures)
        };
        let (a, b) = (figures(self.a, &pair.a, 0), figures(self.b, &pair.b, 1));
        let has_both = a.is_some() && b.is_some();
        let mut moves = if has_both { self.moves(pair, threshold_percent) } else { Vec::new() };
        let is_same_time =
            |a: &ClassSide, b: &ClassSide| self.mean_change_percent(a.mean_ns, b.mean_ns) < threshold_percent;
        let verdict = match (&a, &b) {
            (None, _) if test.slow.is_some() || self.is_frequent(self.b, &pair.b) => ChangeVerdict::New,
            (_, None) if test.slow.is_some() || self.is_frequent(self.a, &pair.a) => ChangeVerdict::Gone,
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
        let slow = test.slow.filter(|_| has_both);
        moves.extend(slow.map(|SlowSteps { shares: [a, b], .. }| ClassMove::SlowSteps(a, b)));
        let class = pair.b.first().and_then(|class| self.b.classes.get(*class as usize));
        let class = class.or_else(|| self.a.classes.get(*pair.a.first()? as usize));
        ClassChange {
            kind: self.kind(pair),
            work: class.and_then(|class| class.work),
            a,
            b,
            matched: pair.matched,
            verdict,
            change_percent: test.change_percent.filter(|_| has_both),
            probability: test.probability,
            moves,
        }
    }

    /// Returns whether the time of an event changed by less than can be measured.
    #[expect(clippy::cast_precision_loss, reason = "times of fewer than 2^53 nanoseconds")]
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

    fn moves(&self, pair: &ClassPair, threshold_percent: f64) -> Vec<ClassMove> {
        let mut moves = Vec::new();
        if pair.matched == MatchReason::Name {
            moves.extend(self.parent_move(pair));
            moves.extend(self.stream_move(pair));
        }
        moves.extend(self.count_move(pair, threshold_percent));
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
    fn count_move(&self, pair: &ClassPair, threshold_percent: f64) -> Option<ClassMove> {
        if !self.has_steps {
            return None;
        }
        let counts = |side: &MergedSide<'_>, list: &[u32]| step_counts(&side.step_series(list));
        let ([low_a, a, high_a], [low_b, b, high_b]) = (counts(self.a, &pair.a)?, counts(self.b, &pair.b)?);
        let is_apart = high_a < low_b || high_b < low_a;
        let exceeds = (b - a).abs() * 100.0 >= threshold_percent * a.max(1.0);
        (is_apart && exceeds).then_some(ClassMove::Count(a, b))
    }
}

/// Returns where the largest share was and where it is now, if enough of it is elsewhere.
fn moved_most(a: &HashMap<String, f64>, b: &HashMap<String, f64>) -> Option<(String, String)> {
    let share = |of: &HashMap<String, f64>, key: &String| of.get(key).copied().unwrap_or(0.0);
    let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
    keys.sort_unstable();
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
            let tests: Vec<_> =
                (0..100).map(|_| RatioTest { ratio: None, slow: SlowSteps::new(&[steps(), steps()]) }).collect();
            let (results, _) = test_all(&tests, &RatioTest::default(), 3.0);
            alarms += usize::from(results.iter().any(|result| result.verdict.is_some()));
        }
        assert!(alarms < 3, "{alarms} of 30");
    }
}
