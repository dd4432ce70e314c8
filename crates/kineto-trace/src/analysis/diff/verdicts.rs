//! Decides for each class, and for the total, what its change is.

use super::matching::{ClassPair, match_classes};
use super::noise::{
    DEVICE_RUN_DEVIATION, Drift, Estimate, FALSE_ALARM, HOST_RUN_DEVIATION, LogRatio, MIN_VALUES, correct_for_number,
};
use super::profile::ClassKind;
use super::sides::{MergedSide, to_shares};
use super::slow::SlowSteps;
use super::totals::divide_totals;
use super::{ChangeVerdict, ClassChange, ClassMove, ClassSide, Diff, DiffSide, DiffTotal, DiffUnit, MatchReason};
use crate::analysis::events::TrackId;
use crate::analysis::summary::CallRole;
use crate::hash::HashMap;
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
    let comparison = Comparison { a, b, has_steps, renamed: match_streams(a, b) };
    let estimates: Vec<_> = pairs.iter().map(|pair| comparison.class_estimates(pair)).collect();
    let ratios: Vec<_> = estimates.iter().map(ClassEstimates::ratio).collect();
    let [of_host, of_devices] = comparison.drifts(&pairs, &ratios);
    let drift = |pair: &ClassPair| if comparison.kind(pair).is_on_device() { of_devices } else { of_host };
    let total_ratio = log_ratio(a.estimate_total(has_steps), b.estimate_total(has_steps));
    let all = pairs.iter().zip(&ratios).map(|(pair, ratio)| Some(((*ratio)?, drift(pair))));
    let all: Vec<_> = all.chain([total_ratio.map(|ratio| (ratio, of_host.covering(of_devices)))]).collect();
    let slow: Vec<_> = pairs.iter().map(|pair| comparison.slow_steps(pair, threshold_percent)).collect();
    let slow_total = SlowSteps::new(&[a.step_lengths(), b.step_lengths()]).filter(|_| has_steps);
    let slow: Vec<_> = slow.into_iter().chain([slow_total]).collect();
    let tests = test_ratios(&all, threshold_percent / 100.0);
    let mut tests = with_slow_steps(tests, &slow, threshold_percent);
    if [of_host, of_devices].iter().any(|drift| drift.change_percent().abs() >= threshold_percent) {
        // A wait ends with the device's work, and begins when the host is done.
        let waits = pairs.iter().zip(&mut tests).filter(|(pair, _)| comparison.is_wait(pair));
        waits.for_each(|(_, test)| test.share_drift());
    }
    comparison.doubt_host(&pairs, &mut tests, of_host);

    let class_change = |((pair, test), estimates)| comparison.class_change(pair, test, estimates, threshold_percent);
    let mut classes: Vec<ClassChange> = pairs.iter().zip(&tests).zip(&estimates).map(class_change).collect();
    let ([a_ns, b_ns], parts) = divide_totals((a, b), &pairs, &classes, has_steps);
    let change_ns = |change: &ClassChange| Reverse(change.change_ns().unsigned_abs());
    classes.sort_by(|a, b| {
        let key = |change: &ClassChange| (!change.verdict.is_change(), change_ns(change));
        key(a).cmp(&key(b)).then_with(|| (a.name(), a.kind).cmp(&(b.name(), b.kind)))
    });
    let test = tests.last().cloned().unwrap_or_default();
    let is_known = comparison.mean_change_percent(a_ns, b_ns) < threshold_percent;
    let slow_steps = slow_total.filter(|slow| test.slow.is_some() || is_untrimmed(&test, slow, threshold_percent));
    let verdict = test.verdict.unwrap_or(if is_known { ChangeVerdict::Same } else { ChangeVerdict::TooFew });
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
            change_percent: test.change_percent,
            probability: test.probability,
        },
        parts,
        classes,
        host_drift_percent: of_host.change_percent(),
        device_drift_percent: of_devices.change_percent(),
        has_runs: comparison.has_runs(),
    }
}

/// The result of a test of one ratio; nothing if there are too few values.
#[derive(Clone, Debug, Default)]
struct RatioTest {
    verdict: Option<ChangeVerdict>,
    change_percent: Option<f64>,
    probability: Option<f64>,
    /// The share of slow steps, if it decided.
    slow: Option<SlowSteps>,
}

impl RatioTest {
    /// Counts a change as drift.
    fn share_drift(&mut self) {
        if self.verdict.is_some_and(ChangeVerdict::is_change) {
            (self.verdict, self.slow) = (Some(ChangeVerdict::Drift), None);
        }
    }
}

/// Returns whether the mean changed by at least the threshold, and the trimmed mean by less than half as much.
fn is_untrimmed(test: &RatioTest, slow: &SlowSteps, threshold_percent: f64) -> bool {
    let [a, b] = slow.means;
    let (mean, trimmed) = ((b - a) * 100.0 / a.max(1.0), test.change_percent.unwrap_or(0.0));
    mean.abs() >= threshold_percent && mean != 0.0 && trimmed * mean < 0.5 * mean * mean
}

/// Tests the shares of slow steps: they decide where trimmed means do not.
fn with_slow_steps(mut tests: Vec<RatioTest>, slow: &[Option<SlowSteps>], threshold_percent: f64) -> Vec<RatioTest> {
    let known: Vec<f64> = slow.iter().flatten().map(|slow| slow.probability).collect();
    let mut corrected = correct_for_number(&known).into_iter();
    for (test, slow) in tests.iter_mut().zip(slow) {
        let Some((slow, probability)) = slow.and_then(|slow| Some((slow, corrected.next()?))) else { continue };
        let change = slow.change().map(|change| change * 100.0).filter(|change| change.abs() >= threshold_percent);
        let is_decided = test.verdict == Some(ChangeVerdict::Drift)
            || test.verdict.is_some_and(|verdict| verdict.is_change() && !is_untrimmed(test, &slow, threshold_percent));
        if let Some(change) = change.filter(|_| probability < FALSE_ALARM && !is_decided) {
            let verdict = if change > 0.0 { ChangeVerdict::Slower } else { ChangeVerdict::Faster };
            *test = RatioTest {
                verdict: Some(verdict),
                change_percent: Some(change),
                probability: Some(probability),
                slow: Some(slow),
            };
        }
    }
    tests
}

/// Tests all ratios together: first with the drift of their place, which a change must exceed, then without.
fn test_ratios(all: &[Option<(LogRatio, Drift)>], threshold: f64) -> Vec<RatioTest> {
    let known: Vec<(LogRatio, Drift)> = all.iter().flatten().copied().collect();
    let left: Vec<LogRatio> = known.iter().map(|(ratio, drift)| ratio.without_drift(drift)).collect();
    let corrected = |ratios: &mut dyn Iterator<Item = LogRatio>| {
        correct_for_number(&ratios.map(|ratio| ratio.probability()).collect::<Vec<_>>())
    };
    let with_drift = corrected(&mut left.iter().copied());
    let without_drift = corrected(&mut known.iter().map(|(ratio, _)| *ratio));
    let mut tests = known.iter().zip(&left).zip(with_drift.iter().zip(&without_drift)).map(
        |(((ratio, drift), left), (probability, plain))| {
            let exceeds = |ratio: &LogRatio| ratio.change().abs() >= threshold && ratio.change() != 0.0;
            let verdict = match () {
                () if !exceeds(ratio) => ChangeVerdict::Same,
                // With several runs, neighbours show in the spread of runs.
                () if *drift != Drift::NONE && !ratio.is_of_all_values() => ChangeVerdict::Noise,
                () if exceeds(left) && *probability < FALSE_ALARM => {
                    if ratio.value > 0.0 {
                        ChangeVerdict::Slower
                    } else {
                        ChangeVerdict::Faster
                    }
                }
                () if *plain < FALSE_ALARM => ChangeVerdict::Drift,
                () => ChangeVerdict::Noise,
            };
            let change_percent = Some(ratio.change() * 100.0);
            RatioTest { verdict: Some(verdict), change_percent, probability: Some(*probability), slow: None }
        },
    );
    all.iter().map(|known| known.and_then(|_| tests.next()).unwrap_or_default()).collect()
}

fn log_ratio(a: Option<Estimate>, b: Option<Estimate>) -> Option<LogRatio> {
    Some(LogRatio::new(&a?, &b?))
}

/// The share of steps in which a class must occur for its absence on the other side, and its typical time, to count.
const MOST_STEPS: f64 = 0.5;

/// The means of both sides of a class, if there are enough values.
#[derive(Clone, Copy, Debug, Default)]
struct ClassEstimates {
    means: [Option<Estimate>; 2],
    /// The share of steps in which it occurs, on both sides, if the means are of these and it occurs in most.
    shares: Option<[f64; 2]>,
    /// The ratio of events that belong together, if both traces have the same number of them.
    paired: Option<LogRatio>,
}

impl ClassEstimates {
    fn ratio(&self) -> Option<LogRatio> {
        let [a, b] = self.means;
        self.paired.or_else(|| log_ratio(a, b))
    }

    /// Returns the trimmed mean of the steps of a side in which it occurs, times their share.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a conversion to u64 saturates")]
    fn typical_ns(&self, side: usize) -> Option<u64> {
        let (mean, share) = (self.means.get(side).copied().flatten()?, *self.shares?.get(side)?);
        Some((mean.mean * share).round() as u64)
    }
}

/// Two sides that are compared.
struct Comparison<'c, 'p> {
    a: &'c MergedSide<'p>,
    b: &'c MergedSide<'p>,
    has_steps: bool,
    /// The streams of the first side that have another number on the second.
    renamed: HashMap<Stream, Stream>,
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

    /// Counts changes as drift that one run a side does not tell from what the machine did: of the host's classes if they scatter widely,
    /// and of the total, the last test, if no work of a device explains it.
    fn doubt_host(&self, pairs: &[ClassPair], tests: &mut [RatioTest], of_host: Drift) {
        if self.has_runs() {
            return;
        }
        let is_change = |test: &RatioTest| test.verdict.is_some_and(ChangeVerdict::is_change);
        let has_work =
            pairs.iter().zip(&*tests).any(|(pair, test)| self.kind(pair) == ClassKind::Work && is_change(test));
        if let Some((total, of_classes)) = tests.split_last_mut() {
            if of_host.is_wide {
                let of_host = pairs.iter().zip(of_classes).filter(|(pair, _)| self.kind(pair) != ClassKind::Work);
                of_host.for_each(|(_, test)| test.share_drift());
            }
            if !has_work {
                total.share_drift();
            }
        }
    }

    /// Estimates the mean times of both sides of a pair: in a step, or of one event.
    fn class_estimates(&self, pair: &ClassPair) -> ClassEstimates {
        let none = ClassEstimates::default();
        if pair.a.is_empty() || pair.b.is_empty() {
            return none;
        }
        let shares = [(self.a, &pair.a), (self.b, &pair.b)].map(|(side, list)| side.step_share(list));
        let means = if self.has_steps && shares.iter().any(|share| *share > 0.0) {
            // Steps without it count with their share, by `SlowSteps`: as a time of 0 they would hide a change.
            let means = [self.a.estimate_steps(&pair.a), self.b.estimate_steps(&pair.b)];
            if shares.iter().any(|share| *share >= MOST_STEPS) && means.iter().all(Option::is_some) {
                return ClassEstimates { means, shares: Some(shares), ..none };
            }
            means
        } else {
            if let (Some((number_a, a)), Some((number_b, b))) =
                (self.a.event_sequence(&pair.a), self.b.event_sequence(&pair.b))
                && number_a == number_b
            {
                return ClassEstimates { paired: LogRatio::from_pairs(&a, &b), ..none };
            }
            [self.a.estimate_occurrences(&pair.a), self.b.estimate_occurrences(&pair.b)]
        };
        ClassEstimates { means, ..none }
    }

    /// Returns whether both sides have enough runs to show how runs differ.
    fn has_runs(&self) -> bool {
        self.a.runs().min(self.b.runs()) >= MIN_VALUES
    }

    /// Compares the shares of slow steps, if the mean changed by at least the threshold.
    fn slow_steps(&self, pair: &ClassPair, threshold_percent: f64) -> Option<SlowSteps> {
        let slow =
            SlowSteps::new(&[self.a.step_times(&pair.a), self.b.step_times(&pair.b)]).filter(|_| self.has_steps)?;
        let is_told = self.has_runs() || self.kind(pair) == ClassKind::Work;
        slow.change().filter(|change| is_told && change.abs() * 100.0 >= threshold_percent).map(|_| slow)
    }

    /// Returns the drift of the host and of devices; none if both sides have enough runs to show how runs differ.
    fn drifts(&self, pairs: &[ClassPair], ratios: &[Option<LogRatio>]) -> [Drift; 2] {
        if self.has_runs() {
            return [Drift::NONE; 2];
        }
        [(0, HOST_RUN_DEVIATION), (1, DEVICE_RUN_DEVIATION)].map(|(place, expected)| {
            let of_place = pairs.iter().zip(ratios).filter(|(pair, _)| self.place(pair) == place);
            // An annotation on a device contains the work.
            let exclusive = of_place.filter(|(pair, _)| self.kind(pair) != ClassKind::DeviceAnnotation);
            Drift::from_ratios(
                &exclusive.filter_map(|(pair, ratio)| Some((self.kind(pair), (*ratio)?))).collect::<Vec<_>>(),
                expected,
            )
        })
    }

    #[expect(clippy::cast_precision_loss, reason = "a share")]
    fn mean_change_percent(&self, a_ns: u64, b_ns: u64) -> f64 {
        a_ns.abs_diff(b_ns) as f64 * 100.0 / a_ns.max(1) as f64
    }

    fn class_change(
        &self,
        pair: &ClassPair,
        test: &RatioTest,
        estimates: &ClassEstimates,
        threshold_percent: f64,
    ) -> ClassChange {
        // Trimmed means hide slow steps.
        let typical = |side| estimates.typical_ns(side).filter(|_| test.slow.is_none());
        let figures = |side: &MergedSide<'_>, list: &[u32], number| {
            let figures = || ClassSide { typical_ns: typical(number), ..side.figures(list, self.has_steps) };
            (!list.is_empty()).then(figures)
        };
        let (a, b) = (figures(self.a, &pair.a, 0), figures(self.b, &pair.b, 1));
        let mut moves = if a.is_some() && b.is_some() { self.moves(pair, threshold_percent) } else { Vec::new() };
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
        moves.extend(
            test.slow
                .filter(|_| a.is_some() && b.is_some())
                .map(|SlowSteps { shares: [a, b], .. }| ClassMove::SlowSteps(a, b)),
        );
        let class = pair.b.first().and_then(|class| self.b.classes.get(*class as usize));
        let class = class.or_else(|| self.a.classes.get(*pair.a.first()? as usize));
        ClassChange {
            kind: self.kind(pair),
            work: class.and_then(|class| class.work),
            a,
            b,
            matched: pair.matched,
            verdict,
            change_percent: test.change_percent,
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

    /// Returns whether the absence of a class on the other side is no chance: it occurs in most steps, or outside of steps.
    fn is_frequent(&self, side: &MergedSide<'_>, list: &[u32]) -> bool {
        let share = side.step_share(list);
        !self.has_steps || share == 0.0 || share >= MOST_STEPS
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
        let known =
            |side: &MergedSide<'_>, name: &str| name.is_empty() || side.classes.iter().any(|class| class.name == name);
        let (before, after) = moved_most(&a, &b)?;
        // If one side lacks the operation, the operation is new or gone, or has another name.
        (known(self.b, &before) && known(self.a, &after)).then_some(ClassMove::Parent(before, after))
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
    #[expect(clippy::cast_precision_loss, reason = "a number of events")]
    fn count_move(&self, pair: &ClassPair, threshold_percent: f64) -> Option<ClassMove> {
        if !self.has_steps {
            return None;
        }
        let ([low_a, a, high_a], [low_b, b, high_b]) = (self.a.step_counts(&pair.a)?, self.b.step_counts(&pair.b)?);
        let is_apart = high_a < low_b || high_b < low_a;
        let exceeds = self.mean_change_percent(a, b) >= threshold_percent;
        (is_apart && exceeds).then_some(ClassMove::Count(a as f64, b as f64))
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
