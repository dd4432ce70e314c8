//! Range profiling of the simulated contexts: each kernel that a context launches while it measures is one range, or all
//! kernels that run between push and pop.

use super::host;
use super::params::{
    EnableRanges, PushRange, RangeConfig, RangeDecode, RangeImageInfo, RangeImageInit, RangeImageSize, RangeStop,
};
use crate::code::{Code, Outcome};
use crate::link;
use crate::shared::clock::now;
use crate::shared::counters::count;
use crate::shared::tracer::{KERNEL, Work};
use sim_core::handles::{Handles, lock};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

/// A context's object, between enabling and disabling.
#[derive(Debug, Default)]
struct Profiler {
    context: u64,
    image: usize,
    words: usize,
    /// Whether the caller pushes and pops ranges, and repeats its work for each pass.
    by_caller: bool,
    passes: usize,
    /// When the range was pushed that is open.
    pushed: Option<u64>,
    /// The ranges since the start: device, and the blocks of the grids.
    kernels: Option<Vec<(u64, u64)>>,
    /// Those of stops whose values were not decoded.
    stopped: Option<Vec<(u64, u64)>>,
}

/// Words of an image before its ranges: a mark, and how many there are. A range has two words.
const HEAD: usize = 2;
pub(crate) const MARK: u64 = 0x5349_4D52_4E47_0001;

static PROFILERS: Handles<Profiler> = Handles::behind(0x2000);
/// The kernels of each context since its counters were reserved: start, end, device and blocks.
static SUBMITTED: Mutex<BTreeMap<u64, Vec<[u64; 4]>>> = Mutex::new(BTreeMap::new());

fn with_profiler<R>(handle: usize, act: impl FnOnce(&mut Profiler) -> Outcome<R>) -> Outcome<R> {
    PROFILERS.with(handle, Code::INVALID_PARAMETER, act)
}

pub(crate) fn device_of(context: u64) -> Outcome<u32> {
    let (current, device) = link::current_context();
    if context != 0 && context == current { Ok(device) } else { Err(Code(3)) }
}

pub(crate) fn enable(params: &mut EnableRanges) -> Outcome {
    if params.context == 0 {
        eprintln!("sim-cupti: cuptiRangeProfilerEnable without a context ends the process, as the real one does");
        std::process::abort();
    }
    let device = device_of(params.context)?;
    link::spoil_captures()?;
    Code::unless(link::options().range_error.code_for(device))?;
    if PROFILERS.with_all(|all| all.values().any(|profiler| profiler.context == params.context)) {
        return Err(Code::INVALID_OPERATION);
    }
    params.profiler = PROFILERS.add(Profiler { context: params.context, ..Profiler::default() });
    count(&link::counters().range_enables);
    Ok(())
}

pub(crate) fn disable(handle: usize) -> Outcome {
    link::spoil_captures()?;
    with_profiler(handle, |profiler| device_of(profiler.context).map(drop))?;
    PROFILERS.remove(handle).and_then(|profiler| lock(&SUBMITTED).remove(&profiler.context));
    count(&link::counters().range_disables);
    Ok(())
}

pub(crate) fn image_size(params: &mut RangeImageSize) -> Outcome {
    host::find_metrics(params.names, params.count)?;
    if (params.tree_nodes as usize) < params.ranges {
        return Err(Code::INVALID_PARAMETER);
    }
    with_profiler(params.profiler, |_| Ok(()))?;
    params.size = 8 * (HEAD + 2 * params.ranges);
    Ok(())
}

/// Returns the words of the caller's image.
fn image_words<'a>(image: usize, words: usize) -> Outcome<&'a mut [u64]> {
    if image == 0 || words < HEAD || !image.is_multiple_of(8) {
        return Err(Code::INVALID_PARAMETER);
    }
    let image = std::ptr::with_exposed_provenance_mut::<u64>(image);
    // SAFETY: the caller promises that many bytes, and the address is aligned.
    Ok(unsafe { std::slice::from_raw_parts_mut(image, words) })
}

pub(crate) fn initialize_image(params: &RangeImageInit) -> Outcome {
    with_profiler(params.profiler, |_| Ok(()))?;
    image_words(params.image.expose_provenance(), params.size / 8)?[..HEAD].copy_from_slice(&[MARK, 0]);
    Ok(())
}

/// Takes automatic ranges with kernel replay, and pushed ranges of one level with user replay.
pub(crate) fn set_config(params: &RangeConfig) -> Outcome {
    let metrics = host::read_config(params.config, params.config_size)?;
    let is_known = matches!((params.range, params.replay, params.levels), (1, 2, _) | (2, 3, 1));
    if !is_known || params.ranges_per_pass == 0 || params.pass != 0 {
        return Err(Code::NOT_SUPPORTED);
    }
    with_profiler(params.profiler, |profiler| {
        (profiler.by_caller, profiler.passes) = (params.range == 2, host::pass_count(&metrics));
        (profiler.image, profiler.words) = (params.image.expose_provenance(), params.image_size / 8);
        Ok(())
    })
}

pub(crate) fn start(handle: usize) -> Outcome {
    link::spoil_captures()?;
    with_profiler(handle, |profiler| {
        if profiler.words == 0 || profiler.kernels.is_some() {
            return Err(Code::INVALID_OPERATION);
        }
        device_of(profiler.context)?;
        (profiler.kernels, profiler.pushed) = (Some(Vec::new()), None);
        Ok(())
    })
}

pub(crate) fn push(params: &PushRange) -> Outcome {
    with_profiler(params.profiler, |profiler| {
        device_of(profiler.context)?;
        if !profiler.by_caller || profiler.kernels.is_none() || profiler.pushed.is_some() || params.name.is_null() {
            return Err(Code::INVALID_OPERATION);
        }
        profiler.pushed = Some(now());
        Ok(())
    })
}

/// Counts what ran between push and pop, as the hardware does: a kernel of before that still ran, but none that still runs.
pub(crate) fn pop(handle: usize) -> Outcome {
    link::spoil_captures()?;
    with_profiler(handle, |profiler| {
        let device = u64::from(device_of(profiler.context)?);
        let (pushed, popped) = (profiler.pushed.take().ok_or(Code::INVALID_OPERATION)?, now());
        let submitted = lock(&SUBMITTED);
        let ran = submitted.get(&profiler.context).into_iter().flatten();
        let ran = ran.filter(|[start, end, ..]| *end > pushed && *end <= popped && *start < popped);
        let blocks = ran.map(|[.., blocks]| blocks).sum();
        profiler.kernels.as_mut().ok_or(Code::INVALID_OPERATION)?.push((device, blocks));
        Ok(())
    })
}

/// The driver has submitted work of the calling thread.
pub(crate) fn queued(work: &[Work]) {
    let (context, _) = link::current_context();
    let blocks = |work: &Work| work.grid.iter().map(|count| u64::from(*count)).product();
    let is_replayed = PROFILERS.with_all(|all| {
        let profiler = all.values_mut().find(|profiler| profiler.context == context)?;
        for work in work.iter().filter(|work| work.kind == KERNEL) {
            if let Some(kernels) = profiler.kernels.as_mut().filter(|_| !profiler.by_caller) {
                kernels.push((work.device.into(), blocks(work)));
            }
            let submitted = [work.begun_at, work.done_at, work.device.into(), blocks(work)];
            lock(&SUBMITTED).entry(context).or_default().push(submitted);
        }
        Some(!profiler.by_caller && profiler.kernels.is_some())
    });
    if is_replayed == Some(true) {
        sim_core::clock::sleep(Duration::from_millis(link::options().slow_launch));
    }
}

pub(crate) fn stop(params: &mut RangeStop) -> Outcome {
    link::spoil_captures()?;
    Code::unless(link::options().range_stop_error)?;
    with_profiler(params.profiler, |profiler| {
        if profiler.pushed.is_some() {
            return Err(Code::INVALID_OPERATION);
        }
        let is_complete = !profiler.by_caller || profiler.passes == 1;
        params.all_submitted = u8::from(is_complete && link::options().range_fault != 1);
        let ranges = profiler.kernels.take().ok_or(Code::INVALID_OPERATION)?;
        profiler.stopped.get_or_insert_default().extend(ranges);
        Ok(())
    })
}

pub(crate) fn decode(params: &mut RangeDecode) -> Outcome {
    with_profiler(params.profiler, |profiler| {
        let kernels = profiler.stopped.take().ok_or(Code::INVALID_OPERATION)?;
        let words = image_words(profiler.image, profiler.words)?;
        let most = (words.len() - HEAD) / 2;
        let fault = link::options().range_fault;
        params.dropped = kernels.len().saturating_sub(most) + usize::from(fault == 2);
        words[1] = kernels.len().min(most) as u64 + u64::from(fault == 3);
        for (place, (device, blocks)) in words[HEAD..].chunks_exact_mut(2).zip(kernels) {
            place.copy_from_slice(&[device, blocks]);
        }
        Ok(())
    })
}

pub(crate) fn image_info(params: &mut RangeImageInfo) -> Outcome {
    let words = image_words(params.image.expose_provenance(), params.size / 8)?;
    if words[0] != MARK {
        return Err(Code::INVALID_PARAMETER);
    }
    params.ranges = words[1] as usize;
    Ok(())
}

/// Returns the value of a metric of a range: thousands for the device, hundreds for the metric, and the blocks of the grid.
///
/// # Errors
/// The image has no such range; `None` if it is no image of ranges.
pub(crate) fn value(image: *const u8, size: usize, range: usize, metric: usize) -> Option<Outcome<f64>> {
    let words = image_words(image.expose_provenance(), size / 8).ok().filter(|words| words[0] == MARK)?;
    let at = HEAD + 2 * range;
    if range as u64 >= words[1] {
        return Some(Err(Code::INVALID_PARAMETER));
    }
    if link::options().pm_nan == 1 && metric == 0 {
        return Some(Ok(f64::NAN));
    }
    Some(Ok((words[at] * 1000 + metric as u64 * 100 + words[at + 1]) as f64))
}
