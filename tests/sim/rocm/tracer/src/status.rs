//! Status codes, versions, the clock, and the global switch.

use crate::shared::clock::now;
use crate::shared::counters::count;
use crate::shared::link;
use sim_core::exports;
use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

sim_core::codes! {
    /// A `roctracer_status_t` other than success.
    Status(i32), INVALID_ARGUMENT;
    SUCCESS = 0, c"";
    INVALID_DOMAIN_ID = -2, c"Invalid domain ID";
    INVALID_ARGUMENT = -3, c"Invalid argument";
    DEFAULT_POOL_UNDEFINED = -4, c"Default pool is undefined";
    DEFAULT_POOL_ALREADY_DEFINED = -5, c"Default pool already defined";
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
pub(crate) fn answer(outcome: Outcome) -> i32 {
    let code = code_of(outcome);
    if code != 0 {
        LAST.set(code);
    }
    code
}

exports! {
    answer as i32;

    /// The text of the thread's last failure.
    fn roctracer_error_string() -> *const c_char {
        texts(LAST.get()).map_or(c"Error", |texts| texts[0]).as_ptr()
    }

    fn roctracer_version_major() -> u32 {
        4
    }

    fn roctracer_version_minor() -> u32 {
        1
    }

    /// The time now, by the clock of the records.
    fn roctracer_get_timestamp(timestamp: *mut u64) {
        give(timestamp, link::options().reported(now()))
    }

    /// Properties of domains, none of which matter here.
    fn roctracer_set_properties(_domain: u32, _properties: *mut c_void) {
        Ok(())
    }

    /// Resumes all that is enabled.
    fn roctracer_start() -> () {
        count(&link::counters().starts);
        STOPPED.store(false, Ordering::Release);
    }
}
