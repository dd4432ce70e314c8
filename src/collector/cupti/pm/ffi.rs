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
    Nothing: 16 {}
    /// Levels of support: whole, architecture, SLI, vGPU, confidential computing, CMP, WSL. The interface is 3 for PM
    /// sampling.
    Supported: 52 { device: i32, levels: [u32; 7], interface: u32 }
    ChipName: 32 { device: usize, name: *const c_char }
    Availability: 40 { device: usize, size: usize, image: *mut u8 }
    NewHost: 48 { profiler: u32, chip: *const c_char, availability: *const u8, host: Object }
    HostOnly: 24 { host: Object }
    AddMetrics: 40 { host: Object, names: *const *const c_char, count: usize }
    ConfigSize: 32 { host: Object, size: usize }
    ConfigImage: 40 { host: Object, size: usize, image: *mut u8 }
    Passes: 40 { size: usize, image: *const u8, passes: usize }
    BaseMetrics: 48 { host: Object, kind: u32, names: *const *const c_char, count: usize }
    SubMetrics: 56 { host: Object, kind: u32, base: *const c_char, count: usize, names: *const *const c_char }
    Properties: 60 {
        host: Object, name: *const c_char, description: *const c_char, part: *const c_char, dimension: *const c_char,
        kind: u32,
    }
    Evaluate: 72 {
        host: Object, image: *const u8, size: usize, sample: usize, names: *const *const c_char, count: usize,
        values: *mut f64,
    }
    Enable: 32 { device: usize, sampler: Object }
    SetConfig: 64 {
        sampler: Object, config_size: usize, config: *const u8, buffer: usize, interval: u64, trigger: u32, append: u32,
    }
    ImageSize: 56 {
        sampler: Object, names: *const *const c_char, count: usize, samples: u32, size: usize,
    }
    InitializeImage: 40 { sampler: Object, size: usize, image: *mut u8 }
    SamplerOnly: 24 { sampler: Object }
    Decode: 45 { sampler: Object, image: *mut u8, size: usize, reason: u32, overflow: u8 }
    ImageInfo: 56 { image: *const u8, size: usize, total: usize, populated: usize, completed: usize }
    SampleInfo: 64 { sampler: Object, image: *const u8, size: usize, sample: usize, start: u64, end: u64 }
}

functions! {
    /// The functions of CUPTI 12.6 for metrics and PM sampling.
    PmApi
    required {
    initialize = c"cuptiProfilerInitialize": Call<Nothing>;
    deinitialize = c"cuptiProfilerDeInitialize": Call<Nothing>;
    device_supported = c"cuptiProfilerDeviceSupported": Call<Supported>;
    chip_name = c"cuptiDeviceGetChipName": Call<ChipName>;
    counter_availability = c"cuptiPmSamplingGetCounterAvailability": Call<Availability>;
    host_initialize = c"cuptiProfilerHostInitialize": Call<NewHost>;
    host_deinitialize = c"cuptiProfilerHostDeinitialize": Call<HostOnly>;
    add_metrics = c"cuptiProfilerHostConfigAddMetrics": Call<AddMetrics>;
    config_size = c"cuptiProfilerHostGetConfigImageSize": Call<ConfigSize>;
    config_image = c"cuptiProfilerHostGetConfigImage": Call<ConfigImage>;
    passes = c"cuptiProfilerHostGetNumOfPasses": Call<Passes>;
    base_metrics = c"cuptiProfilerHostGetBaseMetrics": Call<BaseMetrics>;
    sub_metrics = c"cuptiProfilerHostGetSubMetrics": Call<SubMetrics>;
    properties = c"cuptiProfilerHostGetMetricProperties": Call<Properties>;
    evaluate = c"cuptiProfilerHostEvaluateToGpuValues": Call<Evaluate>;
    enable = c"cuptiPmSamplingEnable": Call<Enable>;
    disable = c"cuptiPmSamplingDisable": Call<SamplerOnly>;
    set_config = c"cuptiPmSamplingSetConfig": Call<SetConfig>;
    start = c"cuptiPmSamplingStart": Call<SamplerOnly>;
    stop = c"cuptiPmSamplingStop": Call<SamplerOnly>;
    decode = c"cuptiPmSamplingDecodeData": Call<Decode>;
    image_size = c"cuptiPmSamplingGetCounterDataSize": Call<ImageSize>;
    initialize_image = c"cuptiPmSamplingCounterDataImageInitialize": Call<InitializeImage>;
    image_info = c"cuptiPmSamplingGetCounterDataInfo": Call<ImageInfo>;
    sample_info = c"cuptiPmSamplingCounterDataGetSampleInfo": Call<SampleInfo>;
    }
    optional {}
}

/// A call that failed: its name, and CUPTI's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failed {
    pub(super) call: &'static str,
    pub(super) error: CuptiError,
}

impl Failed {
    /// Makes the reason why nothing is sampled.
    pub(super) fn to_unavailable(self) -> Unavailable {
        self.error.to_unavailable(self.call, "")
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.error)
    }
}

/// An object of the profiler host. It lives until it is deinitialised.
#[derive(Clone, Copy, Debug)]
pub(super) struct Host(usize);

/// An object that samples a device. It lives until it is disabled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sampler(usize);

/// The names of metrics, as C passes them.
#[derive(Debug)]
pub(super) struct MetricNames {
    /// Own the texts that `pointers` point to.
    texts: Vec<CString>,
    pointers: Vec<*const c_char>,
}

/// A counter data image: the memory into which samples are decoded. The default is an empty one.
#[derive(Debug, Default)]
pub(super) struct Image {
    /// Words, for the alignment.
    words: Vec<u64>,
    bytes: usize,
}

/// The outcome of a decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decoded {
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
fn make_call<P>(name: &'static str, call: Call<P>, params: &mut P) -> Result<(), Failed> {
    // SAFETY: `params` is the call's own struct, whose size it states. Its pointers come from references and objects that
    // live until the wrapper of the call returns; lengths are those of what they point to.
    match unsafe { call(params) } {
        0 => Ok(()),
        code => Err(Failed { call: name, error: CuptiError(code) }),
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

impl Image {
    fn new(bytes: usize) -> Image {
        Image { words: vec![0; bytes.div_ceil(size_of::<u64>())], bytes }
    }

    fn as_ptr(&self) -> *const u8 {
        self.words.as_ptr().cast()
    }

    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.words.as_mut_ptr().cast()
    }
}

impl Host {
    fn object(self) -> Object {
        with_exposed_provenance_mut(self.0)
    }
}

impl Sampler {
    fn object(self) -> Object {
        with_exposed_provenance_mut(self.0)
    }
}

impl PmApi {
    pub(super) fn initialize_profiler(&self) -> Result<(), Failed> {
        make_call("cuptiProfilerInitialize", self.initialize, &mut Nothing::new())
    }

    /// Ends what `initialize_profiler` began. The library does not count, and crashes at a second call.
    pub(super) fn deinitialize_profiler(&self) {
        let _ = make_call("cuptiProfilerDeInitialize", self.deinitialize, &mut Nothing::new());
    }

    /// Returns the levels of support of PM sampling: whole, architecture, SLI, vGPU, confidential computing, CMP, WSL.
    pub(super) fn support_levels(&self, device: i32) -> Result<[u32; 7], Failed> {
        let mut params = Supported::new(device, [0; 7], PM_SAMPLING);
        make_call("cuptiProfilerDeviceSupported", self.device_supported, &mut params).map(|()| params.levels)
    }

    /// Returns the name of a device's chip, such as "GH100".
    pub(super) fn read_chip_name(&self, device: usize) -> Result<CString, Failed> {
        let mut params = ChipName::new(device, null());
        make_call("cuptiDeviceGetChipName", self.chip_name, &mut params)?;
        Ok(CString::new(copy_text(params.name)).unwrap_or_default())
    }

    /// Returns the image that tells which counters of a device are free.
    pub(super) fn read_availability(&self, device: usize) -> Result<Vec<u8>, Failed> {
        const NAME: &str = "cuptiPmSamplingGetCounterAvailability";
        let mut params = Availability::new(device, 0, null_mut());
        make_call(NAME, self.counter_availability, &mut params)?;
        let mut image = vec![0; params.size];
        params = Availability::new(device, image.len(), image.as_mut_ptr());
        make_call(NAME, self.counter_availability, &mut params).map(|()| image)
    }

    /// Makes a host object for a chip; without an availability image, for all of its counters.
    pub(super) fn new_host(&self, chip: &CStr, availability: Option<&[u8]>) -> Result<Host, Failed> {
        let availability = availability.map_or(null(), <[u8]>::as_ptr);
        let mut params = NewHost::new(HOST_FOR_PM_SAMPLING, chip.as_ptr(), availability, null_mut());
        make_call("cuptiProfilerHostInitialize", self.host_initialize, &mut params)?;
        Ok(Host(params.host.expose_provenance()))
    }

    pub(super) fn end_host(&self, host: Host) {
        let mut params = HostOnly::new(host.object());
        let _ = make_call("cuptiProfilerHostDeinitialize", self.host_deinitialize, &mut params);
    }

    /// Adds metrics to a host object, which is unusable after a failure.
    pub(super) fn add_metrics(&self, host: Host, names: &MetricNames) -> Result<(), Failed> {
        let mut params = AddMetrics::new(host.object(), names.pointers.as_ptr(), names.count());
        make_call("cuptiProfilerHostConfigAddMetrics", self.add_metrics, &mut params)
    }

    /// Returns the configuration image of the added metrics.
    pub(super) fn read_config(&self, host: Host) -> Result<Vec<u8>, Failed> {
        let mut params = ConfigSize::new(host.object(), 0);
        make_call("cuptiProfilerHostGetConfigImageSize", self.config_size, &mut params)?;
        let mut image = vec![0; params.size];
        let mut params = ConfigImage::new(host.object(), image.len(), image.as_mut_ptr());
        make_call("cuptiProfilerHostGetConfigImage", self.config_image, &mut params).map(|()| image)
    }

    /// Returns how many passes a configuration takes.
    pub(super) fn count_passes(&self, config: &[u8]) -> Result<usize, Failed> {
        let mut params = Passes::new(config.len(), config.as_ptr(), 0);
        make_call("cuptiProfilerHostGetNumOfPasses", self.passes, &mut params).map(|()| params.passes)
    }

    /// Returns the metrics of a kind without their rollups: 0 counters, 1 ratios, 2 throughputs.
    pub(super) fn list_base_metrics(&self, host: Host, kind: u32) -> Result<Vec<String>, Failed> {
        let mut params = BaseMetrics::new(host.object(), kind, null(), 0);
        make_call("cuptiProfilerHostGetBaseMetrics", self.base_metrics, &mut params)?;
        Ok(copy_texts(params.names, params.count))
    }

    /// Returns the rollups and submetrics of a metric.
    pub(super) fn list_sub_metrics(&self, host: Host, kind: u32, base: &str) -> Result<Vec<String>, Failed> {
        let base = CString::new(base).unwrap_or_default();
        let mut params = SubMetrics::new(host.object(), kind, base.as_ptr(), 0, null());
        make_call("cuptiProfilerHostGetSubMetrics", self.sub_metrics, &mut params)?;
        Ok(copy_texts(params.names, params.count))
    }

    pub(super) fn metric_properties(&self, host: Host, name: &str) -> Result<MetricProperties, Failed> {
        let name = CString::new(name).unwrap_or_default();
        let mut params = Properties::new(host.object(), name.as_ptr(), null(), null(), null(), 0);
        make_call("cuptiProfilerHostGetMetricProperties", self.properties, &mut params)?;
        // What CUPTI calls the unit is the part of the chip.
        Ok(MetricProperties { description: copy_text(params.description), unit: copy_text(params.dimension) })
    }

    /// Computes the metrics of a sample, one value for each name.
    pub(super) fn evaluate_sample(
        &self,
        host: Host,
        image: &Image,
        sample: usize,
        names: &MetricNames,
    ) -> Result<Vec<f64>, Failed> {
        let mut values = vec![f64::NAN; names.count()];
        let (bytes, pointers) = (image.bytes, names.pointers.as_ptr());
        let mut params =
            Evaluate::new(host.object(), image.as_ptr(), bytes, sample, pointers, names.count(), values.as_mut_ptr());
        make_call("cuptiProfilerHostEvaluateToGpuValues", self.evaluate, &mut params).map(|()| values)
    }

    /// Reserves a device's counters.
    pub(super) fn enable_sampler(&self, device: usize) -> Result<Sampler, Failed> {
        let mut params = Enable::new(device, null_mut());
        make_call("cuptiPmSamplingEnable", self.enable, &mut params)?;
        Ok(Sampler(params.sampler.expose_provenance()))
    }

    pub(super) fn disable_sampler(&self, sampler: Sampler) {
        let _ = make_call("cuptiPmSamplingDisable", self.disable, &mut SamplerOnly::new(sampler.object()));
    }

    pub(super) fn configure_sampler(&self, sampler: Sampler, config: &SamplerConfig<'_>) -> Result<(), Failed> {
        let SamplerConfig { image, buffer, interval, by_cycles, keeps_newest } = *config;
        let (object, size, trigger) = (sampler.object(), image.len(), u32::from(!by_cycles));
        let append = keeps_newest.unwrap_or(false).into();
        let mut params = SetConfig::new(object, size, image.as_ptr(), buffer, interval, trigger, append);
        if keeps_newest.is_none() {
            params.struct_size = std::mem::offset_of!(SetConfig, append);
        }
        make_call("cuptiPmSamplingSetConfig", self.set_config, &mut params)
    }

    /// Makes an image that can hold that many samples.
    pub(super) fn new_image(&self, sampler: Sampler, names: &MetricNames, samples: u32) -> Result<Image, Failed> {
        let mut image = Image::new(self.measure_image(sampler, names, samples)?);
        self.reset_image(sampler, &mut image).map(|()| image)
    }

    /// Returns how many bytes such an image takes.
    pub(super) fn measure_image(&self, sampler: Sampler, names: &MetricNames, samples: u32) -> Result<usize, Failed> {
        let mut params = ImageSize::new(sampler.object(), names.pointers.as_ptr(), names.count(), samples, 0);
        make_call("cuptiPmSamplingGetCounterDataSize", self.image_size, &mut params).map(|()| params.size)
    }

    /// Empties an image.
    pub(super) fn reset_image(&self, sampler: Sampler, image: &mut Image) -> Result<(), Failed> {
        let mut params = InitializeImage::new(sampler.object(), image.bytes, image.as_mut_ptr());
        make_call("cuptiPmSamplingCounterDataImageInitialize", self.initialize_image, &mut params)
    }

    pub(super) fn start_sampler(&self, sampler: Sampler) -> Result<(), Failed> {
        make_call("cuptiPmSamplingStart", self.start, &mut SamplerOnly::new(sampler.object()))
    }

    pub(super) fn stop_sampler(&self, sampler: Sampler) -> Result<(), Failed> {
        make_call("cuptiPmSamplingStop", self.stop, &mut SamplerOnly::new(sampler.object()))
    }

    /// Moves samples from the hardware's buffer into an image, after those that it contains.
    pub(super) fn decode_samples(&self, sampler: Sampler, image: &mut Image) -> Result<Decoded, Failed> {
        let mut params = Decode::new(sampler.object(), image.as_mut_ptr(), image.bytes, 0, 0);
        make_call("cuptiPmSamplingDecodeData", self.decode, &mut params)?;
        Ok(Decoded { is_full: params.reason == IMAGE_FULL, overflowed: params.overflow != 0 })
    }

    /// Returns how many samples of an image are complete.
    pub(super) fn count_samples(&self, image: &Image) -> Result<usize, Failed> {
        let mut params = ImageInfo::new(image.as_ptr(), image.bytes, 0, 0, 0);
        make_call("cuptiPmSamplingGetCounterDataInfo", self.image_info, &mut params).map(|()| params.completed)
    }

    /// Returns when a sample began and ended.
    pub(super) fn sample_times(&self, sampler: Sampler, image: &Image, sample: usize) -> Result<(u64, u64), Failed> {
        let mut params = SampleInfo::new(sampler.object(), image.as_ptr(), image.bytes, sample, 0, 0);
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
        assert_eq!((offset_of!(Supported, device), offset_of!(Supported, levels)), (16, 20));
        assert_eq!(offset_of!(Supported, interface), 48);
        assert_eq!((offset_of!(NewHost, chip), offset_of!(NewHost, host)), (24, 40));
        assert_eq!(
            (offset_of!(SubMetrics, base), offset_of!(SubMetrics, count), offset_of!(SubMetrics, names)),
            (32, 40, 48)
        );
        assert_eq!((offset_of!(Properties, dimension), offset_of!(Properties, kind)), (48, 56));
        assert_eq!(
            (offset_of!(Evaluate, sample), offset_of!(Evaluate, names), offset_of!(Evaluate, values)),
            (40, 48, 64)
        );
        assert_eq!(
            (offset_of!(SetConfig, interval), offset_of!(SetConfig, trigger), offset_of!(SetConfig, append)),
            (48, 56, 60)
        );
        assert_eq!((offset_of!(ImageSize, samples), offset_of!(ImageSize, size)), (40, 48));
        assert_eq!((offset_of!(Decode, reason), offset_of!(Decode, overflow)), (40, 44));
        assert_eq!(
            (offset_of!(ImageInfo, completed), offset_of!(SampleInfo, start), offset_of!(SampleInfo, end)),
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
