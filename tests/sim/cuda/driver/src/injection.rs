//! Injection: loads and calls the library that `CUDA_INJECTION64_PATH` names, once, inside the first `cuInit`.

use crate::control;
use crate::error::{Error, Outcome};
use crate::shared::calls::{self, Call};
use sim_core::handles::lock;
use sim_core::loader;
use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStringExt;
use std::sync::Mutex;

/// Whether the first `cuInit` has run. Locked during each, so a second thread waits for the first.
static INIT: Mutex<bool> = Mutex::new(false);

thread_local! {
    /// Whether the thread is inside the library that `cuInit` has called.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

pub(crate) fn is_inside() -> bool {
    IS_INSIDE.get()
}

/// Initialises; the first time, the library is loaded and called with the lock held.
///
/// # Errors
/// The library reports a failure.
pub(crate) fn init(initialize: impl FnOnce()) -> Outcome {
    if is_inside() {
        return Ok(());
    }
    let mut was_first = lock(&INIT);
    initialize();
    if std::mem::replace(&mut *was_first, true) {
        return Ok(());
    }
    match std::env::var_os("CUDA_INJECTION64_PATH").and_then(|path| CString::new(path.into_vec()).ok()) {
        Some(path) if call(&path) == Some(0) => Err(Error::NOT_INITIALIZED),
        _ => Ok(()),
    }
}

/// Calls the library's `InitializeInjection`; returns its result.
fn call(path: &CStr) -> Option<i32> {
    let address = loader::symbol(loader::open(path, 0), c"InitializeInjection");
    // A library that cannot be loaded, or lacks the function, is skipped.
    if address.is_null() {
        return None;
    }
    // SAFETY: CUDA defines this type for the library's function.
    let initialize = unsafe { std::mem::transmute::<*mut std::ffi::c_void, extern "C" fn() -> i32>(address) };
    IS_INSIDE.set(true);
    let answer = initialize();
    IS_INSIDE.set(false);
    Some(answer)
}

/// Aborts the process if the library calls the driver, where a real driver may hang, unless an option allows it.
pub(crate) fn check(call: &Call) {
    if is_inside() && call.name != calls::cuDriverGetVersion.name && !control::options().inside_init {
        eprintln!("sim-cuda: {} inside of cuInit", call.name.to_string_lossy());
        std::process::abort();
    }
}
