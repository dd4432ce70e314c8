//! What happens in Level Zero and in the SYCL runtime, told to the tracer if there is one.

use crate::control;
use crate::shared::apis::Api;
use crate::shared::clock::now;
use crate::shared::tracer::{Call, Communication, Synchronization, Tracer, Work};
use sim_core::ffi::StaticPointer;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, Ordering};

static TRACER: StaticPointer<Tracer> = StaticPointer::null();
static CORRELATION: AtomicU32 = AtomicU32::new(0);

/// Makes `tracer` the one that is called.
pub(crate) fn set(tracer: *const Tracer) {
    // SAFETY: null, or a table that its owner keeps for good.
    unsafe { TRACER.set(tracer) };
    configured();
}

fn tracer() -> Option<&'static Tracer> {
    TRACER.get()
}

/// Runs what a function of an API does, and tells the tracer afterwards.
pub(crate) fn call<T>(api: &Api, correlation: u32, serve: impl FnOnce() -> T) -> T {
    let start = now();
    let served = serve();
    if let Some(tracer) = tracer() {
        let (group, id) = (api.group, api.id);
        (tracer.called)(&Call { group, id, correlation, result: 0, start, end: now() });
    }
    served
}

/// The id of the next call: counts from 1, and from 1 again after the number that an option gives.
pub(crate) fn next_correlation() -> u32 {
    let last = match control::options().repeat_correlation {
        0 => u32::MAX,
        last => last as u32,
    };
    let next = |id: u32| if id >= last { 1 } else { id + 1 };
    CORRELATION.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |id| Some(next(id))).map_or(1, next)
}

pub(crate) fn configured() {
    if let Some(tracer) = tracer() {
        (tracer.configured)(control::options());
    }
}

pub(crate) fn completed(work: &[Work]) {
    if let Some(tracer) = tracer().filter(|_| !work.is_empty()) {
        (tracer.completed)(work.as_ptr(), work.len());
    }
}

pub(crate) fn synchronized(synchronization: &Synchronization) {
    if let Some(tracer) = tracer() {
        (tracer.synchronized)(synchronization);
    }
}

pub(crate) fn communicated(communication: &Communication) {
    if let Some(tracer) = tracer() {
        (tracer.communicated)(communication);
    }
}

/// A count that the tracer keeps.
pub(crate) fn count(what: &CStr) -> Option<u64> {
    let count = (tracer()?.count)(what.as_ptr());
    (count != u64::MAX).then_some(count)
}
