//! Reports HIP's calls and work to the attached profilers.

use crate::error::{Error, Outcome};
use crate::shared::clock::thread;
use crate::shared::counters::count as add_one;
use crate::shared::tracer::{ApiCall, Argument, HipStarts, Symbol, Tracer, Work};
use crate::{control, module};
use sim_core::ids::CorrelationIds;
use sim_core::loader;
use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Once, OnceLock};

/// The attached tracers, in order.
static TRACERS: [OnceLock<&'static Tracer>; 2] = [const { OnceLock::new() }; 2];
static CORRELATION: CorrelationIds = CorrelationIds::new();
static STARTED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static LAST_ERROR: Cell<i32> = const { Cell::new(0) };
}

/// Attaches a tracer.
pub(crate) extern "C" fn add(tracer: *const Tracer) {
    // SAFETY: null, or a table that its owner never frees.
    let Some(tracer) = (unsafe { tracer.as_ref() }) else { return };
    let is_there = tracers().any(|known| std::ptr::eq(known, tracer));
    assert!(is_there || TRACERS.iter().any(|place| place.set(tracer).is_ok()), "there are two profilers at most");
}

fn tracers() -> impl Iterator<Item = &'static Tracer> {
    TRACERS.iter().filter_map(|place| place.get().copied())
}

pub(crate) extern "C" fn has_started() -> bool {
    STARTED.load(Ordering::Acquire)
}

/// Runs at HIP's first call; profilers must be attached by then.
fn start() {
    static START: Once = Once::new();
    START.call_once(|| {
        STARTED.store(true, Ordering::Release);
        let profiler = loader::open(c"librocprofiler-sdk.so.1", libc::RTLD_NOLOAD);
        let starts = loader::symbol(profiler, c"simHipStarts");
        if !starts.is_null() {
            // SAFETY: only the simulated profiler has a function of that name, and it has this type.
            let starts = unsafe { std::mem::transmute::<*mut c_void, HipStarts>(starts) };
            starts();
        }
        module::load_own();
    });
}

/// A call of the API, as its implementation sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) correlation: u64,
    pub(crate) thread: u64,
}

/// Runs the body of an API function, and calls the tracers before and after.
pub(crate) fn call(call: usize, arguments: &[Argument], serve: impl FnOnce(Caller) -> Outcome) -> i32 {
    start();
    add_one(&control::counters().calls);
    let correlation = CORRELATION.next(control::options().repeat_correlation);
    let mut entry = ApiCall {
        call,
        correlation,
        arguments: arguments.as_ptr(),
        count: arguments.len(),
        result: 0,
        data: [[0; 2]; 2],
    };
    tracers().for_each(|tracer| (tracer.enter)(&raw mut entry));
    entry.result = serve(Caller { correlation, thread: thread() }).map_or_else(|Error(code)| code, |()| 0);
    if entry.result != 0 {
        LAST_ERROR.set(entry.result);
    }
    tracers().for_each(|tracer| (tracer.exit)(&raw mut entry));
    entry.result
}

/// This thread's pending error.
pub(crate) fn take_last_error() -> Outcome {
    match LAST_ERROR.replace(0) {
        0 => Ok(()),
        code => Err(Error(code)),
    }
}

pub(crate) fn queued(work: &[Work]) {
    tracers().for_each(|tracer| (tracer.queued)(work.as_ptr(), work.len()));
}

pub(crate) fn retimed(id: u64, start: u64, end: u64, done_at: u64) {
    tracers().for_each(|tracer| (tracer.retimed)(id, start, end, done_at));
}

pub(crate) fn kernel_loaded(symbol: &Symbol) {
    tracers().for_each(|tracer| (tracer.kernel_loaded)(symbol));
}

pub(crate) fn kernels_unloaded(ids: &[u64]) {
    tracers().for_each(|tracer| (tracer.kernels_unloaded)(ids.as_ptr(), ids.len()));
}

/// A count that a tracer keeps.
pub(crate) fn count(what: &CStr) -> Option<u64> {
    tracers().map(|tracer| (tracer.count)(what.as_ptr())).find(|count| *count != u64::MAX)
}
