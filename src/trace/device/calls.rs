//! The calls of a thread, to be merged into its rows.

use super::{LinkedCollection, call_from_entry, has_arrows};
use crate::link::{Links, RecordHandle};
use crate::time::Timestamp;
use kineto_devices::{Collection, Entry};
use kineto_model::activity::{ArgValue, Args};

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
pub(in crate::trace) struct HostCall<'t> {
    pub(in crate::trace) entry: Entry<'t>,
    pub(in crate::trace) start: Timestamp,
    pub(in crate::trace) end: Timestamp,
    pub(in crate::trace) finished: bool,
    pub(in crate::trace) clipped: bool,
    /// Whether it overlaps slices, so that it goes to a separate row.
    pub(in crate::trace) is_apart: bool,
    /// The slice that made it, 0 if unknown.
    pub(in crate::trace) linked: u64,
    /// The arrow that starts here.
    pub(in crate::trace) arrow: Option<u64>,
    collection: &'t Collection,
}

impl<'t> HostCalls<'t> {
    /// Returns the calls of the thread with that id.
    pub(in crate::trace) fn for_thread(
        thread: i64,
        collections: &'t [Collection],
        linked: &'t [LinkedCollection],
        error_ns: u64,
    ) -> HostCalls<'t> {
        let mut lists = Vec::new();
        for (collection, linked) in collections.iter().zip(linked) {
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

    /// Returns the next call if it begins before `before`, the start of the next slice; `last` is the start of the previous
    /// slice. Cuts a call that overlaps a slice only by the clock's error.
    pub(in crate::trace) fn next_before(&mut self, before: Timestamp, last: Timestamp) -> Option<HostCall<'t>> {
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
    /// Returns the function's name.
    pub(in crate::trace) fn function_name(&self) -> &str {
        self.collection.records.names.text(self.entry.name)
    }
}

impl Args for HostCall<'_> {
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        if let Some(layout) = self.collection.records.entry_layout(&self.entry) {
            layout.visit(&self.collection.entry_view(&self.entry, (self.start, self.end)), each);
        }
    }
}
