//! The client's callbacks around HIP's calls.

use crate::activity;
use crate::data::{ENTER, EXIT, data};
use crate::names::{HIP_API, check};
use crate::shared::calls::CALLS;
use crate::shared::counters::count;
use crate::shared::link;
use crate::shared::options::Service;
use crate::shared::tracer::{ApiCall, Event};
use crate::status::{Outcome, Status, answer, is_stopped};
use sim_core::exports;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{LazyLock, PoisonError, RwLock};

/// Called with domain, callback id, `hip_api_data_t` and the client's own.
type Callback = extern "C" fn(u32, u32, *const c_void, *mut c_void);

/// By callback id.
static CALLBACKS: LazyLock<RwLock<HashMap<u32, (Callback, usize)>>> = LazyLock::new(RwLock::default);

/// Hears HIP. Records carry the names of kernels, so that loading them does not matter.
fn hear(event: &mut Event<'_>) {
    match event {
        Event::Entered(call) => tell(call, ENTER),
        Event::Left(call) => {
            activity::mark(call);
            tell(call, EXIT);
        }
        Event::Work(work) => activity::expect(work),
        Event::Retimed(times) => activity::COURIER.retime(times),
        Event::Count(..) | Event::Report(_) | Event::Configured => {}
    }
}

fn tell(call: &mut ApiCall, phase: u32) {
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
        hip.attach(hear);
    }
}

fn enable(domain: u32, operation: Option<u32>, callback: Option<Callback>, argument: *mut c_void) -> Outcome {
    check(domain, operation)?;
    if domain != HIP_API {
        return Ok(());
    }
    Status::unless(link::options().enable_error.code_for(Service::Calls))?;
    let callback = callback.ok_or(Status::INVALID_ARGUMENT)?;
    connect();
    let mut callbacks = CALLBACKS.write().unwrap_or_else(PoisonError::into_inner);
    let wanted = CALLS.iter().filter(|call| operation.is_none_or(|operation| operation == call.cid));
    callbacks.extend(wanted.map(|call| (call.cid, (callback, argument as usize))));
    Ok(())
}

fn disable(domain: u32, operation: Option<u32>) -> Outcome {
    check(domain, operation)?;
    if domain == HIP_API {
        let mut callbacks = CALLBACKS.write().unwrap_or_else(PoisonError::into_inner);
        callbacks.retain(|cid, _| operation.is_some_and(|operation| operation != *cid));
    }
    Ok(())
}

exports! {
    answer as i32;

    /// Lets a function be called around each call.
    fn roctracer_enable_domain_callback(domain: u32, callback: Option<Callback>, argument: *mut c_void) {
        enable(domain, None, callback, argument)
    }

    fn roctracer_disable_op_callback(domain: u32, operation: u32) {
        disable(domain, Some(operation))
    }

    fn roctracer_disable_domain_callback(domain: u32) {
        disable(domain, None)
    }
}
