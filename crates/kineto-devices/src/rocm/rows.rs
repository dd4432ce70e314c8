//! The rows of a recording, with the launches and captures that determine them, as both backends have them.

use super::arguments::Arguments;
use super::captures::Captures;
use super::hip::{self, CallEffect, Direction, Function};
use super::launches::{PendingLaunch, PendingLaunches};
use super::shapes::{self, RocmShape, Sizes};
use super::streams::Streams;
use crate::{ApiCall, Batch, DeviceWork, External, Name, RecordSink, Thread};
use kineto_base::sorted::SortedMap;
use kineto_model::Loss;
use kineto_model::activity::{ActivityType, ActivityTypes};

/// The rows of a recording.
#[derive(Debug)]
pub(super) struct RocmRows {
    pub(super) sink: RecordSink,
    pub(super) types: ActivityTypes,
    pub(super) launches: PendingLaunches,
    streams: Streams,
    captures: Captures,
    functions: SortedMap<u32, Name>,
    /// How many more rows are kept.
    pub(super) left: u64,
    /// Records are known to be missing, so launches cannot be waited for one by one.
    is_missing_records: bool,
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
}

/// Work that a device has done.
#[derive(Clone, Copy, Debug)]
pub(super) struct DoneWork {
    pub(super) device: i32,
    /// The hardware's queue, 0 if not known.
    pub(super) queue: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) correlation: u64,
    pub(super) launch: Option<PendingLaunch>,
}

/// A kernel of a recording.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowKernel {
    pub(super) name: Name,
    /// Whether the runtime uses it to fill memory.
    pub(super) fills: bool,
}

/// The name of a kernel whose name is unknown.
pub(super) const UNKNOWN: &str = "unknown kernel";

/// The layout and words of a row, padded to the longest layout with zeros, which are not stored.
pub(super) type RowWords = (&'static RocmShape, [u64; 5]);

impl RocmRows {
    pub(super) fn new(sink: RecordSink, types: ActivityTypes, most: u64) -> RocmRows {
        RocmRows {
            sink,
            types,
            launches: PendingLaunches::default(),
            streams: Streams::default(),
            captures: Captures::default(),
            functions: SortedMap::new(),
            left: most,
            is_missing_records: false,
        }
    }

    /// Returns how many launches lack work that will certainly arrive, and that may arrive.
    pub(super) fn pending_counts(&self) -> [usize; 2] {
        let [owed, hoped] = [self.launches.pending_count(), self.launches.maybe_pending_count()];
        // The missing records may have been that work.
        if self.is_missing_records { [0, owed + hoped] } else { [owed, hoped] }
    }

    /// Notes that records are missing.
    pub(super) fn note_missing(&mut self, records: u64) {
        self.is_missing_records |= records > 0;
    }

    /// Returns the launch by a thread's call, from its arguments if they are known.
    pub(super) fn launch_of(&mut self, function: &Function, thread: i64, known: Option<&Arguments>) -> PendingLaunch {
        let launch = PendingLaunch::new(function.does);
        let Some(arguments) = known else { return launch };
        let runs_graph = function.does == CallEffect::LaunchGraph;
        PendingLaunch {
            stream: arguments.stream_of(function, thread),
            bytes: arguments.byte_count(&function.name).unwrap_or(0),
            graph: if runs_graph { self.launches.graph_number(arguments.graph) } else { 0 },
            grid: arguments.grid_in_blocks(),
            block: arguments.block,
            ..launch
        }
    }

    /// Notes the begin of a call that launches work, before its work can arrive. `is_awaited` is whether the end of the recording
    /// waits for work of this kind.
    pub(super) fn begin_call(&mut self, correlation: u64, thread: i64, launch: PendingLaunch, is_awaited: bool) {
        let is_awaited = is_awaited && !self.captures.is_capturing(thread, launch.stream);
        let runs_kernels = matches!(launch.does, CallEffect::Launch | CallEffect::LaunchGraph);
        // The host performs some of the others itself.
        let (is_owed, may_have_work) = (is_awaited && runs_kernels, is_awaited && !runs_kernels);
        self.launches.add(correlation, PendingLaunch { is_owed, may_have_work, ..launch });
    }

    /// Notes the return of a call, and adds its row.
    pub(super) fn end_call(&mut self, call: &HipCall<'_>, returned: Return, known: Option<&Arguments>) {
        let HipCall { function, thread, correlation, start, .. } = *call;
        let Return { end, failed, external } = returned;
        let stream = known.and_then(|arguments| arguments.stream_of(function, thread));
        let kernel = self.launches.get(correlation).and_then(|launch| launch.kernel);
        // Ending an invalidated capture fails, and still ends the capture.
        if let Some(begins) = function.captures
            && !(begins && failed)
        {
            self.captures.note_capture(begins, thread, stream);
        }
        if failed {
            self.launches.forget(correlation);
        }
        let launches = function.does.has_device_work() && !failed && !self.captures.is_capturing(thread, stream);
        let sink = self.sink.clone();
        sink.record(|batch| {
            if !self.types.contains(ActivityType::CudaRuntime) {
                if launches && external != 0 {
                    batch.external(External { correlation, id: external });
                }
            } else if self.take_row(batch) {
                let name = *self.functions.get_or_insert_with(call.number, || batch.name(&function.name));
                let row = known.map(|arguments| arguments.row(function, call.number, kernel));
                let (shape, words) = row.unwrap_or_else(|| plain_row(call.number));
                batch.call(&ApiCall {
                    kind: ActivityType::CudaRuntime,
                    name,
                    thread: Thread::Id(thread),
                    start,
                    end,
                    correlation,
                    external,
                    launches,
                    shape,
                    words: &words,
                });
            }
        });
    }

    /// Adds a kernel that a device has run, if the type of its row is recorded.
    pub(super) fn add_kernel(
        &mut self,
        done: &DoneWork,
        RowKernel { name, fills }: RowKernel,
        kind: &str,
        sizes: Sizes,
        batch: &mut Batch<'_>,
    ) {
        // Other kernels of a call that fills memory do not exist.
        if fills || done.launch.is_some_and(|launch| launch.does == CallEffect::Fill) {
            return self.add_fill(done, done.launched_bytes(), batch);
        }
        let kernel = shapes::Kernel { queue: done.queue, kind: batch.name(kind), graph: done.graph_number() };
        let row = (&shapes::KERNEL, shapes::kernel_words(kernel, sizes));
        self.add_work(ActivityType::ConcurrentKernel, name, done, row, batch);
    }

    /// Adds memory that a device has filled, if fills are recorded.
    pub(super) fn add_fill(&mut self, done: &DoneWork, bytes: u64, batch: &mut Batch<'_>) {
        let (name, row) = (batch.name(hip::FILL), done.copy_row("Memset", bytes, batch));
        self.add_work(ActivityType::GpuMemset, name, done, row, batch);
    }

    /// Adds memory that a device has copied, if copies are recorded.
    pub(super) fn add_copy(&mut self, done: &DoneWork, direction: Direction, bytes: u64, batch: &mut Batch<'_>) {
        let (name, row) = (batch.name(direction.row_name()), done.copy_row(direction.short_name(), bytes, batch));
        self.add_work(ActivityType::GpuMemcpy, name, done, row, batch);
    }

    fn add_work(&mut self, kind: ActivityType, name: Name, done: &DoneWork, row: RowWords, batch: &mut Batch<'_>) {
        let DoneWork { device, queue, start, end, correlation, launch } = *done;
        let stream = self.streams.stream_number(device, launch.and_then(|launch| launch.stream), queue);
        if self.types.contains(kind) && self.take_row(batch) {
            let (shape, words) = row;
            batch.work(&DeviceWork { kind, name, device, stream, start, end, correlation, shape, words: &words });
        }
    }

    fn take_row(&mut self, batch: &mut Batch<'_>) -> bool {
        let left = self.left.checked_sub(1);
        self.left = left.unwrap_or(0);
        if left.is_none() {
            batch.count_lost(Loss::DeviceRecordsOverLimit, 1);
        }
        left.is_some()
    }
}

impl DoneWork {
    fn graph_number(&self) -> u32 {
        self.launch.map_or(0, |launch| launch.graph)
    }

    /// Returns how many bytes its launch copies or fills, 0 if not known.
    pub(super) fn launched_bytes(&self) -> u64 {
        self.launch.map_or(0, |launch| launch.bytes)
    }

    fn copy_row(&self, kind: &str, bytes: u64, batch: &mut Batch<'_>) -> RowWords {
        let (queue, kind, graph) = (self.queue, batch.name(kind), self.graph_number());
        (&shapes::COPY, pad_words(shapes::Copy { queue, kind, bytes, graph }.to_words()))
    }
}

/// Returns the row of a call whose arguments are not shown.
pub(super) fn plain_row(cid: u32) -> RowWords {
    (&shapes::CALL, pad_words(shapes::call_words(cid)))
}

/// Pads words with zeros.
pub(super) fn pad_words<const N: usize>(words: [u64; N]) -> [u64; 5] {
    std::array::from_fn(|at| words.get(at).copied().unwrap_or(0))
}
