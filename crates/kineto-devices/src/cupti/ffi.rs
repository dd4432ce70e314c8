//! Safe wrappers of the libcupti functions in use.
#![allow(unsafe_code, reason = "libcupti is foreign code")]

use super::error::CuptiError;
use crate::buffered::walk::Unreadable;
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
/// The attribute that gives each thread its own buffers.
const PER_THREAD_BUFFERS: u32 = 9;

functions! {
    /// libcupti, with its functions.
    Api
    required {
    get_version = c"cuptiGetVersion": unsafe extern "C" fn(*mut u32) -> Code;
    get_timestamp = c"cuptiGetTimestamp": unsafe extern "C" fn(*mut u64) -> Code;
    subscribe = c"cuptiSubscribe": unsafe extern "C" fn(*mut *mut c_void, OnCall, *mut c_void) -> Code;
    unsubscribe = c"cuptiUnsubscribe": unsafe extern "C" fn(*mut c_void) -> Code;
    register_callbacks = c"cuptiActivityRegisterCallbacks": unsafe extern "C" fn(Requested, Completed) -> Code;
    enable = c"cuptiActivityEnable": unsafe extern "C" fn(u32) -> Code;
    disable = c"cuptiActivityDisable": unsafe extern "C" fn(u32) -> Code;
    flush_all = c"cuptiActivityFlushAll": unsafe extern "C" fn(u32) -> Code;
    get_next_record = c"cuptiActivityGetNextRecord": unsafe extern "C" fn(*const u8, usize, *mut *const u8) -> Code;
    get_dropped = c"cuptiActivityGetNumDroppedRecords": unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> Code;
    push_id = c"cuptiActivityPushExternalCorrelationId": unsafe extern "C" fn(u32, u64) -> Code;
    pop_id = c"cuptiActivityPopExternalCorrelationId": unsafe extern "C" fn(u32, *mut u64) -> Code;
    }
    optional {
    get_callback_name = c"cuptiGetCallbackName": unsafe extern "C" fn(u32, u32, *mut *const c_char) -> Code;
    set_attribute = c"cuptiActivitySetAttribute": unsafe extern "C" fn(u32, *mut usize, *mut c_void) -> Code;
    enable_driver_api = c"cuptiActivityEnableDriverApi": unsafe extern "C" fn(u32, u8) -> Code;
    enable_runtime_api = c"cuptiActivityEnableRuntimeApi": unsafe extern "C" fn(u32, u8) -> Code;
    enable_event_times = c"cuptiActivityEnableCudaEventDeviceTimestamps": unsafe extern "C" fn(u8) -> Code;
    enable_hw_trace = c"cuptiActivityEnableHWTrace": unsafe extern "C" fn(u8) -> Code;
    enable_callback = c"cuptiEnableCallback": unsafe extern "C" fn(u32, *mut c_void, u32, u32) -> Code;
    enable_domain = c"cuptiEnableDomain": unsafe extern "C" fn(u32, *mut c_void, u32) -> Code;
    finalize = c"cuptiFinalize": unsafe extern "C" fn() -> Code;
    }
}

pub(super) fn check_result(code: Code) -> Result<(), CuptiError> {
    if code == 0 { Ok(()) } else { Err(CuptiError(code)) }
}

/// The code of functions that this version does not implement.
const NOT_IMPLEMENTED: Code = 11;

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

    pub(super) fn unsubscribe(&self, subscriber: Handle) -> Result<(), CuptiError> {
        // SAFETY: `cuptiSubscribe` returned the handle.
        check_result(unsafe { (self.unsubscribe)(std::ptr::with_exposed_provenance_mut(subscriber.0)) })
    }

    /// Enables the subscription's callback for all functions of a domain.
    pub(super) fn enable_domain(&self, subscriber: Handle, domain: u32) -> Result<(), CuptiError> {
        let Some(call) = self.enable_domain else { return Err(CuptiError(NOT_IMPLEMENTED)) };
        // SAFETY: `cuptiSubscribe` returned the handle.
        check_result(unsafe { call(1, std::ptr::with_exposed_provenance_mut(subscriber.0), domain) })
    }

    /// Enables the subscription's callback for a function.
    pub(super) fn enable_call(&self, subscriber: Handle, domain: u32, function: u32) -> Result<(), CuptiError> {
        let Some(call) = self.enable_callback else { return Err(CuptiError(NOT_IMPLEMENTED)) };
        // SAFETY: `cuptiSubscribe` returned the handle, and CUPTI checks the numbers.
        check_result(unsafe { call(1, std::ptr::with_exposed_provenance_mut(subscriber.0), domain, function) })
    }

    pub(super) fn register_callbacks(&self, requested: Requested, completed: Completed) -> Result<(), CuptiError> {
        // SAFETY: both functions are static, have CUPTI's types, and may run at any time.
        check_result(unsafe { (self.register_callbacks)(requested, completed) })
    }

    /// Makes CUPTI return buffers: those whose records are complete, or with `forced` all.
    pub(super) fn flush_buffers(&self, forced: bool) -> Result<(), CuptiError> {
        // SAFETY: it takes no pointer.
        check_result(unsafe { (self.flush_all)(forced.into()) })
    }

    /// Returns how many records were dropped since the last call.
    pub(super) fn take_dropped_count(&self) -> u64 {
        let mut dropped = 0;
        // SAFETY: a null context means all, and the pointer is a valid place for a count.
        let code = unsafe { (self.get_dropped)(null_mut(), 0, &raw mut dropped) };
        if code == 0 { dropped as u64 } else { 0 }
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

    /// Enables or disables records of a function, where this version can.
    pub(super) fn record_calls(&self, domain: u32, function: u32, record: bool) {
        let call = if domain == DRIVER { self.enable_driver_api } else { self.enable_runtime_api };
        if let Some(call) = call {
            // SAFETY: CUPTI checks the numbers. The reader drops functions that cannot be disabled.
            unsafe { call(function, record.into()) };
        }
    }

    /// Adds device timestamps to event records, where the library can.
    pub(super) fn record_event_times(&self, record: bool) -> Result<(), CuptiError> {
        let Some(call) = self.enable_event_times else { return Err(CuptiError(NOT_IMPLEMENTED)) };
        // SAFETY: it takes no pointer.
        check_result(unsafe { call(record.into()) })
    }

    /// Takes the times of device work from the hardware, for the rest of the process.
    pub(super) fn use_hardware_times(&self) -> Result<(), CuptiError> {
        let Some(call) = self.enable_hw_trace else { return Err(CuptiError(NOT_IMPLEMENTED)) };
        // SAFETY: it takes no pointer.
        check_result(unsafe { call(1) })
    }

    /// Gives each thread its own buffers.
    pub(super) fn use_per_thread_buffers(&self) -> Result<(), CuptiError> {
        let Some(call) = self.set_attribute else { return Err(CuptiError(NOT_IMPLEMENTED)) };
        let (mut size, mut value) = (1usize, 1u8);
        // SAFETY: the size is that of the value, which is the attribute's type.
        check_result(unsafe { call(PER_THREAD_BUFFERS, &raw mut size, (&raw mut value).cast()) })
    }

    /// Detaches the library from the driver. Call it in the subscription's callback, when a call returns.
    pub(super) fn finalize(&self) -> Result<(), CuptiError> {
        let Some(call) = self.finalize else { return Err(CuptiError(NOT_IMPLEMENTED)) };
        // SAFETY: it takes no pointer; the caller is in a callback at the exit of a call, as NVIDIA requires.
        check_result(unsafe { call() })
    }

    pub(super) fn enable_kind(&self, kind: u32) -> Result<(), CuptiError> {
        // SAFETY: CUPTI checks the number.
        check_result(unsafe { (self.enable)(kind) })
    }

    pub(super) fn disable_kind(&self, kind: u32) {
        // SAFETY: CUPTI checks the number.
        let _ = unsafe { (self.disable)(kind) };
    }

    pub(super) fn timestamp(&self) -> Option<u64> {
        let mut time = 0;
        // SAFETY: the pointer is a valid place for a timestamp.
        let code = unsafe { (self.get_timestamp)(&raw mut time) };
        (code == 0 && time != 0).then_some(time)
    }

    #[inline]
    pub(super) fn push_id(&self, id: u64) -> bool {
        // SAFETY: it takes no pointer.
        unsafe { (self.push_id)(OWN_IDS, id) == 0 }
    }

    #[inline]
    pub(super) fn pop_id(&self) -> bool {
        let mut last = 0;
        // SAFETY: the pointer is a valid place for an id.
        unsafe { (self.pop_id)(OWN_IDS, &raw mut last) == 0 }
    }

    /// Returns the record of a buffer after `record`, or the first for null.
    #[inline]
    pub(super) fn next_record(&self, buffer: &[u8], record: *const u8) -> Result<Option<*const u8>, Unreadable> {
        let mut record = record;
        // SAFETY: the length is that of the buffer, and the record is null or a record that the library returned.
        match unsafe { (self.get_next_record)(buffer.as_ptr(), buffer.len(), &raw mut record) } {
            0 => Ok(Some(record)),
            12 => Ok(None),
            _ => Err(Unreadable),
        }
    }
}
