//! The dynamic loader.

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Opens a library by its name or path with these flags. Returns null on failure.
pub fn open(name: &CStr, flags: i32) -> *mut c_void {
    // SAFETY: a C string; the libraries opened here do nothing at their start.
    unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | flags) }
}

/// Returns the address of a symbol of a library, or null.
pub fn symbol(library: *mut c_void, name: &CStr) -> *mut c_void {
    if library.is_null() {
        return library;
    }
    // SAFETY: an open library and a C string.
    unsafe { libc::dlsym(library, name.as_ptr()) }
}

/// Returns the file of the library that contains an address.
pub fn file_of(address: *const c_void) -> Option<PathBuf> {
    let mut found = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: any address will do, and the place is ours.
    if unsafe { libc::dladdr(address, &raw mut found) } == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's name of a library that is loaded.
    let name = unsafe { CStr::from_ptr(found.dli_fname) };
    Some(std::ffi::OsStr::from_bytes(name.to_bytes()).into())
}

/// Opens a library: the one that is already loaded, then `neighbors` in the folder of the library that contains `own`, then
/// the loader's. Yields null for each that does not exist.
pub fn candidates(name: &CStr, own: *const c_void, neighbors: &[&str]) -> impl Iterator<Item = *mut c_void> {
    let open_neighbor = move |file: &str| {
        let path = file_of(own)?.with_file_name(file);
        Some(open(&CString::new(path.into_os_string().into_vec()).ok()?, 0))
    };
    let loaded = std::iter::once_with(|| open(name, libc::RTLD_NOLOAD));
    let neighbors = neighbors.iter().filter_map(move |file| open_neighbor(file));
    loaded.chain(neighbors).chain(std::iter::once_with(|| open(name, 0)))
}
