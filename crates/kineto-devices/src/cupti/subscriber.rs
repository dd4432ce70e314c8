//! A subscriber of libcupti, of either version.
//!
//! NVIDIA has two sets of functions. Those of the first version are for one subscriber in a process. Those whose names end
//! in `_v2` take a subscriber, and let several profilers record at the same time; a process that has used them cannot return
//! to the others.

use super::error::{BUSY, CuptiError};
use super::ffi::{Api, DRIVER, Handle, OnCall};
use super::hub::HUB;
use super::selected_fields;
use super::shared::{Attribute, NamedApi, SharedApi};
use super::{callbacks, holders, range};
use crate::Unavailable;
use crate::buffered::kinds::KindSwitch;
use crate::buffered::recording::RecordingApi;
use crate::buffered::walk::{Unreadable, Walker};
use std::ptr::null;
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
                        let _ = shared.set_attribute(handle, Attribute::AllWaits, true);
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
            let _ = self.api.unsubscribe(handle);
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

    /// Selects records that have only the fields that are read, or all. Call it while no kind is enabled.
    pub(super) fn select_fields(&mut self, on: bool) {
        let set = |shared: &SharedApi| shared.set_attribute(self.handle, Attribute::UserDefinedRecords, on).is_ok();
        self.selects_fields = self.shared.is_some_and(set) && on;
    }

    /// Enables the callback for all functions of a domain.
    pub(super) fn enable_domain(&self, domain: u32) -> Result<(), CuptiError> {
        self.api.enable_domain(self.handle, domain)
    }

    /// Enables the callback for a function.
    pub(super) fn enable_call(&self, domain: u32, function: u32) -> Result<(), CuptiError> {
        self.api.enable_call(self.handle, domain, function)
    }

    pub(super) fn unsubscribe(&self) -> Result<(), CuptiError> {
        self.api.unsubscribe(self.handle)
    }

    /// Registers the callbacks that request and return buffers; returns the function's name with an error.
    pub(super) fn register_callbacks(&self) -> Result<(), (&'static str, CuptiError)> {
        match self.shared {
            Some(shared) => shared
                .register_callbacks(self.handle, callbacks::on_shared_request, callbacks::on_shared_complete)
                .map_err(|error| ("cuptiActivityRegisterCallbacks_v2", error)),
            None => self
                .api
                .register_callbacks(callbacks::on_request, callbacks::on_complete)
                .map_err(|error| ("cuptiActivityRegisterCallbacks", error)),
        }
    }

    /// Returns how many records were dropped since the last call.
    pub(super) fn take_dropped_count(&self) -> u64 {
        match self.shared {
            Some(shared) => shared.take_dropped_count(self.handle),
            None => self.api.take_dropped_count(),
        }
    }

    /// Enables or disables records of a function, where this version can.
    pub(super) fn record_calls(&self, domain: u32, function: u32, record: bool) {
        match self.shared {
            Some(shared) => shared.record_calls(self.handle, domain == DRIVER, function, record),
            None => self.api.record_calls(domain, function, record),
        }
    }

    /// Adds device timestamps to event records, where the library can.
    pub(super) fn record_event_times(&self, record: bool) -> Result<(), CuptiError> {
        match self.shared {
            Some(shared) => shared.set_attribute(self.handle, Attribute::EventTimes, record),
            None => self.api.record_event_times(record),
        }
    }

    /// Takes the times of device work from the hardware, for the rest of the process.
    pub(super) fn use_hardware_times(&self) -> Result<(), CuptiError> {
        match self.shared {
            Some(shared) => shared.set_attribute(self.handle, Attribute::HardwareTimes, true),
            None => self.api.use_hardware_times(),
        }
    }

    /// Gives each thread its own buffers.
    pub(super) fn use_per_thread_buffers(&self) -> Result<(), CuptiError> {
        match self.shared {
            Some(shared) => shared.set_attribute(self.handle, Attribute::PerThreadBuffers, true),
            None => self.api.use_per_thread_buffers(),
        }
    }
}

impl KindSwitch for Subscriber {
    type Error = CuptiError;

    fn enable_kind(&self, kind: u32) -> Result<(), CuptiError> {
        match self.shared {
            Some(shared) => {
                let fields = if self.selects_fields { selected_fields::numbers_of(kind) } else { Vec::new() };
                shared.enable_kind(self.handle, kind, &fields)
            }
            None => self.api.enable_kind(kind),
        }
    }

    fn disable_kind(&self, kind: u32) {
        match self.shared {
            Some(shared) => shared.disable_kind(self.handle, kind),
            None => self.api.disable_kind(kind),
        }
    }
}

impl RecordingApi for Subscriber {
    fn timestamp(&self) -> Option<u64> {
        match self.shared {
            Some(shared) => shared.timestamp(self.handle),
            None => self.api.timestamp(),
        }
    }

    #[inline]
    fn push_id(&self, id: u64) -> bool {
        match self.shared {
            Some(shared) => shared.push_id(self.handle, id),
            None => self.api.push_id(id),
        }
    }

    #[inline]
    fn pop_id(&self) -> bool {
        match self.shared {
            Some(shared) => shared.pop_id(self.handle),
            None => self.api.pop_id(),
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
        let start = buffer.as_ptr();
        let record = at.map_or(null(), |at| start.wrapping_add(at));
        let next = match self.shared {
            Some(shared) => shared.next_record(self.handle, buffer, record),
            None => self.api.next_record(buffer, record),
        };
        next.map(|next| next.map(|next| next.addr().wrapping_sub(start.addr())))
    }
}
