//! The library that `CUDA_INJECTION64_PATH` names: loaded, and called, once, inside of the first `cuInit`.

use crate::control;
use crate::error::{Error, Outcome};
use crate::shared::calls::{self, Call};
use sim_core::loader;
use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStringExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Whether there was a first `cuInit`. Held in each: a second thread waits for the first one.
static INIT: Mutex<bool> = Mutex::new(false);

thread_local! {
    /// Whether the thread is inside of the library that `cuInit` has called.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

pub(crate) fn is_inside() -> bool {
    IS_INSIDE.get()
}

/// Initialises; the first time, the library is loaded and called with the lock held.
///
/// # Errors
/// The library says that it has failed.
pub(crate) fn init(initialize: impl FnOnce()) -> Outcome {
    if is_inside() {
        return Ok(());
    }
    let mut was_first: MutexGuard<'_, bool> = INIT.lock().unwrap_or_else(PoisonError::into_inner);
    initialize();
    if std::mem::replace(&mut *was_first, true) {
        return Ok(());
    }
    match std::env::var_os("CUDA_INJECTION64_PATH").and_then(|path| CString::new(path.into_vec()).ok()) {
        Some(path) if call(&path) == Some(0) => Err(Error::NOT_INITIALIZED),
        _ => Ok(()),
    }
}

/// What the library's `InitializeInjection` returns.
fn call(path: &CStr) -> Option<i32> {
    let address = loader::symbol(loader::open(path, 0), c"InitializeInjection");
    // A library that cannot be loaded, or has no such function, is passed over.
    if address.is_null() {
        return None;
    }
    // SAFETY: that is its type.
    let initialize = unsafe { std::mem::transmute::<*mut std::ffi::c_void, extern "C" fn() -> i32>(address) };
    IS_INSIDE.set(true);
    let answer = initialize();
    IS_INSIDE.set(false);
    Some(answer)
}

/// Ends the process if a call comes from within the library, where a driver may hang; unless an option allows it.
pub(crate) fn check(call: &Call) {
    if is_inside() && call.name != calls::cuDriverGetVersion.name && !control::options().inside_init {
        eprintln!("sim-cuda: {} inside of cuInit", call.name.to_string_lossy());
        std::process::abort();
    }
}
