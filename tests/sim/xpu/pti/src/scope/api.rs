//! The functions of PTI that are about metrics.

use super::{LEAST_BUFFER, MOST_RECORDS, RAW_RECORD};
use crate::code::{Code, Outcome, code_of, give};
use crate::link::{self, need_driver};
use crate::shared::devices;
use sim_core::exports;
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

exports! {
    code_of as u32;

    fn ptiMetricsGetDevices(places: *mut Device, number: *mut u32), by need_driver {
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

    fn ptiMetricsScopeEnable(place: *mut usize), by need_scopes {
        if place.is_null() { Err(Code::BAD_ARGUMENT) } else { give(place, super::make()) }
    }

    fn ptiMetricsScopeConfigure(
        scope: usize, mode: u32, devices: *const usize, device_count: u32, names: *const *const c_char,
        name_count: usize,
    ), by need_scopes {
        Code::unless(link::options().scope_error)?;
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

    fn ptiMetricsScopeQueryCollectionBufferSize(scope: usize, scopes: usize, place: *mut usize), by need_scopes {
        super::with(scope, |scope| scope.choice().map(drop))?;
        if scopes > MOST_RECORDS {
            return Err(Code::PARTIAL_BUFFER);
        }
        give(place, (scopes * RAW_RECORD).max(LEAST_BUFFER))
    }

    fn ptiMetricsScopeSetCollectionBufferSize(scope: usize, size: usize), by need_scopes {
        super::with_idle(scope, |scope| {
            scope.choice()?;
            scope.buffer_size = size;
            Ok(())
        })
    }

    fn ptiMetricsScopeStartCollection(scope: usize), by need_scopes {
        super::start(scope)
    }

    fn ptiMetricsScopeStopCollection(scope: usize), by need_scopes {
        super::stop(scope)
    }

    fn ptiMetricsScopeDisable(scope: usize), by need_scopes {
        super::destroy(scope)
    }

    fn ptiMetricsScopeGetCollectionBuffersCount(scope: usize, place: *mut usize), by need_scopes {
        super::with(scope, |scope| {
            if scope.collects { Err(Code::COLLECTION_NOT_DISABLED) } else { give(place, scope.collected.len()) }
        })
    }

    fn ptiMetricsScopeGetCollectionBuffer(scope: usize, index: usize, buffer: *mut usize, size: *mut usize), by need_scopes {
        super::with(scope, |scope| {
            let collected = scope.collected.get(index).ok_or(Code::BAD_ARGUMENT)?;
            give(buffer, collected.address())?;
            give(size, collected.kernels.len() * RAW_RECORD)
        })
    }

    fn ptiMetricsScopeQueryMetricsBufferSize(scope: usize, buffer: usize, size: *mut usize, records: *mut usize), by need_scopes {
        super::with(scope, |scope| {
            let kernels = scope.buffer(buffer)?.kernels.len();
            give(size, kernels * bytes_of(scope.choice()?.metrics.len()))?;
            give(records, kernels)
        })
    }

    /// First come the records, then the values of each.
    fn ptiMetricsScopeCalculateMetrics(
        scope: usize, buffer: usize, place: *mut c_void, size: usize, records: *mut usize,
    ), by need_scopes {
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

    fn ptiMetricsScopeGetMetricsMetadata(scope: usize, place: *mut Metadata), by need_scopes {
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
        assert_eq!([size_of::<Device>(), size_of::<Metadata>(), size_of::<ScopeRecord>()], [40, 40, 32]);
    }
}
