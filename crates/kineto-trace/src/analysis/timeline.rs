//! Reduces a trace to a timeline of limited size: long slices one by one, short ones as their density.

use super::events::{Event, Events, ProcessTitles};
use crate::hash::HashMap;
use crate::sorting::{sort_few_by, sort_few_by_key};
use crate::text::count_with_noun;
use crate::time::Timestamp;
use std::cmp::Reverse;

/// Limits the size of a [`Timeline`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimelineLimits {
    /// The maximum number of slices that are listed one by one. Default: 16,000.
    pub slices: usize,
    /// The maximum number of tracks that are listed one by one; the others share a row. Default: 100.
    pub tracks: usize,
    /// The maximum number of levels of a row. Default: 64.
    pub levels: u32,
    /// The maximum number of density cells of all rows. Default: 24,000.
    pub cells: usize,
}

impl Default for TimelineLimits {
    fn default() -> TimelineLimits {
        TimelineLimits { slices: 16_000, tracks: 100, levels: 64, cells: 24_000 }
    }
}

/// The slices of a trace for an overview; made by [`Events::timeline`].
///
/// Each slice is either listed or counted in a [`DensityCell`]. Listed are the longest slices of each track.
///
/// ```
/// use kineto_trace::analysis::Events;
/// use kineto_trace::analysis::timeline::TimelineLimits;
///
/// let trace = br#"[
///     {"ph": "X", "cat": "cpu_op", "name": "train", "pid": 1, "tid": 1, "ts": 0, "dur": 100},
///     {"ph": "X", "cat": "cpu_op", "name": "load", "pid": 1, "tid": 1, "ts": 10, "dur": 2}
/// ]"#;
/// let mut limits = TimelineLimits::default();
/// limits.slices = 1;
/// let timeline = Events::from_reader(trace.as_slice())?.timeline(limits);
/// let row = &timeline.rows[0];
/// assert_eq!((row.slices.len(), row.merged()), (1, 1));
/// # Ok::<(), kineto_trace::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Timeline {
    /// The start of the first slice.
    pub start: Timestamp,
    /// The time from `start` to the end of the last slice, in nanoseconds.
    pub span_ns: u64,
    /// The length of a density cell, in nanoseconds.
    pub cell_ns: u64,
    /// Streams of devices, then threads of the host.
    pub rows: Vec<TimelineRow>,
}

/// The slices of one track.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TimelineRow {
    /// The heading of its process or device.
    pub process: String,
    /// Its name, else the id of the thread or stream.
    pub name: String,
    /// Whether it is a stream of a device.
    pub is_device: bool,
    /// The number of tracks on it: 1, or more for the last row if the trace has too many.
    pub tracks: usize,
    /// The number of levels of its listed slices.
    pub levels: u32,
    /// The listed slices, in order of their start.
    pub slices: Vec<TimelineSlice>,
    /// The density of all other slices, in order of time; empty cells are left out.
    pub cells: Vec<DensityCell>,
}

/// A slice that is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimelineSlice {
    /// The index of its event in the trace.
    pub event: usize,
    /// Its level; 0 is the outermost. Slices that overlap without nesting have different levels.
    pub level: u32,
    /// The index of the event around it on its track.
    pub parent: Option<usize>,
    /// The index of the call that launched it, if it is device work.
    pub launch: Option<usize>,
}

/// The slices of a row that are not listed, in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DensityCell {
    /// The index of the interval, from the start of the timeline, of `cell_ns` each.
    pub index: usize,
    /// The number of slices that begin in it.
    pub count: u64,
    /// The time of it in which at least one of those slices runs, in nanoseconds.
    pub busy_ns: u64,
}

impl TimelineRow {
    /// Returns the number of slices that are not listed.
    pub fn merged(&self) -> u64 {
        self.cells.iter().map(|cell| cell.count).sum()
    }
}

impl Events {
    /// Returns the slices for an overview of limited size.
    pub fn timeline(&self, limits: TimelineLimits) -> Timeline {
        TimelineBuilder::new(self, limits).build()
    }
}

/// A slice with its place, before it is chosen.
#[derive(Clone, Copy)]
struct PlacedSlice {
    event: u32,
    level: u32,
    parent: Option<u32>,
    is_listed: bool,
}

/// The slices of one track, in order of their start.
#[derive(Default)]
struct TrackSlices {
    slices: Vec<PlacedSlice>,
    busy_ns: u64,
    is_device: bool,
}

/// The last slice of each level of one track, with its end.
#[derive(Clone, Default)]
struct OpenLevels(Vec<(u32, Timestamp)>);

impl OpenLevels {
    /// Places a slice at the lowest free level under the slice around it.
    fn place(&mut self, event: &Event<'_>, max_levels: usize) -> PlacedSlice {
        let number = u32::try_from(event.index()).unwrap_or(u32::MAX);
        let is_open = |end: Timestamp| end > event.start();
        let around = self.0.iter().enumerate().filter(|(_, (_, end))| is_open(*end) && *end >= event.end());
        // The latest start is the innermost.
        let parent = around.max_by_key(|(_, (parent, _))| *parent).map(|(level, (parent, _))| (level, *parent));
        let first = parent.map_or(0, |(level, _)| level + 1);
        let free = self.0.iter().skip(first).position(|(_, end)| !is_open(*end));
        let level = free.map_or(self.0.len(), |free| first + free);
        match self.0.get_mut(level) {
            Some(last) => *last = (number, event.end()),
            None if level < max_levels => self.0.push((number, event.end())),
            None => {}
        }
        PlacedSlice {
            event: number,
            level: u32::try_from(level).unwrap_or(u32::MAX),
            parent: parent.map(|(_, parent)| parent),
            is_listed: false,
        }
    }
}

struct TimelineBuilder<'e> {
    events: &'e Events,
    limits: TimelineLimits,
    start: Timestamp,
    span_ns: u64,
    cell_ns: u64,
}

impl<'e> TimelineBuilder<'e> {
    fn new(events: &'e Events, limits: TimelineLimits) -> TimelineBuilder<'e> {
        let range = events.slice_range();
        TimelineBuilder { events, limits, start: range.start, span_ns: range.end.since(range.start), cell_ns: 1 }
    }

    fn build(mut self) -> Timeline {
        const MAX_CELLS_OF_ROW: u64 = 1024;

        let mut tracks = self.place_slices();
        let order = self.choose_tracks(&tracks);
        self.choose_slices(&mut tracks, &order);
        let titles = self.events.process_titles();
        let rows = order.len() as u64 + 1;
        let cells = (self.limits.cells as u64 / rows).clamp(1, MAX_CELLS_OF_ROW);
        self.cell_ns = (self.span_ns / cells + 1).max(1);
        let mut rows: Vec<_> =
            order.iter().filter_map(|index| self.row(*index, tracks.get(*index)?, &titles)).collect();
        rows.extend(self.row_of_others(&tracks, &order));
        let attribution = self.events.attribution();
        for slice in rows.iter_mut().filter(|row| row.is_device).flat_map(|row| &mut row.slices) {
            let launch = self.events.get(slice.event).and_then(|event| attribution.launch(event));
            slice.launch = launch.map(|launch| launch.index());
        }
        Timeline { start: self.start, span_ns: self.span_ns, cell_ns: self.cell_ns, rows }
    }

    /// Returns the slices of all tracks with their levels.
    fn place_slices(&self) -> Vec<TrackSlices> {
        let mut tracks: Vec<TrackSlices> = Vec::new();
        tracks.resize_with(self.events.tracks().len(), TrackSlices::default);
        // Deeper slices are never listed; few levels keep a track with many open slices fast.
        let max_levels = self.limits.levels as usize;
        let mut levels: Vec<OpenLevels> = vec![OpenLevels::default(); tracks.len()];
        let mut covered = vec![self.start; tracks.len()];
        for event in self.events.iter().filter(Event::is_slice) {
            let index = event.track_index();
            let (Some(track), Some(levels), Some(covered)) =
                (tracks.get_mut(index), levels.get_mut(index), covered.get_mut(index))
            else {
                continue;
            };
            track.slices.push(levels.place(&event, max_levels));
            track.busy_ns += event.end().since(event.start().max(*covered));
            *covered = event.end().max(*covered);
            track.is_device |= event.is_on_device();
        }
        tracks
    }

    /// Returns the tracks with a row of their own: the busiest, devices first, then by process and name.
    fn choose_tracks(&self, tracks: &[TrackSlices]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..tracks.len()).collect();
        order.retain(|index| tracks.get(*index).is_some_and(|track| !track.slices.is_empty()));
        let busy = |index: &usize| tracks.get(*index).map_or(0, |track| track.busy_ns);
        sort_few_by_key(&mut order, |index| (Reverse(busy(index)), *index));
        order.truncate(self.limits.tracks);
        let is_host = |index: &usize| tracks.get(*index).is_some_and(|track| !track.is_device);
        let place = |index: &usize| self.events.tracks().get(*index).map(|track| (&track.process, &track.thread));
        sort_few_by(&mut order, |a, b| (is_host(a), place(a)).cmp(&(is_host(b), place(b))));
        order
    }

    /// Lists the longest slices of each track; tracks with few slices leave their share to the others.
    fn choose_slices(&self, tracks: &mut [TrackSlices], order: &[usize]) {
        /// An odd number, so that products of different numbers differ.
        const SCATTER: u32 = 0x9E37_79B1;

        let mut by_count = order.to_vec();
        sort_few_by_key(&mut by_count, |index| tracks.get(*index).map_or(0, |track| track.slices.len()));
        let mut left = self.limits.slices;
        for (number, index) in by_count.iter().enumerate() {
            let Some(track) = tracks.get_mut(*index) else { continue };
            let share = left / (by_count.len() - number);
            let mut longest: Vec<&mut PlacedSlice> =
                track.slices.iter_mut().filter(|slice| slice.level < self.limits.levels).collect();
            // A slice is at least as long as those in it, and comes before them. Equally long ones are taken from all over the trace.
            let key = |slice: &&mut PlacedSlice| {
                (Reverse(self.duration_ns(slice.event)), slice.level, slice.event.wrapping_mul(SCATTER))
            };
            if longest.len() > share && share > 0 {
                longest.select_nth_unstable_by_key(share - 1, key);
            }
            longest.truncate(share);
            left -= longest.len();
            longest.into_iter().for_each(|slice| slice.is_listed = true);
        }
    }

    fn duration_ns(&self, event: u32) -> u64 {
        self.events.get(event as usize).map_or(0, |event| event.duration_ns())
    }

    fn row(&self, index: usize, track: &TrackSlices, titles: &ProcessTitles<'_>) -> Option<TimelineRow> {
        let found = self.events.tracks().get(index)?;
        let listed = track.slices.iter().filter(|slice| slice.is_listed);
        let slices: Vec<_> = listed
            .map(|slice| TimelineSlice {
                event: slice.event as usize,
                level: slice.level,
                parent: slice.parent.map(|parent| parent as usize),
                launch: None,
            })
            .collect();
        let mut density = Density::new(self);
        track.slices.iter().filter(|slice| !slice.is_listed).for_each(|slice| density.add(slice.event));
        Some(TimelineRow {
            process: titles.title(&found.process),
            name: if found.name.is_empty() { found.thread.to_string() } else { found.name.clone() },
            is_device: track.is_device,
            tracks: 1,
            levels: slices.iter().map(|slice| slice.level + 1).max().unwrap_or(0),
            slices,
            cells: density.into_cells(),
        })
    }

    /// Returns the row of all tracks without a row of their own.
    fn row_of_others(&self, tracks: &[TrackSlices], order: &[usize]) -> Option<TimelineRow> {
        let is_other = |(index, track): &(usize, &TrackSlices)| !track.slices.is_empty() && !order.contains(index);
        let others: Vec<_> = tracks.iter().enumerate().filter(is_other).map(|(_, track)| track).collect();
        if others.is_empty() {
            return None;
        }
        let mut events: Vec<u32> =
            others.iter().flat_map(|track| track.slices.iter().map(|slice| slice.event)).collect();
        events.sort_unstable();
        let mut density = Density::new(self);
        events.into_iter().for_each(|event| density.add(event));
        Some(TimelineRow {
            process: String::new(),
            name: count_with_noun(others.len() as u64, "more track").to_string(),
            is_device: others.iter().all(|track| track.is_device),
            tracks: others.len(),
            levels: 0,
            slices: Vec::new(),
            cells: density.into_cells(),
        })
    }
}

/// Collects the cells of one row from slices in order of their start.
struct Density<'b> {
    builder: &'b TimelineBuilder<'b>,
    cells: HashMap<usize, DensityCell>,
    covered: Timestamp,
}

impl<'b> Density<'b> {
    fn new(builder: &'b TimelineBuilder<'b>) -> Density<'b> {
        Density { builder, cells: HashMap::default(), covered: builder.start }
    }

    fn cell(&mut self, index: u64) -> &mut DensityCell {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        self.cells.entry(index).or_insert(DensityCell { index, ..DensityCell::default() })
    }

    fn add(&mut self, event: u32) {
        let Some(event) = self.builder.events.get(event as usize) else { return };
        let (start, cell_ns) = (self.builder.start, self.builder.cell_ns);
        self.cell(event.start().since(start) / cell_ns).count += 1;
        // Time that an earlier slice covered counts once.
        let mut at = event.start().max(self.covered).since(start);
        let end = event.end().since(start);
        while at < end {
            let index = at / cell_ns;
            let until = end.min((index + 1).saturating_mul(cell_ns));
            self.cell(index).busy_ns += until - at;
            at = until;
        }
        self.covered = event.end().max(self.covered);
    }

    fn into_cells(self) -> Vec<DensityCell> {
        let mut cells: Vec<_> = self.cells.into_values().collect();
        sort_few_by_key(&mut cells, |cell| cell.index);
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::{ActivityType, NO_ARGS};
    use crate::analysis::sample::SampleTrace;
    use proptest::prelude::*;

    fn limits(slices: usize, tracks: usize, levels: u32, cells: usize) -> TimelineLimits {
        TimelineLimits { slices, tracks, levels, cells }
    }

    #[test]
    fn work_names_its_launch_and_slices_their_parents() {
        let trace = br#"[
            {"ph": "X", "cat": "cpu_op", "name": "train", "pid": 1, "tid": 1, "ts": 0, "dur": 9},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 1, "dur": 2,
             "args": {"correlation": 1}},
            {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 5, "dur": 10,
             "args": {"correlation": 1, "device": 0, "stream": 7}}
        ]"#;
        let events = Events::from_reader(trace.as_slice()).unwrap();
        let timeline = events.timeline(TimelineLimits::default());
        let [device, host] = timeline.rows.as_slice() else { panic!("{timeline:?}") };
        assert_eq!((timeline.span_ns, host.is_device, device.is_device, host.levels), (15_000, false, true, 2));
        let names = |index: Option<usize>| index.and_then(|index| events.get(index)).map(|event| event.name());
        assert_eq!((host.slices[1].level, names(host.slices[1].parent)), (1, Some("train")));
        assert_eq!((names(device.slices[0].launch), device.slices[0].parent), (Some("cudaLaunchKernel"), None));
    }

    #[test]
    fn tracks_over_the_limit_share_a_row() {
        let sample = (1..=5).fold(SampleTrace::default(), |sample, thread| {
            sample.host_slice(ActivityType::CpuOp, "op", thread, (0, 10 * thread.unsigned_abs()), NO_ARGS)
        });
        let timeline = sample.into_events().timeline(limits(9, 2, 9, 9));
        let found: Vec<_> = timeline.rows.iter().map(|row| (row.name.as_str(), row.tracks, row.merged())).collect();
        assert_eq!(found, [("4", 1, 0), ("5", 1, 0), ("3 more tracks", 3, 3)]);
        assert_eq!(timeline.rows[2].cells.iter().map(|cell| cell.busy_ns).sum::<u64>(), 30_000);
    }

    #[test]
    fn overlapping_slices_reuse_free_levels() {
        let sample = (0..1000).fold(SampleTrace::default(), |sample, at| {
            sample.host_slice(ActivityType::CpuOp, "op", 1, (at * 10, at * 10 + 11), NO_ARGS)
        });
        let timeline = sample.into_events().timeline(TimelineLimits::default());
        let row = &timeline.rows[0];
        assert_eq!((row.levels, row.slices.len(), row.merged()), (2, 1000, 0));
        assert!(row.slices.iter().all(|slice| slice.parent.is_none()));
    }

    #[test]
    fn slice_is_below_its_parent_when_upper_levels_are_free() {
        let times = [(0, 5), (3, 10), (6, 9), (7, 8)];
        let sample = times.iter().fold(SampleTrace::default(), |sample, time| {
            sample.host_slice(ActivityType::CpuOp, "op", 1, *time, NO_ARGS)
        });
        let timeline = sample.into_events().timeline(TimelineLimits::default());
        let found: Vec<_> = timeline.rows[0].slices.iter().map(|slice| (slice.level, slice.parent)).collect();
        assert_eq!(found, [(0, None), (1, None), (2, Some(1)), (3, Some(2))]);
    }

    #[test]
    fn empty_trace_has_no_rows() {
        let timeline = Events::default().timeline(TimelineLimits::default());
        assert_eq!((timeline.rows.len(), timeline.span_ns), (0, 0));
    }

    proptest! {
        /// Compares counts and times with single microseconds.
        #[test]
        fn each_slice_is_listed_or_counted(
            slices in prop::collection::vec((0i64..4, 0u64..60, 0u64..20), 1..40),
            (most, tracks, levels, cells) in (0usize..20, 1usize..5, 1u32..4, 1usize..40),
        ) {
            let sample = slices.iter().fold(SampleTrace::default(), |sample, (thread, start, length)| {
                sample.host_slice(ActivityType::CpuOp, "op", thread + 1, (*start, start + length), NO_ARGS)
            });
            let events = sample.into_events();
            let timeline = events.timeline(limits(most, tracks, levels, cells));
            let listed: Vec<usize> =
                timeline.rows.iter().flat_map(|row| row.slices.iter().map(|slice| slice.event)).collect();
            let merged: u64 = timeline.rows.iter().map(TimelineRow::merged).sum();
            prop_assert_eq!(listed.len() as u64 + merged, slices.len() as u64);
            prop_assert!(listed.len() <= most && timeline.rows.len() <= tracks + 1);
            let mut unique = listed.clone();
            unique.sort_unstable();
            unique.dedup();
            prop_assert_eq!(unique.len(), listed.len());
            for row in timeline.rows.iter().filter(|row| !row.name.contains("more")) {
                let others = events.iter().filter(|event| {
                    event.track().thread.to_string() == row.name && !listed.contains(&event.index())
                });
                let spans: Vec<_> = others.map(|event| (event.start(), event.end())).collect();
                let covers = |us: u64| {
                    let at = Timestamp::from_nanos(us * 1000);
                    spans.iter().any(|(start, end)| (*start..*end).contains(&at))
                };
                let busy = (0..100).filter(|us| covers(*us)).count() as u64 * 1000;
                prop_assert_eq!(row.cells.iter().map(|cell| cell.busy_ns).sum::<u64>(), busy);
                prop_assert!(row.cells.iter().all(|cell| cell.busy_ns <= timeline.cell_ns));
                for slice in &row.slices {
                    prop_assert!(slice.level < levels);
                    prop_assert!(slice.parent.is_none_or(|parent| listed.contains(&parent)), "parents are listed");
                }
            }
        }
    }
}
