//! The functions that CUPTI exports.

use crate::client::{self, Client};
use crate::code::{Code, Outcome, code_of, give, give_if_wanted, need_driver, need_driver_from_13_2, since};
use crate::delivery::{self, Callbacks, Completed, Requested};
use crate::pm::ranges;
use crate::shared::calls;
use crate::shared::tracer::{DRIVER_API, RUNTIME_API};
use crate::subscriber::{self, Callback};
use crate::{attributes, external, link, pool, walker, writer};
use sim_core::exports;
use std::ffi::{c_char, c_void};

/// The flag of a flush that takes unfinished records too.
const FORCED: u32 = 1;

/// Returns the client of the first version, whose functions fail while subscribers of the second exist.
fn only_client() -> Outcome<&'static Client> {
    need_driver()?;
    if client::subscribers().is_empty() { Ok(client::first()) } else { Err(Code::NOT_COMPATIBLE) }
}

/// Writes a text, or null with an error if it does not exist.
fn give_text(place: *mut *const c_char, text: Option<&'static std::ffi::CStr>, missing: *const c_char) -> Outcome {
    give(place, text.map_or(missing, std::ffi::CStr::as_ptr))?;
    text.map(drop).ok_or(Code::INVALID_PARAMETER)
}

exports! {
    code_of as i32;

    fn cuptiGetVersion(version: *mut u32), by need_driver_from_13_2 {
        give(version, link::options().cupti.number())
    }

    fn cuptiGetCallbackName(domain: u32, cbid: u32, text: *mut *const c_char), by need_driver_from_13_2 {
        let is_known = |call: &&calls::Call| calls::first_versions(call).is_none_or(|(cupti, _)| since(cupti).is_ok());
        give_text(text, calls::find(domain, cbid).filter(is_known).map(|call| call.name), std::ptr::null())
    }

    fn cuptiGetTimestamp(timestamp: *mut u64), by need_driver_from_13_2 {
        if since("13.3").is_ok() && !client::subscribers().is_empty() {
            return Err(Code::NOT_COMPATIBLE);
        }
        give(timestamp, writer::timestamp())
    }

    fn cuptiSubscribe(subscriber: *mut usize, callback: Option<Callback>, user: *mut c_void), by need_driver {
        if subscriber.is_null() {
            return Err(Code::INVALID_PARAMETER);
        }
        give(subscriber, subscriber::subscribe(callback, user)?)
    }

    fn cuptiUnsubscribe(subscriber: usize), by need_driver_from_13_2 {
        subscriber::unsubscribe(subscriber)
    }

    fn cuptiEnableCallback(enable: u32, subscriber: usize, domain: u32, cbid: u32), by need_driver_from_13_2 {
        subscriber::enable(subscriber, domain, Some(cbid), enable != 0)
    }

    fn cuptiEnableDomain(enable: u32, subscriber: usize, domain: u32), by need_driver_from_13_2 {
        subscriber::enable(subscriber, domain, None, enable != 0)
    }

    fn cuptiActivityRegisterCallbacks(requested: Option<Requested>, completed: Option<Completed>), by need_driver_from_13_2 {
        let (Some(requested), Some(completed)) = (requested, completed) else { return Err(Code::INVALID_PARAMETER) };
        if !client::subscribers().is_empty() {
            return Err(Code::NOT_COMPATIBLE);
        }
        client::first().register(Callbacks::First(requested, completed));
        Ok(())
    }

    fn cuptiActivityEnable(kind: u32) {
        only_client()?.activity.enable(kind)
    }

    fn cuptiActivityDisable(kind: u32) {
        only_client()?.activity.disable(kind)
    }

    fn cuptiActivityEnableRuntimeApi(cbid: u32, enable: u8) {
        let client = only_client()?;
        since("12.5")?;
        client.activity.set_call(RUNTIME_API, cbid, enable != 0);
        Ok(())
    }

    fn cuptiActivityEnableDriverApi(cbid: u32, enable: u8) {
        let client = only_client()?;
        since("12.5")?;
        client.activity.set_call(DRIVER_API, cbid, enable != 0);
        Ok(())
    }

    fn cuptiActivityEnableCudaEventDeviceTimestamps(enable: u8) {
        let client = only_client()?;
        since("13.0")?;
        client.activity.set_event_times(enable != 0);
        Ok(())
    }

    fn cuptiActivityEnableHWTrace(_enable: u8) {
        only_client()?;
        since("12.8")?;
        attributes::hardware_times()
    }

    fn cuptiActivityFlushAll(flag: u32), by need_driver {
        if !delivery::is_registered() {
            return Err(Code::INVALID_OPERATION);
        }
        pool::flush(flag & FORCED != 0);
        Ok(())
    }

    fn cuptiActivityGetNextRecord(buffer: *mut u8, valid: usize, record: *mut *mut u8), by need_driver_from_13_2 {
        walker::next(client::first(), buffer, valid, record)
    }

    /// Applies to all contexts and streams; the next call counts from zero.
    fn cuptiActivityGetNumDroppedRecords(_context: u64, _stream: u32, dropped: *mut usize) {
        let client = only_client()?;
        if dropped.is_null() {
            return Err(Code::INVALID_PARAMETER);
        }
        give(dropped, client.pool.take_dropped())
    }

    fn cuptiActivitySetAttribute(attribute: u32, size: *mut usize, value: *mut c_void), by need_driver {
        attributes::set(attribute, size, value)
    }

    fn cuptiActivityPushExternalCorrelationId(kind: u32, id: u64) {
        external::push(only_client()?, kind, id)
    }

    fn cuptiActivityPopExternalCorrelationId(kind: u32, last: *mut u64) {
        let id = external::pop(only_client()?, kind)?;
        give_if_wanted(last, id)
    }

    fn cuptiGetDeviceId(context: u64, device: *mut u32), by need_driver {
        give(device, ranges::device_of(context)?)
    }

    fn cuptiGetContextId(context: u64, id: *mut u32), by need_driver {
        ranges::device_of(context)?;
        // Handles are never used again.
        give(id, context as u32)
    }

    /// Delivers all buffers, and resets everything that clients have set.
    fn cuptiFinalize(), by need_driver_from_13_2 {
        pool::flush(true);
        client::first().activity.reset();
        subscriber::reset();
        Ok(())
    }
}
