//! An NVTX 3 tool: each call becomes a line of the file that `SIM_NVTX_LOG` names.
//!
//! Written from the protocol of NVTX's headers alone: it requests the table of the core module, writes its functions into
//! the slots, and reads attributes by their offsets. With `SIM_NVTX_REFUSE=1` it refuses after writing some functions.
#![cfg(target_os = "linux")]
#![allow(non_snake_case, reason = "the exported name is C's")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::sync::{Mutex, OnceLock, PoisonError};

type GetExportTable = extern "C" fn(u32) -> *const c_void;
type GetModuleFunctionTable = extern "C" fn(u32, *mut *const *mut *const c_void, *mut u32) -> c_int;

/// The first members of the export table of callbacks.
#[repr(C)]
struct Callbacks {
    struct_size: usize,
    get_module_function_table: Option<GetModuleFunctionTable>,
}

static LOG: OnceLock<Mutex<File>> = OnceLock::new();

fn say(line: &str) {
    if let Some(log) = LOG.get() {
        // SAFETY: gettid takes nothing and cannot fail.
        let thread = unsafe { libc::gettid() };
        let _ = writeln!(log.lock().unwrap_or_else(PoisonError::into_inner), "{thread} {line}");
    }
}

/// The tool's entry point: returns 1 if it accepts.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjectionNvtx2(get_export_table: GetExportTable) -> c_int {
    let Some(path) = std::env::var_os("SIM_NVTX_LOG") else { return 0 };
    let Ok(file) = OpenOptions::new().create(true).append(true).open(path) else { return 0 };
    let _ = LOG.set(Mutex::new(file));
    let callbacks = get_export_table(1).cast::<Callbacks>();
    if callbacks.is_null() {
        return 0;
    }
    // SAFETY: the client's table is never freed and begins with its size.
    let Callbacks { struct_size, get_module_function_table: Some(get_table) } = (unsafe { callbacks.read() }) else {
        return 0;
    };
    let (mut slots, mut count) = (std::ptr::null(), 0);
    if struct_size < size_of::<Callbacks>() || get_table(1, &raw mut slots, &raw mut count) != 1 {
        return 0;
    }
    // A module that no client has.
    let mut none = std::ptr::null();
    say(&format!("initialize {count} unknown={}", get_table(99, &raw mut none, std::ptr::null_mut())));
    let functions: [(usize, *const c_void); 5] = [
        (1, mark_ex as *const c_void),
        (8, range_push_ex as *const c_void),
        (11, range_pop as *const c_void),
        (12, name_category as *const c_void),
        (14, name_os_thread as *const c_void),
    ];
    for (at, function) in functions {
        assert!(at < count as usize, "a table of {count}");
        // SAFETY: the table has `count` entries, each of which points to a slot or is null.
        unsafe {
            let slot = slots.add(at).read();
            assert!(!slot.is_null(), "slot {at}");
            slot.write(function);
        }
    }
    c_int::from(std::env::var_os("SIM_NVTX_REFUSE").is_none())
}

/// Returns a value at an offset of `nvtxEventAttributes_t`.
fn at<T: Copy>(attributes: *const u8, offset: usize) -> T {
    // SAFETY: the client passes 48 bytes, and every offset is inside them.
    unsafe { attributes.add(offset).cast::<T>().read_unaligned() }
}

fn describe(attributes: *const u8) -> String {
    let (version, size) = (at::<u16>(attributes, 0), at::<u16>(attributes, 2));
    assert_eq!((version, size), (3, 48), "version and size");
    let color = if at::<i32>(attributes, 8) == 1 { format!("{:08x}", at::<u32>(attributes, 12)) } else { "-".into() };
    let payload = match at::<i32>(attributes, 16) {
        0 => "-".to_owned(),
        1 => format!("u{}", at::<u64>(attributes, 24)),
        2 => format!("i{}", at::<i64>(attributes, 24)),
        3 => format!("f{}", at::<f64>(attributes, 24)),
        other => format!("?{other}"),
    };
    assert_eq!(at::<i32>(attributes, 32), 1, "a text in one-byte characters");
    // SAFETY: the client passes a C string.
    let text = unsafe { CStr::from_ptr(at::<*const c_char>(attributes, 40)) };
    format!("{} {color} {payload} {}", at::<u32>(attributes, 4), text.to_string_lossy())
}

extern "C" fn mark_ex(attributes: *const u8) {
    say(&format!("mark {}", describe(attributes)));
}

extern "C" fn range_push_ex(attributes: *const u8) -> c_int {
    say(&format!("push {}", describe(attributes)));
    0
}

extern "C" fn range_pop() -> c_int {
    say("pop");
    0
}

extern "C" fn name_category(category: u32, name: *const c_char) {
    // SAFETY: the client passes a C string.
    say(&format!("category {category} {}", unsafe { CStr::from_ptr(name) }.to_string_lossy()));
}

extern "C" fn name_os_thread(thread: u32, name: *const c_char) {
    // SAFETY: the client passes a C string.
    say(&format!("thread {thread} {}", unsafe { CStr::from_ptr(name) }.to_string_lossy()));
}
