//! The functions of the profiler host, of PM sampling, and of the range profiler.

mod host;
mod params;
pub(crate) mod ranges;
mod sampler;

use crate::code::{Code, Outcome, need_driver, since};
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

macro_rules! pm_api {
    ($($name:ident($params:ident: $type:ty) by $check:ident $body:block)+) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(params: *mut $type) -> i32 {
            let serve = || -> Outcome {
                let $params = $check(params)?;
                $body
            };
            serve().map_or_else(|Code(code)| code, |()| 0)
        }
    )+};
}

pm_api! {
    cuptiProfilerInitialize(_params: Nothing) by check {
        IS_INITIALIZED.store(true, Ordering::Relaxed);
        count(&link::counters().profiler_inits);
        Ok(())
    }

    cuptiProfilerDeInitialize(_params: Nothing) by check {
        if !IS_INITIALIZED.swap(false, Ordering::Relaxed) {
            eprintln!("sim-cupti: a second cuptiProfilerDeInitialize ends the process, as the real one does");
            std::process::abort();
        }
        count(&link::counters().profiler_deinits);
        Ok(())
    }

    cuptiProfilerDeviceSupported(params: Supported) by check_initialized {
        sampler::check_device(usize::try_from(params.device).unwrap_or(usize::MAX))?;
        let refused = link::options().pm_level as usize;
        params.levels = std::array::from_fn(|level| if refused != 0 && (level == 0 || level == refused) { 1 } else { 3 });
        Ok(())
    }

    cuptiDeviceGetChipName(params: ChipName) by check_initialized {
        sampler::check_device(params.device)?;
        params.name = host::chip();
        Ok(())
    }

    cuptiPmSamplingGetCounterAvailability(params: Availability) by check_initialized {
        sampler::check_device(params.device)?;
        params.size = 8;
        Ok(())
    }

    cuptiProfilerHostInitialize(params: NewHost) by check {
        host::new_host(params)
    }

    cuptiProfilerHostDeinitialize(params: HostOnly) by check {
        host::end_host(params.host)
    }

    cuptiProfilerHostConfigAddMetrics(params: AddMetrics) by check {
        host::add_metrics(params)
    }

    cuptiProfilerHostGetConfigImageSize(params: ConfigSize) by check {
        host::config_size(params)
    }

    cuptiProfilerHostGetConfigImage(params: ConfigImage) by check {
        host::config_image(params)
    }

    cuptiProfilerHostGetNumOfPasses(params: Passes) by check {
        host::passes(params)
    }

    cuptiProfilerHostGetBaseMetrics(params: BaseMetrics) by check {
        host::base_metrics(params)
    }

    cuptiProfilerHostGetSubMetrics(params: SubMetrics) by check {
        host::sub_metrics(params)
    }

    cuptiProfilerHostGetMetricProperties(params: Properties) by check {
        host::properties(params)
    }

    cuptiProfilerHostEvaluateToGpuValues(params: Evaluate) by check {
        host::evaluate(params)
    }

    cuptiPmSamplingEnable(params: Enable) by check_initialized {
        sampler::enable(params)
    }

    cuptiPmSamplingDisable(params: SamplerOnly) by check_initialized {
        sampler::disable(params.sampler)
    }

    cuptiPmSamplingSetConfig(params: SetConfig) by check_initialized {
        sampler::set_config(params)
    }

    cuptiPmSamplingStart(params: SamplerOnly) by check_initialized {
        sampler::start(params.sampler)
    }

    cuptiPmSamplingStop(params: SamplerOnly) by check_initialized {
        sampler::stop(params.sampler)
    }

    cuptiPmSamplingDecodeData(params: Decode) by check_initialized {
        sampler::decode(params)
    }

    cuptiPmSamplingGetCounterDataSize(params: ImageSize) by check_initialized {
        sampler::image_size(params)
    }

    cuptiPmSamplingCounterDataImageInitialize(params: InitializeImage) by check_initialized {
        sampler::initialize_image(params)
    }

    cuptiPmSamplingGetCounterDataInfo(params: ImageInfo) by check {
        sampler::image_info(params)
    }

    cuptiPmSamplingCounterDataGetSampleInfo(params: SampleInfo) by check_initialized {
        sampler::sample_info(params)
    }

    cuptiRangeProfilerEnable(params: EnableRanges) by check_initialized {
        ranges::enable(params)
    }

    cuptiRangeProfilerDisable(params: RangeOnly) by check_initialized {
        ranges::disable(params.profiler)
    }

    cuptiRangeProfilerGetCounterDataSize(params: RangeImageSize) by check_initialized {
        ranges::image_size(params)
    }

    cuptiRangeProfilerCounterDataImageInitialize(params: RangeImageInit) by check_initialized {
        ranges::initialize_image(params)
    }

    cuptiRangeProfilerSetConfig(params: RangeConfig) by check_initialized {
        ranges::set_config(params)
    }

    cuptiRangeProfilerStart(params: RangeOnly) by check_initialized {
        ranges::start(params.profiler)
    }

    cuptiRangeProfilerPushRange(params: PushRange) by check_initialized {
        ranges::push(params)
    }

    cuptiRangeProfilerPopRange(params: RangeOnly) by check_initialized {
        ranges::pop(params.profiler)
    }

    cuptiRangeProfilerStop(params: RangeStop) by check_initialized {
        ranges::stop(params)
    }

    cuptiRangeProfilerDecodeData(params: RangeDecode) by check_initialized {
        ranges::decode(params)
    }

    cuptiRangeProfilerGetCounterDataInfo(params: RangeImageInfo) by check {
        ranges::image_info(params)
    }
}
