//! The calls of a thread, to be merged into its rows.

use super::{LinkedCollection, LinkedRecords, call_from_entry, has_arrows};
use crate::link::{Links, RecordHandle};
use crate::time::Timestamp;
use crate::trace::thread::SliceMarks;
use crate::trace::thread::nest::{Nest, RowSlot};
use crate::trace::walk::Walk;
use kineto_devices::{Collection, Entry};
use kineto_model::activity::{
    Activity, ActivityType, ArgValue, Args, Body, CorrelationId, Flow, FlowEnd, FlowKind, Track,
};
use kineto_model::rows::Rows;
use std::io;

/// The calls that a thread made, in order of their start.
#[derive(Debug)]
pub(in crate::trace) struct HostCalls<'t> {
    lists: Vec<CallList<'t>>,
    slack_ns: u64,
}

/// The calls seen by one collector.
#[derive(Debug)]
struct CallList<'t> {
    collection: &'t Collection,
    linked: &'t LinkedCollection,
    left: &'t [RecordHandle],
}

/// A call.
struct HostCall<'t> {
    entry: Entry<'t>,
    start: Timestamp,
    end: Timestamp,
    finished: bool,
    clipped: bool,
    /// Whether it overlaps slices, so that it goes to a separate row.
    is_apart: bool,
    /// The slice that made it, 0 if unknown.
    linked: u64,
    /// The arrow that starts here.
    arrow: Option<u64>,
    collection: &'t Collection,
}

/// The arguments of a call: its own, and those of the recording.
struct CallArgs<'c> {
    call: &'c HostCall<'c>,
    marks: &'c SliceMarks<'c>,
}

impl<'t> HostCalls<'t> {
    /// Returns the calls of the thread with that id.
    pub(in crate::trace) fn for_thread(thread: i64, devices: LinkedRecords<'t>, error_ns: u64) -> HostCalls<'t> {
        let mut lists = Vec::new();
        for (collection, linked) in devices.pairs() {
            let its = linked.threads.number_of(thread).and_then(|number| linked.links.calls_of(number));
            lists.extend(its.map(|left| CallList { collection, linked, left }));
        }
        let theirs = lists.iter().map(|list| list.collection.clock.error_ns()).max().unwrap_or(0);
        HostCalls { lists, slack_ns: error_ns.saturating_add(theirs) }
    }

    /// Returns the largest error between the times of calls and slices.
    pub(in crate::trace) fn slack_ns(&self) -> u64 {
        self.slack_ns
    }

    /// Returns whether a call begins between those times, within the error of the clocks.
    pub(in crate::trace) fn begin_in(&self, start: Timestamp, end: Timestamp) -> bool {
        let from = Timestamp::from_nanos(start.as_nanos().saturating_sub(self.slack_ns));
        self.lists.iter().any(|list| list.first_start_from(from).is_some_and(|start| start < end))
    }

    /// Delivers the calls that begin before the first of two times, the start of the next slice, within the error of the
    /// clocks; the second is the start of the previous slice.
    pub(in crate::trace) fn deliver_before(
        &mut self,
        (before, last): (Timestamp, Timestamp),
        walk: &Walk<'_>,
        thread: i64,
        nest: &mut Nest,
        rows: &mut dyn Rows,
    ) -> io::Result<()> {
        while let Some(call) = self.next_before(before, last) {
            call.deliver_row(walk, thread, nest, rows)?;
        }
        Ok(())
    }

    /// Returns the next call if it begins before `before`. Cuts a call that overlaps a slice only by the clock's error.
    fn next_before(&mut self, before: Timestamp, last: Timestamp) -> Option<HostCall<'t>> {
        let slack = self.slack_ns;
        let first = |list: &CallList<'t>| list.first_start();
        let (list, _) = self
            .lists
            .iter_mut()
            .filter_map(|list| first(list).map(|start| (list, start)))
            .min_by_key(|(_, start)| *start)
            .filter(|(_, start)| before.since(*start) > slack)?;
        let mut call = list.next()?;
        if last.since(call.start) <= slack {
            call.start = call.start.max(last);
        }
        if call.end.since(before) <= slack {
            call.end = call.end.min(before);
        }
        call.end = call.end.max(call.start);
        Some(call)
    }
}

impl<'t> CallList<'t> {
    fn first_start(&self) -> Option<Timestamp> {
        self.start_of(self.left.first()?)
    }

    /// Returns the start of the first call that does not begin before `from`.
    fn first_start_from(&self, from: Timestamp) -> Option<Timestamp> {
        let first = self.left.partition_point(|call| self.start_of(call).is_some_and(|start| start < from));
        self.start_of(self.left.get(first)?)
    }

    fn start_of(&self, call: &RecordHandle) -> Option<Timestamp> {
        let entry = self.collection.records.entry_at(call.0)?;
        Some(self.collection.clock.timestamp_of(entry.start()))
    }

    fn next(&mut self) -> Option<HostCall<'t>> {
        let (first, left) = self.left.split_first()?;
        self.left = left;
        let (collection, linked) = (self.collection, self.linked);
        let entry = collection.records.entry_at(first.0)?;
        let call = call_from_entry(collection, &entry, &linked.threads);
        let links: &Links = &linked.links;
        let (end, finished) = linked.cut_to_windows(call.start, call.end);
        Some(HostCall {
            start: call.start,
            end,
            finished,
            clipped: linked.is_clipped(call.start),
            is_apart: linked.crossing.binary_search(first).is_ok(),
            linked: links.slice_of(&call),
            arrow: (has_arrows(entry.kind()) && links.has_work(&call)).then(|| linked.arrow_id(&call)),
            collection,
            entry,
        })
    }
}

impl HostCall<'_> {
    fn deliver_row(&self, walk: &Walk<'_>, thread: i64, nest: &mut Nest, rows: &mut dyn Rows) -> io::Result<()> {
        let kind = self.entry.kind();
        let is_instant = kind == ActivityType::CpuInstantEvent;
        let place = match (is_instant, self.is_apart) {
            (true, _) => RowSlot { row: 0, start: self.start, end: self.start },
            (false, true) => nest.place_apart(self.start, self.end),
            (false, false) => nest.place_slice(self.start, self.end),
        };
        let RowSlot { row, start, end } = place;
        let marks = SliceMarks {
            finished: self.finished,
            clipped: self.clipped,
            thread: (row > 0).then_some(thread),
            ..SliceMarks::default()
        };
        let args = CallArgs { call: self, marks: &marks };
        let body = if is_instant { Body::Instant { at: start } } else { Body::Slice { start, end } };
        let name = self.collection.records.names.text(self.entry.name);
        let track = Track::new(walk.process, walk.row_id(thread, row));
        let mut activity = Activity::new(kind, name, track, body);
        activity.linked = CorrelationId(self.linked);
        activity.flow = self.arrow.map(|id| Flow { kind: FlowKind::AsyncCpuToGpu, id, end: FlowEnd::Start });
        activity.args = &args;
        rows.write_activity(&activity)
    }
}

impl Args for CallArgs<'_> {
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        let HostCall { collection, entry, start, end, .. } = self.call;
        if let Some(layout) = collection.records.entry_layout(entry) {
            layout.visit(&collection.entry_view(entry, (*start, *end)), each);
        }
        self.marks.visit(each);
    }
}
