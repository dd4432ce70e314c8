//! CUDA device properties: those that traces contain, under libkineto's keys, and those that determine occupancy.

use super::driver::DeviceCalls;
use crate::DeviceDescription;
use std::ffi::c_int;

/// Properties and their driver attributes, in libkineto's order; `totalGlobalMem` comes first.
const PROPERTIES: [(&str, c_int); 11] = [
    ("computeMajor", 75),
    ("computeMinor", 76),
    ("maxThreadsPerBlock", 1),
    ("maxThreadsPerMultiprocessor", 39),
    ("regsPerBlock", 12),
    ("warpSize", 10),
    ("sharedMemPerBlock", 8),
    ("numSms", 16),
    ("regsPerMultiprocessor", 82),
    ("sharedMemPerBlockOptin", 97),
    ("sharedMemPerMultiprocessor", 81),
];

/// Attributes that libkineto does not write, but that determine occupancy: the most blocks on a multiprocessor, and
/// the driver's share of a block's shared memory.
const FOR_OCCUPANCY: [(&str, c_int); 2] = [(BLOCKS_PER_MULTIPROCESSOR, 106), (RESERVED_SHARED_MEMORY, 111)];
pub(crate) const BLOCKS_PER_MULTIPROCESSOR: &str = "maxBlocksPerMultiprocessor";
pub(crate) const RESERVED_SHARED_MEMORY: &str = "reservedSharedMemPerBlock";

/// Describes a device; returns `None` if it cannot be queried.
pub(super) fn describe_device(calls: &DeviceCalls, number: i32, handle: c_int) -> Option<DeviceDescription> {
    let mut device = DeviceDescription::new(number, calls.device_name(handle)?);
    device.properties.extend(calls.total_memory(handle).map(|bytes| ("totalGlobalMem".into(), bytes)));
    let known = |(key, number): &(&'static str, c_int)| Some(((*key).into(), calls.device_attribute(handle, *number)?));
    device.properties.extend(PROPERTIES.iter().filter_map(known));
    device.attributes.extend(FOR_OCCUPANCY.iter().filter_map(known));
    Some(device)
}
