//! The names of operations of callback services.

use crate::layout::{CODE_OBJECT, HIP_RUNTIME_API};
use crate::shared::calls::CALLS;
use crate::shared::link;
use crate::status::{Outcome, Status, code_of, give_if_wanted};
use sim_core::exports;
use std::ffi::{CStr, c_char, c_int, c_void};

const CODE_OPERATIONS: [&CStr; 4] = [
    c"CODE_OBJECT_NONE",
    c"CODE_OBJECT_LOAD",
    c"CODE_OBJECT_DEVICE_KERNEL_SYMBOL_REGISTER",
    c"CODE_OBJECT_HOST_KERNEL_SYMBOL_REGISTER",
];

/// The operation of a call of HIP's, by its index.
pub(crate) fn operation(call: usize) -> i32 {
    CALLS[call].operation + link::options().shifted_operations
}

/// The operations of a kind of service, and their names.
fn operations(kind: u32) -> Outcome<Vec<(i32, &'static CStr)>> {
    match kind {
        HIP_RUNTIME_API => Ok(CALLS.iter().enumerate().map(|(at, call)| (operation(at), call.name)).collect()),
        CODE_OBJECT => Ok((0..).zip(CODE_OPERATIONS).collect()),
        _ => Err(Status::INVALID_ARGUMENT),
    }
}

type OperationCallback = extern "C" fn(u32, i32, *mut c_void) -> c_int;

exports! {
    code_of as i32;

    /// Tells the operations of a kind, until the callback returns anything but 0.
    fn rocprofiler_iterate_callback_tracing_kind_operations(kind: u32, callback: OperationCallback, data: *mut c_void) {
        let _ended = operations(kind)?.into_iter().any(|(operation, _)| callback(kind, operation, data) != 0);
        Ok(())
    }

    /// The name of an operation and its length.
    fn rocprofiler_query_callback_tracing_kind_operation_name(
        kind: u32, operation: i32, name: *mut *const c_char, length: *mut u64,
    ) {
        let operations = operations(kind).unwrap_or_default();
        let found = operations.into_iter().find(|(known, _)| *known == operation).map(|(_, name)| name);
        give_if_wanted(name, found.map_or(std::ptr::null(), CStr::as_ptr))?;
        give_if_wanted(length, found.map_or(0, |found| found.to_bytes().len() as u64))?;
        found.map(drop).ok_or(Status::OPERATION_NOT_FOUND)
    }
}
