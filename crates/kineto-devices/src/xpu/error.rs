//! PTI's result codes, and advice for them.

use crate::library::codes::ResultCodes;
use crate::{Unavailable, Why};
use std::fmt;

/// A result code of PTI other than 0. Newer libraries may return unknown codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PtiError(pub(super) u32);

const ADD_CORE: &str = "put libpti.so next to libpti_view (in its folder `pti` since 1.0) with the libraries that it needs: \
                        `pip install intel-pti intel-cmplr-lib-rt`";
const ENABLE_TRACING: &str = "start the program with ZE_ENABLE_TRACING_LAYER=1, or use a newer Level Zero loader";
const UPDATE_GPU_DRIVER: &str = "update the GPU's driver (Intel's compute runtime)";
const STOP_OTHERS: &str = "stop other tools that collect GPU metrics, such as unitrace or VTune";
const LIST_METRICS: &str = "list the GPU's metrics: `unitrace --metric-list`";

/// Intel's codes.
static CODES: ResultCodes = ResultCodes {
    library: "PTI",
    prefix: "PTI_",
    rows: &[
        (2, "ERROR_NOT_IMPLEMENTED", Why::Incompatible, ADD_CORE),
        (3, "ERROR_BAD_ARGUMENT", Why::Failed, ""),
        (4, "ERROR_NO_CALLBACKS_SET", Why::Failed, ""),
        (5, "ERROR_EXTERNAL_ID_QUEUE_EMPTY", Why::Failed, ""),
        (6, "ERROR_BAD_TIMESTAMP", Why::Failed, ""),
        (7, "ERROR_BAD_API_ID", Why::Incompatible, ""),
        (8, "ERROR_NO_GPU_VIEWS_ENABLED", Why::Failed, ""),
        (50, "ERROR_DRIVER", Why::Incompatible, "update Intel's compute runtime and the Level Zero loader"),
        (51, "ERROR_TRACING_NOT_INITIALIZED", Why::Unsupported, ENABLE_TRACING),
        (52, "ERROR_L0_LOCAL_PROFILING_NOT_SUPPORTED", Why::Unsupported, UPDATE_GPU_DRIVER),
        (100, "ERROR_METRICS_COLLECTION_NOT_ENABLED", Why::Failed, ""),
        (104, "ERROR_METRICS_COLLECTION_ALREADY_ENABLED", Why::Busy, STOP_OTHERS),
        (105, "ERROR_METRICS_BAD_COLLECTION_CONFIGURATION", Why::Failed, ""),
        (106, "ERROR_METRICS_NO_DATA_COLLECTED", Why::Failed, ""),
        (151, "ERROR_METRICS_SCOPE_METRIC_NOT_FOUND", Why::Unsupported, LIST_METRICS),
        (152, "ERROR_METRICS_SCOPE_NOT_A_SINGLE_GROUP", Why::Unsupported, "name metrics of a single group"),
        (153, "ERROR_METRICS_SCOPE_OUT_OF_MEMORY", Why::Failed, ""),
        (155, "ERROR_METRICS_SCOPE_INSUFFICIENT_BUFFER", Why::Failed, ""),
        (156, "ERROR_METRICS_SCOPE_INVALID_COLLECTION_BUFFER", Why::Failed, ""),
        (157, "WARN_METRICS_SCOPE_PARTIAL_BUFFER", Why::Failed, ""),
        (200, "ERROR_INTERNAL", Why::Failed, ""),
    ],
};

impl PtiError {
    /// Returns the advice as the end of a sentence.
    pub(super) fn advice_suffix(self) -> String {
        CODES.advice_suffix(self.0.into())
    }

    /// Makes the reason why nothing is recorded; `during` is the call that failed.
    pub(super) fn to_unavailable(self, during: &str) -> Unavailable {
        CODES.to_unavailable(self.0.into(), format!("{during}: {self}"))
    }
}

impl fmt::Display for PtiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        CODES.write_code(self.0.into(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_a_category_and_advice() {
        for (code, why, says) in [
            (2, Why::Incompatible, "libpti.so"),
            (51, Why::Unsupported, "ZE_ENABLE_TRACING_LAYER=1"),
            (104, Why::Busy, "VTune"),
            (151, Why::Unsupported, "--metric-list"),
            (3, Why::Failed, "PTI_ERROR_BAD_ARGUMENT (3)"),
            (1234, Why::Failed, "PTI error 1234"),
        ] {
            let reason = PtiError(code).to_unavailable("ptiViewEnable");
            assert_eq!(reason.why(), why, "{code}");
            assert!(reason.to_string().contains(says) && reason.message().contains("ptiViewEnable"), "{reason}");
        }
        assert_eq!(PtiError(3).advice_suffix(), "");
    }
}
