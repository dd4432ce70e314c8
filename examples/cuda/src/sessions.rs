//! Checks of successive recordings, of competing profilers, and of a recording without CUPTI.

use crate::checks::{Counts, counted, expected, now};
use crate::program::{GRAPH_KERNELS, Gpu, Machine};
use crate::report::Report;
use crate::rival::Rival;
use crate::view::View;
use cudarc::driver::sys::CUstreamCaptureStatus;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use tracing::info_span;
use tracing_kineto::integration::Why;
use tracing_kineto::{KinetoLayer, Profiler, Trace};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

type Outcome = Result<(), Box<dyn Error>>;

/// CUPTI's error for a second subscriber.
const REFUSED: u32 = 39;
/// CUPTI's code of calls of its first version next to a shared subscriber.
const SHARED: u32 = 14;

/// Returns the library that the collector uses, or the reason why there is none.
pub fn library(profiler: &Profiler) -> Result<PathBuf, String> {
    let reports = profiler.collectors();
    let report = reports.iter().find(|report| report.name == "cupti").ok_or("there is no collector of CUDA")?;
    let can = report.state.as_ref().map_err(ToString::to_string)?;
    can.library.clone().ok_or_else(|| "it does not say which library it uses".to_owned())
}

/// While a recording runs, subscribers of CUPTI's first version are refused; next to a shared subscriber, by their calls.
pub fn second_subscriber(rival: &Rival, report: &mut Report) {
    let (subscribed, called) = match rival.subscribe() {
        Ok(held) => (0, held.push()),
        Err(code) => (code, 0),
    };
    let figures = format!("cuptiSubscribe returns {subscribed}, a call {called}");
    report.check("a second subscriber is refused", matches!((subscribed, called), (REFUSED, 0) | (0, SHARED)), figures);
}

/// After the recording, others can subscribe.
pub fn subscription_is_given_back(rival: &Rival, report: &mut Report) {
    let code = rival.subscribe().err();
    let figures = format!("cuptiSubscribe returns {} after the stop", code.unwrap_or(0));
    report.check("the subscription is given back", code.is_none(), figures);
}

/// A second run gives the same counts, without records of the first.
pub fn again(profiler: &Profiler, machine: &mut Machine, report: &mut Report) -> Outcome {
    let start = now();
    profiler.start()?;
    let done = machine.run()?;
    let trace = profiler.stop()?;
    let view = View::new(&trace)?;
    let (wanted, found) = (expected(machine.gpus.len(), done), counted(&view));
    let older = view.work().filter(|row| row.start < start - 1_000_000).count();
    let figures = format!("{} kernels of {}, {older} from before", found.kernels, wanted.kernels);
    report.check("a second recording", found == wanted && older == 0, figures);
    Ok(())
}

/// A recording that ends while the program captures a graph does not invalidate the capture.
pub fn stop_in_a_capture(profiler: &Profiler, gpu: &mut Gpu, simulated: bool, report: &mut Report) -> Outcome {
    let lane = &mut gpu.lanes[0];
    lane.upload()?;
    profiler.start()?;
    info_span!("before").in_scope(|| lane.add())?;
    lane.begin_capture()?;
    lane.add()?;
    let trace = profiler.stop()?;
    let status = lane.stream.capture_status()?;
    (1..GRAPH_KERNELS).try_for_each(|_| lane.add())?;
    let graph = lane.end_capture();
    let ended = graph.as_ref().map_or_else(ToString::to_string, |_| "ends well".to_owned());
    let wrong = match &graph {
        Ok(graph) => {
            lane.clear()?;
            graph.launch()?;
            lane.download()?
        }
        Err(_) => 0,
    };
    let kernels = counted(&View::new(&trace)?).kernels;
    let active = status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE;
    let state = if active { "continues" } else { "is invalidated" };
    let sums = if simulated { String::new() } else { format!(", {wrong} elements wrong") };
    let figures = format!("{kernels} kernel recorded; the capture {state} and {ended}{sums}");
    let passed = active && graph.is_ok() && (simulated || wrong == 0) && kernels == 1;
    report.check("a stop in a capture is harmless", passed, figures);
    Ok(())
}

/// While another profiler is subscribed, either both share CUPTI, or only the host is recorded and the trace gives the reason.
pub fn busy(profiler: &Profiler, rival: &Rival, gpu: &mut Gpu, report: &mut Report) -> Outcome {
    let held = rival.subscribe().map_err(|code| format!("cuptiSubscribe returns {code}"))?;
    let trace = one_kernel(profiler, gpu)?;
    drop(held);
    let stats = trace.stats();
    let cupti = stats.collectors.iter().find(|report| report.name == "cupti").ok_or("there is no collector of CUDA")?;
    let work = View::new(&trace)?.work().count();
    let (passed, outcome) = match &cupti.state {
        Ok(_) => (work == 1, "shared".to_owned()),
        Err(reason) => (work == 0 && reason.why() == Why::Busy, reason.to_string()),
    };
    let figures = format!("{} slices, {work} device activities: {outcome}", stats.slices);
    report.check("while another profiler has CUPTI", passed && stats.slices > 0, figures);

    let kernels = counted(&View::new(&one_kernel(profiler, gpu)?)?).kernels;
    report.check("after the other profiler", kernels == 1, format!("{kernels} kernel recorded"));
    Ok(())
}

fn one_kernel(profiler: &Profiler, gpu: &mut Gpu) -> Result<Trace, Box<dyn Error>> {
    profiler.start()?;
    info_span!("alone").in_scope(|| gpu.lanes[0].add())?;
    gpu.lanes[0].stream.synchronize()?;
    Ok(profiler.stop()?)
}

/// A process with CUPTI disabled records only the host, and its trace gives the reason.
pub fn disabled(report: &mut Report) -> Outcome {
    let view = in_child(|child, path| child.arg("--only-run").arg(path).env("KINETO_DISABLE_CUPTI", "1"))?;
    let (work, steps) = (view.work().count(), view.of("user_annotation").count());
    let reason = view.collector()["unavailable"].as_str().unwrap_or("no reason").to_owned();
    let passed = work == 0 && steps > 0 && reason.contains("DISABLE_CUPTI");
    let figures = format!("{steps} annotations, {work} device activities: {reason}");
    report.check("with KINETO_DISABLE_CUPTI=1", passed, figures);
    Ok(())
}

/// A process records everything after two recordings without work, one before its first call of CUDA.
pub fn after_empty_ones(wanted: Counts, report: &mut Report) {
    const NAME: &str = "after recordings without work";
    match in_child(|child, path| child.arg("--empty-first").arg(path)) {
        Ok(view) => {
            let found = counted(&view);
            let figures = format!("{} kernels of {}", found.kernels, wanted.kernels);
            report.check(
                NAME,
                found == wanted,
                if found == wanted { figures } else { format!("{found:?} of {wanted:?}") },
            );
        }
        Err(error) => report.check(NAME, false, error),
    }
}

/// Records nothing, opens the GPUs, records nothing, then records the program and saves the trace.
pub fn empty_first(path: &str) -> Outcome {
    let (layer, guard) = KinetoLayer::builder().no_output().record_from_start(false).build()?;
    tracing_subscriber::registry().with(layer).init();
    let profiler = guard.profiler();
    let record_nothing = || -> Outcome {
        profiler.start()?;
        info_span!("nothing").in_scope(|| {});
        profiler.stop()?;
        Ok(())
    };
    record_nothing()?;
    let mut machine = Machine::open()?;
    record_nothing()?;
    profiler.start()?;
    machine.run()?;
    Ok(profiler.stop()?.save(path)?)
}

/// Runs this program again, and reads the trace that it saves to the path.
fn in_child(arguments: impl for<'c> FnOnce(&'c mut Command, &Path) -> &'c mut Command) -> Result<View, Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("cuda-example-{}.json", std::process::id()));
    let status = arguments(&mut Command::new(std::env::current_exe()?), &path).status()?;
    if !status.success() {
        return Err(format!("the child process ended with {status}").into());
    }
    read(&path)
}

fn read(path: &Path) -> Result<View, Box<dyn Error>> {
    let json = std::fs::read(path)?;
    std::fs::remove_file(path)?;
    View::read(&json)
}
