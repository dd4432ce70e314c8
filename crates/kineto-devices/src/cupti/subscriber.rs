//! A subscriber of libcupti, of either version.
//!
//! NVIDIA has two sets of functions. Those of the first version are for one subscriber in a process. Those whose names end
//! in `_v2` take a subscriber, and let several profilers record at the same time; a process that has used them cannot return
//! to the others.
#![allow(unsafe_code, reason = "libcupti is foreign code")]

use super::error::{BUSY, CuptiError};
use super::ffi::{Api, DRIVER, Handle, NOT_IMPLEMENTED, OWN_IDS, OnCall, check_result};
use super::hub::HUB;
use super::selected_fields;
use super::shared::{ActivityConfig, Attribute, NamedApi, SharedApi};
use super::{callbacks, holders, range};
use crate::Unavailable;
use crate::buffered::kinds::KindSwitch;
use crate::buffered::recording::RecordingApi;
use crate::buffered::walk::{Unreadable, Walker};
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};

/// The functions by which libcupti can be subscribed to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interfaces {
    pub(super) version: u32,
    pub(super) api: &'static Api,
    pub(super) named: Option<&'static NamedApi>,
    /// `None` if this version cannot share libcupti, or must not.
    pub(super) shared: Option<&'static SharedApi>,
}

/// A subscriber, by which a recording calls libcupti.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subscriber {
    pub(super) api: &'static Api,
    /// Set if other profilers may record at the same time.
    shared: Option<&'static SharedApi>,
    handle: Handle,
    /// Whether records have only the fields that are read.
    selects_fields: bool,
}

/// Whether this process has recorded by the functions that share libcupti.
static HAS_SHARED: AtomicBool = AtomicBool::new(false);

impl Interfaces {
    /// Subscribes, with `exclusive` as the only profiler; also returns the name of the profiler that libcupti is shared with.
    ///
    /// # Errors
    /// Why not, with the name of the subscriber that excludes others.
    pub(super) fn subscribe(
        &self,
        on_call: OnCall,
        exclusive: bool,
    ) -> Result<(Subscriber, Option<String>), Unavailable> {
        let has_shared = HAS_SHARED.load(Ordering::Relaxed);
        if let (Some(named), Some(shared), true) = (self.named, self.shared, !exclusive || has_shared) {
            match named.subscribe(on_call, self.version, !exclusive) {
                (Ok(handle), other) => {
                    let subscriber = Subscriber::new(self.api, Some(shared), handle);
                    // Some drivers accept the subscriber, and refuse all else.
                    if subscriber.timestamp().is_some() {
                        HAS_SHARED.store(true, Ordering::Relaxed);
                        let _ = subscriber.set_attribute(Attribute::AllWaits, true);
                        return Ok((subscriber, other));
                    }
                    let _ = subscriber.unsubscribe();
                    if has_shared {
                        return Err(refusal("cuptiGetTimestamp_v2", CuptiError(999), None));
                    }
                }
                // The functions of the first version would return the same.
                (Err(BUSY), other) => {
                    let holder = other.or_else(|| self.exclusive_holder(on_call));
                    return Err(refusal("cuptiSubscribe_v2", BUSY, holder));
                }
                (Err(error), _) if has_shared => return Err(refusal("cuptiSubscribe_v2", error, None)),
                (Err(_), _) => {}
            }
        }
        let handle = self.api.subscribe(on_call).map_err(|error| {
            let holder = if error == BUSY { self.exclusive_holder(on_call) } else { None };
            refusal("cuptiSubscribe", error, holder)
        })?;
        Ok((Subscriber::new(self.api, None, handle), None))
    }

    /// Returns the name of the subscriber that excludes others. CUPTI tells it only to a subscriber that would exclude others.
    fn exclusive_holder(&self, on_call: OnCall) -> Option<String> {
        let (outcome, other) = self.named?.subscribe(on_call, self.version, false);
        if let Ok(handle) = outcome {
            // The other one has unsubscribed in the meantime.
            let _ = Subscriber::new(self.api, None, handle).unsubscribe();
        }
        other
    }
}

/// Makes the reason why a subscription failed.
fn refusal(during: &str, error: CuptiError, holder: Option<String>) -> Unavailable {
    let holder = holder.map_or_else(holders::describe_subscribers, |name| format!("`{name}`"));
    error.to_unavailable(during, &holder)
}

impl Subscriber {
    fn new(api: &'static Api, shared: Option<&'static SharedApi>, handle: Handle) -> Subscriber {
        Subscriber { api, shared, handle, selects_fields: false }
    }

    /// Returns whether it is subscribed by the functions that let others subscribe.
    pub(super) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    pub(super) fn selects_fields(&self) -> bool {
        self.selects_fields
    }

    /// Returns the handle as the library takes it.
    fn raw_handle(&self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.handle.0)
    }

    /// Selects records that have only the fields that are read, or all. Call it while no kind is enabled.
    pub(super) fn select_fields(&mut self, on: bool) {
        self.selects_fields = self.is_shared() && self.set_attribute(Attribute::UserDefinedRecords, on).is_ok() && on;
    }

    /// Sets an attribute, each of which is a single byte.
    fn set_attribute(&self, attribute: Attribute, on: bool) -> Result<(), CuptiError> {
        let (mut size, mut value) = (1usize, u8::from(on));
        let (number, size, value) = (attribute as u32, &raw mut size, (&raw mut value).cast());
        check_result(match self.shared {
            // SAFETY: the handle is a subscriber's, and the size is that of the value, which is the attribute's type.
            Some(shared) => unsafe { (shared.set_attribute)(self.raw_handle(), number, size, value) },
            // SAFETY: the size is that of the value, which is the attribute's type.
            None => self.api.set_attribute.map_or(NOT_IMPLEMENTED, |set| unsafe { set(number, size, value) }),
        })
    }

    /// Enables the callback for all functions of a domain.
    pub(super) fn enable_domain(&self, domain: u32) -> Result<(), CuptiError> {
        let Some(enable) = self.api.enable_domain else { return Err(CuptiError(NOT_IMPLEMENTED)) };
        // SAFETY: the handle is a subscriber's, and CUPTI checks the number.
        check_result(unsafe { enable(1, self.raw_handle(), domain) })
    }

    /// Enables the callback for a function.
    pub(super) fn enable_call(&self, domain: u32, function: u32) -> Result<(), CuptiError> {
        let Some(enable) = self.api.enable_callback else { return Err(CuptiError(NOT_IMPLEMENTED)) };
        // SAFETY: the handle is a subscriber's, and CUPTI checks the numbers.
        check_result(unsafe { enable(1, self.raw_handle(), domain, function) })
    }

    pub(super) fn unsubscribe(&self) -> Result<(), CuptiError> {
        // SAFETY: the handle is a subscriber's.
        check_result(unsafe { (self.api.unsubscribe)(self.raw_handle()) })
    }

    /// Registers the callbacks that request and return buffers; returns the function's name with an error.
    pub(super) fn register_callbacks(&self) -> Result<(), (&'static str, CuptiError)> {
        let (name, code) = if let Some(shared) = self.shared {
            let (requested, completed) = (callbacks::on_shared_request, callbacks::on_shared_complete);
            // SAFETY: the handle is a subscriber's; both functions are static, have CUPTI's types, and may run at any time.
            let code = unsafe { (shared.register_callbacks)(self.raw_handle(), requested, completed) };
            ("cuptiActivityRegisterCallbacks_v2", code)
        } else {
            // SAFETY: both functions are static, have CUPTI's types, and may run at any time.
            let code = unsafe { (self.api.register_callbacks)(callbacks::on_request, callbacks::on_complete) };
            ("cuptiActivityRegisterCallbacks", code)
        };
        check_result(code).map_err(|error| (name, error))
    }

    /// Returns how many records were dropped since the last call.
    pub(super) fn take_dropped_count(&self) -> u64 {
        let (all, mut dropped) = (null_mut(), 0);
        let code = match self.shared {
            // SAFETY: the handle is a subscriber's, a null context means all, and the place of the count is valid.
            Some(shared) => unsafe { (shared.get_dropped)(self.raw_handle(), all, 0, &raw mut dropped) },
            // SAFETY: a null context means all, and the place of the count is valid.
            None => unsafe { (self.api.get_dropped)(all, 0, &raw mut dropped) },
        };
        if code == 0 { dropped as u64 } else { 0 }
    }

    /// Enables or disables records of a function, where this version can. The reader drops functions that it cannot disable.
    pub(super) fn record_calls(&self, domain: u32, function: u32, record: bool) {
        let is_driver = domain == DRIVER;
        if let Some(shared) = self.shared {
            let call = if is_driver { shared.enable_driver_api } else { shared.enable_runtime_api };
            // SAFETY: the handle is a subscriber's, and CUPTI checks the number.
            call.map(|call| unsafe { call(self.raw_handle(), function, record.into()) });
        } else {
            let call = if is_driver { self.api.enable_driver_api } else { self.api.enable_runtime_api };
            // SAFETY: CUPTI checks the number.
            call.map(|call| unsafe { call(function, record.into()) });
        }
    }

    /// Adds device timestamps to event records, where the library can.
    pub(super) fn record_event_times(&self, record: bool) -> Result<(), CuptiError> {
        if self.is_shared() {
            return self.set_attribute(Attribute::EventTimes, record);
        }
        // SAFETY: it takes no pointer.
        check_result(self.api.enable_event_times.map_or(NOT_IMPLEMENTED, |call| unsafe { call(record.into()) }))
    }

    /// Takes the times of device work from the hardware, for the rest of the process.
    pub(super) fn use_hardware_times(&self) -> Result<(), CuptiError> {
        if self.is_shared() {
            return self.set_attribute(Attribute::HardwareTimes, true);
        }
        // SAFETY: it takes no pointer.
        check_result(self.api.enable_hw_trace.map_or(NOT_IMPLEMENTED, |call| unsafe { call(1) }))
    }

    /// Gives each thread its own buffers.
    pub(super) fn use_per_thread_buffers(&self) -> Result<(), CuptiError> {
        self.set_attribute(Attribute::PerThreadBuffers, true)
    }
}

impl KindSwitch for Subscriber {
    type Error = CuptiError;

    fn enable_kind(&self, kind: u32) -> Result<(), CuptiError> {
        let Some(shared) = self.shared else {
            // SAFETY: CUPTI checks the number.
            return check_result(unsafe { (self.api.enable)(kind) });
        };
        let fields = if self.selects_fields { selected_fields::numbers_of(kind) } else { Vec::new() };
        let config = ActivityConfig::new(&fields);
        let config = if fields.is_empty() { null() } else { &raw const config };
        // SAFETY: the handle is a subscriber's, and the configuration is null or valid during the call, with its fields.
        check_result(unsafe { (shared.enable)(self.raw_handle(), kind, config) })
    }

    fn disable_kind(&self, kind: u32) {
        let _ = match self.shared {
            // SAFETY: the handle is a subscriber's, and the configuration may be null.
            Some(shared) => unsafe { (shared.disable)(self.raw_handle(), kind, null()) },
            // SAFETY: CUPTI checks the number.
            None => unsafe { (self.api.disable)(kind) },
        };
    }
}

impl RecordingApi for Subscriber {
    fn timestamp(&self) -> Option<u64> {
        let Some(shared) = self.shared else { return self.api.timestamp() };
        let mut time = 0;
        // SAFETY: the handle is a subscriber's, and the pointer is a valid place for a timestamp.
        let code = unsafe { (shared.get_timestamp)(self.raw_handle(), &raw mut time) };
        (code == 0 && time != 0).then_some(time)
    }

    #[inline]
    fn push_id(&self, id: u64) -> bool {
        match self.shared {
            // SAFETY: the handle is a subscriber's.
            Some(shared) => unsafe { (shared.push_id)(self.raw_handle(), OWN_IDS, id) == 0 },
            // SAFETY: it takes no pointer.
            None => unsafe { (self.api.push_id)(OWN_IDS, id) == 0 },
        }
    }

    #[inline]
    fn pop_id(&self) -> bool {
        let mut last = 0;
        match self.shared {
            // SAFETY: the handle is a subscriber's, and the pointer is a valid place for an id.
            Some(shared) => unsafe { (shared.pop_id)(self.raw_handle(), OWN_IDS, &raw mut last) == 0 },
            // SAFETY: the pointer is a valid place for an id.
            None => unsafe { (self.api.pop_id)(OWN_IDS, &raw mut last) == 0 },
        }
    }

    fn begin_annotation(&self, slice: u64) {
        HUB.begin_annotation(slice);
    }

    fn end_annotation(&self) {
        range::end_annotation();
    }
}

impl Walker for Subscriber {
    #[inline]
    fn next_offset(&self, buffer: &[u8], at: Option<usize>) -> Result<Option<usize>, Unreadable> {
        const END: u32 = 12;
        let (start, length) = (buffer.as_ptr(), buffer.len());
        let mut record = at.map_or(null(), |at| start.wrapping_add(at));
        let code = match self.shared {
            // SAFETY: the handle is a subscriber's, the length is that of the buffer, and the record is null or a record
            // that the library returned.
            Some(shared) => unsafe { (shared.get_next_record)(self.raw_handle(), start, length, &raw mut record) },
            // SAFETY: the length is that of the buffer, and the record is null or a record that the library returned.
            None => unsafe { (self.api.get_next_record)(start, length, &raw mut record) },
        };
        match code {
            0 => Ok(Some(record.addr().wrapping_sub(start.addr()))),
            END => Ok(None),
            _ => Err(Unreadable),
        }
    }
}
