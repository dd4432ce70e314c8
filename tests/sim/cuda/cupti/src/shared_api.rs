//! The exported functions that take a subscriber.

use crate::attributes::hardware_times;
use crate::client::{self, Client};
use crate::code::{Code, Outcome, code_of, give, give_if_wanted, need_driver, need_driver_from_13_2, since};
use crate::delivery::{Callbacks, SharedCompleted, SharedRequested};
use crate::shared::tracer::{DRIVER_API, RUNTIME_API};
use crate::subscriber::{self, Callback};
use crate::{external, link, walker, writer};
use sim_core::exports;
use std::ffi::{CStr, c_char, c_void};

/// `CUpti_SubscriberParams`.
#[derive(Debug)]
#[repr(C)]
pub struct SubscriberParams {
    size: usize,
    name: *const c_char,
    other_name: *mut c_char,
    other_name_bytes: usize,
    /// Since 13.2.
    allows_others: u8,
}

/// `CUpti_ActivityConfig` of 13.3.
#[derive(Debug)]
#[repr(C)]
pub struct ActivityConfig {
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

/// Attributes.
const OWN_RECORDS: u32 = 11;
const EVENT_TIMES: u32 = 17;
const HARDWARE_TIMES: u32 = 13;
/// Single bytes, which nothing here obeys.
const SWITCHES: [u32; 9] = [5, 8, 9, 14, 15, 16, 18, 19, 20];

fn find(subscriber: usize) -> Outcome<&'static Client> {
    need_driver()?;
    since("13.3")?;
    let all = client::subscribers();
    all.iter().find(|client| client.handle == subscriber).copied().ok_or(Code::INVALID_PARAMETER)
}

impl SubscriberParams {
    /// Checks the size, which the version must know.
    fn check(&self) -> Outcome {
        let sizes: &[usize] = if link::options().cupti.is_since("13.2") { &[24, 32, 40] } else { &[32] };
        if sizes.contains(&self.size) { Ok(()) } else { Err(Code::INVALID_PARAMETER) }
    }

    fn write_other_name(&self, name: &str) {
        if self.other_name.is_null() || self.other_name_bytes == 0 {
            return;
        }
        let length = name.len().min(self.other_name_bytes - 1);
        // SAFETY: the caller states how many bytes there are.
        unsafe { std::ptr::copy_nonoverlapping(name.as_ptr(), self.other_name.cast(), length) };
        // SAFETY: as above.
        unsafe { self.other_name.add(length).write(0) };
    }
}

exports! {
    code_of as i32;

    fn cuptiSubscribe_v2(
        subscriber: *mut usize,
        callback: Option<Callback>,
        user: *mut c_void,
        params: *mut SubscriberParams,
    ), by need_driver {
        since("13.0")?;
        // SAFETY: the caller passes null or a structure with the size that it states.
        let params = unsafe { params.as_ref() };
        params.map_or(Ok(()), SubscriberParams::check)?;
        let allows_others = params.is_some_and(|params| params.size >= 40 && params.allows_others != 0);
        let name = params.map(|params| params.name).filter(|name| !name.is_null());
        // SAFETY: the caller passes a C string.
        let name = name.map_or("<not provided>".into(), |name| unsafe { CStr::from_ptr(name) }.to_string_lossy());
        let (outcome, other) = subscriber::subscribe_by_name(callback, user, &name, allows_others);
        if let (Some(params), Some(other)) = (params, other) {
            params.write_other_name(&other);
        }
        give(subscriber, outcome?)
    }

    fn cuptiActivityRegisterCallbacks_v2(
        subscriber: usize,
        requested: Option<SharedRequested>,
        completed: Option<SharedCompleted>,
    ) {
        let client = find(subscriber)?;
        let (Some(requested), Some(completed)) = (requested, completed) else { return Err(Code::INVALID_PARAMETER) };
        client.register(Callbacks::Shared(requested, completed));
        Ok(())
    }

    fn cuptiActivityEnable_v2(subscriber: usize, kind: u32, config: *const ActivityConfig) {
        let client = find(subscriber)?;
        // SAFETY: the caller passes null or a structure.
        let ids = match unsafe { config.as_ref() } {
            None => &[],
            Some(config) if config.size < size_of::<ActivityConfig>() => return Err(Code::INVALID_PARAMETER),
            // SAFETY: the caller states the number of fields.
            Some(config) => unsafe { std::slice::from_raw_parts(config.fields.ids, config.fields.count) },
        };
        // Attribute 20, which nothing sets here, decides for the process whether graphs are one record; by default not.
        if kind == crate::layout::kind::GRAPH_TRACE {
            return Err(Code::NOT_COMPATIBLE);
        }
        client.selected_fields.select(kind, ids)?;
        client.activity.enable(kind)
    }

    fn cuptiActivityDisable_v2(subscriber: usize, kind: u32, _config: *const ActivityConfig) {
        find(subscriber)?.activity.disable(kind)
    }

    fn cuptiActivitySetAttribute_v2(subscriber: usize, attribute: u32, size: *mut usize, value: *mut c_void) {
        let client = find(subscriber)?;
        if size.is_null() || value.is_null() {
            return Err(Code::INVALID_PARAMETER);
        }
        // SAFETY: the caller passes the size and a place of one byte at least.
        let on = unsafe { value.cast::<u8>().read() } != 0;
        match attribute {
            OWN_RECORDS if client.activity.is_any_enabled() => return Err(Code::INVALID_OPERATION),
            OWN_RECORDS => client.selected_fields.set(on),
            HARDWARE_TIMES => hardware_times()?,
            EVENT_TIMES => client.activity.set_event_times(on),
            _ if SWITCHES.contains(&attribute) => {}
            _ => return Err(Code::INVALID_PARAMETER),
        }
        Ok(())
    }

    fn cuptiActivityGetNextRecord_v2(subscriber: usize, buffer: *mut u8, valid: usize, record: *mut *mut u8) {
        walker::next(find(subscriber)?, buffer, valid, record)
    }

    fn cuptiActivityGetNumDroppedRecords_v2(subscriber: usize, _context: u64, _stream: u32, dropped: *mut usize) {
        give(dropped, find(subscriber)?.pool.take_dropped())
    }

    fn cuptiGetTimestamp_v2(subscriber: usize, timestamp: *mut u64) {
        find(subscriber)?;
        Code::unless(link::options().shared_timestamp_error)?;
        give(timestamp, writer::timestamp())
    }

    fn cuptiActivityPushExternalCorrelationId_v2(subscriber: usize, kind: u32, id: u64) {
        external::push(find(subscriber)?, kind, id)
    }

    fn cuptiActivityPopExternalCorrelationId_v2(subscriber: usize, kind: u32, last: *mut u64) {
        let id = external::pop(find(subscriber)?, kind)?;
        give_if_wanted(last, id)
    }

    fn cuptiActivityEnableDriverApi_v2(subscriber: usize, cbid: u32, enable: u8) {
        find(subscriber)?.activity.set_call(DRIVER_API, cbid, enable != 0);
        Ok(())
    }

    fn cuptiActivityEnableRuntimeApi_v2(subscriber: usize, cbid: u32, enable: u8), by need_driver_from_13_2 {
        find(subscriber)?.activity.set_call(RUNTIME_API, cbid, enable != 0);
        Ok(())
    }
}
