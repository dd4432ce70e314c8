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
use super::cuda::Driver;
use super::lazy_library::LazyLibrary;
use super::library::Attempt;
use super::reader_commands::EndLimits;
use super::vendor::VendorFolder;
use super::{
    Capabilities, Collector, CudaEvents, DeviceDescription, EventTimers, Options, RecordSink, Recording, Selection,
    Unavailable,
};
use crate::buffer::Loss;
use crate::time::Timestamp;
use ffi::Api;
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

/// A recording, which holds the lease of libcupti until its thread has ended.
#[derive(Debug)]
struct CuptiRecording {
    driver: &'static Driver,
    api: &'static Api,
    commands: Arc<ReaderCommands>,
    kinds: Arc<Kinds>,
    sink: RecordSink,
    /// Whether it was stopped: the library is not called any more.
    is_over: AtomicBool,
    /// Whether to detach the library at the end.
    teardown: bool,
    /// No record arrived during the start.
    is_unproven: bool,
}

impl Cupti {
    /// Makes a collector that finds libcupti by these options (`KINETO_CUPTI_PATH`, `CUDA_HOME` …). Opens nothing yet.
    pub fn new(options: &Options) -> Cupti {
        Cupti { loaded: LazyLibrary::new(options.clone()) }
    }

    /// Returns the places of the last search for the libraries, with the outcomes.
    pub fn attempts(&self) -> Vec<Attempt> {
        self.loaded.attempts()
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

    fn start(
        &self,
        selection: &Selection,
        sink: RecordSink,
    ) -> Result<(Capabilities, Box<dyn Recording>), Unavailable> {
        let loaded = self.load()?;
        HUB.owner.claim();
        if HUB.owner.is_inherited() {
            return Err(Unavailable::in_fork("recorded CUDA"));
        }
        let lease = HUB.lease().ok_or_else(|| Unavailable::taken("libcupti"))?;
        HUB.set_range(selection.range.clone());
        let (capabilities, commands, kinds) = loaded.start(selection, &sink, lease)?;
        let (teardown, is_unproven) = (selection.options.flag("TEARDOWN_CUPTI"), capabilities.proven == Some(false));
        let Loaded { driver, api, .. } = *loaded;
        let recording = CuptiRecording {
            driver,
            api,
            commands,
            kinds,
            sink,
            is_over: AtomicBool::new(false),
            teardown,
            is_unproven,
        };
        Ok((capabilities, Box::new(recording)))
    }

    fn attempts(&self) -> Vec<Attempt> {
        Cupti::attempts(self)
    }

    fn devices(&self) -> Vec<DeviceDescription> {
        self.loaded.get().map(|loaded| loaded.driver.devices().to_vec()).unwrap_or_default()
    }
}

impl Recording for CuptiRecording {
    fn push(&self, id: CorrelationId) -> bool {
        if self.is_over.load(Ordering::Relaxed) {
            return false;
        }
        HUB.lease.forget_stale_ids(&CLEAN_FOR, || self.api.pop());
        self.api.push(id.0)
    }

    fn pop(&self) {
        // The next recording removes what is left.
        if !self.is_over.load(Ordering::Relaxed) {
            self.api.pop();
        }
    }

    fn pause(&self) {
        self.kinds.pause(self.clock().unwrap_or_else(now));
        self.commands.poll();
    }

    fn resume(&self) {
        self.kinds.resume();
    }

    fn sees_ranges(&self) -> bool {
        true
    }

    fn drain(&self) {
        self.commands.drain(Duration::from_secs(1));
    }

    fn clock(&self) -> Option<u64> {
        self.api.timestamp()
    }

    fn stop(&self, end: Timestamp, deadline: Instant) {
        self.is_over.store(true, Ordering::Relaxed);
        let limits = EndLimits::new(Instant::now(), deadline);
        let at = to_vendor_clock(end, self.api.timestamp());
        let end = End { at, deadline: limits.work, teardown: self.teardown, is_unproven: self.is_unproven };
        if !self.commands.end(end, limits.library) {
            self.sink.note("libcupti hung during the stop; the records in its buffers are lost");
            self.sink.lost(Loss::DeviceBuffersKept, HUB.pool.close().kept);
        }
    }

    fn devices(&self) -> Vec<DeviceDescription> {
        self.driver.devices().to_vec()
    }
}
