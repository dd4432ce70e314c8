//! The kind of device on which an activity ran.

use std::fmt;

use super::ActivityType;

/// The kind of device on which an activity ran; the numbers are PyTorch's, as in `Device Type` of memory events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum DeviceType {
    /// The host.
    Cpu = 0,
    /// An NVIDIA GPU, or an AMD GPU under ROCm.
    Cuda = 1,
    /// An Intel GPU.
    Xpu = 12,
    /// A Habana accelerator.
    Hpu = 15,
    /// Meta's accelerator.
    Mtia = 19,
    /// The device of a backend outside PyTorch's tree.
    PrivateUse1 = 20,
}

/// Whose devices stand behind the activity types that vendors share, such as `kernel` and `gpu_memcpy`.
///
/// In PyTorch this follows from the build (XPU) and from whether a backend has registered itself as PrivateUse1; here
/// it follows from what collects a session's device activities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Accelerator {
    /// CUDA or ROCm, or nothing.
    #[default]
    Cuda,
    /// Intel's.
    Xpu,
    /// A backend outside PyTorch's tree that has named itself; it takes CUDA's own types too.
    PrivateUse1,
}

impl DeviceType {
    /// Every device type, by number.
    pub const ALL: [DeviceType; 6] = [
        DeviceType::Cpu,
        DeviceType::Cuda,
        DeviceType::Xpu,
        DeviceType::Hpu,
        DeviceType::Mtia,
        DeviceType::PrivateUse1,
    ];

    /// Returns the device type's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            DeviceType::Cpu => "CPU",
            DeviceType::Cuda => "CUDA",
            DeviceType::Xpu => "XPU",
            DeviceType::Hpu => "HPU",
            DeviceType::Mtia => "MTIA",
            DeviceType::PrivateUse1 => "PrivateUse1",
        }
    }

    /// Returns PyTorch's number for the device type.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns the device type of the activities with that [type number](ActivityType::number).
    ///
    /// A number that no activity type has is taken for the host's, as in PyTorch, and adds one to `unknown`, so that
    /// the caller can report how many there were.
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
    /// Returns the type of the device on which such an activity runs.
    ///
    /// As PyTorch's `deviceTypeFromActivity`; every runtime and driver call is the host's. Four types that it does not
    /// know are placed where they are drawn: `cuda_event` and `hardware_counters` on the device, `collective_comm` and
    /// `xpu_sync` on the host. MTIA's own types stay MTIA's beside a PrivateUse1 backend, which takes them in PyTorch.
    pub const fn device(self, accelerator: Accelerator) -> DeviceType {
        match self {
            ActivityType::GpuUserAnnotation
            | ActivityType::GpuMemcpy
            | ActivityType::GpuMemset
            | ActivityType::ConcurrentKernel
            | ActivityType::HardwareCounters => accelerator.device(),
            ActivityType::CudaSync | ActivityType::CudaEvent | ActivityType::CudaProfilerRange => match accelerator {
                // An XPU has none of these: CUDA's they are.
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

    /// Name, device without another backend, in an XPU trace, with a PrivateUse1 backend; by number.
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
        for (kind, (name, cuda, xpu, private)) in ActivityType::ALL.into_iter().zip(DEVICES) {
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
    fn an_unknown_number_is_the_hosts_and_counted() {
        let mut unknown = 0;
        for number in 29..=u8::MAX {
            assert_eq!(DeviceType::of_activity_number(number, Accelerator::PrivateUse1, &mut unknown), Cpu);
        }
        assert_eq!(unknown, 227);
    }

    #[test]
    fn numbers_and_names_are_those_of_pytorch() {
        let all: Vec<_> = DeviceType::ALL.into_iter().map(|device| (device.number(), device.to_string())).collect();
        let named = |(number, name): (u8, &str)| (number, name.to_string());
        assert_eq!(
            all,
            [(0, "CPU"), (1, "CUDA"), (12, "XPU"), (15, "HPU"), (19, "MTIA"), (20, "PrivateUse1")].map(named)
        );
    }
}
