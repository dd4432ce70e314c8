//! Records a program that launches kernels for a while, as a service does, in bounded memory: every launch is in the trace, or in
//! the part that was moved to disk, or counted.

use crate::program::{Gpu, Machine};
use crate::report::Report;
use crate::view::{Row, View};
use cudarc::driver::{DriverError, result};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tracing::info_span;
use tracing_kineto::{Format, KinetoLayer, Overflow, Profiler, Segment, Spill, Trace};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

const THREADS: usize = 4;
/// The number of launches of a request.
const LAUNCHES: u64 = 20;
const LIMIT: u64 = 64 << 20;
/// Disks take what the threads record in some tenths of a second.
const SPILL_LIMIT: u64 = 256 << 20;
/// The memory that may be added between half of the time and its end; CUPTI's own is not part of the limit.
const GROWTH: u64 = 16 << 20;

/// Launches kernels in threads for that time, with snapshots meanwhile; saves the last trace.
pub fn run(time: Duration, path: &str, report: &mut Report) -> Result<(), Box<dyn Error>> {
    let builder = KinetoLayer::builder().no_output().overflow(Overflow::KeepNewest).buffer_limit_bytes(LIMIT);
    let (layer, guard) = builder.build()?;
    tracing_subscriber::registry().with(layer).init();
    let (requests, resident) = serve_while(|| watch(&guard.profiler(), time, report))?;
    let trace = guard.finish()?;
    trace.save(path)?;

    let (view, stats) = (View::new(&trace)?, trace.stats());
    let launches = requests * LAUNCHES;
    report.say(format_args!("      {stats}"));
    let kernels = view.of("kernel").count() as u64;
    // A launch before the first span is at the window's edge, or ahead of it.
    let first = view.of("cpu_op").map(|row| row.start).min().unwrap_or(0);
    let launched = view.calls().filter(|row| row.start >= first).filter_map(|row| row.int("correlation"));
    let launched: BTreeSet<_> = launched.collect();
    let is_launched = |row: &&Row| row.int("correlation").is_some_and(|id| launched.contains(&id));
    let (kept, before, all) = (stats.slices + stats.device_activities, stats.before_window, requests + 2 * launches);
    let figures = format!("{kept} kept + {before} before of {all} slices and kernels");
    report.check("each launch is kept or counted", kept + before == all, figures);
    report.check("newer records have replaced the oldest", before > 0, format_args!("after {time:?}"));
    let spans = view.of("cpu_op").filter(|row| row.name == "launch").filter_map(|row| row.int("External id"));
    let spans: BTreeSet<_> = spans.collect();
    let is_in_span = |row: &&Row| row.int("External id").is_some_and(|id| spans.contains(&id));
    let in_spans = view.of("kernel").filter(is_launched).filter(is_in_span).count();
    let launched = view.of("kernel").filter(is_launched).count();
    let figures = format!("{in_spans} of {launched} kernels launched in the window; {kernels} kernels");
    report.check("kept kernels have their spans", in_spans > 0 && in_spans == launched, figures);
    let lost: Vec<_> = stats.losses.iter().filter(|(loss, _)| loss.is_loss()).collect();
    report.check("nothing lost", lost.is_empty(), format_args!("{lost:?}"));
    check_memory(resident, report);
    Ok(())
}

/// Launches kernels in threads for that time, while the oldest records are moved to disk; checks the parts.
pub fn spill(time: Duration, path: &str, report: &mut Report) -> Result<(), Box<dyn Error>> {
    let folder = Path::new(path).with_extension("parts");
    std::fs::create_dir(&folder)?;
    let builder = KinetoLayer::builder().no_output().overflow(Overflow::Spill).spill(Spill::new().folder(&folder));
    let (layer, guard) = builder.buffer_limit_bytes(SPILL_LIMIT).build()?;
    tracing_subscriber::registry().with(layer).init();
    let (requests, resident) = serve_while(|| {
        thread::sleep(time / 2);
        let middle = resident()?;
        thread::sleep(time / 2);
        Ok((middle, resident()?))
    })?;
    drop(guard);

    let segments = std::fs::read_dir(&folder)?.next().ok_or("nothing was moved to disk")??.path();
    let (mut found, mut lost, mut kernels, mut launched, mut parts) = (0, BTreeMap::new(), 0, 0, 0);
    for segment in Segment::files_in(segments)? {
        let trace = Trace::read_segment(segment)?.trace;
        let (view, stats) = (View::new(&trace)?, trace.stats());
        // A slice that was open at the end of a part is in the next part, too.
        found +=
            view.of("cpu_op").filter(|row| !row.args.contains_key("clipped")).count() as u64 + stats.device_activities;
        for (loss, count) in stats.losses.iter().filter(|(loss, _)| loss.is_loss()) {
            *lost.entry(format!("{loss:?}")).or_insert(0) += count;
        }
        let calls: BTreeSet<_> = view.calls().filter_map(|row| row.int("correlation")).collect();
        let is_launched = |row: &&Row| row.int("correlation").is_some_and(|id| calls.contains(&id));
        kernels += view.of("kernel").count();
        launched += view.of("kernel").filter(is_launched).count();
        parts += 1;
    }
    let missed = lost.remove("NotSpilled").unwrap_or(0);
    let all = requests + 2 * requests * LAUNCHES;
    let figures = format!("{found} in {parts} parts of {all} slices and kernels; {missed} of all records replaced");
    // Calls of CUDA are among the replaced ones.
    report.check("each launch is in a part or counted", found <= all && found + missed >= all && parts > 1, figures);
    // Others refer to those that were replaced.
    let is_whole = missed == 0;
    let figures = format!("{launched} of {kernels}");
    report.check("kernels have their launch in their part", launched == kernels || !is_whole, figures);
    report.check("nothing else is lost", lost.is_empty() || !is_whole, format_args!("{lost:?}"));
    check_memory(resident, report);
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

/// Serves requests on threads while `work` runs; returns how many, and the result.
fn serve_while<R>(work: impl FnOnce() -> Result<R, Box<dyn Error>>) -> Result<(u64, R), Box<dyn Error>> {
    let machine = Machine::open()?;
    let gpu = machine.gpus.first().ok_or("there is no GPU")?;
    let (requests, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    let result = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| serve(gpu, &ended, &requests))).collect();
        let result = work();
        ended.store(true, Ordering::Relaxed);
        let served = |thread: thread::ScopedJoinHandle<_>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        threads.into_iter().try_for_each(served)?;
        result
    })?;
    Ok((requests.into_inner(), result))
}

/// Checks the resident memory after half of the time, and at its end.
fn check_memory((middle, last): (u64, u64), report: &mut Report) {
    let figures = format!("{} MiB resident after half of the time, {} MiB at its end", middle >> 20, last >> 20);
    report.check("memory is bounded", last <= middle + GROWTH, figures);
}

/// Serves requests on a stream of its own until the end.
fn serve(gpu: &Gpu, ended: &AtomicBool, requests: &AtomicU64) -> Result<(), DriverError> {
    let context = gpu.lanes[0].stream.context();
    context.bind_to_thread()?;
    let stream = context.new_stream()?;
    // SAFETY: the kernel takes no parameters and does nothing.
    let launch = || unsafe {
        result::launch_kernel(gpu.empty.cu_function(), (1, 1, 1), (1, 1, 1), 0, stream.cu_stream(), &mut [])
    };
    while !ended.load(Ordering::Relaxed) {
        info_span!("request").in_scope(|| {
            (0..LAUNCHES).try_for_each(|_| info_span!("launch").in_scope(launch))?;
            stream.synchronize()
        })?;
        requests.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Takes eight snapshots, two of which are held for a while; returns the resident memory after half of the time, and at the end.
fn watch(profiler: &Profiler, time: Duration, report: &Report) -> Result<(u64, u64), Box<dyn Error>> {
    const SNAPSHOTS: u32 = 8;
    let (mut middle, mut held) = (0, Vec::new());
    for number in 1..=SNAPSHOTS {
        thread::sleep(time / (SNAPSHOTS + 1));
        let start = Instant::now();
        let snapshot = profiler.snapshot()?;
        let waited = start.elapsed();
        snapshot.write(std::io::sink(), Format::Json)?;
        let written = start.elapsed() - waited;
        let (kept, window) = (snapshot.stats().device_activities, snapshot.stats().duration);
        // Two snapshots of the second half hold memory of the limit at once.
        held.push(snapshot);
        if !(SNAPSHOTS / 2 + 1..=SNAPSHOTS / 2 + 2).contains(&number) {
            held.clear();
        }
        let mib = resident()? >> 20;
        report.say(format_args!(
            "      snapshot in {waited:.1?}, written in {written:.1?}: {kept} kernels, {window:.1?}; {mib} MiB resident"
        ));
        if number == SNAPSHOTS / 2 {
            middle = resident()?;
        }
    }
    // What a trace holds is free again now: the last one reaches back as far as the limit allows.
    thread::sleep(time / (SNAPSHOTS + 1));
    Ok((middle, resident()?))
}

/// Returns the resident memory of this process, in bytes.
pub fn resident() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? << 10)
}
