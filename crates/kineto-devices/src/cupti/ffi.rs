//! Safe wrappers of the libcupti functions in use.
#![allow(unsafe_code, reason = "libcupti is foreign code")]

use super::error::CuptiError;
use crate::library::functions;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};

/// Requests an empty buffer. Arguments: its address, its size, and the most records it may take (0: no limit).
pub(super) type Requested = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// Returns a buffer. Arguments: context, stream, its address, its size, and the bytes of records in it.
pub(super) type Completed = extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
/// Receives calls. Arguments: user data, domain, function, and data of the call.
pub(super) type OnCall = extern "C" fn(*mut c_void, u32, u32, *const c_void);

type Code = u32;

/// CUPTI's handle of a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handle(pub(super) usize);

/// Callback domains.
pub(super) const DRIVER: u32 = 1;
pub(super) const RUNTIME: u32 = 2;

/// The kind of external ids that this crate uses: the first of those for profilers.
pub(super) const OWN_IDS: u32 = 3;

functions! {
    /// libcupti, with its functions.
    pub(super) Api
    required {
    get_version = c"cuptiGetVersion": fn(*mut u32) -> Code;
    get_timestamp = c"cuptiGetTimestamp": fn(*mut u64) -> Code;
    subscribe = c"cuptiSubscribe": fn(*mut *mut c_void, OnCall, *mut c_void) -> Code;
    unsubscribe = c"cuptiUnsubscribe": fn(*mut c_void) -> Code;
    register_callbacks = c"cuptiActivityRegisterCallbacks": fn(Requested, Completed) -> Code;
    enable = c"cuptiActivityEnable": fn(u32) -> Code;
    disable = c"cuptiActivityDisable": fn(u32) -> Code;
    flush_all = c"cuptiActivityFlushAll": fn(u32) -> Code;
    get_next_record = c"cuptiActivityGetNextRecord": fn(*const u8, usize, *mut *const u8) -> Code;
    get_dropped = c"cuptiActivityGetNumDroppedRecords": fn(*mut c_void, u32, *mut usize) -> Code;
    push_id = c"cuptiActivityPushExternalCorrelationId": fn(u32, u64) -> Code;
    pop_id = c"cuptiActivityPopExternalCorrelationId": fn(u32, *mut u64) -> Code;
    }
    optional {
    get_callback_name = c"cuptiGetCallbackName": fn(u32, u32, *mut *const c_char) -> Code;
    set_attribute = c"cuptiActivitySetAttribute": fn(u32, *mut usize, *mut c_void) -> Code;
    enable_driver_api = c"cuptiActivityEnableDriverApi": fn(u32, u8) -> Code;
    enable_runtime_api = c"cuptiActivityEnableRuntimeApi": fn(u32, u8) -> Code;
    enable_event_times = c"cuptiActivityEnableCudaEventDeviceTimestamps": fn(u8) -> Code;
    enable_hw_trace = c"cuptiActivityEnableHWTrace": fn(u8) -> Code;
    enable_callback = c"cuptiEnableCallback": fn(u32, *mut c_void, u32, u32) -> Code;
    enable_domain = c"cuptiEnableDomain": fn(u32, *mut c_void, u32) -> Code;
    finalize = c"cuptiFinalize": fn() -> Code;
    }
}

pub(super) fn check_result(code: Code) -> Result<(), CuptiError> {
    if code == 0 { Ok(()) } else { Err(CuptiError(code)) }
}

/// The code of functions that this version does not implement.
pub(super) const NOT_IMPLEMENTED: Code = 11;

impl Api {
    pub(super) fn version(&self) -> Result<u32, CuptiError> {
        let mut version = 0;
        // SAFETY: the pointer is a valid place for a version.
        check_result(unsafe { (self.get_version)(&raw mut version) }).map(|()| version)
    }

    pub(super) fn subscribe(&self, on_call: OnCall) -> Result<Handle, CuptiError> {
        let mut subscriber = null_mut();
        // SAFETY: the pointer is a valid place for a handle, and the callback ignores its null user data.
        check_result(unsafe { (self.subscribe)(&raw mut subscriber, on_call, null_mut()) })?;
        Ok(Handle(subscriber.expose_provenance()))
    }

    /// Makes CUPTI return buffers: those whose records are complete, or with `forced` all.
    pub(super) fn flush_buffers(&self, forced: bool) -> Result<(), CuptiError> {
        // SAFETY: it takes no pointer.
        check_result(unsafe { (self.flush_all)(forced.into()) })
    }

    /// Returns the name of a function.
    pub(super) fn callback_name(&self, domain: u32, function: u32) -> Option<String> {
        let mut name = null();
        // SAFETY: the pointer is a valid place for the name's address.
        let code = unsafe { (self.get_callback_name?)(domain, function, &raw mut name) };
        if code != 0 || name.is_null() {
            return None;
        }
        // SAFETY: the library returns a static C string.
        Some(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }

    /// Detaches the library from the driver. Call it in the subscription's callback, when a call returns.
    pub(super) fn finalize(&self) -> Result<(), CuptiError> {
        // SAFETY: it takes no pointer; the caller is in a callback at the exit of a call, as NVIDIA requires.
        check_result(self.finalize.map_or(NOT_IMPLEMENTED, |finalize| unsafe { finalize() }))
    }

    pub(super) fn timestamp(&self) -> Option<u64> {
        let mut time = 0;
        // SAFETY: the pointer is a valid place for a timestamp.
        let code = unsafe { (self.get_timestamp)(&raw mut time) };
        (code == 0 && time != 0).then_some(time)
    }
}
