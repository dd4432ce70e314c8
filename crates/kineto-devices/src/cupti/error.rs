//! libcupti's result codes, and advice for them.

use crate::{Unavailable, Why};
use std::fmt;

/// A result code of libcupti other than 0. Newer libraries may return unknown codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CuptiError(pub u32);

/// An argument is wrong, such as a field that this version lacks.
pub(super) const INVALID_PARAMETER: CuptiError = CuptiError(1);
/// Another profiler is subscribed.
pub(super) const BUSY: CuptiError = CuptiError(39);

impl CuptiError {
    /// Returns NVIDIA's name without its prefix, and the category.
    fn name_and_category(self) -> (&'static str, Why) {
        match self.0 {
            1 => ("INVALID_PARAMETER", Why::Failed),
            2 => ("INVALID_DEVICE", Why::Incompatible),
            7 => ("INVALID_OPERATION", Why::Failed),
            8 => ("OUT_OF_MEMORY", Why::Failed),
            9 => ("HARDWARE", Why::Failed),
            11 => ("API_NOT_IMPLEMENTED", Why::Incompatible),
            12 => ("MAX_LIMIT_REACHED", Why::Failed),
            13 => ("NOT_READY", Why::Failed),
            14 => ("NOT_COMPATIBLE", Why::Incompatible),
            15 => ("NOT_INITIALIZED", Why::Incompatible),
            18 => ("QUEUE_EMPTY", Why::Failed),
            21 => ("INVALID_KIND", Why::Unsupported),
            23 => ("DISABLED", Why::Disabled),
            26 => ("HARDWARE_BUSY", Why::Busy),
            27 => ("NOT_SUPPORTED", Why::Unsupported),
            33 => ("VIRTUALIZED_DEVICE_NOT_SUPPORTED", Why::Unsupported),
            35 => ("INSUFFICIENT_PRIVILEGES", Why::Forbidden),
            36 => ("OLD_PROFILER_API_INITIALIZED", Why::Busy),
            38 => ("LEGACY_PROFILER_NOT_SUPPORTED", Why::Unsupported),
            39 => ("MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED", Why::Busy),
            40 => ("VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES", Why::Forbidden),
            41 => ("CONFIDENTIAL_COMPUTING_NOT_SUPPORTED", Why::Unsupported),
            42 => ("CMP_DEVICE_NOT_SUPPORTED", Why::Unsupported),
            43 => ("MIG_DEVICE_NOT_SUPPORTED", Why::Unsupported),
            44 => ("SLI_DEVICE_NOT_SUPPORTED", Why::Unsupported),
            45 => ("WSL_DEVICE_NOT_SUPPORTED", Why::Unsupported),
            999 => ("UNKNOWN", Why::Incompatible),
            _ => ("", Why::Failed),
        }
    }

    /// Returns advice; empty if none is known.
    fn advice(self) -> &'static str {
        match self.0 {
            14 => {
                "another profiler of the process may share libcupti: use libcupti 13.4 or later, without CUPTI_EXCLUSIVE; \
                 otherwise update NVIDIA's driver"
            }
            2 | 15 | 999 => {
                "update NVIDIA's driver, or set KINETO_CUPTI_PATH to a libcupti that is not newer than it, and see that \
                 the GPU can be used at all"
            }
            26 => "stop what reads the GPU's counters, such as DCGM: `dcgmi profile --pause`",
            27 => {
                "this libcupti does not support that function on this GPU or platform: for a GPU that its CUDA version \
                 no longer supports (CUDA 13: older than Turing), set KINETO_CUPTI_PATH to the libcupti of an older \
                 CUDA; for an embedded board, to the libcupti that came with it"
            }
            33 => "vGPUs of this kind cannot be profiled",
            35 => {
                "load NVIDIA's kernel module with NVreg_RestrictProfilingToAdminUsers=0, or give the process \
                 CAP_SYS_ADMIN"
            }
            36 | 38 => "remove the old profiler: it was started by COMPUTE_PROFILE or cuProfilerInitialize",
            40 => "have the vGPU's profiling enabled on its host",
            41 => "confidential computing must be off, or in its development mode",
            42 => "mining cards cannot be profiled",
            43 => "this needs a driver and a libcupti that can profile parts of a GPU (MIG)",
            44 => "switch SLI off",
            45 => "allow profiling in Windows, under the developer's settings of NVIDIA's control panel",
            _ => "",
        }
    }

    /// Returns the advice as the end of a sentence.
    pub(super) fn advice_suffix(self) -> String {
        let advice = self.advice();
        if advice.is_empty() { String::new() } else { format!("; {advice}") }
    }

    /// Makes the reason why nothing is recorded. `during` is the call that failed, `holders` the tools that may be
    /// subscribed.
    pub(crate) fn to_unavailable(self, during: &str, holders: &str) -> Unavailable {
        let (_, why) = self.name_and_category();
        if self == BUSY {
            let message = format!("another profiler is subscribed to libcupti: {holders} ({during}: {self})");
            return Unavailable::new(
                why,
                message,
                "stop it first; libcupti 13.4 and later are shared by profilers that allow it",
            );
        }
        Unavailable::new(why, format!("{during}: {self}"), self.advice())
    }
}

impl fmt::Display for CuptiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name_and_category().0 {
            "" => write!(f, "CUPTI error {}", self.0),
            name => write!(f, "CUPTI_ERROR_{name} ({})", self.0),
        }
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
