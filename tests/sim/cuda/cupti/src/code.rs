//! The result codes of CUPTI.

use crate::link;
use crate::shared::options::CuptiVersion;

sim_core::codes! {
    /// A `CUptiResult` other than success.
    Code(i32), INVALID_PARAMETER;
    INVALID_PARAMETER = 1;
    INVALID_OPERATION = 7;
    OUT_OF_MEMORY = 8;
    PARAMETER_SIZE_NOT_SUFFICIENT = 10;
    NOT_IMPLEMENTED = 11;
    MAX_LIMIT_REACHED = 12;
    NOT_COMPATIBLE = 14;
    NOT_INITIALIZED = 15;
    QUEUE_EMPTY = 18;
    INVALID_KIND = 21;
    NOT_SUPPORTED = 27;
    INSUFFICIENT_PRIVILEGES = 35;
    MULTIPLE_SUBSCRIBERS = 39;
    UNKNOWN = 999;
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
