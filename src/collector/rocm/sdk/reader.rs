//! Reads calls and records into a recording.

use super::agents::{Agent, Agents};
use super::arguments::Arguments;
use super::names::{Function, Operations};
use super::records::{Copy, Dispatch, Kind, Record};
use crate::buffer::Loss;
use crate::collector::demangle::demangle;
use crate::collector::rocm::captures::Captures;
use crate::collector::rocm::hip::{self, Direction, Does};
use crate::collector::rocm::launches::{PendingLaunch, PendingLaunches};
use crate::collector::rocm::shapes::{self, CopyCall, LaunchCall, MemoryCall, RocmShape};
use crate::collector::rocm::streams::{self, Streams};
use crate::collector::{ApiCall, Batch, DeviceWork, External, Name, RecordSink, Selection, Thread};
use kineto_trace::activity::{ActivityType, ActivityTypes};
use std::collections::HashMap;
use std::sync::Arc;

/// Gives a kernel's name as the linker has it, by its number.
pub(super) type Ask = Box<dyn Fn(u64) -> Option<Arc<str>> + Send>;

/// What a process knows of the library.
#[derive(Debug, Default)]
pub(super) struct ProcessNames {
    pub(super) operations: Operations,
    pub(super) agents: Agents,
}

/// A call of HIP.
#[derive(Clone, Copy, Debug)]
pub(super) struct HipCall<'k> {
    pub(super) function: &'k Function,
    /// The function's number.
    pub(super) number: u32,
    /// The calling thread, as the kernel counts it.
    pub(super) thread: i64,
    pub(super) correlation: u64,
    /// When it began.
    pub(super) start: u64,
}

/// How a call ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Return {
    /// When.
    pub(super) end: u64,
    pub(super) failed: bool,
    /// The slice around it, 0 if none.
    pub(super) external: u64,
    /// Its arguments, if they were to be had only now.
    pub(super) arguments: Option<Arguments>,
}

/// What a recording has met so far.
pub(super) struct Reader {
    sink: RecordSink,
    types: ActivityTypes,
    known: Arc<ProcessNames>,
    ask: Ask,
    streams: Streams,
    launches: PendingLaunches,
    /// Arguments of calls that have not returned, by their correlation ids.
    pending: HashMap<u64, Arguments>,
    kernels: HashMap<u64, KernelState>,
    functions: HashMap<u32, Name>,
    captures: Captures,
    /// Launches from then on are not waited for.
    until: u64,
    /// How many rows may come yet.
    left: u64,
    /// Records are known to be missing, so work cannot be waited for launch by launch.
    is_missing_records: bool,
}

/// A kernel that this recording has met.
#[derive(Clone, Copy, Debug)]
struct KernelState {
    name: Name,
    /// It is the runtime's, by which it fills memory.
    fills: bool,
}

/// So many calls may be under way; more can only be ones of which no return is told.
const UNDER_WAY: usize = 4096;

/// What a kernel is called whose name is not known.
const UNKNOWN: &str = "unknown kernel";

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("types", &self.types).finish_non_exhaustive()
    }
}

/// On which stream work ran, and what launched it.
#[derive(Clone, Copy, Debug)]
struct Place {
    stream: u32,
    launch: Option<PendingLaunch>,
}

impl Place {
    fn graph(&self) -> u32 {
        self.launch.map_or(0, |launch| launch.graph)
    }
}

impl Reader {
    pub(super) fn new(sink: RecordSink, selection: &Selection, known: Arc<ProcessNames>, ask: Ask) -> Reader {
        Reader {
            sink,
            types: selection.types,
            known,
            ask,
            streams: Streams::default(),
            launches: PendingLaunches::default(),
            pending: HashMap::new(),
            kernels: HashMap::new(),
            functions: HashMap::new(),
            captures: Captures::default(),
            until: u64::MAX,
            left: super::super::max_rows(&selection.options),
            is_missing_records: false,
        }
    }

    pub(super) fn sink(&self) -> &RecordSink {
        &self.sink
    }

    /// What is launched after that time is not waited for.
    pub(super) fn close(&mut self, end: u64) {
        self.until = end;
    }

    /// Returns how many launches have no work yet: of which it is sure to come, and of which it may.
    pub(super) fn owed(&self) -> [usize; 2] {
        match [self.launches.owed(), self.launches.hoped()] {
            [owed, hoped] if self.is_missing_records => [0, owed + hoped],
            owed => owed,
        }
    }

    /// Counts records that are not there.
    pub(super) fn missing(&mut self, cause: Loss, count: u64) {
        self.is_missing_records |= count > 0;
        self.sink.lost(cause, count);
    }

    /// A call begins that launches something: before its work can come.
    pub(super) fn enter(&mut self, call: &HipCall<'_>, arguments: Arguments) {
        let does = call.function.does;
        let runs_kernels = matches!(does, Does::Launch | Does::LaunchGraph);
        let stream = stream(call, &arguments);
        let reaches_device = call.start <= self.until && !self.captures.take(call.thread, stream);
        let graph = if does == Does::LaunchGraph { self.launches.graph(arguments.graph) } else { 0 };
        let launch = PendingLaunch {
            stream,
            bytes: arguments.bytes(&call.function.name).unwrap_or(0),
            graph,
            is_owed: reaches_device && runs_kernels,
            // Some are done by the host.
            is_hoped: reaches_device && !runs_kernels,
            ..PendingLaunch::new(does)
        };
        self.launches.add(call.correlation, launch);
        if self.pending.len() >= UNDER_WAY {
            self.pending.clear();
        }
        self.pending.insert(call.correlation, arguments);
    }

    /// A call returns.
    pub(super) fn exit(&mut self, call: &HipCall<'_>, returned: &Return) {
        let does = call.function.does;
        let arguments = self.pending.remove(&call.correlation).or(returned.arguments).unwrap_or_default();
        let stream = stream(call, &arguments);
        // The end of one that came to nothing fails, and is its end all the same.
        if let Some(begins) = call.function.captures
            && !(begins && returned.failed)
        {
            self.captures.change(begins, call.thread, stream);
        }
        if returned.failed {
            self.launches.forget(call.correlation);
        }
        let launches = does.launches() && !returned.failed && !self.captures.take(call.thread, stream);
        if !self.types.contains(ActivityType::CudaRuntime) {
            if launches && returned.external != 0 {
                let external = External { correlation: call.correlation, id: returned.external };
                self.sink.record(|batch| batch.external(external));
            }
            return;
        }
        let Some(left) = self.left.checked_sub(1) else {
            return self.sink.lost(Loss::DeviceRecordsOverLimit, 1);
        };
        self.left = left;
        let (shape, words) = call_words(call, &arguments);
        let sink = self.sink.clone();
        sink.record(|batch| {
            let name = self.function(call, batch);
            batch.call(&ApiCall {
                kind: ActivityType::CudaRuntime,
                name,
                thread: Thread::Id(call.thread),
                start: call.start,
                end: returned.end,
                correlation: call.correlation,
                external: returned.external,
                launches,
                shape,
                words: &words,
            });
        });
    }

    /// Reads a record of a buffer.
    pub(super) fn record(&mut self, header: Kind, bytes: &[u8]) {
        match Record::read(header, bytes) {
            Some(Record::Dispatch(kernel)) if is_timed(kernel.start(), kernel.end()) => self.kernel(&kernel),
            Some(Record::Copy(copy)) if is_timed(copy.start(), copy.end()) => self.copy(&copy),
            Some(Record::Other) => {}
            _ => self.missing(Loss::DeviceRecordsUnread, 1),
        }
    }

    fn kernel(&mut self, kernel: &Dispatch<'_>) {
        let device = self.known.agents.device(kernel.agent()).unwrap_or(-1);
        let place = self.place(device, kernel.queue(), kernel.correlation());
        let sink = self.sink.clone();
        sink.record(|batch| {
            let KernelState { name, fills } = self.kernel_name(kernel.kernel(), batch);
            let mut work = DeviceWork {
                kind: ActivityType::ConcurrentKernel,
                name,
                device,
                stream: place.stream,
                start: kernel.start(),
                end: kernel.end(),
                correlation: kernel.correlation(),
                shape: &shapes::KERNEL,
                words: &[],
            };
            // A call that fills memory has nothing else done.
            if fills || place.launch.is_some_and(|launch| launch.does == Does::Fill) {
                let bytes = place.launch.map_or(0, |launch| launch.bytes);
                let fill =
                    shapes::Copy { queue: kernel.queue(), kind: batch.name("Memset"), bytes, graph: place.graph() };
                (work.kind, work.name, work.shape) = (ActivityType::GpuMemset, batch.name(hip::FILL), &shapes::COPY);
                return self.work(&DeviceWork { words: &fill.words(), ..work }, batch);
            }
            let ran = shapes::Kernel {
                queue: kernel.queue(),
                kind: batch.name("Dispatch Kernel"),
                grid: kernel.grid(),
                block: kernel.block(),
                graph: place.graph(),
            };
            self.work(&DeviceWork { words: &ran.words(), ..work }, batch);
        });
    }

    fn copy(&mut self, copy: &Copy<'_>) {
        let agents = &self.known.agents;
        // The device does it, whichever end it is at.
        let device = agents.device(copy.target()).or_else(|| agents.device(copy.source())).unwrap_or(-1);
        let ends = [agents.get(copy.source()), agents.get(copy.target())];
        let direction = self.known.operations.copy(copy.operation()).unwrap_or_else(|| between(ends));
        let place = self.place(device, 0, copy.correlation());
        let sink = self.sink.clone();
        sink.record(|batch| {
            let (kind, bytes) = (batch.name(direction.kind()), copy.bytes_copied());
            let copied = shapes::Copy { queue: 0, kind, bytes, graph: place.graph() };
            let work = DeviceWork {
                kind: ActivityType::GpuMemcpy,
                name: batch.name(direction.name()),
                device,
                stream: place.stream,
                start: copy.start(),
                end: copy.end(),
                correlation: copy.correlation(),
                shape: &shapes::COPY,
                words: &copied.words(),
            };
            self.work(&work, batch);
        });
    }

    fn work(&mut self, work: &DeviceWork<'_>, batch: &mut Batch<'_>) {
        if !self.types.contains(work.kind) {
            return;
        }
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                batch.work(work);
            }
            None => batch.lost(Loss::DeviceRecordsOverLimit, 1),
        }
    }

    /// Finds out where work ran.
    fn place(&mut self, device: i32, queue: u64, correlation: u64) -> Place {
        let launch = self.launches.worked(correlation);
        let stream = self.streams.number(device, launch.and_then(|launch| launch.stream), queue);
        Place { stream, launch }
    }

    fn kernel_name(&mut self, kernel: u64, batch: &mut Batch<'_>) -> KernelState {
        if let Some(known) = self.kernels.get(&kernel) {
            return *known;
        }
        let Some(symbol) = (self.ask)(kernel) else {
            // It may still be told.
            return KernelState { name: batch.name(UNKNOWN), fills: false };
        };
        let new = KernelState { name: batch.name(&demangle(&symbol)), fills: hip::fills(&symbol) };
        self.kernels.insert(kernel, new);
        new
    }

    fn function(&mut self, call: &HipCall<'_>, batch: &mut Batch<'_>) -> Name {
        *self.functions.entry(call.number).or_insert_with(|| batch.name(&call.function.name))
    }
}

/// The stream that a call names, or stands for: a copy that names none is the default stream's, while of a launch the name
/// lies where it is not seen.
fn stream(call: &HipCall<'_>, arguments: &Arguments) -> Option<u64> {
    let is_of_thread = call.function.name.ends_with("_spt");
    let handle = match arguments.stream {
        None if !matches!(call.function.does, Does::Copy | Does::Fill) => return None,
        None | Some(0) if is_of_thread => streams::PER_THREAD,
        named => named.unwrap_or(0),
    };
    Some(streams::of_handle(handle, call.thread))
}

/// Whether these are times at which something ran.
fn is_timed(start: u64, end: u64) -> bool {
    start != 0 && end >= start
}

/// Where a copy goes that has these ends: from, to.
fn between(ends: [Option<Agent>; 2]) -> Direction {
    match ends {
        [Some(Agent::Host), Some(Agent::Host)] => Direction::HostToHost,
        [Some(Agent::Host), Some(Agent::Gpu(_))] => Direction::HostToDevice,
        [Some(Agent::Gpu(_)), Some(Agent::Host)] => Direction::DeviceToHost,
        [Some(Agent::Gpu(_)), Some(Agent::Gpu(_))] => Direction::DeviceToDevice,
        _ => Direction::Unknown,
    }
}

/// What a call's row shows: as many words as the shape has that has the most.
fn call_words(call: &HipCall<'_>, arguments: &Arguments) -> (&'static RocmShape, [u64; 5]) {
    let (cid, name) = (call.number, &*call.function.name);
    let bytes = arguments.bytes(name);
    match call.function.does {
        Does::Launch => {
            let (grid, block, shared) = (arguments.grid(), arguments.block, arguments.shared);
            let launch = LaunchCall { cid, kernel: None, grid, block, shared };
            (&shapes::LAUNCH_CALL, launch.words())
        }
        Does::Copy => {
            let (src, dst, kind) = (arguments.src, arguments.dst, arguments.direction(name));
            let copy = CopyCall { cid, src, dst, bytes: bytes.unwrap_or(0), kind };
            (&shapes::COPY_CALL, filled(&copy.words()))
        }
        Does::Fill => (&shapes::MEMORY_CALL, filled(&MemoryCall { cid, ptr: arguments.dst, bytes }.words())),
        Does::Allocate | Does::Release => {
            (&shapes::MEMORY_CALL, filled(&MemoryCall { cid, ptr: arguments.ptr, bytes }.words()))
        }
        Does::LaunchGraph | Does::Other => (&shapes::CALL, filled(&shapes::call_words(cid))),
    }
}

/// Zeros behind the words, which take no room.
fn filled(words: &[u64]) -> [u64; 5] {
    let mut all = [0; 5];
    all.iter_mut().zip(words).for_each(|(to, from)| *to = *from);
    all
}

#[cfg(test)]
mod tests;
