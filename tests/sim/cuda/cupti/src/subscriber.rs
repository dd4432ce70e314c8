//! The subscriber, and its callbacks around API calls.

use crate::code::{Code, Outcome};
use crate::link;
use crate::shared::counters::count;
use crate::shared::tracer::{ApiCall, DRIVER_API, RUNTIME_API};
use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// `CUpti_CallbackFunc`: user data, domain, callback id, data of the call.
pub(crate) type Callback = extern "C" fn(*mut c_void, u32, u32, *const CallbackData);

/// `CUpti_CallbackData`.
#[derive(Debug)]
#[repr(C)]
pub struct CallbackData {
    site: u32,
    function_name: *const c_char,
    parameters: *const c_void,
    return_value: *mut c_void,
    symbol_name: *const c_char,
    context: u64,
    context_id: u32,
    correlation_data: *mut u64,
    correlation_id: u32,
}

/// Before and after a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Site {
    Enter = 0,
    Exit = 1,
}

#[derive(Clone, Copy, Debug)]
struct Subscriber {
    callback: Option<Callback>,
    user: usize,
    handle: usize,
}

static SUBSCRIBER: Mutex<(Option<Subscriber>, usize)> = Mutex::new((None, 0));
/// More callback ids than there are, for each of the two domains of calls.
const CALLS: usize = 1024;
static ENABLED: [[AtomicBool; CALLS]; 2] = [const { [const { AtomicBool::new(false) }; CALLS] }; 2];
/// Whether any call is enabled.
static ANY: AtomicBool = AtomicBool::new(false);

pub(crate) fn subscribe(callback: Option<Callback>, user: *mut c_void) -> Outcome<usize> {
    count(&link::counters().subscribes);
    let mut guard = SUBSCRIBER.lock().unwrap_or_else(PoisonError::into_inner);
    let (subscriber, handles) = &mut *guard;
    if subscriber.is_some() || link::options().busy {
        return Err(Code::MULTIPLE_SUBSCRIBERS);
    }
    *handles += 1;
    let handle = *handles * 0x10;
    *subscriber = Some(Subscriber { callback, user: user as usize, handle });
    Ok(handle)
}

pub(crate) fn unsubscribe(handle: usize) -> Outcome {
    count(&link::counters().unsubscribes);
    check(handle)?;
    reset();
    Ok(())
}

/// Resets to the initial state.
pub(crate) fn reset() {
    SUBSCRIBER.lock().unwrap_or_else(PoisonError::into_inner).0 = None;
    ENABLED.iter().flatten().for_each(|call| call.store(false, Ordering::Relaxed));
    ANY.store(false, Ordering::Relaxed);
}

fn check(handle: usize) -> Outcome {
    match current() {
        Some(subscriber) if subscriber.handle == handle => Ok(()),
        _ => Err(Code::INVALID_PARAMETER),
    }
}

fn current() -> Option<Subscriber> {
    SUBSCRIBER.lock().unwrap_or_else(PoisonError::into_inner).0
}

fn calls(domain: u32) -> Outcome<&'static [AtomicBool; CALLS]> {
    match domain {
        DRIVER_API => Ok(&ENABLED[0]),
        RUNTIME_API => Ok(&ENABLED[1]),
        // Resources, synchronization, NVTX, state: no callbacks here.
        3..=6 => Err(Code::NOT_SUPPORTED),
        _ => Err(Code::INVALID_PARAMETER),
    }
}

/// Enables the subscriber's callback for one call, or for all of a domain.
pub(crate) fn enable(handle: usize, domain: u32, cbid: Option<u32>, enable: bool) -> Outcome {
    check(handle)?;
    let calls = calls(domain)?;
    match cbid {
        Some(cbid) => calls.get(cbid as usize).ok_or(Code::INVALID_PARAMETER)?.store(enable, Ordering::Relaxed),
        None => calls.iter().for_each(|call| call.store(enable, Ordering::Relaxed)),
    }
    ANY.store(ENABLED.iter().flatten().any(|call| call.load(Ordering::Relaxed)), Ordering::Relaxed);
    Ok(())
}

/// Calls the subscriber for a call, if enabled.
pub(crate) fn notify(site: Site, call: &mut ApiCall) {
    let asked = |call: &ApiCall| calls(call.domain).ok()?.get(call.cbid as usize).map(|c| c.load(Ordering::Relaxed));
    if !ANY.load(Ordering::Relaxed) || asked(call) != Some(true) {
        return;
    }
    let Some(Subscriber { callback: Some(callback), user, .. }) = current() else { return };
    let data = CallbackData {
        site: site as u32,
        function_name: call.name,
        parameters: std::ptr::null(),
        return_value: (&raw mut call.result).cast(),
        symbol_name: call.symbol,
        context: call.context,
        context_id: call.context_id,
        correlation_data: &raw mut call.data,
        correlation_id: call.correlation,
    };
    callback(user as *mut c_void, call.domain, call.cbid, &raw const data);
}
