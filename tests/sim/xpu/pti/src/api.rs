//! The functions that PTI exports, but for those about metrics.

use crate::code::{Code, Outcome, code_of, give, give_if_wanted};
use crate::courier::{Completed, Requested};
use crate::link::{need_driver, need_loader};
use crate::shared::apis;
use crate::{external, link, pool, stamps, texts, views, walker};
use sim_core::exports;
use std::ffi::{CStr, c_char};

/// `pti_version`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Version {
    major: u32,
    minor: u32,
    patch: u32,
}

/// A text, where there is a loader.
fn text(text: &'static CStr) -> *const c_char {
    need_loader().map_or(texts::INVALID, |_| text).as_ptr()
}

/// Passes from the version of that name on.
fn since(name: &str) -> Outcome {
    if link::options().pti.is_since(name) { Ok(()) } else { Err(Code::NOT_IMPLEMENTED) }
}

exports! {
    code_of as u32;

    /// The version, which needs no loader.
    fn ptiVersion() -> Version {
        let [major, minor, patch] = link::options().pti.number();
        Version { major, minor, patch }
    }

    fn ptiViewMemoryTypeToString(place: u32) -> *const c_char {
        text(texts::memory(place))
    }

    fn ptiViewMemcpyTypeToString(kind: u32) -> *const c_char {
        text(texts::copy(kind))
    }

    /// Now, as records are stamped; 0 without a loader.
    fn ptiViewGetTimestamp() -> u64 {
        need_driver().map_or(0, |()| stamps::now())
    }

    fn ptiViewSetCallbacks(requested: Option<Requested>, completed: Option<Completed>), by need_driver {
        let (Some(requested), Some(completed)) = (requested, completed) else { return Err(Code::BAD_ARGUMENT) };
        pool::register(requested, completed)
    }

    fn ptiViewEnable(kind: u32), by need_driver {
        views::enable(kind)
    }

    fn ptiViewDisable(kind: u32), by need_driver {
        views::disable(kind)
    }

    fn ptiFlushAllViews(), by need_driver {
        pool::flush()
    }

    fn ptiViewGetNextRecord(buffer: *mut u8, valid: usize, record: *mut *mut u8), by need_loader {
        walker::next(buffer, valid, record)
    }

    fn ptiViewPushExternalCorrelationId(kind: u32, id: u64), by need_driver {
        external::push(kind, id)
    }

    fn ptiViewPopExternalCorrelationId(kind: u32, place: *mut u64), by need_driver {
        let id = external::pop(kind)?;
        give_if_wanted(place, id)
    }

    fn ptiViewGetApiIdName(group: u32, id: u32, place: *mut *const c_char), by need_loader {
        since("0.12")?;
        if group == apis::OPEN_CL {
            return Err(Code::NOT_IMPLEMENTED);
        }
        give(place, apis::find(group, id).ok_or(Code::BAD_ARGUMENT)?.name.as_ptr())
    }

    fn ptiViewEnableRuntimeApiClass(enable: u32, class: u32, group: u32), by need_driver {
        since("0.12")?;
        views::set_runtime_class(enable != 0, class, group)
    }
}
