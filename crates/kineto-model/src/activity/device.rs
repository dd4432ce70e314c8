//! The type of device on which an activity ran.

use std::fmt;

use super::ActivityType;
use crate::named_values;

named_values! {
    /// The type of device on which an activity ran; the numbers are PyTorch's, as in `Device Type` of memory events.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[non_exhaustive]
    #[repr(u8)]
    pub enum DeviceType {
        /// The host.
        Cpu = 0 => "CPU",
        /// An NVIDIA GPU, or an AMD GPU under ROCm.
        Cuda = 1 => "CUDA",
        /// An Intel GPU.
        Xpu = 12 => "XPU",
        /// A Habana accelerator.
        Hpu = 15 => "HPU",
        /// Meta's accelerator.
        Mtia = 19 => "MTIA",
        /// The device of an out-of-tree backend of PyTorch.
        PrivateUse1 = 20 => "PrivateUse1",
    }

    /// All device types, by number.
    pub const ALL;

    /// Returns the name of the device type.
    pub const fn as_str;
}

/// The vendor of the devices, for activity types that vendors share, such as `kernel` and `gpu_memcpy`.
///
/// In PyTorch this depends on the build (XPU) and on whether a backend has registered as PrivateUse1. Here it depends
/// on the collector of the session's device activities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Accelerator {
    /// CUDA or ROCm; also the value without any device.
    #[default]
    Cuda,
    /// Intel XPU.
    Xpu,
    /// An out-of-tree backend that has named itself; it takes over CUDA's types too.
    PrivateUse1,
}

impl DeviceType {
    /// Returns PyTorch's number of the device type.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns the device type of activities with this [type number](ActivityType::number).
    ///
    /// An unknown number counts as the host, as in PyTorch, and increments `unknown`, so that the caller can report it.
    pub fn of_activity_number(number: u8, accelerator: Accelerator, unknown: &mut u64) -> DeviceType {
        if let Some(kind) = ActivityType::from_number(number) {
            kind.device(accelerator)
        } else {
            *unknown = unknown.saturating_add(1);
            DeviceType::Cpu
        }
    }
}

impl Accelerator {
    /// Returns the type of its devices.
    pub const fn device(self) -> DeviceType {
        match self {
            Accelerator::Cuda => DeviceType::Cuda,
            Accelerator::Xpu => DeviceType::Xpu,
            Accelerator::PrivateUse1 => DeviceType::PrivateUse1,
        }
    }
}

impl ActivityType {
    /// Returns whether it is work of a device: a kernel, a copy, a fill, or a command of MTIA.
    pub const fn is_device_work(self) -> bool {
        matches!(
            self,
            ActivityType::ConcurrentKernel
                | ActivityType::GpuMemcpy
                | ActivityType::GpuMemset
                | ActivityType::MtiaCcpEvents
        )
    }

    /// Returns the type of device on which such an activity runs.
    ///
    /// Follows PyTorch's `deviceTypeFromActivity`; every runtime and driver call belongs to the host. Four types that
    /// it lacks are assigned to the side on which they are drawn: `cuda_event` and `hardware_counters` to the device,
    /// `collective_comm` and `xpu_sync` to the host. With a PrivateUse1 backend, MTIA's own types stay MTIA's; in
    /// PyTorch the backend takes them over.
    pub const fn device(self, accelerator: Accelerator) -> DeviceType {
        match self {
            ActivityType::GpuUserAnnotation
            | ActivityType::GpuMemcpy
            | ActivityType::GpuMemset
            | ActivityType::ConcurrentKernel
            | ActivityType::HardwareCounters => accelerator.device(),
            ActivityType::CudaSync | ActivityType::CudaEvent | ActivityType::CudaProfilerRange => match accelerator {
                // An XPU has none of these, so they are CUDA's.
                Accelerator::Cuda | Accelerator::Xpu => DeviceType::Cuda,
                Accelerator::PrivateUse1 => DeviceType::PrivateUse1,
            },
            ActivityType::MtiaCcpEvents | ActivityType::MtiaInsight | ActivityType::MtiaCounters => DeviceType::Mtia,
            ActivityType::HpuOp => DeviceType::Hpu,
            ActivityType::XpuScopeProfiler => DeviceType::Xpu,
            ActivityType::CpuOp
            | ActivityType::UserAnnotation
            | ActivityType::ExternalCorrelation
            | ActivityType::CudaRuntime
            | ActivityType::CudaDriver
            | ActivityType::CpuInstantEvent
            | ActivityType::PythonFunction
            | ActivityType::Overhead
            | ActivityType::MtiaRuntime
            | ActivityType::GlowRuntime
            | ActivityType::XpuRuntime
            | ActivityType::XpuDriver
            | ActivityType::CollectiveComm
            | ActivityType::PrivateUse1Runtime
            | ActivityType::PrivateUse1Driver
            | ActivityType::XpuSync => DeviceType::Cpu,
        }
    }
}

impl fmt::Display for DeviceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DeviceType::{Cpu, Cuda, Hpu, Mtia, PrivateUse1, Xpu};

    /// By number: name, device by default, in an XPU trace, and with a PrivateUse1 backend.
    const DEVICES: [(&str, DeviceType, DeviceType, DeviceType); 29] = [
        ("cpu_op", Cpu, Cpu, Cpu),
        ("user_annotation", Cpu, Cpu, Cpu),
        ("gpu_user_annotation", Cuda, Xpu, PrivateUse1),
        ("gpu_memcpy", Cuda, Xpu, PrivateUse1),
        ("gpu_memset", Cuda, Xpu, PrivateUse1),
        ("kernel", Cuda, Xpu, PrivateUse1),
        ("external_correlation", Cpu, Cpu, Cpu),
        ("cuda_runtime", Cpu, Cpu, Cpu),
        ("cuda_driver", Cpu, Cpu, Cpu),
        ("cpu_instant_event", Cpu, Cpu, Cpu),
        ("python_function", Cpu, Cpu, Cpu),
        ("overhead", Cpu, Cpu, Cpu),
        ("mtia_runtime", Cpu, Cpu, Cpu),
        ("mtia_ccp_events", Mtia, Mtia, Mtia),
        ("mtia_insight", Mtia, Mtia, Mtia),
        ("cuda_sync", Cuda, Cuda, PrivateUse1),
        ("cuda_event", Cuda, Cuda, PrivateUse1),
        ("mtia_counters", Mtia, Mtia, Mtia),
        ("glow_runtime", Cpu, Cpu, Cpu),
        ("cuda_profiler_range", Cuda, Cuda, PrivateUse1),
        ("hpu_op", Hpu, Hpu, Hpu),
        ("xpu_runtime", Cpu, Cpu, Cpu),
        ("xpu_driver", Cpu, Cpu, Cpu),
        ("collective_comm", Cpu, Cpu, Cpu),
        ("privateuse1_runtime", Cpu, Cpu, Cpu),
        ("privateuse1_driver", Cpu, Cpu, Cpu),
        ("xpu_scope_profiler", Xpu, Xpu, Xpu),
        ("xpu_sync", Cpu, Cpu, Cpu),
        ("hardware_counters", Cuda, Xpu, PrivateUse1),
    ];

    #[test]
    fn every_activity_type_has_its_device() {
        let mut unknown = 0;
        for (kind, (name, cuda, xpu, private)) in ActivityType::ALL.iter().copied().zip(DEVICES) {
            assert_eq!(kind.as_str(), name);
            for (accelerator, device) in
                [(Accelerator::Cuda, cuda), (Accelerator::Xpu, xpu), (Accelerator::PrivateUse1, private)]
            {
                assert_eq!(kind.device(accelerator), device, "{name} with {accelerator:?}");
                assert_eq!(DeviceType::of_activity_number(kind.number(), accelerator, &mut unknown), device);
            }
        }
        assert_eq!(unknown, 0);
    }

    #[test]
    fn unknown_number_counts_as_host() {
        let mut unknown = 0;
        for number in 29..=u8::MAX {
            assert_eq!(DeviceType::of_activity_number(number, Accelerator::PrivateUse1, &mut unknown), Cpu);
        }
        assert_eq!(unknown, 227);
    }

    #[test]
    fn numbers_and_names_are_those_of_pytorch() {
        let all: Vec<_> = DeviceType::ALL.iter().copied().map(|device| (device.number(), device.to_string())).collect();
        let named = |(number, name): (u8, &str)| (number, name.to_string());
        assert_eq!(
            all,
            [(0, "CPU"), (1, "CUDA"), (12, "XPU"), (15, "HPU"), (19, "MTIA"), (20, "PrivateUse1")].map(named)
        );
    }
}
