//! The traces of one side, with classes that have the same number in all of them.

use super::noise::{Estimate, MIN_VALUES};
use super::outline::Outline;
use super::profile::{ClassKind, ClassProfile, PathShare, TraceProfile};
use super::{ClassSide, DiffSide, LeftOutReason, LeftOutTrace};
use crate::analysis::events::TrackId;
use crate::analysis::summary::WorkClass;
use crate::hash::{HashMap, HashSet};
use crate::sorting::sort_few_by_key;

/// The traces of one side that take part in the comparison.
pub(super) struct MergedSide<'p> {
    profiles: Vec<&'p TraceProfile>,
    pub(super) classes: Vec<SideClass<'p>>,
    /// By trace and class of the trace: the class of the side.
    numbers: Vec<Vec<u32>>,
    /// The traces of each run: one of each rank that both sides have.
    runs: Vec<Vec<usize>>,
    left_out: Vec<LeftOutTrace>,
    outline: Outline,
}

/// A class of one side.
pub(super) struct SideClass<'p> {
    pub(super) kind: ClassKind,
    pub(super) name: &'p str,
    pub(super) work: Option<WorkClass>,
    /// By trace.
    profiles: Vec<Option<&'p ClassProfile>>,
}

/// The steps of a run in which classes occur. A run of several ranks has the mean of its ranks' steps.
#[derive(Clone, Debug, Default)]
pub(super) struct StepSeries {
    /// The number of steps, with those in which they do not occur.
    pub(super) steps: usize,
    /// The step, the number of events, and the time, in order of steps.
    values: Vec<(u32, f64, f64)>,
}

impl StepSeries {
    /// Makes a series of steps that all have a time.
    pub(super) fn from_times(times: impl Iterator<Item = f64>) -> StepSeries {
        let values: Vec<_> = (0..).zip(times).map(|(step, ns)| (step, 1.0, ns)).collect();
        StepSeries { steps: values.len(), values }
    }

    /// Returns the times of the steps in which the classes occur.
    pub(super) fn times(&self) -> impl Iterator<Item = f64> {
        self.values.iter().map(|(_, _, ns)| *ns)
    }

    /// Returns for each step 1 if its time is above a limit, else 0.
    pub(super) fn slow_flags(&self, limit: f64) -> Vec<f64> {
        let mut flags = vec![0.0; self.steps];
        for (step, _, _) in self.values.iter().filter(|(_, _, ns)| *ns > limit) {
            flags.get_mut(*step as usize).into_iter().for_each(|flag| *flag = 1.0);
        }
        flags
    }
}

impl<'p> MergedSide<'p> {
    /// Merges the traces of both sides that take part.
    pub(super) fn of_both(a: &'p [TraceProfile], b: &'p [TraceProfile]) -> [MergedSide<'p>; 2] {
        let (mut runs_a, mut runs_b) = (TraceRuns::new(a, b), TraceRuns::new(b, a));
        if runs_a.has_long() && runs_b.has_long() {
            runs_a.leave_out_short();
            runs_b.leave_out_short();
        }
        [(a, runs_a), (b, runs_b)].map(|(profiles, runs)| MergedSide::new(profiles, runs))
    }

    fn new(all: &'p [TraceProfile], TraceRuns { runs, left_out, .. }: TraceRuns) -> MergedSide<'p> {
        let is_left_out = |trace: usize| left_out.iter().any(|left_out| left_out.trace == trace);
        let traces: Vec<usize> = (0..all.len()).filter(|trace| !is_left_out(*trace)).collect();
        let number = |trace: &usize| traces.binary_search(trace).ok();
        let runs = runs.iter().map(|traces| traces.iter().filter_map(number).collect()).collect();
        let profiles: Vec<&TraceProfile> = traces.iter().filter_map(|trace| all.get(*trace)).collect();
        let outline = Outline::default();
        let mut side = MergedSide { profiles, classes: Vec::new(), numbers: Vec::new(), runs, left_out, outline };
        let profiles = side.profiles.clone();
        let mut known: HashMap<(ClassKind, &str), u32> = HashMap::default();
        for (trace, profile) in profiles.iter().enumerate() {
            let mut numbers = Vec::new();
            for class in &profile.classes {
                let new = u32::try_from(side.classes.len()).unwrap_or(u32::MAX);
                let number = *known.entry((class.kind, &class.name)).or_insert(new);
                if number == new {
                    let profiles = vec![None; profiles.len()];
                    side.classes.push(SideClass { kind: class.kind, name: &class.name, work: class.work, profiles });
                }
                let slot = side.classes.get_mut(number as usize).and_then(|class| class.profiles.get_mut(trace));
                slot.into_iter().for_each(|slot| *slot = Some(class));
                numbers.push(number);
            }
            side.numbers.push(numbers);
        }
        // Only the first trace may have one, even if it takes no part.
        if let Some(profile) = all.iter().find(|profile| profile.outline.nodes.len() > 1) {
            side.outline = profile.outline.clone();
            let number = |class: u32| {
                let class = profile.classes.get(class as usize)?;
                known.get(&(class.kind, class.name.as_str())).copied()
            };
            side.outline.nodes.iter_mut().for_each(|node| node.class = node.class.and_then(number));
        }
        side
    }

    /// Returns the number of runs.
    pub(super) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Returns the number of traces.
    pub(super) fn traces(&self) -> u64 {
        self.profiles.len() as u64
    }

    /// Returns the figures of all traces.
    pub(super) fn summary(&self) -> DiffSide {
        let span_ns = self.profiles.iter().fold(0u64, |sum, profile| sum.saturating_add(profile.span_ns));
        DiffSide { traces: self.traces(), steps: self.steps(), span_ns, left_out: self.left_out.clone() }
    }

    /// Returns whether steps can be compared: those of a run, or those of several.
    pub(super) fn has_steps(&self) -> bool {
        let run_steps = |traces: &Vec<usize>| self.run_steps(traces);
        let of_runs = || self.runs.iter().map(run_steps);
        of_runs().any(|steps| steps >= MIN_VALUES)
            || (of_runs().filter(|steps| *steps > 0).count() > 1 && of_runs().sum::<usize>() >= MIN_VALUES)
    }

    /// Returns the number of steps that all ranks of a run have.
    fn run_steps(&self, traces: &[usize]) -> usize {
        let steps = traces.iter().map(|trace| self.profiles.get(*trace).map_or(0, |profile| profile.steps.len()));
        steps.min().unwrap_or(0)
    }

    /// Returns the number of steps of all traces.
    pub(super) fn steps(&self) -> u64 {
        self.profiles.iter().map(|profile| profile.steps.len() as u64).sum()
    }

    /// Returns the class of the side for a class of a trace.
    fn class_number(&self, trace: usize, class: u32) -> Option<u32> {
        self.numbers.get(trace)?.get(class as usize).copied()
    }

    /// Returns the outline of a step, with the side's classes.
    pub(super) fn outline(&self) -> &Outline {
        &self.outline
    }

    /// Returns the time on the critical path of steps or traces, by kind and class.
    pub(super) fn path(&self, has_steps: bool) -> impl Iterator<Item = PathShare> {
        self.profiles.iter().enumerate().flat_map(move |(trace, profile)| {
            let shares = if has_steps { &profile.step_path } else { &profile.span_path };
            let number = move |class: Option<u32>| class.and_then(|class| self.class_number(trace, class));
            shares.iter().map(move |(kind, class, ns)| (*kind, number(*class), *ns))
        })
    }

    fn class_profiles<'s>(&'s self, group: &'s [u32], trace: usize) -> impl Iterator<Item = &'p ClassProfile> + 's {
        let classes = group.iter().filter_map(|class| self.classes.get(*class as usize));
        classes.filter_map(move |class| class.profiles.get(trace).copied().flatten())
    }

    fn all_profiles<'s>(&'s self, group: &'s [u32]) -> impl Iterator<Item = &'p ClassProfile> + 's {
        (0..self.profiles.len()).flat_map(|trace| self.class_profiles(group, trace))
    }

    /// Returns the figures of classes; means are of steps, or of traces.
    pub(super) fn figures(&self, group: &[u32], has_steps: bool) -> ClassSide {
        let mut figures = ClassSide::default();
        let names = group.iter().filter_map(|class| self.classes.get(*class as usize));
        figures.names = names.map(|class| class.name.to_owned()).collect();
        let (mut count, mut ns) = (0u64, 0u64);
        for class in self.all_profiles(group) {
            figures.count += class.count;
            figures.total_ns = figures.total_ns.saturating_add(class.ns);
            figures.with_children_ns = figures.with_children_ns.saturating_add(class.with_children_ns);
            if has_steps {
                count += class.steps.iter().map(|share| share.count).sum::<u64>();
                ns = class.steps.iter().fold(ns, |ns, share| ns.saturating_add(share.ns));
            }
        }
        if !has_steps {
            (count, ns) = (figures.count, figures.total_ns);
        }
        let units = if has_steps { self.steps() } else { self.traces() }.max(1);
        (figures.mean_count, figures.mean_ns) = (count as f64 / units as f64, ns / units);
        figures
    }

    /// Returns the share of runs in which any of the classes occurs.
    pub(super) fn run_share(&self, group: &[u32]) -> f64 {
        let occurs = |trace: &usize| self.class_profiles(group, *trace).next().is_some();
        let occurring = self.runs.iter().filter(|traces| traces.iter().any(occurs)).count();
        occurring as f64 / self.runs.len().max(1) as f64
    }

    /// Returns the steps of each run in which any of the classes occurs.
    pub(super) fn step_series(&self, group: &[u32]) -> Vec<StepSeries> {
        self.runs.iter().map(|traces| self.run_series(group, traces)).collect()
    }

    /// Returns the steps that all ranks of a run have.
    fn run_series(&self, group: &[u32], traces: &[usize]) -> StepSeries {
        let steps = self.run_steps(traces);
        let ranks = traces.len().max(1) as f64;
        let shares = traces.iter().flat_map(|trace| self.class_profiles(group, *trace)).flat_map(|class| &class.steps);
        let shares = shares.filter(|share| (share.step as usize) < steps);
        let mut values: Vec<_> =
            shares.map(|share| (share.step, share.count as f64 / ranks, share.ns as f64 / ranks)).collect();
        sort_few_by_key(&mut values, |(step, ..)| *step);
        values.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            if is_same {
                (kept.1, kept.2) = (kept.1 + next.1, kept.2 + next.2);
            }
            is_same
        });
        StepSeries { steps, values }
    }

    /// Returns the length of each step of each run.
    pub(super) fn step_lengths(&self) -> Vec<StepSeries> {
        self.mean_of_ranks(|profile| profile.steps.iter().copied().map(to_float).collect())
            .map(|lengths| StepSeries::from_times(lengths.into_iter()))
            .collect()
    }

    /// Returns the values of each run: the mean of those of its ranks, as many as all ranks have.
    fn mean_of_ranks<'s>(
        &'s self,
        of_trace: impl Fn(&'s TraceProfile) -> Vec<f64> + 's,
    ) -> impl Iterator<Item = Vec<f64>> + 's {
        self.runs.iter().map(move |traces| {
            let ranks = traces.iter().filter_map(|trace| self.profiles.get(*trace).copied()).map(&of_trace);
            mean_of_lists(&ranks.collect::<Vec<_>>())
        })
    }

    /// Estimates the mean time of a step or trace, by run.
    pub(super) fn estimate_total(&self, has_steps: bool) -> Vec<Option<Estimate>> {
        let values = move |profile: &TraceProfile| {
            let spans = [profile.span_ns];
            let values: &[u64] = if has_steps { &profile.steps } else { &spans };
            values.iter().copied().map(to_float).collect()
        };
        Estimate::from_runs(self.mean_of_ranks(values))
    }

    /// Estimates the mean time of one event of classes, by run.
    pub(super) fn estimate_occurrences(&self, group: &[u32]) -> Vec<Option<Estimate>> {
        let of_trace = |trace| self.class_profiles(group, trace).flat_map(|class| class.occurrences.means()).collect();
        Estimate::from_runs(self.runs.iter().map(|traces| {
            let ranks: Vec<Vec<f64>> = traces.iter().map(|trace| of_trace(*trace)).collect();
            mean_of_lists(&ranks.into_iter().filter(|values| !values.is_empty()).collect::<Vec<_>>())
        }))
    }

    /// Returns the events of a class in order: their number, that of a batch, and the mean of each batch. `None` for several traces or classes.
    pub(super) fn event_sequence(&self, group: &[u32]) -> Option<((u64, u64), Vec<f64>)> {
        let mut profiles = self.all_profiles(group);
        let class = profiles.next().filter(|_| self.profiles.len() == 1 && group.len() == 1)?;
        Some(((class.count, class.occurrences.batch_len()), class.occurrences.means()))
    }

    /// Returns the share of events by the class around them.
    pub(super) fn parent_shares(&self, group: &[u32]) -> HashMap<Option<u32>, f64> {
        let mut counts: HashMap<Option<u32>, u64> = HashMap::default();
        for trace in 0..self.profiles.len() {
            for (parent, count) in self.class_profiles(group, trace).flat_map(|class| &class.parents) {
                let parent = parent.and_then(|parent| self.class_number(trace, parent));
                *counts.entry(parent).or_default() += count;
            }
        }
        to_shares(counts)
    }

    /// Returns the time on each stream, of some classes or of all.
    pub(super) fn stream_times(&self, group: Option<&[u32]>) -> HashMap<&'p (TrackId, TrackId), u64> {
        let mut times: HashMap<&'p (TrackId, TrackId), u64> = HashMap::default();
        let all: Vec<u32> = if group.is_none() { (0..).take(self.classes.len()).collect() } else { Vec::new() };
        for (stream, ns) in self.all_profiles(group.unwrap_or(&all)).flat_map(|class| &class.streams) {
            let time = times.entry(stream).or_default();
            *time = time.saturating_add(*ns);
        }
        times
    }
}

/// Turns counts into shares of their sum.
pub(super) fn to_shares<K: Eq + std::hash::Hash>(counts: HashMap<K, u64>) -> HashMap<K, f64> {
    let all: f64 = counts.values().map(|count| *count as f64).sum();
    counts.into_iter().map(|(key, count)| (key, count as f64 / all.max(1.0))).collect()
}

/// The traces of a side by run, and those that take no part.
struct TraceRuns {
    /// The number of steps, by trace.
    steps: Vec<usize>,
    ranks: Vec<Option<i64>>,
    runs: Vec<Vec<usize>>,
    left_out: Vec<LeftOutTrace>,
}

impl TraceRuns {
    /// Groups traces: the first of each rank are the first run. Ranks that only one side has do not count.
    fn new(profiles: &[TraceProfile], other: &[TraceProfile]) -> TraceRuns {
        let ranks = |profiles: &[TraceProfile]| profiles.iter().map(|profile| profile.rank).collect::<Vec<_>>();
        let (own, other): (Vec<_>, HashSet<_>) = (ranks(profiles), ranks(other).into_iter().collect());
        let has_common = own.iter().any(|rank| other.contains(rank));
        let mut next: HashMap<Option<i64>, usize> = HashMap::default();
        let mut grouped: Vec<Vec<usize>> = Vec::new();
        let mut of_one_side = Vec::new();
        for (trace, rank) in own.iter().enumerate() {
            if has_common && !other.contains(rank) {
                of_one_side.push(trace);
                continue;
            }
            let run = next.entry(*rank).or_default();
            match grouped.get_mut(*run) {
                Some(traces) => traces.push(trace),
                None => grouped.push(vec![trace]),
            }
            *run += 1;
        }
        let steps = profiles.iter().map(|profile| profile.steps.len()).collect();
        let mut found = TraceRuns { steps, ranks: own, runs: Vec::new(), left_out: Vec::new() };
        found.leave_out(of_one_side, LeftOutReason::RankOfOneSide);
        // A run that lacks a rank has another mean.
        let all = grouped.first().map_or(0, Vec::len);
        let (complete, incomplete) = grouped.into_iter().partition(|traces| traces.len() == all);
        found.runs = complete;
        let incomplete: Vec<Vec<usize>> = incomplete;
        found.leave_out(incomplete.into_iter().flatten(), LeftOutReason::IncompleteRun);
        found
    }

    fn leave_out(&mut self, traces: impl IntoIterator<Item = usize>, reason: LeftOutReason) {
        let left_out = |trace| LeftOutTrace { trace, rank: self.ranks.get(trace).copied().flatten(), reason };
        self.left_out.extend(traces.into_iter().map(left_out));
    }

    /// Returns whether each trace of a run has enough steps to show their spread.
    fn is_long(&self, traces: &[usize]) -> bool {
        traces.iter().all(|trace| self.steps.get(*trace).is_some_and(|steps| *steps >= MIN_VALUES))
    }

    fn has_long(&self) -> bool {
        self.runs.iter().any(|traces| self.is_long(traces))
    }

    /// Leaves out runs with few steps.
    fn leave_out_short(&mut self) {
        let (long, short) = std::mem::take(&mut self.runs).into_iter().partition(|traces| self.is_long(traces));
        self.runs = long;
        let short: Vec<Vec<usize>> = short;
        self.leave_out(short.into_iter().flatten(), LeftOutReason::FewSteps);
    }
}

/// Returns the means of the first values, the second ones, and so on, as many as all lists have.
fn mean_of_lists(lists: &[Vec<f64>]) -> Vec<f64> {
    let count = lists.iter().map(Vec::len).min().unwrap_or(0);
    let mean = |at: usize| lists.iter().filter_map(|list| list.get(at)).sum::<f64>() / lists.len() as f64;
    (0..count).map(mean).collect()
}

/// Returns the share of steps in which classes occur.
pub(super) fn occurring_share(runs: &[StepSeries]) -> f64 {
    let (occurring, all) =
        runs.iter().fold((0, 0), |(occurring, all), run| (occurring + run.values.len(), all + run.steps));
    occurring as f64 / all.max(1) as f64
}

/// Returns the least, the median and the highest number of events in a step.
pub(super) fn step_counts(runs: &[StepSeries]) -> Option<[f64; 3]> {
    let lacking = runs.iter().map(|run| run.steps - run.values.len()).sum::<usize>();
    let mut counts: Vec<f64> = runs.iter().flat_map(|run| &run.values).map(|(_, count, _)| *count).collect();
    counts.sort_unstable_by(f64::total_cmp);
    let all = lacking + counts.len();
    // Steps without events come first.
    let at = |place: usize| place.checked_sub(lacking).and_then(|place| counts.get(place).copied()).unwrap_or(0.0);
    (all > 0).then(|| [at(0), at(all / 2), at(all - 1)])
}

fn to_float(ns: u64) -> f64 {
    ns as f64
}
