//! The HIP functions that a profiler needs. Only functions whose types have never changed are called, and no HIP
//! struct is read, since layouts have changed.
#![allow(unsafe_code, reason = "HIP is foreign code")]

use super::super::PCI_PLACE;
use crate::DeviceDescription;
use crate::library::functions;
use crate::library::text::read_text;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::with_exposed_provenance;

functions! {
    /// HIP's runtime.
    Hip
    required {
        device_count = c"hipGetDeviceCount": fn(*mut c_int) -> c_int;
    }
    optional {
        get_runtime_version = c"hipRuntimeGetVersion": fn(*mut c_int) -> c_int;
        get_driver_version = c"hipDriverGetVersion": fn(*mut c_int) -> c_int;
        get_name = c"hipDeviceGetName": fn(*mut c_char, c_int, c_int) -> c_int;
        get_total_memory = c"hipDeviceTotalMem": fn(*mut usize, c_int) -> c_int;
        get_bus_id = c"hipDeviceGetPCIBusId": fn(*mut c_char, c_int, c_int) -> c_int;
        get_attribute = c"hipDeviceGetAttribute": fn(*mut c_int, c_int, c_int) -> c_int;
        get_name_of_function = c"hipKernelNameRef": fn(*const c_void) -> *const c_char;
        get_name_of_pointer = c"hipKernelNameRefByPtr": fn(*const c_void, *const c_void) -> *const c_char;
        get_device_of_stream = c"hipGetStreamDeviceId": fn(*const c_void) -> c_int;
    }
}

/// Returns the number of a HIP version: 6.2.41133 is 60241133.
pub(super) const fn version_number(major: i32, minor: i32) -> i32 {
    major * 10_000_000 + minor * 100_000
}

/// Properties and HIP's attributes since 5.0, in libkineto's order; `totalGlobalMem` comes first.
const PROPERTIES: [(&str, c_int); 9] = [
    ("computeMajor", 23),
    ("computeMinor", 61),
    ("maxThreadsPerBlock", 56),
    ("maxThreadsPerMultiprocessor", 57),
    ("regsPerBlock", 71),
    ("warpSize", 87),
    ("sharedMemPerBlock", 74),
    ("numSms", 63),
    ("maxSharedMemoryPerMultiProcessor", 10_002),
];

impl Hip {
    pub(super) fn runtime_version(&self) -> Option<i32> {
        query_number(self.get_runtime_version?)
    }

    pub(super) fn driver_version(&self) -> Option<i32> {
        query_number(self.get_driver_version?)
    }

    /// Returns the devices. The first call initialises HIP, as any HIP program does.
    pub(super) fn devices(&self) -> Vec<DeviceDescription> {
        // No machine has more; a larger count is an error of the library.
        (0..query_number(self.device_count).unwrap_or(0).min(1024)).map(|number| self.describe_device(number)).collect()
    }

    fn describe_device(&self, number: c_int) -> DeviceDescription {
        // Some devices have no name.
        let mut device = DeviceDescription::new(number, self.device_name(number).unwrap_or_default());
        device.properties.extend(self.total_memory(number).map(|bytes| ("totalGlobalMem".into(), bytes)));
        let bus_id = self.get_bus_id.and_then(|get_bus_id| {
            // SAFETY: the function takes a buffer, its length and a device.
            read_text(|text, length| unsafe { get_bus_id(text, length, number) })
        });
        let place = bus_id.and_then(|bus_id| pci_place(&bus_id));
        device.attributes.extend(place.map(|place| (PCI_PLACE.into(), place)));
        // Before 5.0 the attributes had other numbers.
        if self.runtime_version().is_some_and(|is| is >= version_number(5, 0)) {
            let known = |(key, attribute): &(&'static str, c_int)| {
                Some(((*key).into(), self.device_attribute(number, *attribute)?))
            };
            device.properties.extend(PROPERTIES.iter().filter_map(known));
        }
        device
    }

    fn device_name(&self, number: c_int) -> Option<String> {
        let get_name = self.get_name?;
        // SAFETY: the function takes a buffer, its length and a device.
        read_text(|text, length| unsafe { get_name(text, length, number) })
    }

    fn total_memory(&self, number: c_int) -> Option<i64> {
        let mut bytes = 0;
        // SAFETY: the pointer is a valid place for a size.
        let failed = unsafe { (self.get_total_memory?)(&raw mut bytes, number) } != 0;
        (!failed).then(|| i64::try_from(bytes).unwrap_or(i64::MAX))
    }

    fn device_attribute(&self, number: c_int, attribute: c_int) -> Option<i64> {
        let mut value = 0;
        // SAFETY: the pointer is a valid place for a value.
        (unsafe { (self.get_attribute?)(&raw mut value, attribute, number) } == 0).then_some(value.into())
    }

    /// Returns the name of a module's kernel, by HIP's handle, which the program has just passed to HIP.
    pub(super) fn name_of_function(&self, handle: u64) -> Option<Vec<u8>> {
        let handle = to_pointer(handle).filter(|handle| !handle.is_null())?;
        // SAFETY: the handle is valid, since the program has just passed it to HIP.
        copy_text(unsafe { (self.get_name_of_function?)(handle) })
    }

    /// Returns the name of a kernel, by the address of its host function.
    pub(super) fn name_of_pointer(&self, function: u64, stream: u64) -> Option<Vec<u8>> {
        let (function, stream) = (to_pointer(function)?, to_pointer(stream)?);
        // SAFETY: HIP looks the address up; the stream is valid, since the program has just passed it to HIP.
        copy_text(unsafe { (self.get_name_of_pointer?)(function, stream) })
    }

    /// Returns HIP's number of a stream's device; the calling thread's device for the default stream.
    pub(super) fn device_of_stream(&self, stream: u64) -> Option<i32> {
        // SAFETY: the stream is valid, since the program has just passed it to HIP.
        let device = unsafe { (self.get_device_of_stream?)(to_pointer(stream)?) };
        (device >= 0).then_some(device)
    }
}

/// Returns the place of a bus id such as "0000:23:00.0".
fn pci_place(bus_id: &str) -> Option<i64> {
    let mut parts = bus_id.split([':', '.']).map(|part| i64::from_str_radix(part, 16).ok());
    let [domain, bus, slot, function] = [(); 4].map(|()| parts.next().flatten());
    Some(domain? << 32 | (bus? & 0xFF) << 8 | (slot? & 0x1F) << 3 | function? & 7)
}

fn query_number(call: unsafe extern "C" fn(*mut c_int) -> c_int) -> Option<i32> {
    let mut value = 0;
    // SAFETY: the pointer is a valid place for a number.
    (unsafe { call(&raw mut value) } == 0).then_some(value)
}

fn to_pointer(address: u64) -> Option<*const c_void> {
    usize::try_from(address).ok().map(with_exposed_provenance)
}

fn copy_text(name: *const c_char) -> Option<Vec<u8>> {
    if name.is_null() {
        return None;
    }
    // SAFETY: HIP returns a C string, which lives as long as the kernel.
    Some(unsafe { CStr::from_ptr(name) }.to_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_encoded_as_in_hip() {
        assert!((version_number(6, 2)..version_number(6, 3)).contains(&60_241_133));
        assert!((version_number(7, 0)..version_number(7, 1)).contains(&70_051_831));
    }
}
