//! The functions of CUDA's runtime and driver: their names, whether they put work on a device, and whether they are
//! excluded.

use super::ffi::{DRIVER, RUNTIME};
use crate::{Batch, Name};

/// A function's properties.
#[derive(Clone, Copy, Debug)]
pub(super) struct Function {
    pub(super) name: Name,
    pub(super) does: CallEffects,
}

/// The effects of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CallEffects {
    /// It runs a kernel or a graph: a device record will follow.
    pub(super) runs_kernels: bool,
    /// It puts work on a device, such as a copy. An empty copy has no device record.
    pub(super) launches: bool,
    /// Streams of this thread start or stop to capture work into a graph.
    pub(super) begins_capture: bool,
    pub(super) ends_capture: bool,
    /// It is excluded as noise.
    pub(super) is_noise: bool,
}

/// The functions seen in a recording, by number.
#[derive(Debug, Default)]
pub(super) struct Functions {
    runtime: Vec<Option<Function>>,
    driver: Vec<Option<Function>>,
}

/// No library has functions beyond this number.
const MOST: usize = 1 << 16;

impl Functions {
    /// Returns a function's properties; `ask` returns its name from the library.
    #[inline]
    pub(super) fn get(
        &mut self,
        (domain, number): (u32, u32),
        ask: impl FnOnce() -> Option<String>,
        batch: &mut Batch<'_>,
    ) -> Function {
        let known = if domain == RUNTIME { &mut self.runtime } else { &mut self.driver };
        match known.get(number as usize) {
            Some(Some(function)) => *function,
            _ => Functions::query_function(known, (domain, number), ask, batch),
        }
    }

    #[cold]
    fn query_function(
        known: &mut Vec<Option<Function>>,
        (domain, number): (u32, u32),
        ask: impl FnOnce() -> Option<String>,
        batch: &mut Batch<'_>,
    ) -> Function {
        let name = ask().filter(|name| !name.is_empty()).or_else(|| built_in(domain, number));
        let name = name.unwrap_or_else(|| "INVALID".to_owned());
        let name = if domain == RUNTIME { without_version(&name) } else { &name };
        let function = Function { name: batch.name(name), does: CallEffects::from_name(domain, name) };
        let place = number as usize;
        if place < MOST {
            known.resize(known.len().max(place + 1), None);
            if let Some(slot) = known.get_mut(place) {
                *slot = Some(function);
            }
        }
        function
    }
}

impl CallEffects {
    /// Classifies a function by its name.
    fn from_name(domain: u32, name: &str) -> CallEffects {
        let name = name.trim_start_matches('_');
        let rest = if domain == RUNTIME { name.strip_prefix("cuda") } else { name.strip_prefix("cu") };
        let Some(rest) = rest else { return CallEffects::default() };
        let begins = |with: &[&str]| with.iter().any(|with| rest.starts_with(with));
        let runs_kernels = begins(&["Launch", "GraphLaunch"]) && !begins(&["LaunchHostFunc"]);
        let is_noise = if domain == RUNTIME {
            let exactly =
                |name: &&str| rest == *name || rest.strip_prefix(name).is_some_and(|rest| rest.starts_with("_pt"));
            NOISE_OF_RUNTIME.iter().any(exactly)
        } else {
            begins(&NOISE_OF_DRIVER)
        };
        CallEffects {
            runs_kernels,
            launches: runs_kernels || begins(&["Memcpy", "Memset"]),
            begins_capture: begins(&["StreamBeginCapture", "StreamBeginRecapture"]),
            ends_capture: begins(&["StreamEndCapture"]),
            is_noise,
        }
    }
}

/// Runtime functions that libkineto excludes.
const NOISE_OF_RUNTIME: [&str; 6] =
    ["GetDevice", "SetDevice", "GetLastError", "EventCreate", "EventCreateWithFlags", "EventDestroy"];

/// Excluded driver functions: queries, and those that select a thread's context. libkineto keeps only eight driver
/// functions. Rust programs often use the driver alone, so all functions with an effect are kept.
const NOISE_OF_DRIVER: [&str; 17] = [
    "CtxGet",
    "CtxPopCurrent",
    "CtxPushCurrent",
    "CtxSetCurrent",
    "DeviceGet",
    "DevicePrimaryCtxGetState",
    "DriverGetVersion",
    "EventCreate",
    "EventDestroy",
    "FuncGet",
    "GetError",
    "GetExportTable",
    "GetProcAddress",
    "KernelGet",
    "PointerGetAttribute",
    "StreamGetCaptureInfo",
    "StreamIsCapturing",
];

/// Numbers of the most frequent excluded functions, which the library is asked not to record if it can.
pub(super) const DISABLED_CALLS: [(u32, &[u32]); 2] = [
    // cudaGetDevice, cudaSetDevice, cudaGetLastError, cudaEventCreate, cudaEventCreateWithFlags, cudaEventDestroy
    (RUNTIME, &[17, 16, 10, 133, 134, 136]),
    // cuKernelGetAttribute, cuDevicePrimaryCtxGetState, cuCtxGetCurrent, cuCtxSetCurrent, cuCtxGetDevice,
    // cuCtxPushCurrent_v2, cuCtxPopCurrent_v2, cuDeviceGet, cuDeviceGetCount, cuDeviceGetAttribute, cuGetProcAddress,
    // cuGetProcAddress_v2, cuPointerGetAttribute, cuPointerGetAttributes, cuStreamIsCapturing, cuFuncGetAttribute
    (DRIVER, &[686, 392, 304, 303, 16, 323, 324, 3, 4, 9, 626, 677, 310, 450, 499, 85]),
];

/// Removes the version from a runtime function's name, as libkineto does: `_v3020`, of four digits or more.
fn without_version(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((bare, digits)) if digits.len() >= 4 && digits.bytes().all(|digit| digit.is_ascii_digit()) => bare,
        _ => name,
    }
}

/// Names of the most important functions, for libraries that cannot return them.
fn built_in(domain: u32, number: u32) -> Option<String> {
    let known: &[(u32, &str)] = if domain == RUNTIME { &OF_RUNTIME } else { &OF_DRIVER };
    known.iter().find(|(known, _)| *known == number).map(|(_, name)| (*name).to_owned())
}

const OF_RUNTIME: [(u32, &str); 28] = [
    (10, "cudaGetLastError"),
    (16, "cudaSetDevice"),
    (17, "cudaGetDevice"),
    (20, "cudaMalloc"),
    (22, "cudaFree"),
    (27, "cudaHostAlloc"),
    (31, "cudaMemcpy"),
    (41, "cudaMemcpyAsync"),
    (49, "cudaMemset"),
    (51, "cudaMemsetAsync"),
    (131, "cudaStreamSynchronize"),
    (133, "cudaEventCreate"),
    (134, "cudaEventCreateWithFlags"),
    (135, "cudaEventRecord"),
    (136, "cudaEventDestroy"),
    (137, "cudaEventSynchronize"),
    (147, "cudaStreamWaitEvent"),
    (161, "cudaMemcpyPeerAsync"),
    (165, "cudaDeviceSynchronize"),
    (206, "cudaMallocManaged"),
    (211, "cudaLaunchKernel"),
    (214, "cudaLaunchKernel_ptsz"),
    (269, "cudaLaunchCooperativeKernel"),
    (311, "cudaGraphLaunch"),
    (312, "cudaGraphLaunch_ptsz"),
    (373, "cudaMallocAsync"),
    (375, "cudaFreeAsync"),
    (430, "cudaLaunchKernelExC"),
];

const OF_DRIVER: [(u32, &str); 37] = [
    (2, "cuDriverGetVersion"),
    (3, "cuDeviceGet"),
    (9, "cuDeviceGetAttribute"),
    (16, "cuCtxGetDevice"),
    (17, "cuCtxSynchronize"),
    (119, "cuEventRecord"),
    (121, "cuEventSynchronize"),
    (126, "cuStreamSynchronize"),
    (216, "cuMemsetD8Async"),
    (218, "cuMemsetD16Async"),
    (220, "cuMemsetD32Async"),
    (243, "cuMemAlloc_v2"),
    (245, "cuMemFree_v2"),
    (249, "cuMemsetD8_v2"),
    (276, "cuMemcpyHtoD_v2"),
    (277, "cuMemcpyHtoDAsync_v2"),
    (278, "cuMemcpyDtoH_v2"),
    (279, "cuMemcpyDtoHAsync_v2"),
    (280, "cuMemcpyDtoD_v2"),
    (281, "cuMemcpyDtoDAsync_v2"),
    (295, "cuStreamWaitEvent"),
    (303, "cuCtxSetCurrent"),
    (304, "cuCtxGetCurrent"),
    (306, "cuMemcpyAsync"),
    (307, "cuLaunchKernel"),
    (319, "cuMemcpyPeerAsync"),
    (392, "cuDevicePrimaryCtxGetState"),
    (442, "cuLaunchKernel_ptsz"),
    (477, "cuLaunchCooperativeKernel"),
    (497, "cuStreamEndCapture"),
    (514, "cuGraphLaunch"),
    (539, "cuStreamBeginCapture_v2"),
    (587, "cuEventRecordWithFlags"),
    (598, "cuMemAllocAsync"),
    (600, "cuMemFreeAsync"),
    (652, "cuLaunchKernelEx"),
    (686, "cuKernelGetAttribute"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial;

    #[test]
    fn functions_are_classified_by_name() {
        let runs = CallEffects { runs_kernels: true, launches: true, ..CallEffects::default() };
        let launches = CallEffects { launches: true, ..CallEffects::default() };
        let noise = CallEffects { is_noise: true, ..CallEffects::default() };
        for (domain, name, does) in [
            (RUNTIME, "cudaLaunchKernel", runs),
            (RUNTIME, "__cudaLaunchKernel_ptsz", runs),
            (RUNTIME, "cudaLaunchKernelExC", runs),
            (RUNTIME, "cudaGraphLaunch", runs),
            (RUNTIME, "cudaLaunchHostFunc", CallEffects::default()),
            (RUNTIME, "cudaMemcpyToSymbol", launches),
            (RUNTIME, "cudaMemset2DAsync", launches),
            (RUNTIME, "cudaMalloc", CallEffects::default()),
            (RUNTIME, "cudaGetDevice", noise),
            (RUNTIME, "cudaGetDeviceCount", CallEffects::default()),
            (RUNTIME, "cudaEventCreateWithFlags", noise),
            (RUNTIME, "cudaStreamBeginCapture", CallEffects { begins_capture: true, ..CallEffects::default() }),
            (DRIVER, "cuLaunchKernel", runs),
            (DRIVER, "cuLaunchKernelEx_ptsz", runs),
            (DRIVER, "cuGraphLaunch", runs),
            (DRIVER, "cuMemcpyHtoDAsync_v2", launches),
            (DRIVER, "cuMemsetD8Async", launches),
            (DRIVER, "cuMemAlloc_v2", CallEffects::default()),
            (DRIVER, "cuModuleGetFunction", CallEffects::default()),
            (DRIVER, "cuCtxSetCurrent", noise),
            (DRIVER, "cuCtxSynchronize", CallEffects::default()),
            (DRIVER, "cuDeviceGetAttribute", noise),
            (DRIVER, "cuStreamEndCapture", CallEffects { ends_capture: true, ..CallEffects::default() }),
            (DRIVER, "INVALID", CallEffects::default()),
        ] {
            assert_eq!(CallEffects::from_name(domain, name), does, "{name}");
        }
    }

    #[test]
    fn names_come_from_the_library_or_the_table() {
        assert_eq!(without_version("cudaMemcpyAsync_v3020"), "cudaMemcpyAsync");
        assert_eq!(without_version("cudaLaunchHostFunc_ptsz_v10000"), "cudaLaunchHostFunc_ptsz");
        assert_eq!(without_version("cuMemAlloc_v2"), "cuMemAlloc_v2");
        let sink = trial::unbounded_sink();
        let mut functions = Functions::default();
        let names = [
            ((RUNTIME, 211), Some("cudaLaunchKernel_v7000"), "cudaLaunchKernel"),
            ((DRIVER, 243), Some("cuMemAlloc_v2"), "cuMemAlloc_v2"),
            ((DRIVER, 307), None, "cuLaunchKernel"),
            ((RUNTIME, 311), Some(""), "cudaGraphLaunch"),
            ((RUNTIME, 999), None, "INVALID"),
            ((DRIVER, u32::MAX), Some("cuNew"), "cuNew"),
        ];
        for (function, told, expected) in names {
            let name = |functions: &mut Functions, told: Option<&str>| {
                sink.record(|batch| functions.get(function, || told.map(str::to_owned), batch)).name
            };
            let found = name(&mut functions, told);
            assert_eq!(sink.collect_records(false).names.text(found), expected);
            if function.1 != u32::MAX {
                assert_eq!(name(&mut functions, Some("cuOther")), found, "asked once");
            }
        }
    }

    #[test]
    fn disabled_calls_are_noise() {
        for (domain, numbers) in DISABLED_CALLS {
            for number in numbers {
                if let Some(name) = built_in(domain, *number) {
                    assert!(CallEffects::from_name(domain, &name).is_noise, "{name}");
                }
            }
        }
    }
}
