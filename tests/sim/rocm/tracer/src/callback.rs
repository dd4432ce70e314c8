//! The client's callbacks around HIP's calls.

use crate::activity;
use crate::data::{ENTER, EXIT, data};
use crate::names::{HIP_API, check};
use crate::shared::calls::CALLS;
use crate::shared::counters::count;
use crate::shared::link;
use crate::shared::options::Service;
use crate::shared::tracer::{ApiCall, NEVER, Symbol, Tracer};
use crate::status::{Status, answer, is_stopped};
use sim_core::external;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::sync::{LazyLock, PoisonError, RwLock};

/// Called with domain, callback id, `hip_api_data_t` and the client's own.
type Callback = extern "C" fn(u32, u32, *const c_void, *mut c_void);

/// By callback id.
static CALLBACKS: LazyLock<RwLock<HashMap<u32, (Callback, usize)>>> = LazyLock::new(RwLock::default);

/// The functions that HIP calls.
static TRACER: Tracer = Tracer {
    enter,
    exit,
    queued: activity::queued,
    retimed: activity::retimed,
    kernel_loaded,
    kernels_unloaded,
    count: own_count,
};

extern "C" fn enter(call: *mut ApiCall) {
    tell(call, ENTER);
}

extern "C" fn exit(call: *mut ApiCall) {
    // SAFETY: HIP's call lives for as long as it calls this.
    activity::mark(unsafe { &*call });
    tell(call, EXIT);
}

// Records carry the names of kernels.
extern "C" fn kernel_loaded(_symbol: *const Symbol) {}
extern "C" fn kernels_unloaded(_ids: *const u64, _count: usize) {}

extern "C" fn own_count(what: *const c_char) -> u64 {
    // SAFETY: HIP hands in a C string.
    match unsafe { CStr::from_ptr(what) }.to_bytes() {
        b"push_depth" => external::depth(),
        _ => NEVER,
    }
}

fn tell(call: *mut ApiCall, phase: u32) {
    // SAFETY: HIP's call is valid during this function, and no other code uses it.
    let call = unsafe { &mut *call };
    let cid = CALLS[call.call].cid;
    let found = CALLBACKS.read().unwrap_or_else(PoisonError::into_inner).get(&cid).copied();
    let Some((callback, argument)) = found.filter(|_| !is_stopped()) else { return };
    count(&link::counters().callbacks);
    let data = data(call, phase);
    callback(HIP_API, cid, data.as_ptr().cast(), argument as *mut c_void);
}

/// Has HIP tell what happens there, if it is loaded.
pub(crate) fn connect() {
    if let Some(hip) = link::hip() {
        (hip.add_tracer)(&raw const TRACER);
    }
}

fn enable(
    domain: u32,
    operation: Option<u32>,
    callback: Option<Callback>,
    argument: *mut c_void,
) -> Result<(), Status> {
    check(domain, operation)?;
    if domain != HIP_API {
        return Ok(());
    }
    match link::options().enable_error.code_for(Service::Calls) {
        0 => {}
        code => return Err(Status::of(code)),
    }
    let callback = callback.ok_or(Status::INVALID_ARGUMENT)?;
    connect();
    let mut callbacks = CALLBACKS.write().unwrap_or_else(PoisonError::into_inner);
    let wanted = CALLS.iter().filter(|call| operation.is_none_or(|operation| operation == call.cid));
    callbacks.extend(wanted.map(|call| (call.cid, (callback, argument as usize))));
    Ok(())
}

fn disable(domain: u32, operation: Option<u32>) -> Result<(), Status> {
    check(domain, operation)?;
    if domain == HIP_API {
        let mut callbacks = CALLBACKS.write().unwrap_or_else(PoisonError::into_inner);
        callbacks.retain(|cid, _| operation.is_some_and(|operation| operation != *cid));
    }
    Ok(())
}

/// Lets a function be called around each call of one kind.
#[unsafe(no_mangle)]
pub extern "C" fn roctracer_enable_op_callback(
    domain: u32,
    operation: u32,
    callback: Option<Callback>,
    argument: *mut c_void,
) -> i32 {
    answer(enable(domain, Some(operation), callback, argument))
}

/// Lets a function be called around each call.
#[unsafe(no_mangle)]
pub extern "C" fn roctracer_enable_domain_callback(
    domain: u32,
    callback: Option<Callback>,
    argument: *mut c_void,
) -> i32 {
    answer(enable(domain, None, callback, argument))
}

#[unsafe(no_mangle)]
pub extern "C" fn roctracer_disable_op_callback(domain: u32, operation: u32) -> i32 {
    answer(disable(domain, Some(operation)))
}

#[unsafe(no_mangle)]
pub extern "C" fn roctracer_disable_domain_callback(domain: u32) -> i32 {
    answer(disable(domain, None))
}
