//! Names of domains, operations and kinds.

use crate::shared::calls::CALLS;
use crate::status::{Outcome, Status, answer, give, give_if_wanted};
use sim_core::exports;
use sim_core::ffi::read_text;
use std::ffi::{CStr, c_char};

/// Domains.
pub(crate) const HIP_OPS: u32 = 2;
pub(crate) const HIP_API: u32 = 3;
const DOMAINS: u32 = 8;

/// Operations of the devices.
pub(crate) const DISPATCH: u32 = 0;
pub(crate) const COPY: u32 = 1;
pub(crate) const BARRIER: u32 = 2;
pub(crate) const OPERATIONS: u32 = 3;

/// Kinds of those operations.
pub(crate) const KERNEL: u32 = 0x11F0;
pub(crate) const TASK: u32 = 0x11F1;
pub(crate) const DEVICE_TO_HOST: u32 = 0x11F3;
pub(crate) const HOST_TO_DEVICE: u32 = 0x11F4;
pub(crate) const DEVICE_TO_DEVICE: u32 = 0x11F5;
pub(crate) const MARKER: u32 = 0x11FE;
pub(crate) const FILL: u32 = 0x1207;

/// The kinds that there are.
const KINDS: [(u32, &CStr); 7] = [
    (KERNEL, c"KernelExecution"),
    (TASK, c"Task"),
    (DEVICE_TO_HOST, c"CopyDeviceToHost"),
    (HOST_TO_DEVICE, c"CopyHostToDevice"),
    (DEVICE_TO_DEVICE, c"CopyDeviceToDevice"),
    (MARKER, c"Marker"),
    (FILL, c"FillBuffer"),
];

/// Whether a domain can be traced here.
///
/// # Errors
/// It cannot.
pub(crate) fn check(domain: u32, operation: Option<u32>) -> Outcome {
    let fits = |known: bool| if known { Ok(()) } else { Err(Status::INVALID_ARGUMENT) };
    match domain {
        HIP_OPS => fits(operation.is_none_or(|operation| operation < OPERATIONS)),
        HIP_API => fits(operation.is_none_or(|operation| CALLS.iter().any(|call| call.cid == operation))),
        0..DOMAINS => Ok(()),
        _ => Err(Status::INVALID_DOMAIN_ID),
    }
}

exports! {
    answer as i32;

    /// The name of an operation, or in the domain of the devices of a kind; null for what is not known.
    fn roctracer_op_string(domain: u32, operation: u32, kind: u32) -> *const c_char {
        let found = match domain {
            HIP_API => CALLS.iter().find(|call| call.cid == operation).map(|call| call.name),
            HIP_OPS => {
                Some(KINDS.iter().find(|(known, _)| *known == kind).map_or(c"Unknown command kind", |(_, name)| name))
            }
            _ => None,
        };
        found.map_or(std::ptr::null(), CStr::as_ptr)
    }

    /// The operation of that name.
    fn roctracer_op_code(domain: u32, name: *const c_char, operation: *mut u32, kind: *mut u32) {
        check(domain, None)?;
        let name = read_text(name).filter(|_| domain == HIP_API);
        let call = CALLS.iter().find(|call| Some(call.name) == name).ok_or(Status::INVALID_ARGUMENT)?;
        give(operation, call.cid)?;
        give_if_wanted(kind, 0)
    }
}
