//! A collector of ITT: each call becomes a line of the file that `SIM_ITT_LOG` names.
//!
//! Of the first kind that ittnotify knows: it has the functions under their names, and `__itt_api_version`. Domains and
//! handles are the addresses of their names.
#![cfg(target_os = "linux")]
#![allow(non_snake_case, reason = "the exported names are C's")]

use std::ffi::{CStr, CString, c_char, c_void};
use std::fs::OpenOptions;
use std::io::Write as _;

/// `__itt_id`
#[repr(C)]
pub struct Id {
    parts: [u64; 3],
}

fn say(line: &str) {
    let Some(path) = std::env::var_os("SIM_ITT_LOG") else { return };
    if let Ok(mut log) = OpenOptions::new().create(true).append(true).open(path) {
        let _ = writeln!(log, "{line}");
    }
}

fn text(name: *const c_void) -> String {
    if name.is_null() {
        return "(null)".to_owned();
    }
    // SAFETY: what is handed out here is a C string, which is never freed.
    unsafe { CStr::from_ptr(name.cast()) }.to_string_lossy().into_owned()
}

fn keep(what: &str, name: *const c_char) -> *const c_void {
    // SAFETY: the client hands a C string.
    let name: CString = unsafe { CStr::from_ptr(name) }.to_owned();
    say(&format!("{what} {}", name.to_string_lossy()));
    name.into_raw().cast_const().cast()
}

#[unsafe(no_mangle)]
pub extern "C" fn __itt_api_version() -> *const c_char {
    c"simulated".as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn __itt_domain_create(name: *const c_char) -> *const c_void {
    keep("domain", name)
}

#[unsafe(no_mangle)]
pub extern "C" fn __itt_string_handle_create(name: *const c_char) -> *const c_void {
    keep("handle", name)
}

#[unsafe(no_mangle)]
pub extern "C" fn __itt_task_begin(domain: *const c_void, id: Id, parent: Id, name: *const c_void) {
    assert_eq!((id.parts, parent.parts), ([0; 3], [0; 3]), "no ids");
    say(&format!("begin {} {}", text(domain), text(name)));
}

#[unsafe(no_mangle)]
pub extern "C" fn __itt_task_end(domain: *const c_void) {
    say(&format!("end {}", text(domain)));
}
