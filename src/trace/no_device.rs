//! Stub of collectors' records for builds without the feature `devices`: there are none, and the reports name the feature.

use super::memory::MemoryRecord;
use super::recorded::Stretch;
use super::stats::DeviceCounts;
use super::thread::nest::Nest;
use super::walk::{Walk, WalkCounts};
use super::{Trace, WindowSet};
use crate::buffer::Loss;
use crate::time::{Ticks, Timestamp};
use kineto_devices::{Collection, CollectorReport};
#[cfg(feature = "perfetto")]
use kineto_model::activity::Flow;
use kineto_model::rows::Rows;
use std::borrow::Cow;
use std::io;
use std::iter;
use std::marker::PhantomData;

/// The records of collectors, of which a file may have some that this build does not read.
#[derive(Debug, Default)]
pub(crate) struct DeviceRecords {
    unread: u64,
}

/// The records of all collectors, linked: there are none.
#[derive(Clone, Copy)]
pub(super) struct LinkedRecords<'t>(PhantomData<&'t ()>);

/// The calls that a thread made: none was recorded.
#[derive(Debug)]
pub(super) struct HostCalls<'t> {
    pub(super) slack_ns: u64,
    calls: PhantomData<&'t ()>,
}

impl DeviceRecords {
    pub(crate) fn new(_none: Vec<Collection>) -> DeviceRecords {
        DeviceRecords::default()
    }

    /// Notes that a file has records of so many collectors.
    pub(crate) fn of_unread(unread: u64) -> DeviceRecords {
        DeviceRecords { unread }
    }

    pub(super) fn allow_times(&mut self, _range: (Timestamp, Timestamp)) {}

    pub(super) fn assign_windows(&mut self, _windows: &mut WindowSet) {}

    pub(crate) fn set_moved(&self, _until: Ticks) {}

    pub(super) fn record_bytes(&self) -> u64 {
        0
    }

    pub(crate) fn record_count(&self) -> u64 {
        0
    }

    pub(crate) fn losses(&self) -> impl Iterator<Item = (Loss, u64)> {
        iter::empty()
    }

    pub(crate) fn unknown_layouts(&self) -> u64 {
        0
    }

    pub(crate) fn unread_collectors(&self) -> u64 {
        self.unread
    }

    pub(super) fn stretches(&self) -> impl Iterator<Item = (Cow<'static, str>, Vec<Stretch>)> {
        iter::empty()
    }

    pub(super) fn header_entries(&self) -> impl Iterator<Item = &(String, String)> {
        iter::empty()
    }

    pub(super) fn properties(&self) -> Vec<String> {
        Vec::new()
    }
}

impl Trace {
    pub(super) fn devices(&self) -> LinkedRecords<'_> {
        LinkedRecords(PhantomData)
    }
}

impl LinkedRecords<'_> {
    pub(super) fn have_memory(self) -> bool {
        false
    }

    pub(super) fn is_replaced(self, _reported: &MemoryRecord) -> bool {
        false
    }

    pub(super) fn report_losses(self, _add: impl FnMut(Loss, u64)) {}

    pub(super) fn report_violations(self, _add: impl FnMut(&str, &str)) {}

    /// Returns the reason that there are no collectors, in each trace.
    pub(super) fn reports(self) -> Vec<CollectorReport> {
        vec![kineto_devices::missing_report()]
    }

    pub(super) fn counts(self) -> DeviceCounts {
        DeviceCounts::default()
    }

    pub(super) fn memory_records(self, _process: i64) -> impl Iterator<Item = (Timestamp, i64, MemoryRecord)> {
        iter::empty()
    }

    pub(super) fn calling_threads(self) -> impl Iterator<Item = i64> {
        iter::empty()
    }

    #[cfg(feature = "perfetto")]
    pub(super) fn arrows_with_several_ends(self) -> Vec<(Flow, u64)> {
        Vec::new()
    }
}

impl<'t> HostCalls<'t> {
    pub(super) fn for_thread(_thread: i64, _devices: LinkedRecords<'t>, error_ns: u64) -> HostCalls<'t> {
        HostCalls { slack_ns: error_ns, calls: PhantomData }
    }

    pub(super) fn begin_in(&self, _start: Timestamp, _end: Timestamp) -> bool {
        false
    }

    pub(super) fn deliver_before(
        &mut self,
        _times: (Timestamp, Timestamp),
        _walk: &Walk<'_>,
        _thread: i64,
        _nest: &mut Nest,
        _rows: &mut dyn Rows,
    ) -> io::Result<()> {
        Ok(())
    }
}

impl Walk<'_> {
    pub(super) fn device_processes(&self, _rows: &mut dyn Rows) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn device_rows(&self, _rows: &mut dyn Rows, _counts: &mut WalkCounts) -> io::Result<()> {
        Ok(())
    }
}
