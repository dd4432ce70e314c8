//! A collector of ITT: each call becomes a line of the file that `SIM_ITT_LOG` names.
//!
//! Like VTune's: ittnotify calls `__itt_api_init` with its table of functions, and the collector writes its own into it.
#![cfg(target_os = "linux")]
#![allow(non_snake_case, reason = "the exported name is C's")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::OpenOptions;
use std::io::Write as _;

/// `__itt_id`
#[repr(C)]
struct Id {
    parts: [u64; 3],
}

/// `__itt_global`, as far as its table.
#[repr(C)]
pub struct Global {
    magic: [u8; 8],
    version: [u64; 3],
    state: [i64; 3],
    mutex: libc::pthread_mutex_t,
    library: *const c_void,
    error_handler: *const c_void,
    path: *const c_void,
    functions: *const Function,
}

/// `__itt_api_info`
#[repr(C)]
pub struct Function {
    name: *const c_char,
    place: *mut *const c_void,
    _init: *const c_void,
    _null: *const c_void,
    _group: c_int,
}

fn say(line: &str) {
    let Some(path) = std::env::var_os("SIM_ITT_LOG") else { return };
    if let Ok(mut log) = OpenOptions::new().create(true).append(true).open(path) {
        let _ = writeln!(log, "{line}");
    }
}

/// `__itt_domain`, as far as its name.
#[repr(C)]
struct Domain {
    flags: c_int,
    name: *const c_char,
    rest: [usize; 5],
}

/// `__itt_string_handle`, as far as its text.
#[repr(C)]
struct Handle {
    text: *const c_char,
    rest: [usize; 4],
}

fn text(text: *const c_char) -> String {
    // SAFETY: ittnotify and this collector hand out C strings, which they never free.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn keep(text: *const c_char) -> *const c_char {
    // SAFETY: the client passes a C string.
    unsafe { CStr::from_ptr(text) }.to_owned().into_raw()
}

// ittnotify itself makes objects that a client needs before its first task.
extern "C" fn domain_create(name: *const c_char) -> *const Domain {
    Box::into_raw(Box::new(Domain { flags: 1, name: keep(name), rest: [0; 5] }))
}

extern "C" fn string_handle_create(name: *const c_char) -> *const Handle {
    Box::into_raw(Box::new(Handle { text: keep(name), rest: [0; 4] }))
}

extern "C" fn task_begin(domain: *const Domain, id: Id, parent: Id, name: *const Handle) {
    assert_eq!((id.parts, parent.parts), ([0; 3], [0; 3]), "no ids");
    // SAFETY: both are never freed.
    say(&unsafe { format!("begin {} {}", text((*domain).name), text((*name).text)) });
}

extern "C" fn task_end(domain: *const Domain) {
    // SAFETY: it is never freed.
    say(&format!("end {}", text(unsafe { (*domain).name })));
}

/// Writes this collector's functions into ittnotify's table.
#[unsafe(no_mangle)]
pub extern "C" fn __itt_api_init(global: *const Global, _groups: c_int) {
    let own: [(&CStr, *const c_void); 4] = [
        (c"__itt_domain_create", domain_create as *const c_void),
        (c"__itt_string_handle_create", string_handle_create as *const c_void),
        (c"__itt_task_begin", task_begin as *const c_void),
        (c"__itt_task_end", task_end as *const c_void),
    ];
    // SAFETY: ittnotify passes its only global.
    let mut function = unsafe { (*global).functions };
    // SAFETY: the table ends with an entry without a name.
    while let Function { name, place, .. } = unsafe { &*function }
        && !name.is_null()
    {
        // SAFETY: names in the table are C strings.
        let name = unsafe { CStr::from_ptr(*name) };
        if let Some((_, own)) = own.iter().find(|(known, _)| *known == name) {
            // SAFETY: each entry says where its function's pointer is.
            unsafe { place.write(*own) };
        }
        // SAFETY: this was not the last entry.
        function = unsafe { function.add(1) };
    }
}
