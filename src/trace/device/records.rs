//! The link's view of a collection.

use super::threads::DeviceThreads;
use crate::link::{self, Call, LinkedEventRecord, LinkedExternal, RecordHandle, Work};
use crate::time::Timestamp;
use kineto_devices::{Collection, Entry, Role};

/// The records of a collection.
pub(super) struct CollectionRecords<'t> {
    pub(super) collection: &'t Collection,
    pub(super) threads: &'t DeviceThreads,
}

impl<'t> CollectionRecords<'t> {
    pub(super) fn external_records(&self) -> impl Iterator<Item = LinkedExternal> + use<'t> {
        self.records_with_role(Role::External)
            .map(|entry| LinkedExternal { correlation: entry.start(), id: entry.end() })
    }

    pub(super) fn event_records(&self) -> impl Iterator<Item = LinkedEventRecord> + use<'t> {
        self.records_with_role(Role::Event).map(|entry| LinkedEventRecord {
            context: entry.device_or_context(),
            event: entry.event_id(),
            correlation: entry.correlation_id(),
            stream: entry.stream(),
        })
    }

    fn records_with_role(&self, role: Role) -> impl Iterator<Item = Entry<'t>> + use<'t> {
        self.collection.records.other_records().filter(move |entry| entry.role() == role)
    }
}

impl link::RecordSource for CollectionRecords<'_> {
    fn call_at(&self, at: RecordHandle) -> Call {
        match self.collection.records.entry_at(at.0) {
            Some(entry) => super::call_from_entry(self.collection, &entry, self.threads),
            None => Call { at, ..Call::default() },
        }
    }

    fn work_at(&self, at: RecordHandle) -> Work {
        match self.collection.records.entry_at(at.0) {
            Some(entry) => super::work_from_entry(self.collection, &entry),
            None => Work { at, device: -1, ..Work::default() },
        }
    }

    #[inline]
    fn launch_at(&self, at: RecordHandle) -> (Timestamp, u64) {
        let call = self.collection.records.entry_at(at.0);
        call.map_or_else(Default::default, |call| (self.collection.entry_times(&call).0, call.call_slice()))
    }
}
