//! What the rest of a trace asks its collectors for.

use super::{LinkedCollection, collector_report};
use crate::buffer::Loss;
use crate::time::{Ticks, Timestamp};
use crate::trace::memory::MemoryRecord;
use crate::trace::recorded::Stretch;
use crate::trace::stats::DeviceCounts;
use crate::trace::window_set::without_stretch;
use crate::trace::{Trace, WindowSet};
use kineto_base::fallible::{Lazy, List};
use kineto_devices::{Collection, CollectorReport, DeviceDescription};
use std::borrow::Cow;

/// The records of all collectors. They are linked to the host's on first use.
#[derive(Debug, Default)]
pub(crate) struct DeviceRecords {
    collections: Vec<Collection>,
    linked: Lazy<List<LinkedCollection>>,
}

/// The records of all collectors, linked to the host's.
#[derive(Clone, Copy)]
pub(in crate::trace) struct LinkedRecords<'t> {
    devices: &'t DeviceRecords,
    linked: &'t [LinkedCollection],
}

impl DeviceRecords {
    pub(crate) fn new(collections: Vec<Collection>) -> DeviceRecords {
        DeviceRecords { collections, linked: Lazy::default() }
    }

    /// Returns the records of each collector.
    pub(crate) fn collections(&self) -> &[Collection] {
        &self.collections
    }

    /// Extends the bounds of timestamps to these times: CLOCK_REALTIME was set between them.
    pub(in crate::trace) fn allow_times(&mut self, range: (Timestamp, Timestamp)) {
        self.collections.iter_mut().for_each(|collection| collection.allow_times(range));
    }

    /// Assigns each collector its windows.
    pub(in crate::trace) fn assign_windows(&mut self, windows: &mut WindowSet) {
        for (number, collection) in self.collections.iter_mut().enumerate() {
            (collection.windows, collection.uncut_window) = windows.take_device(number);
        }
    }

    /// Notes that the records are moved out of the collectors, in a part that ends then.
    pub(crate) fn set_moved(&self, until: Ticks) {
        self.collections.iter().for_each(|collection| collection.records.set_moved(until));
    }

    /// Returns the bytes of all records.
    pub(in crate::trace) fn record_bytes(&self) -> u64 {
        self.collections.iter().map(|collection| collection.records.record_bytes()).sum()
    }

    /// Returns how many records there are.
    pub(crate) fn record_count(&self) -> u64 {
        let records = self.collections.iter().map(|collection| &collection.records);
        let counts =
            records.map(|records| records.calls().count() + records.work().count() + records.other_records().count());
        counts.sum::<usize>() as u64
    }

    /// Returns the losses that the collectors counted, by cause.
    pub(crate) fn losses(&self) -> impl Iterator<Item = (Loss, u64)> {
        self.collections.iter().flat_map(|collection| collection.records.losses.iter().copied())
    }

    /// Returns the number of kinds of records whose arguments this build does not know.
    pub(crate) fn unknown_layouts(&self) -> u64 {
        self.collections.iter().map(|collection| collection.records.unknown_layouts()).sum()
    }

    /// Returns the number of collectors whose records this build does not read: without the feature `devices`, all of them.
    pub(crate) fn unread_collectors(&self) -> u64 {
        0
    }

    /// Returns when each collector recorded that ran, by name.
    pub(in crate::trace) fn stretches(&self) -> impl Iterator<Item = (Cow<'static, str>, Vec<Stretch>)> {
        let ran = self.collections.iter().filter(|collection| collection.state.is_ok());
        ran.map(|collection| (collection.name.clone(), collection.windows.clone()))
    }

    /// Returns the collectors' entries of the header: keys with JSON values, which may be invalid.
    pub(in crate::trace) fn header_entries(&self) -> impl Iterator<Item = &(String, String)> {
        let can = self.collections.iter().filter_map(|collection| collection.state.as_ref().ok());
        can.flat_map(|can| &can.metadata)
    }

    /// Returns the properties of all devices, of which several collectors may report the same one.
    pub(in crate::trace) fn properties(&self) -> Vec<String> {
        let devices = self.collections.iter().flat_map(|collection| &collection.records.devices);
        let mut properties: Vec<String> = Vec::new();
        for device in devices.map(DeviceDescription::to_json) {
            if !properties.contains(&device) {
                properties.push(device);
            }
        }
        properties
    }
}

impl WindowSet {
    /// Takes out the windows of the collector of that number; also returns the extent before a cut.
    pub(crate) fn take_device(&mut self, number: usize) -> (Vec<Stretch>, Option<Stretch>) {
        (self.devices.get_mut(number).map(std::mem::take).unwrap_or_default(), self.uncut_window)
    }

    /// Leaves out a gap of the collector of that number.
    pub(crate) fn leave_out_of_device(&mut self, number: usize, gap: Stretch) {
        if let Some(stretches) = self.devices.get_mut(number).filter(|_| !self.gaps.is_empty()) {
            *stretches = without_stretch(stretches, gap);
        }
    }
}

impl Trace {
    /// Returns the records of collectors, linked to the host's.
    pub(in crate::trace) fn devices(&self) -> LinkedRecords<'_> {
        let contents = &*self.inner;
        let link = || {
            let (index, mut number) = (self.index(), 0);
            let mut link = |collection: &Collection| {
                let linked = LinkedCollection::new(collection, number, contents, index);
                number += usize::from(collection.state.is_ok());
                contents.found.progress.count_step();
                linked
            };
            contents.devices.collections.iter().map(&mut link).collect()
        };
        LinkedRecords { devices: &contents.devices, linked: contents.devices.linked.get_or_init(link) }
    }
}

impl<'t> LinkedRecords<'t> {
    /// Returns each collector's records, with their links.
    pub(super) fn pairs(self) -> impl Iterator<Item = (&'t Collection, &'t LinkedCollection)> {
        self.devices.collections.iter().zip(self.linked)
    }

    /// Reports all losses that linking has found to `add`.
    pub(in crate::trace) fn report_losses(self, mut add: impl FnMut(Loss, u64)) {
        for LinkedCollection { counts, links, .. } in self.linked {
            add(Loss::OutOfWindow, counts.out_of_window);
            add(Loss::ImpossibleTimes, counts.impossible);
            add(Loss::UnfinishedWork, counts.unfinished);
            add(Loss::TimesBeyondEnd, counts.beyond_end);
            let counts = &links.counts;
            add(Loss::LaunchesWithoutWork, counts.launches_without_work);
            add(Loss::WorkWithoutLaunch, counts.work_without_launch);
            add(Loss::CorrelationsReused, counts.correlations_reused);
            add(Loss::LinkedByTime, counts.linked_by_time);
            add(Loss::LaunchesUnlinked, counts.unlinked);
            add(Loss::IdsUnknown, counts.ids_unknown);
            add(Loss::WorkBeforeLaunch, counts.work_before_launch);
        }
    }

    /// Reports assertions that did not hold to `add`, each with the actual condition.
    pub(in crate::trace) fn report_violations(self, mut add: impl FnMut(&str, &str)) {
        for (collection, linked) in self.pairs() {
            let (name, count) = (&collection.name, linked.counts.beyond_end);
            if count > 0 {
                add("records are delivered after their end", &format!("{name}: {count} were delivered earlier"));
            }
            for (_, count) in collection.records.losses.iter().filter(|(loss, _)| *loss == Loss::DeviceRecordsUnread) {
                add("a collector's records are readable", &format!("{name}: {count} are not"));
            }
        }
    }

    /// Returns whether a collector records memory of its devices.
    pub(in crate::trace) fn have_memory(self) -> bool {
        self.devices
            .collections
            .iter()
            .any(|collection| collection.state.as_ref().is_ok_and(|can| can.memory_of.is_some()))
    }

    /// Returns whether a program's report is left out because a collector records that device's memory. Failed allocations
    /// are only reported by the program.
    pub(in crate::trace) fn is_replaced(self, reported: &MemoryRecord) -> bool {
        let kind = Some(reported.device.kind);
        let by = |collection: &Collection| collection.state.as_ref().is_ok_and(|can| can.memory_of == kind);
        !reported.is_out_of_memory && self.devices.collections.iter().any(by)
    }

    /// Returns a report for each collector.
    pub(in crate::trace) fn reports(self) -> Vec<CollectorReport> {
        CollectorReport::dedupe_names(self.pairs().map(|(collection, linked)| collector_report(collection, linked)))
    }

    /// Returns the numbers of records.
    pub(in crate::trace) fn counts(self) -> DeviceCounts {
        let mut all = DeviceCounts::default();
        for (collection, linked) in self.pairs() {
            all.work += linked.counts.work;
            all.before_window += linked.counts.before_window + collection.records.evicted_work;
            all.memory += linked.memory.len() as u64;
            all.may_overlap |=
                linked.counts.unfinished > 0 || linked.links.streams.may_overlap || !linked.marks.is_empty();
        }
        all
    }

    /// Returns allocations and frees: time, thread and record, in order for each collector.
    pub(in crate::trace) fn memory_records(
        self,
        process: i64,
    ) -> impl Iterator<Item = (Timestamp, i64, MemoryRecord)> + 't {
        self.pairs().flat_map(move |(collection, linked)| linked.memory_records(collection, process))
    }

    /// Returns the threads that made calls.
    pub(in crate::trace) fn calling_threads(self) -> impl Iterator<Item = i64> + 't {
        let calls = self.linked.iter().map(|linked| (linked.links.threads.lanes(), &linked.threads));
        calls.flat_map(|(calls, threads)| calls.map(|(number, _)| threads.thread_id(number)))
    }
}
