//! Converts calls and records into records of the recording.

use super::records::{self, Record, WorkKind};
use crate::records::demangle::demangle;
use crate::rocm::arguments::Arguments;
use crate::rocm::hip::{self, CallEffect, Function};
use crate::rocm::launches::PendingLaunch;
use crate::rocm::rows::{DoneWork, HipCall, Return, RocmRows, RowKernel, UNKNOWN};
use crate::rocm::shapes::Sizes;
use crate::{Batch, Name, RecordSink, text};
use kineto_model::Loss;
use kineto_model::activity::{ActivityType, ActivityTypes};
use std::collections::HashMap;

/// An active recording.
#[derive(Debug)]
pub(super) struct TracerRecording {
    pub(super) rows: RocmRows,
    /// Numbers of devices in records, each with HIP's number.
    devices: Vec<(i32, i32)>,
    /// Kernels by their mangled names.
    kernels: HashMap<Box<[u8]>, Name>,
    /// Whether a callback arrived.
    pub(super) has_callback: bool,
    /// Whether the recording is ending: later launches are not waited for.
    pub(super) is_ending: bool,
    text: Vec<u8>,
}

/// A call that launches work, at its begin.
#[derive(Clone, Debug)]
pub(super) struct Launching<'f> {
    pub(super) function: &'f Function,
    pub(super) correlation: u64,
    pub(super) arguments: Option<Arguments>,
    /// The kernel's mangled name, if known.
    pub(super) kernel: Option<Vec<u8>>,
    /// HIP's number of the device, if known.
    pub(super) device: Option<i32>,
    pub(super) thread: i64,
}

/// The most device numbers that are distinguished; more can only come from corrupt records.
const DEVICES: usize = 4096;
/// The most kernels whose names are cached.
const KERNELS: usize = 1 << 16;

impl TracerRecording {
    pub(super) fn new(types: ActivityTypes, most_rows: u64, sink: RecordSink) -> TracerRecording {
        TracerRecording {
            rows: RocmRows::new(sink, types, most_rows),
            devices: Vec::new(),
            kernels: HashMap::new(),
            has_callback: false,
            is_ending: false,
            text: Vec::new(),
        }
    }

    /// Returns how many launches lack work that will certainly arrive, and that may arrive.
    pub(super) fn pending_counts(&self) -> [usize; 2] {
        self.rows.pending_counts()
    }

    /// Notes the begin of a call that launches work, whose record may arrive before the call returns.
    pub(super) fn begin_call(&mut self, call: Launching<'_>) {
        let sink = self.rows.sink.clone();
        let kernel = call.kernel.map(|name| sink.record(|batch| self.intern_kernel_name(&name, batch)));
        let function = call.function;
        let kind = match function.does {
            CallEffect::Copy => ActivityType::GpuMemcpy,
            CallEffect::Fill => ActivityType::GpuMemset,
            _ => ActivityType::ConcurrentKernel,
        };
        let launch = self.rows.launch_of(function, call.thread, call.arguments.as_ref());
        let launch = PendingLaunch { kernel, device: call.device, ..launch };
        let is_awaited = self.rows.types.contains(kind) && !self.is_ending;
        self.rows.begin_call(call.correlation, call.thread, launch, is_awaited);
    }

    /// Notes the return of a call.
    pub(super) fn end_call(&mut self, call: &HipCall<'_>, returned: Return, arguments: Option<&Arguments>) {
        self.has_callback = true;
        self.rows.end_call(call, returned, arguments);
    }

    /// Reads records of device work.
    pub(super) fn read_buffer(&mut self, bytes: &[u8]) {
        let sink = self.rows.sink.clone();
        let (records, mut unread) = records::split_records(bytes);
        sink.record(|batch| {
            for record in records {
                match record {
                    Some(record) => self.add_work(&record, batch),
                    None => unread += 1,
                }
            }
            batch.count_lost(Loss::DeviceRecordsUnread, unread);
            self.rows.note_missing(unread);
        });
    }

    /// Adds a record of device work.
    fn add_work(&mut self, record: &Record, batch: &mut Batch<'_>) {
        if record.what == WorkKind::Mark {
            return;
        }
        let launch = self.rows.launches.take_work(record.correlation);
        let device = self.device_number(record, launch);
        let Record { queue, begin: start, end, correlation, .. } = *record;
        let done = DoneWork { device, queue, start, end, correlation, launch };
        let known = |bytes| if bytes > 0 { bytes } else { done.launched_bytes() };
        match record.what {
            WorkKind::Mark => {}
            WorkKind::Kernel { name: address, is_task } => {
                let kind = if is_task { "Dispatch Task" } else { "Dispatch Kernel" };
                let (grid, block) = launch.map(|launch| (launch.grid, launch.block)).unwrap_or_default();
                let kernel = self.kernel_at(address, launch, batch);
                self.rows.add_kernel(&done, kernel, kind, Sizes::new(grid, block), batch);
            }
            WorkKind::Copy { direction, bytes } => self.rows.add_copy(&done, direction, known(bytes), batch),
            WorkKind::Fill { bytes } => self.rows.add_fill(&done, known(bytes), batch),
        }
    }

    /// Returns HIP's number of a record's device, which the record gives as a node of the machine. Kernels, whose
    /// launches know HIP's number, define the mapping.
    fn device_number(&mut self, record: &Record, launch: Option<PendingLaunch>) -> i32 {
        if let Some((_, device)) = self.devices.iter().find(|(node, _)| *node == record.device) {
            return *device;
        }
        let Some(device) = launch.and_then(|launch| launch.device) else { return record.device };
        if matches!(record.what, WorkKind::Kernel { .. }) && self.devices.len() < DEVICES {
            self.devices.push((record.device, device));
        }
        device
    }

    /// Returns the kernel whose name is at that address.
    fn kernel_at(&mut self, address: u64, launch: Option<PendingLaunch>, batch: &mut Batch<'_>) -> RowKernel {
        let mut name = std::mem::take(&mut self.text);
        let found = if text::copy_c_string(address, &mut name) && !name.is_empty() {
            let fills = hip::is_fill_kernel(&String::from_utf8_lossy(&name));
            RowKernel { name: self.intern_kernel_name(&name, batch), fills }
        } else {
            // Older versions do not report it.
            let name = launch.and_then(|launch| launch.kernel).unwrap_or_else(|| batch.name(UNKNOWN));
            RowKernel { name, fills: false }
        };
        self.text = name;
        found
    }

    /// Returns the number of a kernel's demangled name.
    fn intern_kernel_name(&mut self, name: &[u8], batch: &mut Batch<'_>) -> Name {
        if let Some(known) = self.kernels.get(name) {
            return *known;
        }
        let number = batch.name(&demangle(&String::from_utf8_lossy(name)));
        if self.kernels.len() < KERNELS {
            self.kernels.insert(name.into(), number);
        }
        number
    }
}

#[cfg(test)]
mod tests;
