//! The recording of a library that writes into buffers.

use super::commands::ReaderCommands;
use super::kinds::PausableKinds;
use super::pool::Pool;
use crate::clock::{realtime_now, to_vendor_clock};
use crate::library::lease::ExclusiveLease;
use crate::{DeviceDescription, RecordSink, Recording};
use kineto_base::time::Timestamp;
use kineto_model::Loss;
use kineto_model::activity::CorrelationId;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::LocalKey;
use std::time::{Duration, Instant};

/// The functions of a library that a recording calls on the program's threads.
pub(crate) trait RecordingApi: fmt::Debug + Send + Sync + 'static {
    /// Pushes an external id on the calling thread; returns whether it was accepted.
    fn push_id(&self, id: u64) -> bool;

    /// Pops the id that was pushed last on the calling thread; returns `false` if there is none.
    fn pop_id(&self) -> bool;

    /// Notes that the calling thread enters an annotation, whose id was pushed.
    fn begin_annotation(&self, _id: u64) {}

    /// Notes that the calling thread leaves the annotation that it entered last.
    fn end_annotation(&self) {}

    /// Reads the clock of the records.
    fn timestamp(&self) -> Option<u64>;
}

/// The process-wide state of a vendor's library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LibraryState {
    /// The library's name in messages.
    pub(crate) name: &'static str,
    pub(crate) pool: &'static Pool,
    pub(crate) lease: &'static ExclusiveLease,
    /// The recording for which stale ids were removed on a thread.
    pub(crate) clean_for: &'static LocalKey<Cell<u32>>,
    /// Whether it reports the program's calls that open and close a range, such as `cudaProfilerStart`.
    pub(crate) sees_ranges: bool,
}

/// A recording, whose thread holds the lease of the library until it has ended.
pub(crate) struct BufferedRecording<A> {
    pub(crate) library: LibraryState,
    pub(crate) api: A,
    pub(crate) commands: Arc<ReaderCommands>,
    pub(crate) kinds: Arc<PausableKinds>,
    pub(crate) sink: RecordSink,
    pub(crate) devices: Box<dyn Fn() -> Vec<DeviceDescription> + Send + Sync>,
    /// Whether it was stopped: the library is not called any more.
    pub(crate) is_over: AtomicBool,
}

impl<A> fmt::Debug for BufferedRecording<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferedRecording").field("library", &self.library.name).finish_non_exhaustive()
    }
}

impl<A: RecordingApi> Recording for BufferedRecording<A> {
    fn push(&self, id: CorrelationId) -> bool {
        if self.is_over.load(Ordering::Relaxed) {
            return false;
        }
        self.library.lease.forget_stale_ids(self.library.clean_for, || self.api.pop_id());
        self.api.push_id(id.0)
    }

    fn pop(&self) {
        // The next recording removes what is left.
        if !self.is_over.load(Ordering::Relaxed) {
            self.api.pop_id();
        }
    }

    fn push_annotation(&self, id: CorrelationId) -> bool {
        let is_pushed = self.push(id);
        if is_pushed {
            self.api.begin_annotation(id.0);
        }
        is_pushed
    }

    fn pop_annotation(&self) {
        // Also after the end, when the thread still holds it.
        self.api.end_annotation();
        self.pop();
    }

    fn pause(&self) {
        self.kinds.pause(self.clock().unwrap_or_else(realtime_now));
        self.commands.request_poll();
    }

    fn resume(&self) {
        self.kinds.resume();
        self.commands.request_poll();
    }

    fn sees_ranges(&self) -> bool {
        self.library.sees_ranges
    }

    fn drain(&self, patience: Duration) {
        self.commands.drain(Duration::from_secs(1), patience);
    }

    fn clock(&self) -> Option<u64> {
        // A subscriber that may be gone is not called.
        if self.is_over.load(Ordering::Relaxed) { None } else { self.api.timestamp() }
    }

    fn stop(&self, end: Timestamp, deadline: Instant) {
        self.is_over.store(true, Ordering::Relaxed);
        let at = to_vendor_clock(end, self.api.timestamp());
        if !self.commands.stop_recording(self.library.name, &self.sink, at, deadline) {
            self.sink.lost(Loss::DeviceBuffersKept, self.library.pool.close().kept);
        }
    }

    fn devices(&self) -> Vec<DeviceDescription> {
        (self.devices)()
    }
}
