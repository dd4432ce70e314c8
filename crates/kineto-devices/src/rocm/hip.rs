//! Properties of HIP's functions, by name.

/// The effect of a HIP function, for rows and arrows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallEffect {
    /// Launches a kernel.
    Launch,
    /// Launches a graph.
    LaunchGraph,
    /// Copies memory.
    Copy,
    /// Fills memory.
    Fill,
    /// Allocates memory.
    Allocate,
    /// Frees memory.
    Release,
    /// Anything else.
    Other,
}

impl CallEffect {
    /// Classifies a function by its name, with or without the suffix for per-thread streams.
    pub(super) fn from_name(name: &str) -> CallEffect {
        let name = name.strip_suffix("_spt").unwrap_or(name);
        match name {
            "hipGraphLaunch" => CallEffect::LaunchGraph,
            "hipMalloc" | "hipMallocAsync" | "hipMallocManaged" | "hipExtMallocWithFlags" => CallEffect::Allocate,
            "hipFree" | "hipFreeAsync" => CallEffect::Release,
            _ if LAUNCHES.contains(&name) => CallEffect::Launch,
            _ if name.starts_with("hipMemcpy") => CallEffect::Copy,
            _ if name.starts_with("hipMemset") => CallEffect::Fill,
            _ => CallEffect::Other,
        }
    }

    /// Returns whether it puts work on a device, unless it fails.
    pub(super) fn has_device_work(self) -> bool {
        matches!(self, CallEffect::Launch | CallEffect::LaunchGraph | CallEffect::Copy | CallEffect::Fill)
    }
}

/// A HIP function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: Box<str>,
    pub(super) does: CallEffect,
    /// Whether it begins (`true`) or ends a capture.
    pub(super) captures: Option<bool>,
}

impl Function {
    pub(super) fn new(name: &str) -> Function {
        Function { name: name.into(), does: CallEffect::from_name(name), captures: begins_capture(name) }
    }
}

/// The functions that launch a kernel.
const LAUNCHES: [&str; 14] = [
    "hipLaunchKernel",
    "hipLaunchKernelExC",
    "hipLaunchCooperativeKernel",
    "hipLaunchCooperativeKernelMultiDevice",
    "hipLaunchByPtr",
    "hipModuleLaunchKernel",
    "hipModuleLaunchCooperativeKernel",
    "hipModuleLaunchCooperativeKernelMultiDevice",
    "hipExtLaunchKernel",
    "hipExtLaunchMultiKernelMultiDevice",
    "hipExtModuleLaunchKernel",
    "hipHccModuleLaunchKernel",
    "hipDrvLaunchKernelEx",
    "hipLaunchKernelGGL",
];

/// Returns whether a function begins (`true`) or ends a stream capture; `None` if it does neither.
pub(super) fn begins_capture(name: &str) -> Option<bool> {
    match name.strip_suffix("_spt").unwrap_or(name) {
        "hipStreamBeginCapture" | "hipStreamBeginCaptureToGraph" => Some(true),
        "hipStreamEndCapture" => Some(false),
        _ => None,
    }
}

/// Returns whether calls of a function are excluded: they are frequent and have no effect.
pub(super) fn is_noise(name: &str) -> bool {
    NOISE.contains(&name)
}

/// The excluded functions.
pub(super) const NOISE: [&str; 12] = [
    "hipGetDevice",
    "hipSetDevice",
    "hipGetLastError",
    "__hipPushCallConfiguration",
    "__hipPopCallConfiguration",
    "hipCtxSetCurrent",
    "hipGetDevicePropertiesR0600",
    "hipGetDeviceCount",
    "hipDeviceGetAttribute",
    "hipRuntimeGetVersion",
    "hipPeekAtLastError",
    "hipModuleGetFunction",
];

/// The direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// Not known.
    Unknown,
    /// Within the host.
    HostToHost,
    /// To a device.
    HostToDevice,
    /// From a device.
    DeviceToHost,
    /// Within a device, or between two.
    DeviceToDevice,
}

impl Direction {
    /// Returns its short name, the `kind` of rows.
    pub(super) fn short_name(self) -> &'static str {
        match self {
            Direction::Unknown => "<unknown>",
            Direction::HostToHost => "HtoH",
            Direction::HostToDevice => "HtoD",
            Direction::DeviceToHost => "DtoH",
            Direction::DeviceToDevice => "DtoD",
        }
    }

    /// Returns the name of its rows.
    pub(super) fn row_name(self) -> &'static str {
        match self {
            Direction::Unknown => "Memcpy <unknown> (Unknown -> Unknown)",
            Direction::HostToHost => "Memcpy HtoH (Host -> Host)",
            Direction::HostToDevice => "Memcpy HtoD (Host -> Device)",
            Direction::DeviceToHost => "Memcpy DtoH (Device -> Host)",
            Direction::DeviceToDevice => "Memcpy DtoD (Device -> Device)",
        }
    }
}

/// The name of rows of fills.
pub(super) const FILL: &str = "Memset (Device)";

/// Returns whether the runtime uses this kernel to fill memory: then its row is a fill.
pub(super) fn is_fill_kernel(kernel: &str) -> bool {
    kernel.starts_with("__amd_rocclr_fillBuffer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_classified_by_name() {
        let names = [
            ("hipLaunchKernel", CallEffect::Launch),
            ("hipLaunchKernel_spt", CallEffect::Launch),
            ("hipExtModuleLaunchKernel", CallEffect::Launch),
            ("hipGraphLaunch", CallEffect::LaunchGraph),
            ("hipMemcpyWithStream", CallEffect::Copy),
            ("hipMemcpy2DAsync_spt", CallEffect::Copy),
            ("hipMemsetD32Async", CallEffect::Fill),
            ("hipMalloc", CallEffect::Allocate),
            ("hipFree", CallEffect::Release),
            ("hipDeviceSynchronize", CallEffect::Other),
            ("hipGetDevice", CallEffect::Other),
        ];
        names.iter().for_each(|(name, does)| assert_eq!(CallEffect::from_name(name), *does, "{name}"));
        assert!(
            CallEffect::LaunchGraph.has_device_work()
                && CallEffect::Fill.has_device_work()
                && !CallEffect::Allocate.has_device_work()
        );
        let capturing = ["hipStreamBeginCaptureToGraph", "hipStreamEndCapture_spt", "hipStreamIsCapturing"];
        assert_eq!(capturing.map(begins_capture), [Some(true), Some(false), None]);
        assert!(is_noise("hipGetDevice") && !is_noise("hipLaunchKernel"));
    }

    #[test]
    fn copies_and_fills_have_the_usual_names() {
        assert_eq!(Direction::HostToDevice.row_name(), "Memcpy HtoD (Host -> Device)");
        assert_eq!(Direction::DeviceToDevice.short_name(), "DtoD");
        assert!(is_fill_kernel("__amd_rocclr_fillBufferAligned.kd") && !is_fill_kernel("__amd_rocclr_copyBuffer"));
    }
}
