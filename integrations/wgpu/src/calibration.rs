//! Reads a Vulkan device's clock and CLOCK_MONOTONIC together, by VK_EXT_calibrated_timestamps.
#![allow(unsafe_code, reason = "wgpu exposes Vulkan's handles and functions only through unsafe functions")]

use ash::ext::calibrated_timestamps as ext;
use ash::vk::{CalibratedTimestampInfoEXT as Info, TimeDomainEXT as Domain};
use std::fmt;
use std::time::Duration;
use wgpu::hal::api::Vulkan;
use wgpu::{Adapter, Device, DeviceDescriptor, Queue};

/// Reads both clocks of a device.
pub(crate) struct Calibrator {
    functions: ext::Device,
    /// Keeps the device alive while its functions may be called.
    _device: Device,
}

/// Opens the adapter's device with the extension; `None` if it is not a Vulkan device, lacks the extension, or cannot be
/// opened.
pub(crate) fn open(adapter: &Adapter, descriptor: &DeviceDescriptor<'_>) -> Option<(Device, Queue)> {
    let DeviceDescriptor { required_features, required_limits, memory_hints, .. } = descriptor;
    if !adapter.features().contains(*required_features) || !required_limits.check_limits(&adapter.limits()) {
        return None;
    }
    // SAFETY: the handle is not destroyed here.
    let vulkan = unsafe { adapter.as_hal::<Vulkan>() }?;
    if !vulkan.physical_device_capabilities().supports_extension(ext::NAME) {
        return None;
    }
    let add = Box::new(|args: wgpu::hal::vulkan::CreateDeviceCallbackArgs<'_, '_, '_>| args.extensions.push(ext::NAME));
    // SAFETY: the adapter has the requested features and limits, as checked above. The callback only adds an extension that
    // the adapter has.
    let opened =
        unsafe { vulkan.open_with_callback(*required_features, required_limits, memory_hints, Some(add)) }.ok()?;
    drop(vulkan);
    // SAFETY: this adapter opened the device, with the descriptor's features.
    unsafe { adapter.create_device_from_hal::<Vulkan>(opened, descriptor) }.ok()
}

impl Calibrator {
    /// Returns a calibrator for a device that was opened with the extension and whose driver knows both clocks.
    pub(crate) fn new(device: &Device) -> Option<Calibrator> {
        // SAFETY: the handle is not destroyed here.
        let vulkan = unsafe { device.as_hal::<Vulkan>() }?;
        if !vulkan.enabled_device_extensions().contains(&ext::NAME) {
            return None;
        }
        let shared = vulkan.shared_instance();
        let instance = ext::Instance::new(shared.entry(), shared.raw_instance());
        let physical = vulkan.raw_physical_device();
        // SAFETY: the physical device belongs to the instance and has the extension, since a device was opened with it.
        let domains = unsafe { instance.get_physical_device_calibrateable_time_domains(physical) }.ok()?;
        if ![Domain::DEVICE, Domain::CLOCK_MONOTONIC].iter().all(|domain| domains.contains(domain)) {
            return None;
        }
        let functions = ext::Device::new(shared.raw_instance(), vulkan.raw_device());
        drop(vulkan);
        Some(Calibrator { functions, _device: device.clone() })
    }

    /// Reads both clocks: ticks of the device, nanoseconds of CLOCK_MONOTONIC, and their largest deviation.
    pub(crate) fn read(&self) -> Option<(u64, u64, Duration)> {
        let infos = [Domain::DEVICE, Domain::CLOCK_MONOTONIC].map(|domain| Info::default().time_domain(domain));
        // SAFETY: the device is alive, was opened with the extension, and can calibrate both domains.
        let (times, deviation) = unsafe { self.functions.get_calibrated_timestamps(&infos) }.ok()?;
        Some((*times.first()?, *times.get(1)?, Duration::from_nanos(deviation)))
    }
}

impl fmt::Debug for Calibrator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calibrator").finish_non_exhaustive()
    }
}
