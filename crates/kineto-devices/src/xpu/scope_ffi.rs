//! Safe wrappers of PTI's functions for kernel metrics.
#![allow(unsafe_code, reason = "libpti_view is foreign code")]

use super::error::PtiError;
use super::ffi::check_result;
use crate::library::functions;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{null, null_mut};

type Code = u32;
type Handle = *mut c_void;

/// A set of metrics of a device; its owner disables it at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PtiScope(usize);

/// A device that can be sampled.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct ScopeDevice {
    handle: Handle,
    address: [u8; 4],
    model: *const c_char,
    uuid: [u8; 16],
}

/// The types and names of the values in each record.
#[repr(C)]
#[derive(Debug)]
struct Metadata {
    size: usize,
    count: usize,
    types: *const u32,
    names: *const *const c_char,
    units: *const *const c_char,
}

/// A metric: PTI's number of its type, its name and its unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Metric {
    pub(super) kind: u32,
    pub(super) name: String,
    pub(super) unit: Option<String>,
}

/// The words of a kernel's record: the kernel's id, its queue, the addresses of its name and of its values.
pub(super) const RECORD_WORDS: usize = 4;
/// The mode that samples metrics for each kernel.
const PER_KERNEL: u32 = 1;
/// Limits; larger values are corrupt.
const DEVICES: u32 = 1024;
pub(super) const METRICS: usize = 120;
const BYTES: usize = 1 << 30;

functions! {
    /// libpti_view, with its functions for metrics.
    ScopeApi
    required {
    devices = c"ptiMetricsGetDevices": fn(*mut ScopeDevice, *mut u32) -> Code;
    enable = c"ptiMetricsScopeEnable": fn(*mut Handle) -> Code;
    configure = c"ptiMetricsScopeConfigure": fn(Handle, u32, *mut Handle, u32, *const *const c_char, usize) -> Code;
    query_buffer_size = c"ptiMetricsScopeQueryCollectionBufferSize": fn(Handle, usize, *mut usize) -> Code;
    set_buffer_size = c"ptiMetricsScopeSetCollectionBufferSize": fn(Handle, usize) -> Code;
    start = c"ptiMetricsScopeStartCollection": fn(Handle) -> Code;
    stop = c"ptiMetricsScopeStopCollection": fn(Handle) -> Code;
    disable = c"ptiMetricsScopeDisable": fn(Handle) -> Code;
    count_buffers = c"ptiMetricsScopeGetCollectionBuffersCount": fn(Handle, *mut usize) -> Code;
    buffer = c"ptiMetricsScopeGetCollectionBuffer": fn(Handle, usize, *mut *mut c_void, *mut usize) -> Code;
    query_metrics_size = c"ptiMetricsScopeQueryMetricsBufferSize":
        fn(Handle, *mut c_void, *mut usize, *mut usize) -> Code;
    calculate = c"ptiMetricsScopeCalculateMetrics": fn(Handle, *mut c_void, *mut c_void, usize, *mut usize) -> Code;
    metadata = c"ptiMetricsScopeGetMetricsMetadata": fn(Handle, *mut Metadata) -> Code;
    }
}

impl ScopeDevice {
    pub(super) fn uuid(&self) -> [u8; 16] {
        self.uuid
    }
}

impl PtiScope {
    fn to_raw(self) -> Handle {
        std::ptr::with_exposed_provenance_mut(self.0)
    }
}

/// The records of a collection buffer, with all that they refer to.
#[derive(Debug)]
pub(super) struct MetricRecords {
    words: Vec<u64>,
    records: usize,
}

impl MetricRecords {
    /// Returns the records: kernel, queue, the address of the name, and the values if their address is valid.
    pub(super) fn records(&self, metrics: usize) -> impl Iterator<Item = ([u64; 3], Option<&[u64]>)> {
        let begin = self.words.as_ptr().expose_provenance() as u64;
        self.words.chunks_exact(RECORD_WORDS).take(self.records).filter_map(move |record| {
            let [kernel, queue, name, values] = *record.first_chunk::<RECORD_WORDS>()?;
            let at = values.checked_sub(begin).filter(|at| at % 8 == 0).and_then(|at| usize::try_from(at / 8).ok());
            let values = at.and_then(|at| self.words.get(at..at.checked_add(metrics)?));
            Some(([kernel, queue, name], values))
        })
    }
}

impl ScopeApi {
    /// Returns the devices that can be sampled.
    pub(super) fn devices(&self) -> Result<Vec<ScopeDevice>, PtiError> {
        let mut count = 0;
        // SAFETY: the list is null, and the pointer is a valid place for a count.
        check_result(unsafe { (self.devices)(null_mut(), &raw mut count) })?;
        let capacity = count.min(DEVICES);
        let none = ScopeDevice { handle: null_mut(), address: [0; 4], model: null(), uuid: [0; 16] };
        let mut all = vec![none; capacity as usize];
        let mut count = capacity;
        if capacity > 0 {
            // SAFETY: the list is as long as the count.
            check_result(unsafe { (self.devices)(all.as_mut_ptr(), &raw mut count) })?;
        }
        all.truncate(count as usize);
        Ok(all)
    }

    pub(super) fn enable_scope(&self) -> Result<PtiScope, PtiError> {
        let mut scope = null_mut();
        // SAFETY: the pointer is a valid place for a handle.
        check_result(unsafe { (self.enable)(&raw mut scope) })?;
        Ok(PtiScope(scope.expose_provenance()))
    }

    /// Sets the device and metrics to sample for each kernel.
    pub(super) fn configure_scope(
        &self,
        scope: PtiScope,
        device: &ScopeDevice,
        metrics: &[CString],
    ) -> Result<(), PtiError> {
        let mut devices = [device.handle];
        let names: Vec<_> = metrics.iter().map(|name| name.as_ptr()).collect();
        let (devices, count) = (devices.as_mut_ptr(), names.len());
        // SAFETY: PTI returned the scope and the device, the lengths are those of the lists, and PTI copies the
        // lists.
        check_result(unsafe { (self.configure)(scope.to_raw(), PER_KERNEL, devices, 1, names.as_ptr(), count) })
    }

    /// Reserves a buffer for that many kernels.
    pub(super) fn reserve_buffer(&self, scope: PtiScope, kernels: u64) -> Result<(), PtiError> {
        let mut bytes = 0;
        let kernels = usize::try_from(kernels).unwrap_or(usize::MAX);
        // SAFETY: PTI returned the scope, and the pointer is a valid place for a size.
        check_result(unsafe { (self.query_buffer_size)(scope.to_raw(), kernels, &raw mut bytes) })?;
        // SAFETY: PTI returned the scope.
        check_result(unsafe { (self.set_buffer_size)(scope.to_raw(), bytes) })
    }

    pub(super) fn start_collection(&self, scope: PtiScope) -> Result<(), PtiError> {
        // SAFETY: PTI returned the scope.
        check_result(unsafe { (self.start)(scope.to_raw()) })
    }

    pub(super) fn stop_collection(&self, scope: PtiScope) -> Result<(), PtiError> {
        // SAFETY: PTI returned the scope.
        check_result(unsafe { (self.stop)(scope.to_raw()) })
    }

    /// Disables the scope.
    pub(super) fn disable_scope(&self, scope: PtiScope) {
        // SAFETY: PTI returned the scope, and its owner does not use it after this.
        unsafe { (self.disable)(scope.to_raw()) };
    }

    /// Returns the metrics, in the order of a record's values.
    pub(super) fn metrics(&self, scope: PtiScope) -> Result<Vec<Metric>, PtiError> {
        let mut found = Metadata { size: size_of::<Metadata>(), count: 0, types: null(), names: null(), units: null() };
        // SAFETY: PTI returned the scope, and the struct has the size that it names.
        check_result(unsafe { (self.metadata)(scope.to_raw(), &raw mut found) })?;
        if found.types.is_null() || found.names.is_null() {
            return Ok(Vec::new());
        }
        let metric = |at| {
            // SAFETY: PTI's lists are as long as the count.
            let kind = unsafe { found.types.wrapping_add(at).read() };
            // SAFETY: PTI's lists are as long as the count.
            let name = copy_text(unsafe { found.names.wrapping_add(at).read() }).unwrap_or_default();
            let units = Some(found.units).filter(|units| !units.is_null());
            // SAFETY: PTI's lists are as long as the count.
            let unit = units.and_then(|units| copy_text(unsafe { units.wrapping_add(at).read() }));
            Metric { kind, name, unit }
        };
        Ok((0..found.count.min(METRICS)).map(metric).collect())
    }

    pub(super) fn count_buffers(&self, scope: PtiScope) -> Result<usize, PtiError> {
        let mut count = 0;
        // SAFETY: PTI returned the scope, and the pointer is a valid place for a count.
        check_result(unsafe { (self.count_buffers)(scope.to_raw(), &raw mut count) }).map(|()| count)
    }

    /// Computes the metrics of a collection buffer.
    pub(super) fn calculate_metrics(&self, scope: PtiScope, nth: usize) -> Result<MetricRecords, PtiError> {
        const TOO_LARGE: PtiError = PtiError(153);
        let (mut buffer, mut size) = (null_mut(), 0);
        // SAFETY: PTI returned the scope, and the pointers are valid places for a buffer and its size.
        check_result(unsafe { (self.buffer)(scope.to_raw(), nth, &raw mut buffer, &raw mut size) })?;
        let (mut bytes, mut records) = (0, 0);
        // SAFETY: PTI returned scope and buffer, and the pointers are valid places for numbers.
        check_result(unsafe { (self.query_metrics_size)(scope.to_raw(), buffer, &raw mut bytes, &raw mut records) })?;
        if records == 0 {
            return Ok(MetricRecords { words: Vec::new(), records: 0 });
        }
        if bytes > BYTES {
            return Err(TOO_LARGE);
        }
        let mut words = vec![0u64; bytes.div_ceil(8)];
        let place = words.as_mut_ptr().cast();
        let mut records = 0;
        // SAFETY: PTI returned scope and buffer, the length is that of the place, and the records keep it.
        check_result(unsafe { (self.calculate)(scope.to_raw(), buffer, place, bytes, &raw mut records) })?;
        Ok(MetricRecords { words, records })
    }
}

/// Copies a text of the library.
fn copy_text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: PTI's C string lives as long as the scope.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_only_in_bounds() {
        let mut words = vec![0u64; 3 * RECORD_WORDS + 2];
        let begin = words.as_ptr().expose_provenance() as u64;
        let behind = begin + 8 * 3 * RECORD_WORDS as u64;
        for (nth, values) in [behind, behind + 8, begin + 3].into_iter().enumerate() {
            words[nth * RECORD_WORDS..][..4].copy_from_slice(&[nth as u64, 7, 8, values]);
        }
        words[12..].copy_from_slice(&[41, 42]);
        // The count claims one value more than there is room for.
        let calculated = MetricRecords { words, records: 9 };
        let found: Vec<_> =
            calculated.records(2).map(|(record, values)| (record[0], values.map(<[u64]>::to_vec))).collect();
        assert_eq!(found, [(0, Some(vec![41, 42])), (1, None), (2, None)]);
    }

    #[test]
    fn structs_match_the_header() {
        assert_eq!((size_of::<ScopeDevice>(), std::mem::offset_of!(ScopeDevice, uuid)), (40, 24));
        assert_eq!((size_of::<Metadata>(), std::mem::offset_of!(Metadata, units)), (40, 32));
    }
}
