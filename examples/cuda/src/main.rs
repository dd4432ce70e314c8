//! A CUDA program that records itself with tracing-kineto and checks the trace: the acceptance test on a real GPU.
//!
//! ```sh
//! cd examples/cuda && cargo run --release [FILE.pt.trace.json.gz] [--overhead] [--json]
//! ```
//!
//! It needs an NVIDIA driver and libcupti, which it finds at run time: `pip install nvidia-cuda-cupti` in an active virtual
//! environment, a CUDA toolkit, or `KINETO_CUPTI_PATH`. It needs no CUDA compiler; the kernels are PTX in the source.
//! `scripts/gpu-acceptance.sh` builds and runs it, reads its trace with other tools, and compares with torch.profiler if that
//! is installed.
//!
//! The [program](program) works on two streams of each visible GPU (`CUDA_VISIBLE_DEVICES`): copies, a fill, kernels, events,
//! and a graph that is captured and launched twice; then some calls of the CUDA runtime, and a copy from GPU to GPU if there
//! are two. Each check prints a line: PASS or FAIL, its name, and the measured figures. The exit status is 0 only if all
//! passed.
//!
//! The recording also samples power, clocks and memory ten times a second, and checks their ranges where NVML is installed.
//!
//! - `--overhead`: also measures a launch without the layer, with it, and with CUPTI.
//! - `--soak SECONDS`: instead, keeps the newest records while threads launch kernels; checks memory and counts.
//! - `--spill SECONDS`: the same while the oldest records are moved to disk; checks the parts.
//! - `--stall SECONDS`: instead, serves a constant load for that time and stalls one request; checks the dump that this triggers.
//! - `--busy-stop MILLISECONDS`: instead, stops while kernels are queued or launched, with this `flush_timeout`; checks their counts.
//! - `--counters METRICS`: instead, samples these metrics of the hardware while kernels run in bursts; checks the samples.
//! - `--kernel-metrics METRICS`, `--annotation-metrics METRICS`: instead, measures these metrics of each kernel or annotation;
//!   prints them, and checks rows and values.
//! - `--unpaced`: the load of `--stall`, as fast as possible.
//! - `--json`: prints JSON lines.
//! - `--ptx`: prints the kernels, and nothing else.
//!
//! Without a GPU, `scripts/run-examples.sh cuda` runs it on the simulated one, which computes nothing: sums are not checked,
//! times are meaningless, and only the program itself is tested.

mod busy;
mod checks;
mod counters;
mod kernels;
mod metric_checks;
mod metrics;
mod overhead;
mod program;
mod report;
mod rival;
mod service;
mod sessions;
mod soak;
mod stall;
mod view;

use checks::{Checks, now};
use program::{Done, Machine};
use report::Report;
use rival::Rival;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;
use tracing::info_span;
use tracing_kineto::{Devices, KinetoGuard, KinetoLayer, Profiler};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use view::View;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// How often power, clocks and memory are sampled.
const TELEMETRY_HZ: u32 = 10;

/// The options of the command line.
#[derive(Default)]
struct Options {
    path: Option<String>,
    overhead: bool,
    json: bool,
    soak: Option<Duration>,
    spill: Option<Duration>,
    stall: Option<Duration>,
    busy_stop: Option<Duration>,
    unpaced: bool,
    counters: Option<String>,
    metrics: Option<(metrics::Unit, String)>,
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("FAIL  {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome<ExitCode> {
    let mut options = Options::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match &*argument {
            "--overhead" => options.overhead = true,
            "--json" => options.json = true,
            "--soak" => options.soak = Some(seconds("--soak", arguments.next())?),
            "--spill" => options.spill = Some(seconds("--spill", arguments.next())?),
            "--stall" => options.stall = Some(seconds("--stall", arguments.next())?),
            "--busy-stop" => {
                options.busy_stop =
                    Some(Duration::from_millis(number("--busy-stop", "milliseconds", arguments.next())?))
            }
            "--counters" => options.counters = Some(arguments.next().ok_or("--counters needs names of metrics")?),
            "--kernel-metrics" | "--annotation-metrics" => {
                let unit =
                    if argument == "--kernel-metrics" { metrics::Unit::Kernel } else { metrics::Unit::Annotation };
                options.metrics = Some((unit, arguments.next().ok_or(format!("{argument} needs names of metrics"))?));
            }
            "--unpaced" => options.unpaced = true,
            "--ptx" => {
                print!("{}", kernels::PTX);
                return Ok(ExitCode::SUCCESS);
            }
            "--measure" => return overhead::measure(&arguments.next().unwrap_or_default()).map(|()| ExitCode::SUCCESS),
            "--only-run" => return only_run(&arguments.next().unwrap_or_default()),
            "--empty-first" => {
                return sessions::empty_first(&arguments.next().unwrap_or_default()).map(|()| ExitCode::SUCCESS);
            }
            flag if flag.starts_with("--") => return Err(format!("no such option: {flag}").into()),
            path => options.path = Some(path.to_owned()),
        }
    }
    if !program::has_driver() {
        return Err("there is no CUDA driver here (libcuda.so.1)".into());
    }
    let path = options.path.unwrap_or_else(|| "cuda.pt.trace.json.gz".into());
    let mut report = Report::new(options.json);
    if let Some(metrics) = &options.counters {
        counters::run(metrics, &path, &mut report)?;
        return Ok(report.end());
    }
    if let Some((unit, names)) = &options.metrics {
        metrics::run(*unit, names, &path, &mut report)?;
        return Ok(report.end());
    }
    if let Some(limit) = options.busy_stop {
        busy::run(limit, &path, &mut report)?;
        return Ok(report.end());
    }
    match (options.soak, options.spill, options.stall) {
        (Some(time), _, _) => soak::run(time, &path, &mut report)?,
        (None, Some(time), _) => soak::spill(time, &path, &mut report)?,
        (None, None, Some(time)) => stall::run(time, !options.unpaced, &path, &mut report)?,
        (None, None, None) => accept(&path, &mut report)?,
    }
    if options.overhead {
        overhead::table(&report)?;
    }
    Ok(report.end())
}

fn seconds(option: &str, value: Option<String>) -> Outcome<Duration> {
    Ok(Duration::from_secs(number(option, "seconds", value)?))
}

fn number(option: &str, unit: &str, value: Option<String>) -> Outcome<u64> {
    let number = value.and_then(|value| value.parse().ok());
    Ok(number.ok_or_else(|| format!("{option} needs a number of {unit}"))?)
}

/// Runs all checks; keeps the trace of the first recording.
fn accept(path: &str, report: &mut Report) -> Outcome<()> {
    let builder = KinetoLayer::builder().no_output().record_from_start(false);
    let (layer, guard) = builder.devices(Devices::new().telemetry(TELEMETRY_HZ)).build()?;
    tracing_subscriber::registry().with(layer).init();
    let profiler = guard.profiler();

    // The first call of CUDA happens while the recording is running.
    let start = now();
    profiler.start()?;
    let mut machine = info_span!("open").in_scope(Machine::open)?;
    describe(&machine, &profiler, report);
    let done = machine.run()?;
    let rival = sessions::library(&profiler).map_err(Into::into).and_then(|path| Rival::new(&path));
    if let Ok(rival) = &rival {
        sessions::second_subscriber(rival, report);
    }
    let trace = profiler.stop()?;
    let window = (start, now());
    trace.save(path)?;

    sums(&machine, done, report);
    let view = View::new(&trace)?;
    Checks { trace: &trace, view, done, gpus: machine.gpus.len(), window }.all(report);
    report.say(format_args!("      {}", trace.stats()));
    drop(trace);

    let simulated = machine.is_simulated();
    sessions::again(&profiler, &mut machine, report)?;
    match &rival {
        Ok(rival) => {
            sessions::subscription_is_given_back(rival, report);
            sessions::busy(&profiler, rival, &mut machine.gpus[0], report)?;
        }
        Err(error) => report.check("CUPTI is loaded", false, error),
    }
    sessions::stop_in_a_capture(&profiler, &mut machine.gpus[0], simulated, report)?;
    sessions::after_empty_ones(checks::expected(machine.gpus.len(), done), report);
    sessions::disabled(report)?;
    report.say(format_args!("\nThe trace is in {path}; drag it onto https://ui.perfetto.dev."));
    Ok(())
}

/// Prints the machine's properties.
fn describe(machine: &Machine, profiler: &Profiler, report: &Report) {
    let names: Vec<_> = machine.gpus.iter().map(|gpu| &*gpu.name).collect();
    report.say(format_args!("{}", names.join(", ")));
    if machine.is_simulated() {
        report.say("THIS GPU IS SIMULATED: what follows proves the program, not the profiler on a GPU.");
    }
    profiler.collectors().iter().for_each(|collector| match &collector.state {
        Ok(can) => {
            let facts = can.metadata.iter().map(|(key, value)| format!("{key} {value}"));
            let library = can.library.as_ref().map_or_else(String::new, |path| path.display().to_string());
            report.say(format_args!("{}: {library} {}", collector.name, facts.collect::<Vec<_>>().join(", ")));
        }
        Err(reason) => report.say(format_args!("{}: {reason}", collector.name)),
    });
    report.say("");
}

fn sums(machine: &Machine, done: Done, report: &mut Report) {
    const NAME: &str = "the sums are right";
    if machine.is_simulated() {
        return report.pass_over(NAME, "a simulated GPU computes nothing");
    }
    let all = machine.gpus.len() * program::STREAMS * program::ELEMENTS as usize;
    report.check(NAME, done.wrong == 0, format_args!("{} of {all} elements are wrong", done.wrong));
}

/// Runs the program with the environment's settings, and saves the trace.
fn only_run(path: &str) -> Outcome<ExitCode> {
    let (layer, guard): (KinetoLayer, KinetoGuard) = KinetoLayer::builder().no_output().build()?;
    tracing_subscriber::registry().with(layer).init();
    Machine::open()?.run()?;
    guard.finish()?.save(path)?;
    Ok(ExitCode::SUCCESS)
}
