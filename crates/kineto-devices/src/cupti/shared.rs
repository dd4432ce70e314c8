//! Safe wrappers of the functions that a subscriber calls to share libcupti with other profilers: NVIDIA's `_v2` functions.
//!
//! Structures begin with their size, by which libcupti tells versions apart: the oldest size that has the fields in use is
//! sent. Functions that have a `_v2` form are called in that form alone: the others would return 14.
#![allow(unsafe_code, reason = "libcupti is foreign code")]

use super::error::CuptiError;
use super::ffi::{Handle, OWN_IDS, OnCall, check_result};
use crate::buffered::walk::Unreadable;
use crate::library::functions;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};

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
    subscribe = c"cuptiSubscribe_v2":
        unsafe extern "C" fn(*mut RawHandle, OnCall, *mut c_void, *mut SubscriberParams) -> Code;
    }
}

functions! {
    /// The functions of libcupti that take a subscriber.
    SharedApi
    required {
    register_callbacks = c"cuptiActivityRegisterCallbacks_v2":
        unsafe extern "C" fn(RawHandle, Requested, Completed) -> Code;
    enable = c"cuptiActivityEnable_v2": unsafe extern "C" fn(RawHandle, u32, *const ActivityConfig) -> Code;
    disable = c"cuptiActivityDisable_v2": unsafe extern "C" fn(RawHandle, u32, *const ActivityConfig) -> Code;
    set_attribute = c"cuptiActivitySetAttribute_v2":
        unsafe extern "C" fn(RawHandle, u32, *mut usize, *mut c_void) -> Code;
    get_next_record = c"cuptiActivityGetNextRecord_v2":
        unsafe extern "C" fn(RawHandle, *const u8, usize, *mut *const u8) -> Code;
    get_dropped = c"cuptiActivityGetNumDroppedRecords_v2":
        unsafe extern "C" fn(RawHandle, *mut c_void, u32, *mut usize) -> Code;
    get_timestamp = c"cuptiGetTimestamp_v2": unsafe extern "C" fn(RawHandle, *mut u64) -> Code;
    push_id = c"cuptiActivityPushExternalCorrelationId_v2": unsafe extern "C" fn(RawHandle, u32, u64) -> Code;
    pop_id = c"cuptiActivityPopExternalCorrelationId_v2": unsafe extern "C" fn(RawHandle, u32, *mut u64) -> Code;
    }
    optional {
    enable_driver_api = c"cuptiActivityEnableDriverApi_v2": unsafe extern "C" fn(RawHandle, u32, u8) -> Code;
    enable_runtime_api = c"cuptiActivityEnableRuntimeApi_v2": unsafe extern "C" fn(RawHandle, u32, u8) -> Code;
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

fn pointer(handle: Handle) -> RawHandle {
    std::ptr::with_exposed_provenance_mut(handle.0)
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

impl SharedApi {
    pub(super) fn register_callbacks(
        &self,
        subscriber: Handle,
        requested: Requested,
        completed: Completed,
    ) -> Result<(), CuptiError> {
        // SAFETY: the handle is a subscriber's; both functions are static, have CUPTI's types, and may run at any time.
        check_result(unsafe { (self.register_callbacks)(pointer(subscriber), requested, completed) })
    }

    /// Enables a kind: with these fields, or with all if none is named.
    pub(super) fn enable_kind(&self, subscriber: Handle, kind: u32, fields: &[i32]) -> Result<(), CuptiError> {
        let selection = FieldSelection { size: size_of::<FieldSelection>(), count: fields.len(), ids: fields.as_ptr() };
        let config = ActivityConfig { size: size_of::<ActivityConfig>(), fields: selection };
        let config = if fields.is_empty() { null() } else { &raw const config };
        // SAFETY: the handle is a subscriber's, and the configuration is null or valid during the call, with its fields.
        check_result(unsafe { (self.enable)(pointer(subscriber), kind, config) })
    }

    pub(super) fn disable_kind(&self, subscriber: Handle, kind: u32) {
        // SAFETY: the handle is a subscriber's, and the configuration may be null.
        let _ = unsafe { (self.disable)(pointer(subscriber), kind, null()) };
    }

    pub(super) fn set_attribute(&self, subscriber: Handle, attribute: Attribute, on: bool) -> Result<(), CuptiError> {
        let (mut size, mut value) = (1usize, u8::from(on));
        // SAFETY: the handle is a subscriber's, and the attributes in use are single bytes.
        let code = unsafe {
            (self.set_attribute)(pointer(subscriber), attribute as u32, &raw mut size, (&raw mut value).cast())
        };
        check_result(code)
    }

    #[inline]
    pub(super) fn next_record(
        &self,
        subscriber: Handle,
        buffer: &[u8],
        record: *const u8,
    ) -> Result<Option<*const u8>, Unreadable> {
        let mut record = record;
        // SAFETY: the handle is a subscriber's, the length is that of the buffer, and the record is null or a record that
        // the library returned.
        match unsafe { (self.get_next_record)(pointer(subscriber), buffer.as_ptr(), buffer.len(), &raw mut record) } {
            0 => Ok(Some(record)),
            12 => Ok(None),
            _ => Err(Unreadable),
        }
    }

    /// Returns how many records were dropped since the last call.
    pub(super) fn take_dropped_count(&self, subscriber: Handle) -> u64 {
        let mut dropped = 0;
        // SAFETY: the handle is a subscriber's, and the pointer is a valid place for a count.
        let code = unsafe { (self.get_dropped)(pointer(subscriber), null_mut(), 0, &raw mut dropped) };
        if code == 0 { dropped as u64 } else { 0 }
    }

    pub(super) fn timestamp(&self, subscriber: Handle) -> Option<u64> {
        let mut time = 0;
        // SAFETY: the handle is a subscriber's, and the pointer is a valid place for a timestamp.
        let code = unsafe { (self.get_timestamp)(pointer(subscriber), &raw mut time) };
        (code == 0 && time != 0).then_some(time)
    }

    #[inline]
    pub(super) fn push_id(&self, subscriber: Handle, id: u64) -> bool {
        // SAFETY: the handle is a subscriber's.
        unsafe { (self.push_id)(pointer(subscriber), OWN_IDS, id) == 0 }
    }

    #[inline]
    pub(super) fn pop_id(&self, subscriber: Handle) -> bool {
        let mut last = 0;
        // SAFETY: the handle is a subscriber's, and the pointer is a valid place for an id.
        unsafe { (self.pop_id)(pointer(subscriber), OWN_IDS, &raw mut last) == 0 }
    }

    /// Enables or disables records of a function, where this version can.
    pub(super) fn record_calls(&self, subscriber: Handle, of_driver: bool, function: u32, record: bool) {
        if let Some(call) = if of_driver { self.enable_driver_api } else { self.enable_runtime_api } {
            // SAFETY: the handle is a subscriber's. The reader drops functions that cannot be disabled.
            unsafe { call(pointer(subscriber), function, record.into()) };
        }
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
