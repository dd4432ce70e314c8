//! Converts calls and records into records of the recording.

use super::agents::{Agent, Agents};
use super::arguments::Arguments;
use super::names::Operations;
use super::records::{Copy, Dispatch, Kind, Record};
use crate::records::demangle::demangle;
use crate::rocm::hip::{self, CallEffect, Direction};
use crate::rocm::launches::PendingLaunch;
use crate::rocm::rows::{HipCall, Return, RocmRows, RowWords, memory_call_row, pad_words};
use crate::rocm::shapes::{self, CopyCall, LaunchCall, Sizes};
use crate::rocm::streams;
use crate::{Batch, DeviceWork, Name, RecordSink, Selection};
use kineto_model::Loss;
use kineto_model::activity::ActivityType;
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

/// The state of a recording.
pub(super) struct Reader {
    rows: RocmRows,
    known: Arc<ProcessNames>,
    kernel_symbol: KernelNames,
    /// Arguments of calls in progress, by correlation id.
    pending: HashMap<u64, Arguments>,
    kernels: HashMap<u64, KernelState>,
    /// Later launches are not waited for.
    until: u64,
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
        f.debug_struct("Reader").field("types", &self.rows.types).finish_non_exhaustive()
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
            rows: RocmRows::new(sink, selection.types, super::super::max_rows(&selection.options)),
            known,
            kernel_symbol,
            pending: HashMap::new(),
            kernels: HashMap::new(),
            until: u64::MAX,
        }
    }

    pub(super) fn sink(&self) -> &RecordSink {
        &self.rows.sink
    }

    /// Stops to wait for later launches.
    pub(super) fn ignore_launches_after(&mut self, end: u64) {
        self.until = end;
    }

    /// Returns how many launches lack work that will certainly arrive, and that may arrive.
    pub(super) fn pending_counts(&self) -> [usize; 2] {
        self.rows.pending_counts()
    }

    /// Counts lost records.
    pub(super) fn count_lost(&mut self, cause: Loss, count: u64) {
        self.rows.note_missing(count);
        self.rows.sink.lost(cause, count);
    }

    /// Notes the begin of a call that launches work, before its work can arrive.
    pub(super) fn begin_call(&mut self, call: &HipCall<'_>, arguments: Arguments) {
        let does = call.function.does;
        let runs_graph = does == CallEffect::LaunchGraph;
        let launch = PendingLaunch {
            stream: call_stream(call, &arguments),
            bytes: arguments.byte_count(&call.function.name).unwrap_or(0),
            graph: if runs_graph { self.rows.launches.graph_number(arguments.graph) } else { 0 },
            ..PendingLaunch::new(does)
        };
        self.rows.begin_call(call.correlation, call.thread, launch, call.start <= self.until);
        if self.pending.len() >= MAX_CALLS {
            self.pending.clear();
        }
        self.pending.insert(call.correlation, arguments);
    }

    /// Notes the return of a call. Some arguments are available only then.
    pub(super) fn end_call(&mut self, call: &HipCall<'_>, returned: Return, arguments: Option<Arguments>) {
        let arguments = self.pending.remove(&call.correlation).or(arguments).unwrap_or_default();
        self.rows.end_call(call, returned, call_stream(call, &arguments), call_row(call, &arguments));
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
        let sink = self.rows.sink.clone();
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
                return self.rows.add_work(&DeviceWork { words: &fill.to_words(), ..work }, batch);
            }
            let (queue, kind, graph) = (kernel.queue(), batch.name("Dispatch Kernel"), place.graph_number());
            let sizes = Sizes::new(kernel.grid_in_blocks(), kernel.block());
            let words = &shapes::kernel_words(shapes::Kernel { queue, kind, graph }, sizes);
            self.rows.add_work(&DeviceWork { words, ..work }, batch);
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
        let sink = self.rows.sink.clone();
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
            self.rows.add_work(&work, batch);
        });
    }

    /// Returns the stream and launch of work.
    fn resolve_place(&mut self, device: i32, queue: u64, correlation: u64) -> Place {
        let launch = self.rows.launches.take_work(correlation);
        Place { stream: self.rows.stream_number(device, launch, queue), launch }
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

/// Returns the layout and words of a call's row.
fn call_row(call: &HipCall<'_>, arguments: &Arguments) -> RowWords {
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
            (&shapes::COPY_CALL, pad_words(copy.to_words()))
        }
        CallEffect::Fill => memory_call_row(cid, arguments.dst, bytes),
        CallEffect::Allocate | CallEffect::Release => memory_call_row(cid, arguments.ptr, bytes),
        CallEffect::LaunchGraph | CallEffect::Other => (&shapes::CALL, pad_words(shapes::call_words(cid))),
    }
}

#[cfg(test)]
mod tests;
