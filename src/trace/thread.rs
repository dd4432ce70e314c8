//! The rows of one thread on their way out.

use super::args::{EventArgs, FieldArgs, Source};
use super::index::Run;
use super::nest::Nest;
use super::recorded::Window;
use super::rows::{Rows, SliceRow, SpanArgs};
use super::walk::{Met, Walk};
use crate::activity::{
    Activity, ActivityType, ArgValue, Args, Body, CorrelationId, Flow, FlowEnd, FlowKind, NO_ARGS, Track,
};
use crate::buffer::{Record, Tag, flag};
use crate::callsite::NAME_FIELD;
use crate::clock::Cursor;
use crate::fields::Word;
use crate::time::{Ticks, Timestamp};
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
    clock: Cursor<'w>,
    /// The fields of the slice at hand.
    words: Vec<Word>,
}

/// What the recording says of a slice.
struct Marks {
    finished: bool,
    clipped: bool,
    /// The thread, if the slice is not on its own row.
    thread: Option<i64>,
}

impl<'w> Thread<'w> {
    pub(super) fn new(
        walk: &'w Walk<'w>,
        source: &'w Source<'w>,
        id: i64,
        rows: &'w mut dyn Rows,
        met: &'w mut Met,
    ) -> Thread<'w> {
        let (nest, clock) = (Nest::new(walk.converter.error_ns()), Cursor::new(walk.converter));
        Thread { walk, source, id, rows, met, nest, clock, words: Vec::new() }
    }

    /// Returns how many rows the thread needs.
    pub(super) fn used(&self) -> usize {
        self.nest.rows().max(1)
    }

    /// Hands on what was recorded in `runs`, which are of one window and in the order in which they were written.
    pub(super) fn runs(&mut self, runs: &[Run]) -> io::Result<()> {
        let recorded = self.walk.recorded;
        let Some(window) = runs.first().map(|run| recorded.window_of(*run)) else { return Ok(()) };
        if self.walk.index.clipped > 0 {
            // Slices that were open when the recording began are recorded when they end; they come first, the longest first.
            let records = runs.iter().flat_map(|run| recorded.records(*run));
            let mut clipped: Vec<Record<'_>> = records.filter(is_clipped).collect();
            clipped.sort_by_key(|record| std::cmp::Reverse(record.words[1]));
            clipped.iter().try_for_each(|record| self.slice(window, record))?;
        }
        for run in runs {
            for record in recorded.records(*run) {
                match record.head.tag {
                    Tag::Slice if !is_clipped(&record) => self.slice(window, &record)?,
                    Tag::Instant | Tag::Counter => self.event(&record)?,
                    _ => {}
                }
            }
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
        let place = self.nest.place(start, end);
        let marks = Marks { finished, clipped: is_clipped(record), thread: (place.row > 0).then_some(self.id) };
        self.met.add(&marks);

        let definition = walk.recorded.definition(record);
        let parent = definition.and_then(|record| record.parent()).unwrap_or(0);
        self.words.clear();
        let all = FieldArgs { source, site: record.head.site, span, definition: definition.as_ref(), slice: id };
        let more: Option<&dyn Args> = if source.has_more(span) { Some(&all) } else { None };
        if let Some(made) = definition.as_ref().filter(|made| made.head.payload != 0)
            && more.is_none()
            && made.head.site == record.head.site
        {
            walk.recorded.payload(made, &mut self.words);
        }
        let mut name = Vec::new();
        self.rows.slice(&SliceRow {
            name: if row.keys.name.is_none() { None } else { source.span_name(span, record.head.site, &mut name) },
            process: walk.process,
            thread: walk.row(self.id, place.row),
            start,
            end: place.end,
            id: CorrelationId(id),
            args: SpanArgs { span, parent, made_with: &self.words, more, site: row, marks: marks.any() },
        })?;
        if walk.index.arrows.is_empty() { Ok(()) } else { self.arrows(id, start, place.row) }
    }

    fn arrows(&mut self, slice: u64, at: Timestamp, row: usize) -> io::Result<()> {
        let track = Track::new(self.walk.process, self.walk.row(self.id, row));
        self.walk.index.arrows_at(slice).iter().try_for_each(|(_, id, starts)| {
            let end = if *starts { FlowEnd::Start } else { FlowEnd::Finish };
            self.rows.flow(at, track, Flow { kind: FlowKind::FollowsFrom, id: *id, end })
        })
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
        let mut name = Vec::new();
        let named = named_by.and_then(|by| self.source.name(record, &mut name, by));
        self.rows.activity(&Activity {
            kind: ActivityType::CpuInstantEvent,
            name: named.unwrap_or(site.metadata.name()),
            track: Track::new(walk.process, walk.row(self.id, 0)),
            body: if is_counter { Body::Counter { at } } else { Body::Instant { at } },
            id: CorrelationId(0),
            linked: CorrelationId(0),
            flow: None,
            args: if is_counter || record.head.payload != 0 || span != 0 { &args as &dyn Args } else { NO_ARGS },
        })
    }
}

impl Met {
    #[inline]
    fn add(&mut self, slice: &Marks) {
        self.slices += 1;
        self.clipped += u64::from(slice.clipped);
        self.unfinished += u64::from(!slice.finished);
        self.overlapping += u64::from(slice.thread.is_some());
    }
}

impl Marks {
    #[inline]
    fn any(&self) -> Option<&dyn Args> {
        if self.finished && !self.clipped && self.thread.is_none() { None } else { Some(self) }
    }
}

impl Args for Marks {
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
    }
}

fn is_clipped(record: &Record<'_>) -> bool {
    record.head.tag == Tag::Slice && record.head.flags & flag::CLIPPED != 0
}
