//! The sampling of one device, on the thread that samples: set up, decoded, restarted, ended.

use super::super::metric_shapes::{METRIC_VALUES, metric_words};
use super::super::profiler::ffi::{CallFailure, CounterImage, HostObject, MetricNames, ProfilerApi, ProfilerKind};
use super::super::profiler::host::ConfiguredMetrics;
use super::super::profiler::levels;
use super::ffi::{PmApi, SamplerConfig, SamplerHandle};
use super::settings::PmSettings;
use crate::cupti::error::CuptiError;
use crate::{Batch, CounterSample, DeviceDescription, Name, RecordSink, Unavailable, Why};
use kineto_model::Loss;
use kineto_model::activity::ActivityType;

/// Samples a device until it is dropped.
#[derive(Debug)]
pub(super) struct DeviceSampling {
    api: &'static PmApi,
    number: i32,
    settings: PmSettings,
    /// `None` between the end of a session and the start of the next one. Dropped before what it uses.
    session: Option<SamplingSession>,
    host: HostObject,
    metrics: MetricNames,
    names: Vec<Name>,
    /// CUPTI reads it until the sampler is disabled.
    config: Vec<u8>,
    trigger: SampleTrigger,
    keeps_newest: Option<bool>,
    /// The end of the last sample; 0 before the first.
    last_end: u64,
    /// The time until which samples are delivered or counted; 0 if no gap before the next sample is a loss.
    accounted_until: u64,
    /// The length of the last sample.
    length: u64,
    /// Restarts since the last sample that was delivered.
    restarts_without_sample: u32,
    reset: ImageReset,
    counts: SampleCounts,
}

/// Counts of a device's samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SampleCounts {
    pub(super) delivered: u64,
    /// Samples that the hardware overwrote, or that a restart lost.
    pub(super) lost: u64,
    pub(super) restarts: u64,
}

/// Starts a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SampleTrigger {
    Nanoseconds,
    /// Chips older than GA10x have no timer.
    Cycles,
}

/// How a full image is emptied.
///
/// On an H200 (CUPTI 13.0), samples in an image that was initialized again all have the time of the first one. So the next
/// way is taken as soon as times are wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ImageReset {
    /// By a copy of the empty image, as XLA does.
    Copy,
    /// By the library, as in NVIDIA's samples.
    Initialize,
    /// By a new session, which misses some samples.
    Restart,
}

/// A session of a device's hardware. Dropping it releases the counters.
#[derive(Debug)]
struct SamplingSession {
    api: &'static PmApi,
    sampler: SamplerHandle,
    image: CounterImage,
    /// How many samples the image can hold.
    capacity: usize,
    /// How many samples of the image were read.
    read: usize,
    /// Whether no sample was read: the first one began before the start.
    is_new: bool,
    /// Whether the image was emptied.
    was_reset: bool,
}

/// The result of a decode.
#[derive(Clone, Copy, Debug, Default)]
struct DecodeResult {
    is_full: bool,
    overflowed: bool,
    are_times_wrong: bool,
}

impl DecodeResult {
    const WRONG: DecodeResult = DecodeResult { is_full: false, overflowed: false, are_times_wrong: true };
}

/// Which samples a decode delivers.
#[derive(Clone, Copy, Debug)]
pub(super) struct SamplesUntil {
    /// The last time, on the clock of the samples.
    pub(super) at: u64,
}

/// The bytes of a hardware buffer; that of kineto.
const HARDWARE_BUFFER: usize = 64 << 20;
/// The most samples of an image, and the most bytes.
const MAX_SAMPLES: u32 = 1024;
const MAX_IMAGE_BYTES: usize = 64 << 20;
/// An image is emptied once a fourth of it is used: a decode that fills it discards the other samples that it has taken. That
/// lost 34 to 75 of 3,000 samples on an H100.
const USED_PART: usize = 4;
/// The most intervals between two decodes.
const INTERVALS_PER_DECODE: u32 = 64;
/// How often a session is restarted without a sample in between.
const MAX_RESTARTS_WITHOUT_SAMPLE: u32 = 4;
/// The most images that are read after the stop. The hardware's buffer fills fewer; a lying library has no end.
const MAX_IMAGES_AT_END: u32 = 4096;
const OUT_OF_MEMORY: CuptiError = CuptiError(8);
/// The version that can keep the newest samples: 12.8.
const APPEND_MODES_SINCE: u32 = 26;

impl Drop for SamplingSession {
    fn drop(&mut self) {
        self.api.disable_sampler(self.sampler);
    }
}

impl DeviceSampling {
    /// Sets a device up and starts its sampling.
    ///
    /// # Errors
    /// Why the device cannot sample these metrics.
    pub(super) fn start(
        (profiler, api): (&'static ProfilerApi, &'static PmApi),
        version: u32,
        device: &DeviceDescription,
        settings: &PmSettings,
        sink: &RecordSink,
    ) -> Result<DeviceSampling, Unavailable> {
        let capability = check_support(profiler, device)?;
        let available = |index| api.read_availability(index).map(Some);
        let configured =
            ConfiguredMetrics::new(profiler, ProfilerKind::PmSampling, device, &available, &settings.metrics)?;
        let ConfiguredMetrics { host, names: metrics, config, passes } = configured;
        if passes != 1 {
            return Err(too_many_passes(passes, &settings.metrics));
        }
        let names = sink.record(|batch| settings.metrics.iter().map(|name| batch.name(name)).collect());
        let mut sampling = DeviceSampling {
            api,
            number: device.id,
            settings: settings.clone(),
            host,
            metrics,
            names,
            config,
            trigger: if capability < TIMER_SINCE { SampleTrigger::Cycles } else { SampleTrigger::Nanoseconds },
            keeps_newest: (version >= APPEND_MODES_SINCE).then_some(capability >= NEWEST_SINCE),
            session: None,
            last_end: 0,
            accounted_until: 0,
            length: settings.interval_ns,
            restarts_without_sample: 0,
            reset: ImageReset::Copy,
            counts: SampleCounts::default(),
        };
        sampling.begin_session().map_err(CallFailure::to_unavailable)?;
        Ok(sampling)
    }

    pub(super) fn number(&self) -> i32 {
        self.number
    }

    pub(super) fn counts(&self) -> SampleCounts {
        self.counts
    }

    /// Returns how many intervals may pass between two decodes, so that an image never fills.
    pub(super) fn intervals_per_decode(&self) -> u32 {
        let capacity = self.session.as_ref().map_or(0, |session| session.capacity);
        u32::try_from(capacity / USED_PART).unwrap_or(u32::MAX).clamp(1, INTERVALS_PER_DECODE)
    }

    /// Returns a note if the interval is not in nanoseconds.
    pub(super) fn interval_note(&self) -> Option<String> {
        let note = || {
            format!(
                "GPU {} has no timer for samples: the interval is {} cycles of its system clock",
                self.number, self.settings.interval_ns
            )
        };
        (self.trigger == SampleTrigger::Cycles).then(note)
    }

    fn begin_session(&mut self) -> Result<(), CallFailure> {
        let sampler = self.api.enable_sampler(usize::try_from(self.number).unwrap_or(0))?;
        let (api, image) = (self.api, CounterImage::default());
        let mut session = SamplingSession { api, sampler, image, capacity: 0, read: 0, is_new: true, was_reset: false };
        let config = SamplerConfig {
            image: &self.config,
            buffer: HARDWARE_BUFFER,
            interval: self.settings.interval_ns,
            by_cycles: self.trigger == SampleTrigger::Cycles,
            keeps_newest: self.keeps_newest,
        };
        self.api.configure_sampler(sampler, &config)?;
        let bytes_of_one = self.api.measure_image(sampler, &self.metrics, 1)?.max(1);
        let fitting = u32::try_from(MAX_IMAGE_BYTES / bytes_of_one).unwrap_or(MAX_SAMPLES);
        let samples = fitting.clamp(1, MAX_SAMPLES);
        (session.image, session.capacity) = (self.api.new_image(sampler, &self.metrics, samples)?, samples as usize);
        self.api.start_sampler(sampler)?;
        self.session = Some(session);
        Ok(())
    }

    /// Delivers one image of the samples that the hardware has completed. Returns whether more may be left.
    ///
    /// # Errors
    /// Why the device samples no more.
    pub(super) fn deliver_image(&mut self, sink: &RecordSink) -> Result<bool, String> {
        let was_reset = self.session.as_ref().is_some_and(|session| session.was_reset);
        let decoded = self.decode_once(SamplesUntil { at: u64::MAX }, sink)?;
        let DecodeResult { is_full, overflowed, are_times_wrong } = decoded;
        if are_times_wrong && was_reset {
            self.reset = if self.reset == ImageReset::Copy { ImageReset::Initialize } else { ImageReset::Restart };
        }
        if overflowed {
            self.restart_session()?;
            sink.note(format!(
                "GPU {}: the buffer of its hardware overflowed, so its sampling was restarted; raise CUPTI_PM_SAMPLING_INTERVAL_US",
                self.number
            ));
        } else if are_times_wrong || is_full && self.reset == ImageReset::Restart {
            self.restart_session()?;
        } else if is_full || self.reset != ImageReset::Restart && self.is_image_used() {
            self.reset_image()?;
        }
        if sink.is_waiting() {
            // Counts begin with the recording.
            (self.counts, self.accounted_until) = (SampleCounts::default(), 0);
        }
        Ok(is_full || overflowed || are_times_wrong)
    }

    /// Decodes, and delivers the samples. A failure of an image that was emptied is one of its times.
    fn decode_once(&mut self, until: SamplesUntil, sink: &RecordSink) -> Result<DecodeResult, String> {
        // An emptied image is to blame before the library is.
        let may_blame_image =
            self.reset != ImageReset::Restart && self.session.as_ref().is_some_and(|session| session.was_reset);
        match self.decode_image(until, sink) {
            Err(_) if may_blame_image => Ok(DecodeResult::WRONG),
            decoded => decoded,
        }
    }

    fn decode_image(&mut self, until: SamplesUntil, sink: &RecordSink) -> Result<DecodeResult, String> {
        let Some(session) = &mut self.session else { return Ok(DecodeResult::default()) };
        let (is_full, overflowed) = match self.api.decode_samples(session.sampler, &mut session.image) {
            Ok(decoded) => (decoded.is_full, decoded.overflowed),
            Err(CallFailure { error: OUT_OF_MEMORY, .. }) => (false, true),
            Err(failed) => return Err(failed.to_string()),
        };
        let are_times_wrong = !self.read_image(until, sink)?;
        Ok(DecodeResult { is_full, overflowed, are_times_wrong })
    }

    fn is_image_used(&self) -> bool {
        let is_used = |session: &SamplingSession| session.read >= (session.capacity / USED_PART).max(1);
        self.session.as_ref().is_some_and(is_used)
    }

    fn reset_image(&mut self) -> Result<(), String> {
        let Some(session) = &mut self.session else { return Ok(()) };
        // Ends the loop if the library always reports a full image.
        if session.read == 0 {
            return Err("cuptiPmSamplingDecodeData finds an empty image full".to_owned());
        }
        (session.read, session.was_reset) = (0, true);
        if self.reset == ImageReset::Copy {
            session.image.restore_empty();
            return Ok(());
        }
        self.api.reset_image(session.sampler, &mut session.image).map_err(|failed| failed.to_string())
    }

    fn restart_session(&mut self) -> Result<(), String> {
        if self.restarts_without_sample >= MAX_RESTARTS_WITHOUT_SAMPLE {
            return Err(format!("{MAX_RESTARTS_WITHOUT_SAMPLE} restarts brought no sample"));
        }
        (self.restarts_without_sample, self.counts.restarts) =
            (self.restarts_without_sample + 1, self.counts.restarts + 1);
        if self.restarts_without_sample > 1 {
            // The clock was set back: a restart would have helped otherwise.
            (self.last_end, self.accounted_until) = (0, 0);
        }
        if let Some(session) = self.session.take() {
            let _ = self.api.stop_sampler(session.sampler);
        }
        self.begin_session().map_err(|failed| failed.to_string())
    }

    /// Delivers the new samples of the image. Returns `false` if their times cannot be right.
    fn read_image(&mut self, until: SamplesUntil, sink: &RecordSink) -> Result<bool, String> {
        let Some(session) = &mut self.session else { return Ok(true) };
        let complete = self.api.count_samples(&session.image).map_err(|failed| failed.to_string())?;
        if complete > MAX_SAMPLES as usize {
            return Err(format!("cuptiPmSamplingGetCounterDataInfo counts {complete} samples"));
        }
        // Fewer than before: the library has begun the image anew.
        let unread = if complete < session.read { 0..complete } else { session.read..complete };
        session.read = complete;
        for index in unread {
            let Some(session) = &mut self.session else { break };
            let times = self.api.sample_times(session.sampler, &session.image, index);
            let (start, end) = times.map_err(|failed| failed.to_string())?;
            if std::mem::take(&mut session.is_new) {
                continue;
            }
            // The last sample of a session has no end.
            if end == 0 {
                continue;
            }
            if end < start {
                sink.lost(Loss::DeviceRecordsUnread, 1);
                continue;
            }
            if start < self.last_end && end <= self.last_end {
                return Ok(false);
            }
            // The sampler stops after the end of the recording.
            if start >= until.at {
                continue;
            }
            // The evaluation takes most of the time, so dropped records are not evaluated.
            let is_wanted =
                end <= until.at && !sink.is_waiting() && !sink.record(|batch| batch.is_paused(start, start));
            let values = is_wanted.then(|| self.host.evaluate(&session.image, index, &self.metrics)).transpose();
            let values = values.map_err(|failed| failed.to_string())?;
            self.count_gap(start, sink);
            (self.last_end, self.accounted_until) = (end, end);
            (self.length, self.restarts_without_sample) = ((end - start).max(1), 0);
            if let Some(values) = values {
                self.counts.delivered += 1;
                sink.record(|batch| self.add_row(start, &values, batch));
            }
        }
        Ok(true)
    }

    /// Counts the samples that are missing between the last one and a time. Records of a pause are not expected.
    fn count_gap(&mut self, until: u64, sink: &RecordSink) {
        let from = self.accounted_until;
        if from == 0 || sink.is_waiting() || sink.record(|batch| batch.is_paused(from, until)) {
            return;
        }
        let missing = (until.saturating_sub(from) + self.length / 2) / self.length;
        self.counts.lost += missing;
        if missing > 0 {
            sink.lost(Loss::VendorDropped, missing);
        }
    }

    fn add_row(&self, at: u64, values: &[f64], batch: &mut Batch<'_>) {
        let values = self.names.iter().zip(values).map(|(name, value)| (*name, *value));
        let values: Vec<_> = values.filter(|(_, value)| value.is_finite()).collect();
        batch.count_lost(Loss::CounterValues, (self.names.len() - values.len()) as u64);
        if let Some(name) = self.names.first() {
            let (kind, device) = (ActivityType::HardwareCounters, (self.number, 0));
            batch.counters(&CounterSample::new(kind, *name, device, at, &METRIC_VALUES, &metric_words(&values)));
        }
    }

    /// Stops sampling, and delivers what is left.
    ///
    /// # Errors
    /// Why samples are missing.
    pub(super) fn finish(&mut self, until: SamplesUntil, sink: &RecordSink) -> Result<(), String> {
        let Some(session) = &self.session else { return Ok(()) };
        let stopped = self.api.stop_sampler(session.sampler).map_err(|failed| failed.to_string());
        let delivered = stopped.and_then(|()| self.deliver_rest(until, sink));
        // The last sample may be cut off by the stop.
        self.count_gap(until.at.saturating_sub(self.length.saturating_mul(2)), sink);
        delivered
    }

    /// Delivers the samples of a stopped sampler. A restart would sample again, so samples that need one are lost.
    fn deliver_rest(&mut self, until: SamplesUntil, sink: &RecordSink) -> Result<(), String> {
        let mut has_overflowed = false;
        for _ in 0..MAX_IMAGES_AT_END {
            let DecodeResult { is_full, overflowed, are_times_wrong } = self.decode_once(until, sink)?;
            if overflowed && !std::mem::replace(&mut has_overflowed, true) {
                sink.note(format!(
                    "GPU {}: the buffer of its hardware overflowed at the end; raise CUPTI_PM_SAMPLING_INTERVAL_US",
                    self.number
                ));
            }
            if !is_full || are_times_wrong || self.reset == ImageReset::Restart {
                return Ok(());
            }
            self.reset_image()?;
        }
        Err(format!("cuptiPmSamplingDecodeData reports a full image {MAX_IMAGES_AT_END} times after the stop"))
    }
}

/// The first compute capability that can sample, that can keep the newest samples, and that has a timer.
const SAMPLES_SINCE: i64 = 75;
const NEWEST_SINCE: i64 = 80;
const TIMER_SINCE: i64 = 86;

/// Checks that a device can sample; returns ten times its compute capability.
pub(super) fn check_support(profiler: &ProfilerApi, device: &DeviceDescription) -> Result<i64, Unavailable> {
    let capability = levels::compute_capability(device);
    if capability < SAMPLES_SINCE {
        let message = format!(
            "its compute capability is {}.{}, and PM sampling needs 7.5 (Turing)",
            capability / 10,
            capability % 10
        );
        return Err(Unavailable::new(Why::Unsupported, message, "sample a newer GPU"));
    }
    levels::check_levels(profiler, ProfilerKind::PmSampling, device).map(|()| capability)
}

/// Returns the reason that metrics take several passes, of which PM sampling has one.
pub(crate) fn too_many_passes(passes: usize, metrics: &[String]) -> Unavailable {
    let message = format!("PM sampling has one pass, and these metrics take {passes}: {}", metrics.join(", "));
    let advice = "name fewer metrics; `kineto doctor --metrics A,B` tells how many passes they take";
    Unavailable::new(Why::Unsupported, message, advice)
}
