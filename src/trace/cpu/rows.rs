//! The rows of activities that a program has pushed: on its threads' rows, or on rows of their own.

use super::CpuTrace;
use super::owned::{OwnActivity, TrackId};
use crate::time::Timestamp;
use crate::trace::thread::nest::{Nest, RowSlot};
use crate::trace::walk::{Walk, WalkCounts, row_id, row_suffix};
use kineto_base::fallible::List;
use kineto_base::sorted::{SortedMap, SortedSet};
use kineto_base::sorting::sort_few_by_key;
use kineto_model::activity::{Body, Track};
use kineto_model::rows::{ProcessRow, Rows, SpanRow};
use std::cmp::Reverse;
use std::io;
use std::iter::Peekable;
use std::sync::Arc;

/// The records of one row, in order of their start.
pub(in crate::trace) type OwnRecords<'t> = Peekable<std::vec::IntoIter<&'t OwnActivity>>;

impl<'t> Walk<'t> {
    /// Returns the row of a thread of this process.
    pub(in crate::trace) fn thread_track(&self, thread: i64) -> (TrackId, TrackId) {
        (TrackId::Id(self.info.process), TrackId::Id(thread))
    }

    /// Delivers the processes of pushed activities, other than this one.
    pub(in crate::trace) fn own_processes(&self, rows: &mut dyn Rows) -> io::Result<()> {
        let this = TrackId::Id(self.info.process);
        let mut last = &this;
        // They are in the order of the processes.
        for (lane, _) in self.other_tracks() {
            if *lane == *last || *lane == this {
                continue;
            }
            last = lane;
            let on = |trace: &&Arc<CpuTrace>| trace.rows.keys().any(|track| track.0 == *lane);
            let (name, label, sort_index) = match lane {
                TrackId::Id(id) => (self.own.iter().find(on).map_or("", |trace| &trace.name), "CPU", *id),
                TrackId::Name(name) => (&**name, "", 0),
            };
            rows.write_process(&ProcessRow { process: lane.as_lane(), name, label, sort_index, at: self.window.0 })?;
        }
        Ok(())
    }

    /// Delivers the activities that are not on a thread of this process.
    pub(in crate::trace) fn own_tracks(&self, rows: &mut dyn Rows, counts: &mut WalkCounts) -> io::Result<()> {
        for track in self.other_tracks() {
            let mut nest = Nest::new(0, self.resolution_ns());
            let process = track.0.as_lane();
            for own in self.own_records(track) {
                let place = own.place_row(&mut nest);
                counts.overlapping += u64::from(place.is_some_and(|place| place.row > 0));
                let thread = numbered_track(&track.1, place.map_or(0, |place| place.row));
                self.own_row(own, place, Track { process, thread: thread.as_lane() }, rows)?;
            }
            let (heading, sort_index) = match &track.1 {
                TrackId::Id(id) => (format!("thread {id} ({})", self.own_name(track).unwrap_or_default()), *id),
                TrackId::Name(name) => (name.to_string(), 0),
            };
            let first = Track { process, thread: track.1.as_lane() };
            for number in 0..nest.row_count() {
                let lane = numbered_track(&track.1, number);
                let track = Track { process, thread: lane.as_lane() };
                self.name_row([track, first], number, &heading, sort_index, rows)?;
            }
        }
        Ok(())
    }

    /// Delivers a row for each builder as a whole; numbers builders of the same name.
    pub(in crate::trace) fn own_spans(&self, rows: &mut dyn Rows) -> io::Result<()> {
        let mut iterations: SortedMap<&str, i64> = SortedMap::new();
        for trace in self.own.iter().filter(|trace| !trace.name.is_empty()) {
            let CpuTrace { name, start, end, records, .. } = &**trace;
            let next = iterations.get_or_insert_with(name, || 0);
            let iteration = *next;
            *next += 1;
            let op_count = records.len() as u64;
            rows.write_span(&SpanRow { name, iteration, start: *start, end: *end, op_count })?;
        }
        Ok(())
    }

    fn other_tracks(&self) -> SortedSet<&'t (TrackId, TrackId)> {
        let tracks = self.own.iter().flat_map(|trace| trace.rows.keys());
        tracks.filter(|track| thread_of(track, self.info.process).is_none()).collect()
    }

    /// Returns the name of a builder with records on a row.
    pub(in crate::trace) fn own_name(&self, track: &(TrackId, TrackId)) -> Option<&'t str> {
        self.own.iter().find(|trace| trace.rows.contains_key(track)).map(|trace| trace.name.as_str())
    }

    /// Returns the records of a row that have requested types.
    pub(in crate::trace) fn own_records(&self, track: &(TrackId, TrackId)) -> OwnRecords<'t> {
        let selected = self.info.config.activities;
        let mut records: List<&OwnActivity> = List::new();
        for trace in self.own {
            for number in trace.rows.get(track).map_or(&[][..], Vec::as_slice) {
                if let Some(record) = trace.records.get(*number).filter(|record| selected.contains(record.kind)) {
                    records.push(record);
                }
            }
        }
        if self.own.len() > 1 {
            sort_few_by_key(&mut records, |record| record.sort_key());
        }
        records.into_iter().peekable()
    }

    /// Delivers an activity on a row.
    pub(in crate::trace) fn own_row(
        &self,
        record: &OwnActivity,
        place: Option<RowSlot>,
        track: Track<'_>,
        rows: &mut dyn Rows,
    ) -> io::Result<()> {
        let (mut args, mut body) = (record.owned_args(), record.body);
        if let Some(RowSlot { row, start, end }) = place {
            body = Body::Slice { start, end };
            if let (1.., TrackId::Id(id)) = (row, &record.track.1) {
                args.marks.thread = Some(*id);
            }
            // Unless the program has set one.
            args.marks.function = self.info.config.execution_trace.then(|| record.id()).flatten();
        }
        let mut activity = record.to_activity(&args);
        (activity.track, activity.body) = (track, body);
        rows.write_activity(&activity)
    }
}

impl CpuTrace {
    /// Returns the threads of a process that have records.
    pub(in crate::trace) fn threads_of(&self, process: i64) -> impl Iterator<Item = i64> {
        self.rows.keys().filter_map(move |track| thread_of(track, process))
    }
}

impl OwnActivity {
    /// Returns whether it begins before a slice with these times, or begins with it and lasts longer.
    pub(in crate::trace) fn precedes(&self, slice: Option<(Timestamp, Timestamp)>) -> bool {
        slice.is_none_or(|(start, end)| self.sort_key() < (start, Reverse(end)))
    }

    /// Finds the row in which it nests; `None` if it has no duration.
    pub(in crate::trace) fn place_row(&self, nest: &mut Nest) -> Option<RowSlot> {
        match self.body {
            Body::Slice { start, end } => Some(nest.place_slice(start, end)),
            Body::Instant { .. } | Body::Counter { .. } => None,
        }
    }
}

/// Returns the thread of a process that a row belongs to.
fn thread_of(track: &(TrackId, TrackId), process: i64) -> Option<i64> {
    match track {
        (TrackId::Id(of), TrackId::Id(thread)) if *of == process => Some(*thread),
        _ => None,
    }
}

/// Returns the `number`th row of a lane.
fn numbered_track(lane: &TrackId, number: usize) -> TrackId {
    match (lane, number) {
        (lane, 0) => lane.clone(),
        (TrackId::Id(id), _) => TrackId::Id(row_id(*id, number)),
        (TrackId::Name(name), _) => TrackId::Name(format!("{name}{}", row_suffix(number)).into()),
    }
}
