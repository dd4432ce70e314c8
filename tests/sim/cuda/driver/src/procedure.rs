//! Looks up the functions of the driver by name.

use crate::error::{Error, Outcome, give};
use sim_core::loader;
use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStringExt;

/// Returns the newest function of that name, or null.
fn find(name: &CStr) -> *mut c_void {
    let own =
        loader::file_of(find as *const c_void).and_then(|file| CString::new(file.into_os_string().into_vec()).ok());
    let library = own.map_or(std::ptr::null_mut(), |file| loader::open(&file, libc::RTLD_NOLOAD));
    let newest = CString::new([name.to_bytes(), b"_v2"].concat()).unwrap_or_default();
    match loader::symbol(library, &newest) {
        found if found.is_null() => loader::symbol(library, name),
        found => found,
    }
}

fn give_function(name: *const c_char, place: *mut *mut c_void) -> Outcome {
    if name.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    // SAFETY: the caller promises a C string.
    let found = find(unsafe { CStr::from_ptr(name) });
    give(place, found)?;
    if found.is_null() { Err(Error::NOT_FOUND) } else { Ok(()) }
}

api! {
    fn cuGetProcAddress_v2(
        name: *const c_char, function: *mut *mut c_void, _version: i32, _flags: u64, status: *mut i32,
    ) |_| {
        let outcome = give_function(name, function);
        if !status.is_null() {
            // 1: no such symbol.
            give(status, i32::from(outcome.is_err()))?;
        }
        outcome
    }
}

/// This driver has no private tables; newer libraries of CUPTI check that the function exists.
#[unsafe(no_mangle)]
pub extern "C" fn cuGetExportTable(_table: *mut *const c_void, _id: *const c_void) -> i32 {
    Error::NOT_FOUND.0
}
