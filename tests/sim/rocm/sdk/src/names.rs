//! The names of kinds and operations.

use crate::layout::{CODE_OBJECT, HIP_RUNTIME_API, KERNEL_DISPATCH, MEMORY_COPY};
use crate::shared::calls::CALLS;
use crate::shared::link;
use crate::status::Status;
use std::ffi::{CStr, c_char, c_int, c_void};

/// The kinds of callback services in the order of their numbers.
const CALLBACK_KINDS: [&CStr; 22] = [
    c"NONE",
    c"HSA_CORE_API",
    c"HSA_AMD_EXT_API",
    c"HSA_IMAGE_EXT_API",
    c"HSA_FINALIZE_EXT_API",
    c"HIP_RUNTIME_API",
    c"HIP_COMPILER_API",
    c"MARKER_CORE_API",
    c"MARKER_CONTROL_API",
    c"MARKER_NAME_API",
    c"CODE_OBJECT",
    c"SCRATCH_MEMORY",
    c"KERNEL_DISPATCH",
    c"MEMORY_COPY",
    c"RCCL_API",
    c"OMPT",
    c"MEMORY_ALLOCATION",
    c"RUNTIME_INITIALIZATION",
    c"ROCDECODE_API",
    c"ROCJPEG_API",
    c"HIP_STREAM",
    c"MARKER_CORE_RANGE_API",
];

/// The kinds of buffered services that are used here.
const BUFFER_KINDS: [&CStr; 14] = [
    c"NONE",
    c"HSA_CORE_API",
    c"HSA_AMD_EXT_API",
    c"HSA_IMAGE_EXT_API",
    c"HSA_FINALIZE_EXT_API",
    c"HIP_RUNTIME_API",
    c"HIP_COMPILER_API",
    c"MARKER_CORE_API",
    c"MARKER_CONTROL_API",
    c"MARKER_NAME_API",
    c"MEMORY_COPY",
    c"KERNEL_DISPATCH",
    c"SCRATCH_MEMORY",
    c"CORRELATION_ID_RETIREMENT",
];

const CODE_OPERATIONS: [&CStr; 4] = [
    c"CODE_OBJECT_NONE",
    c"CODE_OBJECT_LOAD",
    c"CODE_OBJECT_DEVICE_KERNEL_SYMBOL_REGISTER",
    c"CODE_OBJECT_HOST_KERNEL_SYMBOL_REGISTER",
];

const COPY_OPERATIONS: [&CStr; 5] = [
    c"MEMORY_COPY_NONE",
    c"MEMORY_COPY_HOST_TO_HOST",
    c"MEMORY_COPY_HOST_TO_DEVICE",
    c"MEMORY_COPY_DEVICE_TO_HOST",
    c"MEMORY_COPY_DEVICE_TO_DEVICE",
];

const DISPATCH_OPERATIONS: [&CStr; 3] =
    [c"KERNEL_DISPATCH_NONE", c"KERNEL_DISPATCH_ENQUEUE", c"KERNEL_DISPATCH_COMPLETE"];

/// The operation of a call of HIP's, by its index.
pub(crate) fn operation(call: usize) -> i32 {
    CALLS[call].operation + link::options().shifted_operations
}

/// Operations of HIP's calls and their names.
fn calls() -> impl Iterator<Item = (i32, &'static CStr)> {
    CALLS.iter().enumerate().map(|(index, call)| (operation(index), call.name))
}

fn numbered(names: &'static [&'static CStr]) -> Vec<(i32, &'static CStr)> {
    (0..).zip(names.iter().copied()).collect()
}

/// The operations of a kind of callback service.
fn callback_operations(kind: u32) -> Option<Vec<(i32, &'static CStr)>> {
    match kind {
        HIP_RUNTIME_API => Some(calls().collect()),
        CODE_OBJECT => Some(numbered(&CODE_OPERATIONS)),
        _ => None,
    }
}

/// The operations of a kind of buffered service.
fn buffer_operations(kind: u32) -> Option<Vec<(i32, &'static CStr)>> {
    match kind {
        HIP_RUNTIME_API => Some(calls().collect()),
        MEMORY_COPY => Some(numbered(&COPY_OPERATIONS)),
        KERNEL_DISPATCH => Some(numbered(&DISPATCH_OPERATIONS)),
        _ => None,
    }
}

/// Writes a name and its length where the caller wants them; without a name `missing`.
fn tell(found: Option<&'static CStr>, missing: Status, name: *mut *const c_char, length: *mut u64) -> i32 {
    if !name.is_null() {
        // SAFETY: the caller promises null or a valid place.
        unsafe { name.write(found.map_or(std::ptr::null(), CStr::as_ptr)) };
    }
    if !length.is_null() {
        // SAFETY: the same promise of the caller covers this place.
        unsafe { length.write(found.map_or(0, |found| found.to_bytes().len() as u64)) };
    }
    if found.is_some() { 0 } else { missing.code() }
}

fn find(operations: Option<Vec<(i32, &'static CStr)>>, operation: i32) -> Option<&'static CStr> {
    operations?.into_iter().find(|(known, _)| *known == operation).map(|(_, name)| name)
}

type KindCallback = extern "C" fn(u32, *mut c_void) -> c_int;
type OperationCallback = extern "C" fn(u32, i32, *mut c_void) -> c_int;

fn each_operation(
    operations: Option<Vec<(i32, &'static CStr)>>,
    kind: u32,
    callback: OperationCallback,
    data: *mut c_void,
) -> i32 {
    let Some(operations) = operations else { return Status::INVALID_ARGUMENT.code() };
    let _ended = operations.into_iter().any(|(operation, _)| callback(kind, operation, data) != 0);
    0
}

/// Tells the kinds of callback services, until the callback returns anything but 0.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_iterate_callback_tracing_kinds(callback: KindCallback, data: *mut c_void) -> i32 {
    let _ended = (0..CALLBACK_KINDS.len() as u32).any(|kind| callback(kind, data) != 0);
    0
}

/// Tells the operations of a kind.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_iterate_callback_tracing_kind_operations(
    kind: u32,
    callback: OperationCallback,
    data: *mut c_void,
) -> i32 {
    each_operation(callback_operations(kind), kind, callback, data)
}

/// The name of a kind and its length.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_query_callback_tracing_kind_name(
    kind: u32,
    name: *mut *const c_char,
    length: *mut u64,
) -> i32 {
    tell(CALLBACK_KINDS.get(kind as usize).copied(), Status::KIND_NOT_FOUND, name, length)
}

/// The name of an operation and its length.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_query_callback_tracing_kind_operation_name(
    kind: u32,
    operation: i32,
    name: *mut *const c_char,
    length: *mut u64,
) -> i32 {
    tell(find(callback_operations(kind), operation), Status::OPERATION_NOT_FOUND, name, length)
}

/// As for callback services.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_iterate_buffer_tracing_kinds(callback: KindCallback, data: *mut c_void) -> i32 {
    let _ended = (0..BUFFER_KINDS.len() as u32).any(|kind| callback(kind, data) != 0);
    0
}

/// As for callback services.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_iterate_buffer_tracing_kind_operations(
    kind: u32,
    callback: OperationCallback,
    data: *mut c_void,
) -> i32 {
    each_operation(buffer_operations(kind), kind, callback, data)
}

/// As for callback services.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_query_buffer_tracing_kind_name(
    kind: u32,
    name: *mut *const c_char,
    length: *mut u64,
) -> i32 {
    tell(BUFFER_KINDS.get(kind as usize).copied(), Status::KIND_NOT_FOUND, name, length)
}

/// As for callback services.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_query_buffer_tracing_kind_operation_name(
    kind: u32,
    operation: i32,
    name: *mut *const c_char,
    length: *mut u64,
) -> i32 {
    tell(find(buffer_operations(kind), operation), Status::OPERATION_NOT_FOUND, name, length)
}
