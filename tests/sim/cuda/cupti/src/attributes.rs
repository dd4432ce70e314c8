//! Settings of CUPTI that clients write.

use crate::code::{Code, Outcome};
use std::ffi::c_void;

/// The result of enabling times of the hardware.
pub(crate) fn hardware_times() -> Outcome {
    Code::unless(crate::link::options().hardware_times_error)
}

/// Returns the calling thread's id in records: the low half of `pthread_self`.
pub(crate) fn thread_id() -> u32 {
    // SAFETY: pthread_self takes no argument.
    let thread = unsafe { libc::pthread_self() };
    thread as u32
}

/// Numbers of attributes of 8 bytes, which are sizes and limits, and of 1 byte, which are switches; nothing here obeys them.
const SIZES: [u32; 7] = [0, 1, 2, 3, 4, 6, 7];
const SWITCHES: [u32; 3] = [5, 8, 9];

pub(crate) fn set(attribute: u32, size: *mut usize, value: *mut c_void) -> Outcome {
    let bytes = match attribute {
        _ if SIZES.contains(&attribute) => 8,
        _ if SWITCHES.contains(&attribute) => 1,
        _ => return Err(Code::INVALID_PARAMETER),
    };
    // SAFETY: the caller promises a size, or null.
    let room = unsafe { size.as_ref() }.copied().filter(|_| !value.is_null()).ok_or(Code::INVALID_PARAMETER)?;
    if room < bytes { Err(Code::PARAMETER_SIZE_NOT_SUFFICIENT) } else { Ok(()) }
}
