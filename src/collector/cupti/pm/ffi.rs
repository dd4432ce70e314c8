//! Safe wrappers of CUPTI's profiler host, and of its PM sampling.
//!
//! Each call takes a struct that begins with its own size. The library refuses sizes that it does not know, and accepts
//! older ones, so each struct has the oldest size that contains its fields.
#![allow(unsafe_code, reason = "libcupti is foreign code")]

use super::super::error::CuptiError;
use crate::collector::Unavailable;
use crate::collector::library::functions;
use std::ffi::{CStr, CString, c_char};
use std::fmt;
use std::ptr::{null, null_mut, with_exposed_provenance_mut};

type Code = u32;
type Call<P> = unsafe extern "C" fn(*mut P) -> Code;
type Object = *mut std::ffi::c_void;

/// Declares the parameters of calls, with their sizes. All begin with their size and a null pointer.
macro_rules! params {
    ($($(#[$doc:meta])* $name:ident: $size:literal { $($field:ident: $type:ty),* $(,)? })+) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug)]
        pub(super) struct $name { struct_size: usize, reserved: *mut u8, $($field: $type,)* }

        impl $name {
            #[allow(clippy::too_many_arguments, reason = "they are the fields")]
            fn new($($field: $type),*) -> $name {
                // The size in memory may include padding at the end.
                const { assert!(size_of::<$name>() - $size < align_of::<$name>() && size_of::<$name>() >= $size) };
                $name { struct_size: $size, reserved: null_mut(), $($field),* }
            }
        }
    )+};
}

params! {
    NoParams: 16 {}
    /// Levels of support: whole, architecture, SLI, vGPU, confidential computing, CMP, WSL. The interface is 3 for PM
    /// sampling.
    SupportParams: 52 { device: i32, levels: [u32; 7], interface: u32 }
    ChipNameParams: 32 { device: usize, name: *const c_char }
    AvailabilityParams: 40 { device: usize, size: usize, image: *mut u8 }
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
    EnableParams: 32 { device: usize, sampler: Object }
    SetConfigParams: 64 {
        sampler: Object, config_size: usize, config: *const u8, buffer: usize, interval: u64, trigger: u32, append: u32,
    }
    ImageSizeParams: 56 {
        sampler: Object, names: *const *const c_char, count: usize, samples: u32, size: usize,
    }
    InitializeImageParams: 40 { sampler: Object, size: usize, image: *mut u8 }
    SamplerParams: 24 { sampler: Object }
    DecodeParams: 45 { sampler: Object, image: *mut u8, size: usize, reason: u32, overflow: u8 }
    ImageInfoParams: 56 { image: *const u8, size: usize, total: usize, populated: usize, completed: usize }
    SampleInfoParams: 64 { sampler: Object, image: *const u8, size: usize, sample: usize, start: u64, end: u64 }
}

functions! {
    /// The functions of CUPTI 12.6 for metrics and PM sampling.
    PmApi
    required {
    initialize = c"cuptiProfilerInitialize": Call<NoParams>;
    deinitialize = c"cuptiProfilerDeInitialize": Call<NoParams>;
    device_supported = c"cuptiProfilerDeviceSupported": Call<SupportParams>;
    chip_name = c"cuptiDeviceGetChipName": Call<ChipNameParams>;
    counter_availability = c"cuptiPmSamplingGetCounterAvailability": Call<AvailabilityParams>;
    host_initialize = c"cuptiProfilerHostInitialize": Call<HostInitializeParams>;
    host_deinitialize = c"cuptiProfilerHostDeinitialize": Call<HostParams>;
    add_metrics = c"cuptiProfilerHostConfigAddMetrics": Call<AddMetricsParams>;
    config_size = c"cuptiProfilerHostGetConfigImageSize": Call<ConfigSizeParams>;
    config_image = c"cuptiProfilerHostGetConfigImage": Call<ConfigImageParams>;
    passes = c"cuptiProfilerHostGetNumOfPasses": Call<PassesParams>;
    base_metrics = c"cuptiProfilerHostGetBaseMetrics": Call<BaseMetricsParams>;
    sub_metrics = c"cuptiProfilerHostGetSubMetrics": Call<SubMetricsParams>;
    properties = c"cuptiProfilerHostGetMetricProperties": Call<PropertiesParams>;
    evaluate = c"cuptiProfilerHostEvaluateToGpuValues": Call<EvaluateParams>;
    enable = c"cuptiPmSamplingEnable": Call<EnableParams>;
    disable = c"cuptiPmSamplingDisable": Call<SamplerParams>;
    set_config = c"cuptiPmSamplingSetConfig": Call<SetConfigParams>;
    start = c"cuptiPmSamplingStart": Call<SamplerParams>;
    stop = c"cuptiPmSamplingStop": Call<SamplerParams>;
    decode = c"cuptiPmSamplingDecodeData": Call<DecodeParams>;
    image_size = c"cuptiPmSamplingGetCounterDataSize": Call<ImageSizeParams>;
    initialize_image = c"cuptiPmSamplingCounterDataImageInitialize": Call<InitializeImageParams>;
    image_info = c"cuptiPmSamplingGetCounterDataInfo": Call<ImageInfoParams>;
    sample_info = c"cuptiPmSamplingCounterDataGetSampleInfo": Call<SampleInfoParams>;
    }
    optional {}
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

/// An object of the profiler host. It lives until it is deinitialised.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostHandle(usize);

/// An object that samples a device. It lives until it is disabled.
#[derive(Clone, Copy, Debug)]
pub(super) struct SamplerHandle(usize);

/// The names of metrics, as C passes them.
#[derive(Debug)]
pub(super) struct MetricNames {
    /// Own the texts that `pointers` point to.
    texts: Vec<CString>,
    pointers: Vec<*const c_char>,
}

/// A counter data image: the memory into which samples are decoded. The default is an empty one.
#[derive(Debug, Default)]
pub(super) struct CounterImage {
    /// Words, for the alignment.
    words: Vec<u64>,
    /// The words of the empty image.
    empty: Vec<u64>,
    bytes: usize,
}

/// The outcome of a decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DecodeOutcome {
    /// Whether the image was full, and samples are left.
    pub(super) is_full: bool,
    /// Whether the hardware's buffer overflowed.
    pub(super) overflowed: bool,
}

/// What a sampler is to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct SamplerConfig<'c> {
    /// The configuration image. CUPTI reads it until the sampler is disabled.
    pub(super) image: &'c [u8],
    /// The bytes of the hardware's buffer.
    pub(super) buffer: usize,
    /// Nanoseconds, or cycles of the system's clock.
    pub(super) interval: u64,
    pub(super) by_cycles: bool,
    /// Whether the newest samples replace the oldest ones; `None` before CUPTI 12.8, which has no choice
    /// and keeps the oldest.
    pub(super) keeps_newest: Option<bool>,
}

/// The description of a metric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MetricProperties {
    pub(super) description: String,
    pub(super) unit: String,
}

/// The profiler type of PM sampling, of the host and of `cuptiProfilerDeviceSupported`.
const HOST_FOR_PM_SAMPLING: u32 = 1;
const PM_SAMPLING: u32 = 3;
/// The reason for which a decode ended because the image is full.
const IMAGE_FULL: u32 = 1;

/// Makes a call whose parameters this module has filled.
fn make_call<P>(name: &'static str, call: Call<P>, params: &mut P) -> Result<(), CallFailure> {
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
}

impl CounterImage {
    fn new(bytes: usize) -> CounterImage {
        CounterImage { words: vec![0; bytes.div_ceil(size_of::<u64>())], empty: Vec::new(), bytes }
    }

    fn as_ptr(&self) -> *const u8 {
        self.words.as_ptr().cast()
    }

    /// Empties the image without a call.
    pub(super) fn restore_empty(&mut self) {
        self.words.clone_from(&self.empty);
    }

    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.words.as_mut_ptr().cast()
    }
}

impl HostHandle {
    fn object(self) -> Object {
        with_exposed_provenance_mut(self.0)
    }
}

impl SamplerHandle {
    fn object(self) -> Object {
        with_exposed_provenance_mut(self.0)
    }
}

impl PmApi {
    pub(super) fn initialize_profiler(&self) -> Result<(), CallFailure> {
        make_call("cuptiProfilerInitialize", self.initialize, &mut NoParams::new())
    }

    /// Ends what `initialize_profiler` began. The library does not count, and crashes at a second call.
    pub(super) fn deinitialize_profiler(&self) {
        let _ = make_call("cuptiProfilerDeInitialize", self.deinitialize, &mut NoParams::new());
    }

    /// Returns the levels of support of PM sampling: whole, architecture, SLI, vGPU, confidential computing, CMP, WSL.
    pub(super) fn support_levels(&self, device: i32) -> Result<[u32; 7], CallFailure> {
        let mut params = SupportParams::new(device, [0; 7], PM_SAMPLING);
        make_call("cuptiProfilerDeviceSupported", self.device_supported, &mut params).map(|()| params.levels)
    }

    /// Returns the name of a device's chip, such as "GH100".
    pub(super) fn read_chip_name(&self, device: usize) -> Result<CString, CallFailure> {
        let mut params = ChipNameParams::new(device, null());
        make_call("cuptiDeviceGetChipName", self.chip_name, &mut params)?;
        Ok(CString::new(copy_text(params.name)).unwrap_or_default())
    }

    /// Returns the image that tells which counters of a device are free.
    pub(super) fn read_availability(&self, device: usize) -> Result<Vec<u8>, CallFailure> {
        const NAME: &str = "cuptiPmSamplingGetCounterAvailability";
        let mut params = AvailabilityParams::new(device, 0, null_mut());
        make_call(NAME, self.counter_availability, &mut params)?;
        let mut image = vec![0; params.size];
        params = AvailabilityParams::new(device, image.len(), image.as_mut_ptr());
        make_call(NAME, self.counter_availability, &mut params).map(|()| image)
    }

    /// Makes a host object for a chip; without an availability image, for all of its counters.
    pub(super) fn new_host(&self, chip: &CStr, availability: Option<&[u8]>) -> Result<HostHandle, CallFailure> {
        let availability = availability.map_or(null(), <[u8]>::as_ptr);
        let mut params = HostInitializeParams::new(HOST_FOR_PM_SAMPLING, chip.as_ptr(), availability, null_mut());
        make_call("cuptiProfilerHostInitialize", self.host_initialize, &mut params)?;
        Ok(HostHandle(params.host.expose_provenance()))
    }

    pub(super) fn end_host(&self, host: HostHandle) {
        let mut params = HostParams::new(host.object());
        let _ = make_call("cuptiProfilerHostDeinitialize", self.host_deinitialize, &mut params);
    }

    /// Adds metrics to a host object, which is unusable after a failure.
    pub(super) fn add_metrics(&self, host: HostHandle, names: &MetricNames) -> Result<(), CallFailure> {
        let mut params = AddMetricsParams::new(host.object(), names.pointers.as_ptr(), names.count());
        make_call("cuptiProfilerHostConfigAddMetrics", self.add_metrics, &mut params)
    }

    /// Returns the configuration image of the added metrics.
    pub(super) fn read_config(&self, host: HostHandle) -> Result<Vec<u8>, CallFailure> {
        let mut params = ConfigSizeParams::new(host.object(), 0);
        make_call("cuptiProfilerHostGetConfigImageSize", self.config_size, &mut params)?;
        let mut image = vec![0; params.size];
        let mut params = ConfigImageParams::new(host.object(), image.len(), image.as_mut_ptr());
        make_call("cuptiProfilerHostGetConfigImage", self.config_image, &mut params).map(|()| image)
    }

    /// Returns how many passes a configuration takes.
    pub(super) fn count_passes(&self, config: &[u8]) -> Result<usize, CallFailure> {
        let mut params = PassesParams::new(config.len(), config.as_ptr(), 0);
        make_call("cuptiProfilerHostGetNumOfPasses", self.passes, &mut params).map(|()| params.passes)
    }

    /// Returns the metrics of a kind without their rollups: 0 counters, 1 ratios, 2 throughputs.
    pub(super) fn list_base_metrics(&self, host: HostHandle, kind: u32) -> Result<Vec<String>, CallFailure> {
        let mut params = BaseMetricsParams::new(host.object(), kind, null(), 0);
        make_call("cuptiProfilerHostGetBaseMetrics", self.base_metrics, &mut params)?;
        Ok(copy_texts(params.names, params.count))
    }

    /// Returns the rollups and submetrics of a metric.
    pub(super) fn list_sub_metrics(&self, host: HostHandle, kind: u32, base: &str) -> Result<Vec<String>, CallFailure> {
        let base = CString::new(base).unwrap_or_default();
        let mut params = SubMetricsParams::new(host.object(), kind, base.as_ptr(), 0, null());
        make_call("cuptiProfilerHostGetSubMetrics", self.sub_metrics, &mut params)?;
        Ok(copy_texts(params.names, params.count))
    }

    pub(super) fn metric_properties(&self, host: HostHandle, name: &str) -> Result<MetricProperties, CallFailure> {
        let name = CString::new(name).unwrap_or_default();
        let mut params = PropertiesParams::new(host.object(), name.as_ptr(), null(), null(), null(), 0);
        make_call("cuptiProfilerHostGetMetricProperties", self.properties, &mut params)?;
        // What CUPTI calls the unit is the part of the chip.
        Ok(MetricProperties { description: copy_text(params.description), unit: copy_text(params.dimension) })
    }

    /// Computes the metrics of a sample, one value for each name.
    pub(super) fn evaluate_sample(
        &self,
        host: HostHandle,
        image: &CounterImage,
        sample: usize,
        names: &MetricNames,
    ) -> Result<Vec<f64>, CallFailure> {
        let mut values = vec![f64::NAN; names.count()];
        let (bytes, pointers) = (image.bytes, names.pointers.as_ptr());
        let mut params = EvaluateParams::new(
            host.object(),
            image.as_ptr(),
            bytes,
            sample,
            pointers,
            names.count(),
            values.as_mut_ptr(),
        );
        make_call("cuptiProfilerHostEvaluateToGpuValues", self.evaluate, &mut params).map(|()| values)
    }

    /// Reserves a device's counters.
    pub(super) fn enable_sampler(&self, device: usize) -> Result<SamplerHandle, CallFailure> {
        let mut params = EnableParams::new(device, null_mut());
        make_call("cuptiPmSamplingEnable", self.enable, &mut params)?;
        Ok(SamplerHandle(params.sampler.expose_provenance()))
    }

    pub(super) fn disable_sampler(&self, sampler: SamplerHandle) {
        let _ = make_call("cuptiPmSamplingDisable", self.disable, &mut SamplerParams::new(sampler.object()));
    }

    pub(super) fn configure_sampler(
        &self,
        sampler: SamplerHandle,
        config: &SamplerConfig<'_>,
    ) -> Result<(), CallFailure> {
        let SamplerConfig { image, buffer, interval, by_cycles, keeps_newest } = *config;
        let (object, size, trigger) = (sampler.object(), image.len(), u32::from(!by_cycles));
        let append = keeps_newest.unwrap_or(false).into();
        let mut params = SetConfigParams::new(object, size, image.as_ptr(), buffer, interval, trigger, append);
        if keeps_newest.is_none() {
            params.struct_size = std::mem::offset_of!(SetConfigParams, append);
        }
        make_call("cuptiPmSamplingSetConfig", self.set_config, &mut params)
    }

    /// Makes an image that can hold that many samples.
    pub(super) fn new_image(
        &self,
        sampler: SamplerHandle,
        names: &MetricNames,
        samples: u32,
    ) -> Result<CounterImage, CallFailure> {
        let mut image = CounterImage::new(self.measure_image(sampler, names, samples)?);
        self.reset_image(sampler, &mut image)?;
        image.empty.clone_from(&image.words);
        Ok(image)
    }

    /// Returns how many bytes such an image takes.
    pub(super) fn measure_image(
        &self,
        sampler: SamplerHandle,
        names: &MetricNames,
        samples: u32,
    ) -> Result<usize, CallFailure> {
        let mut params = ImageSizeParams::new(sampler.object(), names.pointers.as_ptr(), names.count(), samples, 0);
        make_call("cuptiPmSamplingGetCounterDataSize", self.image_size, &mut params).map(|()| params.size)
    }

    /// Empties an image.
    pub(super) fn reset_image(&self, sampler: SamplerHandle, image: &mut CounterImage) -> Result<(), CallFailure> {
        let mut params = InitializeImageParams::new(sampler.object(), image.bytes, image.as_mut_ptr());
        make_call("cuptiPmSamplingCounterDataImageInitialize", self.initialize_image, &mut params)
    }

    pub(super) fn start_sampler(&self, sampler: SamplerHandle) -> Result<(), CallFailure> {
        make_call("cuptiPmSamplingStart", self.start, &mut SamplerParams::new(sampler.object()))
    }

    pub(super) fn stop_sampler(&self, sampler: SamplerHandle) -> Result<(), CallFailure> {
        make_call("cuptiPmSamplingStop", self.stop, &mut SamplerParams::new(sampler.object()))
    }

    /// Moves samples from the hardware's buffer into an image, after those that it contains.
    pub(super) fn decode_samples(
        &self,
        sampler: SamplerHandle,
        image: &mut CounterImage,
    ) -> Result<DecodeOutcome, CallFailure> {
        let mut params = DecodeParams::new(sampler.object(), image.as_mut_ptr(), image.bytes, 0, 0);
        make_call("cuptiPmSamplingDecodeData", self.decode, &mut params)?;
        Ok(DecodeOutcome { is_full: params.reason == IMAGE_FULL, overflowed: params.overflow != 0 })
    }

    /// Returns how many samples of an image are complete.
    pub(super) fn count_samples(&self, image: &CounterImage) -> Result<usize, CallFailure> {
        let mut params = ImageInfoParams::new(image.as_ptr(), image.bytes, 0, 0, 0);
        make_call("cuptiPmSamplingGetCounterDataInfo", self.image_info, &mut params).map(|()| params.completed)
    }

    /// Returns when a sample began and ended.
    pub(super) fn sample_times(
        &self,
        sampler: SamplerHandle,
        image: &CounterImage,
        sample: usize,
    ) -> Result<(u64, u64), CallFailure> {
        let mut params = SampleInfoParams::new(sampler.object(), image.as_ptr(), image.bytes, sample, 0, 0);
        make_call("cuptiPmSamplingCounterDataGetSampleInfo", self.sample_info, &mut params)?;
        Ok((params.start, params.end))
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
        assert_eq!(
            (
                offset_of!(SetConfigParams, interval),
                offset_of!(SetConfigParams, trigger),
                offset_of!(SetConfigParams, append)
            ),
            (48, 56, 60)
        );
        assert_eq!((offset_of!(ImageSizeParams, samples), offset_of!(ImageSizeParams, size)), (40, 48));
        assert_eq!((offset_of!(DecodeParams, reason), offset_of!(DecodeParams, overflow)), (40, 44));
        assert_eq!(
            (
                offset_of!(ImageInfoParams, completed),
                offset_of!(SampleInfoParams, start),
                offset_of!(SampleInfoParams, end)
            ),
            (48, 48, 56)
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
