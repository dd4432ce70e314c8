//! The exported functions: they check C arguments and contain panics.
#![allow(unsafe_code, reason = "the caller is foreign code")]

use super::control;
use super::injection;
use super::ranges::{self, EntryKind, RangeKind};
use super::status::{CStatus, CallError, with_last_error};
use std::borrow::Cow;
#[cfg(unix)]
use std::ffi::OsStr;
use std::ffi::{CStr, c_char, c_int};
#[cfg(unix)]
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use tracing_core::field::Value;

/// Runs a call, and keeps its error.
fn run_call(call: impl FnOnce() -> Result<(), CallError>) -> c_int {
    let panicked =
        |_| Err(CallError::new(CStatus::Panicked, "the call panicked, a defect of tracing-kineto; please report it"));
    let done = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(panicked);
    let status = done.map_or_else(
        |fault| {
            fault.store_as_last();
            fault.status
        },
        |()| CStatus::Ok,
    );
    status as c_int
}

/// Runs a call if the library is active; otherwise returns its state.
fn run_if_active(call: impl FnOnce() -> Result<(), CallError>) -> c_int {
    match control::library_state() {
        CStatus::Ok => run_call(call),
        other => other as c_int,
    }
}

/// Does the same for leaving a range, which is also possible after the shutdown.
fn run_range_exit(call: impl FnOnce() -> Result<(), CallError>) -> c_int {
    match control::library_state() {
        CStatus::ShutDown if ranges::is_inside() => run_call(call),
        _ => run_if_active(call),
    }
}

/// Reads a C string, which need not be UTF-8.
///
/// # Safety
/// `text` is null, or a C string that does not change during `'t`.
unsafe fn read_text<'t>(what: &str, text: *const c_char) -> Result<Cow<'t, str>, CallError> {
    // SAFETY: the caller upholds the contract, which is the same.
    let text = unsafe { read_c_str(what, text) }?;
    Ok(text.to_str().map_or_else(|_| text.to_string_lossy(), Cow::Borrowed))
}

/// Reads a C string without conversion.
///
/// # Safety
/// As for [`read_text`].
unsafe fn read_c_str<'t>(what: &str, text: *const c_char) -> Result<&'t CStr, CallError> {
    if text.is_null() {
        return Err(CallError::new(CStatus::BadArgument, format!("{what} is null; pass a C string")));
    }
    // SAFETY: `text` is not null, so by the caller's contract it is a C string for `'t`.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// # Safety
/// `key` is null or a C string.
unsafe fn add_argument(key: *const c_char, value: &dyn Value) -> c_int {
    run_if_active(|| {
        // SAFETY: by the caller's contract, `key` is null or a C string.
        let key = unsafe { read_text("the key", key) }?;
        ranges::add_argument(&key, value)
    })
}

#[unsafe(no_mangle)]
extern "C" fn tracing_kineto_version() -> *const c_char {
    const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => c"",
    };
    VERSION.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn tracing_kineto_last_error() -> *const c_char {
    let of_state = control::library_state().inactive_reason();
    let said = with_last_error(|said| if said.is_empty() { of_state.as_ptr() } else { said.as_ptr() });
    said.unwrap_or(of_state.as_ptr())
}

#[unsafe(no_mangle)]
extern "C" fn tracing_kineto_init() -> c_int {
    run_call(control::init)
}

#[unsafe(no_mangle)]
extern "C" fn tracing_kineto_shutdown() -> c_int {
    run_call(control::shutdown)
}

#[unsafe(no_mangle)]
extern "C" fn tracing_kineto_start() -> c_int {
    run_if_active(control::start_recording)
}

#[unsafe(no_mangle)]
extern "C" fn tracing_kineto_stop() -> c_int {
    run_if_active(control::stop_recording)
}

/// The function that CUDA's driver calls inside the first `cuInit`, if `CUDA_INJECTION64_PATH` names the library.
///
/// It always returns 1 for success, as libkineto does: the effect of other values is undocumented, and an error must not
/// affect the program.
#[unsafe(no_mangle)]
extern "C" fn InitializeInjection() -> c_int {
    run_call(|| {
        injection::initialize();
        Ok(())
    });
    1
}

/// # Safety
/// `path` is null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn tracing_kineto_save(path: *const c_char) -> c_int {
    run_if_active(|| {
        // SAFETY: by the caller's contract, `path` is null or a C string.
        let path = unsafe { read_c_str("the path", path) }?;
        #[cfg(unix)]
        let path = OsStr::from_bytes(path.to_bytes());
        #[cfg(not(unix))]
        let path = &*path.to_string_lossy();
        control::save_recording(Path::new(path))
    })
}

#[unsafe(no_mangle)]
extern "C" fn tracing_kineto_flush() -> c_int {
    run_if_active(control::flush_recording)
}

#[unsafe(no_mangle)]
extern "C" fn tracing_kineto_step() -> c_int {
    run_if_active(control::step)
}

#[unsafe(no_mangle)]
extern "C" fn tracing_kineto_is_recording() -> c_int {
    control::is_recording().into()
}

/// # Safety
/// Each is null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn tracing_kineto_metadata(key: *const c_char, json: *const c_char) -> c_int {
    run_if_active(|| {
        // SAFETY: by the caller's contract, `key` is null or a C string.
        let key = unsafe { read_text("the key", key) }?;
        // SAFETY: by the caller's contract, `json` is null or a C string.
        let json = unsafe { read_text("the value", json) }?;
        control::add_metadata(&key, &json)
    })
}

/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn tracing_kineto_push_range(name: *const c_char, kind: c_int) -> c_int {
    run_if_active(|| {
        // SAFETY: by the caller's contract, `name` is null or a C string.
        let name = unsafe { read_text("the name", name) }?;
        ranges::push_range(&name, RangeKind::from_number(kind)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn tracing_kineto_pop_range() -> c_int {
    run_range_exit(|| ranges::pop_entry(EntryKind::Range))
}

/// # Safety
/// `key` is null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn tracing_kineto_arg_int(key: *const c_char, value: i64) -> c_int {
    // SAFETY: by the caller's contract, `key` is null or a C string.
    unsafe { add_argument(key, &value) }
}

/// # Safety
/// `key` is null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn tracing_kineto_arg_double(key: *const c_char, value: f64) -> c_int {
    // SAFETY: by the caller's contract, `key` is null or a C string.
    unsafe { add_argument(key, &value) }
}

/// # Safety
/// `key` is null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn tracing_kineto_arg_bool(key: *const c_char, value: c_int) -> c_int {
    // SAFETY: by the caller's contract, `key` is null or a C string.
    unsafe { add_argument(key, &(value != 0)) }
}

/// # Safety
/// Each is null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn tracing_kineto_arg_string(key: *const c_char, value: *const c_char) -> c_int {
    run_if_active(|| {
        // SAFETY: by the caller's contract, `key` is null or a C string.
        let key = unsafe { read_text("the key", key) }?;
        // SAFETY: by the caller's contract, `value` is null or a C string.
        let value = unsafe { read_text("the value", value) }?;
        ranges::add_argument(&key, &&*value)
    })
}

#[unsafe(no_mangle)]
extern "C" fn tracing_kineto_push_correlation_id(id: u64) -> c_int {
    run_if_active(|| ranges::push_correlation_id(id))
}

#[unsafe(no_mangle)]
extern "C" fn tracing_kineto_pop_correlation_id() -> c_int {
    run_range_exit(|| ranges::pop_entry(EntryKind::CorrelationId))
}

/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn tracing_kineto_counter(name: *const c_char, value: f64) -> c_int {
    run_if_active(|| {
        // SAFETY: by the caller's contract, `name` is null or a C string.
        let name = unsafe { read_text("the name", name) }?;
        ranges::record_counter(&name, value);
        Ok(())
    })
}

/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn tracing_kineto_instant(name: *const c_char) -> c_int {
    run_if_active(|| {
        // SAFETY: by the caller's contract, `name` is null or a C string.
        let name = unsafe { read_text("the name", name) }?;
        ranges::record_instant(&name);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn header_declares_exactly_these_functions() {
        let names = |text: &str| -> BTreeSet<String> {
            let starts = text.match_indices("tracing_kineto_").map(|(at, _)| &text[at..]);
            let words = starts.filter_map(|rest| rest.split_once('('));
            let is_name = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            words.map(|(word, _)| word).filter(is_name).map(str::to_owned).collect()
        };
        let exports = include_str!("exports.rs").split("#[cfg(test)]").next().unwrap();
        let header = include_str!("../include/tracing_kineto.h");
        let ours: BTreeSet<_> = exports.split("extern \"C\" fn ").skip(1).flat_map(|rest| names(&rest[..60])).collect();
        assert!(ours.len() > 15);
        assert_eq!(names(header), ours);
    }
}
