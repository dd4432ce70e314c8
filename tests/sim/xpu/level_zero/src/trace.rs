//! What happens in Level Zero and in the SYCL runtime, told to the tracer if there is one.

use crate::control;
use crate::shared::apis::Api;
use crate::shared::clock::now;
use crate::shared::tracer::{Call, Communication, Synchronization, Tracer, Work};
use sim_core::ffi::StaticPointer;
use sim_core::ids::CorrelationIds;
use std::ffi::CStr;

static TRACER: StaticPointer<Tracer> = StaticPointer::null();
static CORRELATION: CorrelationIds = CorrelationIds::new();

/// Sets the tracer.
pub(crate) fn set(tracer: *const Tracer) {
    // SAFETY: null, or a table that its owner never frees.
    unsafe { TRACER.set(tracer) };
    configured();
}

fn tracer() -> Option<&'static Tracer> {
    TRACER.get()
}

/// Runs the body of an API function, and then calls the tracer.
pub(crate) fn call<T>(api: &Api, correlation: u32, serve: impl FnOnce() -> T) -> T {
    let start = now();
    let served = serve();
    if let Some(tracer) = tracer() {
        let (group, id) = (api.group, api.id);
        (tracer.called)(&Call { group, id, correlation, result: 0, start, end: now() });
    }
    served
}

/// Returns the id of the next call: counts from 1, and restarts after the number that an option sets.
pub(crate) fn next_correlation() -> u32 {
    CORRELATION.next(control::options().repeat_correlation) as u32
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

/// Returns a counter that the tracer keeps.
pub(crate) fn count(what: &CStr) -> Option<u64> {
    let count = (tracer()?.count)(what.as_ptr());
    (count != u64::MAX).then_some(count)
}
