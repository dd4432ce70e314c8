//! The collector of NVIDIA's GPUs, through libcupti.
//!
//! The library is searched when it is first needed, and no function of it is called before the driver has answered:
//! some versions end the process otherwise. A running recording holds CUPTI's only subscription, which excludes other
//! profilers as theirs excludes it. CUPTI fills buffers of this crate ([`pool`](super::pool)), which a thread
//! ([`worker`]) reads ([`steps`], [`records`]) into the recording ([`reader`], [`shapes`]). [`start`] sets all of
//! this up.

mod advice;
mod callbacks;
mod error;
mod ffi;
mod holders;
mod hub;
mod kernel_driver;
mod kernels;
mod kinds;
mod ledger;
mod markers;
mod names;
mod nvtx;
mod reader;
mod records;
mod search;
mod shapes;
mod start;
mod steps;
mod subscription;
mod worker;

use super::clock::{now, to_vendor_clock};
use super::lazy_library::LazyLibrary;
use super::library::Attempt;
use super::reader_commands::EndLimits;
use super::vendor::VendorFolder;
use super::{
    Capabilities, Collector, CudaEvents, DeviceDescription, EventTimers, Options, RecordSink, Selection, Unavailable,
};
use crate::buffer::Loss;
use crate::os::fork;
use crate::time::Timestamp;
use hub::HUB;
use kinds::Kinds;
use kineto_trace::activity::{ActivityTypes, CorrelationId};
use start::Loaded;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use worker::{End, ReaderCommands};

/// Records CUDA: kernels, copies, fills, API calls of the runtime and the driver, waits and events. On request, it
/// also records NVTX ranges of libraries and device memory.
///
/// Works with libcupti 11.7 to 13.4, and with newer versions as long as records only grow. A process may have several
/// of these collectors; only one records at a time, and the others report that it is [busy](super::Why::Busy).
pub struct Cupti {
    loaded: LazyLibrary<Loaded>,
    running: fork::Own<Option<Running>>,
    /// Whether external ids are accepted.
    takes_ids: AtomicBool,
}

impl fmt::Debug for Cupti {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cupti").finish_non_exhaustive()
    }
}

thread_local! {
    /// The recording for which stale ids were removed on this thread.
    static CLEAN_FOR: Cell<u32> = const { Cell::new(0) };
}

/// This vendor's row in the table of vendors.
pub(super) const VENDOR: VendorFolder = VendorFolder {
    new_collector: |options| Arc::new(Cupti::new(options)),
    new_timers: Some(|| Arc::new(EventTimers::new(CudaEvents::new()))),
    warnings: advice::option_warning,
    examine: advice::examine,
};

/// An active recording.
#[derive(Debug)]
struct Running {
    commands: Arc<ReaderCommands>,
    kinds: Arc<Kinds>,
    sink: RecordSink,
    teardown: bool,
    /// No record arrived during the start.
    is_unproven: bool,
}

impl Cupti {
    /// Makes a collector that finds libcupti by these options (`KINETO_CUPTI_PATH`, `CUDA_HOME` …). Opens nothing yet.
    pub fn new(options: &Options) -> Cupti {
        Cupti {
            loaded: LazyLibrary::new(options.clone()),
            running: fork::Own::default(),
            takes_ids: AtomicBool::new(false),
        }
    }

    /// Returns the places of the last search for the libraries, with the outcomes.
    pub fn attempts(&self) -> Vec<Attempt> {
        self.loaded.attempts()
    }

    /// Returns the active recording.
    fn recording(&self) -> Option<(Arc<ReaderCommands>, Arc<Kinds>)> {
        self.running.lock().as_ref().map(|running| (running.commands.clone(), running.kinds.clone()))
    }

    /// Finds the libraries, searching again until they are found.
    fn load(&self) -> Result<&Loaded, Unavailable> {
        self.loaded.find(Loaded::find)
    }
}

impl Collector for Cupti {
    fn name(&self) -> &'static str {
        "cupti"
    }

    fn types(&self) -> ActivityTypes {
        start::types()
    }

    fn is_selected(&self, selection: &Selection) -> bool {
        let by_types = !self.types().intersection(selection.types).is_empty();
        by_types || selection.range.is_some() || selection.options.flag("NVTX_RANGES")
    }

    fn probe(&self) -> Result<Capabilities, Unavailable> {
        self.load().map(Loaded::capabilities)
    }

    fn start(&self, selection: &Selection, sink: RecordSink) -> Result<Capabilities, Unavailable> {
        let loaded = self.load()?;
        HUB.owner.claim();
        if HUB.owner.is_inherited() {
            return Err(Unavailable::in_fork("recorded CUDA"));
        }
        let mut running = self.running.lock();
        let lease = if running.is_some() { None } else { HUB.lease() };
        let lease = lease.ok_or_else(|| Unavailable::taken("libcupti"))?;
        HUB.set_range(selection.range.clone());
        let (capabilities, commands, kinds) = loaded.start(selection, &sink, lease)?;
        let (teardown, is_unproven) = (selection.options.flag("TEARDOWN_CUPTI"), capabilities.proven == Some(false));
        *running = Some(Running { commands, kinds, sink, teardown, is_unproven });
        self.takes_ids.store(true, Ordering::Release);
        Ok(capabilities)
    }

    fn push(&self, id: CorrelationId) -> bool {
        if !self.takes_ids.load(Ordering::Acquire) {
            return false;
        }
        let Some(loaded) = self.loaded.get() else { return false };
        HUB.lease.forget_stale_ids(&CLEAN_FOR, || loaded.api.pop());
        loaded.api.push(id.0)
    }

    fn pop(&self) {
        if self.takes_ids.load(Ordering::Acquire)
            && let Some(loaded) = self.loaded.get()
        {
            loaded.api.pop();
        }
    }

    fn pause(&self) {
        if let Some((commands, kinds)) = self.recording() {
            kinds.pause(self.clock().unwrap_or_else(now));
            commands.poll();
        }
    }

    fn resume(&self) {
        if let Some((_, kinds)) = self.recording() {
            kinds.resume();
        }
    }

    fn sees_ranges(&self) -> bool {
        true
    }

    fn drain(&self) {
        if let Some((commands, _)) = self.recording() {
            commands.drain(Duration::from_secs(1));
        }
    }

    fn stop(&self, end: Timestamp, deadline: Instant) {
        let Some(running) = self.running.lock().take() else { return };
        let Some(loaded) = self.loaded.get() else { return };
        self.takes_ids.store(false, Ordering::Release);
        let limits = EndLimits::new(Instant::now(), deadline);
        let at = to_vendor_clock(end, loaded.api.timestamp());
        let Running { teardown, is_unproven, .. } = running;
        let end = End { at, deadline: limits.work, teardown, is_unproven };
        if !running.commands.end(end, limits.library) {
            running.sink.note("libcupti hung during the stop; the records in its buffers are lost");
            running.sink.lost(Loss::DeviceBuffersKept, HUB.pool.close().kept);
        }
    }

    fn attempts(&self) -> Vec<Attempt> {
        Cupti::attempts(self)
    }

    fn devices(&self) -> Vec<DeviceDescription> {
        self.loaded.get().map(|loaded| loaded.driver.devices().to_vec()).unwrap_or_default()
    }

    fn clock(&self) -> Option<u64> {
        self.loaded.get()?.api.timestamp()
    }
}

impl Drop for Cupti {
    fn drop(&mut self) {
        self.stop(Timestamp::default(), Instant::now());
    }
}
