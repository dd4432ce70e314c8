//! The rows of one thread on their way out.

use super::args::{EventArgs, FieldArgs, Source};
use super::companions::Companions;
use super::cpu::OwnRecords;
use super::device::{Call, Calls};
use super::index::{Index, Run, is_clipped};
use super::memory::{MemoryRecord, MemoryRows, is_replaced};
use super::nest::{Nest, Place};
use super::recorded::{Recorded, Window};
use super::requests::RequestCache;
use super::walk::{Met, Walk};
use crate::buffer::{Record, Tag, flag};
use crate::callsite::NAME_FIELD;
use crate::clock::Cursor;
use crate::fields::{Word, values};
use crate::time::{Ticks, Timestamp};
use kineto_trace::activity::{
    Activity, ActivityType, ArgValue, Args, Body, CorrelationId, Flow, FlowEnd, FlowKind, Track,
};
use kineto_trace::fallible::List;
use kineto_trace::rows::{Rows, SliceRow, SpanArgs};
use kineto_trace::sorting::sort_few_by_key;
use std::io;

/// Hands on the slices and events of a thread, in order of their start.
pub(super) struct Thread<'w> {
    walk: &'w Walk<'w>,
    source: &'w Source<'w>,
    /// The thread's id.
    id: i64,
    rows: &'w mut dyn Rows,
    met: &'w mut Met,
    nest: Nest,
    /// The calls of runtimes and drivers that the thread made.
    calls: Calls<'w>,
    /// What the program has pushed of it.
    own: OwnRecords<'w>,
    /// When the last slice began.
    last: Timestamp,
    clock: Cursor<'w>,
    /// The fields of the slice at hand.
    words: List<Word>,
    companions: Companions,
    memory: MemoryRows,
    requests: RequestCache,
}

/// What the recording says of a slice.
struct Marks<'m> {
    finished: bool,
    clipped: bool,
    /// The thread, if the slice is not on its own row.
    thread: Option<i64>,
    /// The name of the slice in an execution trace, if there is one.
    function: Option<u64>,
    /// How often its future was polled, if that was more than once.
    polls: Option<u64>,
    /// The span of the request that it is part of.
    request: Option<u64>,
    /// What was recorded beside it.
    beside: Option<&'m dyn Args>,
}

impl<'w> Thread<'w> {
    pub(super) fn new(
        walk: &'w Walk<'w>,
        source: &'w Source<'w>,
        id: i64,
        rows: &'w mut dyn Rows,
        met: &'w mut Met,
    ) -> Thread<'w> {
        let calls = Calls::of(id, walk.collections, walk.linked, walk.converter.error_ns());
        let (nest, clock) = (Nest::new(calls.slack_ns(), walk.resolution_ns()), Cursor::new(walk.converter));
        let own = walk.own.of_thread(id);
        let (last, words) = (Timestamp::default(), List::new());
        let (companions, memory, requests) = Default::default();
        Thread { walk, source, id, rows, met, nest, calls, own, last, clock, words, companions, memory, requests }
    }

    /// Returns how many rows the thread needs.
    pub(super) fn used(&self) -> usize {
        self.nest.rows()
    }

    /// Hands on what was recorded in `runs`, and the calls that fall between.
    pub(super) fn runs(&mut self, runs: &[Run]) -> io::Result<()> {
        in_order(self.walk.recorded, self.walk.index, runs, |window, record| match record.head.tag {
            Tag::Slice => self.slice(window, record),
            Tag::Instant | Tag::Counter => self.event(record),
            Tag::Memory => self.memory(record),
            Tag::Stack | Tag::Counts => {
                self.companions.meet(record);
                Ok(())
            }
            _ => Ok(()),
        })?;
        self.own_until(None)?;
        self.calls_until(Timestamp::from_nanos(u64::MAX))
    }

    /// Hands on the calls that begin before a slice does, for all that the clocks know.
    fn calls_until(&mut self, slice: Timestamp) -> io::Result<()> {
        while let Some(call) = self.calls.next(slice, self.last) {
            let is_instant = call.entry.kind() == ActivityType::CpuInstantEvent;
            let place = match (is_instant, call.is_beside) {
                (true, _) => Place { row: 0, start: call.start, end: call.start },
                (false, true) => self.nest.place_beside(call.start, call.end),
                (false, false) => self.nest.place(call.start, call.end),
            };
            let (start, end) = (place.start, place.end);
            let track = Track::new(self.walk.process, self.walk.row(self.id, place.row));
            let marks = Marks {
                finished: call.finished,
                clipped: call.clipped,
                thread: self.stranger(place.row),
                function: None,
                polls: None,
                request: None,
                beside: None,
            };
            let (args, body) = (
                CallArgs { call: &call, marks: &marks },
                if is_instant { Body::Instant { at: start } } else { Body::Slice { start, end } },
            );
            let mut activity = Activity::new(call.entry.kind(), call.name(), track, body);
            activity.linked = CorrelationId(call.linked);
            activity.flow = call.arrow.map(|id| Flow { kind: FlowKind::AsyncCpuToGpu, id, end: FlowEnd::Start });
            activity.args = &args;
            self.rows.activity(&activity)?;
        }
        Ok(())
    }

    /// Hands on what the program has pushed that comes before what has these times.
    fn own_until(&mut self, before: Option<(Timestamp, Timestamp)>) -> io::Result<()> {
        while let Some(own) = self.own.next(before) {
            self.calls_until(own.start())?;
            let place = own.place(&mut self.nest);
            let row = place.map_or(0, |place| place.row);
            self.last = place.map_or(self.last, |place| place.start);
            self.met.overlapping += u64::from(row > 0);
            own.show(place, Track::new(self.walk.process, self.walk.row(self.id, row)), self.rows)?;
        }
        Ok(())
    }

    fn slice(&mut self, window: &Window, record: &Record<'_>) -> io::Result<()> {
        let (walk, source, number) = (self.walk, self.source, record.head.site as usize);
        let Some(row) = source.sites.get(number) else { return Ok(()) };
        let (id, span) = (record.id(), record.span());
        let (start, end, finished) = walk.index.times(window, record);
        let start = self.clock.timestamp(start);
        let end = self.clock.timestamp(end).max(start);
        if !walk.draws_polls(span) {
            return Ok(());
        }
        self.own_until(Some((start, end)))?;
        self.calls_until(start)?;
        // Collectors may know better than the records whether something happened in it.
        if walk.index.is_drop(record) && !self.calls.begin_before(end) {
            return Ok(());
        }
        self.last = start;
        let place = self.nest.place(start, end);
        let definition = walk.recorded.definition(record);
        let parent = definition.and_then(|record| record.parent()).unwrap_or(0);
        let (thread, function) = (self.stranger(place.row), walk.with_function_ids.then_some(id));
        let mut marks = Marks {
            finished,
            clipped: is_clipped(Some(window), record),
            thread,
            function,
            polls: walk.index.polls(span),
            request: walk.requests.of(walk.recorded, &mut self.requests, span, parent),
            beside: None,
        };
        self.met.add(&marks);
        self.words.clear();
        let all = FieldArgs { source, site: record.head.site, span, definition: definition.as_ref(), slice: id };
        let more: Option<&dyn Args> = if source.has_more(span) { Some(&all) } else { None };
        if let Some(made) = definition.as_ref().filter(|made| made.head.payload != 0)
            && more.is_none()
            && made.head.site == record.head.site
        {
            walk.recorded.payload(made, &mut self.words);
        }
        let words = &self.words;
        marks.beside = self.companions.of(record, walk, &row.keys, finished, |each| match more {
            Some(more) => more.visit(each),
            None => values(words).for_each(|value| row.keys.show(value, each)),
        });
        let mut name = List::new();
        self.rows.slice(&SliceRow {
            name: if row.keys.name.is_none() { None } else { source.span_name(span, record.head.site, &mut name) },
            process: walk.process,
            thread: walk.row(self.id, place.row),
            start: place.start,
            end: place.end,
            id: CorrelationId(id),
            args: SpanArgs { span, parent, made_with: &self.words, more, site: row, marks: marks.any() },
        })?;
        if walk.index.arrows.is_empty() { Ok(()) } else { self.arrows(id, place.start, place.row) }
    }

    /// The thread's id, for what is not on its own row.
    fn stranger(&self, row: usize) -> Option<i64> {
        (row > 0).then_some(self.id)
    }

    fn arrows(&mut self, slice: u64, at: Timestamp, row: usize) -> io::Result<()> {
        let track = Track::new(self.walk.process, self.walk.row(self.id, row));
        self.walk.index.arrows_at(slice).iter().try_for_each(|(_, id, starts)| {
            let end = if *starts { FlowEnd::Start } else { FlowEnd::Finish };
            self.rows.flow(at, track, Flow { kind: FlowKind::FollowsFrom, id: *id, end })
        })
    }

    fn memory(&mut self, record: &Record<'_>) -> io::Result<()> {
        let (time, event) = MemoryRecord::of(record);
        if is_replaced(&event, self.walk.collections) {
            return Ok(());
        }
        let at = self.clock.timestamp(time);
        let track = Track::new(self.walk.process, self.walk.row(self.id, 0));
        self.memory.show(&event, self.source, at, track, self.rows)
    }

    fn event(&mut self, record: &Record<'_>) -> io::Result<()> {
        let walk = self.walk;
        let Some(site) = walk.recorded.sites.get(record.head.site as usize) else { return Ok(()) };
        let at = self.clock.timestamp(Ticks(record.words[0]));
        let is_counter = record.head.tag == Tag::Counter;
        let span = if is_counter { 0 } else { record.words[1] };
        let args = EventArgs { source: self.source, record: *record, span, numbers_only: is_counter };
        let field = |name| site.metadata.fields().field(name).map(|field| field.index());
        let named_by = field(NAME_FIELD).or_else(|| field("message"));
        let mut name = List::new();
        let named = named_by.and_then(|by| self.source.name(record, &mut name, by));
        let name = named.unwrap_or(site.metadata.name());
        let track = Track::new(walk.process, walk.row(self.id, 0));
        let body = if is_counter { Body::Counter { at } } else { Body::Instant { at } };
        let mut activity = Activity::new(ActivityType::CpuInstantEvent, name, track, body);
        if is_counter || record.head.payload != 0 || span != 0 {
            activity.args = &args;
        }
        self.rows.activity(&activity)
    }
}

/// Calls `each` with all records of the runs of one thread, in the order of their start.
pub(super) fn in_order(
    recorded: &Recorded,
    index: &Index,
    runs: &[Run],
    mut each: impl FnMut(&Window, &Record<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let epoch = |run: &Run| recorded.window_of(*run).epoch;
    for runs in runs.chunk_by(|a, b| epoch(a) == epoch(b)) {
        let Some(window) = runs.first().map(|run| recorded.window_of(*run)) else { continue };
        if index.clipped > 0 {
            // Slices that were open when records began are recorded when they end; they come first, the longest first.
            let records = runs.iter().flat_map(|run| recorded.records(*run));
            let mut clipped: List<Record<'_>> = records.filter(is_older).collect();
            sort_few_by_key(&mut clipped, |record| std::cmp::Reverse(record.words[1]));
            clipped.iter().try_for_each(|record| each(window, record))?;
        }
        let records = runs.iter().flat_map(|run| recorded.records(*run));
        records.filter(|record| !is_older(record)).try_for_each(|record| each(window, &record))?;
    }
    Ok(())
}

/// What is said of a call: its own arguments, and what the recording says of it.
struct CallArgs<'c> {
    call: &'c Call<'c>,
    marks: &'c Marks<'c>,
}

impl Args for CallArgs<'_> {
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        self.call.visit(each);
        self.marks.visit(each);
    }
}

impl Met {
    #[inline]
    fn add(&mut self, slice: &Marks<'_>) {
        self.slices += 1;
        self.clipped += u64::from(slice.clipped);
        self.unfinished += u64::from(!slice.finished);
        self.overlapping += u64::from(slice.thread.is_some());
    }
}

impl Marks<'_> {
    #[inline]
    fn any(&self) -> Option<&dyn Args> {
        let is_usual = self.finished && !self.clipped && self.thread.is_none() && self.function.is_none();
        let is_sync = self.polls.is_none() && self.request.is_none();
        if is_usual && is_sync && self.beside.is_none() { None } else { Some(self) }
    }
}

impl Args for Marks<'_> {
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
        if let Some(polls) = self.polls {
            each("polls", ArgValue::U64(polls));
        }
        if let Some(request) = self.request {
            each("request id", ArgValue::U64(request));
        }
        self.beside.iter().for_each(|beside| beside.visit(each));
    }
}

/// Whether a slice was open already when records began to be made.
fn is_older(record: &Record<'_>) -> bool {
    record.head.tag == Tag::Slice && record.head.flags & flag::CLIPPED != 0
}
