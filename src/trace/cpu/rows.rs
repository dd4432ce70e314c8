//! The rows of activities that a program has pushed: on its threads' rows, or on rows of their own.

use super::CpuTrace;
use super::owned::{OwnActivity, TrackId};
use crate::time::Timestamp;
use crate::trace::thread::nest::{Nest, RowSlot};
use crate::trace::walk::{NEXT_ROW, WalkCounts};
use kineto_base::fallible::List;
use kineto_base::sorted::{SortedMap, SortedSet};
use kineto_base::sorting::sort_few_by_key;
use kineto_model::activity::{ActivityTypes, Body, Track};
use kineto_model::rows::{ProcessRow, Rows, SpanRow, ThreadRow};
use std::cmp::Reverse;
use std::io;
use std::sync::Arc;

/// The activities that programs have pushed into a trace.
#[derive(Clone, Copy)]
pub(in crate::trace) struct CpuRows<'t> {
    pub(in crate::trace) traces: &'t [Arc<CpuTrace>],
    /// The requested types.
    pub(in crate::trace) selected: ActivityTypes,
    pub(in crate::trace) process: i64,
    /// Whether slices have an id by which an execution trace refers to them.
    pub(in crate::trace) with_function_ids: bool,
}

/// The records of one row, in order of their start.
pub(in crate::trace) struct OwnRecords<'t> {
    records: std::iter::Peekable<std::vec::IntoIter<&'t OwnActivity>>,
    with_function_ids: bool,
}

/// A record of a row.
#[derive(Clone, Copy)]
pub(in crate::trace) struct OwnRow<'t> {
    record: &'t OwnActivity,
    with_function_id: bool,
}

impl<'t> CpuRows<'t> {
    /// Calls `each` with the threads of this process that have records.
    pub(in crate::trace) fn visit_threads(self, each: &mut dyn FnMut(i64)) {
        for trace in self.traces {
            for track in trace.rows.keys() {
                if let Some(thread) = self.thread_of(track) {
                    each(thread);
                }
            }
        }
    }

    /// Returns the records of a thread.
    pub(in crate::trace) fn of_thread(self, thread: i64) -> OwnRecords<'t> {
        self.of_row(&(TrackId::Id(self.process), TrackId::Id(thread)))
    }

    /// Returns the name of a builder with records on a thread.
    pub(in crate::trace) fn name_of(self, thread: i64) -> Option<&'t str> {
        self.name_on(&(TrackId::Id(self.process), TrackId::Id(thread)))
    }

    /// Delivers the processes other than this one.
    pub(in crate::trace) fn deliver_processes(self, at: Timestamp, rows: &mut dyn Rows) -> io::Result<()> {
        let mut last = &TrackId::Id(self.process);
        // They are in the order of the processes.
        for (lane, _) in self.other_tracks() {
            if *lane == *last || *lane == TrackId::Id(self.process) {
                continue;
            }
            last = lane;
            let on = |trace: &&Arc<CpuTrace>| trace.rows.keys().any(|track| track.0 == *lane);
            let (name, label, sort_index) = match lane {
                TrackId::Id(id) => (self.traces.iter().find(on).map_or("", |trace| &trace.name), "CPU", *id),
                TrackId::Name(name) => (&**name, "", 0),
            };
            rows.write_process(&ProcessRow { process: lane.as_lane(), name, label, sort_index, at })?;
        }
        Ok(())
    }

    /// Delivers the activities that are not on a thread of this process.
    pub(in crate::trace) fn all_others(
        self,
        (at, resolution_ns): (Timestamp, u64),
        rows: &mut dyn Rows,
        counts: &mut WalkCounts,
    ) -> io::Result<()> {
        for track in self.other_tracks() {
            let mut nest = Nest::new(0, resolution_ns);
            let mut records = self.of_row(track);
            while let Some(own) = records.next_before(None) {
                let place = own.place_row(&mut nest);
                counts.overlapping += u64::from(place.is_some_and(|place| place.row > 0));
                let thread = numbered_track(&track.1, place.map_or(0, |place| place.row));
                own.deliver_row(place, Track { process: track.0.as_lane(), thread: thread.as_lane() }, rows)?;
            }
            let name = self.name_on(track).unwrap_or_default();
            for number in 0..nest.row_count() {
                let lane = numbered_track(&track.1, number);
                let again = if number > 0 { format!(" ({})", number + 1) } else { String::new() };
                let (name, sort_index) = match (&track.1, &lane) {
                    (TrackId::Id(id), _) => (format!("thread {id} ({name}){again}"), *id),
                    (_, TrackId::Name(name)) => (name.to_string(), 0),
                    _ => (String::new(), 0),
                };
                let first = numbered_track(&track.1, 0);
                let continues = (number > 0).then(|| Track { process: track.0.as_lane(), thread: first.as_lane() });
                let track = Track { process: track.0.as_lane(), thread: lane.as_lane() };
                rows.write_thread(&ThreadRow { track, name: &name, sort_index, continues, at })?;
            }
        }
        Ok(())
    }

    /// Delivers a row for each builder as a whole; numbers builders of the same name.
    pub(in crate::trace) fn deliver_spans(self, rows: &mut dyn Rows) -> io::Result<()> {
        let mut iterations: SortedMap<&str, i64> = SortedMap::new();
        for trace in self.traces.iter().filter(|trace| !trace.name.is_empty()) {
            let CpuTrace { name, start, end, records, .. } = &**trace;
            let next = iterations.get_or_insert_with(name, || 0);
            let iteration = *next;
            *next += 1;
            let op_count = records.len() as u64;
            rows.write_span(&SpanRow { name, iteration, start: *start, end: *end, op_count })?;
        }
        Ok(())
    }

    /// Returns the thread of this process that a row belongs to.
    fn thread_of(self, track: &(TrackId, TrackId)) -> Option<i64> {
        match track {
            (TrackId::Id(process), TrackId::Id(thread)) if *process == self.process => Some(*thread),
            _ => None,
        }
    }

    fn other_tracks(self) -> SortedSet<&'t (TrackId, TrackId)> {
        let mut tracks = SortedSet::new();
        for trace in self.traces {
            for track in trace.rows.keys() {
                if self.thread_of(track).is_none() {
                    tracks.insert(track);
                }
            }
        }
        tracks
    }

    fn name_on(self, track: &(TrackId, TrackId)) -> Option<&'t str> {
        self.traces.iter().find(|trace| trace.rows.contains_key(track)).map(|trace| trace.name.as_str())
    }

    fn of_row(self, track: &(TrackId, TrackId)) -> OwnRecords<'t> {
        let mut records: List<&OwnActivity> = List::new();
        for trace in self.traces {
            for number in trace.rows.get(track).map_or(&[][..], Vec::as_slice) {
                if let Some(record) = trace.records.get(*number).filter(|record| self.selected.contains(record.kind)) {
                    records.push(record);
                }
            }
        }
        if self.traces.len() > 1 {
            sort_few_by_key(&mut records, |record| record.sort_key());
        }
        OwnRecords { records: records.into_iter().peekable(), with_function_ids: self.with_function_ids }
    }
}

impl<'t> OwnRecords<'t> {
    /// Returns the next record, if it begins before a slice with these times, or begins with it and lasts longer.
    pub(in crate::trace) fn next_before(&mut self, before: Option<(Timestamp, Timestamp)>) -> Option<OwnRow<'t>> {
        let precedes =
            |record: &&OwnActivity| before.is_none_or(|(start, end)| record.sort_key() < (start, Reverse(end)));
        let with_function_id = self.with_function_ids;
        self.records.next_if(precedes).map(|record| OwnRow { record, with_function_id })
    }
}

impl OwnRow<'_> {
    /// Returns its start.
    pub(in crate::trace) fn start(self) -> Timestamp {
        self.record.sort_key().0
    }

    /// Finds the row in which it nests; `None` if it has no duration.
    pub(in crate::trace) fn place_row(self, nest: &mut Nest) -> Option<RowSlot> {
        match self.record.body {
            Body::Slice { start, end } => Some(nest.place_slice(start, end)),
            Body::Instant { .. } | Body::Counter { .. } => None,
        }
    }

    /// Delivers the activity on its row.
    pub(in crate::trace) fn deliver_row(
        self,
        place: Option<RowSlot>,
        track: Track<'_>,
        rows: &mut dyn Rows,
    ) -> io::Result<()> {
        let OwnRow { record, with_function_id } = self;
        let (mut args, mut body) = (record.owned_args(), record.body);
        if let Some(RowSlot { row, start, end }) = place {
            body = Body::Slice { start, end };
            if let (1.., TrackId::Id(id)) = (row, &record.track.1) {
                args.thread = Some(*id);
            }
            args.function = with_function_id.then(|| record.id()).flatten();
        }
        let mut activity = record.to_activity(&args);
        (activity.track, activity.body) = (track, body);
        rows.write_activity(&activity)
    }
}

/// Returns the `number`th row of a lane.
fn numbered_track(lane: &TrackId, number: usize) -> TrackId {
    match (lane, number) {
        (lane, 0) => lane.clone(),
        (TrackId::Id(id), _) => TrackId::Id(id + i64::try_from(number).unwrap_or(0) * NEXT_ROW),
        (TrackId::Name(name), _) => TrackId::Name(format!("{name} ({})", number + 1).into()),
    }
}
