//! The functions of the profiler host, of PM sampling, and of the range profiler.

mod host;
mod params;
pub(crate) mod ranges;
mod sampler;

use crate::code::{Code, Outcome, code_of, need_driver, since};
use crate::link;
use crate::shared::counters::count;
use params::{
    AddMetrics, Availability, BaseMetrics, ChipName, ConfigImage, ConfigSize, Decode, Enable, EnableRanges, Evaluate,
    HostOnly, ImageInfo, ImageSize, InitializeImage, NewHost, Nothing, Passes, Properties, PushRange, RangeConfig,
    RangeDecode, RangeImageInfo, RangeImageInit, RangeImageSize, RangeOnly, RangeStop, SampleInfo, SamplerOnly,
    SetConfig, SubMetrics, Supported, take,
};
use std::sync::atomic::{AtomicBool, Ordering};

static IS_INITIALIZED: AtomicBool = AtomicBool::new(false);

/// Checks driver, version and parameters.
fn check<'a, P: params::Params>(params: *mut P) -> Outcome<&'a mut P> {
    need_driver()?;
    since("12.6")?;
    take(params)
}

/// The same, where the profiler must have been initialised.
fn check_initialized<'a, P: params::Params>(params: *mut P) -> Outcome<&'a mut P> {
    let params = check(params)?;
    if IS_INITIALIZED.load(Ordering::Relaxed) { Ok(params) } else { Err(Code::NOT_INITIALIZED) }
}

/// Initialises the profiler.
fn initialize() -> Outcome {
    IS_INITIALIZED.store(true, Ordering::Relaxed);
    count(&link::counters().profiler_inits);
    Ok(())
}

fn deinitialize() -> Outcome {
    if !IS_INITIALIZED.swap(false, Ordering::Relaxed) {
        eprintln!("sim-cupti: a second cuptiProfilerDeInitialize ends the process, as the real one does");
        std::process::abort();
    }
    count(&link::counters().profiler_deinits);
    Ok(())
}

fn supported(params: &mut Supported) -> Outcome {
    sampler::check_device(usize::try_from(params.device).unwrap_or(usize::MAX))?;
    let refused = link::options().pm_level as usize;
    params.levels = std::array::from_fn(|level| if refused != 0 && (level == 0 || level == refused) { 1 } else { 3 });
    Ok(())
}

/// Exports functions of one parameter each, all of which make a check.
macro_rules! pm_api {
    ($check:ident: $($name:ident($params:ident: $type:ty) => $outcome:expr;)+) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(params: *mut $type) -> i32 {
            let serve = || -> Outcome {
                let $params = $check(params)?;
                $outcome
            };
            code_of(serve())
        }
    )+};
}

pm_api! { check:
    cuptiProfilerInitialize(_params: Nothing) => initialize();
    cuptiProfilerDeInitialize(_params: Nothing) => deinitialize();
    cuptiProfilerHostInitialize(params: NewHost) => host::new_host(params);
    cuptiProfilerHostDeinitialize(params: HostOnly) => host::end_host(params.host);
    cuptiProfilerHostConfigAddMetrics(params: AddMetrics) => host::add_metrics(params);
    cuptiProfilerHostGetConfigImageSize(params: ConfigSize) => host::config_size(params);
    cuptiProfilerHostGetConfigImage(params: ConfigImage) => host::config_image(params);
    cuptiProfilerHostGetNumOfPasses(params: Passes) => host::passes(params);
    cuptiProfilerHostGetBaseMetrics(params: BaseMetrics) => host::base_metrics(params);
    cuptiProfilerHostGetSubMetrics(params: SubMetrics) => host::sub_metrics(params);
    cuptiProfilerHostGetMetricProperties(params: Properties) => host::properties(params);
    cuptiProfilerHostEvaluateToGpuValues(params: Evaluate) => host::evaluate(params);
    cuptiPmSamplingGetCounterDataInfo(params: ImageInfo) => sampler::image_info(params);
    cuptiRangeProfilerGetCounterDataInfo(params: RangeImageInfo) => ranges::image_info(params);
}

pm_api! { check_initialized:
    cuptiProfilerDeviceSupported(params: Supported) => supported(params);
    cuptiDeviceGetChipName(params: ChipName) => host::chip_name(params);
    cuptiPmSamplingGetCounterAvailability(params: Availability) => sampler::availability(params);
    cuptiPmSamplingEnable(params: Enable) => sampler::enable(params);
    cuptiPmSamplingDisable(params: SamplerOnly) => sampler::disable(params.sampler);
    cuptiPmSamplingSetConfig(params: SetConfig) => sampler::set_config(params);
    cuptiPmSamplingStart(params: SamplerOnly) => sampler::start(params.sampler);
    cuptiPmSamplingStop(params: SamplerOnly) => sampler::stop(params.sampler);
    cuptiPmSamplingDecodeData(params: Decode) => sampler::decode(params);
    cuptiPmSamplingGetCounterDataSize(params: ImageSize) => sampler::image_size(params);
    cuptiPmSamplingCounterDataImageInitialize(params: InitializeImage) => sampler::initialize_image(params);
    cuptiPmSamplingCounterDataGetSampleInfo(params: SampleInfo) => sampler::sample_info(params);
    cuptiRangeProfilerEnable(params: EnableRanges) => ranges::enable(params);
    cuptiRangeProfilerDisable(params: RangeOnly) => ranges::disable(params.profiler);
    cuptiRangeProfilerGetCounterDataSize(params: RangeImageSize) => ranges::image_size(params);
    cuptiRangeProfilerCounterDataImageInitialize(params: RangeImageInit) => ranges::initialize_image(params);
    cuptiRangeProfilerSetConfig(params: RangeConfig) => ranges::set_config(params);
    cuptiRangeProfilerStart(params: RangeOnly) => ranges::start(params.profiler);
    cuptiRangeProfilerPushRange(params: PushRange) => ranges::push(params);
    cuptiRangeProfilerPopRange(params: RangeOnly) => ranges::pop(params.profiler);
    cuptiRangeProfilerStop(params: RangeStop) => ranges::stop(params);
    cuptiRangeProfilerDecodeData(params: RangeDecode) => ranges::decode(params);
}
