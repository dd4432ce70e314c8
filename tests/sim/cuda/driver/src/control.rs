//! How tests steer the simulator: options, counts, and an end for endless kernels.

use crate::shared::clock::now;
use crate::shared::counters::Counters;
use crate::shared::options::Options;
use crate::shared::tracer::{self, Tracer};
use crate::{engine, state, trace};
use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

static OPTIONS: AtomicPtr<Options> = AtomicPtr::new(std::ptr::null_mut());
static FROM_ENVIRONMENT: Once = Once::new();
static COUNTERS: Counters = Counters::new();

/// The options in force; at first those of the environment variable `SIM_CUDA`.
pub(crate) fn options() -> &'static Options {
    FROM_ENVIRONMENT.call_once(|| {
        let text = std::env::var("SIM_CUDA").unwrap_or_default();
        put(Options::parse(&text).unwrap_or_else(|reason| {
            eprintln!("sim-cuda: SIM_CUDA: {reason}; all options are at their defaults");
            Options::default()
        }));
    });
    // SAFETY: options are put there once for each configuration and never taken away.
    unsafe { &*OPTIONS.load(Ordering::Acquire) }
}

/// Sets the options for good: other threads may still read the ones before, which are few and stay.
fn put(options: Options) {
    let options = Box::leak(Box::new(Options { configured_at: now(), ..options }));
    OPTIONS.store(options, Ordering::Release);
}

pub(crate) fn counters() -> &'static Counters {
    &COUNTERS
}

/// The text of a C string; none for null or bytes that are no UTF-8.
fn text<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller hands in null or a C string.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

/// Sets all options: those that `settings` ("key=value,key=value") names, the others to their defaults.
///
/// Returns 0, or -1 after a line on stderr, with nothing changed.
#[unsafe(no_mangle)]
pub extern "C" fn simConfigure(settings: *const c_char) -> c_int {
    let parsed = text(settings).map_or(Ok(""), |text| text.to_str().map_err(|_| "not UTF-8".to_owned()));
    match parsed.and_then(Options::parse) {
        Ok(parsed) => {
            // The environment comes first even where nobody has asked for an option yet.
            options();
            put(parsed);
            trace::configured(options());
            0
        }
        Err(reason) => {
            eprintln!("sim-cuda: {reason}");
            -1
        }
    }
}

/// The count of that name (README.md lists them), or `u64::MAX` for an unknown one.
#[unsafe(no_mangle)]
pub extern "C" fn simCount(what: *const c_char) -> u64 {
    let Some(what) = text(what) else { return u64::MAX };
    let own = what.to_str().ok().and_then(|what| COUNTERS.get(what));
    own.or_else(|| trace::count(what)).unwrap_or(u64::MAX)
}

/// Sets the counts to zero and ends endless kernels.
#[unsafe(no_mangle)]
pub extern "C" fn simReset() {
    simFinish();
    COUNTERS.reset();
}

/// Ends the endless kernels that have been launched; what waits for them goes on.
#[unsafe(no_mangle)]
pub extern "C" fn simFinish() {
    let finished = engine::finish(&mut state::lock());
    for held in finished {
        trace::retimed(held.id, held.start, held.end, held.done_at);
    }
}

/// Lets `tracer` know of all that happens, until the next call; null for nobody.
#[unsafe(no_mangle)]
pub extern "C" fn simSetTracer(tracer: *const Tracer) -> *const Counters {
    // SAFETY: the caller hands in null or a table, which begins with its version.
    if !tracer.is_null() && unsafe { (*tracer).version } != tracer::VERSION {
        return std::ptr::null();
    }
    options();
    trace::set(tracer);
    &raw const COUNTERS
}

/// The text as a C string, without the zero bytes in it.
pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}
