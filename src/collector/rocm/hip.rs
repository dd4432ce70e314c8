//! What is known of HIP's functions, by their names.

/// What a function of HIP does, as far as rows and arrows are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    /// Launches one kernel.
    Launch,
    /// Launches a graph of them.
    LaunchGraph,
    /// Copies memory.
    Copy,
    /// Fills memory.
    Fill,
    /// Allocates memory.
    Allocate,
    /// Gives memory back.
    Release,
    /// Anything else.
    Other,
}

impl Does {
    /// Tells by the function's name, with or without the suffix for the stream of each thread.
    pub(super) fn of(name: &str) -> Does {
        let name = name.strip_suffix("_spt").unwrap_or(name);
        match name {
            "hipGraphLaunch" => Does::LaunchGraph,
            "hipMalloc" | "hipMallocAsync" | "hipMallocManaged" | "hipExtMallocWithFlags" => Does::Allocate,
            "hipFree" | "hipFreeAsync" => Does::Release,
            _ if LAUNCHES.contains(&name) => Does::Launch,
            _ if name.starts_with("hipMemcpy") => Does::Copy,
            _ if name.starts_with("hipMemset") => Does::Fill,
            _ => Does::Other,
        }
    }

    /// Whether it puts work on a device, unless it fails.
    pub(super) fn launches(self) -> bool {
        matches!(self, Does::Launch | Does::LaunchGraph | Does::Copy | Does::Fill)
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

/// Whether a function has a stream's work go into a graph from its return on, or no more; `None` if it does neither.
pub(super) fn captures(name: &str) -> Option<bool> {
    match name.strip_suffix("_spt").unwrap_or(name) {
        "hipStreamBeginCapture" | "hipStreamBeginCaptureToGraph" => Some(true),
        "hipStreamEndCapture" => Some(false),
        _ => None,
    }
}

/// Whether a function's calls are not recorded: they are made all the time, and do nothing that is to be seen.
pub(super) fn is_noise(name: &str) -> bool {
    NOISE.contains(&name)
}

/// Their names.
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

/// Where a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// Nobody says.
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
    /// Its short name, which rows have as `kind`.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Direction::Unknown => "<unknown>",
            Direction::HostToHost => "HtoH",
            Direction::HostToDevice => "HtoD",
            Direction::DeviceToHost => "DtoH",
            Direction::DeviceToDevice => "DtoD",
        }
    }

    /// The name of a row.
    pub(super) fn name(self) -> &'static str {
        match self {
            Direction::Unknown => "Memcpy <unknown> (Unknown -> Unknown)",
            Direction::HostToHost => "Memcpy HtoH (Host -> Host)",
            Direction::HostToDevice => "Memcpy HtoD (Host -> Device)",
            Direction::DeviceToHost => "Memcpy DtoH (Device -> Host)",
            Direction::DeviceToDevice => "Memcpy DtoD (Device -> Device)",
        }
    }
}

/// The name of a row of a fill.
pub(super) const FILL: &str = "Memset (Device)";

/// Whether a kernel is one by which the runtime fills memory: such work is a fill, not a kernel of the program's.
pub(super) fn fills(kernel: &str) -> bool {
    kernel.starts_with("__amd_rocclr_fillBuffer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_told_by_name() {
        let names = [
            ("hipLaunchKernel", Does::Launch),
            ("hipLaunchKernel_spt", Does::Launch),
            ("hipExtModuleLaunchKernel", Does::Launch),
            ("hipGraphLaunch", Does::LaunchGraph),
            ("hipMemcpyWithStream", Does::Copy),
            ("hipMemcpy2DAsync_spt", Does::Copy),
            ("hipMemsetD32Async", Does::Fill),
            ("hipMalloc", Does::Allocate),
            ("hipFree", Does::Release),
            ("hipDeviceSynchronize", Does::Other),
            ("hipGetDevice", Does::Other),
        ];
        names.iter().for_each(|(name, does)| assert_eq!(Does::of(name), *does, "{name}"));
        assert!(Does::LaunchGraph.launches() && Does::Fill.launches() && !Does::Allocate.launches());
        let capturing = ["hipStreamBeginCaptureToGraph", "hipStreamEndCapture_spt", "hipStreamIsCapturing"];
        assert_eq!(capturing.map(captures), [Some(true), Some(false), None]);
        assert!(is_noise("hipGetDevice") && !is_noise("hipLaunchKernel"));
    }

    #[test]
    fn copies_and_fills_are_called_as_on_other_devices() {
        assert_eq!(Direction::HostToDevice.name(), "Memcpy HtoD (Host -> Device)");
        assert_eq!(Direction::DeviceToDevice.kind(), "DtoD");
        assert!(fills("__amd_rocclr_fillBufferAligned.kd") && !fills("__amd_rocclr_copyBuffer"));
    }
}
