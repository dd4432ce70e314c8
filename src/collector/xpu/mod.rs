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
use super::{Capabilities, Collector, DeviceDescription, Options, RecordSink, Selection, Unavailable};
use crate::buffer::Loss;
use crate::os::fork;
use crate::time::Timestamp;
use hub::{HUB, Lease};
use kineto_trace::activity::{ActivityTypes, CorrelationId};
use start::Loaded;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
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
    running: fork::Own<Option<Running>>,
    /// Whether external ids are accepted.
    takes_ids: AtomicBool,
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

/// An active recording.
#[derive(Debug)]
struct Running {
    commands: Arc<ReaderCommands>,
    views: Arc<Views>,
    sink: RecordSink,
}

impl Xpu {
    /// Makes a collector that finds libpti_view by these options (`KINETO_PTI_PATH`, `ONEAPI_ROOT` …). Opens nothing yet.
    pub fn new(options: &Options) -> Xpu {
        Xpu {
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
    fn recording(&self) -> Option<(Arc<ReaderCommands>, Arc<Views>)> {
        self.running.lock().as_ref().map(|running| (running.commands.clone(), running.views.clone()))
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

    fn start(&self, selection: &Selection, sink: RecordSink) -> Result<Capabilities, Unavailable> {
        let loaded = self.load()?;
        let mut running = self.running.lock();
        let lease = if running.is_some() { None } else { Lease::take() };
        let lease = lease.ok_or_else(|| Unavailable::taken("libpti_view"))?;
        let (capabilities, commands, views) = loaded.start(selection, &sink, lease)?;
        *running = Some(Running { commands, views, sink });
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
        if let Some((commands, views)) = self.recording() {
            views.pause(self.clock().unwrap_or_else(now));
            commands.poll();
        }
    }

    fn resume(&self) {
        if let Some((commands, views)) = self.recording() {
            views.resume();
            commands.poll();
        }
    }

    fn drain(&self) {
        if let Some((commands, _)) = self.recording() {
            commands.drain(Duration::from_secs(1));
        }
    }

    fn stop(&self, _end: Timestamp, deadline: Instant) {
        let Some(running) = self.running.lock().take() else { return };
        self.takes_ids.store(false, Ordering::Release);
        let limits = EndLimits::new(Instant::now(), deadline);
        if !running.commands.end(limits.work, limits.library) {
            running.sink.note("libpti_view hung during the stop; the records in its buffers are lost");
            running.sink.lost(Loss::DeviceBuffersKept, HUB.pool.close().kept);
        }
    }

    fn attempts(&self) -> Vec<Attempt> {
        Xpu::attempts(self)
    }

    fn devices(&self) -> Vec<DeviceDescription> {
        self.loaded.get().map(|loaded| loaded.streams.devices()).unwrap_or_default()
    }

    fn clock(&self) -> Option<u64> {
        self.loaded.get()?.api.timestamp()
    }
}

impl Drop for Xpu {
    fn drop(&mut self) {
        self.stop(Timestamp::default(), Instant::now());
    }
}
