//! Turns the records of a session into rows, thread by thread, without keeping any.

use super::args::{EventArgs, Source, SpanArgs};
use super::index::{Index, Run, Track};
use super::keys::Keys;
use super::nest::Nest;
use super::recorded::Recorded;
use super::rows::{AsyncRow, ProcessRow, Rows, SpanRow, ThreadRow};
use crate::activity::{
    Activity, ActivityType, ArgValue, Args, Body, CorrelationId, Flow, FlowEnd, FlowKind, Lane, NO_ARGS, Track as Row,
};
use crate::buffer::{Record, Tag, flag};
use crate::clock::Converter;
use crate::config::AsyncSpans;
use crate::time::{Ticks, Timestamp};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;

/// Everything that rows are made of.
#[derive(Clone, Copy)]
pub(crate) struct Walk<'t> {
    pub(crate) recorded: &'t Recorded,
    pub(crate) index: &'t Index,
    pub(crate) converter: &'t Converter,
    pub(crate) process: i64,
    pub(crate) process_name: &'t str,
    pub(crate) async_spans: AsyncSpans,
    pub(crate) with_target: bool,
    pub(crate) with_location: bool,
    /// Name of the row that shows the whole recording.
    pub(crate) span_name: &'t str,
}

/// What a walk has met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Met {
    pub(crate) slices: u64,
    pub(crate) clipped: u64,
    pub(crate) unfinished: u64,
    pub(crate) overlapping: u64,
}

/// Second rows of a thread get ids that no kernel gives to threads.
const NEXT_ROW: i64 = 10_000_000;

impl<'t> Walk<'t> {
    /// Hands all rows to `rows`, in the order of a Kineto file: processes, activities by thread, threads, the recording.
    pub(crate) fn rows(&self, rows: &mut dyn Rows) -> io::Result<Met> {
        let keys: Vec<Keys> = self.recorded.sites.iter().map(|site| Keys::of(site)).collect();
        let source = Source {
            recorded: self.recorded,
            index: self.index,
            keys: &keys,
            with_target: self.with_target,
            with_location: self.with_location,
            bytes: RefCell::default(),
            later: RefCell::default(),
        };
        let (start, end) = self.window();
        rows.process(&ProcessRow {
            process: Lane::Id(self.process),
            name: self.process_name,
            label: "CPU",
            sort_index: self.process,
            at: start,
        })?;
        let mut met = Met::default();
        for (thread, lanes) in self.threads() {
            let used = self.thread(thread, &lanes, &source, rows, &mut met)?;
            self.thread_rows(thread, &lanes, used, start, rows)?;
        }
        for (span, track) in self.tracks() {
            self.async_track(span, track, &source, rows)?;
        }
        rows.span(&SpanRow { name: self.span_name, iteration: 0, start, end, op_count: met.slices })?;
        Ok(met)
    }

    /// When the recording began and ended.
    pub(crate) fn window(&self) -> (Timestamp, Timestamp) {
        let windows = &self.recorded.windows;
        let at = |t: Option<Ticks>| t.map_or(Timestamp::default(), |t| self.converter.timestamp(t));
        (at(windows.first().map(|w| w.start)), at(windows.last().map(|w| w.end)))
    }

    /// The lanes of each thread id: the kernel uses ids again, and a pause gives a thread another lane.
    fn threads(&self) -> BTreeMap<i64, Vec<usize>> {
        let mut threads: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
        for (lane, row) in self.recorded.lanes.iter().enumerate() {
            threads.entry(row.thread).or_default().push(lane);
        }
        threads
    }

    fn thread_rows(
        &self,
        thread: i64,
        lanes: &[usize],
        used: usize,
        at: Timestamp,
        rows: &mut dyn Rows,
    ) -> io::Result<()> {
        let mut names = lanes.iter().filter_map(|lane| self.recorded.lanes.get(*lane)).map(|row| row.name.as_str());
        let name = names.rfind(|name| !name.is_empty()).unwrap_or_default();
        for row in 0..used {
            let name = match row {
                0 => format!("thread {thread} ({name})"),
                _ => format!("thread {thread} ({name}) ({})", row + 1),
            };
            rows.thread(&ThreadRow { track: self.row(thread, row), name: &name, sort_index: thread, at })?;
        }
        Ok(())
    }

    fn row(&self, thread: i64, row: usize) -> Row<'static> {
        Row::new(self.process, thread + i64::try_from(row).unwrap_or(0) * NEXT_ROW)
    }

    /// All activities of one thread; returns how many rows they need.
    fn thread(
        &self,
        thread: i64,
        lanes: &[usize],
        source: &Source<'_>,
        rows: &mut dyn Rows,
        met: &mut Met,
    ) -> io::Result<usize> {
        let mut nest = Nest::new(self.converter.error_ns());
        let mut runs: Vec<Run> = self.index.runs.iter().copied().filter(|run| lanes.contains(&run.lane)).collect();
        // By lane first: a thread whose id is used again may go on in a chunk that is older than its predecessor's last.
        runs.sort_unstable_by_key(|run| (run.lane, run.chunk, run.from));
        let epoch = |run: &Run| self.recorded.chunks.get(run.chunk).map_or(0, |(chunk, _)| chunk.epoch());
        let mut out = Thread { walk: self, source, rows, met, nest: &mut nest, thread };
        for epoch_runs in runs.chunk_by(|a, b| epoch(a) == epoch(b)) {
            // Slices that were open when the recording began are recorded when they end; they come first, the longest first.
            let mut clipped: Vec<Record<'_>> = Vec::new();
            for record in epoch_runs.iter().flat_map(|run| self.recorded.records(*run)) {
                if record.head.tag == Tag::Slice && record.head.flags & flag::CLIPPED != 0 {
                    clipped.push(record);
                }
            }
            clipped.sort_by_key(|record| std::cmp::Reverse(record.words[1]));
            clipped.iter().try_for_each(|record| out.slice(record))?;
            for record in epoch_runs.iter().flat_map(|run| self.recorded.records(*run)) {
                match record.head.tag {
                    Tag::Slice if record.head.flags & flag::CLIPPED == 0 => out.slice(&record)?,
                    Tag::Instant | Tag::Counter => out.event(&record)?,
                    _ => {}
                }
            }
        }
        Ok(nest.rows().max(1))
    }

    /// Whether a slice of that span is drawn on its thread.
    fn draws_polls(&self, span: u64) -> bool {
        self.async_spans != AsyncSpans::Track || self.index.tracks.is_empty() || !self.index.tracks.contains_key(&span)
    }

    /// The spans that get a track of their own.
    ///
    /// By default, those that are entered more than once and are of a callsite whose spans are polled: one by one it
    /// could not be told, as a span ends late whose handle another task holds.
    fn tracks(&self) -> impl Iterator<Item = (u64, Track)> + '_ {
        let wanted = move |track: &Track| match self.async_spans {
            AsyncSpans::PerPoll => false,
            AsyncSpans::Auto => self.index.polled_sites.contains(&track.site),
            _ => true,
        };
        let tracks = self.index.tracks.iter().filter(|(_, track)| wanted(track));
        tracks.map(|(span, track)| (*span, *track)).collect::<BTreeMap<u64, Track>>().into_iter()
    }

    fn async_track(&self, span: u64, track: Track, source: &Source<'_>, rows: &mut dyn Rows) -> io::Result<()> {
        let Some(site) = self.recorded.sites.get(track.site as usize) else { return Ok(()) };
        let window_end = self.recorded.windows.last().map_or(track.last, |window| window.end);
        let end = track.closed.unwrap_or(window_end).max(track.last).min(window_end.max(track.last));
        let lane = |lane: usize| self.recorded.lanes.get(lane).map_or(0, |row| row.thread);
        let (start, end) = (self.converter.timestamp(track.first), self.converter.timestamp(end));
        let busy = self.converter.timestamp(Ticks(track.first.0 + track.busy_ticks)).since(start);
        let unfinished = ("finished", ArgValue::Bool(false));
        let figures = [
            ("polls", ArgValue::U64(track.polls)),
            ("busy us", ArgValue::F64(busy as f64 / 1000.0)),
            ("wall us", ArgValue::F64(end.since(start) as f64 / 1000.0)),
            unfinished,
        ];
        let own = figures.get(..if track.closed.is_some() { 3 } else { 4 }).unwrap_or_default();
        let record = self.recorded.record(span);
        let parent =
            record.filter(|r| r.head.tag == Tag::Span).map(|r| r.words[0]).or(self.index.parents.get(&span).copied());
        let args = SpanArgs { source, site: track.site, span, parent: parent.unwrap_or(0), slice: 0, own };
        let mut name = Vec::new();
        let named = source.span_name(span, track.site, &mut name);
        rows.async_track(&AsyncRow {
            name: named.unwrap_or(site.metadata.name()),
            id: span,
            begin: self.row(lane(track.first_lane), 0),
            start,
            finish: self.row(lane(track.last_lane), 0),
            end,
            args: &args,
        })
    }
}

/// One thread's rows on their way out.
struct Thread<'w> {
    walk: &'w Walk<'w>,
    source: &'w Source<'w>,
    rows: &'w mut dyn Rows,
    met: &'w mut Met,
    nest: &'w mut Nest,
    thread: i64,
}

impl Thread<'_> {
    fn slice(&mut self, record: &Record<'_>) -> io::Result<()> {
        let walk = self.walk;
        let Some(site) = walk.recorded.sites.get(record.head.site as usize) else { return Ok(()) };
        let span = record.words[2];
        let (start, end, finished) = walk.index.times(walk.recorded, record);
        let (start, end) = (walk.converter.timestamp(start), walk.converter.timestamp(end));
        let clipped = record.head.flags & flag::CLIPPED != 0;
        // Also what is not drawn is around what is.
        let place = self.nest.place(start, end.max(start), span);
        if !walk.draws_polls(span) {
            return Ok(());
        }
        self.met.slices += 1;
        self.met.clipped += u64::from(clipped);
        self.met.unfinished += u64::from(!finished);
        self.met.overlapping += u64::from(place.row > 0);
        let mut own = [("", ArgValue::Bool(false)); 3];
        let marks = [
            (!finished, ("finished", ArgValue::Bool(false))),
            (clipped, ("clipped", ArgValue::Bool(true))),
            (place.row > 0, ("thread id", ArgValue::I64(self.thread))),
        ];
        let mut count = 0;
        for (mark, slot) in marks.iter().filter(|mark| mark.0).zip(&mut own) {
            *slot = mark.1;
            count += 1;
        }
        // Only spans with fields have a record of their own.
        let definition = if site.fields == 0 { None } else { walk.recorded.record(span) };
        let definition = definition.filter(|record| record.head.tag == Tag::Span);
        let parent = match (&definition, record.head.flags & flag::NESTED != 0) {
            (Some(definition), _) => definition.words[0],
            (None, true) => place.around,
            (None, false) => walk.index.parents.get(&span).copied().unwrap_or(0),
        };
        let args = SpanArgs {
            source: self.source,
            site: record.head.site,
            span,
            parent,
            slice: record.id(),
            own: own.get(..count).unwrap_or_default(),
        };
        let mut name = Vec::new();
        let named = self.source.span_name(span, record.head.site, &mut name);
        let track = walk.row(self.thread, place.row);
        self.rows.activity(&Activity {
            kind: site.class(),
            name: named.unwrap_or(site.metadata.name()),
            track,
            body: Body::Slice { start, end: place.end },
            id: CorrelationId(record.id()),
            linked: CorrelationId(0),
            flow: None,
            args: &args,
        })?;
        for (_, id, starts) in walk.index.arrows_at(record.id()) {
            let end = if *starts { FlowEnd::Start } else { FlowEnd::Finish };
            self.rows.flow(start, track, Flow { kind: FlowKind::FollowsFrom, id: *id, end })?;
        }
        Ok(())
    }

    fn event(&mut self, record: &Record<'_>) -> io::Result<()> {
        let walk = self.walk;
        let Some(site) = walk.recorded.sites.get(record.head.site as usize) else { return Ok(()) };
        let at = walk.converter.timestamp(Ticks(record.words[0]));
        let is_counter = record.head.tag == Tag::Counter;
        let span = if is_counter { 0 } else { record.words[1] };
        let args = EventArgs { source: self.source, record: *record, span, numbers_only: is_counter };
        let field = |name| site.metadata.fields().field(name).map(|field| field.index());
        let named_by = field(crate::callsite::NAME_FIELD).or_else(|| field("message"));
        let mut name = Vec::new();
        let named = named_by.and_then(|by| self.source.name(record, &mut name, by));
        self.rows.activity(&Activity {
            kind: ActivityType::CpuInstantEvent,
            name: named.unwrap_or(site.metadata.name()),
            track: walk.row(self.thread, 0),
            body: if is_counter { Body::Counter { at } } else { Body::Instant { at } },
            id: CorrelationId(0),
            linked: CorrelationId(0),
            flow: None,
            args: if is_counter || record.head.payload != 0 || span != 0 { &args as &dyn Args } else { NO_ARGS },
        })
    }
}
