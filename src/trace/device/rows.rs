//! The rows of devices: the work on each stream, and the annotations around it.

use super::lanes::{DeviceRow, StreamLanes, UsedRows};
use super::{LinkedCollection, StreamMark, has_arrows, is_work, work_from_entry};
use crate::link::{Call, DeviceAnnotation, RecordHandle, RecordSource as _};
use crate::time::Timestamp;
use crate::trace::memory::MemoryRows;
use crate::trace::thread::SliceMarks;
use crate::trace::walk::{DEVICES, NEXT_ROW, Walk, WalkCounts};
use kineto_base::fallible::List;
use kineto_base::sorted::SortedMap;
use kineto_devices::{Collection, DeviceDescription, Entry, NEVER, RecordLayout, RecordView, Role, Stream, Wait};
use kineto_model::activity::{
    self, Activity, ActivityType, ArgValue, Args, Body, CorrelationId, Flow, FlowEnd, FlowKind, OVERHEAD_GROUP, Track,
};
use kineto_model::layout::{SYNC_ROW, without_margin};
use kineto_model::rows::{ProcessRow, Rows};
use std::borrow::Cow;
use std::io;

/// The contents of a stream, each list in order of start.
#[derive(Default)]
struct OnStream<'t> {
    work: &'t [RecordHandle],
    marks: List<StreamMark>,
    annotations: List<&'t DeviceAnnotation>,
}

/// An annotation, and the nanoseconds that it is drawn wider than its work, before and after.
type DrawnAnnotation<'t> = (&'t DeviceAnnotation, [u64; 2]);

impl Walk<'_> {
    /// Delivers the groups of all devices.
    pub(in crate::trace) fn device_processes(&self, rows: &mut dyn Rows) -> io::Result<()> {
        let mut described: SortedMap<i32, Cow<'_, DeviceDescription>> = SortedMap::new();
        for device in self.devices.pairs().flat_map(|(collection, _)| &collection.records.devices) {
            described.get_or_insert_with(device.id, || Cow::Borrowed(device));
        }
        for (collection, linked) in self.devices.pairs() {
            let on_device = |mark: &&StreamMark| !is_of_cpu(collection, mark);
            let marked = linked.marks.iter().filter(on_device).map(|mark| mark.device);
            let used = linked.links.streams.lanes().map(|((device, _), _)| device).chain(marked);
            for device in used.chain(linked.counted_devices(collection)) {
                described.get_or_insert_with(device, || Cow::Owned(DeviceDescription::new(device, "")));
            }
        }
        described.values().try_for_each(|device| {
            let id = i64::from(device.id);
            let (process, label) = (activity::Lane::Id(id), &*device.label);
            // Not all viewers show labels.
            let mut known = vec![label, &device.name];
            known.retain(|part| !part.is_empty());
            known.dedup();
            let name = device.heading.clone().unwrap_or_else(|| known.join(": "));
            let sort_index = device.order.unwrap_or(DEVICES + id);
            rows.write_process(&ProcessRow { process, name: &name, label, sort_index, at: self.window.0 })
        })?;
        if self.devices.pairs().any(|(_, linked)| !linked.overheads.is_empty()) {
            let process = activity::Lane::Id(OVERHEAD_GROUP);
            let (sort_index, at) = (OVERHEAD_GROUP, self.window.0);
            rows.write_process(&ProcessRow { process, name: "Overhead", label: "", sort_index, at })?;
        }
        Ok(())
    }

    /// Delivers all rows of devices.
    pub(in crate::trace) fn device_rows(&self, rows: &mut dyn Rows, counts: &mut WalkCounts) -> io::Result<()> {
        let used_rows = &mut UsedRows::new(self);
        for (collection, linked) in self.devices.pairs() {
            for ((device, stream), on) in group_by_stream(linked) {
                let lanes = self.stream_lanes(device, stream, 0);
                let mut out =
                    StreamRows { walk: self, collection, linked, device, stream, rows, counts, lanes, used_rows };
                out.deliver_activities(&on)?;
                let is_thread = on.marks.first().is_some_and(|mark| is_of_cpu(collection, mark));
                let (heading, of_first) = match (out.stream_description(), stream_id(stream)) {
                    _ if is_thread => (format!("thread {stream} (sync)"), ""),
                    (Some(described), _) => (described.name.clone(), ""),
                    (None, -1) => (format!("Device {device}"), ""),
                    (None, stream) => (format!("stream {stream}"), " "),
                };
                let used = out.lanes.used.to_vec();
                out.deliver_names(&used, &heading, of_first)?;
                out.deliver_sync_waits(&on)?;
            }
            linked.counter_rows(collection, self, rows)?;
            self.deliver_overheads(collection, linked, used_rows, rows)?;
        }
        self.device_memory(rows)
    }

    /// Delivers allocations and frees on devices, on the rows of their threads.
    fn device_memory(&self, rows: &mut dyn Rows) -> io::Result<()> {
        let mut out = MemoryRows::default();
        self.devices.memory_records(self.info.process).try_for_each(|(at, thread, record)| {
            out.deliver_record(&record, self, at, self.thread_row(thread, 0), rows)
        })
    }

    /// Returns the rows of a stream, from `offset` after its own.
    fn stream_lanes(&self, device: i32, stream: u32, offset: i64) -> StreamLanes {
        StreamLanes::new(i64::from(device), stream_id(stream) + offset, NEXT_ROW, self.resolution_ns())
    }

    /// Delivers the overhead of collectors, in its own group.
    fn deliver_overheads(
        &self,
        collection: &Collection,
        linked: &LinkedCollection,
        used_rows: &mut UsedRows,
        rows: &mut dyn Rows,
    ) -> io::Result<()> {
        let mut entries: List<_> = linked.overheads.iter().filter_map(|at| collection.records.entry_at(*at)).collect();
        entries.sort_unstable_by_key(|entry| (entry.start(), std::cmp::Reverse(entry.end()), entry.at));
        let mut lanes = StreamLanes::new(OVERHEAD_GROUP, 0, 1, self.resolution_ns());
        for entry in entries {
            let (start, end) = collection.entry_times(&entry);
            let (row, place) = lanes.place_slice(start, linked.drawn_end(end), used_rows);
            let mut args = EntryArgs::new(self, collection, &entry, (start, end));
            // Without words it has no layout.
            args.layout = args.layout.filter(|_| !entry.words.is_empty());
            let (name, track) = (collection.records.names.text(entry.name), Track::new(OVERHEAD_GROUP, row));
            let body = Body::Slice { start: place.start, end: place.end };
            let mut overhead = Activity::new(ActivityType::Overhead, name, track, body);
            overhead.args = &args;
            rows.write_activity(&overhead)?;
        }
        let heading = format!("{} Overhead", collection.name.to_uppercase());
        let first = Track::new(OVERHEAD_GROUP, lanes.first_row_id());
        lanes.used.iter().enumerate().try_for_each(|(used, lane)| {
            self.name_row([Track::new(OVERHEAD_GROUP, lane.id), first], used, &heading, lane.id, rows)
        })
    }
}

fn group_by_stream(linked: &LinkedCollection) -> SortedMap<(i32, u32), OnStream<'_>> {
    let mut streams: SortedMap<(i32, u32), OnStream<'_>> = SortedMap::new();
    for (stream, work) in linked.links.streams.lanes() {
        streams.get_or_insert_with(stream, OnStream::default).work = work;
    }
    for mark in &linked.marks {
        streams.get_or_insert_with((mark.device, mark.stream), OnStream::default).marks.push(*mark);
    }
    for annotation in &linked.links.annotations {
        let stream = (annotation.device, annotation.stream);
        streams.get_or_insert_with(stream, OnStream::default).annotations.push(annotation);
    }
    streams
}

/// Returns the margins by which each annotation is drawn wider than its work.
///
/// Readers then see the work of a stream, and annotations that begin or end with the same work, nested within one another.
/// The margin is a nanosecond, as in libkineto, or `resolution_ns` if readers cannot tell closer times apart, and as much
/// more for each inner annotation. Neighbours that are too close share the gap between them equally.
fn annotation_margins(annotations: &[&DeviceAnnotation], resolution_ns: u64) -> List<[u64; 2]> {
    let mut ends: List<_> = annotations.iter().map(|span| span.end).collect();
    ends.sort_unstable();
    let last_end = |at: Timestamp| ends.get(ends.partition_point(|end| *end <= at).checked_sub(1)?);
    let next_start = |at: Timestamp| annotations.get(annotations.partition_point(|span| span.start < at));
    let both_sides = annotations.iter().zip(nested_margins(annotations, resolution_ns)).map(|(span, width)| {
        if span.start == span.end {
            return [width; 2];
        }
        let before = last_end(span.start).map_or(width, |end| span.start.since(*end).div_ceil(2));
        let behind = next_start(span.end).map_or(width, |next| next.start.since(span.end) / 2);
        [width.min(before), width.min(behind)]
    });
    both_sides.collect()
}

/// Returns the margin of each annotation that its inner ones need.
fn nested_margins(annotations: &[&DeviceAnnotation], resolution_ns: u64) -> List<u64> {
    let mut margins: List<u64> = annotations.iter().map(|_| resolution_ns.max(1)).collect();
    let mut around: List<(Timestamp, &mut u64)> = List::new();
    for (span, margin) in annotations.iter().zip(&mut margins) {
        while around.pop_if(|(end, _)| *end <= span.start || *end < span.end).is_some() {}
        let mut within = *margin;
        for (_, outer) in around.iter_mut().rev() {
            within += resolution_ns;
            **outer = within.max(**outer);
        }
        around.push((span.end, margin));
    }
    margins
}

/// Writes the rows of one stream.
struct StreamRows<'o, 'w> {
    walk: &'w Walk<'w>,
    collection: &'w Collection,
    linked: &'w LinkedCollection,
    device: i32,
    stream: u32,
    rows: &'o mut dyn Rows,
    counts: &'o mut WalkCounts,
    lanes: StreamLanes,
    used_rows: &'o mut UsedRows,
}

impl<'w> StreamRows<'_, 'w> {
    /// Delivers work, waits and annotations, in order of their start, each in the first row in which it nests.
    fn deliver_activities(&mut self, on: &OnStream<'w>) -> io::Result<()> {
        let collection = self.collection;
        let entry = |at: u32| collection.records.entry_at(at);
        let wants = self.walk.info.config.activities.contains(ActivityType::GpuUserAnnotation);
        let mut work = on.work.iter().filter_map(|handle| entry(handle.0)).peekable();
        let marks = on.marks.iter().filter_map(|mark| entry(mark.at));
        let mut marks = marks.filter(|mark| !is_apart(mark)).peekable();
        let margins = annotation_margins(&on.annotations, self.walk.resolution_ns());
        let drawn = on.annotations.iter().copied().zip(margins);
        let mut annotations = drawn.filter(|_| wants).peekable();
        loop {
            let at_work = work.peek().map(|entry| collection.entry_times(entry).0);
            let at_mark = marks.peek().map(|entry| collection.entry_times(entry).0);
            let at_annotation = annotations.peek().map(|(span, [before, _])| minus_nanos(span.start, *before));
            let first = [at_annotation, at_work, at_mark].into_iter().flatten().min();
            let Some(first) = first else { return Ok(()) };
            if at_annotation == Some(first) {
                annotations.next().map_or(Ok(()), |drawn| self.deliver_annotation(drawn))?;
            } else if at_work == Some(first) {
                work.next().map_or(Ok(()), |entry| self.deliver_work(&entry))?;
            } else {
                marks.next().map_or(Ok(()), |entry| self.deliver_mark(&entry))?;
            }
        }
    }

    /// Delivers the host's waits for this stream, which have their own rows.
    fn deliver_sync_waits(&mut self, on: &OnStream<'w>) -> io::Result<()> {
        let mut lanes = self.walk.stream_lanes(self.device, self.stream, SYNC_ROW);
        let records = &self.collection.records;
        for entry in on.marks.iter().filter_map(|mark| records.entry_at(mark.at)) {
            if is_apart(&entry) {
                let (start, end) = self.collection.entry_times(&entry);
                let (row, place) = lanes.place_slice(start, self.linked.drawn_end(end), self.used_rows);
                let (slice, wait) = self.slice_and_wait(&entry);
                self.deliver_slice(&entry, row, (place.start, place.end), slice, wait)?;
            }
        }
        self.deliver_names(&lanes.used, &format!("stream {} (sync)", stream_id(self.stream)), "")
    }

    /// Finds a row; returns it with the drawn times.
    fn place_slice(&mut self, start: Timestamp, end: Timestamp) -> (i64, Timestamp, Timestamp) {
        let (row, place) = self.lanes.place_slice(start, end, self.used_rows);
        self.counts.overlapping_work += u64::from(place.row > 0);
        (row, place.start, place.end)
    }

    fn deliver_work(&mut self, entry: &Entry<'w>) -> io::Result<()> {
        let (collection, linked) = (self.collection, self.linked);
        let work = work_from_entry(collection, entry);
        let (start, end) = (linked.drawn_end(work.start), linked.drawn_end(work.end));
        if let Some(slice) = entry.work_slice() {
            // Leaves a nanosecond at both ends, for a file's wider annotations.
            let (row, start, end) = self.place_slice(start, end.max(plus_nanos(start, 2)));
            return self.deliver_slice(entry, row, (start, end), slice, None);
        }
        let (row, start, end) = self.place_slice(start, end);
        let launch = self.call_of(entry);
        let slice = launch.as_ref().map_or(0, |launch| linked.links.slice_of(launch));
        self.deliver_slice(entry, row, (start, end), slice, None)?;
        let has_arrow =
            |launch: &Call| collection.records.entry_at(launch.at.0).is_some_and(|call| has_arrows(call.kind()));
        let Some(launch) = launch.filter(has_arrow) else { return Ok(()) };
        // A clock error may let the work begin before its launch; the arrow still points forward.
        let at = start.max(launch.start.min(minus_nanos(end, 1)));
        let track = Track::new(i64::from(self.device), row);
        let flow = Flow { kind: FlowKind::AsyncCpuToGpu, id: linked.arrow_id(&launch), end: FlowEnd::Finish };
        self.rows.write_flow(at, track, flow)
    }

    fn deliver_mark(&mut self, entry: &Entry<'w>) -> io::Result<()> {
        let (start, end) = self.collection.entry_times(entry);
        // An event is a point in time, drawn as a nanosecond.
        let end = self.linked.drawn_end(end).max(plus_nanos(start, 1));
        let (row, start, end) = self.place_slice(start, end);
        let (slice, wait) = self.slice_and_wait(entry);
        self.deliver_slice(entry, row, (start, end), slice, wait)
    }

    /// Returns the slice that waited or recorded an event, and the place where the event was recorded.
    fn slice_and_wait(&self, entry: &Entry<'_>) -> (u64, Option<Wait>) {
        let links = &self.linked.links;
        let wait = links.waits.find_target(entry.device_or_context(), entry.event_id(), entry.correlation_id());
        (self.call_of(entry).map_or(0, |call| links.slice_of(&call)), wait)
    }

    /// Returns the call that launched work, or that waited.
    fn call_of(&self, entry: &Entry<'_>) -> Option<Call> {
        let at = self.linked.links.launch_of(&work_from_entry(self.collection, entry))?;
        Some(self.linked.collection_records(self.collection).call_at(at))
    }

    fn deliver_annotation(&mut self, (span, [before, behind]): DrawnAnnotation<'_>) -> io::Result<()> {
        let [start, end] = [span.start, span.end].map(|at| self.linked.drawn_end(at));
        let (row, start, end) = self.place_slice(minus_nanos(start, before), plus_nanos(end, behind));
        let track = Track::new(i64::from(self.device), row);
        let (start, end) = without_margin(start, end);
        let mut words = List::new();
        let name = self.walk.slice_name(span.annotation, &mut words);
        let mut activity = Activity::new(ActivityType::GpuUserAnnotation, name, track, Body::Slice { start, end });
        activity.id = CorrelationId(span.annotation);
        self.rows.write_activity(&activity)
    }

    fn deliver_slice(
        &mut self,
        entry: &Entry<'w>,
        row: i64,
        (start, end): (Timestamp, Timestamp),
        linked: u64,
        wait: Option<Wait>,
    ) -> io::Result<()> {
        let records = &self.collection.records;
        let device = records.devices.iter().find(|device| device.id == self.device);
        let mut args = EntryArgs::new(self.walk, self.collection, entry, (start, end));
        (args.view.device_id, args.view.device, args.view.stream) = (self.device, device, self.stream);
        args.view.wait = wait;
        args.linked = if is_work(entry.kind()) { linked } else { 0 };
        args.marks.finished = self.collection.entry_times(entry).1 != NEVER;
        args.marks.clipped = self.linked.is_clipped(start);
        let mut words = List::new();
        let name = match (records.names.text(entry.name), entry.work_slice()) {
            ("", Some(slice)) => self.walk.slice_name(slice, &mut words),
            (name, _) => name,
        };
        let (body, id, linked) = match entry.kind() {
            // Like other annotations: with the id of its span, and a nanosecond wider in a file.
            ActivityType::GpuUserAnnotation if entry.work_slice().is_some() => {
                let (start, end) = without_margin(start, end);
                (Body::Slice { start, end }, linked, 0)
            }
            kind if is_work(kind) => (Body::Slice { start, end }, 0, linked),
            // As in libkineto, a wait has an id of its own.
            _ => (Body::Slice { start, end }, entry.correlation_id(), linked),
        };
        let mut activity = Activity::new(entry.kind(), name, Track::new(i64::from(self.device), row), body);
        (activity.id, activity.linked, activity.args) = (CorrelationId(id), CorrelationId(linked), &args);
        self.rows.write_activity(&activity)
    }

    /// Delivers the names of rows: the heading, and the numbers of further rows.
    fn deliver_names(&mut self, used: &[DeviceRow], heading: &str, of_first: &str) -> io::Result<()> {
        let sort_index = self.stream_description().map_or(stream_id(self.stream), |described| described.order);
        let first = Track::new(i64::from(self.device), self.lanes.first_row_id());
        let heading_of_first = format!("{heading}{of_first}");
        for DeviceRow { id, nth } in used {
            let heading = if *nth == 0 { &heading_of_first } else { heading };
            let track = Track::new(i64::from(self.device), *id);
            self.walk.name_row([track, first], *nth, heading, sort_index, self.rows)?;
        }
        Ok(())
    }

    /// Returns the collector's description of the stream.
    fn stream_description(&self) -> Option<&'w Stream> {
        let device = self.collection.records.devices.iter().find(|device| device.id == self.device)?;
        device.streams.iter().find(|stream| stream.id == self.stream)
    }
}

/// Returns the id of a stream in a file; -1 for waits for all streams.
fn stream_id(stream: u32) -> i64 {
    if stream == u32::MAX { -1 } else { i64::from(stream) }
}

/// Returns whether it is drawn on a row of its own: a wait lasts as long as the host's call, regardless of the stream's work.
fn is_apart(entry: &Entry<'_>) -> bool {
    entry.role() == Role::Sync && entry.stream() != u32::MAX && entry.kind() != ActivityType::XpuSync
}

/// Returns whether it is a wait of a host thread, whose row is next to the overhead of collectors, as in libkineto.
fn is_of_cpu(collection: &Collection, mark: &StreamMark) -> bool {
    collection.records.entry_at(mark.at).is_some_and(|entry| entry.kind() == ActivityType::XpuSync)
}

fn plus_nanos(at: Timestamp, ns: u64) -> Timestamp {
    Timestamp::from_nanos(at.as_nanos().saturating_add(ns))
}

fn minus_nanos(at: Timestamp, ns: u64) -> Timestamp {
    Timestamp::from_nanos(at.as_nanos().saturating_sub(ns))
}

/// The arguments of a record: its own, those of its collective operation, and those of the recording.
pub(super) struct EntryArgs<'w> {
    walk: &'w Walk<'w>,
    layout: Option<&'static dyn RecordLayout>,
    pub(super) view: RecordView<'w>,
    /// The slice of work; 0 for none.
    linked: u64,
    pub(super) marks: SliceMarks<'w>,
}

impl<'w> EntryArgs<'w> {
    /// Returns the arguments of a record that has ended, drawn at these times.
    pub(super) fn new(
        walk: &'w Walk<'w>,
        collection: &'w Collection,
        entry: &Entry<'w>,
        times: (Timestamp, Timestamp),
    ) -> EntryArgs<'w> {
        EntryArgs {
            walk,
            layout: collection.records.entry_layout(entry),
            view: collection.entry_view(entry, times),
            linked: 0,
            marks: SliceMarks { finished: true, ..SliceMarks::default() },
        }
    }
}

impl Args for EntryArgs<'_> {
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        if let Some(layout) = self.layout {
            layout.visit(&self.view, each);
        }
        if self.linked != 0 {
            self.walk.show_collective(self.linked, each);
        }
        self.marks.visit(each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::thread::nest::Nest;

    #[test]
    fn close_annotations_share_the_gap() {
        let at = Timestamp::from_nanos;
        let drawn = |spans: &[(u64, u64)], resolution_ns| {
            let new = |(start, end): &(u64, u64)| {
                let (start, end) = (at(*start), at(*end));
                DeviceAnnotation { device: 0, stream: 7, start, end, annotation: 1 }
            };
            let spans: Vec<_> = spans.iter().map(new).collect();
            let margins = annotation_margins(&spans.iter().collect::<Vec<_>>(), resolution_ns).to_vec();
            let mut nest = Nest::new(0, resolution_ns);
            let places = spans.iter().zip(&margins).map(|(span, [before, behind])| {
                nest.place_slice(minus_nanos(span.start, *before), plus_nanos(span.end, *behind)).row
            });
            (places.max(), margins)
        };
        for resolution_ns in [0, 2] {
            let most = [resolution_ns.max(1); 2];
            assert_eq!(drawn(&[(100, 200), (204, 300)], resolution_ns), (Some(0), vec![most, most]));
            for gap in 0..4 {
                let next = 200 + gap;
                let touching = [(100, 200), (150, 200), (next, 400), (next, 300), (300 + gap, 400)];
                assert_eq!(drawn(&touching, resolution_ns).0, Some(0), "{gap}");
            }
        }
        assert_eq!(drawn(&[(100, 200), (203, 300)], 2).1, [[2, 1], [2, 2]]);
    }
}
