//! Nesting of slices on host threads, and the time that a thread spends in each.
//!
//! A slice is inside the slice that began last among those of its thread that contain it. If two slices start together, the
//! shorter one counts as the later; if they also end together, an API call does. This is the rule of torch's tables. A slice that begins when another
//! ends comes after it. A slice of duration 0 contains nothing.
//!
//! A thread is in a slice until that slice ends, or until a slice begins that overlaps it without nesting. The self
//! time of a slice is the time its thread is in it, less the time it is in the slices directly inside. So each moment
//! counts once. Where slices overlap on one row, as in files of other programs, the overlap counts for both, as in
//! torch.

use crate::analysis::events::values::as_signed;
use crate::analysis::events::{Event, EventTrack, Events, StringId, TrackId, id_number};
use crate::hash::HashMap;
use crate::time::Timestamp;

/// The nesting of slices on host threads: operations, annotations, and runtime and driver calls.
///
/// It excludes functions of an interpreter, and operations that torch hides.
#[derive(Clone, Debug)]
pub(crate) struct Nesting {
    /// By event: the index of the slice around it.
    parents: Vec<Option<u32>>,
    order: Vec<u32>,
    /// Slices that a later, overlapping slice of their thread interrupted, with that slice.
    interrupted_by: HashMap<u32, u32>,
}

/// The open slices of each thread, in order of time. The caller numbers the slices.
#[derive(Debug)]
pub(crate) struct OpenSlices<'e> {
    threads: Threads<'e>,
    /// By thread, outermost first.
    open: Vec<Vec<(usize, Timestamp)>>,
    /// Slices that the last event overlaps.
    overlapped: Vec<usize>,
}

/// Maps events to threads. A slice that overlaps others of its thread is drawn on another row.
#[derive(Clone, Debug)]
pub(crate) struct Threads<'e> {
    /// Whether any slice names its thread.
    has_thread_args: bool,
    /// By process and thread.
    rows: HashMap<(&'e TrackId, i64), usize>,
}

/// Names of torch's internal operations, which tables leave out.
const HIDDEN: [&str; 8] = [
    "[memory]",
    "[OutOfMemory]",
    "profiler::_record_function_enter",
    "profiler::_record_function_enter_new",
    "profiler::_record_function_exit",
    "aten::is_leaf",
    "aten::output_nr",
    "aten::_version",
];

impl Nesting {
    pub(crate) fn new(events: &Events) -> Nesting {
        Nesting::from_selected(events, |event| (event.is_op() || event.is_call()) && !HIDDEN.contains(&event.name()))
    }

    /// Nests the slices that `nests` selects.
    pub(crate) fn from_selected(events: &Events, nests: impl Fn(&Event<'_>) -> bool) -> Nesting {
        Nesting::from_slices(events, events.iter().filter(|event| event.is_slice() && nests(event)))
    }

    /// Nests the subset of slices that `belongs` selects.
    pub(crate) fn filter_slices(&self, events: &Events, belongs: impl Fn(&Event<'_>) -> bool) -> Nesting {
        Nesting::from_slices(events, self.iter(events).filter(belongs))
    }

    fn from_slices<'e>(events: &'e Events, slices: impl Iterator<Item = Event<'e>>) -> Nesting {
        let mut nesting =
            Nesting { parents: vec![None; events.len()], order: Vec::new(), interrupted_by: HashMap::default() };
        let mut open = OpenSlices::new(events);
        for slice in slices {
            let Ok(number) = u32::try_from(slice.index()) else { break };
            if let Some(parent) = nesting.parents.get_mut(slice.index()) {
                *parent = open.innermost_slice(&slice).and_then(|around| u32::try_from(around).ok());
            }
            let overlapped = open.overlapped_slices().iter().filter_map(|index| events.get(*index));
            // Slices of one row nest, unless its rows are asynchronous.
            let can_overlap = |other: &Event<'_>| slice.track().is_async || other.track_index() != slice.track_index();
            let others = overlapped.filter(can_overlap);
            nesting
                .interrupted_by
                .extend(others.filter_map(|other| Some((u32::try_from(other.index()).ok()?, number))));
            open.push(&slice, slice.index());
            nesting.order.push(number);
        }
        nesting
    }

    /// Returns the slice around an event.
    pub(crate) fn parent<'e>(&self, event: Event<'e>) -> Option<Event<'e>> {
        let parent = self.parents.get(event.index()).copied().flatten()?;
        event.events.get(parent as usize)
    }

    /// Returns how long the thread is in a slice, nested slices included, in nanoseconds.
    pub(super) fn active_ns(&self, slice: Event<'_>) -> u64 {
        let later = u32::try_from(slice.index()).ok().and_then(|index| self.interrupted_by.get(&index));
        let left = later.and_then(|later| slice.events.get(*later as usize)).map(|later| later.start());
        left.unwrap_or(slice.end()).since(slice.start())
    }

    /// Returns all nested slices in order of their start; at equal starts, outer ones first.
    pub(super) fn iter<'e>(&self, events: &'e Events) -> impl Iterator<Item = Event<'e>> {
        self.order.iter().filter_map(|index| events.get(*index as usize))
    }
}

impl<'e> OpenSlices<'e> {
    pub(crate) fn new(events: &'e Events) -> OpenSlices<'e> {
        let open = vec![Vec::new(); events.tracks().len()];
        OpenSlices { threads: Threads::new(events), open, overlapped: Vec::new() }
    }

    /// Returns the slice around an event. Events must come in the order of a trace.
    pub(crate) fn innermost_slice(&mut self, event: &Event<'_>) -> Option<usize> {
        self.innermost_of(self.threads.thread_track(event), event.start(), event.end())
    }

    /// Returns the open slice of a thread that contains these times.
    pub(crate) fn innermost_of(&mut self, thread: usize, start: Timestamp, end: Timestamp) -> Option<usize> {
        self.overlapped.clear();
        let open = self.open.get_mut(thread)?;
        while let Some((number, top)) = open.pop_if(|(_, top)| *top <= start || *top < end) {
            self.overlapped.extend((top > start).then_some(number));
        }
        open.last().map(|(number, _)| *number)
    }

    /// Returns the slices that the last event began in and outlives, innermost first.
    pub(crate) fn overlapped_slices(&self) -> &[usize] {
        &self.overlapped
    }

    pub(crate) fn push(&mut self, slice: &Event<'_>, number: usize) {
        if let Some(open) = self.open.get_mut(self.threads.thread_track(slice)).filter(|_| slice.end() > slice.start())
        {
            open.push((number, slice.end()));
        }
    }

    /// Returns the map from events to threads.
    pub(crate) fn threads(&self) -> &Threads<'e> {
        &self.threads
    }
}

impl<'e> Threads<'e> {
    pub(crate) fn new(events: &'e Events) -> Threads<'e> {
        let id = |track: &'e EventTrack| Some((&track.process, id_number(&track.thread)?));
        let rows = events.tracks().iter().enumerate().filter_map(|(row, track)| Some((id(track)?, row)));
        Threads { has_thread_args: events.arguments.has_key(StringId::THREAD), rows: rows.collect() }
    }

    /// Returns the track of an event's thread.
    pub(crate) fn thread_track(&self, event: &Event<'_>) -> usize {
        if !self.has_thread_args {
            return event.track_index();
        }
        let named = event.arg_by_id(StringId::THREAD).and_then(as_signed);
        named.and_then(|thread| self.find_track(event, thread)).unwrap_or(event.track_index())
    }

    /// Returns the track of another thread of the event's process.
    pub(crate) fn find_track(&self, event: &Event<'_>, thread: i64) -> Option<usize> {
        self.rows.get(&(&event.track().process, thread)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::{ActivityType, ArgValue, Args};
    use crate::analysis::sample::{SampleTrace, micros};
    use proptest::prelude::*;
    use std::cmp::Reverse;
    use std::collections::BTreeMap;

    /// A slice: its name, kind, thread, start and length.
    type Drawn = (usize, u8, i64, u64, u64);

    const NAMES: [&str; 3] = ["a", "b", "c"];

    struct Marks {
        is_hidden: bool,
        thread: Option<i64>,
    }

    impl Args for Marks {
        fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
            each("hidden", ArgValue::Bool(self.is_hidden));
            self.thread.iter().for_each(|thread| each("thread id", ArgValue::I64(*thread)));
        }
    }

    /// Returns slices on the tracks of their threads: on one track each, as torch writes them, or on the first on which
    /// they nest.
    fn events(drawn: &[Drawn], nests_on_rows: bool) -> Events {
        let (mut sample, mut rows): (SampleTrace, Vec<(i64, u64, u64)>) = Default::default();
        let mut drawn = drawn.to_vec();
        drawn.sort_by_key(|(.., start, length)| (*start, Reverse(*length)));
        for (name, kind, thread, start, length) in drawn {
            let end = start + length;
            let crosses =
                |row| rows.iter().any(|(at, from, to)| *at == row && *from < start && start < *to && *to < end);
            let row = (0..).map(|row| thread + row * 10_000_000).find(|row| !nests_on_rows || !crosses(*row)).unwrap();
            rows.push((row, start, end));
            let marks = Marks { is_hidden: kind == 0, thread: (row != thread).then_some(thread) };
            let kind = if kind == 1 { ActivityType::CudaRuntime } else { ActivityType::CpuOp };
            sample = sample.host_slice(kind, NAMES[name], row, (start, end), &marks);
        }
        sample.memory(1, 20, 8, 0).into_events()
    }

    fn order(event: &Event<'_>) -> impl Ord + use<> {
        (event.start(), Reverse(event.end()), event.is_call(), event.index())
    }

    /// Returns whether `inner` lies in `outer`, directly or not, by the definition.
    fn contains(outer: &Event<'_>, inner: &Event<'_>) -> bool {
        outer.is_slice()
            && outer.thread() == inner.thread()
            && outer.start() <= inner.start()
            && inner.start() < outer.end()
            && inner.end() <= outer.end()
            && (inner.is_instant() || order(outer) < order(inner))
    }

    /// Computes self times moment by moment: each moment belongs to the slice that began last.
    fn self_ns(slices: &[Event<'_>]) -> BTreeMap<String, i64> {
        let mut times: BTreeMap<String, i64> = slices.iter().map(|slice| (slice.name().to_owned(), 0)).collect();
        for at in (0..100).map(micros) {
            for thread in [1, 2] {
                let on = slices.iter().filter(|slice| slice.thread() == Some(thread));
                let on = on.filter(|slice| slice.start() <= at && at < slice.end());
                if let Some(last) = on.max_by_key(|slice| order(slice)) {
                    *times.get_mut(last.name()).unwrap() += 1000;
                }
            }
        }
        times
    }

    /// Computes self times as torch does: durations without those of direct children.
    fn torch_self_ns(slices: &[Event<'_>]) -> BTreeMap<String, i64> {
        let mut times = BTreeMap::new();
        for slice in slices {
            *times.entry(slice.name().to_owned()).or_default() += slice.duration_ns().cast_signed();
            let around = slices.iter().filter(|outer| contains(outer, slice)).max_by_key(|outer| order(outer));
            if let Some(around) = around {
                *times.entry(around.name().to_owned()).or_default() -= slice.duration_ns().cast_signed();
            }
        }
        times
    }

    proptest! {
        #[test]
        fn times_and_parents_match_the_definition(
            drawn in prop::collection::vec((0..3_usize, 0..4_u8, 1..3_i64, 0..40_u64, 0..30_u64), 0..14),
            nests_on_rows: bool,
        ) {
            let events = events(&drawn, nests_on_rows);
            let shown: Vec<_> = events.iter().filter(|event| event.is_slice() && !event.is_hidden()).collect();
            let expected = if nests_on_rows { self_ns(&shown) } else { torch_self_ns(&shown) };
            let averages = events.key_averages();
            let mut found = BTreeMap::new();
            averages.ops().iter().for_each(|row| *found.entry(row.name().to_owned()).or_default() += row.self_cpu_ns());
            prop_assert_eq!(averages.cpu_base_ns(), expected.values().sum::<i64>());
            prop_assert_eq!(found, expected);

            let tree = events.tree();
            for event in events.iter() {
                let around = events.iter().filter(|outer| contains(outer, &event));
                let expected = around.max_by_key(|outer| order(outer)).map(|outer| outer.index());
                prop_assert_eq!(tree.parent(event).map(|parent| parent.index()), expected, "{:?}", event);
            }
        }
    }

    #[test]
    fn concurrent_asynchronous_slices_share_their_time() {
        let row = |name: &str, from: u32, to: u32| {
            let end =
                |ph, at| format!(r#"{{"ph":"{ph}","cat":"app","name":"{name}","id":1,"pid":1,"tid":1,"ts":{at}}}"#);
            [end("b", from), end("e", to)].join(",")
        };
        let rows = [row("main", 0, 1000), row("a", 10, 500), row("b", 11, 501), row("c", 12, 502)];
        let events = Events::from_reader(format!("[{}]", rows.join(",")).as_bytes()).unwrap();
        let averages = events.key_averages();
        let own = |name: &str| averages.ops().iter().find(|op| op.name() == name).map(|op| op.self_cpu_ns());
        assert_eq!(own("main"), Some(508_000));
        assert_eq!(averages.ops().iter().map(|op| op.self_cpu_ns()).sum::<i64>(), 1_000_000);
    }
}
