//! The calls of a thread, to be merged into its rows.

use super::rows::EntryArgs;
use super::{LinkedCollection, LinkedRecords, call_from_entry, cut_to_windows, has_arrows};
use crate::link::RecordHandle;
use crate::time::Timestamp;
use crate::trace::thread::nest::{Nest, RowSlot};
use crate::trace::walk::Walk;
use kineto_devices::{Collection, Entry};
use kineto_model::activity::{Activity, ActivityType, Body, CorrelationId, Flow, FlowEnd, FlowKind};
use kineto_model::rows::Rows;
use std::io;

/// The calls that a thread made, in order of their start.
#[derive(Debug)]
pub(in crate::trace) struct HostCalls<'t> {
    lists: Vec<CallList<'t>>,
    /// The largest error between the times of calls and slices.
    pub(in crate::trace) slack_ns: u64,
}

/// The calls seen by one collector.
#[derive(Debug)]
struct CallList<'t> {
    collection: &'t Collection,
    linked: &'t LinkedCollection,
    left: &'t [RecordHandle],
}

impl<'t> HostCalls<'t> {
    /// Returns the calls of the thread with that id.
    pub(in crate::trace) fn for_thread(thread: i64, devices: LinkedRecords<'t>, error_ns: u64) -> HostCalls<'t> {
        let mut lists = Vec::new();
        for (collection, linked) in devices.pairs() {
            let its = linked.threads.number_of(thread).and_then(|number| linked.links.threads.lane(number));
            lists.extend(its.map(|left| CallList { collection, linked, left }));
        }
        let theirs = lists.iter().map(|list| list.collection.clock.error_ns()).max().unwrap_or(0);
        HostCalls { lists, slack_ns: error_ns.saturating_add(theirs) }
    }

    /// Returns whether a call begins between those times, within the error of the clocks.
    pub(in crate::trace) fn begin_in(&self, start: Timestamp, end: Timestamp) -> bool {
        let from = Timestamp::from_nanos(start.as_nanos().saturating_sub(self.slack_ns));
        self.lists.iter().any(|list| list.first_start_from(from).is_some_and(|start| start < end))
    }

    /// Delivers the calls that begin before the first of two times, the start of the next slice, within the error of the
    /// clocks; the second is the start of the previous slice. Cuts a call that overlaps a slice only by that error.
    pub(in crate::trace) fn deliver_before(
        &mut self,
        (before, last): (Timestamp, Timestamp),
        walk: &Walk<'_>,
        thread: i64,
        nest: &mut Nest,
        rows: &mut dyn Rows,
    ) -> io::Result<()> {
        let slack = self.slack_ns;
        while let Some((collection, linked, entry)) = self.next_before(before) {
            let call = call_from_entry(collection, &entry, &linked.threads);
            let mut start = call.start;
            let (mut end, finished) = cut_to_windows(&linked.windows, start, call.end);
            if last.since(start) <= slack {
                start = start.max(last);
            }
            if end.since(before) <= slack {
                end = end.min(before);
            }
            end = end.max(start);
            let mut args = EntryArgs::new(walk, collection, &entry, (start, end));
            let kind = entry.kind();
            let is_instant = kind == ActivityType::CpuInstantEvent;
            // A call that overlaps slices goes to a separate row.
            let is_apart = linked.crossing.binary_search(&call.at).is_ok();
            let RowSlot { row, start, end } = match (is_instant, is_apart) {
                (true, _) => RowSlot { row: 0, start, end: start },
                (false, true) => nest.place_apart(start, end),
                (false, false) => nest.place_slice(start, end),
            };
            (args.marks.finished, args.marks.clipped) = (finished, linked.is_clipped(call.start));
            args.marks.thread = (row > 0).then_some(thread);
            let body = if is_instant { Body::Instant { at: start } } else { Body::Slice { start, end } };
            let name = collection.records.names.text(entry.name);
            let mut activity = Activity::new(kind, name, walk.thread_row(thread, row), body);
            activity.linked = CorrelationId(linked.links.slice_of(&call));
            if has_arrows(kind) && linked.links.has_work(&call) {
                let id = linked.arrow_id(&call);
                activity.flow = Some(Flow { kind: FlowKind::AsyncCpuToGpu, id, end: FlowEnd::Start });
            }
            activity.args = &args;
            rows.write_activity(&activity)?;
        }
        Ok(())
    }

    /// Takes the next call if it begins before `before`.
    fn next_before(&mut self, before: Timestamp) -> Option<(&'t Collection, &'t LinkedCollection, Entry<'t>)> {
        let starts =
            self.lists.iter_mut().filter_map(|list| list.start_of(list.left.first()?).map(|start| (start, list)));
        let (start, list) = starts.min_by_key(|(start, _)| *start)?;
        let (first, left) = list.left.split_first().filter(|_| before.since(start) > self.slack_ns)?;
        list.left = left;
        Some((list.collection, list.linked, list.collection.records.entry_at(first.0)?))
    }
}

impl CallList<'_> {
    /// Returns the start of the first call that does not begin before `from`.
    fn first_start_from(&self, from: Timestamp) -> Option<Timestamp> {
        let first = self.left.partition_point(|call| self.start_of(call).is_some_and(|start| start < from));
        self.start_of(self.left.get(first)?)
    }

    fn start_of(&self, call: &RecordHandle) -> Option<Timestamp> {
        let entry = self.collection.records.entry_at(call.0)?;
        Some(self.collection.clock.timestamp_of(entry.start()))
    }
}
