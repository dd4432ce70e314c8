//! How tests steer the simulator: options, counts, and an end for endless kernels.

use crate::shared::counters::Counters;
use crate::shared::options::Options;
use crate::shared::tracer::{self, Tracer};
use crate::{engine, trace};
use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// The options in force, with their text.
struct Settings {
    text: CString,
    options: Arc<Options>,
}

static SETTINGS: LazyLock<Mutex<Settings>> = LazyLock::new(|| {
    let text = std::env::var("SIM_XPU").unwrap_or_default();
    let options = Options::parse(&text).unwrap_or_else(|reason| {
        eprintln!("sim-xpu: SIM_XPU: {reason}; all options are at their defaults");
        Options::default()
    });
    Mutex::new(Settings { text: CString::new(text).unwrap_or_default(), options: Arc::new(options) })
});
static COUNTERS: Counters = Counters::new();

/// The options in force; at first those of the environment variable `SIM_XPU`.
pub(crate) fn options() -> Arc<Options> {
    Arc::clone(&SETTINGS.lock().unwrap_or_else(PoisonError::into_inner).options)
}

/// Their text.
pub(crate) fn text() -> CString {
    SETTINGS.lock().unwrap_or_else(PoisonError::into_inner).text.clone()
}

pub(crate) fn counters() -> &'static Counters {
    &COUNTERS
}

/// The text of a C string; none for null.
pub(crate) fn string<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller hands in null or a C string.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

/// Sets all options: those that `settings` ("key=value,key=value") names, the others to their defaults.
///
/// Returns 0, or -1 after a line on stderr, with nothing changed.
#[unsafe(no_mangle)]
pub extern "C" fn simConfigure(settings: *const c_char) -> c_int {
    let text = string(settings).unwrap_or(c"");
    match text.to_str().map_err(|_| "not UTF-8".to_owned()).and_then(Options::parse) {
        Ok(options) => {
            let new = Settings { text: text.to_owned(), options: Arc::new(options) };
            *SETTINGS.lock().unwrap_or_else(PoisonError::into_inner) = new;
            trace::configured();
            0
        }
        Err(reason) => {
            eprintln!("sim-xpu: {reason}");
            -1
        }
    }
}

/// The count of that name (README.md lists them), or `u64::MAX` for an unknown one.
#[unsafe(no_mangle)]
pub extern "C" fn simCount(what: *const c_char) -> u64 {
    let Some(what) = string(what) else { return u64::MAX };
    let own = what.to_str().ok().and_then(|what| COUNTERS.get(what));
    own.or_else(|| trace::count(what)).unwrap_or(u64::MAX)
}

/// Sets the counts to zero, and forgets the work that nobody has waited for.
#[unsafe(no_mangle)]
pub extern "C" fn simReset() {
    simFinish();
    engine::forget();
    COUNTERS.reset();
}

/// Ends the endless kernels that have been given to a queue, and a flush that hangs; what waits for them goes on.
#[unsafe(no_mangle)]
pub extern "C" fn simFinish() {
    engine::finish();
    trace::configured();
}

/// Lets `tracer` know of all that happens, until the next call; null for nobody.
#[unsafe(no_mangle)]
pub extern "C" fn simSetTracer(tracer: *const Tracer) -> *const Counters {
    // SAFETY: the caller hands in null or a table, which begins with its version.
    if !tracer.is_null() && unsafe { (*tracer).version } != tracer::VERSION {
        return std::ptr::null();
    }
    trace::set(tracer);
    &raw const COUNTERS
}
