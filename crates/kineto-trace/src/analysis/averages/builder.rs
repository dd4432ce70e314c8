//! Groups and sums the events of a trace into averages.

use super::timed::{TimedWork, WorkNodes, is_timed};
use super::{Average, Bytes, KeyAverages, Section};
use crate::activity::{ActivityType, DeviceType};
use crate::analysis::events::{Event, Events, MEMORY_EVENT, TrackId, values};
use crate::analysis::flops::FlopRegistry;
use crate::analysis::relations::{Attribution, Forest, Nesting, Threads};
use crate::analysis::stacks::CallStacks;
use crate::hash::HashMap;
use crate::sorting::sort_few_by_key;
use crate::time::Timestamp;
use std::fmt;

/// Groups and filters operations and kernels; made by [`Events::averages`].
///
/// ```no_run
/// # fn show(events: &kineto_trace::analysis::Events) {
/// use kineto_trace::analysis::GroupBy;
///
/// let averages = events.averages().by(GroupBy::Shapes).by(GroupBy::Thread).compute();
/// let batches = events.averages().by_key("Batch", |event| format!("{:?}", event.arg("batch"))).compute();
/// # }
/// ```
#[must_use = "call `compute` to get the averages"]
pub struct AveragesBuilder<'e> {
    events: &'e Events,
    groups: Vec<Grouping<'e>>,
    flops: FlopRegistry,
    window: Option<(Timestamp, Timestamp)>,
}

/// A grouping key of rows, in addition to their name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GroupBy {
    /// The shapes of the inputs, `Input Dims`.
    Shapes,
    /// The given number of innermost stack frames; see [`Events::export_stacks`].
    Stack(usize),
    /// The device; "host" for operations.
    Device,
    /// The thread or stream.
    Thread,
    /// The target of the span.
    Target,
    /// The overload of the operation.
    Overload,
}

/// The title of a grouping, and how to compute an event's key.
struct Grouping<'e> {
    title: String,
    key: GroupKey<'e>,
}

enum GroupKey<'e> {
    BuiltIn(GroupBy),
    Custom(Box<dyn Fn(&Event<'_>) -> String + 'e>),
}

impl GroupBy {
    fn column_title(self) -> &'static str {
        match self {
            GroupBy::Shapes => SHAPES_TITLE,
            GroupBy::Stack(_) => STACK_TITLE,
            GroupBy::Device => "Device",
            GroupBy::Thread => "Thread",
            GroupBy::Target => "Target",
            GroupBy::Overload => OVERLOAD_TITLE,
        }
    }
}

/// Titles of columns that have a fixed place in the table.
pub(super) const SHAPES_TITLE: &str = "Input Shapes";
pub(super) const STACK_TITLE: &str = "Source Location";
pub(super) const OVERLOAD_TITLE: &str = "Overload Name";

impl<'e> AveragesBuilder<'e> {
    pub(super) fn new(events: &'e Events) -> AveragesBuilder<'e> {
        AveragesBuilder { events, groups: Vec::new(), flops: FlopRegistry::default(), window: None }
    }

    /// Adds a grouping key.
    pub fn by(mut self, group: GroupBy) -> Self {
        self.groups.push(Grouping { title: group.column_title().to_owned(), key: GroupKey::BuiltIn(group) });
        self
    }

    /// Groups by the result of `key` too, in a column of that title.
    pub fn by_key(mut self, title: impl Into<String>, key: impl Fn(&Event<'_>) -> String + 'e) -> Self {
        self.groups.push(Grouping { title: title.into(), key: GroupKey::Custom(Box::new(key)) });
        self
    }

    /// Sets the formulas that count FLOPs. Default: [`FlopRegistry::default`].
    pub fn flops(self, registry: FlopRegistry) -> Self {
        AveragesBuilder { flops: registry, ..self }
    }

    /// Selects operations and allocations that begin in this window (`start..end`), and device work that was launched in it.
    ///
    /// Device work whose launch is unknown is selected by the start of its operation, or else by its own.
    pub fn within(self, start: Timestamp, end: Timestamp) -> Self {
        AveragesBuilder { window: Some((start, end)), ..self }
    }

    /// Computes the averages, in time and memory linear in the number of events except for sorting.
    pub fn compute(self) -> KeyAverages {
        let nesting = Nesting::new(self.events);
        let attribution = Attribution::new(self.events, &nesting);
        self.compute_with(&nesting, &attribution)
    }

    /// Computes the averages from the events' relations.
    pub(crate) fn compute_with(self, nesting: &Nesting, attribution: &Attribution<'_>) -> KeyAverages {
        let events = self.events;
        let is_selected = |event: &Event<'_>| self.is_within(event.start()) && !event.is_hidden();
        let forest =
            Forest::new(events, &nesting.filter_slices(events, is_selected)).merge_same_named_only_children(events);
        let stacks = self.groups.iter().any(|group| matches!(group.key, GroupKey::BuiltIn(GroupBy::Stack(_))));
        let stacks = stacks.then(|| CallStacks::new(events, &forest));
        let mut rows = RowBuilder::new(&self, stacks);
        let mut averages = KeyAverages { device: device_name(events), ..KeyAverages::default() };

        let mut costs = vec![OpCost::default(); forest.nodes.len()];
        let work_nodes = WorkNodes { attribution, nesting, forest: &forest };
        self.attribute_work(&work_nodes, &mut costs, &mut rows, &mut averages);
        self.attribute_memory(&forest, &mut costs, &mut averages);
        self.attribute_flops(&forest, &mut costs, &mut averages);
        add_to_parents(&forest, &mut costs);
        rows.add_ops(&forest, &costs);

        let mut rows = rows.rows;
        rows.iter_mut().for_each(|row| row.durations.sort_unstable());
        sort_few_by_key(&mut rows, |row| row.first);
        for row in rows {
            match row.section {
                Section::Ops => averages.ops.push(row),
                Section::Kernels => averages.kernels.push(row),
                Section::DeviceAnnotations => averages.annotations.push(row),
            }
        }
        sort_few_by_key(&mut averages.ops, |row| std::cmp::Reverse(row.self_cpu_ns));
        sort_few_by_key(&mut averages.kernels, |row| std::cmp::Reverse(row.self_device_ns));
        sort_few_by_key(&mut averages.annotations, |row| std::cmp::Reverse(row.self_device_ns));
        let missing = events.notes().filter(|(note, _)| note.is_loss());
        averages.notes = missing.map(|(note, count)| format!("{note}: {count}")).collect();
        averages.groups = self.groups.into_iter().map(|group| group.title).collect();
        averages
    }

    fn is_within(&self, at: Timestamp) -> bool {
        self.window.is_none_or(|(start, end)| (start..end).contains(&at))
    }

    /// Adds the rows of devices, and charges the time of kernels to the operations that launched them.
    fn attribute_work(
        &self,
        nodes: &WorkNodes<'_>,
        costs: &mut [OpCost],
        rows: &mut RowBuilder<'_, 'e>,
        averages: &mut KeyAverages,
    ) {
        let mut timed = TimedWork::new(self.events, nodes);
        let mut annotations = AnnotationCoverage::default();
        for event in self.events.iter() {
            let Some(section) = section_of(&event) else { continue };
            let launched = nodes.attribution.launch(event).or(nodes.attribution.op(event)).unwrap_or(event);
            if !self.is_within(launched.start()) {
                continue;
            }
            let node = nodes.op_node(event);
            let ns = event.duration_ns();
            let place = rows.row_index(&event, section, None);
            let (all_ns, own_ns) = match section {
                Section::DeviceAnnotations => [annotations.uncovered_ns(place, event); 2].into(),
                _ => (ns, timed.own_ns(&event, node)),
            };
            let row = rows.row_mut(place);
            row.self_device_ns = row.self_device_ns.saturating_add(own_ns);
            row.device_ns = row.device_ns.saturating_add(all_ns);
            row.durations.push(ns);
            row.enters += 1;
            if section == Section::Kernels {
                match node.and_then(|node| costs.get_mut(node)) {
                    Some(cost) => cost.self_device_ns = cost.self_device_ns.saturating_add(own_ns),
                    None => averages.unattributed_device_ns = averages.unattributed_device_ns.saturating_add(own_ns),
                }
            }
        }
    }

    /// Charges allocations to the innermost operation that was open on the same thread at that time.
    fn attribute_memory(&self, forest: &Forest, costs: &mut [OpCost], averages: &mut KeyAverages) {
        let mut sweep = forest.sweep(self.events);
        let mut outside = Average { name: MEMORY_EVENT.to_owned(), is_top_level: true, ..Average::default() };
        let memory = self.events.iter().filter(|event| event.is_instant() && event.name() == MEMORY_EVENT);
        for event in memory.filter(|event| self.is_within(event.start())) {
            let Some(bytes) = event.bytes() else { continue };
            let on_host = event
                .arg("Device Type")
                .and_then(values::as_signed)
                .is_none_or(|kind| HOST_DEVICE_TYPES.contains(&kind));
            let bytes = if on_host { Bytes { host: bytes, device: 0 } } else { Bytes { host: 0, device: bytes } };
            averages.has_memory = true;
            match sweep.innermost_node(&event).and_then(|node| costs.get_mut(node)) {
                Some(cost) => cost.self_bytes.add(bytes),
                None => {
                    outside.self_bytes.add(bytes);
                    outside.durations.push(0);
                    outside.enters += 1;
                }
            }
        }
        outside.total_bytes = outside.self_bytes;
        outside.first = u32::MAX;
        averages.outside_ops = (!outside.durations.is_empty()).then_some(outside);
    }

    fn attribute_flops(&self, forest: &Forest, costs: &mut [OpCost], averages: &mut KeyAverages) {
        for number in forest.unmerged_nodes() {
            let around =
                forest.parent(number).and_then(|parent| costs.get(parent)).is_some_and(|cost| cost.is_flops_counted);
            let flops = forest.node_event(self.events, number).and_then(|event| self.flops.flops(&event)).unwrap_or(0);
            if let Some(cost) = costs.get_mut(number) {
                cost.flops = flops;
                cost.is_flops_counted = around || flops > 0;
                averages.flops = averages.flops.saturating_add(if around { 0 } else { flops });
            }
        }
    }
}

/// What an operation costs in addition to its time.
#[derive(Clone, Copy, Debug, Default)]
struct OpCost {
    self_device_ns: u64,
    device_ns: u64,
    self_bytes: Bytes,
    total_bytes: Bytes,
    flops: u64,
    /// Whether it or an operation around it has FLOPs.
    is_flops_counted: bool,
}

/// How far annotations have been counted: each stream has a copy of an annotation, with overlapping times.
#[derive(Default)]
struct AnnotationCoverage<'e> {
    /// By row, name and device.
    covered: HashMap<(usize, &'e str, &'e TrackId), Timestamp>,
}

impl<'e> AnnotationCoverage<'e> {
    /// Returns the part of a copy's duration that no copy before it covered. Copies come in order of their start.
    fn uncovered_ns(&mut self, row: usize, copy: Event<'e>) -> u64 {
        let covered = self.covered.entry((row, copy.name(), &copy.track().process)).or_default();
        let from = copy.start().max(*covered);
        *covered = copy.end().max(*covered);
        copy.end().since(from)
    }
}

/// All enters of a future's span, which are one call.
struct FutureCall {
    /// The start of the first enter.
    start: Timestamp,
    /// The index of the row of the first enter.
    place: usize,
    /// The total time of its slices, in nanoseconds.
    busy_ns: u64,
    enters: u64,
}

/// The rows being built.
struct RowBuilder<'a, 'e> {
    averaging: &'a AveragesBuilder<'e>,
    stacks: Option<CallStacks<'a>>,
    rows: Vec<Average>,
    row_indices: HashMap<(&'e str, Section, bool, Vec<String>), usize>,
    /// By span.
    futures: HashMap<u64, FutureCall>,
    threads: Threads<'e>,
}

impl<'a, 'e> RowBuilder<'a, 'e> {
    fn new(averaging: &'a AveragesBuilder<'e>, stacks: Option<CallStacks<'a>>) -> RowBuilder<'a, 'e> {
        let (rows, places, futures) = Default::default();
        RowBuilder { averaging, stacks, rows, row_indices: places, futures, threads: Threads::new(averaging.events) }
    }

    /// Returns the row of an event, and adds it if it is missing.
    fn row_of(&mut self, event: &Event<'e>, section: Section, node: Option<usize>) -> &mut Average {
        let place = self.row_index(event, section, node);
        self.row_mut(place)
    }

    fn row_mut(&mut self, place: usize) -> &mut Average {
        #[expect(clippy::indexing_slicing, reason = "places are those of rows")]
        &mut self.rows[place]
    }

    /// Counts an operation in its row: as a call, as an enter of one, or as both.
    fn add_call(&mut self, event: &Event<'e>, node: usize) {
        let (place, ns) = (self.row_index(event, Section::Ops, Some(node)), event.duration_ns());
        if let Some((span, enters)) = call_of(event) {
            let start = event.start();
            let call = self.futures.entry(span).or_insert(FutureCall { start, place, busy_ns: 0, enters });
            call.busy_ns = call.busy_ns.saturating_add(ns);
            if start < call.start {
                (call.start, call.place) = (start, place);
            }
            return;
        }
        let row = self.row_mut(place);
        row.enters += 1;
        if event.arg("reentered").is_none() {
            row.durations.push(ns);
        }
    }

    /// Counts each future as one call, in the row of its first enter.
    fn count_futures(&mut self) {
        for call in std::mem::take(&mut self.futures).into_values() {
            let row = self.row_mut(call.place);
            row.durations.push(call.busy_ns);
            row.enters += call.enters;
        }
    }

    /// Returns the index of the row of an event, and adds the row if it is missing.
    fn row_index(&mut self, event: &Event<'e>, section: Section, node: Option<usize>) -> usize {
        let name = if event.name().starts_with("ProfilerStep#") { "ProfilerStep*" } else { event.name() };
        let is_annotation = section == Section::DeviceAnnotations || event.kind() == Some(ActivityType::UserAnnotation);
        let groups = &self.averaging.groups;
        let keys: Vec<String> = groups.iter().map(|group| self.group_key(group, event, section, node)).collect();
        let first = u32::try_from(event.index()).unwrap_or(u32::MAX);
        let rows = &mut self.rows;
        let place =
            *self.row_indices.entry((name, section, is_annotation, keys)).or_insert_with_key(|(_, _, _, keys)| {
                let (name, keys) = (name.to_owned(), keys.clone());
                let (is_top_level, first) = (true, u32::MAX);
                rows.push(Average { name, keys, section, is_annotation, is_top_level, first, ..Average::default() });
                rows.len() - 1
            });
        let row = self.row_mut(place);
        row.first = row.first.min(first);
        place
    }

    fn group_key(&self, group: &Grouping<'e>, event: &Event<'_>, section: Section, node: Option<usize>) -> String {
        let known = match &group.key {
            GroupKey::Custom(key) => return key(event),
            GroupKey::BuiltIn(known) => *known,
        };
        let text =
            |keys: &[&str]| keys.iter().find_map(|key| event.arg(key)).map(values::shown_text).unwrap_or_default();
        match known {
            GroupBy::Shapes => format_shapes(&text(&["Input Dims"])),
            GroupBy::Target => text(&["target"]),
            GroupBy::Overload => text(&["Overload Name", "overload_name"]),
            GroupBy::Stack(n) => {
                let stacks = self.stacks.as_ref().zip(node);
                stacks.map(|(stacks, node)| stacks.describe_callers(node, n).join("\n")).unwrap_or_default()
            }
            GroupBy::Device if section == Section::Ops => "host".to_owned(),
            GroupBy::Device => {
                event.device_index().map_or_else(|| event.track().process.to_string(), |device| device.to_string())
            }
            GroupBy::Thread => {
                let track = self.averaging.events.tracks().get(self.threads.thread_track(event));
                track.map(|track| (track.thread.to_string(), &track.name)).map_or_else(String::new, |(id, name)| {
                    // Threads of a pool may share a name.
                    if name.contains(&id) { name.clone() } else { format!("{name} {id}").trim_start().to_owned() }
                })
            }
        }
    }

    /// Adds the rows of the host.
    fn add_ops(&mut self, forest: &Forest, costs: &[OpCost]) {
        let events = self.averaging.events;
        let self_ns = forest.self_ns();
        for number in forest.unmerged_nodes() {
            let event = forest.node_event(events, number).zip(costs.get(number)).zip(self_ns.get(number));
            let Some(((event, cost), self_ns)) = event else { continue };
            let row = self.row_of(&event, Section::Ops, Some(number));
            if row.first as usize == event.index() {
                row.is_top_level = forest.parent(number).is_none();
            }
            row.cpu_ns = row.cpu_ns.saturating_add(event.duration_ns());
            row.self_cpu_ns = row.self_cpu_ns.saturating_add(*self_ns);
            row.self_device_ns = row.self_device_ns.saturating_add(cost.self_device_ns);
            row.device_ns = row.device_ns.saturating_add(cost.device_ns);
            row.self_bytes.add(cost.self_bytes);
            row.total_bytes.add(cost.total_bytes);
            row.flops = row.flops.saturating_add(cost.flops);
            self.add_call(&event, number);
        }
        self.count_futures();
    }
}

/// Returns the span whose enters are one call, and their number, which older files give as `polls`.
fn call_of(event: &Event<'_>) -> Option<(u64, u64)> {
    let enters = event.arg("enters").or_else(|| event.arg("polls"))?;
    Some((event.span()?, values::as_signed(enters)?.unsigned_abs()))
}

/// Adds each operation's costs to its parent's. Children come after their parents.
fn add_to_parents(forest: &Forest, costs: &mut [OpCost]) {
    for number in forest.unmerged_nodes().rev() {
        let Some(cost) = costs.get_mut(number) else { continue };
        cost.device_ns = cost.device_ns.saturating_add(cost.self_device_ns);
        cost.total_bytes.add(cost.self_bytes);
        let cost = *cost;
        if let Some(parent) = forest.parent(number).and_then(|parent| costs.get_mut(parent)) {
            parent.device_ns = parent.device_ns.saturating_add(cost.device_ns);
            parent.total_bytes.add(cost.total_bytes);
        }
    }
}

/// Returns the section of a device event; `None` if it has no row.
fn section_of(event: &Event<'_>) -> Option<Section> {
    match event.kind().filter(|_| event.is_slice() && !event.is_hidden())? {
        _ if is_timed(event) => Some(Section::Kernels),
        ActivityType::GpuUserAnnotation => Some(Section::DeviceAnnotations),
        _ => event.is_device_work().then_some(Section::Kernels),
    }
}

/// torch's device type numbers whose memory is the host's: CPU, MKLDNN and IDEEP.
const HOST_DEVICE_TYPES: [i64; 3] = [0, 2, 5];

/// Returns the name of the trace's devices in torch's table.
fn device_name(events: &Events) -> String {
    match events.iter().find(|event| event.is_device_work() || is_timed(event)).and_then(|work| work.device_type()) {
        Some(device) => events.device_name(device).to_uppercase(),
        None => DeviceType::Cuda.as_str().to_owned(),
    }
}

/// Returns a list with a space after each comma, "[]" if empty, as torch prints shapes.
fn format_shapes(text: &str) -> String {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    if text.is_empty() { "[]".to_owned() } else { parts.join(", ") }
}

impl fmt::Debug for AveragesBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let titles: Vec<_> = self.groups.iter().map(|group| &group.title).collect();
        f.debug_struct("AveragesBuilder").field("groups", &titles).field("window", &self.window).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
