//! The functions of roctracer that are used, with safe ways to call them.
#![allow(unsafe_code, reason = "roctracer is foreign code")]

use super::error::TracerError;
use crate::collector::library::functions;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{null, null_mut};

/// Is told of calls: domain, function, what is known of the call, and user data.
pub(super) type OnCall = extern "C" fn(u32, u32, *const c_void, *mut c_void);
/// Is given records: where they begin, where they end, and user data.
pub(super) type OnRecords = extern "C" fn(*const u8, *const u8, *mut c_void);

type Code = i32;

/// The domain of what devices do.
pub(super) const HIP_OPS: u32 = 2;
/// The domain of HIP's functions.
const HIP_API: u32 = 3;

/// Where roctracer writes the records of devices, until the process ends: older versions let go of it badly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PoolHandle(usize);

/// How a pool is to be.
#[derive(Debug)]
#[repr(C)]
struct Properties {
    mode: u32,
    buffer_bytes: usize,
    /// Null for `malloc`: older versions free what it gives by `free`, whatever it is.
    allocate: *const c_void,
    allocate_data: *mut c_void,
    on_records: OnRecords,
    data: *mut c_void,
}

functions! {
    /// roctracer, with its functions.
    Api
    required {
    version_major = c"roctracer_version_major": unsafe extern "C" fn() -> u32;
    version_minor = c"roctracer_version_minor": unsafe extern "C" fn() -> u32;
    get_timestamp = c"roctracer_get_timestamp": unsafe extern "C" fn(*mut u64) -> Code;
    op_string = c"roctracer_op_string": unsafe extern "C" fn(u32, u32, u32) -> *const c_char;
    set_properties = c"roctracer_set_properties": unsafe extern "C" fn(u32, *mut c_void) -> Code;
    enable_callbacks = c"roctracer_enable_domain_callback": unsafe extern "C" fn(u32, OnCall, *mut c_void) -> Code;
    disable_callbacks = c"roctracer_disable_domain_callback": unsafe extern "C" fn(u32) -> Code;
    disable_callback = c"roctracer_disable_op_callback": unsafe extern "C" fn(u32, u32) -> Code;
    open_pool = c"roctracer_open_pool_expl": unsafe extern "C" fn(*const Properties, *mut *mut c_void) -> Code;
    enable_records = c"roctracer_enable_domain_activity_expl": unsafe extern "C" fn(u32, *mut c_void) -> Code;
    disable_records = c"roctracer_disable_domain_activity": unsafe extern "C" fn(u32) -> Code;
    flush = c"roctracer_flush_activity_expl": unsafe extern "C" fn(*mut c_void) -> Code;
    start = c"roctracer_start": unsafe extern "C" fn();
    }
    optional {
    error_string = c"roctracer_error_string": unsafe extern "C" fn() -> *const c_char;
    op_code = c"roctracer_op_code": unsafe extern "C" fn(u32, *const c_char, *mut u32, *mut u32) -> Code;
    default_pool = c"roctracer_default_pool": unsafe extern "C" fn() -> *mut c_void;
    }
}

fn checked(code: Code) -> Result<(), TracerError> {
    if code == 0 { Ok(()) } else { Err(TracerError(code)) }
}

/// Copies a C string of the library's own, which stays.
fn owned(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the library gives a C string, or null.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

impl Api {
    /// Returns the version, such as (4, 1).
    pub(super) fn version(&self) -> (u32, u32) {
        // SAFETY: it takes nothing.
        let major = unsafe { (self.version_major)() };
        // SAFETY: it takes nothing.
        let minor = unsafe { (self.version_minor)() };
        (major, minor)
    }

    /// Returns the time by the clock of the records; `None` while ROCm's runtime has not begun.
    #[inline]
    pub(super) fn timestamp(&self) -> Option<u64> {
        let mut time = 0;
        // SAFETY: the pointer is a valid place for the result.
        let code = unsafe { (self.get_timestamp)(&raw mut time) };
        (code == 0 && time != 0).then_some(time)
    }

    /// Returns the name of a function of HIP; `None` for a number that no function has.
    pub(super) fn function_name(&self, number: u32) -> Option<String> {
        // SAFETY: any numbers may be passed.
        let name = owned(unsafe { (self.op_string)(HIP_API, number, 0) })?;
        (name != "unknown" && !name.is_empty()).then_some(name)
    }

    /// Has HIP's functions told to `on_call`, less those of these names, as far as the library knows their numbers.
    pub(super) fn enable_calls(&self, on_call: OnCall, noise: &[&str]) -> Result<(), TracerError> {
        // SAFETY: this domain has no properties.
        checked(unsafe { (self.set_properties)(HIP_API, null_mut()) })?;
        // SAFETY: the function is never unloaded, and wants no user data.
        checked(unsafe { (self.enable_callbacks)(HIP_API, on_call, null_mut()) })?;
        for number in noise.iter().filter_map(|name| self.number(name)) {
            // SAFETY: any numbers may be passed. What cannot be switched off is left out when it comes.
            unsafe { (self.disable_callback)(HIP_API, number) };
        }
        Ok(())
    }

    fn number(&self, name: &str) -> Option<u32> {
        let (name, mut number, mut kind) = (CString::new(name).ok()?, 0, 0);
        // SAFETY: the name is a C string, and the pointers are valid places for the results.
        let code = unsafe { (self.op_code?)(HIP_API, name.as_ptr(), &raw mut number, &raw mut kind) };
        (code == 0 && number != 0).then_some(number)
    }

    pub(super) fn disable_calls(&self) -> Result<(), TracerError> {
        // SAFETY: it takes no pointer.
        checked(unsafe { (self.disable_callbacks)(HIP_API) })
    }

    /// Makes a pool of two buffers of that size, whose records `on_records` is given.
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
        // SAFETY: the properties are copied, the function is never unloaded, and the pointer is a place for the result.
        checked(unsafe { (self.open_pool)(&raw const properties, &raw mut pool) })?;
        Ok(PoolHandle(pool.expose_provenance()))
    }

    /// Has what devices do written into a pool.
    pub(super) fn enable_records(&self, pool: PoolHandle) -> Result<(), TracerError> {
        // SAFETY: the pool is one that the library made, and is there for good.
        checked(unsafe { (self.enable_records)(HIP_OPS, std::ptr::with_exposed_provenance_mut(pool.0)) })
    }

    pub(super) fn disable_records(&self) -> Result<(), TracerError> {
        // SAFETY: it takes no pointer.
        checked(unsafe { (self.disable_records)(HIP_OPS) })
    }

    /// Has the records of a pool handed over, and waits for that.
    pub(super) fn flush(&self, pool: PoolHandle) -> Result<(), TracerError> {
        // SAFETY: the pool is one that the library made, and is there for good.
        checked(unsafe { (self.flush)(std::ptr::with_exposed_provenance_mut(pool.0)) })
    }

    /// Lets what is enabled begin, if somebody has stopped it.
    pub(super) fn start(&self) {
        // SAFETY: it takes nothing.
        unsafe { (self.start)() };
    }

    /// Whether somebody else in the process has made the pool that roctracer has one of.
    pub(super) fn is_used_by_another(&self) -> bool {
        // SAFETY: it takes nothing.
        self.default_pool.is_some_and(|pool| !unsafe { pool() }.is_null())
    }

    /// Returns the library's own words on what failed last; empty if it has none.
    pub(super) fn last_words(&self) -> String {
        // SAFETY: it takes nothing. Some versions leave the text to the caller and some do not: it stays.
        let words = self.error_string.map(|words| unsafe { words() });
        words.and_then(owned).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn a_pool_is_described_as_the_library_reads_it() {
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
