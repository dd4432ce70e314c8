//! Has something done when the process ends by `exit`, from `main`'s end or from anywhere else.
#![allow(unsafe_code, reason = "atexit has no safe form")]

use std::sync::OnceLock;

/// Has `last` called once at the process's end; the first caller decides what.
pub(crate) fn at_exit(last: fn()) {
    static LAST: OnceLock<fn()> = OnceLock::new();
    extern "C" fn handler() {
        if let Some(last) = LAST.get() {
            // A panic may not cross into C.
            let _ = std::panic::catch_unwind(last);
        }
    }
    LAST.get_or_init(|| {
        // WebAssembly has no end of a process.
        #[cfg(not(target_family = "wasm"))]
        // SAFETY: the handler is a plain function that lives for ever and does not unwind.
        unsafe {
            libc::atexit(handler)
        };
        last
    });
}
