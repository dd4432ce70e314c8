//! A recording: what calls and records become.

use super::args::{self, Args};
use super::functions::Function;
use super::records::{self, Record, What};
use crate::activity::{ActivityType, ActivityTypes};
use crate::buffer::Loss;
use crate::collector::demangle::demangle;
use crate::collector::rocm::hip::{self, Does};
use crate::collector::rocm::launches::{Launch, Launches};
use crate::collector::rocm::shapes::{self, CopyCall, Kernel, LaunchCall, MemoryCall, RocmShape};
use crate::collector::rocm::streams::Streams;
use crate::collector::{Batch, DeviceWork, External, HostCall, Name, RecordSink, Thread, text};
use std::collections::HashMap;

/// A recording under way.
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) sink: RecordSink,
    types: ActivityTypes,
    launches: Launches,
    streams: Streams,
    /// Numbers of devices in records, with HIP's.
    devices: Vec<(i32, i32)>,
    /// Kernels, by their names as the compiler makes them.
    kernels: HashMap<Box<[u8]>, Name>,
    functions: HashMap<u32, Name>,
    /// Threads whose work goes into a graph now instead of to a device.
    capturing: Vec<i64>,
    /// How many more rows are kept.
    rows_left: u64,
    /// Whether a callback has come.
    pub(super) has_heard: bool,
    /// It ends: what is launched from now on is not waited for.
    pub(super) ends: bool,
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

impl Recording {
    pub(super) fn new(types: ActivityTypes, most_rows: u64, sink: RecordSink) -> Recording {
        Recording {
            sink,
            types,
            launches: Launches::default(),
            streams: Streams::default(),
            devices: Vec::new(),
            kernels: HashMap::new(),
            functions: HashMap::new(),
            capturing: Vec::new(),
            rows_left: most_rows,
            has_heard: false,
            ends: false,
            text: Vec::new(),
        }
    }

    /// Returns how many launches have no record yet: of those that are sure to have one, and of those that may.
    pub(super) fn owed(&self) -> [usize; 2] {
        [self.launches.owed(), self.launches.hoped()]
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
        let is_awaited = self.types.contains(kind) && !self.ends && !self.captures(call.thread);
        let mut launch = Launch {
            kernel,
            device: call.device,
            is_owed: is_awaited && runs_kernels,
            is_hoped: is_awaited && !runs_kernels,
            ..Launch::new(does)
        };
        match call.args {
            Some(Args::Launch(args)) => {
                (launch.grid, launch.block) = (args.grid, args.block);
                launch.stream = Some(stream(args.stream, call.thread));
            }
            Some(Args::Graph { graph, stream: handle }) => {
                launch.graph = self.launches.graph(graph);
                launch.stream = Some(stream(handle, call.thread));
            }
            Some(Args::Copy { bytes, stream: handle, .. } | Args::Fill { bytes, stream: handle, .. }) => {
                launch.bytes = bytes;
                launch.stream = Some(stream(handle.unwrap_or(0), call.thread));
            }
            _ => {}
        }
        self.launches.add(call.correlation, launch);
    }

    fn captures(&self, thread: i64) -> bool {
        self.capturing.contains(&thread)
    }

    /// A call has returned.
    pub(super) fn called(&mut self, call: &Called<'_>) {
        self.has_heard = true;
        let sink = self.sink.clone();
        let launches = call.function.does.launches() && !self.captures(call.thread);
        if let Some(captures) = call.function.captures {
            self.capturing.retain(|thread| *thread != call.thread);
            self.capturing.extend(captures.then_some(call.thread));
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
            batch.call(&HostCall {
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
        });
    }

    /// A device did something.
    fn worked(&mut self, record: &Record, batch: &mut Batch<'_>) {
        let launch = match record.what {
            What::Mark => return,
            _ => self.launches.worked(record.correlation),
        };
        let device = self.device(record, launch);
        let stream = self.streams.number(device, launch.and_then(|launch| launch.stream), record.queue);
        let (kind, name, shape, words) = match record.what {
            What::Mark => return,
            What::Kernel { name: address, is_task } => {
                let kind = if is_task { "Dispatch Task" } else { "Dispatch Kernel" };
                let (name, fills) = self.kernel_at(address, launch, batch);
                // A call that fills memory has nothing else done.
                if fills || launch.is_some_and(|launch| launch.does == Does::Fill) {
                    filled(0, record, launch, batch)
                } else {
                    ran(name, kind, record, launch, batch)
                }
            }
            What::Copy { direction, bytes } => {
                let name = batch.name(direction.name());
                copied(ActivityType::GpuMemcpy, name, direction.kind(), bytes, record, launch, batch)
            }
            What::Fill { bytes } => filled(bytes, record, launch, batch),
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

    /// Returns HIP's number of the device of a record, which has that of a node of the machine: kernels, whose launches know
    /// it, show which is which.
    fn device(&mut self, record: &Record, launch: Option<Launch>) -> i32 {
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
    fn kernel_at(&mut self, address: u64, launch: Option<Launch>, batch: &mut Batch<'_>) -> (Name, bool) {
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
        self.kernels.insert(name.into(), number);
        number
    }
}

/// A row of a device: its type, its name, and its words.
type Row = (ActivityType, Name, &'static RocmShape, [u64; 5]);

fn ran(name: Name, kind: &str, record: &Record, launch: Option<Launch>, batch: &mut Batch<'_>) -> Row {
    let kind = batch.name(kind);
    let (grid, block, graph) = launch.map_or_else(Default::default, |launch| (launch.grid, launch.block, launch.graph));
    let words = Kernel { queue: record.queue, kind, grid, block, graph }.words();
    (ActivityType::ConcurrentKernel, name, &shapes::KERNEL, words)
}

fn filled(bytes: u64, record: &Record, launch: Option<Launch>, batch: &mut Batch<'_>) -> Row {
    let name = batch.name(hip::FILL);
    copied(ActivityType::GpuMemset, name, FILLS, bytes, record, launch, batch)
}

fn copied(
    of: ActivityType,
    name: Name,
    kind: &str,
    bytes: u64,
    record: &Record,
    launch: Option<Launch>,
    batch: &mut Batch<'_>,
) -> Row {
    let kind = batch.name(kind);
    let (known, graph) = launch.map_or((0, 0), |launch| (launch.bytes, launch.graph));
    let bytes = if bytes > 0 { bytes } else { known };
    let words = shapes::Copy { queue: record.queue, kind, bytes, graph }.words();
    (of, name, &shapes::COPY, padded(words))
}

/// What a call's row shows.
fn shaped(call: &Called<'_>, kernel: Option<Name>) -> (&'static RocmShape, [u64; 5]) {
    let cid = call.number;
    match call.args {
        Some(Args::Launch(args::Launch { grid, block, shared, .. })) => {
            (&shapes::LAUNCH_CALL, LaunchCall { cid, kernel, grid, block, shared }.words())
        }
        Some(Args::Copy { dst, src, bytes, kind, .. }) => {
            (&shapes::COPY_CALL, padded(CopyCall { cid, src, dst, bytes, kind }.words()))
        }
        Some(Args::Fill { ptr, bytes, .. }) => memory(MemoryCall { cid, ptr, bytes: Some(bytes) }),
        Some(Args::Allocate { bytes, .. }) => memory(MemoryCall { cid, ptr: call.allocated, bytes: Some(bytes) }),
        Some(Args::Release { ptr }) => memory(MemoryCall { cid, ptr, bytes: None }),
        Some(Args::Graph { .. }) | None => (&shapes::CALL, padded(shapes::call_words(cid))),
    }
}

fn memory(call: MemoryCall) -> (&'static RocmShape, [u64; 5]) {
    (&shapes::MEMORY_CALL, padded(call.words()))
}

fn padded<const N: usize>(words: [u64; N]) -> [u64; 5] {
    std::array::from_fn(|at| words.get(at).copied().unwrap_or(0))
}

/// Returns what tells a stream from others: HIP's handle, but for the two that stand for default streams.
fn stream(handle: u64, thread: i64) -> u64 {
    const LEGACY: u64 = 1;
    const PER_THREAD: u64 = 2;
    match handle {
        LEGACY => 0,
        // Handles of streams are addresses, which are even larger.
        PER_THREAD => thread.cast_unsigned() << 8 | PER_THREAD,
        handle => handle,
    }
}

#[cfg(test)]
mod tests;
