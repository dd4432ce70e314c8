//! The traces of one side, with classes that have the same number in all of them.

use super::ClassSide;
use super::noise::{Estimate, MIN_VALUES};
use super::outline::Outline;
use super::profile::{ClassKind, ClassProfile, PathShare, TraceProfile};
use crate::analysis::events::TrackId;
use crate::analysis::summary::WorkClass;
use crate::hash::HashMap;

/// The traces of one side.
pub(super) struct MergedSide<'p> {
    pub(super) profiles: &'p [TraceProfile],
    pub(super) classes: Vec<SideClass<'p>>,
    /// By trace and class of the trace: the class of the side.
    numbers: Vec<Vec<u32>>,
}

/// A class of one side.
pub(super) struct SideClass<'p> {
    pub(super) kind: ClassKind,
    pub(super) name: &'p str,
    pub(super) work: Option<WorkClass>,
    /// By trace.
    profiles: Vec<Option<&'p ClassProfile>>,
}

impl<'p> MergedSide<'p> {
    pub(super) fn new(profiles: &'p [TraceProfile]) -> MergedSide<'p> {
        let mut side = MergedSide { profiles, classes: Vec::new(), numbers: Vec::new() };
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
        side
    }

    /// Returns the number of runs: traces of other ranks are of the same run.
    pub(super) fn runs(&self) -> usize {
        let mut counts: HashMap<Option<i64>, usize> = HashMap::default();
        self.profiles.iter().for_each(|profile| *counts.entry(profile.rank).or_default() += 1);
        counts.into_values().max().unwrap_or(0)
    }

    pub(super) fn steps(&self) -> u64 {
        self.profiles.iter().map(|profile| profile.steps.len() as u64).sum()
    }

    /// Returns the class of the side for a class of a trace.
    fn class_number(&self, trace: usize, class: u32) -> Option<u32> {
        self.numbers.get(trace)?.get(class as usize).copied()
    }

    /// Returns the outline of the first trace that has one, with the side's classes.
    pub(super) fn outline(&self) -> Outline {
        let found = self.profiles.iter().enumerate().find(|(_, profile)| profile.outline.nodes.len() > 1);
        let Some((trace, profile)) = found else { return Outline::default() };
        let mut outline = profile.outline.clone();
        for node in &mut outline.nodes {
            node.class = node.class.and_then(|class| self.class_number(trace, class));
        }
        outline
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
    #[expect(clippy::cast_precision_loss, reason = "a mean number of events")]
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
        let units = if has_steps { self.steps() } else { self.profiles.len() as u64 }.max(1);
        (figures.mean_count, figures.mean_ns) = (count as f64 / units as f64, ns / units);
        figures
    }

    /// Returns the share of steps in which any of the classes occurs.
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    pub(super) fn step_share(&self, group: &[u32]) -> f64 {
        let occurring: usize = (0..self.profiles.len()).map(|trace| self.step_values(group, trace, false).len()).sum();
        occurring as f64 / self.steps().max(1) as f64
    }

    /// Returns the count and time of each step of a trace; without the steps in which nothing occurs, unless `fills`.
    fn step_values(&self, group: &[u32], trace: usize, fills: bool) -> Vec<(u64, u64)> {
        let steps = self.profiles.get(trace).map_or(0, |profile| profile.steps.len());
        let mut values = vec![(0u64, 0u64); steps];
        for share in self.class_profiles(group, trace).flat_map(|class| &class.steps) {
            if let Some((count, ns)) = values.get_mut(share.step as usize) {
                (*count, *ns) = (*count + share.count, ns.saturating_add(share.ns));
            }
        }
        values.retain(|(count, _)| fills || *count > 0);
        values
    }

    /// Estimates the mean time of classes in a step in which they occur.
    pub(super) fn estimate_steps(&self, group: &[u32]) -> Option<Estimate> {
        estimate_files(
            (0..self.profiles.len())
                .map(|trace| self.step_values(group, trace, false).into_iter().map(|(_, ns)| to_float(ns)).collect()),
        )
    }

    /// Returns the time of each step of each file; 0 for steps without the classes.
    pub(super) fn step_times(&self, group: &[u32]) -> Vec<Vec<f64>> {
        (0..self.profiles.len())
            .map(|trace| self.step_values(group, trace, true).into_iter().map(|(_, ns)| to_float(ns)).collect())
            .collect()
    }

    /// Returns the length of each step of each file.
    pub(super) fn step_lengths(&self) -> Vec<Vec<f64>> {
        self.profiles.iter().map(|profile| profile.steps.iter().copied().map(to_float).collect()).collect()
    }

    /// Estimates the mean time of one event of classes.
    pub(super) fn estimate_occurrences(&self, group: &[u32]) -> Option<Estimate> {
        estimate_files(
            (0..self.profiles.len())
                .map(|trace| self.class_profiles(group, trace).flat_map(|class| class.occurrences.means()).collect()),
        )
    }

    /// Returns the events of a class in order: their number, that of a batch, and the mean of each batch. `None` for several traces or classes.
    pub(super) fn event_sequence(&self, group: &[u32]) -> Option<((u64, u64), Vec<f64>)> {
        let mut profiles = self.all_profiles(group);
        let class = profiles.next().filter(|_| self.profiles.len() == 1 && group.len() == 1)?;
        Some(((class.count, class.occurrences.batch_len()), class.occurrences.means()))
    }

    /// Estimates the mean time of a step.
    pub(super) fn estimate_total(&self, has_steps: bool) -> Option<Estimate> {
        estimate_files(self.profiles.iter().map(|profile| {
            let spans = [profile.span_ns];
            let values: &[u64] = if has_steps { &profile.steps } else { &spans };
            values.iter().copied().map(to_float).collect()
        }))
    }

    /// Returns the least, the median and the highest number of events in a step.
    pub(super) fn step_counts(&self, group: &[u32]) -> Option<[u64; 3]> {
        let mut counts: Vec<u64> = (0..self.profiles.len())
            .flat_map(|trace| self.step_values(group, trace, true))
            .map(|(count, _)| count)
            .collect();
        counts.sort_unstable();
        Some([*counts.first()?, *counts.get(counts.len() / 2)?, *counts.last()?])
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
#[expect(clippy::cast_precision_loss, reason = "a share")]
pub(super) fn to_shares<K: Eq + std::hash::Hash>(counts: HashMap<K, u64>) -> HashMap<K, f64> {
    let all: f64 = counts.values().map(|count| *count as f64).sum();
    counts.into_iter().map(|(key, count)| (key, count as f64 / all.max(1.0))).collect()
}

/// Estimates the mean of files. Files with too few values count as one value each, if there are enough files.
fn estimate_files(files: impl Iterator<Item = Vec<f64>>) -> Option<Estimate> {
    let files: Vec<Vec<f64>> = files.filter(|values| !values.is_empty()).collect();
    let estimates: Option<Vec<Estimate>> = files.iter().map(|values| Estimate::from_values(values)).collect();
    match estimates {
        Some(estimates) => Estimate::from_files(&estimates),
        None if files.len() >= MIN_VALUES => {
            let means: Vec<f64> = files.iter().map(|values| values.iter().sum::<f64>() / values.len() as f64).collect();
            Estimate::from_values(&means)
        }
        None => None,
    }
}

#[expect(clippy::cast_precision_loss, reason = "a time of fewer than 2^53 nanoseconds")]
fn to_float(ns: u64) -> f64 {
    ns as f64
}
