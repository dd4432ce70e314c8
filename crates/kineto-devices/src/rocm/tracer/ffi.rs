//! Safe wrappers of the roctracer functions in use.
#![allow(unsafe_code, reason = "roctracer is foreign code")]

use super::error::TracerError;
use crate::library::functions;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{null, null_mut};

/// Receives calls. Arguments: domain, function, data of the call, and user data.
pub(super) type OnCall = extern "C" fn(u32, u32, *const c_void, *mut c_void);
/// Receives records. Arguments: begin, end, and user data.
pub(super) type OnRecords = extern "C" fn(*const u8, *const u8, *mut c_void);

type Code = i32;

/// The domain of device work.
pub(super) const HIP_OPS: u32 = 2;
/// The domain of HIP's functions.
const HIP_API: u32 = 3;

/// The pool into which roctracer writes records. It is never closed: older versions fail to close it properly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PoolHandle(usize);

/// The properties of a pool.
#[derive(Debug)]
#[repr(C)]
struct Properties {
    mode: u32,
    buffer_bytes: usize,
    /// Null for `malloc`: older versions call `free` on the memory of any allocator.
    allocate: *const c_void,
    allocate_data: *mut c_void,
    on_records: OnRecords,
    data: *mut c_void,
}

functions! {
    /// roctracer, with its functions.
    Api
    required {
    version_major = c"roctracer_version_major": fn() -> u32;
    version_minor = c"roctracer_version_minor": fn() -> u32;
    get_timestamp = c"roctracer_get_timestamp": fn(*mut u64) -> Code;
    op_string = c"roctracer_op_string": fn(u32, u32, u32) -> *const c_char;
    set_properties = c"roctracer_set_properties": fn(u32, *mut c_void) -> Code;
    enable_callbacks = c"roctracer_enable_domain_callback": fn(u32, OnCall, *mut c_void) -> Code;
    disable_callbacks = c"roctracer_disable_domain_callback": fn(u32) -> Code;
    disable_callback = c"roctracer_disable_op_callback": fn(u32, u32) -> Code;
    open_pool = c"roctracer_open_pool_expl": fn(*const Properties, *mut *mut c_void) -> Code;
    enable_records = c"roctracer_enable_domain_activity_expl": fn(u32, *mut c_void) -> Code;
    disable_records = c"roctracer_disable_domain_activity": fn(u32) -> Code;
    flush = c"roctracer_flush_activity_expl": fn(*mut c_void) -> Code;
    start = c"roctracer_start": fn();
    }
    optional {
    error_string = c"roctracer_error_string": fn() -> *const c_char;
    op_code = c"roctracer_op_code": fn(u32, *const c_char, *mut u32, *mut u32) -> Code;
    default_pool = c"roctracer_default_pool": fn() -> *mut c_void;
    }
}

fn check_result(code: Code) -> Result<(), TracerError> {
    if code == 0 { Ok(()) } else { Err(TracerError(code)) }
}

/// Copies a C string of the library, which is static.
fn copy_text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the library returns a C string, or null.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

impl Api {
    /// Returns the version, such as (4, 1).
    pub(super) fn version(&self) -> (u32, u32) {
        // SAFETY: it takes no arguments.
        let major = unsafe { (self.version_major)() };
        // SAFETY: it takes no arguments.
        let minor = unsafe { (self.version_minor)() };
        (major, minor)
    }

    /// Returns the time on the clock of the records; `None` before ROCm's runtime has started.
    #[inline]
    pub(super) fn timestamp(&self) -> Option<u64> {
        let mut time = 0;
        // SAFETY: the pointer is a valid place for a timestamp.
        let code = unsafe { (self.get_timestamp)(&raw mut time) };
        (code == 0 && time != 0).then_some(time)
    }

    /// Returns the name of a HIP function; `None` for an unused number.
    pub(super) fn function_name(&self, number: u32) -> Option<String> {
        // SAFETY: the library checks the numbers.
        let name = copy_text(unsafe { (self.op_string)(HIP_API, number, 0) })?;
        (name != "unknown" && !name.is_empty()).then_some(name)
    }

    /// Enables callbacks for HIP's functions, except those named in `noise`, if the library knows their numbers.
    pub(super) fn enable_calls(&self, on_call: OnCall, noise: &[&str]) -> Result<(), TracerError> {
        // SAFETY: a null pointer is right, since this domain has no properties.
        check_result(unsafe { (self.set_properties)(HIP_API, null_mut()) })?;
        // SAFETY: the callback is static, and ignores its null user data.
        check_result(unsafe { (self.enable_callbacks)(HIP_API, on_call, null_mut()) })?;
        for number in noise.iter().filter_map(|name| self.function_number(name)) {
            // SAFETY: the library checks the numbers. Calls that cannot be disabled are dropped when they arrive.
            unsafe { (self.disable_callback)(HIP_API, number) };
        }
        Ok(())
    }

    fn function_number(&self, name: &str) -> Option<u32> {
        let (name, mut number, mut kind) = (CString::new(name).ok()?, 0, 0);
        // SAFETY: the name is a C string, and the pointers are valid places for numbers.
        let code = unsafe { (self.op_code?)(HIP_API, name.as_ptr(), &raw mut number, &raw mut kind) };
        (code == 0 && number != 0).then_some(number)
    }

    pub(super) fn disable_calls(&self) -> Result<(), TracerError> {
        // SAFETY: it takes no pointer.
        check_result(unsafe { (self.disable_callbacks)(HIP_API) })
    }

    /// Makes a pool of two buffers of that size, which delivers its records to `on_records`.
    pub(super) fn open_pool(&self, buffer_bytes: usize, on_records: OnRecords) -> Result<PoolHandle, TracerError> {
        let properties = Properties {
            mode: 0,
            buffer_bytes,
            allocate: null(),
            allocate_data: null_mut(),
            on_records,
            data: null_mut(),
        };
        let mut pool = null_mut();
        // SAFETY: the library copies the properties, the callback is static, and the pointer is a valid place for a
        // handle.
        check_result(unsafe { (self.open_pool)(&raw const properties, &raw mut pool) })?;
        Ok(PoolHandle(pool.expose_provenance()))
    }

    /// Makes the library write records of device work into a pool.
    pub(super) fn enable_records(&self, pool: PoolHandle) -> Result<(), TracerError> {
        // SAFETY: `open_pool` made the pool, which is never closed.
        check_result(unsafe { (self.enable_records)(HIP_OPS, std::ptr::with_exposed_provenance_mut(pool.0)) })
    }

    pub(super) fn disable_records(&self) -> Result<(), TracerError> {
        // SAFETY: it takes no pointer.
        check_result(unsafe { (self.disable_records)(HIP_OPS) })
    }

    /// Flushes a pool, and waits until its records are delivered.
    pub(super) fn flush_pool(&self, pool: PoolHandle) -> Result<(), TracerError> {
        // SAFETY: `open_pool` made the pool, which is never closed.
        check_result(unsafe { (self.flush)(std::ptr::with_exposed_provenance_mut(pool.0)) })
    }

    /// Starts the enabled domains, in case another tool stopped them.
    pub(super) fn start_domains(&self) {
        // SAFETY: it takes no arguments.
        unsafe { (self.start)() };
    }

    /// Returns whether another tool of the process has made the default pool.
    pub(super) fn is_used_by_another(&self) -> bool {
        // SAFETY: it takes no arguments.
        self.default_pool.is_some_and(|pool| !unsafe { pool() }.is_null())
    }

    /// Returns the library's text about the last failure; empty if it has none.
    pub(super) fn last_error_text(&self) -> String {
        // SAFETY: it takes no arguments. Some versions allocate the text for the caller; it is never freed.
        let words = self.error_string.map(|words| unsafe { words() });
        words.and_then(copy_text).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn pool_properties_match_the_c_layout() {
        let offsets = [
            offset_of!(Properties, mode),
            offset_of!(Properties, buffer_bytes),
            offset_of!(Properties, allocate),
            offset_of!(Properties, allocate_data),
            offset_of!(Properties, on_records),
            offset_of!(Properties, data),
        ];
        assert_eq!((offsets, size_of::<Properties>()), ([0, 8, 16, 24, 32, 40], 48));
    }
}
