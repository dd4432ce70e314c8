//! Safe wrappers of the libpti_view functions in use.
#![allow(unsafe_code, reason = "libpti_view is foreign code")]

use super::error::PtiError;
use super::names::PtiNames;
use crate::buffered::recording::RecordingApi;
use crate::buffered::walk::{Unreadable, Walker};
use crate::library::{Library, functions};
use std::ffi::{CStr, c_char};
use std::fmt;
use std::ptr::null;

/// Requests an empty buffer. Arguments: its address, and its size.
pub(super) type Requested = extern "C" fn(*mut *mut u8, *mut usize);
/// Returns a buffer. Arguments: its address, its size, and the bytes of records in it.
pub(super) type Completed = extern "C" fn(*mut u8, usize, usize);

type Code = u32;

/// A version of PTI: major, minor, patch.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(pub(super) u32, pub(super) u32, pub(super) u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// The kind of external ids that this crate uses.
pub(super) const OWN_IDS: u32 = 2;
/// The class of calls that put work on a device, in all runtimes.
const WORK_OF_DEVICES: u32 = 1;
const ALL_GROUPS: u32 = 0x7fff_ffff;

functions! {
    /// libpti_view, with its functions.
    Api
    required {
    set_callbacks = c"ptiViewSetCallbacks": fn(Requested, Completed) -> Code;
    enable = c"ptiViewEnable": fn(u32) -> Code;
    disable = c"ptiViewDisable": fn(u32) -> Code;
    flush_all = c"ptiFlushAllViews": fn() -> Code;
    get_next_record = c"ptiViewGetNextRecord": fn(*const u8, usize, *mut *const u8) -> Code;
    push_id = c"ptiViewPushExternalCorrelationId": fn(u32, u64) -> Code;
    pop_id = c"ptiViewPopExternalCorrelationId": fn(u32, *mut u64) -> Code;
    get_api_name = c"ptiViewGetApiIdName": fn(u32, u32, *mut *const c_char) -> Code;
    enable_class = c"ptiViewEnableRuntimeApiClass": fn(u32, u32, u32) -> Code;
    memory_name = c"ptiViewMemoryTypeToString": fn(u32) -> *const c_char;
    copy_name = c"ptiViewMemcpyTypeToString": fn(u32) -> *const c_char;
    get_timestamp = c"ptiViewGetTimestamp": fn() -> u64;
    }
}

pub(super) fn check_result(code: Code) -> Result<(), PtiError> {
    if code == 0 { Ok(()) } else { Err(PtiError(code)) }
}

functions! {
    /// The function that may be called before the driver has answered.
    VersionApi
    required {
    get_version = c"ptiVersion": fn() -> Version;
    }
}

/// Returns the version of a library whose other functions may be missing, or may not be called yet.
pub(super) fn library_version(library: Library) -> Option<Version> {
    let VersionApi { get_version } = VersionApi::new(library).ok()?;
    // SAFETY: it takes no arguments, and returns constants.
    Some(unsafe { get_version() })
}

/// Copies a text of the library.
fn copy_text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the library returns a static C string.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

impl Api {
    /// Makes the library fill buffers of this crate. It requests the first buffer at once.
    pub(super) fn set_callbacks(&self, requested: Requested, completed: Completed) -> Result<(), PtiError> {
        // SAFETY: both functions are static, have PTI's types, and may run at any time.
        check_result(unsafe { (self.set_callbacks)(requested, completed) })
    }

    pub(super) fn enable_view(&self, view: u32) -> Result<(), PtiError> {
        // SAFETY: PTI checks the number.
        check_result(unsafe { (self.enable)(view) })
    }

    pub(super) fn disable_view(&self, view: u32) -> Result<(), PtiError> {
        // SAFETY: PTI checks the number.
        check_result(unsafe { (self.disable)(view) })
    }

    /// Limits the records of a runtime's calls to those that put work on a device.
    pub(super) fn record_launches(&self) -> Result<(), PtiError> {
        // SAFETY: PTI checks the numbers.
        check_result(unsafe { (self.enable_class)(1, WORK_OF_DEVICES, ALL_GROUPS) })
    }

    /// Makes PTI return all buffers with records.
    pub(super) fn flush_buffers(&self) -> Result<(), PtiError> {
        // SAFETY: it takes no arguments.
        check_result(unsafe { (self.flush_all)() })
    }
}

impl PtiNames for &'static Api {
    fn function_name(&self, group: u32, function: u32) -> Option<String> {
        let mut name = null();
        // SAFETY: the pointer is a valid place for the name's address.
        let code = unsafe { (self.get_api_name)(group, function, &raw mut name) };
        if code == 0 { copy_text(name) } else { None }
    }

    fn memory_name(&self, kind: u32) -> Option<String> {
        // SAFETY: PTI checks the number.
        copy_text(unsafe { (self.memory_name)(kind) })
    }

    fn copy_name(&self, kind: u32) -> Option<String> {
        // SAFETY: PTI checks the number.
        copy_text(unsafe { (self.copy_name)(kind) })
    }
}

impl RecordingApi for &'static Api {
    fn timestamp(&self) -> Option<u64> {
        // SAFETY: it takes no arguments.
        Some(unsafe { (self.get_timestamp)() }).filter(|time| *time != 0)
    }

    #[inline]
    fn push_id(&self, id: u64) -> bool {
        // SAFETY: it takes no pointer.
        unsafe { (self.push_id)(OWN_IDS, id) == 0 }
    }

    #[inline]
    fn pop_id(&self) -> bool {
        let mut last = 0;
        // SAFETY: the pointer is a valid place for an id.
        unsafe { (self.pop_id)(OWN_IDS, &raw mut last) == 0 }
    }
}

impl Walker for Api {
    fn next_offset(&self, buffer: &[u8], at: Option<usize>) -> Result<Option<usize>, Unreadable> {
        const END: u32 = 1;
        let start = buffer.as_ptr();
        let mut record = at.map_or(null(), |at| start.wrapping_add(at));
        // SAFETY: the length is that of the buffer, and the record is null or a record that the library returned.
        match unsafe { (self.get_next_record)(start, buffer.len(), &raw mut record) } {
            0 => Ok(Some(record.addr().wrapping_sub(start.addr()))),
            END => Ok(None),
            _ => Err(Unreadable),
        }
    }
}
