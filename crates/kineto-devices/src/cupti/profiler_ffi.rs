//! Safe wrappers of CUPTI's profiler host, which PM sampling and range metrics share.
//!
//! Each call takes a struct that begins with its own size. The library refuses sizes that it does not know, and accepts
//! older ones, so each struct has the oldest size that contains its fields.
#![allow(unsafe_code, reason = "libcupti is foreign code")]

use super::error::CuptiError;
use crate::Unavailable;
use crate::library::functions;
use std::ffi::{CStr, CString, c_char};
use std::fmt;
use std::ptr::{null, null_mut, with_exposed_provenance_mut};

type Code = u32;
pub(super) type Call<P> = unsafe extern "C" fn(*mut P) -> Code;
pub(super) type Object = *mut std::ffi::c_void;

/// Declares the parameters of calls, with their sizes. All begin with their size and a null pointer.
macro_rules! params {
    ($($(#[$doc:meta])* $name:ident: $size:literal { $($field:ident: $type:ty),* $(,)? })+) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug)]
        struct $name { struct_size: usize, reserved: *mut u8, $($field: $type,)* }

        impl $name {
            #[allow(clippy::too_many_arguments, reason = "they are the fields")]
            fn new($($field: $type),*) -> $name {
                // The size in memory may include padding at the end. CUPTI exists on 64-bit machines only.
                const {
                    assert!(
                        cfg!(not(target_pointer_width = "64"))
                            || size_of::<$name>() >= $size && size_of::<$name>() - $size < align_of::<$name>()
                    );
                };
                $name { struct_size: $size, reserved: null_mut(), $($field),* }
            }
        }
    )+};
}
pub(super) use params;

params! {
    NoParams: 16 {}
    /// Levels of support: whole, architecture, SLI, vGPU, confidential computing, CMP, WSL. The interface is 0 for
    /// ranges and 3 for PM sampling.
    SupportParams: 52 { device: i32, levels: [u32; 7], interface: u32 }
    ChipNameParams: 32 { device: usize, name: *const c_char }
    HostInitializeParams: 48 { profiler: u32, chip: *const c_char, availability: *const u8, host: Object }
    HostParams: 24 { host: Object }
    AddMetricsParams: 40 { host: Object, names: *const *const c_char, count: usize }
    ConfigSizeParams: 32 { host: Object, size: usize }
    ConfigImageParams: 40 { host: Object, size: usize, image: *mut u8 }
    PassesParams: 40 { size: usize, image: *const u8, passes: usize }
    BaseMetricsParams: 48 { host: Object, kind: u32, names: *const *const c_char, count: usize }
    SubMetricsParams: 56 { host: Object, kind: u32, base: *const c_char, count: usize, names: *const *const c_char }
    PropertiesParams: 60 {
        host: Object, name: *const c_char, description: *const c_char, part: *const c_char, dimension: *const c_char,
        kind: u32,
    }
    EvaluateParams: 72 {
        host: Object, image: *const u8, size: usize, sample: usize, names: *const *const c_char, count: usize,
        values: *mut f64,
    }
}

functions! {
    /// The functions of CUPTI 12.6 for metrics.
    ProfilerApi
    required {
    initialize = c"cuptiProfilerInitialize": fn(*mut NoParams) -> u32;
    deinitialize = c"cuptiProfilerDeInitialize": fn(*mut NoParams) -> u32;
    device_supported = c"cuptiProfilerDeviceSupported": fn(*mut SupportParams) -> u32;
    chip_name = c"cuptiDeviceGetChipName": fn(*mut ChipNameParams) -> u32;
    host_initialize = c"cuptiProfilerHostInitialize": fn(*mut HostInitializeParams) -> u32;
    host_deinitialize = c"cuptiProfilerHostDeinitialize": fn(*mut HostParams) -> u32;
    add_metrics = c"cuptiProfilerHostConfigAddMetrics": fn(*mut AddMetricsParams) -> u32;
    config_size = c"cuptiProfilerHostGetConfigImageSize": fn(*mut ConfigSizeParams) -> u32;
    config_image = c"cuptiProfilerHostGetConfigImage": fn(*mut ConfigImageParams) -> u32;
    passes = c"cuptiProfilerHostGetNumOfPasses": fn(*mut PassesParams) -> u32;
    base_metrics = c"cuptiProfilerHostGetBaseMetrics": fn(*mut BaseMetricsParams) -> u32;
    sub_metrics = c"cuptiProfilerHostGetSubMetrics": fn(*mut SubMetricsParams) -> u32;
    properties = c"cuptiProfilerHostGetMetricProperties": fn(*mut PropertiesParams) -> u32;
    evaluate = c"cuptiProfilerHostEvaluateToGpuValues": fn(*mut EvaluateParams) -> u32;
    }
}

/// What a profiler measures, with CUPTI's numbers for the host and for `cuptiProfilerDeviceSupported`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProfilerKind {
    Ranges,
    PmSampling,
}

/// A call that failed: its name, and CUPTI's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallFailure {
    pub(super) call: &'static str,
    pub(super) error: CuptiError,
}

impl CallFailure {
    /// Makes the reason why nothing is sampled.
    pub(super) fn to_unavailable(self) -> Unavailable {
        self.error.to_unavailable(self.call, "")
    }
}

impl fmt::Display for CallFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.error)
    }
}

/// An object of the profiler host, deinitialised on drop.
#[derive(Debug)]
pub(super) struct HostObject {
    api: &'static ProfilerApi,
    pub(super) kind: ProfilerKind,
    host: usize,
    /// NVIDIA does not document whether the library copies it.
    _available: Option<Vec<u8>>,
}

impl Drop for HostObject {
    fn drop(&mut self) {
        let mut params = HostParams::new(self.object());
        let _ = make_call("cuptiProfilerHostDeinitialize", self.api.host_deinitialize, &mut params);
    }
}

/// The names of metrics, as C passes them.
#[derive(Debug)]
pub(super) struct MetricNames {
    /// Own the texts that `pointers` point to.
    texts: Vec<CString>,
    pointers: Vec<*const c_char>,
}

// SAFETY: the pointers are to the texts that it owns, and neither changes.
unsafe impl Send for MetricNames {}
// SAFETY: as above.
unsafe impl Sync for MetricNames {}

/// A counter data image: the memory into which samples are decoded. The default is an empty one.
#[derive(Debug, Default)]
pub(super) struct CounterImage {
    /// Words, for the alignment.
    words: Vec<u64>,
    /// The words of the empty image.
    empty: Vec<u64>,
    bytes: usize,
}

/// Makes a call whose parameters this module has filled.
pub(super) fn make_call<P>(name: &'static str, call: Call<P>, params: &mut P) -> Result<(), CallFailure> {
    // SAFETY: `params` is the call's own struct, whose size it states. Its pointers come from references and objects that
    // live until the wrapper of the call returns; lengths are those of what they point to.
    match unsafe { call(params) } {
        0 => Ok(()),
        code => Err(CallFailure { call: name, error: CuptiError(code) }),
    }
}

/// Copies a text of the library; empty if it is null.
fn copy_text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the library returns null or a C string, which it keeps until its object is deinitialised.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Copies the library's list of texts.
fn copy_texts(texts: *const *const c_char, count: usize) -> Vec<String> {
    /// No chip has as many metrics; a larger count is an error of the library.
    const MOST: usize = 1 << 16;
    if texts.is_null() || count > MOST {
        return Vec::new();
    }
    // SAFETY: the library returned a list of that many texts, and keeps it until its object is deinitialised.
    unsafe { std::slice::from_raw_parts(texts, count) }.iter().map(|text| copy_text(*text)).collect()
}

impl MetricNames {
    /// Makes the list; a name with a zero byte ends there, and is then unknown to the library.
    pub(super) fn new(names: &[String]) -> MetricNames {
        let text = |name: &String| CString::new(name.split('\0').next().unwrap_or_default()).unwrap_or_default();
        let texts: Vec<_> = names.iter().map(text).collect();
        let pointers = texts.iter().map(|text| text.as_ptr()).collect();
        MetricNames { texts, pointers }
    }

    pub(super) fn count(&self) -> usize {
        self.texts.len()
    }

    pub(super) fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}

impl CounterImage {
    pub(super) fn new(bytes: usize) -> CounterImage {
        CounterImage { words: vec![0; bytes.div_ceil(size_of::<u64>())], empty: Vec::new(), bytes }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn as_ptr(&self) -> *const u8 {
        self.words.as_ptr().cast()
    }

    /// Takes the image for an empty one.
    pub(super) fn keep_as_empty(&mut self) {
        self.empty.clone_from(&self.words);
    }

    /// Empties the image without a call.
    pub(super) fn restore_empty(&mut self) {
        self.words.clone_from(&self.empty);
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.words.as_mut_ptr().cast()
    }
}

impl ProfilerKind {
    fn of_host(self) -> u32 {
        match self {
            ProfilerKind::Ranges => 0,
            ProfilerKind::PmSampling => 1,
        }
    }

    fn of_support(self) -> u32 {
        match self {
            ProfilerKind::Ranges => 0,
            ProfilerKind::PmSampling => 3,
        }
    }
}

impl ProfilerApi {
    pub(super) fn initialize_profiler(&self) -> Result<(), CallFailure> {
        make_call("cuptiProfilerInitialize", self.initialize, &mut NoParams::new())
    }

    /// Ends what `initialize_profiler` began. The library does not count, and crashes at a second call.
    pub(super) fn deinitialize_profiler(&self) {
        let _ = make_call("cuptiProfilerDeInitialize", self.deinitialize, &mut NoParams::new());
    }

    /// Returns the levels of support: whole, architecture, SLI, vGPU, confidential computing, CMP, WSL.
    pub(super) fn support_levels(&self, kind: ProfilerKind, device: i32) -> Result<[u32; 7], CallFailure> {
        let mut params = SupportParams::new(device, [0; 7], kind.of_support());
        make_call("cuptiProfilerDeviceSupported", self.device_supported, &mut params).map(|()| params.levels)
    }

    /// Returns the name of a device's chip, such as "GH100".
    pub(super) fn read_chip_name(&self, device: usize) -> Result<CString, CallFailure> {
        let mut params = ChipNameParams::new(device, null());
        make_call("cuptiDeviceGetChipName", self.chip_name, &mut params)?;
        Ok(CString::new(copy_text(params.name)).unwrap_or_default())
    }

    /// Returns how many passes a configuration takes.
    pub(super) fn count_passes(&self, config: &[u8]) -> Result<usize, CallFailure> {
        let mut params = PassesParams::new(config.len(), config.as_ptr(), 0);
        make_call("cuptiProfilerHostGetNumOfPasses", self.passes, &mut params).map(|()| params.passes)
    }
}

impl HostObject {
    /// Makes a host object for a chip; without an availability image, for all of its counters.
    pub(super) fn new(
        api: &'static ProfilerApi,
        kind: ProfilerKind,
        chip: &CStr,
        available: Option<&[u8]>,
    ) -> Result<HostObject, CallFailure> {
        let available = available.map(<[u8]>::to_vec);
        let image = available.as_ref().map_or(null(), Vec::as_ptr);
        let mut params = HostInitializeParams::new(kind.of_host(), chip.as_ptr(), image, null_mut());
        make_call("cuptiProfilerHostInitialize", api.host_initialize, &mut params)?;
        Ok(HostObject { api, kind, host: params.host.expose_provenance(), _available: available })
    }

    fn object(&self) -> Object {
        with_exposed_provenance_mut(self.host)
    }

    /// Adds metrics to the object, which is unusable after a failure.
    pub(super) fn add_metrics(&self, names: &MetricNames) -> Result<(), CallFailure> {
        let mut params = AddMetricsParams::new(self.object(), names.pointers.as_ptr(), names.count());
        make_call("cuptiProfilerHostConfigAddMetrics", self.api.add_metrics, &mut params)
    }

    /// Adds the metrics, and returns their configuration image. The object is unusable after a failure.
    pub(super) fn configure(&self, names: &MetricNames) -> Result<Vec<u8>, CallFailure> {
        self.add_metrics(names)?;
        let mut params = ConfigSizeParams::new(self.object(), 0);
        make_call("cuptiProfilerHostGetConfigImageSize", self.api.config_size, &mut params)?;
        let mut image = vec![0; params.size];
        let mut params = ConfigImageParams::new(self.object(), image.len(), image.as_mut_ptr());
        make_call("cuptiProfilerHostGetConfigImage", self.api.config_image, &mut params).map(|()| image)
    }

    /// Returns the metrics of a kind without their rollups: 0 counters, 1 ratios, 2 throughputs.
    pub(super) fn list_base_metrics(&self, kind: u32) -> Result<Vec<String>, CallFailure> {
        let mut params = BaseMetricsParams::new(self.object(), kind, null(), 0);
        make_call("cuptiProfilerHostGetBaseMetrics", self.api.base_metrics, &mut params)?;
        Ok(copy_texts(params.names, params.count))
    }

    /// Returns the rollups and submetrics of a metric.
    pub(super) fn list_sub_metrics(&self, kind: u32, base: &str) -> Result<Vec<String>, CallFailure> {
        let base = CString::new(base).unwrap_or_default();
        let mut params = SubMetricsParams::new(self.object(), kind, base.as_ptr(), 0, null());
        make_call("cuptiProfilerHostGetSubMetrics", self.api.sub_metrics, &mut params)?;
        Ok(copy_texts(params.names, params.count))
    }

    /// Returns the description and the unit of a metric.
    pub(super) fn describe_metric(&self, name: &str) -> Result<[String; 2], CallFailure> {
        let name = CString::new(name).unwrap_or_default();
        let mut params = PropertiesParams::new(self.object(), name.as_ptr(), null(), null(), null(), 0);
        make_call("cuptiProfilerHostGetMetricProperties", self.api.properties, &mut params)?;
        // What CUPTI calls the unit is the part of the chip.
        Ok([params.description, params.dimension].map(copy_text))
    }

    /// Computes the metrics of a sample, one value for each name.
    pub(super) fn evaluate(
        &self,
        image: &CounterImage,
        sample: usize,
        names: &MetricNames,
    ) -> Result<Vec<f64>, CallFailure> {
        let mut values = vec![f64::NAN; names.count()];
        let (object, place, bytes) = (self.object(), image.as_ptr(), image.bytes);
        let (pointers, count) = (names.pointers.as_ptr(), names.count());
        let mut params = EvaluateParams::new(object, place, bytes, sample, pointers, count, values.as_mut_ptr());
        make_call("cuptiProfilerHostEvaluateToGpuValues", self.api.evaluate, &mut params).map(|()| values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn params_have_the_offsets_of_the_headers() {
        assert_eq!((offset_of!(SupportParams, device), offset_of!(SupportParams, levels)), (16, 20));
        assert_eq!(offset_of!(SupportParams, interface), 48);
        assert_eq!((offset_of!(HostInitializeParams, chip), offset_of!(HostInitializeParams, host)), (24, 40));
        assert_eq!(
            (
                offset_of!(SubMetricsParams, base),
                offset_of!(SubMetricsParams, count),
                offset_of!(SubMetricsParams, names)
            ),
            (32, 40, 48)
        );
        assert_eq!((offset_of!(PropertiesParams, dimension), offset_of!(PropertiesParams, kind)), (48, 56));
        assert_eq!(
            (offset_of!(EvaluateParams, sample), offset_of!(EvaluateParams, names), offset_of!(EvaluateParams, values)),
            (40, 48, 64)
        );
    }

    #[test]
    fn metric_names_end_at_a_zero_byte() {
        let names = MetricNames::new(&["one.avg".to_owned(), "two\0.avg".to_owned()]);
        assert_eq!((names.count(), names.texts[1].as_c_str()), (2, c"two"));
        assert_eq!(copy_texts(names.pointers.as_ptr(), 2), ["one.avg", "two"]);
        assert_eq!((copy_texts(null(), 7), copy_text(null())), (vec![], String::new()));
    }
}
