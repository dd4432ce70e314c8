//! How tests steer the simulator: options, counts, and an end for what is endless.

use crate::shared::counters::Counters;
use crate::shared::options::Options;
use crate::shared::tracer::{Hip, VERSION};
use crate::{engine, module, state, trace};
use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

static OPTIONS: AtomicPtr<Options> = AtomicPtr::new(std::ptr::null_mut());
static FROM_ENVIRONMENT: Once = Once::new();
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

/// What profilers find HIP by.
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

/// The options in force; at first those of the environment variable `SIM_ROCM`.
pub(crate) fn options() -> &'static Options {
    FROM_ENVIRONMENT.call_once(|| {
        let text = std::env::var("SIM_ROCM").unwrap_or_default();
        put(Options::parse(&text).unwrap_or_else(|reason| {
            eprintln!("sim-rocm: SIM_ROCM: {reason}; all options are at their defaults");
            Options::default()
        }));
    });
    // SAFETY: options are put there once for each configuration and never taken away.
    unsafe { &*OPTIONS.load(Ordering::Acquire) }
}

/// Sets the options for good: other threads may still read the ones before, which are few and stay.
fn put(options: Options) {
    OPTIONS.store(Box::leak(Box::new(options)), Ordering::Release);
}

pub(crate) fn counters() -> &'static Counters {
    &COUNTERS
}

/// The text of a C string; none for null.
pub(crate) fn text<'a>(text: *const c_char) -> Option<&'a CStr> {
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
            0
        }
        Err(reason) => {
            eprintln!("sim-rocm: {reason}");
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

/// Sets the counts to zero and ends what is endless.
#[unsafe(no_mangle)]
pub extern "C" fn simReset() {
    simFinish();
    COUNTERS.reset();
}

/// Ends the endless kernels that have been launched and the flushes that hang; what waits for them goes on.
#[unsafe(no_mangle)]
pub extern "C" fn simFinish() {
    FINISHES.fetch_add(1, Ordering::Release);
    let finished = engine::finish(&mut state::lock());
    for held in finished {
        trace::retimed(held.id, held.start, held.end, held.done_at);
    }
}

/// The text as a C string, without the zero bytes in it.
pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}
