//! Runs a function when the process ends by `exit`, from `main`'s end or from any other code.
#![allow(unsafe_code, reason = "atexit, dladdr and dlopen have no safe form")]

use std::sync::OnceLock;

/// Calls `last` once at the process's end; only the first call has an effect.
pub fn at_exit(last: fn()) {
    static LAST: OnceLock<fn()> = OnceLock::new();
    extern "C" fn handler() {
        if let Some(last) = LAST.get() {
            // A panic may not cross into C.
            let _ = std::panic::catch_unwind(last);
        }
    }
    if LAST.get().is_none() {
        // Before the cell is initialized: the loader may run a constructor on another thread that registers too.
        stay_loaded();
    }
    LAST.get_or_init(|| {
        // WebAssembly has no process exit.
        #[cfg(not(target_family = "wasm"))]
        // SAFETY: the handler is a plain function that lives for ever and does not unwind.
        unsafe {
            libc::atexit(handler)
        };
        last
    });
}

/// Keeps this code loaded, even if the program unloads the shared library that contains it: threads run it, and the loader
/// would call the handler above under a lock that new threads need.
#[cfg(unix)]
fn stay_loaded() {
    let mut about = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let here: fn() = stay_loaded;
    // SAFETY: `about` is valid for writes.
    let found = unsafe { libc::dladdr(here as *const libc::c_void, about.as_mut_ptr()) };
    // SAFETY: zeros are a valid value of it, and so is any value that dladdr stores.
    let file = unsafe { about.assume_init() }.dli_fname;
    if found != 0 && !file.is_null() {
        // SAFETY: dladdr gives a C string. With these flags nothing is loaded and no code runs; the program itself has no
        // handle, and needs none.
        unsafe { libc::dlopen(file, libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) };
    }
}

/// Does nothing on other platforms.
#[cfg(not(unix))]
fn stay_loaded() {}
