//! The rows of a recording, with the launches and captures that determine them, as both backends have them.

use super::captures::Captures;
use super::hip::{CallEffect, Function};
use super::launches::{PendingLaunch, PendingLaunches};
use super::shapes::{self, MemoryCall, RocmShape};
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

    /// Notes the begin of a call that launches work, before its work can arrive. `is_awaited` is whether the end of the recording
    /// waits for work of this kind.
    pub(super) fn begin_call(&mut self, correlation: u64, thread: i64, launch: PendingLaunch, is_awaited: bool) {
        let is_awaited = is_awaited && !self.captures.is_capturing(thread, launch.stream);
        let runs_kernels = matches!(launch.does, CallEffect::Launch | CallEffect::LaunchGraph);
        // The host performs some of the others itself.
        let (is_owed, may_have_work) = (is_awaited && runs_kernels, is_awaited && !runs_kernels);
        self.launches.add(correlation, PendingLaunch { is_owed, may_have_work, ..launch });
    }

    /// Notes the return of a call on that stream, and adds its row.
    pub(super) fn end_call(&mut self, call: &HipCall<'_>, returned: Return, stream: Option<u64>, row: RowWords) {
        let HipCall { function, thread, correlation, start, .. } = *call;
        let (Return { end, failed, external }, (shape, words)) = (returned, row);
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

    /// Returns the number of the stream that work ran on.
    pub(super) fn stream_number(&mut self, device: i32, launch: Option<PendingLaunch>, queue: u64) -> u32 {
        self.streams.stream_number(device, launch.and_then(|launch| launch.stream), queue)
    }

    /// Adds a row of a device, if its type is recorded.
    pub(super) fn add_work(&mut self, work: &DeviceWork<'_>, batch: &mut Batch<'_>) {
        if self.types.contains(work.kind) && self.take_row(batch) {
            batch.work(work);
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

/// Returns the row of a call that allocates, fills or frees memory.
pub(super) fn memory_call_row(cid: u32, ptr: u64, bytes: Option<u64>) -> RowWords {
    (&shapes::MEMORY_CALL, pad_words(MemoryCall::new(cid, ptr, bytes).to_words()))
}

/// Pads words with zeros.
pub(super) fn pad_words<const N: usize>(words: [u64; N]) -> [u64; 5] {
    std::array::from_fn(|at| words.get(at).copied().unwrap_or(0))
}
