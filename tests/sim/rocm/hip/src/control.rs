//! Test controls of the simulator: options, counters, and ending endless work.

use crate::shared::clock::now;
use crate::shared::counters::Counters;
use crate::shared::options::Options;
use crate::shared::tracer::{Hip, VERSION};
use crate::{engine, module, state, trace};
use sim_core::engine::FinishedWork;
use sim_core::ffi::read_text;
use sim_core::options::OptionsStore;
use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicU64, Ordering};

static OPTIONS: OptionsStore<Options> = OptionsStore::new("sim-rocm", "SIM_ROCM", Options::parse);
static COUNTERS: Counters = Counters::new();
static FINISHES: AtomicU64 = AtomicU64::new(0);

static HIP: Hip = Hip {
    version: VERSION,
    counters: &raw const COUNTERS,
    options: current,
    has_started: trace::has_started,
    finishes,
    add_tracer: trace::add,
    kernel_name: module::name_of,
};

/// The entry point by which profilers find HIP.
#[unsafe(no_mangle)]
pub extern "C" fn simHip() -> *const Hip {
    &raw const HIP
}

extern "C" fn current() -> *const Options {
    &raw const *options()
}

extern "C" fn finishes() -> u64 {
    FINISHES.load(Ordering::Acquire)
}

/// Returns the current options; at first those of the environment variable `SIM_ROCM`.
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
    if OPTIONS.configure(settings) { 0 } else { -1 }
}

/// Returns the counter of that name (README.md lists them), or `u64::MAX` for an unknown one.
#[unsafe(no_mangle)]
pub extern "C" fn simCount(what: *const c_char) -> u64 {
    let Some(what) = read_text(what) else { return u64::MAX };
    let own = what.to_str().ok().and_then(|what| COUNTERS.get(what));
    own.or_else(|| trace::count(what)).unwrap_or(u64::MAX)
}

/// Resets the counters and ends endless work.
#[unsafe(no_mangle)]
pub extern "C" fn simReset() {
    simFinish();
    COUNTERS.reset();
}

/// Ends the endless kernels that have been launched and hung flushes; waiting work continues.
#[unsafe(no_mangle)]
pub extern "C" fn simFinish() {
    FINISHES.fetch_add(1, Ordering::Release);
    let finished = state::lock().engine.finish(now());
    let stamp = |at| engine::stamp(options(), at);
    for FinishedWork { id, start, end } in finished {
        trace::retimed(id, stamp(start), stamp(end), end);
    }
}
