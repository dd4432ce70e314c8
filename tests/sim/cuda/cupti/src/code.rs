//! The result codes of CUPTI.

use crate::link;
use crate::shared::options::CuptiVersion;
use sim_core::ffi;
use std::ffi::CStr;

/// A `CUptiResult` other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) i32);

/// The result of a function of CUPTI.
pub(crate) type Outcome<T = ()> = Result<T, Code>;

impl Code {
    pub(crate) const INVALID_PARAMETER: Code = Code(1);
    pub(crate) const INVALID_OPERATION: Code = Code(7);
    pub(crate) const PARAMETER_SIZE_NOT_SUFFICIENT: Code = Code(10);
    pub(crate) const NOT_IMPLEMENTED: Code = Code(11);
    pub(crate) const MAX_LIMIT_REACHED: Code = Code(12);
    pub(crate) const NOT_COMPATIBLE: Code = Code(14);
    pub(crate) const OUT_OF_MEMORY: Code = Code(8);
    pub(crate) const NOT_INITIALIZED: Code = Code(15);
    pub(crate) const QUEUE_EMPTY: Code = Code(18);
    pub(crate) const INVALID_KIND: Code = Code(21);
    pub(crate) const NOT_SUPPORTED: Code = Code(27);
    pub(crate) const INSUFFICIENT_PRIVILEGES: Code = Code(35);
    pub(crate) const MULTIPLE_SUBSCRIBERS: Code = Code(39);
    pub(crate) const UNKNOWN: Code = Code(999);
}

/// The names of the codes that the simulator and its faults return.
const NAMES: &[(i32, &CStr)] = &[
    (0, c"CUPTI_SUCCESS"),
    (1, c"CUPTI_ERROR_INVALID_PARAMETER"),
    (2, c"CUPTI_ERROR_INVALID_DEVICE"),
    (3, c"CUPTI_ERROR_INVALID_CONTEXT"),
    (7, c"CUPTI_ERROR_INVALID_OPERATION"),
    (8, c"CUPTI_ERROR_OUT_OF_MEMORY"),
    (9, c"CUPTI_ERROR_HARDWARE"),
    (10, c"CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT"),
    (11, c"CUPTI_ERROR_API_NOT_IMPLEMENTED"),
    (12, c"CUPTI_ERROR_MAX_LIMIT_REACHED"),
    (13, c"CUPTI_ERROR_NOT_READY"),
    (14, c"CUPTI_ERROR_NOT_COMPATIBLE"),
    (15, c"CUPTI_ERROR_NOT_INITIALIZED"),
    (17, c"CUPTI_ERROR_INVALID_METRIC_NAME"),
    (18, c"CUPTI_ERROR_QUEUE_EMPTY"),
    (21, c"CUPTI_ERROR_INVALID_KIND"),
    (23, c"CUPTI_ERROR_DISABLED"),
    (26, c"CUPTI_ERROR_HARDWARE_BUSY"),
    (27, c"CUPTI_ERROR_NOT_SUPPORTED"),
    (33, c"CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED"),
    (34, c"CUPTI_ERROR_CUDA_COMPILER_NOT_COMPATIBLE"),
    (35, c"CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"),
    (36, c"CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED"),
    (38, c"CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED"),
    (39, c"CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"),
    (40, c"CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES"),
    (41, c"CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED"),
    (42, c"CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED"),
    (43, c"CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED"),
    (44, c"CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED"),
    (45, c"CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED"),
    (999, c"CUPTI_ERROR_UNKNOWN"),
];

/// The name of a code.
pub(crate) fn name(code: i32) -> Option<&'static CStr> {
    NAMES.iter().find(|(known, _)| *known == code).map(|(_, name)| *name)
}

/// A sentence about a code.
pub(crate) fn message(code: i32) -> Option<&'static CStr> {
    match code {
        35 => Some(c"The user lacks the privileges that the profiling session needs (simulated)."),
        _ => name(code),
    }
}

/// Succeeds if there is a driver; otherwise fails as the library of that version.
pub(crate) fn need_driver() -> Outcome {
    if link::connected() {
        return Ok(());
    }
    Err(if link::options().cupti.is_since("13.0") { Code::UNKNOWN } else { Code::NOT_INITIALIZED })
}

/// For calls that need no driver before 13.2; that version aborts, and later ones return errors.
pub(crate) fn need_driver_from_13_2() -> Outcome {
    if link::connected() {
        return Ok(());
    }
    let asked = link::options().cupti;
    if asked == CuptiVersion::named("13.2") {
        eprintln!("sim-cupti: CUPTI 13.2 without a driver ends the process, as the real one does");
        std::process::abort();
    }
    if asked.is_since("13.2") { Err(Code::UNKNOWN) } else { Ok(()) }
}

/// Succeeds from the version of that name on.
pub(crate) fn since(name: &str) -> Outcome {
    if link::options().cupti.is_since(name) { Ok(()) } else { Err(Code::NOT_IMPLEMENTED) }
}

/// Writes a value for the caller of a C function.
///
/// # Errors
/// The place is null.
pub(crate) fn give<T>(place: *mut T, value: T) -> Outcome {
    ffi::give(place, value).ok_or(Code::INVALID_PARAMETER)
}
