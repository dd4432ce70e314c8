//! Samples hardware counters by PM sampling while kernels run in bursts; checks times and values of the samples.

use crate::checks::now;
use crate::overhead::processor_times;
use crate::program::{Gpu, Machine};
use crate::report::Report;
use crate::view::{Sample, View};
use cudarc::driver::DriverError;
use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};
use tracing::info_span;
use tracing_kineto::integration::CollectorReport;
use tracing_kineto::{ActivityType, ActivityTypes, KinetoLayer, Loss, Metrics, Trace};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Kernels, their launches, and the spans around them.
const TYPES: ActivityTypes =
    ActivityTypes::of(&[ActivityType::ConcurrentKernel, ActivityType::CudaDriver, ActivityType::CpuOp]);
const INTERVAL: Duration = Duration::from_millis(1);
/// Bursts, long enough together for several counter data images.
const BURSTS: usize = 6;
const BURST: Duration = Duration::from_millis(50);
const PERIOD: Duration = Duration::from_millis(500);
/// Launches between two waits.
const LAUNCHES: usize = 10;

/// Records bursts of kernels with these metrics, separated by commas; saves the trace.
pub fn run(metrics: &str, path: &str, report: &mut Report) -> Result<(), Box<dyn Error>> {
    let metrics: Vec<_> = metrics.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    let first = *metrics.first().ok_or("--counters needs names of metrics")?;
    let builder = KinetoLayer::builder().no_output().record_from_start(false).activities(TYPES);
    let builder = builder.metrics(Metrics::new().pm_sampling(metrics.iter().copied()).pm_sampling_interval(INTERVAL));
    let (layer, guard) = builder.build()?;
    tracing_subscriber::registry().with(layer).init();
    let profiler = guard.profiler();
    let mut machine = Machine::open()?;
    report.say(format_args!("{}", machine.gpus.iter().map(|gpu| &*gpu.name).collect::<Vec<_>>().join(", ")));

    let begun = Instant::now();
    profiler.start()?;
    let (start_took, window_start, [_, before]) = (begun.elapsed(), now(), processor_times()?);
    for _ in 0..BURSTS {
        let burst = Instant::now();
        info_span!("burst").in_scope(|| launch_burst(&mut machine.gpus, burst))?;
        thread::sleep(PERIOD.saturating_sub(burst.elapsed()));
    }
    let ([_, after], window_end, stopping) = (processor_times()?, now(), Instant::now());
    let trace = profiler.stop()?;
    let stop_took = stopping.elapsed();
    trace.save(path)?;

    let pm = trace.stats().collectors.into_iter().find(|collector| collector.name == "cupti_pm");
    let pm = pm.ok_or("there is no collector cupti_pm")?;
    describe(&pm, report);
    report.say(format_args!("      {}", trace.stats()));
    if let Err(reason) = &pm.state {
        report.check("counters are sampled", false, reason);
        return Ok(());
    }
    let core = (after - before) / (window_end - window_start) as f64 * 100.0;
    report.say(format_args!("      start {start_took:.1?}, stop {stop_took:.1?}, own threads {core:.1} % of a core"));
    report.figure("own threads with PM sampling", core, "% of a core");
    let view = View::new(&trace)?;
    for device in 0..machine.gpus.len() {
        for metric in &metrics {
            check_samples(&view, device, metric, (window_start, window_end), report);
        }
        check_values(&view, device, first, report);
    }
    check_losses(&trace, &pm, report);
    Ok(())
}

/// Launches kernels on all GPUs until the burst is over.
fn launch_burst(gpus: &mut [Gpu], begun: Instant) -> Result<(), DriverError> {
    while begun.elapsed() < BURST {
        for gpu in gpus.iter_mut() {
            let lane = &mut gpu.lanes[0];
            lane.stream.context().bind_to_thread()?;
            (0..LAUNCHES).try_for_each(|_| lane.add())?;
            lane.stream.synchronize()?;
        }
    }
    Ok(())
}

/// Prints what the collector reports.
fn describe(pm: &CollectorReport, report: &Report) {
    if let Ok(can) = &pm.state {
        can.metadata.iter().for_each(|(key, value)| report.say(format_args!("      {key} {value}")));
        can.notes.iter().for_each(|note| report.say(format_args!("      {note}")));
    }
    pm.notes.iter().for_each(|note| report.say(format_args!("      {note}")));
    report.say(format_args!("      clock: error {} ns, offset {} ns", pm.clock_error_ns, pm.clock_offset_ns));
}

fn samples<'v>(view: &'v View, device: usize, metric: &str) -> Vec<&'v Sample> {
    let group = format!("GPU {device} Counters");
    view.samples.iter().filter(|sample| sample.group == group && sample.metric == metric).collect()
}

/// Checks number, times and spacing of a metric's samples.
fn check_samples(view: &View, device: usize, metric: &str, (start, end): (u64, u64), report: &mut Report) {
    let samples = samples(view, device, metric);
    let interval = INTERVAL.as_nanos() as u64;
    let expected = (end - start) / interval;
    let name = |what: &str| format!("GPU {device} {metric}: {what}");
    let count = samples.len() as u64;
    report.check(&name("number"), count * 10 >= expected * 9, format_args!("{count} of about {expected}"));
    let outside = samples.iter().filter(|sample| sample.at < start - interval || sample.at > end + interval).count();
    report.check(
        &name("inside the recording"),
        outside == 0 && count > 0,
        format_args!("{outside} of {count} outside"),
    );
    let mut gaps: Vec<_> = samples.windows(2).map(|pair| pair[1].at.saturating_sub(pair[0].at)).collect();
    gaps.sort_unstable();
    let at = |share: f64| gaps.get((gaps.len() as f64 * share) as usize).copied().unwrap_or(0);
    let (median, shortest, longest) = (at(0.5), at(0.0), gaps.last().copied().unwrap_or(0));
    let figures = format!("median {median} ns, from {shortest} to {longest}");
    report.check(&name("spacing"), median.abs_diff(interval) * 20 <= interval, figures);
    let mut values: Vec<_> = samples.iter().map(|sample| sample.value).collect();
    values.sort_unstable_by(f64::total_cmp);
    if let (Some(low), Some(high)) = (values.first(), values.last()) {
        let middle = values[values.len() / 2];
        report.say(format_args!("      {metric}: from {low:.3} to {high:.3}, median {middle:.3}"));
    }
}

/// Checks that the first metric sees the kernels.
fn check_values(view: &View, device: usize, metric: &str, report: &mut Report) {
    let interval = INTERVAL.as_nanos() as u64;
    let mut kernels: Vec<_> = view.of("kernel").filter(|row| row.process == device as i64).collect();
    kernels.sort_unstable_by_key(|row| row.start);
    let is_busy = |sample: &&&Sample| {
        let next = kernels.partition_point(|row| row.end <= sample.at);
        kernels.get(next).is_some_and(|row| row.start < sample.at + interval)
    };
    let all = samples(view, device, metric);
    let (busy, idle): (Vec<_>, Vec<_>) = all.iter().partition(is_busy);
    let above = |samples: &[&&Sample]| samples.iter().filter(|sample| sample.value > 0.0).count();
    let mean =
        |samples: &[&&Sample]| samples.iter().map(|sample| sample.value).sum::<f64>() / samples.len().max(1) as f64;
    let figures = format!(
        "{} of {} samples with kernels above 0, mean {:.3}; {} of {} others, mean {:.3}; {} kernels",
        above(&busy),
        busy.len(),
        mean(&busy),
        above(&idle),
        idle.len(),
        mean(&idle),
        kernels.len()
    );
    report.check(&format!("GPU {device} {metric}: above 0 while kernels run"), above(&busy) > 0, figures);
}

fn check_losses(trace: &Trace, pm: &CollectorReport, report: &mut Report) {
    let stats = trace.stats();
    // Between two images of samples, some GPUs sample nothing for a while.
    let most = pm.records / 20;
    let is_excessive = |(loss, count): &&(Loss, u64)| loss.is_loss() && (*loss != Loss::VendorDropped || *count > most);
    let excessive = stats.losses.iter().filter(is_excessive).count();
    report.check("few samples and no kernels are lost", excessive == 0, format_args!("{:?}", stats.losses));
    report.check("samples are records of the trace", pm.records > 0, format_args!("{} records", pm.records));
}
