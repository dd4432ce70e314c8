//! The result codes of PTI.

use sim_core::ffi;
use std::ffi::CStr;

/// A `pti_result` other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u32);

/// The result of a function of PTI.
pub(crate) type Outcome<T = ()> = Result<T, Code>;

impl Code {
    pub(crate) const END_OF_BUFFER: Code = Code(1);
    pub(crate) const NOT_IMPLEMENTED: Code = Code(2);
    pub(crate) const BAD_ARGUMENT: Code = Code(3);
    pub(crate) const NO_CALLBACKS_SET: Code = Code(4);
    pub(crate) const EXTERNAL_ID_QUEUE_EMPTY: Code = Code(5);
    pub(crate) const BAD_API_ID: Code = Code(7);
    pub(crate) const NO_GPU_VIEWS_ENABLED: Code = Code(8);
    pub(crate) const COLLECTION_NOT_ENABLED: Code = Code(100);
    pub(crate) const COLLECTION_NOT_DISABLED: Code = Code(101);
    pub(crate) const COLLECTION_ALREADY_ENABLED: Code = Code(104);
    pub(crate) const BAD_COLLECTION_CONFIGURATION: Code = Code(105);
    pub(crate) const METRIC_NOT_FOUND: Code = Code(151);
    pub(crate) const NOT_A_SINGLE_GROUP: Code = Code(152);
    pub(crate) const COLLECTION_BUFFER_TOO_SMALL: Code = Code(154);
    pub(crate) const INVALID_COLLECTION_BUFFER: Code = Code(156);
    pub(crate) const PARTIAL_BUFFER: Code = Code(157);
}

/// The names of the codes that the simulator and its faults come to.
const NAMES: &[(u32, &CStr)] = &[
    (0, c"PTI_SUCCESS"),
    (1, c"PTI_STATUS_END_OF_BUFFER"),
    (2, c"PTI_ERROR_NOT_IMPLEMENTED"),
    (3, c"PTI_ERROR_BAD_ARGUMENT"),
    (4, c"PTI_ERROR_NO_CALLBACKS_SET"),
    (5, c"PTI_ERROR_EXTERNAL_ID_QUEUE_EMPTY"),
    (6, c"PTI_ERROR_BAD_TIMESTAMP"),
    (7, c"PTI_ERROR_BAD_API_ID"),
    (8, c"PTI_ERROR_NO_GPU_VIEWS_ENABLED"),
    (50, c"PTI_ERROR_DRIVER"),
    (51, c"PTI_ERROR_TRACING_NOT_INITIALIZED"),
    (52, c"PTI_ERROR_L0_LOCAL_PROFILING_NOT_SUPPORTED"),
    (100, c"PTI_ERROR_METRICS_COLLECTION_NOT_ENABLED"),
    (101, c"PTI_ERROR_METRICS_COLLECTION_NOT_DISABLED"),
    (104, c"PTI_ERROR_METRICS_COLLECTION_ALREADY_ENABLED"),
    (105, c"PTI_ERROR_METRICS_BAD_COLLECTION_CONFIGURATION"),
    (106, c"PTI_ERROR_METRICS_NO_DATA_COLLECTED"),
    (151, c"PTI_ERROR_METRICS_SCOPE_METRIC_NOT_FOUND"),
    (152, c"PTI_ERROR_METRICS_SCOPE_NOT_A_SINGLE_GROUP"),
    (154, c"PTI_ERROR_METRICS_SCOPE_COLLECTION_BUFFER_TOO_SMALL"),
    (156, c"PTI_ERROR_METRICS_SCOPE_INVALID_COLLECTION_BUFFER"),
    (157, c"PTI_WARN_METRICS_SCOPE_PARTIAL_BUFFER"),
    (200, c"PTI_ERROR_INTERNAL"),
];

/// The name of a code.
pub(crate) fn name(code: u32) -> Option<&'static CStr> {
    NAMES.iter().find(|(known, _)| *known == code).map(|(_, name)| *name)
}

/// Fails with the code that an option names, unless that is 0.
pub(crate) fn unless(code: u32) -> Outcome {
    if code == 0 { Ok(()) } else { Err(Code(code)) }
}

/// Gives a value to the caller of a C function.
///
/// # Errors
/// The place is null.
pub(crate) fn give<T>(place: *mut T, value: T) -> Outcome {
    ffi::give(place, value).ok_or(Code::BAD_ARGUMENT)
}
