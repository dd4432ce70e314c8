//! Devices with memory.

use crate::activity::DeviceType;
use std::fmt;

/// A device with memory: PyTorch's `Device Type` and `Device Id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Device {
    /// The type of device.
    pub kind: DeviceType,
    /// The index among devices of its type, from 0; -1 for the host.
    pub index: i16,
}

impl Device {
    /// The host.
    pub const CPU: Device = Device { kind: DeviceType::Cpu, index: -1 };

    /// Returns the GPU with this index in CUDA.
    pub const fn cuda(index: i16) -> Device {
        Device { kind: DeviceType::Cuda, index }
    }

    /// Returns the device of a record.
    pub fn of(kind: u8, index: i16) -> Device {
        let kind = DeviceType::ALL.iter().copied().find(|device| device.number() == kind).unwrap_or(DeviceType::Cpu);
        Device { kind, index }
    }
}

/// Formats as "CPU", "GPU 0", "XPU 1".
impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.kind == DeviceType::Cuda { "GPU" } else { self.kind.as_str() };
        if self.index < 0 { f.pad(kind) } else { write!(f, "{kind} {}", self.index) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_readable_names() {
        let named =
            [(Device::CPU, "CPU"), (Device::cuda(3), "GPU 3"), (Device { kind: DeviceType::Xpu, index: 0 }, "XPU 0")];
        for (device, name) in named {
            assert_eq!((device.to_string(), Device::of(device.kind.number(), device.index)), (name.to_owned(), device));
        }
    }
}
