//! The functions that PTI exports, but for those about metrics.

use crate::code::{self, Code, Outcome, give};
use crate::courier::{Completed, Requested};
use crate::link::{need_driver, need_loader};
use crate::shared::apis::{self, LEVEL_ZERO, SYCL};
use crate::shared::options::PtiVersion;
use crate::stamps::Timestamp;
use crate::{external, link, pool, stamps, texts, views, walker};
use std::ffi::{CStr, c_char};

/// Functions that return a result.
macro_rules! export {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)+) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($argument: $type),*) -> u32 {
            let serve = || -> $crate::code::Outcome { $body };
            serve().map_or_else(|$crate::code::Code(code)| code, |()| 0)
        }
    )+};
}
pub(crate) use export;

/// `pti_version`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Version {
    major: u32,
    minor: u32,
    patch: u32,
}

/// The version, which needs no loader.
#[unsafe(no_mangle)]
pub extern "C" fn ptiVersion() -> Version {
    let [major, minor, patch] = link::options().pti.number();
    Version { major, minor, patch }
}

/// The version as text.
#[unsafe(no_mangle)]
pub extern "C" fn ptiVersionString() -> *const c_char {
    const TEXTS: [&CStr; PtiVersion::ALL.len()] = [
        c"0.10.3", c"0.11.0", c"0.12.4", c"0.13.1", c"0.14.0", c"0.15.0", c"0.16.0", c"0.17.0", c"1.0.0", c"1.1.0",
        c"1.2.0", c"2.0.0",
    ];
    TEXTS[link::options().pti.0].as_ptr()
}

/// A text, where there is a loader.
fn text(text: &'static CStr) -> *const c_char {
    need_loader().map_or(texts::INVALID, |_| text).as_ptr()
}

/// The name of a result.
#[unsafe(no_mangle)]
pub extern "C" fn ptiResultTypeToString(result: u32) -> *const c_char {
    text(code::name(result).unwrap_or(texts::INVALID))
}

#[unsafe(no_mangle)]
pub extern "C" fn ptiViewOverheadKindToString(kind: u32) -> *const c_char {
    text(texts::overhead(kind))
}

#[unsafe(no_mangle)]
pub extern "C" fn ptiViewMemoryTypeToString(place: u32) -> *const c_char {
    text(texts::memory(place))
}

#[unsafe(no_mangle)]
pub extern "C" fn ptiViewMemcpyTypeToString(kind: u32) -> *const c_char {
    text(texts::copy(kind))
}

/// Now, as records are stamped; 0 without a loader.
#[unsafe(no_mangle)]
pub extern "C" fn ptiViewGetTimestamp() -> u64 {
    need_driver().map_or(0, |()| stamps::now())
}

/// Passes from the version of that name on.
fn since(name: &str) -> Outcome {
    if link::options().pti.is_since(name) { Ok(()) } else { Err(Code::NOT_IMPLEMENTED) }
}

export! {
    fn ptiViewSetCallbacks(requested: Option<Requested>, completed: Option<Completed>) {
        need_driver()?;
        let (Some(requested), Some(completed)) = (requested, completed) else { return Err(Code::BAD_ARGUMENT) };
        pool::register(requested, completed)
    }

    fn ptiViewEnable(kind: u32) {
        need_driver()?;
        views::enable(kind)
    }

    fn ptiViewDisable(kind: u32) {
        need_driver()?;
        views::disable(kind)
    }

    /// The simulated devices can be recorded at any time.
    fn ptiViewGPULocalAvailable() {
        need_driver()
    }

    fn ptiFlushAllViews() {
        need_driver()?;
        pool::flush()
    }

    fn ptiViewGetNextRecord(buffer: *mut u8, valid: usize, record: *mut *mut u8) {
        need_loader()?;
        walker::next(buffer, valid, record)
    }

    fn ptiViewPushExternalCorrelationId(kind: u32, id: u64) {
        need_driver()?;
        external::push(kind, id)
    }

    fn ptiViewPopExternalCorrelationId(kind: u32, place: *mut u64) {
        need_driver()?;
        let id = external::pop(kind)?;
        if place.is_null() { Ok(()) } else { give(place, id) }
    }

    fn ptiViewSetTimestampCallback(timestamp: Option<Timestamp>) {
        need_driver()?;
        stamps::use_clock(timestamp.ok_or(Code::BAD_ARGUMENT)?)
    }

    fn ptiViewGetApiIdName(group: u32, id: u32, place: *mut *const c_char) {
        need_loader()?;
        since("0.12")?;
        if group == apis::OPEN_CL {
            return Err(Code::NOT_IMPLEMENTED);
        }
        give(place, apis::find(group, id).ok_or(Code::BAD_ARGUMENT)?.name.as_ptr())
    }

    fn ptiViewEnableRuntimeApi(enable: u32, group: u32, id: u32) {
        need_driver()?;
        since("0.12")?;
        let is_known = group == SYCL || group == apis::ALL_GROUPS;
        if is_known { views::set(enable != 0, SYCL, id) } else { Err(Code::BAD_ARGUMENT) }
    }

    fn ptiViewEnableDriverApi(enable: u32, group: u32, id: u32) {
        need_driver()?;
        since("0.12")?;
        let is_known = group == LEVEL_ZERO || group == apis::ALL_GROUPS;
        if is_known { views::set(enable != 0, LEVEL_ZERO, id) } else { Err(Code::BAD_ARGUMENT) }
    }

    fn ptiViewEnableRuntimeApiClass(enable: u32, class: u32, group: u32) {
        need_driver()?;
        since("0.12")?;
        views::set_runtime_class(enable != 0, class, group)
    }

    fn ptiViewEnableDriverApiClass(enable: u32, class: u32, group: u32) {
        need_driver()?;
        since("0.12")?;
        views::set_driver_class(enable != 0, class, group)
    }
}
