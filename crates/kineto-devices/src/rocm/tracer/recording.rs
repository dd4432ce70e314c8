//! Converts calls and records into records of the recording.

use super::args::{self, Args};
use super::functions::Function;
use super::records::{self, Record, WorkKind};
use crate::records::demangle::demangle;
use crate::rocm::captures::Captures;
use crate::rocm::hip::{self, CallEffect, Direction};
use crate::rocm::launches::{PendingLaunch, PendingLaunches};
use crate::rocm::shapes::{self, CopyCall, Kernel, LaunchCall, MemoryCall, RocmShape, Sizes};
use crate::rocm::streams::{self, Streams};
use crate::{ApiCall, Batch, DeviceWork, External, Name, RecordSink, Thread, text};
use kineto_model::Loss;
use kineto_model::activity::{ActivityType, ActivityTypes};
use std::collections::HashMap;

/// An active recording.
#[derive(Debug)]
pub(super) struct TracerRecording {
    pub(super) sink: RecordSink,
    types: ActivityTypes,
    launches: PendingLaunches,
    streams: Streams,
    /// Numbers of devices in records, each with HIP's number.
    devices: Vec<(i32, i32)>,
    /// Kernels by their mangled names.
    kernels: HashMap<Box<[u8]>, Name>,
    functions: HashMap<u32, Name>,
    captures: Captures,
    /// How many more rows are kept.
    pub(super) rows_left: u64,
    /// Whether a callback arrived.
    pub(super) has_callback: bool,
    /// Whether the recording is ending: later launches are not waited for.
    pub(super) is_ending: bool,
    /// Whether some records could not be read.
    is_missing_records: bool,
    text: Vec<u8>,
}

/// A call that launches work, at its begin.
#[derive(Clone, Debug)]
pub(super) struct Launching<'f> {
    pub(super) function: &'f Function,
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
    pub(super) function: &'f Function,
    pub(super) number: u32,
    pub(super) correlation: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) args: Option<Args>,
    /// The address of an allocation, 0 if unknown.
    pub(super) allocated: u64,
    /// The thread's slice, 0 if none.
    pub(super) external: u64,
    pub(super) thread: i64,
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
            sink,
            types,
            launches: PendingLaunches::default(),
            streams: Streams::default(),
            devices: Vec::new(),
            kernels: HashMap::new(),
            functions: HashMap::new(),
            captures: Captures::default(),
            rows_left: most_rows,
            has_callback: false,
            is_ending: false,
            is_missing_records: false,
            text: Vec::new(),
        }
    }

    /// Returns how many launches lack work that will certainly arrive, and that may arrive.
    pub(super) fn pending_counts(&self) -> [usize; 2] {
        let [owed, hoped] = [self.launches.pending_count(), self.launches.maybe_pending_count()];
        // Unreadable records may have been that work.
        if self.is_missing_records { [0, owed + hoped] } else { [owed, hoped] }
    }

    /// Notes the begin of a call that launches work, whose record may arrive before the call returns.
    pub(super) fn begin_call(&mut self, call: Launching<'_>) {
        let sink = self.sink.clone();
        let kernel = call.kernel.map(|name| sink.record(|batch| self.intern_kernel_name(&name, batch)));
        let does = call.function.does;
        let runs_kernels = matches!(does, CallEffect::Launch | CallEffect::LaunchGraph);
        let kind = match does {
            CallEffect::Copy => ActivityType::GpuMemcpy,
            CallEffect::Fill => ActivityType::GpuMemset,
            _ => ActivityType::ConcurrentKernel,
        };
        let stream = call_stream(call.args, call.thread);
        let is_awaited =
            self.types.contains(kind) && !self.is_ending && !self.captures.is_capturing(call.thread, stream);
        let mut launch = PendingLaunch {
            stream,
            kernel,
            device: call.device,
            is_owed: is_awaited && runs_kernels,
            may_have_work: is_awaited && !runs_kernels,
            ..PendingLaunch::new(does)
        };
        match call.args {
            Some(Args::Launch(args)) => (launch.grid, launch.block) = (args.grid, args.block),
            Some(Args::Graph { graph, .. }) => launch.graph = self.launches.graph_number(graph),
            Some(Args::Copy { bytes, .. } | Args::Fill { bytes, .. }) => launch.bytes = bytes,
            _ => {}
        }
        self.launches.add(call.correlation, launch);
    }

    /// Notes the return of a call.
    pub(super) fn end_call(&mut self, call: &Called<'_>) {
        self.has_callback = true;
        let sink = self.sink.clone();
        let stream = call_stream(call.args, call.thread);
        let launches = call.function.does.has_device_work() && !self.captures.is_capturing(call.thread, stream);
        if let Some(begins) = call.function.captures {
            self.captures.note_capture(begins, call.thread, stream);
        }
        sink.record(|batch| {
            if !self.types.contains(ActivityType::CudaRuntime) {
                if launches && call.external != 0 {
                    batch.external(External { correlation: call.correlation, id: call.external });
                }
                return;
            }
            if !self.has_room(batch) {
                return;
            }
            let name = *self.functions.entry(call.number).or_insert_with(|| batch.name(&call.function.name));
            let kernel = self.launches.get(call.correlation).and_then(|launch| launch.kernel);
            let (shape, words) = call_row(call, kernel);
            batch.call(&ApiCall {
                kind: ActivityType::CudaRuntime,
                name,
                thread: Thread::Id(call.thread),
                start: call.start,
                end: call.end,
                correlation: call.correlation,
                external: call.external,
                launches,
                shape,
                words: &words,
            });
        });
    }

    /// Reads records of device work.
    pub(super) fn read_buffer(&mut self, bytes: &[u8]) {
        let sink = self.sink.clone();
        let (records, mut unread) = records::split_records(bytes);
        sink.record(|batch| {
            for record in records {
                match record {
                    Some(record) => self.add_work(&record, batch),
                    None => unread += 1,
                }
            }
            batch.count_lost(Loss::DeviceRecordsUnread, unread);
            self.is_missing_records |= unread > 0;
        });
    }

    /// Adds a record of device work.
    fn add_work(&mut self, record: &Record, batch: &mut Batch<'_>) {
        if record.what == WorkKind::Mark {
            return;
        }
        let launch = self.launches.take_work(record.correlation);
        let done = DoneWork { record, launch };
        let device = self.device_number(record, launch);
        let stream = self.streams.stream_number(device, launch.and_then(|launch| launch.stream), record.queue);
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
        if self.types.contains(kind) && self.has_room(batch) {
            let (start, end, correlation) = (record.begin, record.end, record.correlation);
            let words = &words;
            batch.work(&DeviceWork { kind, name, device, stream, start, end, correlation, shape, words });
        }
    }

    fn has_room(&mut self, batch: &mut Batch<'_>) -> bool {
        let has_room = self.rows_left > 0;
        self.rows_left = self.rows_left.saturating_sub(1);
        if !has_room {
            batch.count_lost(Loss::DeviceRecordsOverLimit, 1);
        }
        has_room
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
fn call_row(call: &Called<'_>, kernel: Option<Name>) -> (&'static RocmShape, [u64; 5]) {
    let cid = call.number;
    match call.args {
        Some(Args::Launch(args::LaunchArguments { grid, block, shared, .. })) => {
            let launch = LaunchCall { cid, kernel, shared };
            (&shapes::LAUNCH_CALL, shapes::launch_words(launch, Sizes::new(grid, block)))
        }
        Some(Args::Copy { dst, src, bytes, kind, .. }) => {
            (&shapes::COPY_CALL, pad_words(CopyCall { cid, src, dst, bytes, kind }.to_words()))
        }
        Some(Args::Fill { ptr, bytes, .. }) => memory_call_row(cid, ptr, Some(bytes)),
        Some(Args::Allocate { bytes, .. }) => memory_call_row(cid, call.allocated, Some(bytes)),
        Some(Args::Release { ptr }) => memory_call_row(cid, ptr, None),
        Some(Args::Graph { .. } | Args::Capture { .. }) | None => (&shapes::CALL, pad_words(shapes::call_words(cid))),
    }
}

fn memory_call_row(cid: u32, ptr: u64, bytes: Option<u64>) -> (&'static RocmShape, [u64; 5]) {
    (&shapes::MEMORY_CALL, pad_words(MemoryCall::new(cid, ptr, bytes).to_words()))
}

fn pad_words<const N: usize>(words: [u64; N]) -> [u64; 5] {
    std::array::from_fn(|at| words.get(at).copied().unwrap_or(0))
}

/// Returns the identity of the stream that a call uses.
fn call_stream(args: Option<Args>, thread: i64) -> Option<u64> {
    args?.stream_handle().map(|handle| streams::of_handle(handle, thread))
}

#[cfg(test)]
mod tests;
