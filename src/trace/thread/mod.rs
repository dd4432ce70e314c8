//! Writes the rows of one thread.

pub(super) mod args;
mod extra_args;
pub(super) mod nest;
pub(super) mod symbols;

use super::cpu::OwnRecords;
use super::device::HostCalls;
use super::index::requests::RequestCache;
use super::index::{Index, Run, is_clipped};
use super::memory::{MemoryRecord, MemoryRows};
use super::recorded::{Recorded, Window};
use super::walk::{Walk, WalkCounts, row_id};
use crate::buffer::{CommittedRecord, Tag, flag};
use crate::callsite::NAME_FIELD;
use crate::clock::{Converter, Cursor};
use crate::fields::{Word, decode_values};
use crate::time::{Ticks, Timestamp};
use args::{EventArgs, FieldArgs};
use extra_args::ExtraArgs;
use kineto_base::fallible::List;
use kineto_base::sorting::{sort_few_by_key, sort_in_place_by};
use kineto_model::activity::{Activity, ActivityType, ArgValue, Args, Body, CorrelationId, Flow, FlowEnd, FlowKind};
use kineto_model::rows::{Rows, SliceRow, SpanArgs};
use nest::Nest;
use std::io;

/// Delivers the slices and events of a thread, in order of their start.
pub(super) struct ThreadRows<'w> {
    walk: &'w Walk<'w>,
    /// The thread's id.
    id: i64,
    rows: &'w mut dyn Rows,
    counts: &'w mut WalkCounts,
    nest: Nest,
    /// The calls of runtimes and drivers that the thread made.
    calls: HostCalls<'w>,
    /// The activities that the program has pushed for this thread.
    own: OwnRecords<'w>,
    /// The start of the last slice.
    last: Timestamp,
    clock: Cursor<'w>,
    /// The fields of the current slice.
    words: List<Word>,
    extras: ExtraArgs<'w>,
    memory: MemoryRows,
    requests: RequestCache,
}

/// The arguments that the recording adds to a slice.
#[derive(Default)]
pub(super) struct SliceMarks<'m> {
    pub(super) finished: bool,
    pub(super) clipped: bool,
    /// The thread, if the slice is not on its own row.
    pub(super) thread: Option<i64>,
    /// The name of the slice in an execution trace, if there is one.
    pub(super) function: Option<u64>,
    /// The number of its call's enters, if more than one.
    pub(super) enters: Option<u64>,
    /// Whether it is inside another slice of its span.
    pub(super) reentered: bool,
    /// The span of the request that it belongs to.
    pub(super) request: Option<u64>,
    /// Its call stack and counts.
    pub(super) extra_args: Option<&'m dyn Args>,
}

impl<'w> ThreadRows<'w> {
    /// Delivers the records of a thread, merged with the calls; returns how many rows the thread needs.
    pub(super) fn deliver_all(
        walk: &'w Walk<'w>,
        id: i64,
        rows: &'w mut dyn Rows,
        counts: &'w mut WalkCounts,
    ) -> io::Result<usize> {
        let Walk { recorded, index, converter, .. } = *walk;
        let calls = HostCalls::for_thread(id, walk.devices, converter.error_ns());
        let (nest, clock) = (Nest::new(calls.slack_ns, walk.resolution_ns()), Cursor::new(converter));
        let own = walk.own_records(&walk.thread_track(id));
        let (last, words) = (Timestamp::default(), List::new());
        let (extras, memory, requests) = Default::default();
        let mut thread =
            ThreadRows { walk, id, rows, counts, nest, calls, own, last, clock, words, extras, memory, requests };
        in_order(recorded, index, converter, index.runs_of(id), |window, record| match record.head.tag {
            Tag::Slice => thread.deliver_slice(window, record),
            Tag::Instant | Tag::Counter => thread.deliver_event(record),
            Tag::Memory => thread.deliver_memory(record),
            Tag::Stack | Tag::Counts => {
                thread.extras.add_record(record);
                Ok(())
            }
            _ => Ok(()),
        })?;
        thread.own_until(None)?;
        thread.calls_until(Timestamp::from_nanos(u64::MAX))?;
        Ok(thread.nest.row_count())
    }

    /// Delivers the calls that begin before a slice does, within the error of the clocks.
    fn calls_until(&mut self, slice: Timestamp) -> io::Result<()> {
        self.calls.deliver_before((slice, self.last), self.walk, self.id, &mut self.nest, self.rows)
    }

    /// Delivers the program's own activities that begin before a slice of these times.
    fn own_until(&mut self, before: Option<(Timestamp, Timestamp)>) -> io::Result<()> {
        while let Some(own) = self.own.next_if(|own| own.precedes(before)) {
            self.calls_until(own.sort_key().0)?;
            let place = own.place_row(&mut self.nest);
            let row = place.map_or(0, |place| place.row);
            self.last = place.map_or(self.last, |place| place.start);
            self.counts.overlapping += u64::from(row > 0);
            self.walk.own_row(own, place, self.walk.thread_row(self.id, row), self.rows)?;
        }
        Ok(())
    }

    fn deliver_slice(&mut self, window: &Window, record: &CommittedRecord<'_>) -> io::Result<()> {
        let walk = self.walk;
        let Some(row) = walk.sites.get(record.head.site as usize) else { return Ok(()) };
        let (id, span) = (record.id(), record.span_id());
        let (start, end, finished) = walk.index.slice_times(window, record);
        let (start, end) = self.clock.slice_times(start, end);
        let end = end.max(start);
        if !walk.draws_enters(span) || walk.omitted.contains(id) {
            return Ok(());
        }
        self.own_until(Some((start, end)))?;
        self.calls_until(start)?;
        self.last = start;
        let place = self.nest.place_slice(start, end);
        let definition = walk.recorded.definition_of(record);
        let parent = definition.and_then(|record| record.parent_id()).unwrap_or(0);
        let mut marks = SliceMarks {
            finished,
            clipped: is_clipped(Some(window), record),
            thread: (place.row > 0).then_some(self.id),
            function: walk.info.config.execution_trace.then_some(id),
            enters: walk.index.enters_of_call(span),
            reentered: walk.index.is_inside_itself(record),
            request: walk.requests.request_of(walk.recorded, &mut self.requests, span, parent),
            extra_args: None,
        };
        self.counts.slices += 1;
        self.counts.overlapping += u64::from(place.row > 0);
        self.words.clear();
        let all = FieldArgs { walk, site: record.head.site, span, definition: definition.as_ref(), slice: id };
        let more: Option<&dyn Args> = if walk.has_more(span) { Some(&all) } else { None };
        if let Some(made) = definition.as_ref().filter(|made| made.head.payload != 0)
            && more.is_none()
            && made.head.site == record.head.site
        {
            walk.recorded.read_payload(made, &mut self.words);
        }
        let words = &self.words;
        marks.extra_args = self.extras.args_of_slice(record, walk, &row.keys, finished, &|each| match more {
            Some(more) => more.visit(each),
            None => decode_values(words).for_each(|value| row.keys.visit_value(value, each)),
        });
        let mut name = List::new();
        self.rows.write_slice(&SliceRow {
            name: if row.keys.name.is_none() { None } else { walk.span_name(span, record.head.site, &mut name) },
            process: walk.info.process,
            thread: row_id(self.id, place.row),
            start: place.start,
            end: place.end,
            id: CorrelationId(id),
            args: SpanArgs { span, parent, creation_fields: &self.words, more, site: row, marks: marks.args_if_any() },
        })?;
        if walk.index.arrows.is_empty() { Ok(()) } else { self.deliver_arrows(id, place.start, place.row) }
    }

    fn deliver_arrows(&mut self, slice: u64, at: Timestamp, row: usize) -> io::Result<()> {
        let track = self.walk.thread_row(self.id, row);
        self.walk.index.arrows_at(slice).iter().try_for_each(|(_, id, starts)| {
            let end = if *starts { FlowEnd::Start } else { FlowEnd::Finish };
            self.rows.write_flow(at, track, Flow { kind: FlowKind::FollowsFrom, id: *id, end })
        })
    }

    fn deliver_memory(&mut self, record: &CommittedRecord<'_>) -> io::Result<()> {
        let (time, event) = MemoryRecord::from_record(record);
        if self.walk.devices.is_replaced(&event) {
            return Ok(());
        }
        let at = self.clock.timestamp_of(time);
        self.memory.deliver_record(&event, self.walk, at, self.walk.thread_row(self.id, 0), self.rows)
    }

    fn deliver_event(&mut self, record: &CommittedRecord<'_>) -> io::Result<()> {
        let walk = self.walk;
        let Some(site) = walk.recorded.sites.get(record.head.site as usize) else { return Ok(()) };
        let at = self.clock.timestamp_of(Ticks(record.words[0]));
        let is_counter = record.head.tag == Tag::Counter;
        let span = if is_counter { 0 } else { record.words[1] };
        let args = EventArgs { walk, record: *record, span, numbers_only: is_counter };
        let named_by = site.field_index(NAME_FIELD).or_else(|| site.field_index("message"));
        let mut name = List::new();
        let named = named_by.and_then(|by| walk.field_text(record, &mut name, by));
        let name = named.unwrap_or(&site.name);
        let body = if is_counter { Body::Counter { at } } else { Body::Instant { at } };
        let mut activity = Activity::new(ActivityType::CpuInstantEvent, name, walk.thread_row(self.id, 0), body);
        if is_counter || record.head.payload != 0 || span != 0 {
            activity.args = &args;
        }
        self.rows.write_activity(&activity)
    }
}

/// Calls `each` with the records of the runs of one thread that become rows, in the order of their start.
pub(super) fn in_order(
    recorded: &Recorded,
    index: &Index,
    converter: &Converter,
    runs: &[Run],
    mut each: impl FnMut(&Window, &CommittedRecord<'_>) -> io::Result<()>,
) -> io::Result<()> {
    if !converter.repeats_times() {
        return in_order_of_ticks(recorded, index, runs, each);
    }
    // By time, and then as before.
    let mut records: List<(Option<Timestamp>, usize, u64)> = List::new();
    in_order_of_ticks(recorded, index, runs, |window, record| {
        let at = match record.head.tag {
            Tag::Slice => Some(converter.timestamp_of(index.slice_times(window, record).0)),
            Tag::Instant | Tag::Counter | Tag::Memory => Some(converter.timestamp_of(Ticks(record.words[0]))),
            // It belongs to the slice that follows.
            Tag::Stack | Tag::Counts => None,
            _ => return Ok(()),
        };
        records.push((at, records.len(), record.id()));
        Ok(())
    })?;
    let mut next = Some(Timestamp::from_nanos(u64::MAX));
    for (at, ..) in records.iter_mut().rev() {
        *at = at.or(next);
        next = *at;
    }
    sort_in_place_by(&mut records, Ord::cmp);
    for (.., id) in &records {
        if let Some(record) = recorded.find_record(*id)
            && let Some(window) = recorded.window_around(&record)
        {
            each(window, &record)?;
        }
    }
    Ok(())
}

fn in_order_of_ticks(
    recorded: &Recorded,
    index: &Index,
    runs: &[Run],
    mut each: impl FnMut(&Window, &CommittedRecord<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let epoch = |run: &Run| recorded.window_of(*run).epoch;
    for runs in runs.chunk_by(|a, b| epoch(a) == epoch(b)) {
        let Some(window) = runs.first().map(|run| recorded.window_of(*run)) else { continue };
        if index.clipped > 0 {
            // Slices that were open when the recording began are recorded at their end; they go first.
            for record in &older_slices(recorded, runs) {
                each(window, record)?;
            }
        }
        for run in runs {
            for record in recorded.records_of_run(*run) {
                if !is_older(&record) {
                    each(window, &record)?;
                }
            }
        }
    }
    Ok(())
}

/// Returns the slices that were open when the recording began, the longest first.
fn older_slices<'t>(recorded: &'t Recorded, runs: &[Run]) -> List<CommittedRecord<'t>> {
    let mut older = List::new();
    for run in runs {
        for record in recorded.records_of_run(*run) {
            if is_older(&record) {
                older.push(record);
            }
        }
    }
    sort_few_by_key(&mut older, |record| std::cmp::Reverse(record.words[1]));
    older
}

impl SliceMarks<'_> {
    #[inline]
    fn args_if_any(&self) -> Option<&dyn Args> {
        let is_usual = self.finished && !self.clipped && self.thread.is_none() && self.function.is_none();
        let is_sync = self.enters.is_none() && !self.reentered && self.request.is_none();
        if is_usual && is_sync && self.extra_args.is_none() { None } else { Some(self) }
    }
}

impl Args for SliceMarks<'_> {
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        if !self.finished {
            each("finished", ArgValue::Bool(false));
        }
        if self.clipped {
            each("clipped", ArgValue::Bool(true));
        }
        if let Some(thread) = self.thread {
            each("thread id", ArgValue::I64(thread));
        }
        if let Some(function) = self.function {
            each("Record function id", ArgValue::U64(function));
        }
        if let Some(enters) = self.enters {
            each("enters", ArgValue::U64(enters));
        }
        if self.reentered {
            each("reentered", ArgValue::Bool(true));
        }
        if let Some(request) = self.request {
            each("request id", ArgValue::U64(request));
        }
        if let Some(extra_args) = &self.extra_args {
            extra_args.visit(each);
        }
    }
}

/// Returns whether a slice was already open when the recording began.
fn is_older(record: &CommittedRecord<'_>) -> bool {
    record.head.tag == Tag::Slice && record.head.flags & flag::CLIPPED != 0
}
