//! Turns the records of a session into rows, thread by thread, without keeping any.

use super::cpu::CpuTrace;
use super::device::LinkedRecords;
use super::header::TraceInfo;
use super::index::Index;
use super::index::omitted::OmittedEnters;
use super::index::requests::{AsyncTrack, Requests};
use super::recorded::Recorded;
use super::thread::ThreadRows;
use super::thread::args::FieldArgs;
use crate::callsite::COUNTER_TARGET;
use crate::clock::Converter;
use crate::config::{AsyncSpans, Config};
use crate::fields::Word;
use crate::time::{Ticks, Timestamp, base_time};
use crate::write::chrome::resolution_ns;
use kineto_base::fallible::List;
use kineto_base::sorted::SortedMap;
use kineto_model::activity::{ArgValue, Args, Lane, Track as Row};
use kineto_model::keys::Keys;
use kineto_model::rows::{AsyncRow, ProcessRow, Rows, SiteRow, SpanArgs, SpanRow, ThreadRow};
use std::cell::RefCell;
use std::io;
use std::sync::Arc;

/// The sources of all rows, and of their arguments.
pub(crate) struct Walk<'t> {
    pub(super) recorded: &'t Recorded,
    pub(super) index: &'t Index,
    pub(super) omitted: &'t OmittedEnters,
    pub(super) requests: &'t Requests,
    /// The records of collectors.
    pub(super) devices: LinkedRecords<'t>,
    /// The activities that the program pushed.
    pub(super) own: &'t [Arc<CpuTrace>],
    pub(super) converter: &'t Converter,
    pub(super) info: &'t TraceInfo,
    /// The start and end of the recording: all times of its records lie between them.
    pub(super) window: (Timestamp, Timestamp),
    /// The shared data of all slices, by callsite.
    pub(super) sites: List<SiteRow>,
    /// A buffer for payloads.
    pub(super) words: RefCell<List<Word>>,
}

/// The counts of a walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WalkCounts {
    pub(crate) slices: u64,
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

impl Walk<'_> {
    /// Delivers all rows, in the order of a Kineto file: processes, activities by thread, threads, the recording.
    pub(super) fn deliver_rows(&self, rows: &mut dyn Rows) -> io::Result<WalkCounts> {
        let (TraceInfo { process, process_name, .. }, (start, end)) = (self.info, self.window);
        rows.write_process(&ProcessRow {
            process: Lane::Id(*process),
            name: process_name,
            label: "CPU",
            sort_index: *process,
            at: start,
        })?;
        self.device_processes(rows)?;
        self.own_processes(rows)?;
        let mut counts = WalkCounts::default();
        for (thread, lanes) in self.lanes_by_thread() {
            let used = ThreadRows::deliver_all(self, thread, rows, &mut counts)?;
            self.thread_rows(thread, &lanes, used, rows)?;
        }
        self.device_rows(rows, &mut counts)?;
        self.own_tracks(rows, &mut counts)?;
        self.async_tracks(rows)?;
        if self.info.is_recording {
            let op_count = counts.slices;
            rows.write_span(&SpanRow { name: "tracing-kineto", iteration: 0, start, end, op_count })?;
        }
        self.own_spans(rows)?;
        Ok(counts)
    }

    /// Returns the smallest difference of times, in nanoseconds, that readers can tell apart.
    pub(super) fn resolution_ns(&self) -> u64 {
        resolution_ns(base_time(self.window.0), self.window.1)
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
        for thread in self.own.iter().flat_map(|own| own.threads_of(self.info.process)) {
            threads.get_or_insert_with(thread, Vec::new);
        }
        threads
    }

    fn thread_rows(&self, thread: i64, lanes: &[usize], used: usize, rows: &mut dyn Rows) -> io::Result<()> {
        let mut names = lanes.iter().filter_map(|lane| self.recorded.lanes.get(*lane)).map(|row| row.name.as_str());
        // Viewers show the id after the name.
        let name = match names.rfind(|name| !name.is_empty()) {
            Some(name) => name.to_owned(),
            None if !lanes.is_empty() => format!("thread {thread}"),
            // The thread made calls and recorded nothing itself.
            None => format!("thread {thread} ({})", self.own_name(&self.thread_track(thread)).unwrap_or("no spans")),
        };
        let first = self.thread_row(thread, 0);
        (0..used).try_for_each(|row| self.name_row([self.thread_row(thread, row), first], row, &name, thread, rows))
    }

    /// Delivers the name of a row: the heading of the first row of the same thread or stream, and a further row's number.
    pub(super) fn name_row(
        &self,
        [track, first]: [Row<'_>; 2],
        nth: usize,
        heading: &str,
        sort_index: i64,
        rows: &mut dyn Rows,
    ) -> io::Result<()> {
        let name = format!("{heading}{}", row_suffix(nth));
        let continues = Some(first).filter(|first| *first != track);
        rows.write_thread(&ThreadRow { track, name: &name, sort_index, continues, at: self.window.0 })
    }

    /// Returns a row of a thread.
    #[inline]
    pub(super) fn thread_row(&self, thread: i64, row: usize) -> Row<'static> {
        Row::new(self.info.process, row_id(thread, row))
    }

    /// Returns whether slices of that span are drawn on its thread.
    pub(super) fn draws_enters(&self, span: u64) -> bool {
        self.info.config.async_spans != AsyncSpans::Track
            || self.index.tracks.is_empty()
            || !self.index.tracks.contains_key(&span)
    }

    /// Delivers the async tracks, in a group of their own: Perfetto shows the tracks of a process below all of its threads.
    fn async_tracks(&self, rows: &mut dyn Rows) -> io::Result<()> {
        if !self.requests.async_tracks().is_empty() {
            let (process, name) = (Lane::Name(ASYNC_SPANS), ASYNC_SPANS);
            let at = self.window.0;
            rows.write_process(&ProcessRow { process, name, label: "", sort_index: ASYNC_SPANS_ORDER, at })?;
        }
        self.requests.async_tracks().iter().try_for_each(|track| self.async_track(track, rows))
    }

    fn async_track(&self, track: &AsyncTrack, rows: &mut dyn Rows) -> io::Result<()> {
        let AsyncTrack { span, start, end, total, .. } = *track;
        let Some(site) = self.sites.get(total.site as usize) else { return Ok(()) };
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
        let fields = FieldArgs { walk: self, site: total.site, span, definition: definition.as_ref(), slice: 0 };
        let args = SpanArgs { span, parent, creation_fields: &[], more: Some(&fields), site, marks: Some(marks) };
        let mut name = List::new();
        let named = self.span_name(span, total.site, &mut name);
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

/// Returns the id of a thread's row.
#[inline]
pub(super) fn row_id(thread: i64, row: usize) -> i64 {
    thread + i64::try_from(row).unwrap_or(0) * NEXT_ROW
}

/// Returns the suffix of the name of a further row.
pub(super) fn row_suffix(row: usize) -> String {
    if row == 0 { String::new() } else { format!(" ({})", row + 1) }
}

/// Returns the shared data of all slices, by callsite.
pub(super) fn site_rows(recorded: &Recorded, config: &Config) -> List<SiteRow> {
    let mut rows = List::with_capacity(recorded.sites.len());
    let mut names = Vec::new();
    for (number, site) in recorded.sites.iter().enumerate() {
        names.clear();
        for name in &site.fields {
            names.push(&**name);
        }
        rows.push(SiteRow {
            number,
            kind: site.class,
            name: site.name.clone(),
            target: (config.with_target && site.target != COUNTER_TARGET).then(|| site.target.clone()),
            location: if config.with_location { site.location() } else { None },
            scope: site.scope,
            keys: if site.is_counter { Keys::of_series(&names) } else { Keys::new(&names) },
        });
    }
    rows
}
