//! Reports the driver's calls and work to the tracer.

use crate::error::{Error, Outcome};
use crate::shared::calls::Call;
use crate::shared::clock::now;
use crate::shared::options::Options;
use crate::shared::tracer::{ApiCall, EventRecord, Memory, RUNTIME_API, Synchronization, Tracer, Work};
use crate::{context, control, injection};
use sim_core::ffi::StaticPointer;
use sim_core::ids::CorrelationIds;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};

static TRACER: StaticPointer<Tracer> = StaticPointer::null();
static CORRELATION: CorrelationIds = CorrelationIds::new();

/// Sets the tracer.
pub(crate) fn set(tracer: *const Tracer) {
    // SAFETY: null, or a table that its owner never frees.
    unsafe { TRACER.set(tracer) };
    configured(control::options());
}

thread_local! {
    /// The parameters of the call that the thread makes next.
    static PARAMS: Cell<*const c_void> = const { Cell::new(std::ptr::null()) };
    /// The correlation id of the call whose callback the thread is in.
    static CALLED_BACK: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Sets the parameters of the call that the calling thread makes next. They must outlive it.
pub(crate) fn set_params<P>(params: &P) {
    PARAMS.with(|next| next.set((&raw const *params).cast()));
}

fn tracer() -> Option<&'static Tracer> {
    TRACER.get()
}

/// A call of the API, as its implementation sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) correlation: u32,
}

/// Runs the body of an API function, and calls the tracer before and after.
pub(crate) fn call(call: &Call, serve: impl FnOnce(Caller) -> Outcome) -> i32 {
    nested(call, std::ptr::null(), next_correlation(), serve)
}

/// As [`call`], for the launch of the kernel `symbol`.
pub(crate) fn launch(call: &Call, symbol: *const c_char, serve: impl FnOnce(Caller) -> Outcome) -> i32 {
    nested(call, symbol, next_correlation(), serve)
}

/// As [`call`], with the correlation id of the call around it.
pub(crate) fn nested(
    call: &Call,
    symbol: *const c_char,
    correlation: u32,
    serve: impl FnOnce(Caller) -> Outcome,
) -> i32 {
    injection::check(call);
    let params = PARAMS.with(|params| params.replace(std::ptr::null()));
    let Some(tracer) = tracer() else { return code(serve(Caller { correlation })) };
    let is_late = control::options().late_context && call.domain == RUNTIME_API;
    let (context, context_id) = if is_late { (0, 0) } else { context::current_for_trace() };
    let mut entry = ApiCall {
        domain: call.domain,
        cbid: call.cbid,
        name: call.name.as_ptr(),
        symbol,
        params,
        correlation,
        result: 0,
        context,
        context_id,
        start: 0,
        data: 0,
    };
    let outer = CALLED_BACK.replace(Some(correlation));
    (tracer.api_enter)(&raw mut entry);
    CALLED_BACK.set(outer);
    entry.result = code(serve(Caller { correlation }));
    CALLED_BACK.set(Some(correlation));
    (tracer.api_exit)(&raw mut entry);
    CALLED_BACK.set(outer);
    entry.result
}

fn code(outcome: Outcome) -> i32 {
    outcome.map_or_else(|Error(code)| code, |()| 0)
}

/// Returns the id of the next call: counts from 1, and restarts after the number that an option sets. A call inside a
/// callback has the id of the call around it.
pub(crate) fn next_correlation() -> u32 {
    if let Some(outer) = CALLED_BACK.get() {
        return outer;
    }
    CORRELATION.next(control::options().repeat_correlation) as u32
}

pub(crate) fn configured(options: &Options) {
    if let Some(tracer) = tracer() {
        (tracer.configured)(options);
    }
}

pub(crate) fn queued(work: &[Work]) {
    if let Some(tracer) = tracer() {
        (tracer.queued)(work.as_ptr(), work.len());
    }
}

pub(crate) fn retimed(id: u64, start: u64, end: u64, done_at: u64) {
    if let Some(tracer) = tracer() {
        (tracer.retimed)(id, start, end, done_at);
    }
}

pub(crate) fn synchronized(synchronization: &Synchronization) {
    if let Some(tracer) = tracer() {
        (tracer.synchronized)(synchronization);
    }
}

pub(crate) fn event_recorded(record: &EventRecord) {
    if let Some(tracer) = tracer() {
        (tracer.event_recorded)(record);
    }
}

pub(crate) fn memory_changed(memory: &Memory) {
    if let Some(tracer) = tracer() {
        (tracer.memory_changed)(memory);
    }
}

/// Reports the driver's overhead since `start`, by CUPTI's number of its kind.
pub(crate) fn overhead(kind: u32, correlation: u32, start: u64) {
    if let Some(tracer) = tracer() {
        (tracer.overhead)(kind, correlation, start, now());
    }
}

/// Returns a counter that the tracer keeps.
pub(crate) fn count(what: &CStr) -> Option<u64> {
    let count = (tracer()?.count)(what.as_ptr());
    (count != u64::MAX).then_some(count)
}
