//! Converts calls and records into records of the recording.

use super::agents::{Agent, Agents};
use super::arguments::Arguments;
use super::names::{Function, Operations};
use super::records::{Copy, Dispatch, Kind, Record};
use crate::records::demangle::demangle;
use crate::rocm::captures::Captures;
use crate::rocm::hip::{self, CallEffect, Direction};
use crate::rocm::launches::{PendingLaunch, PendingLaunches};
use crate::rocm::shapes::{self, CopyCall, LaunchCall, MemoryCall, RocmShape, Sizes};
use crate::rocm::streams::{self, Streams};
use crate::{ApiCall, Batch, DeviceWork, External, Name, RecordSink, Selection, Thread};
use kineto_base::sorted::SortedMap;
use kineto_model::Loss;
use kineto_model::activity::{ActivityType, ActivityTypes};
use std::collections::HashMap;
use std::sync::Arc;

/// Returns a kernel's mangled name, by its number.
pub(super) type KernelNames = Box<dyn Fn(u64) -> Option<Arc<str>> + Send>;

/// The library's names and agents.
#[derive(Debug, Default)]
pub(super) struct ProcessNames {
    pub(super) operations: Operations,
    pub(super) agents: Agents,
}

/// A HIP call.
#[derive(Clone, Copy, Debug)]
pub(super) struct HipCall<'k> {
    pub(super) function: &'k Function,
    /// The function's number.
    pub(super) number: u32,
    /// The kernel's id of the calling thread.
    pub(super) thread: i64,
    pub(super) correlation: u64,
    /// When it began, on the clock of the records.
    pub(super) start: u64,
}

/// The end of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Return {
    /// When it returned.
    pub(super) end: u64,
    pub(super) failed: bool,
    /// The slice around it, 0 if none.
    pub(super) external: u64,
    /// Its arguments, if they were available only at the return.
    pub(super) arguments: Option<Arguments>,
}

/// The state of a recording.
pub(super) struct Reader {
    sink: RecordSink,
    types: ActivityTypes,
    known: Arc<ProcessNames>,
    kernel_symbol: KernelNames,
    streams: Streams,
    launches: PendingLaunches,
    /// Arguments of calls in progress, by correlation id.
    pending: HashMap<u64, Arguments>,
    kernels: HashMap<u64, KernelState>,
    functions: SortedMap<u32, Name>,
    captures: Captures,
    /// Later launches are not waited for.
    until: u64,
    /// How many more rows are kept.
    left: u64,
    /// Records are known to be missing, so launches cannot be waited for one by one.
    is_missing_records: bool,
}

/// A kernel of this recording.
#[derive(Clone, Copy, Debug)]
struct KernelState {
    name: Name,
    /// Whether the runtime uses it to fill memory.
    fills: bool,
}

/// The most calls in progress; more can only be calls whose return was not reported.
const MAX_CALLS: usize = 4096;

/// The name of a kernel whose name is unknown.
const UNKNOWN: &str = "unknown kernel";

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("types", &self.types).finish_non_exhaustive()
    }
}

/// The stream that work ran on, and its launch.
#[derive(Clone, Copy, Debug)]
struct Place {
    stream: u32,
    launch: Option<PendingLaunch>,
}

impl Place {
    fn graph_number(&self) -> u32 {
        self.launch.map_or(0, |launch| launch.graph)
    }
}

impl Reader {
    pub(super) fn new(
        sink: RecordSink,
        selection: &Selection,
        known: Arc<ProcessNames>,
        kernel_symbol: KernelNames,
    ) -> Reader {
        Reader {
            sink,
            types: selection.types,
            known,
            kernel_symbol,
            streams: Streams::default(),
            launches: PendingLaunches::default(),
            pending: HashMap::new(),
            kernels: HashMap::new(),
            functions: SortedMap::new(),
            captures: Captures::default(),
            until: u64::MAX,
            left: super::super::max_rows(&selection.options),
            is_missing_records: false,
        }
    }

    pub(super) fn sink(&self) -> &RecordSink {
        &self.sink
    }

    /// Stops to wait for later launches.
    pub(super) fn ignore_launches_after(&mut self, end: u64) {
        self.until = end;
    }

    /// Returns how many launches lack work that will certainly arrive, and that may arrive.
    pub(super) fn pending_counts(&self) -> [usize; 2] {
        match [self.launches.pending_count(), self.launches.maybe_pending_count()] {
            [owed, hoped] if self.is_missing_records => [0, owed + hoped],
            owed => owed,
        }
    }

    /// Counts lost records.
    pub(super) fn count_lost(&mut self, cause: Loss, count: u64) {
        self.is_missing_records |= count > 0;
        self.sink.lost(cause, count);
    }

    /// Notes the begin of a call that launches work, before its work can arrive.
    pub(super) fn begin_call(&mut self, call: &HipCall<'_>, arguments: Arguments) {
        let does = call.function.does;
        let runs_kernels = matches!(does, CallEffect::Launch | CallEffect::LaunchGraph);
        let stream = call_stream(call, &arguments);
        let reaches_device = call.start <= self.until && !self.captures.is_capturing(call.thread, stream);
        let graph = if does == CallEffect::LaunchGraph { self.launches.graph_number(arguments.graph) } else { 0 };
        let launch = PendingLaunch {
            stream,
            bytes: arguments.byte_count(&call.function.name).unwrap_or(0),
            graph,
            is_owed: reaches_device && runs_kernels,
            // The host performs some of them.
            may_have_work: reaches_device && !runs_kernels,
            ..PendingLaunch::new(does)
        };
        self.launches.add(call.correlation, launch);
        if self.pending.len() >= MAX_CALLS {
            self.pending.clear();
        }
        self.pending.insert(call.correlation, arguments);
    }

    /// Notes the return of a call.
    pub(super) fn end_call(&mut self, call: &HipCall<'_>, returned: &Return) {
        let does = call.function.does;
        let arguments = self.pending.remove(&call.correlation).or(returned.arguments).unwrap_or_default();
        let stream = call_stream(call, &arguments);
        // Ending an invalidated capture fails, and still ends the capture.
        if let Some(begins) = call.function.captures
            && !(begins && returned.failed)
        {
            self.captures.note_capture(begins, call.thread, stream);
        }
        if returned.failed {
            self.launches.forget(call.correlation);
        }
        let launches = does.has_device_work() && !returned.failed && !self.captures.is_capturing(call.thread, stream);
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
            let name = self.function_name(call, batch);
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
    pub(super) fn add_record(&mut self, header: Kind, bytes: &[u8]) {
        match Record::from_bytes(header, bytes) {
            Some(Record::Dispatch(kernel)) if is_timed(kernel.start(), kernel.end()) => self.add_kernel(&kernel),
            Some(Record::Copy(copy)) if is_timed(copy.start(), copy.end()) => self.add_copy(&copy),
            Some(Record::Other) => {}
            _ => self.count_lost(Loss::DeviceRecordsUnread, 1),
        }
    }

    fn add_kernel(&mut self, kernel: &Dispatch<'_>) {
        let device = self.known.agents.device_number(kernel.agent()).unwrap_or(-1);
        let place = self.resolve_place(device, kernel.queue(), kernel.correlation());
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
            // Other kernels of a call that fills memory do not exist.
            if fills || place.launch.is_some_and(|launch| launch.does == CallEffect::Fill) {
                let bytes = place.launch.map_or(0, |launch| launch.bytes);
                let fill = shapes::Copy {
                    queue: kernel.queue(),
                    kind: batch.name("Memset"),
                    bytes,
                    graph: place.graph_number(),
                };
                (work.kind, work.name, work.shape) = (ActivityType::GpuMemset, batch.name(hip::FILL), &shapes::COPY);
                return self.add_work(&DeviceWork { words: &fill.to_words(), ..work }, batch);
            }
            let (queue, kind, graph) = (kernel.queue(), batch.name("Dispatch Kernel"), place.graph_number());
            let sizes = Sizes::new(kernel.grid_in_blocks(), kernel.block());
            let words = &shapes::kernel_words(shapes::Kernel { queue, kind, graph }, sizes);
            self.add_work(&DeviceWork { words, ..work }, batch);
        });
    }

    fn add_copy(&mut self, copy: &Copy<'_>) {
        let agents = &self.known.agents;
        // The device performs it, whichever end it is at.
        let device = agents.device_number(copy.target()).or_else(|| agents.device_number(copy.source())).unwrap_or(-1);
        let ends = [agents.get(copy.source()), agents.get(copy.target())];
        let direction =
            self.known.operations.copy_direction(copy.operation()).unwrap_or_else(|| direction_between(ends));
        let place = self.resolve_place(device, 0, copy.correlation());
        let sink = self.sink.clone();
        sink.record(|batch| {
            let (kind, bytes) = (batch.name(direction.short_name()), copy.bytes_copied());
            let copied = shapes::Copy { queue: 0, kind, bytes, graph: place.graph_number() };
            let work = DeviceWork {
                kind: ActivityType::GpuMemcpy,
                name: batch.name(direction.row_name()),
                device,
                stream: place.stream,
                start: copy.start(),
                end: copy.end(),
                correlation: copy.correlation(),
                shape: &shapes::COPY,
                words: &copied.to_words(),
            };
            self.add_work(&work, batch);
        });
    }

    fn add_work(&mut self, work: &DeviceWork<'_>, batch: &mut Batch<'_>) {
        if !self.types.contains(work.kind) {
            return;
        }
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                batch.work(work);
            }
            None => batch.count_lost(Loss::DeviceRecordsOverLimit, 1),
        }
    }

    /// Returns the stream and launch of work.
    fn resolve_place(&mut self, device: i32, queue: u64, correlation: u64) -> Place {
        let launch = self.launches.take_work(correlation);
        let stream = self.streams.stream_number(device, launch.and_then(|launch| launch.stream), queue);
        Place { stream, launch }
    }

    fn kernel_name(&mut self, kernel: u64, batch: &mut Batch<'_>) -> KernelState {
        if let Some(known) = self.kernels.get(&kernel) {
            return *known;
        }
        let Some(symbol) = (self.kernel_symbol)(kernel) else {
            // The name may still arrive.
            return KernelState { name: batch.name(UNKNOWN), fills: false };
        };
        let new = KernelState { name: batch.name(&demangle(&symbol)), fills: hip::is_fill_kernel(&symbol) };
        self.kernels.insert(kernel, new);
        new
    }

    fn function_name(&mut self, call: &HipCall<'_>, batch: &mut Batch<'_>) -> Name {
        *self.functions.get_or_insert_with(call.number, || batch.name(&call.function.name))
    }
}

/// Returns the stream of a call. A copy without a stream argument uses the default stream; the stream of some
/// launches is unknown.
fn call_stream(call: &HipCall<'_>, arguments: &Arguments) -> Option<u64> {
    let is_of_thread = call.function.name.ends_with("_spt");
    let handle = match arguments.stream {
        None if !matches!(call.function.does, CallEffect::Copy | CallEffect::Fill) => return None,
        None | Some(0) if is_of_thread => streams::PER_THREAD,
        named => named.unwrap_or(0),
    };
    Some(streams::of_handle(handle, call.thread))
}

/// Returns whether these are valid times of work.
fn is_timed(start: u64, end: u64) -> bool {
    start != 0 && end >= start
}

/// Returns the direction of a copy between these agents: source, target.
fn direction_between(ends: [Option<Agent>; 2]) -> Direction {
    match ends {
        [Some(Agent::Host), Some(Agent::Host)] => Direction::HostToHost,
        [Some(Agent::Host), Some(Agent::Gpu(_))] => Direction::HostToDevice,
        [Some(Agent::Gpu(_)), Some(Agent::Host)] => Direction::DeviceToHost,
        [Some(Agent::Gpu(_)), Some(Agent::Gpu(_))] => Direction::DeviceToDevice,
        _ => Direction::Unknown,
    }
}

/// Returns the layout and words of a call's row, padded to the longest layout.
fn call_words(call: &HipCall<'_>, arguments: &Arguments) -> (&'static RocmShape, [u64; 5]) {
    let (cid, name) = (call.number, &*call.function.name);
    let bytes = arguments.byte_count(name);
    match call.function.does {
        CallEffect::Launch => {
            let (grid, block, shared) = (arguments.grid_in_blocks(), arguments.block, arguments.shared);
            let launch = LaunchCall { cid, kernel: None, shared };
            (&shapes::LAUNCH_CALL, shapes::launch_words(launch, Sizes::new(grid, block)))
        }
        CallEffect::Copy => {
            let (src, dst, kind) = (arguments.src, arguments.dst, arguments.copy_direction(name));
            let copy = CopyCall { cid, src, dst, bytes: bytes.unwrap_or(0), kind };
            (&shapes::COPY_CALL, pad_words(&copy.to_words()))
        }
        CallEffect::Fill => (&shapes::MEMORY_CALL, pad_words(&MemoryCall::new(cid, arguments.dst, bytes).to_words())),
        CallEffect::Allocate | CallEffect::Release => {
            (&shapes::MEMORY_CALL, pad_words(&MemoryCall::new(cid, arguments.ptr, bytes).to_words()))
        }
        CallEffect::LaunchGraph | CallEffect::Other => (&shapes::CALL, pad_words(&shapes::call_words(cid))),
    }
}

/// Pads words with zeros, which are not stored.
fn pad_words(words: &[u64]) -> [u64; 5] {
    let mut all = [0; 5];
    all.iter_mut().zip(words).for_each(|(to, from)| *to = *from);
    all
}

#[cfg(test)]
mod tests;
