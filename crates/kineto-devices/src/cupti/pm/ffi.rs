//! Safe wrappers of CUPTI's PM sampling.
#![allow(unsafe_code, reason = "libcupti is foreign code")]

use super::super::profiler::ffi::{CallFailure, CounterImage, MetricNames, Object, make_call, params};
use crate::library::functions;
use std::ffi::c_char;
use std::ptr::{null_mut, with_exposed_provenance_mut};

params! {
    AvailabilityParams: 40 { device: usize, size: usize, image: *mut u8 }
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
    /// The functions of CUPTI 12.6 for PM sampling.
    PmApi
    required {
    counter_availability = c"cuptiPmSamplingGetCounterAvailability": fn(*mut AvailabilityParams) -> u32;
    enable = c"cuptiPmSamplingEnable": fn(*mut EnableParams) -> u32;
    disable = c"cuptiPmSamplingDisable": fn(*mut SamplerParams) -> u32;
    set_config = c"cuptiPmSamplingSetConfig": fn(*mut SetConfigParams) -> u32;
    start = c"cuptiPmSamplingStart": fn(*mut SamplerParams) -> u32;
    stop = c"cuptiPmSamplingStop": fn(*mut SamplerParams) -> u32;
    decode = c"cuptiPmSamplingDecodeData": fn(*mut DecodeParams) -> u32;
    image_size = c"cuptiPmSamplingGetCounterDataSize": fn(*mut ImageSizeParams) -> u32;
    initialize_image = c"cuptiPmSamplingCounterDataImageInitialize": fn(*mut InitializeImageParams) -> u32;
    image_info = c"cuptiPmSamplingGetCounterDataInfo": fn(*mut ImageInfoParams) -> u32;
    sample_info = c"cuptiPmSamplingCounterDataGetSampleInfo": fn(*mut SampleInfoParams) -> u32;
    }
}

/// An object that samples a device. It lives until it is disabled.
#[derive(Clone, Copy, Debug)]
pub(super) struct SamplerHandle(usize);

/// The outcome of a decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DecodeOutcome {
    /// Whether the image was full, and samples are left.
    pub(super) is_full: bool,
    /// Whether the hardware's buffer overflowed.
    pub(super) overflowed: bool,
}

/// The configuration of a sampler.
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

/// The reason for which a decode ended because the image is full.
const IMAGE_FULL: u32 = 1;

impl SamplerHandle {
    fn object(self) -> Object {
        with_exposed_provenance_mut(self.0)
    }
}

impl PmApi {
    /// Returns the image that tells which counters of a device are free.
    pub(super) fn read_availability(&self, device: usize) -> Result<Vec<u8>, CallFailure> {
        const NAME: &str = "cuptiPmSamplingGetCounterAvailability";
        let mut params = AvailabilityParams::new(device, 0, null_mut());
        make_call(NAME, self.counter_availability, &mut params)?;
        let mut image = vec![0; params.size];
        params = AvailabilityParams::new(device, image.len(), image.as_mut_ptr());
        make_call(NAME, self.counter_availability, &mut params).map(|()| image)
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
        image.keep_as_empty();
        Ok(image)
    }

    /// Returns how many bytes such an image takes.
    pub(super) fn measure_image(
        &self,
        sampler: SamplerHandle,
        names: &MetricNames,
        samples: u32,
    ) -> Result<usize, CallFailure> {
        let mut params = ImageSizeParams::new(sampler.object(), names.as_ptr(), names.count(), samples, 0);
        make_call("cuptiPmSamplingGetCounterDataSize", self.image_size, &mut params).map(|()| params.size)
    }

    /// Empties an image.
    pub(super) fn reset_image(&self, sampler: SamplerHandle, image: &mut CounterImage) -> Result<(), CallFailure> {
        let mut params = InitializeImageParams::new(sampler.object(), image.bytes(), image.as_mut_ptr());
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
        let mut params = DecodeParams::new(sampler.object(), image.as_mut_ptr(), image.bytes(), 0, 0);
        make_call("cuptiPmSamplingDecodeData", self.decode, &mut params)?;
        Ok(DecodeOutcome { is_full: params.reason == IMAGE_FULL, overflowed: params.overflow != 0 })
    }

    /// Returns how many samples of an image are complete.
    pub(super) fn count_samples(&self, image: &CounterImage) -> Result<usize, CallFailure> {
        let mut params = ImageInfoParams::new(image.as_ptr(), image.bytes(), 0, 0, 0);
        make_call("cuptiPmSamplingGetCounterDataInfo", self.image_info, &mut params).map(|()| params.completed)
    }

    /// Returns when a sample began and ended.
    pub(super) fn sample_times(
        &self,
        sampler: SamplerHandle,
        image: &CounterImage,
        sample: usize,
    ) -> Result<(u64, u64), CallFailure> {
        let mut params = SampleInfoParams::new(sampler.object(), image.as_ptr(), image.bytes(), sample, 0, 0);
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
}
