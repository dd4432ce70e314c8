//! Safe wrappers of the functions that a subscriber calls to share libcupti with other profilers: NVIDIA's `_v2` functions.
//!
//! Structures begin with their size, by which libcupti tells versions apart: the oldest size that has the fields in use is
//! sent. Functions that have a `_v2` form are called in that form alone: the others would return 14.
#![allow(unsafe_code, reason = "libcupti is foreign code")]

use super::error::CuptiError;
use super::ffi::{Handle, OnCall, check_result};
use crate::library::functions;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;

type Code = u32;
type RawHandle = *mut c_void;

/// Requests an empty buffer. The last argument has no content in use.
pub(super) type Requested = extern "C" fn(*mut *mut u8, *mut usize, *mut usize, *const c_void);
/// Returns a buffer: its address, its size, the bytes of records in it, and their layouts.
pub(super) type Completed = extern "C" fn(*mut u8, usize, usize, *const BufferInfo);

/// The first version that is used so. 13.3 has the functions; its first release crashes where several profilers enable kinds at
/// once, and it cannot leave out calls from records with selected fields.
pub(super) const SINCE: u32 = 130_400;

functions! {
    /// The function that subscribes by name; version 13.0 has it, without those of [`SharedApi`].
    NamedApi
    required {
    subscribe = c"cuptiSubscribe_v2": fn(*mut RawHandle, OnCall, *mut c_void, *mut SubscriberParams) -> Code;
    }
}

functions! {
    /// The functions of libcupti that take a subscriber.
    pub(super) SharedApi
    required {
    register_callbacks = c"cuptiActivityRegisterCallbacks_v2": fn(RawHandle, Requested, Completed) -> Code;
    enable = c"cuptiActivityEnable_v2": fn(RawHandle, u32, *const ActivityConfig) -> Code;
    disable = c"cuptiActivityDisable_v2": fn(RawHandle, u32, *const ActivityConfig) -> Code;
    set_attribute = c"cuptiActivitySetAttribute_v2": fn(RawHandle, u32, *mut usize, *mut c_void) -> Code;
    get_next_record = c"cuptiActivityGetNextRecord_v2": fn(RawHandle, *const u8, usize, *mut *const u8) -> Code;
    get_dropped = c"cuptiActivityGetNumDroppedRecords_v2": fn(RawHandle, *mut c_void, u32, *mut usize) -> Code;
    get_timestamp = c"cuptiGetTimestamp_v2": fn(RawHandle, *mut u64) -> Code;
    push_id = c"cuptiActivityPushExternalCorrelationId_v2": fn(RawHandle, u32, u64) -> Code;
    pop_id = c"cuptiActivityPopExternalCorrelationId_v2": fn(RawHandle, u32, *mut u64) -> Code;
    }
    optional {
    enable_driver_api = c"cuptiActivityEnableDriverApi_v2": fn(RawHandle, u32, u8) -> Code;
    enable_runtime_api = c"cuptiActivityEnableRuntimeApi_v2": fn(RawHandle, u32, u8) -> Code;
    }
}

/// The name of this subscriber.
const OWN_NAME: &CStr = c"tracing-kineto";
/// libcupti's name of a subscriber that has given none.
const UNNAMED: &str = "<not provided>";
/// The most bytes of a subscriber's name that libcupti writes.
const NAME_BYTES: usize = 64;

/// `CUpti_SubscriberParams`.
#[derive(Debug)]
#[repr(C)]
pub(super) struct SubscriberParams {
    size: usize,
    name: *const c_char,
    other_name: *mut c_char,
    other_name_bytes: usize,
    allows_others: u8,
}

/// The size of [`SubscriberParams`] before version 13.2, which added the last field.
const PARAMS_BEFORE_13_2: usize = 32;

/// `CUpti_ActivityConfig` of version 13.3.
#[derive(Debug)]
#[repr(C)]
pub(super) struct ActivityConfig {
    size: usize,
    fields: FieldSelection,
}

impl ActivityConfig {
    /// Selects fields by their numbers, which must outlive it.
    pub(super) fn new(fields: &[i32]) -> ActivityConfig {
        let fields = FieldSelection { size: size_of::<FieldSelection>(), count: fields.len(), ids: fields.as_ptr() };
        ActivityConfig { size: size_of::<ActivityConfig>(), fields }
    }
}

#[derive(Debug)]
#[repr(C)]
struct FieldSelection {
    size: usize,
    count: usize,
    ids: *const i32,
}

/// `CUpti_BufferCallbackCompleteInfo`.
#[derive(Debug)]
#[repr(C)]
pub(super) struct BufferInfo {
    size: usize,
    thread: u64,
    /// By the number of the kind; null for kinds that are disabled.
    layouts: *const *const RawLayout,
    layout_count: usize,
}

#[derive(Debug)]
#[repr(C)]
struct RawLayout {
    size: usize,
    fields: *const FieldLayout,
    field_count: usize,
    record_bytes: usize,
}

/// Where a field is in the records of a kind.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct FieldLayout {
    size: usize,
    pub(super) id: i32,
    pub(super) at: usize,
    pub(super) bytes: usize,
    alignment: usize,
}

/// Sizes of structures need not be set.
impl PartialEq for FieldLayout {
    fn eq(&self, other: &FieldLayout) -> bool {
        (self.id, self.at, self.bytes) == (other.id, other.at, other.bytes)
    }
}

impl Eq for FieldLayout {}

#[cfg(test)]
impl FieldLayout {
    pub(super) fn of(id: i32, at: usize, bytes: usize) -> FieldLayout {
        FieldLayout { size: size_of::<FieldLayout>(), id, at, bytes, alignment: bytes }
    }
}

/// Attributes of a subscriber.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(super) enum Attribute {
    PerThreadBuffers = 9,
    /// Records have the fields that are selected when their kind is enabled.
    UserDefinedRecords = 11,
    HardwareTimes = 13,
    /// Queries that failed are recorded as waits too, as they always were by the first version.
    AllWaits = 16,
    EventTimes = 17,
}

impl NamedApi {
    /// Subscribes, with `allows_others` next to other profilers that allow it too. Also returns the name of the first
    /// subscriber, if libcupti tells that of another one.
    pub(super) fn subscribe(
        &self,
        on_call: OnCall,
        version: u32,
        allows_others: bool,
    ) -> (Result<Handle, CuptiError>, Option<String>) {
        let mut subscriber = null_mut();
        let mut other = [0u8; NAME_BYTES];
        let mut params = SubscriberParams {
            size: if version < 130_200 { PARAMS_BEFORE_13_2 } else { size_of::<SubscriberParams>() },
            name: OWN_NAME.as_ptr(),
            other_name: other.as_mut_ptr().cast(),
            other_name_bytes: other.len(),
            allows_others: allows_others.into(),
        };
        // SAFETY: the handle's place is valid, the callback ignores its null user data, the structure has at least the
        // stated size, and both its texts are valid during the call.
        let code = unsafe { (self.subscribe)(&raw mut subscriber, on_call, null_mut(), &raw mut params) };
        let other = CStr::from_bytes_until_nul(&other).unwrap_or_default().to_string_lossy();
        let other = other.strip_prefix("CUPTI for ").unwrap_or(&other);
        // Its own name comes back if it is the first one.
        let is_own = code == 0 && other.as_bytes() == OWN_NAME.to_bytes();
        let is_named = !other.is_empty() && other != UNNAMED && !is_own;
        (check_result(code).map(|()| Handle(subscriber.expose_provenance())), is_named.then(|| other.to_owned()))
    }
}

/// Calls `each` with the layouts of a buffer: the kind, the bytes of a record, and its fields.
///
/// # Safety
/// The pointer is null, or what libcupti passed to a [`Completed`] callback that has not returned.
pub(super) unsafe fn each_layout(info: *const BufferInfo, mut each: impl FnMut(u32, usize, &[FieldLayout])) {
    /// More kinds, and more fields of a kind, than any version has.
    const MOST: usize = 1024;
    // SAFETY: the caller passes null or a valid structure.
    let Some(info) = (unsafe { info.as_ref() }) else { return };
    if info.layouts.is_null() || info.layout_count > MOST {
        return;
    }
    // SAFETY: libcupti states the number of pointers.
    let layouts = unsafe { std::slice::from_raw_parts(info.layouts, info.layout_count) };
    for (kind, layout) in (0..).zip(layouts) {
        // SAFETY: each pointer is null or that of a layout.
        let Some(layout) = (unsafe { layout.as_ref() }) else { continue };
        if !layout.fields.is_null() && layout.field_count <= MOST {
            // SAFETY: libcupti states the number of fields.
            each(kind, layout.record_bytes, unsafe { std::slice::from_raw_parts(layout.fields, layout.field_count) });
        }
    }
}
