//! The 29 activity types of libkineto.

use std::fmt;
use std::str::FromStr;

use super::{Accelerator, ActivityTypes, DeviceType};
use crate::error::Error;
use crate::named_values;

named_values! {
    /// The type of an activity; the numbers are libkineto's and do not change.
    ///
    /// The name ([`as_str`](ActivityType::as_str)) is the `cat` of a row in the trace file, and selects the type in a
    /// configuration. The first 18 types are libkineto's default set, [`ActivityTypes::DEFAULT`].
    ///
    /// ```
    /// use kineto_trace::activity::ActivityType;
    ///
    /// assert_eq!("kernel".parse::<ActivityType>()?, ActivityType::ConcurrentKernel);
    /// assert_eq!(ActivityType::GpuMemcpy.as_str(), "gpu_memcpy");
    /// # Ok::<(), kineto_trace::Error>(())
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[non_exhaustive]
    #[repr(u8)]
    pub enum ActivityType {
        /// A host operation.
        CpuOp = 0 => "cpu_op",
        /// A range that the user named on the host.
        UserAnnotation = 1 => "user_annotation",
        /// The same range on a device: from the first to the last work launched inside it.
        GpuUserAnnotation = 2 => "gpu_user_annotation",
        /// A copy from, to or between devices.
        GpuMemcpy = 3 => "gpu_memcpy",
        /// A fill of device memory.
        GpuMemset = 4 => "gpu_memset",
        /// A kernel on a device; its name is `kernel`.
        ConcurrentKernel = 5 => "kernel",
        /// Never written as a row; selecting it links device work to the host activity that launched it.
        ExternalCorrelation = 6 => "external_correlation",
        /// A call of the CUDA runtime; HIP's too, on ROCm.
        CudaRuntime = 7 => "cuda_runtime",
        /// A call of the CUDA driver.
        CudaDriver = 8 => "cuda_driver",
        /// A point in time on the host.
        CpuInstantEvent = 9 => "cpu_instant_event",
        /// A function of an interpreter.
        PythonFunction = 10 => "python_function",
        /// Time spent by the collector itself.
        Overhead = 11 => "overhead",
        /// A call of the MTIA runtime.
        MtiaRuntime = 12 => "mtia_runtime",
        /// Work of an MTIA command processor.
        MtiaCcpEvents = 13 => "mtia_ccp_events",
        /// MTIA's workload insight, formerly `mtia_workloadd`.
        MtiaInsight = 14 => "mtia_insight",
        /// A wait for a CUDA stream, event or context.
        CudaSync = 15 => "cuda_sync",
        /// A CUDA event recorded on a device.
        CudaEvent = 16 => "cuda_event",
        /// Values of MTIA's counters.
        MtiaCounters = 17 => "mtia_counters",
        /// A call of the Glow runtime.
        GlowRuntime = 18 => "glow_runtime",
        /// The metrics of a kernel, by CUPTI's range profiler.
        CudaProfilerRange = 19 => "cuda_profiler_range",
        /// An operation on a Habana device.
        HpuOp = 20 => "hpu_op",
        /// A call of the SYCL runtime.
        XpuRuntime = 21 => "xpu_runtime",
        /// A call of Level Zero.
        XpuDriver = 22 => "xpu_driver",
        /// A collective operation, reported by its library on the host.
        CollectiveComm = 23 => "collective_comm",
        /// A runtime call of an out-of-tree backend of PyTorch.
        PrivateUse1Runtime = 24 => "privateuse1_runtime",
        /// A driver call of an out-of-tree backend of PyTorch.
        PrivateUse1Driver = 25 => "privateuse1_driver",
        /// Intel's metrics, by kernel.
        XpuScopeProfiler = 26 => "xpu_scope_profiler",
        /// A wait on the host for a fence, event, command list or queue of Level Zero.
        XpuSync = 27 => "xpu_sync",
        /// Sampled values of a GPU's counters.
        HardwareCounters = 28 => "hardware_counters",
    }

    /// All types, by number.
    pub const ALL;

    /// Returns the type's name, which is the `cat` of its rows and its name in a configuration.
    pub const fn as_str;
}

impl ActivityType {
    /// Returns libkineto's number of the type, 0 to 28.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns the type with this number; `None` above 28.
    pub fn from_number(number: u8) -> Option<ActivityType> {
        ActivityType::ALL.get(usize::from(number)).copied()
    }

    /// Returns the type with exactly this name.
    ///
    /// It also accepts two names that are never written: `mtia_workloadd`, the old name of `mtia_insight`, and
    /// `concurrent_kernel`, which PyTorch's activity filters use for `kernel`.
    pub fn from_name(name: &str) -> Option<ActivityType> {
        match name {
            "mtia_workloadd" => Some(ActivityType::MtiaInsight),
            "concurrent_kernel" => Some(ActivityType::ConcurrentKernel),
            _ => ActivityType::ALL.iter().copied().find(|kind| kind.as_str() == name),
        }
    }

    /// Returns whether rows of this type have a duration (ph "X").
    ///
    /// The other types are points in time (`cpu_instant_event`), sets of values (`mtia_counters`, `xpu_scope_profiler`,
    /// `hardware_counters`) or never written (`external_correlation`).
    pub const fn is_slice(self) -> bool {
        !self.is_counter() && !matches!(self, ActivityType::ExternalCorrelation | ActivityType::CpuInstantEvent)
    }

    /// Returns whether rows of this type are sets of values read at one time (ph "C").
    pub const fn is_counter(self) -> bool {
        matches!(self, ActivityType::MtiaCounters | ActivityType::XpuScopeProfiler | ActivityType::HardwareCounters)
    }

    /// Returns whether a span may declare itself to be of this type with `kineto.kind`.
    ///
    /// True for slices of the host, whose [`device`](ActivityType::device) is the CPU for every accelerator. These are
    /// `cpu_op`, `user_annotation`, `python_function`, `overhead`, `collective_comm`, `xpu_sync` and the runtime and
    /// driver calls of every vendor. A span cannot be an instant, a counter, or device time.
    pub const fn is_cpu(self) -> bool {
        self.is_slice() && matches!(self.device(Accelerator::Cuda), DeviceType::Cpu)
    }
}

/// Generic names, which are sets of types, and the vendor-specific names.
impl ActivityType {
    /// Calls of every vendor's runtime: [`ActivityTypes::RUNTIME`].
    pub const RUNTIME: ActivityTypes = ActivityTypes::RUNTIME;
    /// Calls of every vendor's driver: [`ActivityTypes::DRIVER`].
    pub const DRIVER: ActivityTypes = ActivityTypes::DRIVER;
    /// Sampled counters of every vendor's devices: [`ActivityTypes::GPU_PM_COUNTER`].
    pub const GPU_PM_COUNTER: ActivityTypes = ActivityTypes::GPU_PM_COUNTER;

    /// `cuda_runtime` alone; prefer the vendor-independent [`ActivityType::RUNTIME`].
    pub const CUDA_RUNTIME: ActivityType = ActivityType::CudaRuntime;
    /// `mtia_runtime` alone; prefer the vendor-independent [`ActivityType::RUNTIME`].
    pub const MTIA_RUNTIME: ActivityType = ActivityType::MtiaRuntime;
    /// `glow_runtime` alone; prefer the vendor-independent [`ActivityType::RUNTIME`].
    pub const GLOW_RUNTIME: ActivityType = ActivityType::GlowRuntime;
    /// `hpu_op` alone; prefer the vendor-independent [`ActivityType::RUNTIME`].
    pub const HPU_OP: ActivityType = ActivityType::HpuOp;
    /// `xpu_runtime` alone; prefer the vendor-independent [`ActivityType::RUNTIME`].
    pub const XPU_RUNTIME: ActivityType = ActivityType::XpuRuntime;
    /// `privateuse1_runtime` alone; prefer the vendor-independent [`ActivityType::RUNTIME`].
    pub const PRIVATEUSE1_RUNTIME: ActivityType = ActivityType::PrivateUse1Runtime;
    /// `cuda_driver` alone; prefer the vendor-independent [`ActivityType::DRIVER`].
    pub const CUDA_DRIVER: ActivityType = ActivityType::CudaDriver;
    /// `xpu_driver` alone; prefer the vendor-independent [`ActivityType::DRIVER`].
    pub const XPU_DRIVER: ActivityType = ActivityType::XpuDriver;
    /// `privateuse1_driver` alone; prefer the vendor-independent [`ActivityType::DRIVER`].
    pub const PRIVATEUSE1_DRIVER: ActivityType = ActivityType::PrivateUse1Driver;
    /// `mtia_ccp_events` alone; [`ActivityType::ConcurrentKernel`] is the type of other vendors' kernels.
    pub const MTIA_CCP_EVENTS: ActivityType = ActivityType::MtiaCcpEvents;
    /// `mtia_counters` alone; prefer the vendor-independent [`ActivityType::GPU_PM_COUNTER`].
    pub const MTIA_COUNTERS: ActivityType = ActivityType::MtiaCounters;
}

impl fmt::Display for ActivityType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for ActivityType {
    type Err = Error;

    /// Parses the name of one type, in any case; see [`from_name`](ActivityType::from_name).
    ///
    /// # Errors
    ///
    /// If the name is not that of a single type; `runtime`, `driver` and `gpu_pm_counter` are sets ([`ActivityTypes`]).
    fn from_str(name: &str) -> Result<Self, Error> {
        ActivityType::from_name(&name.to_ascii_lowercase()).ok_or_else(|| {
            Error::unknown_name("activity type", name, ActivityType::ALL.iter().map(|each| each.as_str()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_libkineto() {
        for (number, kind) in (0u8..).zip(ActivityType::ALL.iter().copied()) {
            assert_eq!(kind.number(), number, "{kind}");
            assert_eq!(ActivityType::from_number(number), Some(kind));
        }
        assert_eq!(ActivityType::HardwareCounters.number(), 28);
        assert_eq!(ActivityType::from_number(29), None);
        assert_eq!(ActivityType::from_number(255), None);
    }

    #[test]
    fn name_parses_in_any_case() {
        for kind in ActivityType::ALL.iter().copied() {
            assert_eq!(kind.as_str().parse().ok(), Some(kind));
            assert_eq!(kind.as_str().to_uppercase().parse().ok(), Some(kind));
        }
        assert_eq!("MTIA_WORKLOADD".parse().ok(), Some(ActivityType::MtiaInsight));
        assert_eq!("CONCURRENT_KERNEL".parse().ok(), Some(ActivityType::ConcurrentKernel));
    }

    #[test]
    fn unknown_name_error_lists_known_names() {
        for name in ["", "cpu_op ", "kernels", "runtime"] {
            let error = name.parse::<ActivityType>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("unknown activity type {name:?}: expected one of cpu_op, ")), "{error}");
            assert!(ActivityType::ALL.iter().all(|each| error.contains(each.as_str())), "{error}");
        }
    }

    #[test]
    fn span_may_be_any_host_slice() {
        for kind in ActivityType::ALL.iter().copied() {
            let on_host = [Accelerator::Cuda, Accelerator::Xpu, Accelerator::PrivateUse1]
                .into_iter()
                .all(|accelerator| kind.device(accelerator) == DeviceType::Cpu);
            assert_eq!(kind.is_cpu(), on_host && kind.is_slice(), "{kind}");
        }
    }

    #[test]
    fn points_and_counters_are_no_slices() {
        let others: Vec<_> =
            ActivityType::ALL.iter().copied().filter(|kind| !kind.is_slice()).map(ActivityType::as_str).collect();
        assert_eq!(
            others,
            ["external_correlation", "cpu_instant_event", "mtia_counters", "xpu_scope_profiler", "hardware_counters"]
        );
    }
}
