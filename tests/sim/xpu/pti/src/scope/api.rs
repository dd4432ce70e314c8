//! The functions of PTI that are about metrics.

use super::metrics::{GROUPS, Group};
use super::{Collected, LEAST_BUFFER, MOST_RECORDS, RAW_RECORD};
use crate::api::export;
use crate::code::{Code, Outcome, give, unless};
use crate::link::{self, need_driver};
use crate::shared::devices;
use sim_core::ffi::slice;
use std::ffi::{CStr, CString, c_char, c_void};

/// `pti_device_properties_t`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Device {
    handle: usize,
    /// Domain, bus, device, function.
    address: [u8; 4],
    name: *const c_char,
    uuid: [u8; 16],
}

/// `pti_metrics_group_properties_t`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MetricsGroup {
    handle: usize,
    kind: u32,
    domain: u32,
    count: u32,
    metrics: usize,
    name: *const c_char,
    description: *const c_char,
}

/// `pti_metric_properties_t`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MetricProperties {
    handle: usize,
    name: *const c_char,
    description: *const c_char,
    kind: u32,
    value_type: u32,
    unit: *const c_char,
}

/// `pti_metrics_scope_record_metadata_t`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Metadata {
    size: usize,
    count: usize,
    value_types: *const u32,
    names: *const *const c_char,
    units: *const *const c_char,
}

/// `pti_metrics_scope_collection_buffer_properties_t`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct BufferProperties {
    size: usize,
    device: usize,
    scopes: usize,
    bytes: usize,
    first_append: u64,
    last_append: u64,
    group: *const c_char,
}

/// `pti_metrics_scope_record_t`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ScopeRecord {
    kernel: u64,
    queue: u64,
    name: *const c_char,
    values: *mut u64,
}

/// Passes where there are scopes.
fn need_scopes() -> Outcome {
    need_driver()?;
    if link::options().pti.is_since("0.15") { Ok(()) } else { Err(Code::NOT_IMPLEMENTED) }
}

/// Handles of the groups, by their place.
const GROUP_HANDLE: usize = 0x5e00_0030_0000;

fn group(handle: usize) -> Outcome<&'static Group> {
    handle.checked_sub(GROUP_HANDLE).and_then(|index| GROUPS.get(index)).ok_or(Code::BAD_ARGUMENT)
}

/// Gives things, or without a place for them how many there are.
fn give_all<T>(place: *mut T, number: *mut u32, things: Vec<T>) -> Outcome {
    if !place.is_null() {
        for (index, thing) in things.iter().enumerate() {
            // SAFETY: the caller promises room for all.
            let place = unsafe { place.add(index) };
            // SAFETY: the same promise of the caller covers this place.
            unsafe { std::ptr::copy_nonoverlapping(thing, place, 1) };
        }
    }
    give(number, things.len() as u32)
}

/// What a kernel's metrics take in the client's buffer.
fn bytes_of(metrics: usize) -> usize {
    size_of::<ScopeRecord>() + metrics * 8
}

export! {
    fn ptiMetricsGetDevices(places: *mut Device, number: *mut u32) {
        need_driver()?;
        let options = link::options();
        let name = CString::new(options.name.as_str()).unwrap_or_default();
        let device = |index| Device {
            handle: devices::handle(index),
            address: [0, devices::bus(index), 0, 0],
            // As long as the process, as the real one's: there are few.
            name: Box::leak(name.clone().into_boxed_c_str()).as_ptr(),
            uuid: devices::uuid(options, index),
        };
        give_all(places, number, (0..options.devices).map(device).collect())
    }

    fn ptiMetricsGetMetricGroups(device: usize, places: *mut MetricsGroup, number: *mut u32) {
        need_driver()?;
        devices::index(link::options(), device).ok_or(Code::BAD_ARGUMENT)?;
        /// Metrics that are requested by kernel.
        const EVENT_BASED: u32 = 1;
        let groups = GROUPS.iter().enumerate().map(|(index, group)| MetricsGroup {
            handle: GROUP_HANDLE + index,
            kind: EVENT_BASED,
            domain: 0,
            count: group.metrics.len() as u32,
            metrics: 0,
            name: group.name.as_ptr(),
            description: group.description.as_ptr(),
        });
        give_all(places, number, groups.collect())
    }

    fn ptiMetricsGetMetricsProperties(handle: usize, places: *mut MetricProperties) {
        need_driver()?;
        let metrics = group(handle)?.metrics.iter().map(|metric| MetricProperties {
            handle: std::ptr::from_ref(metric) as usize,
            name: metric.name.as_ptr(),
            description: metric.description.as_ptr(),
            kind: metric.kind,
            value_type: metric.value_type,
            unit: metric.unit.as_ptr(),
        });
        let mut number = 0;
        give_all(places, &raw mut number, metrics.collect())
    }

    fn ptiMetricsScopeEnable(place: *mut usize) {
        need_scopes()?;
        if place.is_null() { Err(Code::BAD_ARGUMENT) } else { give(place, super::make()) }
    }

    fn ptiMetricsScopeConfigure(
        scope: usize, mode: u32, devices: *const usize, device_count: u32, names: *const *const c_char,
        name_count: usize,
    ) {
        need_scopes()?;
        unless(link::options().scope_error)?;
        /// The one mode that there is: each kernel by itself.
        const AUTO_KERNEL: u32 = 1;
        let names = slice(names, name_count);
        if names.iter().any(|name| name.is_null()) {
            return Err(Code::BAD_ARGUMENT);
        }
        // SAFETY: the caller promises C strings.
        let names: Vec<&CStr> = names.iter().map(|name| unsafe { CStr::from_ptr(*name) }).collect();
        super::configure(scope, slice(devices, device_count as usize), &names)?;
        if mode == AUTO_KERNEL { Ok(()) } else { Err(Code::NOT_IMPLEMENTED) }
    }

    fn ptiMetricsScopeQueryCollectionBufferSize(scope: usize, scopes: usize, place: *mut usize) {
        need_scopes()?;
        super::with(scope, |scope| scope.choice().map(drop))?;
        if scopes > MOST_RECORDS {
            return Err(Code::PARTIAL_BUFFER);
        }
        give(place, (scopes * RAW_RECORD).max(LEAST_BUFFER))
    }

    fn ptiMetricsScopeSetCollectionBufferSize(scope: usize, size: usize) {
        need_scopes()?;
        super::with_idle(scope, |scope| {
            scope.choice()?;
            scope.buffer_size = size;
            Ok(())
        })
    }

    fn ptiMetricsScopeStartCollection(scope: usize) {
        need_scopes()?;
        super::start(scope)
    }

    fn ptiMetricsScopeStopCollection(scope: usize) {
        need_scopes()?;
        super::stop(scope)
    }

    fn ptiMetricsScopeDisable(scope: usize) {
        need_scopes()?;
        super::destroy(scope)
    }

    fn ptiMetricsScopeGetCollectionBuffersCount(scope: usize, place: *mut usize) {
        need_scopes()?;
        super::with(scope, |scope| {
            if scope.collects { Err(Code::COLLECTION_NOT_DISABLED) } else { give(place, scope.collected.len()) }
        })
    }

    fn ptiMetricsScopeGetCollectionBuffer(scope: usize, index: usize, buffer: *mut usize, size: *mut usize) {
        need_scopes()?;
        super::with(scope, |scope| {
            let collected = scope.collected.get(index).ok_or(Code::BAD_ARGUMENT)?;
            give(buffer, collected.address())?;
            give(size, collected.kernels.len() * RAW_RECORD)
        })
    }

    fn ptiMetricsScopeGetCollectionBufferProperties(scope: usize, buffer: usize, place: *mut BufferProperties) {
        need_scopes()?;
        // SAFETY: the caller promises null or a valid place.
        let size = unsafe { place.as_ref() }.map(|its| its.size).ok_or(Code::BAD_ARGUMENT)?;
        if size < size_of::<BufferProperties>() {
            return Err(Code::BAD_ARGUMENT);
        }
        super::with(scope, |scope| {
            let Collected { device, kernels, .. } = scope.buffer(buffer)?;
            let (device, scopes) = (devices::handle(*device), kernels.len());
            let group = GROUPS[scope.choice()?.group].name.as_ptr();
            let (bytes, first_append, last_append) = (scopes * RAW_RECORD, 0, 0);
            give(place, BufferProperties { size, device, scopes, bytes, first_append, last_append, group })
        })
    }

    fn ptiMetricsScopeQueryMetricsBufferSize(scope: usize, buffer: usize, size: *mut usize, records: *mut usize) {
        need_scopes()?;
        super::with(scope, |scope| {
            let kernels = scope.buffer(buffer)?.kernels.len();
            give(size, kernels * bytes_of(scope.choice()?.metrics.len()))?;
            give(records, kernels)
        })
    }

    /// First come the records, then the values of each.
    fn ptiMetricsScopeCalculateMetrics(
        scope: usize, buffer: usize, place: *mut c_void, size: usize, records: *mut usize,
    ) {
        need_scopes()?;
        if place.is_null() {
            return Err(Code::BAD_ARGUMENT);
        }
        super::with(scope, |scope| {
            let (kernels, metrics) = (&scope.buffer(buffer)?.kernels, &scope.choice()?.metrics);
            let fit = (size / bytes_of(metrics.len())).min(kernels.len());
            give(records, fit)?;
            if kernels.is_empty() {
                return Err(Code::INVALID_COLLECTION_BUFFER);
            }
            if fit == 0 {
                return Err(Code::COLLECTION_BUFFER_TOO_SMALL);
            }
            let all = place.cast::<ScopeRecord>();
            for (index, work) in kernels.iter().take(fit).enumerate() {
                let values = all.wrapping_add(fit).cast::<u64>().wrapping_add(index * metrics.len());
                let (kernel, queue) = (work.id, work.queue);
                let record = ScopeRecord { kernel, queue, name: work.name.0, values };
                // SAFETY: the caller promises so many bytes, and that many records fit into them.
                unsafe { all.add(index).write_unaligned(record) };
                for (metric, at) in metrics.iter().zip(0..) {
                    // SAFETY: as above, with their values.
                    unsafe { values.add(at).write_unaligned((metric.of)(work.end - work.start)) };
                }
            }
            if fit < kernels.len() { Err(Code::PARTIAL_BUFFER) } else { Ok(()) }
        })
    }

    fn ptiMetricsScopeGetMetricsMetadata(scope: usize, place: *mut Metadata) {
        need_scopes()?;
        // SAFETY: the caller promises null or a valid place.
        let size = unsafe { place.as_ref() }.map_or(0, |its| its.size);
        if size == 0 {
            return Err(Code::BAD_ARGUMENT);
        }
        super::with(scope, |scope| {
            let choice = scope.choice()?;
            let (value_types, count) = (choice.value_types.as_ptr(), choice.metrics.len());
            let (names, units) = (choice.names.as_ptr(), choice.units.as_ptr());
            give(place, Metadata { size, count, value_types, names, units })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structs_are_as_large_as_ptis() {
        assert_eq!([size_of::<Device>(), size_of::<MetricsGroup>(), size_of::<MetricProperties>()], [40, 48, 40]);
        assert_eq!([size_of::<Metadata>(), size_of::<BufferProperties>(), size_of::<ScopeRecord>()], [40, 56, 32]);
    }
}
