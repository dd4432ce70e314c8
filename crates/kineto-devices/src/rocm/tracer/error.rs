//! roctracer's result codes, and advice for them.

use crate::library::codes::ResultCodes;
use crate::{Unavailable, Why};
use std::fmt;

/// A result code of roctracer other than 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TracerError(pub(super) i32);

const MATCHING_LIBRARY: &str = "use the libroctracer64 that came with the program's ROCm (KINETO_ROCTRACER_PATH)";

/// AMD's codes.
static CODES: ResultCodes = ResultCodes {
    library: "roctracer",
    prefix: "ROCTRACER_STATUS_",
    rows: &[
        (-1, "ERROR", Why::Failed, ""),
        (-2, "ERROR_INVALID_DOMAIN_ID", Why::Incompatible, MATCHING_LIBRARY),
        (-3, "ERROR_INVALID_ARGUMENT", Why::Incompatible, MATCHING_LIBRARY),
        (-4, "ERROR_DEFAULT_POOL_UNDEFINED", Why::Failed, ""),
        (-5, "ERROR_DEFAULT_POOL_ALREADY_DEFINED", Why::Busy, "stop the other profiler of this process first"),
        (-6, "ERROR_MEMORY_ALLOCATION", Why::Failed, ""),
        (-7, "ERROR_MISMATCHED_EXTERNAL_CORRELATION_ID", Why::Failed, ""),
        (-8, "ERROR_NOT_IMPLEMENTED", Why::Incompatible, MATCHING_LIBRARY),
        (2, "UNINIT", Why::Failed, ""),
        (3, "BREAK", Why::Failed, ""),
        (6, "HIP_API_ERR", Why::Failed, ""),
        (7, "HIP_OPS_ERR", Why::Failed, ""),
        (8, "ROCTX_ERR", Why::Failed, ""),
    ],
};

impl TracerError {
    /// Makes the reason why nothing is recorded; `during` is the call that failed, `message` the library's own text.
    pub(super) fn to_unavailable(self, during: &str, message: &str) -> Unavailable {
        let comma = if message.is_empty() { "" } else { ", " };
        CODES.to_unavailable(self.0.into(), format!("{during}: {self}{comma}{message}"))
    }
}

impl fmt::Display for TracerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        CODES.write_code(self.0.into(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_a_category_and_advice() {
        let reason = TracerError(-3).to_unavailable("roctracer_enable_domain_callback", "invalid argument");
        let text = "roctracer_enable_domain_callback: ROCTRACER_STATUS_ERROR_INVALID_ARGUMENT (-3), invalid argument; \
                    use the libroctracer64 that came with the program's ROCm (KINETO_ROCTRACER_PATH)";
        assert_eq!((reason.why(), reason.to_string().as_str()), (Why::Incompatible, text));
        let reason = TracerError(77).to_unavailable("roctracer_open_pool_expl", "");
        assert_eq!(
            (reason.why(), reason.to_string().as_str()),
            (Why::Failed, "roctracer_open_pool_expl: roctracer error 77")
        );
        assert_eq!(TracerError(-5).to_unavailable("x", "").why(), Why::Busy);
    }
}
