//! Settings of CUPTI that clients read and write.

use crate::code::{Code, Outcome};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

/// How threads are named in records: 0 for the low half of `pthread_self`, 1 for the system's id.
static THREAD_ID_TYPE: AtomicU32 = AtomicU32::new(0);

pub(crate) fn set_thread_id_type(value: u32) -> Outcome {
    if value > 1 {
        return Err(Code::INVALID_PARAMETER);
    }
    THREAD_ID_TYPE.store(value, Ordering::Relaxed);
    Ok(())
}

pub(crate) fn thread_id_type() -> u32 {
    THREAD_ID_TYPE.load(Ordering::Relaxed)
}

/// The result of enabling times of the hardware.
pub(crate) fn hardware_times() -> Outcome {
    match crate::link::options().hardware_times_error {
        0 => Ok(()),
        code => Err(Code(code)),
    }
}

/// Returns the calling thread's id in records.
pub(crate) fn thread_id() -> u32 {
    if thread_id_type() == 1 {
        return sim_core::clock::thread_id();
    }
    // SAFETY: pthread_self takes no argument.
    let thread = unsafe { libc::pthread_self() };
    thread as u32
}

/// Numbers of attributes of 8 bytes, which are sizes and limits, each with its value at first; nothing here obeys them.
const SIZES: [(u32, u64); 7] = [(0, 3 << 20), (1, 8 << 20), (2, 250), (3, 25_000), (4, 250), (6, 3), (7, 3)];
/// Attributes of 1 byte, which are switches.
const SWITCHES: [u32; 3] = [5, 8, 9];

static SET: LazyLock<Mutex<HashMap<u32, u64>>> = LazyLock::new(Mutex::default);

/// Returns the size of an attribute and its initial value.
fn shape(attribute: u32) -> Outcome<(usize, u64)> {
    let size = SIZES.iter().find(|(known, _)| *known == attribute).map(|(_, value)| (8, *value));
    size.or_else(|| SWITCHES.contains(&attribute).then_some((1, 0))).ok_or(Code::INVALID_PARAMETER)
}

/// Checks the caller's room, and returns the bytes of the attribute.
fn room(attribute: u32, size: *mut usize, value: *mut c_void) -> Outcome<usize> {
    let (bytes, _) = shape(attribute)?;
    // SAFETY: the caller promises a size, or null.
    let room = unsafe { size.as_ref() }.copied().filter(|_| !value.is_null()).ok_or(Code::INVALID_PARAMETER)?;
    if room < bytes { Err(Code::PARAMETER_SIZE_NOT_SUFFICIENT) } else { Ok(bytes) }
}

pub(crate) fn get(attribute: u32, size: *mut usize, value: *mut c_void) -> Outcome {
    let bytes = room(attribute, size, value)?;
    let set = SET.lock().unwrap_or_else(PoisonError::into_inner).get(&attribute).copied();
    let now = set.unwrap_or(shape(attribute)?.1).to_le_bytes();
    // SAFETY: the caller has passed this size of the place.
    unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), value.cast(), bytes) };
    crate::code::give(size, bytes)
}

pub(crate) fn set(attribute: u32, size: *mut usize, value: *mut c_void) -> Outcome {
    let bytes = room(attribute, size, value)?;
    let mut new = [0; 8];
    // SAFETY: the caller has passed this number of bytes.
    unsafe { std::ptr::copy_nonoverlapping(value.cast(), new.as_mut_ptr(), bytes) };
    SET.lock().unwrap_or_else(PoisonError::into_inner).insert(attribute, u64::from_le_bytes(new));
    Ok(())
}
