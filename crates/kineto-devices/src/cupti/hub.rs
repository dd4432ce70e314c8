//! Process-wide state of CUPTI's callbacks, which have no user data: the buffers and the current recording.

use super::callbacks::{BegunCall, UNLOADS};
use super::range::{OwnWaits, RangeMetrics};
use super::selected_fields::StatedLayouts;
use crate::CaptureRange;
use crate::buffered::commands::ReaderCommands;
use crate::buffered::pool::Pool;
use crate::library::lease::{ExclusiveLease, OwningProcess};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The hub of the process.
pub(super) static HUB: Hub = Hub::new(OwningProcess::new());

/// State that CUPTI's callbacks and the recording share.
#[derive(Debug)]
pub(super) struct Hub {
    pub(super) pool: Pool,
    pub(super) lease: ExclusiveLease,
    /// The process that recorded first: CUDA does not work in a forked child.
    pub(super) owner: OwningProcess,
    /// Whether the next call that returns detaches the library.
    detaches: AtomicBool,
    /// The range that `cudaProfilerStart` and `cudaProfilerStop` open and close.
    range: Mutex<Option<CaptureRange>>,
    /// The thread that reads records.
    commands: Mutex<Option<Arc<ReaderCommands>>>,
    /// Whether kernels or annotations are measured.
    measures_ranges: AtomicBool,
    range_metrics: Mutex<Option<RangeMetrics>>,
    pub(super) own_waits: OwnWaits,
    /// The numbers of the driver's functions that unload kernels.
    unload_functions: [AtomicU32; UNLOADS.len()],
    /// The layouts of the records in the buffers.
    pub(super) layouts: StatedLayouts,
}

/// The exclusive lease of libcupti, released on drop.
#[derive(Debug)]
pub(super) struct Lease(&'static Hub);

impl Drop for Lease {
    fn drop(&mut self) {
        // From here on marks have no effect.
        self.0.set_range(None);
        self.0.set_reader(None);
        self.0.lease.release();
    }
}

impl Hub {
    const fn new(owner: OwningProcess) -> Hub {
        Hub {
            pool: Pool::new(),
            lease: ExclusiveLease::new(),
            owner,
            detaches: AtomicBool::new(false),
            range: Mutex::new(None),
            commands: Mutex::new(None),
            measures_ranges: AtomicBool::new(false),
            range_metrics: Mutex::new(None),
            own_waits: OwnWaits::new(),
            unload_functions: [const { AtomicU32::new(0) }; UNLOADS.len()],
            layouts: StatedLayouts::new(),
        }
    }

    /// Acquires the lease; returns `None` if another recording holds it.
    pub(super) fn acquire_lease(&'static self) -> Option<Lease> {
        self.lease.try_acquire().then(|| Lease(self))
    }

    /// Sets the receiver of the program's marks.
    pub(super) fn set_range(&self, range: Option<CaptureRange>) {
        *self.range.lock().unwrap_or_else(PoisonError::into_inner) = range;
    }

    /// Sets the thread that reads the records.
    pub(super) fn set_reader(&self, commands: Option<Arc<ReaderCommands>>) {
        *self.commands.lock().unwrap_or_else(PoisonError::into_inner) = commands;
    }

    /// Sets the measuring of kernels or annotations.
    pub(super) fn set_range_metrics(&self, metrics: Option<RangeMetrics>) {
        self.measures_ranges.store(metrics.is_some(), Ordering::Release);
        *self.range_metrics.lock().unwrap_or_else(PoisonError::into_inner) = metrics;
    }

    /// Returns whether kernels or annotations are measured.
    pub(super) fn measures_ranges(&self) -> bool {
        self.measures_ranges.load(Ordering::Acquire)
    }

    /// Passes a call that begins to the measuring.
    pub(super) fn measure_begun_call(&self, call: &BegunCall) {
        if self.owner.is_inherited() {
            return;
        }
        if let Some(metrics) = self.range_metrics() {
            metrics.on_begun_call(call);
        }
    }

    /// Notes that the calling thread enters an annotation, which may be measured.
    pub(super) fn begin_annotation(&self, slice: u64) {
        if self.measures_ranges()
            && !self.owner.is_inherited()
            && let Some(metrics) = self.range_metrics()
        {
            metrics.begin_annotation(slice);
        }
    }

    /// Returns the measuring. It acts without the lock: launches of several threads may wait for each other.
    fn range_metrics(&self) -> Option<RangeMetrics> {
        self.range_metrics.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the driver functions that unload kernels.
    pub(super) fn set_unloads(&self, functions: &[u32]) {
        self.unload_functions
            .iter()
            .zip(functions)
            .for_each(|(place, function)| place.store(*function, Ordering::Relaxed));
    }

    /// Returns whether that driver function unloads kernels.
    pub(super) fn is_unload_function(&self, function: u32) -> bool {
        self.unload_functions.iter().any(|unload| unload.load(Ordering::Relaxed) == function)
    }

    /// Reads the complete records before a module is unloaded, and the names of its kernels with it.
    pub(super) fn before_unload(&self) {
        /// Far longer than it takes, but a hung library does not hold up the program.
        const PATIENCE: Duration = Duration::from_millis(100);
        if self.owner.is_inherited() {
            return;
        }
        let commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(commands) = commands {
            commands.drain_buffers(PATIENCE);
        }
    }

    /// Begins or ends a range.
    pub(super) fn mark_range(&self, begins: bool) {
        if self.owner.is_inherited() {
            return;
        }
        // Receivers act without the lock.
        let range = self.range.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match range {
            Some(range) if begins => range.begin(),
            Some(range) => range.end(),
            None => {}
        }
    }

    /// Asks the next call that returns to detach the library.
    pub(super) fn request_detach(&self) {
        self.detaches.store(true, Ordering::Release);
    }

    /// Returns whether the calling thread is to detach the library: true once, on one thread.
    pub(super) fn take_detach_request(&self) -> bool {
        self.detaches.swap(false, Ordering::AcqRel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_detaches_the_library() {
        let hub = Hub::new(OwningProcess::new());
        assert!(!hub.take_detach_request());
        hub.request_detach();
        assert!(hub.take_detach_request() && !hub.take_detach_request());
    }

    #[test]
    fn forked_child_takes_no_lock_for_the_programs_calls() {
        let hub = Hub::new(OwningProcess::another());
        // As by a thread of the parent that does not exist in the child.
        let locks = (hub.range.lock().unwrap(), hub.commands.lock().unwrap(), hub.range_metrics.lock().unwrap());
        hub.mark_range(true);
        hub.before_unload();
        hub.begin_annotation(1);
        drop(locks);
    }
}
