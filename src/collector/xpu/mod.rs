//! The collector of Intel's GPUs, through libpti_view (Intel's Profiling Tools Interfaces).
//!
//! The library is searched when it is first needed, and no function of it is called before the driver has answered:
//! it ends the process otherwise ([`start`], [`level_zero`]). PTI fills buffers of this crate
//! ([`pool`](super::pool)), which a thread ([`worker`]) reads ([`walk`](super::walk), [`records`]) into the recording
//! ([`reader`], [`shapes`]). Kernel metrics have their own API ([`scope`]).

mod callbacks;
mod error;
mod ffi;
mod hub;
mod level_zero;
mod names;
mod owed;
mod reader;
mod records;
mod scope;
mod scope_ffi;
mod search;
mod shapes;
mod start;
mod streams;
mod views;
mod worker;

use super::clock::now;
use super::lazy_library::LazyLibrary;
use super::library::Attempt;
use super::reader_commands::EndLimits;
use super::vendor::VendorFolder;
use super::{Capabilities, Collector, DeviceDescription, Options, RecordSink, Recording, Selection, Unavailable};
use crate::buffer::Loss;
use crate::time::Timestamp;
use ffi::Api;
use hub::{HUB, Lease};
use kineto_trace::activity::{ActivityTypes, CorrelationId};
use start::Loaded;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use streams::Streams;
use views::Views;
use worker::ReaderCommands;

/// Records Intel's GPUs: kernels, copies, fills, API calls of SYCL's runtime and of Level Zero, waits, collective
/// operations. On request, it also samples kernel metrics.
///
/// Works with libpti_view 0.12 to 1.2, and with newer versions as long as records only grow. A process may have
/// several of these collectors; only one records at a time, and the others report that it is
/// [busy](super::Why::Busy).
pub struct Xpu {
    loaded: LazyLibrary<Loaded>,
}

impl fmt::Debug for Xpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Xpu").finish_non_exhaustive()
    }
}

thread_local! {
    /// The recording for which stale ids were removed on this thread.
    static CLEAN_FOR: Cell<u32> = const { Cell::new(0) };
}

/// This vendor's row in the table of vendors.
pub(super) const VENDOR: VendorFolder = VendorFolder::new(|options| Arc::new(Xpu::new(options)));

/// A recording, which holds the lease of libpti_view until its thread has ended.
#[derive(Debug)]
struct XpuRecording {
    api: &'static Api,
    streams: Arc<Streams>,
    commands: Arc<ReaderCommands>,
    views: Arc<Views>,
    sink: RecordSink,
    /// Whether it was stopped: the library is not called any more.
    is_over: AtomicBool,
}

impl Xpu {
    /// Makes a collector that finds libpti_view by these options (`KINETO_PTI_PATH`, `ONEAPI_ROOT` …). Opens nothing yet.
    pub fn new(options: &Options) -> Xpu {
        Xpu { loaded: LazyLibrary::new(options.clone()) }
    }

    /// Returns the places of the last search for the libraries, with the outcomes.
    pub fn attempts(&self) -> Vec<Attempt> {
        self.loaded.attempts()
    }

    /// Finds the libraries, searching again until they are found.
    fn load(&self) -> Result<&Loaded, Unavailable> {
        if HUB.owner.is_inherited() {
            return Err(Unavailable::in_fork("used Intel's GPUs"));
        }
        self.loaded.find(|options, attempts| Loaded::find(options, attempts).inspect(|_| HUB.owner.claim()))
    }
}

impl Collector for Xpu {
    fn name(&self) -> &'static str {
        "xpu"
    }

    fn types(&self) -> ActivityTypes {
        start::types()
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
        let lease = Lease::take().ok_or_else(|| Unavailable::taken("libpti_view"))?;
        let (capabilities, commands, views) = loaded.start(selection, &sink, lease)?;
        let (api, streams) = (loaded.api, loaded.streams.clone());
        Ok((
            capabilities,
            Box::new(XpuRecording { api, streams, commands, views, sink, is_over: AtomicBool::new(false) }),
        ))
    }

    fn attempts(&self) -> Vec<Attempt> {
        Xpu::attempts(self)
    }

    fn devices(&self) -> Vec<DeviceDescription> {
        self.loaded.get().map(|loaded| loaded.streams.devices()).unwrap_or_default()
    }
}

impl Recording for XpuRecording {
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
        self.views.pause(self.clock().unwrap_or_else(now));
        self.commands.poll();
    }

    fn resume(&self) {
        self.views.resume();
        self.commands.poll();
    }

    fn drain(&self) {
        self.commands.drain(Duration::from_secs(1));
    }

    fn clock(&self) -> Option<u64> {
        self.api.timestamp()
    }

    fn stop(&self, _end: Timestamp, deadline: Instant) {
        self.is_over.store(true, Ordering::Relaxed);
        let limits = EndLimits::new(Instant::now(), deadline);
        if !self.commands.end(limits.work, limits.library) {
            self.sink.note("libpti_view hung during the stop; the records in its buffers are lost");
            self.sink.lost(Loss::DeviceBuffersKept, HUB.pool.close().kept);
        }
    }

    fn devices(&self) -> Vec<DeviceDescription> {
        self.streams.devices()
    }
}
