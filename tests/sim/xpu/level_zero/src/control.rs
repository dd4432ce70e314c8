//! Test controls of the simulator: options, counters, and ending endless kernels.

use crate::shared::counters::Counters;
use crate::shared::options::Options;
use crate::shared::tracer::{self, Tracer};
use crate::{engine, sysman, trace};
use sim_core::ffi::read_text;
use sim_core::options::OptionsStore;
use std::ffi::{c_char, c_int};

static OPTIONS: OptionsStore<Options> = OptionsStore::new("sim-xpu", "SIM_XPU", Options::parse);
static COUNTERS: Counters = Counters::new();

/// Returns the current options; at first those of the environment variable `SIM_XPU`.
pub(crate) fn options() -> &'static Options {
    OPTIONS.get()
}

pub(crate) fn counters() -> &'static Counters {
    &COUNTERS
}

/// Sets the options in `settings` ("key=value,key=value"), and all others to their defaults.
///
/// Returns 0; on invalid settings changes nothing, writes a line to stderr and returns -1.
#[unsafe(no_mangle)]
pub extern "C" fn simConfigure(settings: *const c_char) -> c_int {
    if !OPTIONS.configure(settings) {
        return -1;
    }
    trace::configured();
    0
}

/// Returns the counter of that name (README.md lists them), or `u64::MAX` for an unknown one.
#[unsafe(no_mangle)]
pub extern "C" fn simCount(what: *const c_char) -> u64 {
    let Some(what) = read_text(what) else { return u64::MAX };
    let own = what.to_str().ok().and_then(|what| COUNTERS.get(what));
    let of_sysman = || sysman::count(what.to_str().ok()?);
    own.or_else(|| trace::count(what)).or_else(of_sysman).unwrap_or(u64::MAX)
}

/// Resets the counters, and drops work that was not waited for.
#[unsafe(no_mangle)]
pub extern "C" fn simReset() {
    simFinish();
    engine::forget();
    COUNTERS.reset();
}

/// Ends the endless kernels of all queues and a hung flush; waiting work continues.
#[unsafe(no_mangle)]
pub extern "C" fn simFinish() {
    engine::finish();
    trace::configured();
}

/// Sets the tracer that is called from now on; null for none.
#[unsafe(no_mangle)]
pub extern "C" fn simSetTracer(tracer: *const Tracer) -> *const Counters {
    // SAFETY: the caller passes null or a table, which begins with its version.
    if !tracer.is_null() && unsafe { (*tracer).version } != tracer::VERSION {
        return std::ptr::null();
    }
    trace::set(tracer);
    &raw const COUNTERS
}
