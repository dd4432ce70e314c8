//! PM sampling of the simulated devices: samples at multiples of the interval, with values that tests can compute.

use super::host;
use super::params::{Availability, Decode, Enable, ImageInfo, ImageSize, InitializeImage, SampleInfo, SetConfig};
use crate::code::{Code, Outcome};
use crate::link;
use crate::shared::clock::now;
use crate::shared::counters::count;
use sim_core::handles::lock;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A device's sampler, between enabling and disabling.
#[derive(Clone, Debug, Default)]
struct Sampler {
    interval: u64,
    metrics: Vec<usize>,
    configured_at: u64,
    /// When the next sample begins; `None` until the start.
    next: Option<u64>,
    stopped_at: Option<u64>,
    /// How often an image was initialised.
    images: u64,
    /// The first time of a second image, where times stay at that.
    frozen: Option<(u64, u64)>,
    samples: u64,
    has_overflowed: bool,
    /// Whether an image was full.
    has_filled_one: bool,
}

/// The handle of a device's sampler is this and its number.
const FIRST_HANDLE: usize = 0x1000;
/// Words of an image before its samples: a mark, the most samples, and how many there are.
const HEAD: usize = 3;
/// Words of a sample: start, end, device, sequence number, flags.
const WORDS: usize = 5;
const MARK: u64 = 0x5349_4D50_4D00_0001;
/// The most bytes of an image that tracers are expected to make.
const IMAGE_BYTES: usize = 64 << 20;
/// The flag of a sample whose first metric is no number.
const NAN: u64 = 1;

static SAMPLERS: Mutex<BTreeMap<usize, Sampler>> = Mutex::new(BTreeMap::new());

fn with_sampler<R>(handle: usize, act: impl FnOnce(&mut Sampler) -> Outcome<R>) -> Outcome<R> {
    act(lock(&SAMPLERS).get_mut(&handle).ok_or(Code::INVALID_PARAMETER)?)
}

/// Returns how many words a sample takes, of which the first few are used.
fn words_of_sample() -> usize {
    (IMAGE_BYTES / 8).checked_div(link::options().pm_image as usize).unwrap_or(WORDS)
}

/// A sample in an image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    start: u64,
    end: u64,
    device: u64,
    interval_number: u64,
    flags: u64,
}

impl Sample {
    /// The value of a metric: thousands for the device, hundreds for the metric, and the number of the interval below.
    pub(crate) fn value_of(&self, metric: usize) -> f64 {
        if self.flags & NAN != 0 && metric == 0 {
            return f64::NAN;
        }
        (self.device * 1000 + metric as u64 * 100 + self.interval_number % 100) as f64
    }
}

/// A counter data image.
pub(crate) struct Image<'a>(&'a mut [u64]);

impl Image<'_> {
    /// Reads the caller's image.
    ///
    /// # Errors
    /// It was not initialised.
    pub(crate) fn read<'a>(image: *const u8, size: usize) -> Outcome<Image<'a>> {
        let image = Image::take(image.cast_mut(), size)?;
        if image.0[0] == MARK { Ok(image) } else { Err(Code::INVALID_PARAMETER) }
    }

    fn take<'a>(image: *mut u8, size: usize) -> Outcome<Image<'a>> {
        let words = size / 8;
        if image.is_null() || words < HEAD + WORDS || !image.addr().is_multiple_of(8) {
            return Err(Code::INVALID_PARAMETER);
        }
        // SAFETY: the caller promises that many bytes, and the address is aligned.
        Ok(Image(unsafe { std::slice::from_raw_parts_mut(image.cast(), words) }))
    }

    fn capacity(&self) -> u64 {
        self.0[1]
    }

    fn len(&self) -> u64 {
        self.0[2]
    }

    fn push(&mut self, sample: Sample) {
        let at = HEAD + self.len() as usize * words_of_sample();
        let Sample { start, end, device, interval_number, flags } = sample;
        self.0[at..at + WORDS].copy_from_slice(&[start, end, device, interval_number, flags]);
        self.0[2] += 1;
    }

    pub(crate) fn sample(&self, index: usize) -> Outcome<Sample> {
        if index as u64 >= self.len() {
            return Err(Code::INVALID_PARAMETER);
        }
        let at = HEAD + index * words_of_sample();
        let [start, end, device, interval_number, flags] = self.0[at..at + WORDS] else {
            return Err(Code::INVALID_PARAMETER);
        };
        Ok(Sample { start, end, device, interval_number, flags })
    }
}

pub(crate) fn check_device(device: usize) -> Outcome {
    if device < link::options().devices as usize { Ok(()) } else { Err(Code(2)) }
}

pub(crate) fn availability(params: &mut Availability) -> Outcome {
    check_device(params.device)?;
    params.size = 8;
    Ok(())
}

pub(crate) fn enable(params: &mut Enable) -> Outcome {
    check_device(params.device)?;
    Code::unless(link::options().pm_error.code_for(params.device as u32))?;
    let mut samplers = lock(&SAMPLERS);
    let handle = FIRST_HANDLE + params.device;
    if samplers.contains_key(&handle) {
        return Err(Code::INVALID_OPERATION);
    }
    count(&link::counters().pm_enables);
    samplers.insert(handle, Sampler::default());
    params.sampler = handle;
    Ok(())
}

pub(crate) fn disable(handle: usize) -> Outcome {
    let disabled = lock(&SAMPLERS).remove(&handle);
    count(&link::counters().pm_disables);
    disabled.map(drop).ok_or(Code::INVALID_PARAMETER)
}

pub(crate) fn set_config(params: &SetConfig) -> Outcome {
    let metrics = host::read_config(params.config, params.config_size)?;
    if host::pass_count(&metrics) != 1 {
        return Err(Code::NOT_SUPPORTED);
    }
    if params.buffer == 0
        || params.interval == 0
        || params.trigger > 1
        || params.is_longer_than(60) && params.append > 1
    {
        return Err(Code::INVALID_PARAMETER);
    }
    // Chips older than GA10x have no timer.
    if params.trigger == 1 && link::options().capability < 86 {
        return Err(Code::NOT_SUPPORTED);
    }
    with_sampler(params.sampler, |sampler| {
        (sampler.metrics, sampler.interval, sampler.configured_at) = (metrics, params.interval, now());
        Ok(())
    })
}

pub(crate) fn image_size(params: &mut ImageSize) -> Outcome {
    host::find_metrics(params.names, params.count)?;
    with_sampler(params.sampler, |_| Ok(()))?;
    params.size = 8 * (HEAD + words_of_sample() * params.samples as usize);
    Ok(())
}

pub(crate) fn initialize_image(params: &InitializeImage) -> Outcome {
    with_sampler(params.sampler, |sampler| {
        sampler.images += 1;
        Ok(())
    })?;
    let image = Image::take(params.image, params.size)?;
    let capacity = (image.0.len() - HEAD) / words_of_sample();
    image.0[..HEAD].copy_from_slice(&[MARK, capacity as u64, 0]);
    Ok(())
}

pub(crate) fn start(handle: usize) -> Outcome {
    with_sampler(handle, |sampler| {
        if sampler.interval == 0 {
            return Err(Code::INVALID_OPERATION);
        }
        sampler.next = Some(sampler.configured_at);
        Ok(())
    })
}

pub(crate) fn stop(handle: usize) -> Outcome {
    with_sampler(handle, |sampler| {
        sampler.next.ok_or(Code::INVALID_OPERATION)?;
        sampler.stopped_at = Some(now());
        Ok(())
    })
}

pub(crate) fn decode(params: &mut Decode) -> Outcome {
    let options = link::options();
    while options.pm_hang && std::ptr::eq(link::options(), options) {
        sim_core::clock::sleep(Duration::from_millis(1));
    }
    let mut image = Image::read(params.image, params.size)?;
    let device = params.sampler.wrapping_sub(FIRST_HANDLE) as u64;
    let decodes = link::counters().pm_decodes.fetch_add(1, Ordering::Relaxed) + 1;
    with_sampler(params.sampler, |sampler| {
        if options.pm_frozen == 3 && sampler.has_filled_one {
            return Err(Code::UNKNOWN);
        }
        let mut next = sampler.next.ok_or(Code::INVALID_OPERATION)?;
        sampler.has_overflowed |= options.pm_overflow == decodes;
        if sampler.has_overflowed {
            return Err(Code::OUT_OF_MEMORY);
        }
        if options.pm_overflow_flag == decodes {
            params.overflow = 1;
            next += 5 * sampler.interval;
        }
        let until = sampler.stopped_at.unwrap_or_else(now);
        params.reason = 2;
        loop {
            let end = (next / sampler.interval + 1) * sampler.interval;
            if end > until {
                break;
            }
            if image.len() >= image.capacity() {
                params.reason = 1;
                sampler.has_filled_one = true;
                // As on an H100: what was taken and has no place is lost.
                next = until / sampler.interval * sampler.interval;
                break;
            }
            image.push(sampler.sample(device, next, end));
            next = end;
        }
        sampler.next = Some(next);
        Ok(())
    })
}

impl Sampler {
    fn sample(&mut self, device: u64, start: u64, end: u64) -> Sample {
        let options = link::options();
        self.samples += 1;
        let is_nth = |every: u64| every != 0 && self.samples.is_multiple_of(every);
        let flags = if is_nth(options.pm_nan) { NAN } else { 0 };
        let is_backwards = is_nth(options.pm_backwards);
        let mut times = (options.reported(start), options.reported(end));
        let is_frozen = match options.pm_frozen {
            0 => false,
            1 => self.images > 1,
            _ => self.has_filled_one,
        };
        if is_frozen {
            times = *self.frozen.get_or_insert(times);
        }
        if is_backwards {
            times.1 = times.0 - 1;
        }
        Sample { start: times.0, end: times.1, device, interval_number: start / self.interval, flags }
    }
}

pub(crate) fn image_info(params: &mut ImageInfo) -> Outcome {
    let image = Image::read(params.image, params.size)?;
    params.total = image.capacity() as usize;
    (params.populated, params.completed) = (image.len() as usize, image.len() as usize);
    if link::options().pm_lying {
        params.completed = usize::MAX;
    }
    Ok(())
}

pub(crate) fn sample_info(params: &mut SampleInfo) -> Outcome {
    with_sampler(params.sampler, |_| Ok(()))?;
    let sample = Image::read(params.image, params.size)?.sample(params.sample)?;
    (params.start, params.end) = (sample.start, sample.end);
    Ok(())
}
