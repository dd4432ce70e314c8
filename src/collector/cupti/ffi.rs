//! The functions of libcupti that are used, with safe ways to call them.
#![allow(unsafe_code, reason = "libcupti is foreign code")]

use super::error::CuptiError;
use crate::collector::library::functions;
use crate::collector::walk::{Unreadable, Walker};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};

/// Asks for an empty buffer: where it begins, its size, and how many records it may take (0: as many as fit).
pub(super) type Requested = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// Gives a buffer back: context, stream, where it begins, its size, how many bytes of it are records.
pub(super) type Completed = extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
/// Is told of calls: user data, domain, function, and what is known of the call.
pub(super) type OnCall = extern "C" fn(*mut c_void, u32, u32, *const c_void);

type Code = u32;

/// A subscription; whoever holds it keeps others out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Subscriber(usize);

/// Domains of functions.
pub(super) const DRIVER: u32 = 1;
pub(super) const RUNTIME: u32 = 2;

/// The kind of external ids that is ours: the first of those for profilers' own use.
const OWN_IDS: u32 = 3;
/// The attribute for buffers of each thread's own.
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
    enable_callback = c"cuptiEnableCallback": unsafe extern "C" fn(u32, *mut c_void, u32, u32) -> Code;
    enable_domain = c"cuptiEnableDomain": unsafe extern "C" fn(u32, *mut c_void, u32) -> Code;
    finalize = c"cuptiFinalize": unsafe extern "C" fn() -> Code;
    }
}

fn checked(code: Code) -> Result<(), CuptiError> {
    if code == 0 { Ok(()) } else { Err(CuptiError(code)) }
}

/// What a function says that this version does not have.
const NOT_IMPLEMENTED: Code = 11;

impl Api {
    pub(super) fn version(&self) -> Result<u32, CuptiError> {
        let mut version = 0;
        // SAFETY: the pointer is a valid place for the result.
        checked(unsafe { (self.get_version)(&raw mut version) }).map(|()| version)
    }

    /// Returns the time by the clock of the records; `None` if the library does not know it.
    pub(super) fn timestamp(&self) -> Option<u64> {
        let mut time = 0;
        // SAFETY: the pointer is a valid place for the result.
        let code = unsafe { (self.get_timestamp)(&raw mut time) };
        (code == 0 && time != 0).then_some(time)
    }

    pub(super) fn subscribe(&self, on_call: OnCall) -> Result<Subscriber, CuptiError> {
        let mut subscriber = null_mut();
        // SAFETY: the pointer is a valid place for the result, and the callback wants no user data.
        checked(unsafe { (self.subscribe)(&raw mut subscriber, on_call, null_mut()) })?;
        Ok(Subscriber(subscriber.expose_provenance()))
    }

    pub(super) fn unsubscribe(&self, subscriber: Subscriber) -> Result<(), CuptiError> {
        // SAFETY: the handle is the one that the library gave.
        checked(unsafe { (self.unsubscribe)(std::ptr::with_exposed_provenance_mut(subscriber.0)) })
    }

    /// Has the subscription's callback called at the calls of a domain.
    pub(super) fn enable_domain(&self, subscriber: Subscriber, domain: u32) -> Result<(), CuptiError> {
        let Some(call) = self.enable_domain else { return Err(CuptiError(NOT_IMPLEMENTED)) };
        // SAFETY: the handle is the one that the library gave.
        checked(unsafe { call(1, std::ptr::with_exposed_provenance_mut(subscriber.0), domain) })
    }

    /// Has the subscription's callback called at the calls of one function.
    pub(super) fn enable_call(&self, subscriber: Subscriber, domain: u32, function: u32) -> Result<(), CuptiError> {
        let Some(call) = self.enable_callback else { return Err(CuptiError(NOT_IMPLEMENTED)) };
        // SAFETY: the handle is the one that the library gave, and any number may be passed.
        checked(unsafe { call(1, std::ptr::with_exposed_provenance_mut(subscriber.0), domain, function) })
    }

    pub(super) fn register(&self, requested: Requested, completed: Completed) -> Result<(), CuptiError> {
        // SAFETY: the functions are never unloaded, and keep their promises at any time.
        checked(unsafe { (self.register_callbacks)(requested, completed) })
    }

    pub(super) fn enable(&self, kind: u32) -> Result<(), CuptiError> {
        // SAFETY: any number may be passed.
        checked(unsafe { (self.enable)(kind) })
    }

    pub(super) fn disable(&self, kind: u32) -> Result<(), CuptiError> {
        // SAFETY: any number may be passed.
        checked(unsafe { (self.disable)(kind) })
    }

    /// Has buffers handed over: those whose records are complete, or with `forced` all.
    pub(super) fn flush(&self, forced: bool) -> Result<(), CuptiError> {
        // SAFETY: it takes no pointer.
        checked(unsafe { (self.flush_all)(forced.into()) })
    }

    /// Returns how many records were dropped since this was asked last.
    pub(super) fn dropped(&self) -> u64 {
        let mut dropped = 0;
        // SAFETY: no context is named, and the pointer is a valid place for the result.
        let code = unsafe { (self.get_dropped)(null_mut(), 0, &raw mut dropped) };
        if code == 0 { dropped as u64 } else { 0 }
    }

    #[inline]
    pub(super) fn push(&self, id: u64) -> bool {
        // SAFETY: it takes no pointer.
        unsafe { (self.push_id)(OWN_IDS, id) == 0 }
    }

    /// Takes away the id that was pushed last on this thread; `false` if there is none.
    #[inline]
    pub(super) fn pop(&self) -> bool {
        let mut last = 0;
        // SAFETY: the pointer is a valid place for the result.
        unsafe { (self.pop_id)(OWN_IDS, &raw mut last) == 0 }
    }

    /// Returns the name of a function.
    pub(super) fn callback_name(&self, domain: u32, function: u32) -> Option<String> {
        let mut name = null();
        // SAFETY: the pointer is a valid place for the result.
        let code = unsafe { (self.get_callback_name?)(domain, function, &raw mut name) };
        if code != 0 || name.is_null() {
            return None;
        }
        // SAFETY: the library gives a C string of its own, which stays.
        Some(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }

    /// Says whether calls of a function are recorded, where that can be said.
    pub(super) fn record_calls(&self, domain: u32, function: u32, record: bool) {
        let call = if domain == DRIVER { self.enable_driver_api } else { self.enable_runtime_api };
        if let Some(call) = call {
            // SAFETY: any number may be passed. What cannot be switched off is left out when it is read.
            unsafe { call(function, record.into()) };
        }
    }

    /// Has events carry the time at which the device came to them, where the library can.
    pub(super) fn record_event_times(&self, record: bool) -> Result<(), CuptiError> {
        let Some(call) = self.enable_event_times else { return Err(CuptiError(NOT_IMPLEMENTED)) };
        // SAFETY: it takes no pointer.
        checked(unsafe { call(record.into()) })
    }

    /// Has each thread fill buffers of its own.
    pub(super) fn use_per_thread_buffers(&self) -> Result<(), CuptiError> {
        let Some(call) = self.set_attribute else { return Err(CuptiError(NOT_IMPLEMENTED)) };
        let (mut size, mut value) = (1usize, 1u8);
        // SAFETY: the value is of the size that is said, which is that of the attribute.
        checked(unsafe { call(PER_THREAD_BUFFERS, &raw mut size, (&raw mut value).cast()) })
    }

    /// Has the library let go of the driver. To be called when a call returns, from the subscription's callback.
    pub(super) fn finalize(&self) -> Result<(), CuptiError> {
        let Some(call) = self.finalize else { return Err(CuptiError(NOT_IMPLEMENTED)) };
        // SAFETY: it takes no pointer; the caller is where NVIDIA says that it is to be called.
        checked(unsafe { call() })
    }
}

impl Walker for Api {
    #[inline]
    fn next(&self, buffer: &[u8], at: Option<usize>) -> Result<Option<usize>, Unreadable> {
        let start = buffer.as_ptr();
        let mut record = at.map_or(null(), |at| start.wrapping_add(at));
        // SAFETY: the buffer is as long as is said, and the record is null or one that the library named.
        match unsafe { (self.get_next_record)(start, buffer.len(), &raw mut record) } {
            0 => Ok(Some(record.addr().wrapping_sub(start.addr()))),
            12 => Ok(None),
            _ => Err(Unreadable),
        }
    }
}
