//! The profiler host: metrics, and their configuration.

use super::params::{
    AddMetrics, BaseMetrics, ChipName, ConfigImage, ConfigSize, Evaluate, NewHost, Passes, Properties, SubMetrics,
};
use super::ranges;
use super::sampler::{self, Image};
use crate::code::{Code, Outcome};
use sim_core::ffi::{read_text, slice};
use sim_core::handles::Handles;
use std::ffi::{CStr, c_char};

/// A metric without its rollup.
struct Base {
    name: &'static CStr,
    kind: u32,
    description: &'static CStr,
    unit: &'static CStr,
}

const fn base(name: &'static CStr, kind: u32, description: &'static CStr, unit: &'static CStr) -> Base {
    Base { name, kind, description, unit }
}

const BASES: [Base; 6] = [
    base(c"sm__cycles_active", 0, c"# of cycles with at least one warp", c"gpc_cycle"),
    base(c"sm__inst_executed", 0, c"# of warp instructions executed", c"inst"),
    base(c"dram__bytes_read", 0, c"# of bytes read from DRAM", c"byte"),
    base(c"dram__bytes_write", 0, c"# of bytes written to DRAM", c"byte"),
    base(c"gpu__dram_throughput", 2, c"throughput of DRAM", c"%"),
    base(c"smsp__inst_issued", 0, c"# of warp instructions issued", c"inst"),
];
/// The metric that only ranges have.
const OF_RANGES: usize = 5;
/// The number of the profiler that measures ranges.
const RANGES: u32 = 0;
const ROLLUPS: [&CStr; 5] = [c".avg", c".max", c".min", c".sum", c".avg.pct_of_peak_sustained_elapsed"];
/// Together these take two passes.
const TWO_PASSES: [usize; 2] = [2, 3];
const CHIP: &CStr = c"SIM100";

/// Texts whose addresses a caller gets.
struct Texts<const N: usize>([*const c_char; N]);

// SAFETY: the texts are static.
unsafe impl<const N: usize> Sync for Texts<N> {}

const fn name_of(base: usize) -> *const c_char {
    BASES[base].name.as_ptr()
}

static ROLLUP_TEXTS: Texts<5> =
    Texts([ROLLUPS[0].as_ptr(), ROLLUPS[1].as_ptr(), ROLLUPS[2].as_ptr(), ROLLUPS[3].as_ptr(), ROLLUPS[4].as_ptr()]);
static COUNTER_TEXTS: Texts<5> = Texts([name_of(0), name_of(1), name_of(2), name_of(3), name_of(OF_RANGES)]);
static THROUGHPUT_TEXTS: Texts<1> = Texts([name_of(4)]);

/// A host object.
#[derive(Debug)]
struct Host {
    is_of_ranges: bool,
    /// The indices of its metrics; `None` after a failure.
    metrics: Option<Vec<usize>>,
}

static HOSTS: Handles<Host> = Handles::behind(0x100);

fn with_host<R>(handle: usize, act: impl FnOnce(&mut Host) -> Outcome<R>) -> Outcome<R> {
    HOSTS.with(handle, Code::INVALID_PARAMETER, act)
}

/// Returns the index of a metric with a rollup.
fn find_metric(name: &CStr) -> Option<usize> {
    let name = name.to_str().ok()?;
    let fits = |base: &Base| {
        let rollup = base.name.to_str().ok().and_then(|base| name.strip_prefix(base));
        rollup.is_some_and(|rollup| ROLLUPS.iter().any(|known| known.to_str() == Ok(rollup)))
    };
    BASES.iter().position(fits)
}

/// Returns the indices of metrics.
///
/// # Errors
/// A name is unknown, or no name is given.
pub(crate) fn find_metrics(names: *const *const c_char, count: usize) -> Outcome<Vec<usize>> {
    let find = |name: &*const c_char| read_text(*name).and_then(find_metric).ok_or(Code::INVALID_PARAMETER);
    let found: Vec<_> = slice(names, count).iter().map(find).collect::<Outcome<_>>()?;
    if found.is_empty() { Err(Code::INVALID_PARAMETER) } else { Ok(found) }
}

pub(crate) fn chip_name(params: &mut ChipName) -> Outcome {
    sampler::check_device(params.device)?;
    params.name = CHIP.as_ptr();
    Ok(())
}

pub(crate) fn new_host(params: &mut NewHost) -> Outcome {
    if params.profiler > 1 || read_text(params.chip) != Some(CHIP) {
        return Err(Code::INVALID_PARAMETER);
    }
    params.host = HOSTS.add(Host { is_of_ranges: params.profiler == RANGES, metrics: Some(Vec::new()) });
    Ok(())
}

pub(crate) fn end_host(handle: usize) -> Outcome {
    HOSTS.remove(handle).map(drop).ok_or(Code::INVALID_PARAMETER)
}

pub(crate) fn add_metrics(params: &AddMetrics) -> Outcome {
    with_host(params.host, |host| {
        let metrics = host.metrics.as_mut().ok_or(Code::UNKNOWN)?;
        match find_metrics(params.names, params.count) {
            Ok(found) if host.is_of_ranges || !found.contains(&OF_RANGES) => {
                metrics.extend(found);
                Ok(())
            }
            refused => {
                host.metrics = None;
                Err(refused.err().unwrap_or(Code::INVALID_PARAMETER))
            }
        }
    })
}

/// The configuration of a host object: the numbers of its metrics.
fn config_of(handle: usize) -> Outcome<Vec<u8>> {
    with_host(handle, |host| {
        let metrics = host.metrics.as_ref().filter(|metrics| !metrics.is_empty()).ok_or(Code::UNKNOWN)?;
        Ok(b"SIMCONF:".iter().copied().chain(metrics.iter().map(|index| *index as u8)).collect())
    })
}

pub(crate) fn config_size(params: &mut ConfigSize) -> Outcome {
    params.size = config_of(params.host)?.len();
    Ok(())
}

pub(crate) fn config_image(params: &ConfigImage) -> Outcome {
    let config = config_of(params.host)?;
    if params.image.is_null() || params.size < config.len() {
        return Err(Code::INVALID_PARAMETER);
    }
    // SAFETY: the caller promises as many bytes as it names.
    unsafe { std::ptr::copy_nonoverlapping(config.as_ptr(), params.image, config.len()) };
    Ok(())
}

/// Returns the metrics of a configuration.
pub(crate) fn read_config(image: *const u8, size: usize) -> Outcome<Vec<usize>> {
    let metrics = slice(image, size).strip_prefix(b"SIMCONF:").ok_or(Code::INVALID_PARAMETER)?;
    Ok(metrics.iter().map(|index| usize::from(*index)).collect())
}

/// Returns how many passes metrics take.
pub(crate) fn pass_count(metrics: &[usize]) -> usize {
    1 + usize::from(TWO_PASSES.iter().all(|index| metrics.contains(index)))
}

pub(crate) fn passes(params: &mut Passes) -> Outcome {
    params.passes = pass_count(&read_config(params.image, params.size)?);
    Ok(())
}

pub(crate) fn base_metrics(params: &mut BaseMetrics) -> Outcome {
    let is_of_ranges = with_host(params.host, |host| Ok(host.is_of_ranges))?;
    (params.names, params.count) = match params.kind {
        0 => (COUNTER_TEXTS.0.as_ptr(), if is_of_ranges { 5 } else { 4 }),
        1 => (std::ptr::null(), 0),
        2 => (THROUGHPUT_TEXTS.0.as_ptr(), 1),
        _ => return Err(Code::INVALID_PARAMETER),
    };
    Ok(())
}

pub(crate) fn sub_metrics(params: &mut SubMetrics) -> Outcome {
    let base = read_text(params.base);
    if !BASES.iter().any(|known| Some(known.name) == base && known.kind == params.kind) {
        return Err(Code(17));
    }
    (params.names, params.count) = (ROLLUP_TEXTS.0.as_ptr(), ROLLUPS.len());
    Ok(())
}

/// Describes a metric, with its rollup or without.
pub(crate) fn properties(params: &mut Properties) -> Outcome {
    let name = read_text(params.name).ok_or(Code::INVALID_PARAMETER)?;
    let base = BASES.iter().find(|base| base.name == name).or_else(|| BASES.get(find_metric(name)?)).ok_or(Code(17))?;
    (params.description, params.dimension) = (base.description.as_ptr(), base.unit.as_ptr());
    (params.unit, params.kind) = (c"sm".as_ptr(), base.kind);
    Ok(())
}

pub(crate) fn evaluate(params: &Evaluate) -> Outcome {
    with_host(params.host, |_| Ok(()))?;
    let metrics = find_metrics(params.names, params.count)?;
    let value = |metric| match ranges::value(params.image, params.size, params.sample, metric) {
        Some(value) => value,
        None => Ok(Image::read(params.image, params.size)?.sample(params.sample)?.value_of(metric)),
    };
    if params.values.is_null() {
        return Err(Code::INVALID_PARAMETER);
    }
    for (at, metric) in metrics.into_iter().enumerate() {
        let value = value(metric)?;
        // SAFETY: the caller promises a place for each metric.
        unsafe { params.values.add(at).write(value) };
    }
    Ok(())
}
