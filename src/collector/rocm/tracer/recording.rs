//! A recording: what calls and records become.

use super::args::{self, Args};
use super::functions::Function;
use super::records::{self, Record, What};
use crate::buffer::Loss;
use crate::collector::demangle::demangle;
use crate::collector::rocm::captures::Captures;
use crate::collector::rocm::hip::{self, Direction, Does};
use crate::collector::rocm::launches::{PendingLaunch, PendingLaunches};
use crate::collector::rocm::shapes::{self, CopyCall, Kernel, LaunchCall, MemoryCall, RocmShape};
use crate::collector::rocm::streams::{self, Streams};
use crate::collector::{ApiCall, Batch, DeviceWork, External, Name, RecordSink, Thread, text};
use kineto_trace::activity::{ActivityType, ActivityTypes};
use std::collections::HashMap;

/// A recording under way.
#[derive(Debug)]
pub(super) struct TracerRecording {
    pub(super) sink: RecordSink,
    types: ActivityTypes,
    launches: PendingLaunches,
    streams: Streams,
    /// Numbers of devices in records, with HIP's.
    devices: Vec<(i32, i32)>,
    /// Kernels, by their names as the compiler makes them.
    kernels: HashMap<Box<[u8]>, Name>,
    functions: HashMap<u32, Name>,
    captures: Captures,
    /// How many more rows are kept.
    pub(super) rows_left: u64,
    /// Whether a callback has come.
    pub(super) has_heard: bool,
    /// It ends: what is launched from now on is not waited for.
    pub(super) ends: bool,
    /// Some records could not be read.
    is_missing_records: bool,
    text: Vec<u8>,
}

/// A call that puts work on a device, as it begins.
#[derive(Clone, Debug)]
pub(super) struct Launching<'f> {
    pub(super) function: &'f Function,
    pub(super) correlation: u64,
    pub(super) args: Option<Args>,
    /// The kernel's name as the compiler makes it, if it is known.
    pub(super) kernel: Option<Vec<u8>>,
    /// HIP's number of the device, if it is known.
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
    /// Where what it has allocated is, 0 if that is not known.
    pub(super) allocated: u64,
    /// The slice that the thread is in, 0 if none.
    pub(super) external: u64,
    pub(super) thread: i64,
}

/// What a kernel is called whose name cannot be read.
const UNKNOWN: &str = "unknown kernel";
/// The kind of a fill.
const FILLS: &str = "Memset";
/// So many numbers of devices are told apart; more can only be garbage.
const DEVICES: usize = 4096;
/// So many kernels are known without a look at their names.
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
            has_heard: false,
            ends: false,
            is_missing_records: false,
            text: Vec::new(),
        }
    }

    /// Returns how many launches have no record yet: of those that are sure to have one, and of those that may.
    pub(super) fn owed(&self) -> [usize; 2] {
        let [owed, hoped] = [self.launches.owed(), self.launches.hoped()];
        // Whose the records were that could not be read is not known.
        if self.is_missing_records { [0, owed + hoped] } else { [owed, hoped] }
    }

    /// A call begins that puts work on a device, whose record may come before the call returns.
    pub(super) fn launching(&mut self, call: Launching<'_>) {
        let sink = self.sink.clone();
        let kernel = call.kernel.map(|name| sink.record(|batch| self.kernel(&name, batch)));
        let does = call.function.does;
        let runs_kernels = matches!(does, Does::Launch | Does::LaunchGraph);
        let kind = match does {
            Does::Copy => ActivityType::GpuMemcpy,
            Does::Fill => ActivityType::GpuMemset,
            _ => ActivityType::ConcurrentKernel,
        };
        let stream = stream(call.args, call.thread);
        let is_awaited = self.types.contains(kind) && !self.ends && !self.captures.take(call.thread, stream);
        let mut launch = PendingLaunch {
            stream,
            kernel,
            device: call.device,
            is_owed: is_awaited && runs_kernels,
            is_hoped: is_awaited && !runs_kernels,
            ..PendingLaunch::new(does)
        };
        match call.args {
            Some(Args::Launch(args)) => (launch.grid, launch.block) = (args.grid, args.block),
            Some(Args::Graph { graph, .. }) => launch.graph = self.launches.graph(graph),
            Some(Args::Copy { bytes, .. } | Args::Fill { bytes, .. }) => launch.bytes = bytes,
            _ => {}
        }
        self.launches.add(call.correlation, launch);
    }

    /// A call has returned.
    pub(super) fn called(&mut self, call: &Called<'_>) {
        self.has_heard = true;
        let sink = self.sink.clone();
        let stream = stream(call.args, call.thread);
        let launches = call.function.does.launches() && !self.captures.take(call.thread, stream);
        if let Some(begins) = call.function.captures {
            self.captures.change(begins, call.thread, stream);
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
            let (shape, words) = shaped(call, kernel);
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

    /// Reads records of devices.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        let sink = self.sink.clone();
        let (records, mut unread) = records::cut(bytes);
        sink.record(|batch| {
            for record in records {
                match record {
                    Some(record) => self.worked(&record, batch),
                    None => unread += 1,
                }
            }
            batch.lost(Loss::DeviceRecordsUnread, unread);
            self.is_missing_records |= unread > 0;
        });
    }

    /// A device did something.
    fn worked(&mut self, record: &Record, batch: &mut Batch<'_>) {
        if record.what == What::Mark {
            return;
        }
        let launch = self.launches.worked(record.correlation);
        let done = Done { record, launch };
        let device = self.device(record, launch);
        let stream = self.streams.number(device, launch.and_then(|launch| launch.stream), record.queue);
        let (kind, name, shape, words) = match record.what {
            What::Mark => return,
            What::Kernel { name: address, is_task } => {
                let kind = if is_task { "Dispatch Task" } else { "Dispatch Kernel" };
                let (name, fills) = self.kernel_at(address, launch, batch);
                // A call that fills memory has nothing else done.
                if fills || launch.is_some_and(|launch| launch.does == Does::Fill) {
                    done.filled(0, batch)
                } else {
                    done.ran(name, kind, batch)
                }
            }
            What::Copy { direction, bytes } => done.copied(direction, bytes, batch),
            What::Fill { bytes } => done.filled(bytes, batch),
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
            batch.lost(Loss::DeviceRecordsOverLimit, 1);
        }
        has_room
    }

    /// Returns HIP's number of the device of a record, which has that of a node of the machine: kernels, whose launches
    /// know it, show which is which.
    fn device(&mut self, record: &Record, launch: Option<PendingLaunch>) -> i32 {
        if let Some((_, device)) = self.devices.iter().find(|(node, _)| *node == record.device) {
            return *device;
        }
        let Some(device) = launch.and_then(|launch| launch.device) else { return record.device };
        if matches!(record.what, What::Kernel { .. }) && self.devices.len() < DEVICES {
            self.devices.push((record.device, device));
        }
        device
    }

    /// Returns the name of a kernel, and whether it is one by which the runtime fills memory.
    fn kernel_at(&mut self, address: u64, launch: Option<PendingLaunch>, batch: &mut Batch<'_>) -> (Name, bool) {
        let mut name = std::mem::take(&mut self.text);
        let found = match text::copy(address, &mut name) && !name.is_empty() {
            true => (self.kernel(&name, batch), hip::fills(&String::from_utf8_lossy(&name))),
            // Older versions do not say it.
            false => (launch.and_then(|launch| launch.kernel).unwrap_or_else(|| batch.name(UNKNOWN)), false),
        };
        self.text = name;
        found
    }

    /// Returns the number of a kernel's name, as people write it.
    fn kernel(&mut self, name: &[u8], batch: &mut Batch<'_>) -> Name {
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

/// What a device did, and the launch that had it do so, if that is known.
#[derive(Clone, Copy)]
struct Done<'r> {
    record: &'r Record,
    launch: Option<PendingLaunch>,
}

/// A row of a device: its type, its name, and its words.
type Row = (ActivityType, Name, &'static RocmShape, [u64; 5]);

impl Done<'_> {
    fn ran(self, name: Name, kind: &str, batch: &mut Batch<'_>) -> Row {
        let (queue, kind) = (self.record.queue, batch.name(kind));
        let known = self.launch.map(|launch| (launch.grid, launch.block, launch.graph));
        let (grid, block, graph) = known.unwrap_or_default();
        (ActivityType::ConcurrentKernel, name, &shapes::KERNEL, Kernel { queue, kind, grid, block, graph }.words())
    }

    fn copied(self, direction: Direction, bytes: u64, batch: &mut Batch<'_>) -> Row {
        let name = batch.name(direction.name());
        (ActivityType::GpuMemcpy, name, &shapes::COPY, self.moved(direction.kind(), bytes, batch))
    }

    fn filled(self, bytes: u64, batch: &mut Batch<'_>) -> Row {
        let name = batch.name(hip::FILL);
        (ActivityType::GpuMemset, name, &shapes::COPY, self.moved(FILLS, bytes, batch))
    }

    fn moved(self, kind: &str, bytes: u64, batch: &mut Batch<'_>) -> [u64; 5] {
        let (queue, kind) = (self.record.queue, batch.name(kind));
        let (known, graph) = self.launch.map_or((0, 0), |launch| (launch.bytes, launch.graph));
        let bytes = if bytes > 0 { bytes } else { known };
        padded(shapes::Copy { queue, kind, bytes, graph }.words())
    }
}

/// What a call's row shows.
fn shaped(call: &Called<'_>, kernel: Option<Name>) -> (&'static RocmShape, [u64; 5]) {
    let cid = call.number;
    match call.args {
        Some(Args::Launch(args::LaunchArguments { grid, block, shared, .. })) => {
            (&shapes::LAUNCH_CALL, LaunchCall { cid, kernel, grid, block, shared }.words())
        }
        Some(Args::Copy { dst, src, bytes, kind, .. }) => {
            (&shapes::COPY_CALL, padded(CopyCall { cid, src, dst, bytes, kind }.words()))
        }
        Some(Args::Fill { ptr, bytes, .. }) => memory(MemoryCall { cid, ptr, bytes: Some(bytes) }),
        Some(Args::Allocate { bytes, .. }) => memory(MemoryCall { cid, ptr: call.allocated, bytes: Some(bytes) }),
        Some(Args::Release { ptr }) => memory(MemoryCall { cid, ptr, bytes: None }),
        Some(Args::Graph { .. } | Args::Capture { .. }) | None => (&shapes::CALL, padded(shapes::call_words(cid))),
    }
}

fn memory(call: MemoryCall) -> (&'static RocmShape, [u64; 5]) {
    (&shapes::MEMORY_CALL, padded(call.words()))
}

fn padded<const N: usize>(words: [u64; N]) -> [u64; 5] {
    std::array::from_fn(|at| words.get(at).copied().unwrap_or(0))
}

/// Returns what tells the stream that a call names, or stands for, from others.
fn stream(args: Option<Args>, thread: i64) -> Option<u64> {
    args?.stream().map(|handle| streams::of_handle(handle, thread))
}

#[cfg(test)]
mod tests;
