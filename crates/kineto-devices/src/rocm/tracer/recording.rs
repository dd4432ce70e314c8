//! Converts calls and records into records of the recording.

use super::args::{self, Args};
use super::functions::TracedFunction;
use super::records::{self, Record, WorkKind};
use crate::records::demangle::demangle;
use crate::rocm::hip::{self, CallEffect, Direction};
use crate::rocm::launches::PendingLaunch;
use crate::rocm::rows::{HipCall, Return, RocmRows, RowWords, memory_call_row, pad_words};
use crate::rocm::shapes::{self, CopyCall, Kernel, LaunchCall, RocmShape, Sizes};
use crate::rocm::streams;
use crate::{Batch, DeviceWork, Name, RecordSink, text};
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
    pub(super) function: &'f TracedFunction,
    pub(super) correlation: u64,
    pub(super) args: Option<Args>,
    /// The kernel's mangled name, if known.
    pub(super) kernel: Option<Vec<u8>>,
    /// HIP's number of the device, if known.
    pub(super) device: Option<i32>,
    pub(super) thread: i64,
}

/// A call that has returned.
#[derive(Clone, Debug)]
pub(super) struct Called<'f> {
    pub(super) call: HipCall<'f>,
    pub(super) returned: Return,
    pub(super) args: Option<Args>,
    /// The address of an allocation, 0 if unknown.
    pub(super) allocated: u64,
}

/// The name of a kernel whose name cannot be read.
const UNKNOWN: &str = "unknown kernel";
/// The kind of a fill.
const FILLS: &str = "Memset";
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
        let does = call.function.hip.does;
        let kind = match does {
            CallEffect::Copy => ActivityType::GpuMemcpy,
            CallEffect::Fill => ActivityType::GpuMemset,
            _ => ActivityType::ConcurrentKernel,
        };
        let (stream, device) = (call_stream(call.args, call.thread), call.device);
        let mut launch = PendingLaunch { stream, kernel, device, ..PendingLaunch::new(does) };
        match call.args {
            Some(Args::Launch(args)) => (launch.grid, launch.block) = (args.grid, args.block),
            Some(Args::Graph { graph, .. }) => launch.graph = self.rows.launches.graph_number(graph),
            Some(Args::Copy { bytes, .. } | Args::Fill { bytes, .. }) => launch.bytes = bytes,
            _ => {}
        }
        let is_awaited = self.rows.types.contains(kind) && !self.is_ending;
        self.rows.begin_call(call.correlation, call.thread, launch, is_awaited);
    }

    /// Notes the return of a call.
    pub(super) fn end_call(&mut self, called: &Called<'_>) {
        self.has_callback = true;
        let Called { call, returned, args, .. } = *called;
        let kernel = self.rows.launches.get(call.correlation).and_then(|launch| launch.kernel);
        self.rows.end_call(&call, returned, call_stream(args, call.thread), call_row(called, kernel));
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
        let done = DoneWork { record, launch };
        let device = self.device_number(record, launch);
        let stream = self.rows.stream_number(device, launch, record.queue);
        let (kind, name, shape, words) = match record.what {
            WorkKind::Mark => return,
            WorkKind::Kernel { name: address, is_task } => {
                let kind = if is_task { "Dispatch Task" } else { "Dispatch Kernel" };
                let (name, fills) = self.kernel_at(address, launch, batch);
                // Other kernels of a call that fills memory do not exist.
                if fills || launch.is_some_and(|launch| launch.does == CallEffect::Fill) {
                    done.fill_row(0, batch)
                } else {
                    done.kernel_row(name, kind, batch)
                }
            }
            WorkKind::Copy { direction, bytes } => done.copy_row(direction, bytes, batch),
            WorkKind::Fill { bytes } => done.fill_row(bytes, batch),
        };
        let (start, end, correlation) = (record.begin, record.end, record.correlation);
        let work = DeviceWork { kind, name, device, stream, start, end, correlation, shape, words: &words };
        self.rows.add_work(&work, batch);
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

    /// Returns the name of a kernel, and whether the runtime uses it to fill memory.
    fn kernel_at(&mut self, address: u64, launch: Option<PendingLaunch>, batch: &mut Batch<'_>) -> (Name, bool) {
        let mut name = std::mem::take(&mut self.text);
        let found = if text::copy_c_string(address, &mut name) && !name.is_empty() {
            (self.intern_kernel_name(&name, batch), hip::is_fill_kernel(&String::from_utf8_lossy(&name)))
        } else {
            // Older versions do not report it.
            (launch.and_then(|launch| launch.kernel).unwrap_or_else(|| batch.name(UNKNOWN)), false)
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

/// A record of device work, with its launch if known.
#[derive(Clone, Copy)]
struct DoneWork<'r> {
    record: &'r Record,
    launch: Option<PendingLaunch>,
}

/// A row of a device: type, name, layout and words.
type Row = (ActivityType, Name, &'static RocmShape, [u64; 5]);

impl DoneWork<'_> {
    fn kernel_row(self, name: Name, kind: &str, batch: &mut Batch<'_>) -> Row {
        let (queue, kind) = (self.record.queue, batch.name(kind));
        let known = self.launch.map(|launch| (launch.grid, launch.block, launch.graph));
        let (grid, block, graph) = known.unwrap_or_default();
        let words = shapes::kernel_words(Kernel { queue, kind, graph }, Sizes::new(grid, block));
        (ActivityType::ConcurrentKernel, name, &shapes::KERNEL, words)
    }

    fn copy_row(self, direction: Direction, bytes: u64, batch: &mut Batch<'_>) -> Row {
        let name = batch.name(direction.row_name());
        (ActivityType::GpuMemcpy, name, &shapes::COPY, self.copy_words(direction.short_name(), bytes, batch))
    }

    fn fill_row(self, bytes: u64, batch: &mut Batch<'_>) -> Row {
        let name = batch.name(hip::FILL);
        (ActivityType::GpuMemset, name, &shapes::COPY, self.copy_words(FILLS, bytes, batch))
    }

    fn copy_words(self, kind: &str, bytes: u64, batch: &mut Batch<'_>) -> [u64; 5] {
        let (queue, kind) = (self.record.queue, batch.name(kind));
        let (known, graph) = self.launch.map_or((0, 0), |launch| (launch.bytes, launch.graph));
        let bytes = if bytes > 0 { bytes } else { known };
        pad_words(shapes::Copy { queue, kind, bytes, graph }.to_words())
    }
}

/// Returns the layout and words of a call's row.
fn call_row(called: &Called<'_>, kernel: Option<Name>) -> RowWords {
    let cid = called.call.number;
    match called.args {
        Some(Args::Launch(args::LaunchArguments { grid, block, shared, .. })) => {
            let launch = LaunchCall { cid, kernel, shared };
            (&shapes::LAUNCH_CALL, shapes::launch_words(launch, Sizes::new(grid, block)))
        }
        Some(Args::Copy { dst, src, bytes, kind, .. }) => {
            (&shapes::COPY_CALL, pad_words(CopyCall { cid, src, dst, bytes, kind }.to_words()))
        }
        Some(Args::Fill { ptr, bytes, .. }) => memory_call_row(cid, ptr, Some(bytes)),
        Some(Args::Allocate { bytes, .. }) => memory_call_row(cid, called.allocated, Some(bytes)),
        Some(Args::Release { ptr }) => memory_call_row(cid, ptr, None),
        Some(Args::Graph { .. } | Args::Capture { .. }) | None => (&shapes::CALL, pad_words(shapes::call_words(cid))),
    }
}

/// Returns the identity of the stream that a call uses.
fn call_stream(args: Option<Args>, thread: i64) -> Option<u64> {
    args?.stream_handle().map(|handle| streams::of_handle(handle, thread))
}

#[cfg(test)]
mod tests;
