//! Reports HIP's calls to the attached profilers.

use crate::control::MACHINE;
use crate::error::{Error, Outcome, code_of};
use crate::module;
use crate::shared::clock::thread;
use crate::shared::counters::count;
use crate::shared::tracer::{ApiCall, Argument, Event, HipStarts};
use sim_core::loader;
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Once;
use std::sync::atomic::Ordering;

thread_local! {
    static LAST_ERROR: Cell<i32> = const { Cell::new(0) };
}

/// Runs at HIP's first call; profilers must be attached by then.
fn start() {
    static START: Once = Once::new();
    START.call_once(|| {
        MACHINE.has_started.store(true, Ordering::Release);
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
    count(&MACHINE.counters.calls);
    let correlation = MACHINE.next_correlation(MACHINE.options.get().repeat_correlation);
    let mut entry = ApiCall {
        call,
        correlation,
        arguments: arguments.as_ptr(),
        count: arguments.len(),
        result: 0,
        data: [[0; 2]; 2],
    };
    MACHINE.tell(Event::Entered(&mut entry));
    entry.result = code_of(serve(Caller { correlation, thread: thread() }));
    if entry.result != 0 {
        LAST_ERROR.set(entry.result);
    }
    MACHINE.tell(Event::Left(&mut entry));
    entry.result
}

/// This thread's pending error.
pub(crate) fn take_last_error() -> Outcome {
    Error::unless(LAST_ERROR.replace(0))
}
