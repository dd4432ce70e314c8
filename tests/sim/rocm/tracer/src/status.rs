//! Status codes, versions, the clock, and the global switch.

use crate::shared::clock::now;
use crate::shared::counters::count;
use crate::shared::link;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

/// A `roctracer_status_t` other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(i32);

impl Status {
    pub(crate) const INVALID_DOMAIN_ID: Status = Status(-2);
    pub(crate) const INVALID_ARGUMENT: Status = Status(-3);
    pub(crate) const DEFAULT_POOL_UNDEFINED: Status = Status(-4);
    pub(crate) const DEFAULT_POOL_ALREADY_DEFINED: Status = Status(-5);
    pub(crate) const MISMATCHED_EXTERNAL_CORRELATION_ID: Status = Status(-7);

    /// A status that an option asks for.
    pub(crate) fn of(code: i32) -> Status {
        Status(code)
    }
}

thread_local! {
    /// The status of the thread's last call that failed.
    static LAST: Cell<i32> = const { Cell::new(0) };
}

static STOPPED: AtomicBool = AtomicBool::new(false);

/// Whether nothing is traced.
pub(crate) fn is_stopped() -> bool {
    STOPPED.load(Ordering::Acquire)
}

/// The result of a function.
pub(crate) fn answer(outcome: Result<(), Status>) -> i32 {
    outcome.map_or_else(
        |Status(code)| {
            LAST.set(code);
            code
        },
        |()| 0,
    )
}

/// The text of the thread's last failure.
#[unsafe(no_mangle)]
pub extern "C" fn roctracer_error_string() -> *const c_char {
    let text: &'static CStr = match LAST.get() {
        0 => c"",
        -2 => c"Invalid domain ID",
        -3 => c"Invalid argument",
        -4 => c"Default pool is undefined",
        -5 => c"Default pool already defined",
        -7 => c"External correlation id mismatch",
        _ => c"Error",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn roctracer_version_major() -> u32 {
    4
}

#[unsafe(no_mangle)]
pub extern "C" fn roctracer_version_minor() -> u32 {
    1
}

/// The time now, by the clock of the records.
#[unsafe(no_mangle)]
pub extern "C" fn roctracer_get_timestamp(timestamp: *mut u64) -> i32 {
    if timestamp.is_null() {
        return answer(Err(Status::INVALID_ARGUMENT));
    }
    // SAFETY: the caller promises a valid place for the result.
    unsafe { timestamp.write(link::options().reported(now())) };
    0
}

/// Properties of domains, none of which matter here.
#[unsafe(no_mangle)]
pub extern "C" fn roctracer_set_properties(_domain: u32, _properties: *mut c_void) -> i32 {
    0
}

/// Resumes all that is enabled.
#[unsafe(no_mangle)]
pub extern "C" fn roctracer_start() {
    count(&link::counters().starts);
    STOPPED.store(false, Ordering::Release);
}

/// Pauses all that is enabled.
#[unsafe(no_mangle)]
pub extern "C" fn roctracer_stop() {
    count(&link::counters().stops);
    STOPPED.store(true, Ordering::Release);
}
