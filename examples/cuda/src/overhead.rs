//! Measures the cost of recording for a program that launches kernels.
//!
//! Each mode is measured in a separate process, which prints its figures. Launches of an empty kernel are timed in lots that
//! fit into the launch queue, so that the GPU's speed does not matter. A service with a constant load is measured by the
//! processor time of all its threads.

use crate::program::{Gpu, Machine};
use crate::report::Report;
use crate::rival::Rival;
use crate::service::{self, launch};
use crate::sessions;
use serde_json::{Map, Value, json};
use std::error::Error;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use tracing::info_span;
use tracing_kineto::{ActivityType, KinetoGuard, KinetoLayer};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The modes, with their names in the table.
const WAYS: [(&str, &str); 4] = [
    ("none", "no layer"),
    ("idle", "the layer, not recording"),
    ("spans", "spans alone"),
    ("cupti", "spans and CUPTI"),
];
const ROUNDS: usize = 9;
const LOTS: u32 = 20;
const LOT: u32 = 500;

/// For how long the service is measured.
const SERVICE_TIME: Duration = Duration::from_secs(4);

/// Measures each mode and prints a table.
pub fn table(report: &Report) -> Result<(), Box<dyn Error>> {
    let mut figures = Vec::new();
    for (way, _) in WAYS {
        let output = Command::new(std::env::current_exe()?).args(["--measure", way]).output()?;
        if !output.status.success() {
            return Err(format!("{way}: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        figures.push(serde_json::from_slice::<Map<String, Value>>(&output.stdout)?);
    }
    let number = |figures: &Map<String, Value>, key: &str| figures.get(key).and_then(Value::as_f64);
    let none = figures.first().and_then(|none| number(none, "launch_in_span")).unwrap_or(0.0);
    report
        .say(format_args!("\n{:<26} {:>12} {:>14} {:>12} {:>10}", "ns", "launch", "launch in span", "on top", "span"));
    for ((way, name), figures) in WAYS.iter().zip(&figures) {
        let [launch, inside, span] =
            ["launch", "launch_in_span", "span"].map(|key| number(figures, key).unwrap_or(0.0));
        let more = inside - none;
        report.say(format_args!("{name:<26} {launch:>12.0} {inside:>14.0} {more:>12.0} {span:>10.1}"));
        for (key, value) in figures {
            report.figure(&format!("{way}: {key}"), value.clone(), "ns");
        }
    }
    let last = figures.last().cloned().unwrap_or_default();
    for (key, what) in [("push_and_pop", "cuptiActivityPush and PopExternalCorrelationId, ns"), ("stop", "stop, ns")] {
        if let Some(value) = number(&last, key) {
            report.say(format_args!("{what}: {value:.0}"));
        }
    }
    if let (Some(records), Some(bytes)) = (number(&last, "records"), number(&last, "bytes")) {
        report.say(format_args!("{records:.0} records of CUPTI; {bytes:.0} bytes with those of the spans"));
    }
    let what = "% of a core: a service with 20,000 spans and 10,000 launches a second";
    report.say(format_args!("\n{what:<80} {:>6} {:>10} {:>14}", "all", "on top", "own threads"));
    let none = figures.first().and_then(|none| number(none, "service")).unwrap_or(0.0);
    for ((_, name), figures) in WAYS.iter().zip(&figures) {
        let [all, own] = ["service", "service_own_threads"].map(|key| number(figures, key).unwrap_or(0.0));
        report.say(format_args!("{name:<80} {all:>6.1} {:>10.1} {own:>14.2}", all - none));
    }
    Ok(())
}

/// Measures one mode and prints its figures as JSON.
pub fn measure(way: &str) -> Result<(), Box<dyn Error>> {
    let guard = install(way)?;
    let machine = Machine::open()?;
    let gpu = machine.gpus.first().ok_or("there is no GPU")?;
    // Warm-up.
    launches(gpu, true)?;
    let mut figures = Map::new();
    figures.insert("launch".to_owned(), json!(median(|| launches(gpu, false))?));
    figures.insert("launch_in_span".to_owned(), json!(median(|| launches(gpu, true))?));
    figures.insert("span".to_owned(), json!(median(|| Ok(spans()))?));
    let [all, own] = measure_service(gpu)?;
    figures.insert("service".to_owned(), json!(all));
    figures.insert("service_own_threads".to_owned(), json!(own));
    if let ("cupti", Some(guard)) = (way, guard) {
        if let Ok(library) = sessions::library(&guard.profiler()) {
            // Next to a shared subscriber, these functions are refused.
            if let Ok(push) = Rival::new(&library)?.push_and_pop() {
                figures.insert("push_and_pop".to_owned(), json!(push));
            }
        }
        let start = Instant::now();
        let trace = guard.finish()?;
        figures.insert("stop".to_owned(), json!(nanoseconds(start.elapsed())));
        let stats = trace.stats();
        let records: u64 = stats.collectors.iter().map(|report| report.records).sum();
        figures.insert("records".to_owned(), json!(records));
        figures.insert("bytes".to_owned(), json!(stats.bytes));
    }
    println!("{}", Value::Object(figures));
    Ok(())
}

fn install(way: &str) -> Result<Option<KinetoGuard>, Box<dyn Error>> {
    let builder = KinetoLayer::builder().no_output();
    let (layer, guard) = match way {
        "none" => return Ok(None),
        "idle" => builder.record_from_start(false),
        "spans" => builder.activities(ActivityType::CpuOp),
        "cupti" => builder,
        _ => return Err(format!("no such way: {way}").into()),
    }
    .build()?;
    tracing_subscriber::registry().with(layer).init();
    Ok(Some(guard))
}

/// Runs a service with a constant load; returns the processor time of all threads, and that of the recording's own threads,
/// in percent of a core.
fn measure_service(gpu: &Gpu) -> Result<[f64; 2], Box<dyn Error>> {
    let measure = || -> Result<_, Box<dyn Error>> {
        // The threads have begun, and none has ended.
        let margin = SERVICE_TIME / 8;
        thread::sleep(margin);
        let (start, before) = (Instant::now(), processor_times()?);
        thread::sleep(SERVICE_TIME - 2 * margin);
        let (time, after) = (start.elapsed(), processor_times()?);
        Ok([0, 1].map(|which| (after[which] - before[which]) / nanoseconds(time) * 100.0))
    };
    service::serve(gpu, SERVICE_TIME, true, |_| (), measure)?.1
}

/// Returns the processor time of all threads of this process, and of those whose names begin with `kineto`, in nanoseconds.
pub fn processor_times() -> Result<[f64; 2], Box<dyn Error>> {
    let mut times = [0.0; 2];
    for task in fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        let time = fs::read_to_string(task.join("schedstat"))?.split(' ').next().unwrap_or_default().parse::<f64>()?;
        times[0] += time;
        times[1] += if fs::read_to_string(task.join("comm"))?.starts_with("kineto") { time } else { 0.0 };
    }
    Ok(times)
}

/// Returns the time of a launch, in nanoseconds.
fn launches(gpu: &Gpu, in_spans: bool) -> Result<f64, Box<dyn Error>> {
    let stream = &gpu.lanes[0].stream;
    let launch = || launch(gpu, stream);
    let mut time = Duration::ZERO;
    for _ in 0..LOTS {
        let start = Instant::now();
        for _ in 0..LOT {
            if in_spans {
                info_span!("launch").in_scope(launch)?;
            } else {
                launch()?;
            }
        }
        time += start.elapsed();
        stream.synchronize()?;
    }
    Ok(nanoseconds(time) / f64::from(LOTS * LOT))
}

/// Returns the time of an empty span, in nanoseconds.
fn spans() -> f64 {
    const TIMES: u32 = 20_000;
    let start = Instant::now();
    for _ in 0..TIMES {
        info_span!("empty").in_scope(|| {});
    }
    nanoseconds(start.elapsed()) / f64::from(TIMES)
}

fn nanoseconds(time: Duration) -> f64 {
    time.as_nanos() as f64
}

fn median(mut measure: impl FnMut() -> Result<f64, Box<dyn Error>>) -> Result<f64, Box<dyn Error>> {
    let mut times = (0..ROUNDS).map(|_| measure()).collect::<Result<Vec<_>, _>>()?;
    times.sort_by(f64::total_cmp);
    Ok(times[ROUNDS / 2])
}
