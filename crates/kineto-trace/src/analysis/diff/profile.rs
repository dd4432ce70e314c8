//! A trace reduced to what a comparison needs: times of each class by step, and the outline of one step.

use super::outline::Outline;
use crate::activity::ActivityType;
use crate::analysis::events::{Event, Events, StringId, TrackId};
use crate::analysis::relations::{Attribution, Forest, Nesting};
use crate::analysis::summary::{CriticalPath, Devices, PathKind, PathPlace, WorkClass, distributed_rank, step_windows};
use crate::hash::HashMap;
use crate::sorting::{sort_few, sort_few_by_key};
use crate::time::Timestamp;
use kineto_model::named_values;
use std::fmt;
use std::ops::Range;

/// A trace reduced to what a comparison needs: about 2 KiB for each class, and 24 bytes for each of its steps; made by [`Events::profile`].
///
/// It holds the times of each class by step, the parts of the critical path, and the outline of one step. So a set of traces is compared
/// without keeping their events.
#[derive(Clone, Default)]
pub struct TraceProfile {
    pub(super) span_ns: u64,
    /// The rank in `distributedInfo`.
    pub(super) rank: Option<i64>,
    pub(super) steps: Vec<u64>,
    pub(super) classes: Vec<ClassProfile>,
    /// The critical path within the steps: kind, class and time. It fills the steps exactly.
    pub(super) step_path: Vec<PathShare>,
    /// The same of the trace.
    pub(super) span_path: Vec<PathShare>,
    pub(super) outline: Outline,
}

/// The time on a critical path of one kind and class.
pub(super) type PathShare = (PathKind, Option<u32>, u64);

named_values! {
    /// What is compared by name.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[non_exhaustive]
    pub enum ClassKind {
        /// An operation or span of the host: its self time.
        Operation => "operation",
        /// An annotation on the host: its self time.
        Annotation => "annotation",
        /// A call of the runtime or the driver: its self time.
        Call => "call",
        /// A kernel, copy or fill: its duration.
        Work => "work",
        /// An annotation on a device, from its first to its last work.
        DeviceAnnotation => "device_annotation",
    }

    /// Returns the name in JSON: "operation", "annotation", "call", "work" or "`device_annotation`".
    pub const fn as_str;
}

impl ClassKind {
    /// Returns whether its time passes on a device.
    pub const fn is_on_device(self) -> bool {
        matches!(self, ClassKind::Work | ClassKind::DeviceAnnotation)
    }
}

/// All events of one kind and name.
#[derive(Clone, Debug)]
pub(super) struct ClassProfile {
    pub(super) kind: ClassKind,
    pub(super) name: String,
    /// The class of device work.
    pub(super) work: Option<WorkClass>,
    pub(super) count: u64,
    pub(super) ns: u64,
    pub(super) with_children_ns: u64,
    /// The steps in which it occurs, in order.
    pub(super) steps: Vec<StepShare>,
    pub(super) occurrences: Batches,
    /// The number of events by the class around them.
    pub(super) parents: HashMap<Option<u32>, u64>,
    /// The time by device and stream.
    pub(super) streams: HashMap<(TrackId, TrackId), u64>,
}

/// One class in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepShare {
    pub(super) step: u32,
    pub(super) count: u64,
    pub(super) ns: u64,
}

/// Successive durations, summed in batches of equal count so that their number is bounded.
#[derive(Clone, Debug, Default)]
pub(super) struct Batches {
    /// The durations of a full batch, as a power of two.
    exponent: u32,
    batches: Vec<(u64, u64)>,
}

impl Batches {
    /// The maximum number of batches; an even number.
    const MAX: usize = 128;

    pub(super) fn push(&mut self, ns: u64) {
        let full = self.batch_len();
        match self.batches.last_mut().filter(|(count, _)| *count < full) {
            Some((count, sum)) => (*count, *sum) = (*count + 1, sum.saturating_add(ns)),
            None => self.batches.push((1, ns)),
        }
        if self.batches.len() > Batches::MAX {
            let merged = self.batches.chunks(2).map(|pair| {
                pair.iter().fold((0, 0), |sum: (u64, u64), one| (sum.0 + one.0, sum.1.saturating_add(one.1)))
            });
            (self.batches, self.exponent) = (merged.collect(), self.exponent + 1);
        }
    }

    /// Returns the number of durations in a full batch.
    pub(super) fn batch_len(&self) -> u64 {
        1u64 << self.exponent.min(63)
    }

    /// Returns the mean duration of each full batch.
    pub(super) fn means(&self) -> Vec<f64> {
        let full = self.batch_len();
        self.batches
            .iter()
            .filter(|(count, _)| *count == full)
            .map(|(count, sum)| *sum as f64 / *count as f64)
            .collect()
    }
}

impl TraceProfile {
    /// Drops what only the first trace of a side needs: the outlines of all others.
    ///
    /// The comparison of the side does not change, and large sets take less memory.
    ///
    /// ```
    /// use kineto_trace::analysis::{Diff, Events, TraceProfile};
    ///
    /// let trace = r#"{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "load", "pid": 1, "tid": 1, "ts": 0, "dur": 5}]}"#;
    /// let profile = Events::from_reader(trace.as_bytes())?.profile();
    /// let mut runs = vec![profile.clone(), profile];
    /// TraceProfile::keep_one_outline(&mut runs);
    /// assert!(!Diff::between(&runs, &runs).is_slower());
    /// # Ok::<(), kineto_trace::Error>(())
    /// ```
    pub fn keep_one_outline(side: &mut [TraceProfile]) {
        let has_outline = |profile: &&mut TraceProfile| profile.outline.nodes.len() > 1;
        side.iter_mut().filter(has_outline).skip(1).for_each(|profile| profile.outline = Outline::default());
    }
}

impl fmt::Debug for TraceProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceProfile")
            .field("span_ns", &self.span_ns)
            .field("steps", &self.steps.len())
            .field("classes", &self.classes.len())
            .finish_non_exhaustive()
    }
}

impl Events {
    /// Reduces the trace to what [`Diff`](super::Diff) compares.
    pub fn profile(&self) -> TraceProfile {
        let nesting = Nesting::new(self);
        let attribution = Attribution::new(self, &nesting);
        let devices = Devices::new(self, &attribution);
        let windows = step_windows(self, &devices);
        let forest = Forest::new(self, &nesting).merge_same_named_only_children(self);
        let mut profiler =
            Profiler { windows, classes: Vec::new(), numbers: HashMap::default(), of_event: vec![None; self.len()] };
        profiler.add_host(self, &forest);
        profiler.add_device(self, &devices, &attribution);
        let range = self.slice_range();
        let path = CriticalPath::new(self, &devices, &attribution, range.clone());
        let outline = Outline::new(&profiler, self, &forest, &devices, &attribution);
        TraceProfile {
            span_ns: range.end.since(range.start),
            rank: distributed_rank(self),
            steps: profiler.windows.iter().map(|window| window.end.since(window.start)).collect(),
            step_path: profiler.path_shares(&path, &profiler.windows),
            span_path: profiler.path_shares(&path, &[range]),
            classes: profiler.classes,
            outline,
        }
    }
}

/// Collects the classes of a trace.
pub(super) struct Profiler {
    pub(super) windows: Vec<Range<Timestamp>>,
    pub(super) classes: Vec<ClassProfile>,
    /// By kind and name; all steps have one name.
    numbers: HashMap<(ClassKind, Option<StringId>), u32>,
    /// By event: its class.
    of_event: Vec<Option<u32>>,
}

/// One event of a class.
struct Occurrence {
    at: Timestamp,
    ns: u64,
    with_children_ns: u64,
    parent: Option<u32>,
}

impl Profiler {
    pub(super) fn class_of(&self, event: usize) -> Option<u32> {
        self.of_event.get(event).copied().flatten()
    }

    /// Returns the number of the step that contains a time.
    pub(super) fn step_at(&self, at: Timestamp) -> Option<u32> {
        let last = self.windows.partition_point(|window| window.start <= at).checked_sub(1)?;
        self.windows.get(last).filter(|window| at < window.end).and_then(|_| u32::try_from(last).ok())
    }

    fn add(&mut self, event: Event<'_>, kind: ClassKind, occurrence: &Occurrence) -> Option<&mut ClassProfile> {
        let number = self.class_number(kind, event);
        if let Some(slot) = self.of_event.get_mut(event.index()) {
            *slot = Some(number);
        }
        let step = self.step_at(occurrence.at);
        let class = self.classes.get_mut(number as usize)?;
        class.count += 1;
        class.ns = class.ns.saturating_add(occurrence.ns);
        class.with_children_ns = class.with_children_ns.saturating_add(occurrence.with_children_ns);
        class.occurrences.push(occurrence.ns);
        *class.parents.entry(occurrence.parent).or_default() += 1;
        if let Some(step) = step {
            // Work of two steps may start in another order than it was launched.
            match class.steps.iter_mut().rev().take(2).find(|share| share.step == step) {
                Some(share) => (share.count, share.ns) = (share.count + 1, share.ns.saturating_add(occurrence.ns)),
                None => class.steps.push(StepShare { step, count: 1, ns: occurrence.ns }),
            }
        }
        Some(class)
    }

    fn class_number(&mut self, kind: ClassKind, event: Event<'_>) -> u32 {
        const STEP: &str = "ProfilerStep";

        let name = event.step_number().map_or(event.name(), |_| STEP);
        let new = u32::try_from(self.classes.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry((kind, (name != STEP).then_some(event.name_id()))).or_insert(new);
        if number != new {
            return number;
        }
        self.classes.push(ClassProfile {
            kind,
            name: name.to_owned(),
            work: None,
            count: 0,
            ns: 0,
            with_children_ns: 0,
            steps: Vec::new(),
            occurrences: Batches::default(),
            parents: HashMap::default(),
            streams: HashMap::default(),
        });
        number
    }

    fn add_host(&mut self, events: &Events, forest: &Forest) {
        let own = forest.self_ns();
        for node in forest.unmerged_nodes() {
            let Some(event) = forest.node_event(events, node).filter(|event| !event.is_hidden()) else { continue };
            let kind = match event.kind() {
                _ if event.is_call() => ClassKind::Call,
                Some(ActivityType::UserAnnotation) => ClassKind::Annotation,
                _ => ClassKind::Operation,
            };
            let parent =
                forest.parent(node).and_then(|parent| self.class_of(forest.node_event(events, parent)?.index()));
            let ns = own.get(node).map_or(0, |ns| u64::try_from(*ns).unwrap_or(0));
            let with_children_ns = event.duration_ns();
            self.add(event, kind, &Occurrence { at: event.start(), ns, with_children_ns, parent });
        }
    }

    fn add_device(&mut self, events: &Events, devices: &Devices<'_>, attribution: &Attribution<'_>) {
        for work in devices.work.iter().filter(|work| work.class != WorkClass::Wait) {
            let ns = work.duration_ns();
            let parent = attribution.op(work.event).and_then(|op| self.class_of(op.index()));
            let at = work.launch.map_or(work.start(), |launch| launch.start());
            let occurrence = Occurrence { at, ns, with_children_ns: ns, parent };
            let stream = devices.streams.get(work.stream);
            if let Some(class) = self.add(work.event, ClassKind::Work, &occurrence) {
                class.work = Some(work.class);
                if let Some(stream) = stream {
                    let time = class.streams.entry((stream.device.clone(), stream.stream.clone())).or_default();
                    *time = time.saturating_add(ns);
                }
            }
        }
        let annotations = events.iter().filter(|event| event.kind() == Some(ActivityType::GpuUserAnnotation));
        for event in annotations.filter(|event| event.is_slice()) {
            let ns = event.duration_ns();
            let occurrence = Occurrence { at: event.start(), ns, with_children_ns: ns, parent: None };
            self.add(event, ClassKind::DeviceAnnotation, &occurrence);
        }
        for class in &mut self.classes {
            sort_few_by_key(&mut class.steps, |share| share.step);
            class.steps.dedup_by(|next, kept| {
                let is_same = next.step == kept.step;
                if is_same {
                    (kept.count, kept.ns) = (kept.count + next.count, kept.ns.saturating_add(next.ns));
                }
                is_same
            });
        }
    }

    /// Returns the time of the path within disjoint windows, by kind and class.
    fn path_shares(&self, path: &CriticalPath<'_>, windows: &[Range<Timestamp>]) -> Vec<PathShare> {
        let mut shares: HashMap<(PathKind, Option<u32>), u64> = HashMap::default();
        for piece in path.pieces() {
            let class = piece.event.filter(|_| piece.kind.place() != PathPlace::Wait);
            let class = class.and_then(|event| self.class_of(event.index()));
            let first = windows.partition_point(|window| window.end <= piece.start);
            for window in windows.iter().skip(first).take_while(|window| window.start < piece.end) {
                let ns = piece.end.min(window.end).since(piece.start.max(window.start));
                *shares.entry((piece.kind, class)).or_default() += ns;
            }
        }
        let mut shares: Vec<_> = shares.into_iter().map(|((kind, class), ns)| (kind, class, ns)).collect();
        sort_few(&mut shares);
        shares
    }
}
