//! Status codes.

use sim_core::exports;
use std::ffi::c_char;

sim_core::codes! {
    /// A `rocprofiler_status_t` other than success.
    Status(i32), INVALID_ARGUMENT;
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

exports! {
    code_of as i32;

    /// The text of a status.
    fn rocprofiler_get_status_string(status: i32) -> *const c_char {
        texts(status).map_or(c"Unknown error", |texts| texts[0]).as_ptr()
    }
}
