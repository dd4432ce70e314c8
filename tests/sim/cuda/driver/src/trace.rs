//! Reports the driver's calls to the tracer.

use crate::control::{MACHINE, options};
use crate::error::{Outcome, code_of};
use crate::shared::calls::Call;
use crate::shared::clock::now;
use crate::shared::tracer::{ApiCall, Event, RUNTIME_API, Report};
use crate::{context, injection};
use std::cell::Cell;
use std::ffi::{c_char, c_void};

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
    if !MACHINE.is_traced() {
        return code_of(serve(Caller { correlation }));
    }
    let is_late = options().late_context && call.domain == RUNTIME_API;
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
    MACHINE.tell(Event::Entered(&mut entry));
    CALLED_BACK.set(outer);
    entry.result = code_of(serve(Caller { correlation }));
    CALLED_BACK.set(Some(correlation));
    MACHINE.tell(Event::Left(&mut entry));
    CALLED_BACK.set(outer);
    entry.result
}

/// Returns the id of the next call. A call inside a callback has the id of the call around it.
pub(crate) fn next_correlation() -> u32 {
    CALLED_BACK.get().unwrap_or_else(|| MACHINE.next_correlation(options().repeat_correlation) as u32)
}

pub(crate) fn report(report: Report) {
    MACHINE.tell(Event::Report(&report));
}

/// Reports the driver's overhead since `start`, by CUPTI's number of its kind.
pub(crate) fn overhead(kind: u32, correlation: u32, start: u64) {
    report(Report::Overhead { kind, correlation, start, end: now() });
}
