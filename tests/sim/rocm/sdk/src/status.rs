//! Status codes, which 1.0 renumbered.

use crate::layout;
use std::ffi::{CStr, c_char};

/// A `rocprofiler_status_t`, by the numbers of 1.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(i32);

macro_rules! statuses {
    ($($constant:ident = $code:literal, $text:literal;)+) => {
        impl Status {
            $(pub(crate) const $constant: Status = Status($code);)+
        }

        fn describe(code: i32) -> &'static CStr {
            match code {
                $($code => $text,)+
                _ => c"Unknown error",
            }
        }
    };
}

statuses! {
    SUCCESS = 0, c"Success";
    CONTEXT_NOT_FOUND = 2, c"Context ID not found";
    BUFFER_NOT_FOUND = 3, c"Buffer ID not found";
    KIND_NOT_FOUND = 4, c"Kind ID not found";
    OPERATION_NOT_FOUND = 5, c"Operation ID not found";
    CONTEXT_ID_NOT_ZERO = 13, c"Context ID is not initialized to zero";
    SERVICE_ALREADY_CONFIGURED = 15, c"Configuration request would overwrite existing service";
    CONFIGURATION_LOCKED = 16, c"Configuration request occurred outside of valid rocprofiler configuration period";
    NOT_IMPLEMENTED = 17, c"API function is not implemented";
    INVALID_ARGUMENT = 19, c"Function invoked with one or more invalid arguments";
}

impl Status {
    /// The number that a client gets: before 1.0 it was one less from 14 on.
    pub(crate) fn code(self) -> i32 {
        if layout::is_old() && self.0 > 13 { self.0 - 1 } else { self.0 }
    }

    /// A status that an option asks for.
    pub(crate) fn of(code: i32) -> Status {
        Status(code)
    }
}

/// The result of a function.
pub(crate) fn answer(outcome: Result<(), Status>) -> i32 {
    outcome.map_or_else(Status::code, |()| 0)
}

/// The text of a status.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_get_status_string(status: i32) -> *const c_char {
    describe(if layout::is_old() && status > 13 { status + 1 } else { status }).as_ptr()
}

/// The name of a status, which is its text here.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_get_status_name(status: i32) -> *const c_char {
    rocprofiler_get_status_string(status)
}
