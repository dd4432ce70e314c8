//! Intel's GPUs, through libpti_view (Intel's Profiling Tools Interfaces).
//!
//! The library is found when it is asked for, and nothing in it is called before the driver has answered: it ends the
//! process otherwise ([`start`], [`level_zero`]). PTI writes into buffers of ours ([`pool`](super::pool)), which a thread
//! ([`worker`]) reads ([`walk`](super::walk), [`records`]) into the recording ([`reader`], [`shapes`]). Metrics of kernels are asked
//! for beside that ([`scope`]).

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
use super::library::{Attempt, Places};
use super::{Capabilities, Collector, Device, RecordSink, Selection, Unavailable, Why};
use crate::activity::{ActivityTypes, CorrelationId};
use crate::os::fork;
use crate::time::Timestamp;
use ffi::Api;
use hub::HUB;
use start::Loaded;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use views::Views;
use worker::Orders;

/// Records Intel's GPUs: kernels, copies, fills, calls of SYCL's runtime and of Level Zero, waits, collective
/// operations; where that is asked for, metrics of kernels.
///
/// Works with libpti_view 0.12 to 1.2 and, as far as records only grow, newer ones. There may be any number of these in
/// a process; one of them records at a time, and others are told that it is [busy](Why::Busy).
#[derive(Debug)]
pub struct Xpu {
    places: Places,
    loaded: OnceLock<Loaded>,
    attempts: fork::Own<Vec<Attempt>>,
    running: fork::Own<Option<Running>>,
    /// Whether ids are taken.
    takes_ids: AtomicBool,
}

/// A recording under way.
#[derive(Debug)]
struct Running {
    orders: Arc<Orders>,
    views: Arc<Views>,
    sink: RecordSink,
}

impl Xpu {
    /// Makes a collector that looks for libpti_view in these places too. Does nothing yet.
    pub fn new(places: Places) -> Xpu {
        Xpu {
            places,
            loaded: OnceLock::new(),
            attempts: fork::Own::default(),
            running: fork::Own::default(),
            takes_ids: AtomicBool::new(false),
        }
    }

    /// Returns what was looked for, and what came of it, the last time that the libraries were looked for.
    pub fn attempts(&self) -> Vec<Attempt> {
        self.attempts.lock().clone()
    }

    /// The recording under way.
    fn recording(&self) -> Option<(Arc<Orders>, Arc<Views>)> {
        self.running.lock().as_ref().map(|running| (running.orders.clone(), running.views.clone()))
    }

    /// Finds the libraries. Until they are found, each time anew.
    fn load(&self) -> Result<&Loaded, Unavailable> {
        if HUB.is_inherited() {
            let message = "this process was forked from one that used Intel's GPUs, which does not work in a fork";
            return Err(Unavailable::new(Why::Unsupported, message, "fork before the first recording, or exec"));
        }
        // One thread looks at a time, but not within the cell: a fork meanwhile would leave that half filled for ever.
        let mut attempts = self.attempts.lock();
        if let Some(loaded) = self.loaded.get() {
            return Ok(loaded);
        }
        attempts.clear();
        let loaded = Loaded::find(&self.places, &mut attempts)?;
        HUB.settle();
        Ok(self.loaded.get_or_init(|| loaded))
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
        if running.is_some() || !HUB.take() {
            let message = "another recording of this process has libpti_view, or has not let go of it yet";
            return Err(Unavailable::new(Why::Busy, message, "stop that one first"));
        }
        let (capabilities, orders, views) = loaded.start(selection, &sink).inspect_err(|_| HUB.release())?;
        *running = Some(Running { orders, views, sink });
        self.takes_ids.store(true, Ordering::Release);
        Ok(capabilities)
    }

    fn push(&self, id: CorrelationId) -> bool {
        if !self.takes_ids.load(Ordering::Acquire) {
            return false;
        }
        let Some(loaded) = self.loaded.get() else { return false };
        forget_stale_ids(loaded.api);
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
        if let Some((orders, views)) = self.recording() {
            views.pause(self.clock().unwrap_or_else(now));
            orders.nudge();
        }
    }

    fn resume(&self) {
        if let Some((orders, views)) = self.recording() {
            views.resume();
            orders.nudge();
        }
    }

    fn drain(&self) {
        if let Some((orders, _)) = self.recording() {
            orders.drain(Duration::from_secs(1));
        }
    }

    fn stop(&self, _end: Timestamp, deadline: Instant) {
        /// Beyond the deadline: for what has to be done whatever the time.
        const GRACE: Duration = Duration::from_secs(2);
        let Some(running) = self.running.lock().take() else { return };
        self.takes_ids.store(false, Ordering::Release);
        let patience = deadline.saturating_duration_since(Instant::now()) + GRACE;
        if !running.orders.end(deadline, patience) {
            running.sink.note("libpti_view does not return from a call: what it had is missing");
        }
    }

    fn attempts(&self) -> Vec<Attempt> {
        Xpu::attempts(self)
    }

    fn devices(&self) -> Vec<Device> {
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

/// Takes away what an earlier recording has left on the calling thread: it ended while the thread was inside a slice.
fn forget_stale_ids(api: &Api) {
    thread_local! { static CLEAN_FOR: Cell<u32> = const { Cell::new(0) }; }
    let recording = HUB.recording();
    let is_clean = CLEAN_FOR.try_with(|clean_for| clean_for.replace(recording) == recording);
    if !is_clean.unwrap_or(true) {
        // No thread is inside more slices; a library that never ends is wrong.
        const DEEPEST: usize = 1 << 16;
        let _ = (0..DEEPEST).take_while(|_| api.pop()).count();
    }
}
