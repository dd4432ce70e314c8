//! The functions themselves: arguments of C looked at, panics kept in.
#![allow(unsafe_code, reason = "who calls is foreign code")]

use super::control;
use super::injection;
use super::ranges::{self, Kind, Way};
use super::status::{Fault, Status, last};
use std::borrow::Cow;
#[cfg(unix)]
use std::ffi::OsStr;
use std::ffi::{CStr, c_char, c_int};
#[cfg(unix)]
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use tracing_core::field::Value;

/// Does what may fail, and keeps why it has.
fn answer(call: impl FnOnce() -> Result<(), Fault>) -> c_int {
    let panicked = |_| Err(Fault::new(Status::Panicked, "a panic was caught: that is a defect of tracing-kineto"));
    let done = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(panicked);
    let status = done.map_or_else(
        |fault| {
            fault.keep();
            fault.status
        },
        |()| Status::Ok,
    );
    status as c_int
}

/// The same while the library is at work; else there is nothing to do.
fn at_work(call: impl FnOnce() -> Result<(), Fault>) -> c_int {
    match control::state() {
        Status::Ok => answer(call),
        other => other as c_int,
    }
}

/// The same for what a thread has come into before: it goes out of it after the shutdown too.
fn inside(call: impl FnOnce() -> Result<(), Fault>) -> c_int {
    match control::state() {
        Status::ShutDown if ranges::is_inside() => answer(call),
        _ => at_work(call),
    }
}

/// Reads a text of C's, which need not be UTF-8.
///
/// # Safety
/// Null, or a text that ends with a zero and stays as it is for `'t`.
unsafe fn text<'t>(what: &str, text: *const c_char) -> Result<Cow<'t, str>, Fault> {
    // SAFETY: as the caller says.
    let text = unsafe { bytes(what, text) }?;
    Ok(text.to_str().map_or_else(|_| text.to_string_lossy(), Cow::Borrowed))
}

/// The same, as it is.
///
/// # Safety
/// The same.
unsafe fn bytes<'t>(what: &str, text: *const c_char) -> Result<&'t CStr, Fault> {
    if text.is_null() {
        return Err(Fault::new(Status::BadArgument, format!("{what} is null")));
    }
    // SAFETY: as the caller says.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// # Safety
/// `key` is null or a C string.
unsafe fn argument(key: *const c_char, value: &dyn Value) -> c_int {
    at_work(|| {
        // SAFETY: as the caller says.
        let key = unsafe { text("the key", key) }?;
        ranges::argument(&key, value)
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
    let of_state = control::state().sentence();
    let said = last(|said| if said.is_empty() { of_state.as_ptr() } else { said.as_ptr() });
    said.unwrap_or(of_state.as_ptr())
}

#[unsafe(no_mangle)]
extern "C" fn tracing_kineto_init() -> c_int {
    answer(control::init)
}

#[unsafe(no_mangle)]
extern "C" fn tracing_kineto_shutdown() -> c_int {
    answer(control::shutdown)
}

#[unsafe(no_mangle)]
extern "C" fn tracing_kineto_start() -> c_int {
    at_work(control::start)
}

#[unsafe(no_mangle)]
extern "C" fn tracing_kineto_stop() -> c_int {
    at_work(control::stop)
}

/// What CUDA's driver calls if `CUDA_INJECTION64_PATH` names the library, inside of the program's first `cuInit`.
///
/// 1 says that all is well. It is returned whatever comes of it, as libkineto does: what a driver makes of another answer is
/// documented nowhere, and the program is not to suffer.
#[unsafe(no_mangle)]
extern "C" fn InitializeInjection() -> c_int {
    answer(|| {
        injection::initialize();
        Ok(())
    });
    1
}

/// # Safety
/// `path` is null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn tracing_kineto_save(path: *const c_char) -> c_int {
    at_work(|| {
        // SAFETY: as the caller says.
        let path = unsafe { bytes("the path", path) }?;
        #[cfg(unix)]
        let path = OsStr::from_bytes(path.to_bytes());
        #[cfg(not(unix))]
        let path = &*path.to_string_lossy();
        control::save(Path::new(path))
    })
}

#[unsafe(no_mangle)]
extern "C" fn tracing_kineto_flush() -> c_int {
    at_work(control::flush)
}

#[unsafe(no_mangle)]
extern "C" fn tracing_kineto_step() -> c_int {
    at_work(control::step)
}

#[unsafe(no_mangle)]
extern "C" fn tracing_kineto_is_recording() -> c_int {
    control::is_recording().into()
}

/// # Safety
/// Each is null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn tracing_kineto_metadata(key: *const c_char, json: *const c_char) -> c_int {
    at_work(|| {
        // SAFETY: as the caller says.
        let key = unsafe { text("the key", key) }?;
        // SAFETY: as the caller says.
        let json = unsafe { text("the value", json) }?;
        control::metadata(&key, &json)
    })
}

/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn tracing_kineto_push_range(name: *const c_char, kind: c_int) -> c_int {
    at_work(|| {
        // SAFETY: as the caller says.
        let name = unsafe { text("the name", name) }?;
        ranges::push(&name, Kind::from_number(kind)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn tracing_kineto_pop_range() -> c_int {
    inside(|| ranges::pop(Way::Range))
}

/// # Safety
/// `key` is null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn tracing_kineto_arg_int(key: *const c_char, value: i64) -> c_int {
    // SAFETY: as the caller says.
    unsafe { argument(key, &value) }
}

/// # Safety
/// `key` is null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn tracing_kineto_arg_double(key: *const c_char, value: f64) -> c_int {
    // SAFETY: as the caller says.
    unsafe { argument(key, &value) }
}

/// # Safety
/// `key` is null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn tracing_kineto_arg_bool(key: *const c_char, value: c_int) -> c_int {
    // SAFETY: as the caller says.
    unsafe { argument(key, &(value != 0)) }
}

/// # Safety
/// Each is null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn tracing_kineto_arg_string(key: *const c_char, value: *const c_char) -> c_int {
    at_work(|| {
        // SAFETY: as the caller says.
        let key = unsafe { text("the key", key) }?;
        // SAFETY: as the caller says.
        let value = unsafe { text("the value", value) }?;
        ranges::argument(&key, &&*value)
    })
}

#[unsafe(no_mangle)]
extern "C" fn tracing_kineto_push_correlation_id(id: u64) -> c_int {
    at_work(|| ranges::push_correlation_id(id))
}

#[unsafe(no_mangle)]
extern "C" fn tracing_kineto_pop_correlation_id() -> c_int {
    inside(|| ranges::pop(Way::CorrelationId))
}

/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn tracing_kineto_counter(name: *const c_char, value: f64) -> c_int {
    at_work(|| {
        // SAFETY: as the caller says.
        let name = unsafe { text("the name", name) }?;
        ranges::counter(&name, value);
        Ok(())
    })
}

/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn tracing_kineto_instant(name: *const c_char) -> c_int {
    at_work(|| {
        // SAFETY: as the caller says.
        let name = unsafe { text("the name", name) }?;
        ranges::instant(&name);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn the_header_declares_these_functions_and_no_others() {
        let names = |text: &str| -> BTreeSet<String> {
            let starts = text.match_indices("tracing_kineto_").map(|(at, _)| &text[at..]);
            let words = starts.filter_map(|rest| rest.split_once('('));
            let is_name = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            words.map(|(word, _)| word).filter(is_name).map(str::to_owned).collect()
        };
        let exports = include_str!("exports.rs").split("#[cfg(test)]").next().unwrap();
        let header = include_str!("../../include/tracing_kineto.h");
        let ours: BTreeSet<_> = exports.split("extern \"C\" fn ").skip(1).flat_map(|rest| names(&rest[..60])).collect();
        assert!(ours.len() > 15);
        assert_eq!(names(header), ours);
    }
}
