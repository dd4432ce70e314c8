//! Measures hardware counters of each kernel, by replay, or of each annotation, in one pass; checks rows and values.

use crate::metric_checks::Checks;
use crate::program::{Lane, Machine};
use crate::report::Report;
use crate::view::{Row, View};
use cudarc::driver::DriverError;
use std::error::Error;
use std::time::{Duration, Instant};
use tracing_kineto::integration::CollectorReport;
use tracing_kineto::{KinetoLayer, Metrics, Trace, annotate};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// What is measured as one range.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Kernel,
    Annotation,
}

/// Step N launches N equal kernels, on each GPU.
const STEPS: usize = 5;
/// How far values of equal work may be apart. Counts of instructions are exact, bytes are not.
const TOLERANCE: f64 = 0.05;

/// Records steps with these metrics, separated by commas, the first of which is a sum; saves the trace.
pub fn run(unit: Unit, metrics: &str, path: &str, report: &mut Report) -> Result<(), Box<dyn Error>> {
    let metrics: Vec<_> = metrics.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    if metrics.first().is_none_or(|first| !first.ends_with(".sum")) {
        return Err("the first metric must be a sum, such as sm__inst_executed.sum".into());
    }
    let builder = KinetoLayer::builder().no_output().record_from_start(false);
    let builder = match unit {
        Unit::Kernel => builder.metrics(Metrics::new().per_kernel(metrics.iter().copied())),
        Unit::Annotation => builder.metrics(Metrics::new().per_annotation(metrics.iter().copied())),
    };
    let (layer, guard) = builder.build()?;
    tracing_subscriber::registry().with(layer).init();
    let profiler = guard.profiler();
    let mut machine = Machine::open()?;
    report.say(format_args!("{}", machine.gpus.iter().map(|gpu| &*gpu.name).collect::<Vec<_>>().join(", ")));

    // The same work before, to see what measuring costs.
    let plain = run_steps(&mut machine)?;
    profiler.start()?;
    let measured = run_steps(&mut machine)?;
    annotate!("idle").in_scope(|| ());
    let trace = profiler.stop()?;
    trace.save(path)?;

    let cupti = trace.stats().collectors.into_iter().find(|collector| collector.name == "cupti");
    describe(&cupti.ok_or("there is no collector cupti")?, report);
    report.say(format_args!("      {}", trace.stats()));
    report.say(format_args!("      {plain:.1?} without metrics, {measured:.1?} with them"));
    report.figure("steps without metrics", plain.as_micros() as u64, "us");
    report.figure("steps with metrics", measured.as_micros() as u64, "us");
    check_rows(unit, &metrics, machine.gpus.len(), &trace, report)?;
    let (machine, profiler) = (&mut machine, &profiler);
    Checks { unit, metric: metrics[0], machine, profiler, report, notes: Vec::new() }.run();
    Ok(())
}

/// Runs all steps; returns how long they took.
fn run_steps(machine: &mut Machine) -> Result<Duration, DriverError> {
    let begun = Instant::now();
    for gpu in &mut machine.gpus {
        let lane = &mut gpu.lanes[0];
        lane.stream.context().bind_to_thread()?;
        for launches in 1..=STEPS {
            annotate!("step {}", launches).in_scope(|| (0..launches).try_for_each(|_| Lane::add(lane)))?;
        }
        lane.stream.synchronize()?;
    }
    Ok(begun.elapsed())
}

/// Prints what the collector reports.
fn describe(cupti: &CollectorReport, report: &Report) {
    match &cupti.state {
        Ok(can) => can.metadata.iter().for_each(|(key, value)| report.say(format_args!("      {key} {value}"))),
        Err(reason) => report.say(format_args!("      {reason}")),
    }
    cupti.notes.iter().for_each(|note| report.say(format_args!("      {note}")));
}

/// Checks number, launches and values of the rows of each GPU.
fn check_rows(
    unit: Unit,
    metrics: &[&str],
    gpus: usize,
    trace: &Trace,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let view = View::new(trace)?;
    let (category, expected) = match unit {
        Unit::Kernel => ("cuda_profiler_range", STEPS * (STEPS + 1) / 2),
        Unit::Annotation => ("gpu_user_annotation", STEPS),
    };
    for gpu in 0..gpus {
        let name = |what: &str| format!("GPU {gpu}: {what}");
        let mut rows: Vec<_> = view.of(category).filter(|row| row.process == gpu as i64).collect();
        rows.sort_unstable_by_key(|row| row.start);
        report.check(&name("rows"), rows.len() == expected, format_args!("{} of {expected}", rows.len()));
        for metric in metrics {
            let values: Vec<_> = rows.iter().filter_map(|row| value(row, metric)).collect();
            let all = values.len() == rows.len() && values.iter().all(|value| value.is_finite());
            report.check(&name(metric), all && !rows.is_empty(), format_args!("{} values", values.len()));
        }
        rows.iter().for_each(|row| print_row(row, metrics, report));
        match unit {
            Unit::Kernel => check_kernels(&name, &rows, metrics[0], report),
            Unit::Annotation => check_annotations(&name, &rows, metrics[0], report),
        }
    }
    let notes = || trace.stats().losses.iter().map(|(loss, count)| format!("{count} {loss:?}")).collect::<Vec<_>>();
    let lost = trace.stats().losses.iter().any(|(loss, _)| loss.is_loss());
    report.check("no row is lost", !lost, format_args!("{:?}", notes()));
    Ok(())
}

pub fn value(row: &Row, metric: &str) -> Option<f64> {
    row.args.get(metric)?.as_f64()
}

/// Prints a row: its metrics and launches.
fn print_row(row: &Row, metrics: &[&str], report: &Report) {
    let values = metrics.iter().map(|metric| format!("{metric} {}", value(row, metric).unwrap_or(f64::NAN)));
    let launches = row.int("launches").unwrap_or(1);
    let (took, values) = (row.end - row.start, values.collect::<Vec<_>>().join(", "));
    report.say(format_args!("      {}: {launches} launches, {took} ns, {values}", row.name));
}

/// Equal kernels have equal values, and each has its launch.
fn check_kernels(name: &dyn Fn(&str) -> String, rows: &[&Row], metric: &str, report: &mut Report) {
    let values: Vec<_> = rows.iter().filter_map(|row| value(row, metric)).collect();
    let (low, high) = (values.iter().copied().fold(f64::MAX, f64::min), values.iter().copied().fold(0.0, f64::max));
    let equal = high > 0.0 && high - low <= high * TOLERANCE;
    report.check(&name("equal kernels, equal values"), equal, format_args!("{metric} from {low} to {high}"));
    let named = rows.iter().filter(|row| row.name.contains("vecadd") && row.int("correlation").is_some()).count();
    report.check(&name("names and launches"), named == rows.len(), format_args!("{named} of {}", rows.len()));
}

/// A step has its own launches, and each launch adds as much.
fn check_annotations(name: &dyn Fn(&str) -> String, rows: &[&Row], metric: &str, report: &mut Report) {
    let launches: Vec<_> = rows.iter().filter_map(|row| row.int("launches")).collect();
    let right = launches.iter().zip(1..).filter(|(launches, nth)| **launches == *nth).count();
    report.check(&name("launches of each step"), right == STEPS, format_args!("{launches:?}"));
    let values: Vec<_> = rows.iter().filter_map(|row| value(row, metric)).collect();
    let steps: Vec<_> = values.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let mean = steps.iter().sum::<f64>() / steps.len().max(1) as f64;
    let equal = mean > 0.0 && steps.iter().all(|step| (step - mean).abs() <= mean * TOLERANCE);
    report.check(&name("each launch adds the same"), equal, format_args!("{metric} adds {steps:?}"));
}
