//! Maps calls to the host's threads.

use crate::clock::Converter;
use crate::time::Timestamp;
use crate::trace::recorded::Recorded;
use kineto_base::fallible::List;
use kineto_base::hash::HashMap;
use kineto_base::sorting::{sort_in_place_by, sort_in_place_by_key};
use kineto_devices::{Collection, Thread};

/// The threads that made calls.
///
/// CUPTI names a thread by half of its `pthread_self`, which a later thread may reuse. Of the threads with a handle, the call
/// belongs to the last that had begun to record, unless that one had ended. A thread without records of its own gets a row
/// too.
#[derive(Debug)]
pub(super) struct DeviceThreads {
    /// Handles with the start time and the number of their thread, sorted.
    handles: List<(u32, Timestamp, u32)>,
    /// The kernel's ids, or their substitutes, by number.
    ids: List<i64>,
    numbers: HashMap<i64, u32>,
    /// Whether no handle was used by two threads.
    are_unique: bool,
}

impl DeviceThreads {
    pub(super) fn new(collection: &Collection, recorded: &Recorded, converter: &Converter) -> DeviceThreads {
        let mut threads =
            DeviceThreads { handles: List::new(), ids: List::new(), numbers: HashMap::default(), are_unique: false };
        let mut lanes = List::new();
        for lane in &recorded.lanes {
            let number = threads.add_id(lane.thread);
            threads.handles.push((lane.handle, converter.timestamp_of(lane.since), number));
            lanes.push(((lane.handle, lane.thread, lane.since, lanes.len()), lane.until));
        }
        sort_in_place_by_key(&mut lanes, |(order, _)| *order);
        let last_lanes =
            lanes.chunk_by(|((a, a_thread, ..), _), ((b, b_thread, ..), _)| (a, a_thread) == (b, b_thread));
        for ((handle, ..), until) in last_lanes.filter_map(|lanes| lanes.last()) {
            if let Some(until) = until {
                let stranger = threads.add_id(i64::from(*handle));
                threads.handles.push((*handle, converter.timestamp_of(*until), stranger));
            }
        }
        let known = |handle| lanes.binary_search_by(|((known, ..), _)| known.cmp(&handle)).is_ok();
        let (mut ids, mut strangers) = (List::new(), List::new());
        for thread in collection.records.threads.iter() {
            match thread {
                Thread::Id(id) => ids.push(id),
                Thread::Handle(handle) if known(handle) => {}
                Thread::Handle(handle) => strangers.push(handle),
            }
        }
        // In order, so that numbers are reproducible.
        sort_in_place_by(&mut ids, Ord::cmp);
        sort_in_place_by(&mut strangers, Ord::cmp);
        for id in ids.iter() {
            threads.add_id(*id);
        }
        for [handle, ..] in strangers.chunk_by(PartialEq::eq).filter_map(|same| same.first_chunk::<1>()) {
            let number = threads.add_id(i64::from(*handle));
            threads.handles.push((*handle, Timestamp::default(), number));
        }
        sort_in_place_by(&mut threads.handles, Ord::cmp);
        threads.are_unique = threads.handles.is_sorted_by(|a, b| a.0 < b.0);
        threads
    }

    fn add_id(&mut self, id: i64) -> u32 {
        *self.numbers.entry(id).or_insert_with(|| {
            self.ids.push(id);
            u32::try_from(self.ids.len() - 1).unwrap_or(u32::MAX)
        })
    }

    /// Returns the number of the thread that made a call at that time.
    #[inline]
    pub(super) fn thread_number(&self, thread: Thread, at: Timestamp) -> u32 {
        match thread {
            Thread::Handle(handle) if self.are_unique => {
                let found = self.handles.binary_search_by_key(&handle, |known| known.0).ok();
                found.and_then(|found| self.handles.get(found)).map_or(0, |(.., number)| *number)
            }
            Thread::Handle(handle) => {
                let after = self.handles.partition_point(|(known, since, _)| (*known, *since) <= (handle, at));
                let is_its = |found: &&(u32, Timestamp, u32)| found.0 == handle;
                let before = after.checked_sub(1).and_then(|before| self.handles.get(before)).filter(is_its);
                // The call was made before the thread's first record.
                let found = before.or_else(|| self.handles.get(after).filter(is_its));
                found.map_or(0, |(.., number)| *number)
            }
            Thread::Id(id) => self.number_of(id).unwrap_or(0),
        }
    }

    /// Returns the number of the thread with that kernel's id.
    #[inline]
    pub(super) fn number_of(&self, id: i64) -> Option<u32> {
        self.numbers.get(&id).copied()
    }

    /// Returns the kernel's id of a thread, or its handle.
    pub(super) fn thread_id(&self, number: u32) -> i64 {
        self.ids.get(number as usize).copied().unwrap_or(0)
    }
}
