//! A collection as the link reads it.

use super::overlaps;
use super::threads::Threads;
use crate::collector::{Collection, Entry, Role};
use crate::link::{self, Call, EventRecord, External, Handle, Work};
use crate::time::Timestamp;
use std::collections::BTreeSet;

/// The records of a collection that belong to the recording.
pub(super) struct Records<'t> {
    pub(super) collection: &'t Collection,
    pub(super) threads: &'t Threads,
    pub(super) windows: &'t [(Timestamp, Timestamp)],
    pub(super) launched: &'t BTreeSet<u64>,
    /// All calls and all work belong to the recording.
    pub(super) all_inside: bool,
}

impl Records<'_> {
    fn rest(&self, role: Role) -> impl Iterator<Item = Entry<'_>> {
        self.collection.records.rest().filter(move |entry| entry.role() == role)
    }

    /// Whether work belongs to the recording: some of it lies inside, or it was launched inside. What is known to be
    /// launched outside does not.
    #[inline]
    pub(super) fn is_inside(&self, entry: &Entry<'_>) -> bool {
        if self.all_inside {
            return true;
        }
        if self.collection.records.was_launched_in_a_pause(entry.correlation()) {
            return false;
        }
        let (start, end) = self.collection.interval(entry);
        if overlaps(self.windows, (start, end)) {
            return true;
        }
        let began = self.windows.first().is_some_and(|first| end >= first.0);
        began && self.launched.contains(&entry.correlation())
    }
}

impl link::Records for Records<'_> {
    fn calls(&self) -> impl Iterator<Item = Call> {
        let inside = |call: &Call| self.all_inside || overlaps(self.windows, (call.start, call.end));
        self.collection.records.calls().map(|entry| self.collection.call(&entry, self.threads)).filter(inside)
    }

    fn work(&self) -> impl Iterator<Item = Work> {
        self.collection.records.work().filter(|entry| self.is_inside(entry)).map(|entry| self.collection.work(&entry))
    }

    fn externals(&self) -> impl Iterator<Item = External> {
        self.rest(Role::External).map(|entry| External { correlation: entry.start(), id: entry.end() })
    }

    fn event_records(&self) -> impl Iterator<Item = EventRecord> {
        self.rest(Role::Event).map(|entry| EventRecord {
            context: entry.device_or_context(),
            event: entry.event(),
            correlation: entry.correlation(),
            stream: entry.stream(),
        })
    }

    fn call_at(&self, at: Handle) -> Call {
        match self.collection.records.entry(at.0) {
            Some(entry) => self.collection.call(&entry, self.threads),
            None => Call {
                at,
                correlation: 0,
                thread: 0,
                start: Timestamp::default(),
                end: Timestamp::default(),
                external: 0,
                launches: false,
            },
        }
    }

    fn work_at(&self, at: Handle) -> Work {
        match self.collection.records.entry(at.0) {
            Some(entry) => self.collection.work(&entry),
            None => Work {
                at,
                correlation: 0,
                device: -1,
                stream: 0,
                start: Timestamp::default(),
                end: Timestamp::default(),
            },
        }
    }
}
