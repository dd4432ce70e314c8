//! A profiler's link to HIP: finds it, and reads its options and counters.

use super::counters::{Counters, count};
use super::options::Options;
use super::tracer::{Hip, VERSION};
use sim_core::ffi::StaticPointer;
use sim_core::loader;
use sim_core::options::OptionsStore;
use std::ffi::c_void;
use std::time::Duration;

static HIP: StaticPointer<Hip> = StaticPointer::null();
/// Counters and options without HIP.
static NO_COUNTERS: Counters = Counters::new();
static NO_OPTIONS: OptionsStore<Options> = OptionsStore::new("sim-rocm", "SIM_ROCM", Options::parse);

/// HIP, if it is loaded.
pub(crate) fn hip() -> Option<&'static Hip> {
    if HIP.get().is_none() {
        // SAFETY: it is null or HIP's table, which stays; libraries are not closed.
        unsafe { HIP.set(find()) };
    }
    HIP.get()
}

fn find() -> *const Hip {
    let address = loader::symbol(loader::open(c"libamdhip64.so.6", libc::RTLD_NOLOAD), c"simHip");
    if address.is_null() {
        return std::ptr::null();
    }
    // SAFETY: only the simulated HIP has a function of that name, and it has this type.
    let table = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> *const Hip>(address) }();
    // SAFETY: a table begins with its version.
    if unsafe { (*table).version } == VERSION { table } else { std::ptr::null() }
}

/// Returns the current options: HIP's, or without it those of the environment.
pub(crate) fn options() -> &'static Options {
    // SAFETY: HIP's options stay where they are.
    hip().map_or_else(|| NO_OPTIONS.get(), |hip| unsafe { &*(hip.options)() })
}

/// HIP's counters.
pub(crate) fn counters() -> &'static Counters {
    // SAFETY: HIP's counters stay.
    hip().map_or(&NO_COUNTERS, |hip| unsafe { &*hip.counters })
}

/// Counts a flush, and delays it as the options say.
pub(crate) fn delay_flush() {
    let options = options();
    count(&counters().flushes);
    if options.hanging_flush {
        wait_for_finish();
    }
    sim_core::clock::sleep(Duration::from_millis(options.slow_flush));
}

/// Calls the client, by option on a new thread for each buffer.
pub(crate) fn call_client(call: impl FnOnce() + Send + 'static) {
    if options().foreign_thread {
        // A panic of the client ends the process: the thread has no error.
        let _ = std::thread::spawn(call).join();
    } else {
        call();
    }
}

/// Waits until a test ends endless work.
fn wait_for_finish() {
    let Some(hip) = hip() else { return };
    let before = (hip.finishes)();
    while (hip.finishes)() == before {
        sim_core::clock::sleep(Duration::from_millis(1));
    }
}
