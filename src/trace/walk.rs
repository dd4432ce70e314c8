//! Turns the records of a session into rows, thread by thread, without keeping any.

use super::cpu::CpuRows;
use super::device::{DeviceRows, LinkedRecords};
use super::index::Index;
use super::index::omitted::OmittedEnters;
use super::index::requests::{AsyncTrack, Requests};
use super::recorded::Recorded;
use super::thread::ThreadRows;
use super::thread::args::{FieldArgs, Source};
use super::thread::symbols::StackSymbols;
use crate::callsite::COUNTER_TARGET;
use crate::clock::Converter;
use crate::config::AsyncSpans;
use crate::recorder::CounterReport;
use crate::time::{Ticks, Timestamp, base_time};
use crate::write::chrome::resolution_ns;
use kineto_base::fallible::List;
use kineto_base::sorted::SortedMap;
use kineto_model::activity::{ArgValue, Args, Lane, Track as Row};
use kineto_model::keys::Keys;
use kineto_model::rows::{AsyncRow, ProcessRow, Rows, SiteRow, SpanArgs, SpanRow, ThreadRow};
use std::cell::RefCell;
use std::io;

/// The sources of all rows.
#[derive(Clone, Copy)]
pub(crate) struct Walk<'t> {
    pub(crate) recorded: &'t Recorded,
    pub(crate) index: &'t Index,
    pub(super) omitted: &'t OmittedEnters,
    pub(super) requests: &'t Requests,
    /// The records of collectors.
    pub(super) devices: LinkedRecords<'t>,
    pub(crate) converter: &'t Converter,
    pub(crate) process: i64,
    pub(crate) process_name: &'t str,
    pub(crate) async_spans: AsyncSpans,
    pub(crate) with_target: bool,
    pub(crate) with_location: bool,
    /// Whether slices have an id by which an execution trace refers to them.
    pub(crate) with_function_ids: bool,
    /// The symbols of return addresses, and the reports of counters.
    pub(super) symbols: &'t StackSymbols,
    pub(super) counters: &'t [CounterReport],
    /// The activities that the program pushed.
    pub(super) own: CpuRows<'t>,
    /// The name of the row that shows the whole recording, if any.
    pub(crate) span_name: Option<&'t str>,
}

/// The counts of a walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WalkCounts {
    pub(crate) slices: u64,
    pub(crate) clipped: u64,
    pub(crate) unfinished: u64,
    pub(crate) overlapping: u64,
    /// The number of device slices that overlap.
    pub(crate) overlapping_work: u64,
}

/// Offset of a thread's second row; no kernel assigns such thread ids.
pub(super) const NEXT_ROW: i64 = 10_000_000;

/// Viewers sort groups of devices below the host's, as in libkineto.
pub(super) const DEVICES: i64 = 5_000_000;

/// The group of async tracks, between the host's and the devices'.
const ASYNC_SPANS: &str = "Async spans";
const ASYNC_SPANS_ORDER: i64 = DEVICES - 1;

impl<'t> Walk<'t> {
    /// Delivers all rows, in the order of a Kineto file: processes, activities by thread, threads, the recording.
    pub(crate) fn deliver_rows(&self, rows: &mut dyn Rows) -> io::Result<WalkCounts> {
        let sites = self.site_rows();
        let source = self.source(&sites);
        let (start, end) = self.window();
        rows.write_process(&ProcessRow {
            process: Lane::Id(self.process),
            name: self.process_name,
            label: "CPU",
            sort_index: self.process,
            at: start,
        })?;
        let devices = DeviceRows::new(self, &source);
        devices.deliver_processes(start, rows)?;
        self.own.deliver_processes(start, rows)?;
        let mut counts = WalkCounts::default();
        for (thread, lanes) in self.lanes_by_thread() {
            let used = self.deliver_thread(thread, &source, rows, &mut counts)?;
            self.thread_rows(thread, &lanes, used, start, rows)?;
        }
        devices.deliver_all(start, rows, &mut counts)?;
        devices.deliver_memory(rows)?;
        self.own.all_others((start, self.resolution_ns()), rows, &mut counts)?;
        self.async_tracks(&source, rows)?;
        if let Some(name) = self.span_name {
            rows.write_span(&SpanRow { name, iteration: 0, start, end, op_count: counts.slices })?;
        }
        self.own.deliver_spans(rows)?;
        Ok(counts)
    }

    /// Delivers only the rows of devices to `rows`.
    pub(crate) fn devices_alone(&self, rows: &mut dyn Rows) -> io::Result<WalkCounts> {
        let (sites, mut counts) = (self.site_rows(), WalkCounts::default());
        let source = self.source(&sites);
        DeviceRows::new(self, &source).deliver_all(self.window().0, rows, &mut counts)?;
        Ok(counts)
    }

    pub(super) fn source<'s>(&'s self, sites: &'s [SiteRow]) -> Source<'s> {
        let (words, later) = (RefCell::default(), RefCell::default());
        Source { recorded: self.recorded, index: self.index, sites, words, later }
    }

    /// Returns the smallest difference of times, in nanoseconds, that readers can tell apart.
    pub(super) fn resolution_ns(&self) -> u64 {
        let (start, end) = self.window();
        resolution_ns(base_time(start), end)
    }

    /// Returns the start and end of the recording: all times of its records lie between them.
    pub(crate) fn window(&self) -> (Timestamp, Timestamp) {
        let (start, end) = self.recorded.whole;
        self.converter.time_range(start, end)
    }

    /// Returns the lanes of each thread id: the kernel reuses ids, and a pause gives a thread another lane.
    pub(super) fn lanes_by_thread(&self) -> SortedMap<i64, Vec<usize>> {
        let mut lanes = Vec::with_capacity(self.recorded.lanes.len());
        for (lane, row) in self.recorded.lanes.iter().enumerate() {
            lanes.push((row.thread, lane));
        }
        let mut threads = SortedMap::group(lanes);
        for thread in self.devices.calling_threads() {
            threads.get_or_insert_with(thread, Vec::new);
        }
        self.own.visit_threads(&mut |thread| _ = threads.get_or_insert_with(thread, Vec::new));
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
        // Viewers show the id after the name.
        let name = match names.rfind(|name| !name.is_empty()) {
            Some(name) => name.to_owned(),
            None if !lanes.is_empty() => format!("thread {thread}"),
            // The thread made calls and recorded nothing itself.
            None => format!("thread {thread} ({})", self.own.name_of(thread).unwrap_or("no spans")),
        };
        for row in 0..used {
            let name = if row == 0 { name.clone() } else { format!("{name} ({})", row + 1) };
            let track = Row::new(self.process, self.row_id(thread, row));
            let continues = (row > 0).then(|| Row::new(self.process, self.row_id(thread, 0)));
            rows.write_thread(&ThreadRow { track, name: &name, sort_index: thread, continues, at })?;
        }
        Ok(())
    }

    /// Returns the id of a thread's row.
    #[inline]
    pub(super) fn row_id(&self, thread: i64, row: usize) -> i64 {
        thread + i64::try_from(row).unwrap_or(0) * NEXT_ROW
    }

    /// Delivers all activities of a thread; returns the number of rows that they need.
    fn deliver_thread(
        &self,
        thread: i64,
        source: &Source<'_>,
        rows: &mut dyn Rows,
        counts: &mut WalkCounts,
    ) -> io::Result<usize> {
        let mut out = ThreadRows::new(self, source, thread, rows, counts);
        out.deliver_runs(self.index.runs_of(thread))?;
        Ok(out.row_count())
    }

    /// Returns the shared data of all slices, by callsite.
    pub(super) fn site_rows(&self) -> List<SiteRow> {
        let mut rows = List::with_capacity(self.recorded.sites.len());
        let mut names = Vec::new();
        for (number, site) in self.recorded.sites.iter().enumerate() {
            names.clear();
            for name in &site.fields {
                names.push(&**name);
            }
            rows.push(SiteRow {
                number,
                kind: site.class,
                name: site.name.clone(),
                target: (self.with_target && site.target != COUNTER_TARGET).then(|| site.target.clone()),
                location: if self.with_location { site.location() } else { None },
                scope: site.scope,
                keys: if site.is_counter { Keys::of_series(&names) } else { Keys::new(&names) },
            });
        }
        rows
    }

    /// Returns whether slices of that span are drawn on its thread.
    pub(super) fn draws_enters(&self, span: u64) -> bool {
        self.async_spans != AsyncSpans::Track || self.index.tracks.is_empty() || !self.index.tracks.contains_key(&span)
    }

    /// Delivers the async tracks, in a group of their own: Perfetto shows the tracks of a process below all of its threads.
    fn async_tracks(&self, source: &Source<'_>, rows: &mut dyn Rows) -> io::Result<()> {
        if !self.requests.async_tracks().is_empty() {
            let (process, name) = (Lane::Name(ASYNC_SPANS), ASYNC_SPANS);
            let at = self.window().0;
            rows.write_process(&ProcessRow { process, name, label: "", sort_index: ASYNC_SPANS_ORDER, at })?;
        }
        self.requests.async_tracks().iter().try_for_each(|track| self.async_track(track, source, rows))
    }

    fn async_track(&self, track: &AsyncTrack, source: &Source<'_>, rows: &mut dyn Rows) -> io::Result<()> {
        let AsyncTrack { span, start, end, total, .. } = *track;
        let Some(site) = source.sites.get(total.site as usize) else { return Ok(()) };
        let busy = Ticks(total.first.0.saturating_add(total.busy_ticks));
        let busy = self.converter.slice_times(total.first, busy).1.since(start);
        let figures = [
            ("request id", ArgValue::U64(track.request)),
            ("enters", ArgValue::U64(total.enters)),
            ("busy us", ArgValue::F64(busy as f64 / 1000.0)),
            ("wall us", ArgValue::F64(end.since(start) as f64 / 1000.0)),
            ("finished", ArgValue::Bool(false)),
        ];
        let closed = figures.first_chunk::<4>().filter(|_| total.is_closed);
        let marks = closed.map_or(&figures as &dyn Args, |figures| figures);
        let definition = self.recorded.find_record(span);
        let parent = definition.and_then(|record| record.parent_id()).unwrap_or(0);
        let fields = FieldArgs { source, site: total.site, span, definition: definition.as_ref(), slice: 0 };
        let args = SpanArgs { span, parent, creation_fields: &[], more: Some(&fields), site, marks: Some(marks) };
        let mut name = List::new();
        let named = source.span_name(span, total.site, &mut name);
        rows.write_async_track(&AsyncRow {
            name: named.unwrap_or(&site.name),
            span,
            track: track.track,
            on: Row { process: Lane::Name(ASYNC_SPANS), thread: Lane::Id(0) },
            start,
            end: track.drawn,
            args: &args,
        })
    }
}
