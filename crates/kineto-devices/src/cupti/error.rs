//! libcupti's result codes, and advice for them.

use crate::library::codes::ResultCodes;
use crate::{Unavailable, Why};
use std::fmt;

/// A result code of libcupti other than 0. Newer libraries may return unknown codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CuptiError(pub u32);

/// An argument is wrong, such as a field that this version lacks.
pub(super) const INVALID_PARAMETER: CuptiError = CuptiError(1);
/// Another profiler is subscribed.
pub(super) const BUSY: CuptiError = CuptiError(39);

const UPDATE_DRIVER: &str = "update NVIDIA's driver, or set KINETO_CUPTI_PATH to a libcupti that is not newer than it, \
                             and see that the GPU can be used at all";
const SHARE_OR_UPDATE: &str = "another profiler of the process may share libcupti: use libcupti 13.4 or later, without \
                               CUPTI_EXCLUSIVE; otherwise update NVIDIA's driver";
const OTHER_LIBRARY: &str = "this libcupti does not support that function on this GPU or platform: for a GPU that its \
                             CUDA version no longer supports (CUDA 13: older than Turing), set KINETO_CUPTI_PATH to the \
                             libcupti of an older CUDA; for an embedded board, to the libcupti that came with it";
const GRANT_PROFILING: &str =
    "load NVIDIA's kernel module with NVreg_RestrictProfilingToAdminUsers=0, or give the process CAP_SYS_ADMIN";
const OLD_PROFILER: &str = "remove the old profiler: it was started by COMPUTE_PROFILE or cuProfilerInitialize";
const VGPU_HOST: &str = "have the vGPU's profiling enabled on its host";
const CONFIDENTIAL: &str = "confidential computing must be off, or in its development mode";
const MIG: &str = "this needs a driver and a libcupti that can profile parts of a GPU (MIG)";
const WINDOWS: &str = "allow profiling in Windows, under the developer's settings of NVIDIA's control panel";

/// NVIDIA's codes.
static CODES: ResultCodes = ResultCodes {
    library: "CUPTI",
    prefix: "CUPTI_ERROR_",
    rows: &[
        (1, "INVALID_PARAMETER", Why::Failed, ""),
        (2, "INVALID_DEVICE", Why::Incompatible, UPDATE_DRIVER),
        (7, "INVALID_OPERATION", Why::Failed, ""),
        (8, "OUT_OF_MEMORY", Why::Failed, ""),
        (9, "HARDWARE", Why::Failed, ""),
        (11, "API_NOT_IMPLEMENTED", Why::Incompatible, ""),
        (12, "MAX_LIMIT_REACHED", Why::Failed, ""),
        (13, "NOT_READY", Why::Failed, ""),
        (14, "NOT_COMPATIBLE", Why::Incompatible, SHARE_OR_UPDATE),
        (15, "NOT_INITIALIZED", Why::Incompatible, UPDATE_DRIVER),
        (18, "QUEUE_EMPTY", Why::Failed, ""),
        (21, "INVALID_KIND", Why::Unsupported, ""),
        (23, "DISABLED", Why::Disabled, ""),
        (26, "HARDWARE_BUSY", Why::Busy, "stop what reads the GPU's counters, such as DCGM: `dcgmi profile --pause`"),
        (27, "NOT_SUPPORTED", Why::Unsupported, OTHER_LIBRARY),
        (33, "VIRTUALIZED_DEVICE_NOT_SUPPORTED", Why::Unsupported, "vGPUs of this kind cannot be profiled"),
        (35, "INSUFFICIENT_PRIVILEGES", Why::Forbidden, GRANT_PROFILING),
        (36, "OLD_PROFILER_API_INITIALIZED", Why::Busy, OLD_PROFILER),
        (38, "LEGACY_PROFILER_NOT_SUPPORTED", Why::Unsupported, OLD_PROFILER),
        (39, "MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED", Why::Busy, ""),
        (40, "VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES", Why::Forbidden, VGPU_HOST),
        (41, "CONFIDENTIAL_COMPUTING_NOT_SUPPORTED", Why::Unsupported, CONFIDENTIAL),
        (42, "CMP_DEVICE_NOT_SUPPORTED", Why::Unsupported, "mining cards cannot be profiled"),
        (43, "MIG_DEVICE_NOT_SUPPORTED", Why::Unsupported, MIG),
        (44, "SLI_DEVICE_NOT_SUPPORTED", Why::Unsupported, "switch SLI off"),
        (45, "WSL_DEVICE_NOT_SUPPORTED", Why::Unsupported, WINDOWS),
        (999, "UNKNOWN", Why::Incompatible, UPDATE_DRIVER),
    ],
};

impl CuptiError {
    /// Returns the advice as the end of a sentence.
    pub(super) fn advice_suffix(self) -> String {
        CODES.advice_suffix(self.0.into())
    }

    /// Makes the reason why nothing is recorded. `during` is the call that failed, `holders` the tools that may be
    /// subscribed.
    pub(crate) fn to_unavailable(self, during: &str, holders: &str) -> Unavailable {
        if self == BUSY {
            let message = format!("another profiler is subscribed to libcupti: {holders} ({during}: {self})");
            return Unavailable::new(
                Why::Busy,
                message,
                "stop it first; libcupti 13.4 and later are shared by profilers that allow it",
            );
        }
        CODES.to_unavailable(self.0.into(), format!("{during}: {self}"))
    }
}

impl fmt::Display for CuptiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        CODES.write_code(self.0.into(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_a_category_and_advice() {
        for (code, why, says) in [
            (39, Why::Busy, "PyTorch's profiler"),
            (35, Why::Forbidden, "NVreg_RestrictProfilingToAdminUsers=0"),
            (15, Why::Incompatible, "KINETO_CUPTI_PATH"),
            (999, Why::Incompatible, "driver"),
            (26, Why::Busy, "DCGM"),
            (27, Why::Unsupported, "libcupti of an older CUDA"),
            (43, Why::Unsupported, "MIG"),
            (45, Why::Unsupported, "Windows"),
            (38, Why::Unsupported, "cuProfilerInitialize"),
            (1234, Why::Failed, "CUPTI error 1234"),
        ] {
            let reason = CuptiError(code).to_unavailable("cuptiSubscribe", "PyTorch's profiler");
            assert_eq!(reason.why(), why, "{code}");
            assert!(reason.to_string().contains(says), "{reason}");
            assert!(reason.message().contains("cuptiSubscribe"), "{reason}");
        }
    }
}
