//! Launches faster than records are read: memory stays bounded, and each record is kept or counted.
#![allow(clippy::cast_possible_truncation, reason = "tests count little")]

use std::collections::HashSet;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use support::gpu::machine;
use support::wait::{since, sleep, steady};
use support::{File, cuda, gpu, name_of, spawn, virtual_time};
use tracing::{info_span, subscriber};
use tracing_kineto::{ActivityType, ActivityTypes, Format, KinetoLayerBuilder, Loss, Overflow, Trace};
use tracing_subscriber::layer::SubscriberExt;

const MIB: u64 = 1 << 20;

/// Hundreds of thousands of launches take seconds of processor time without optimisation, and machines are shared.
const LONGEST_RUN: Duration = Duration::from_secs(600);

/// Types whose records can be counted exactly: a launch is a call and a kernel.
const TYPES: ActivityTypes = ActivityTypes::of(&[
    ActivityType::CpuOp,
    ActivityType::UserAnnotation,
    ActivityType::GpuUserAnnotation,
    ActivityType::ConcurrentKernel,
    ActivityType::CudaDriver,
]);

/// Kernels of a microsecond and of 10 ms.
const SHORT: &str = "short_us1";
const LONG: &str = "long_us10000";

/// A recording of many launches.
struct LaunchRun {
    launches: u64,
    /// Limits of the trace and of the vendor's buffers, in bytes.
    limits: [u64; 2],
    /// Further memory allowed, in bytes: assembling the trace, and the simulator's pending work.
    extra: u64,
    settings: &'static str,
    /// A kernel much longer than a launch keeps CUPTI's buffers until the stop times out.
    kernel: &'static str,
}

/// The result of a run.
#[derive(Debug)]
#[allow(dead_code, reason = "printed with --nocapture")]
struct Outcome {
    launching: Duration,
    stopping: Duration,
    writing: Duration,
    /// The largest growth of the process, in bytes.
    growth: u64,
    bytes: u64,
    kernels: u64,
    records: u64,
    losses: Vec<(Loss, u64)>,
    notes: Vec<String>,
}

impl LaunchRun {
    fn run(&self) {
        let machine = machine(self.settings);
        let streams = [machine.stream(), machine.stream(), machine.stream(), machine.stream()];
        let kernel = machine.only_kernel(self.kernel);
        let mut config = tempfile::NamedTempFile::new().unwrap();
        writeln!(config, "ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB={}", self.limits[1] / MIB).unwrap();
        let before = reset_peak();
        let (layer, guard) = support::layer(|builder| {
            let builder = builder.config_file(config.path()).activities(TYPES).flush_timeout(self.patience());
            builder.buffer_limit_bytes(self.limits[0])
        });
        let begun = steady();
        cuda::reset();
        subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let mut left = self.launches;
            while left > 0 {
                let _span = info_span!("thousand").entered();
                let now = left.min(1000);
                (0..now).for_each(|at| machine.launch(kernel, 1, streams[at as usize % streams.len()]));
                left -= now;
            }
        });
        let launching = since(begun);
        let begun = steady();
        let trace: Trace = guard.finish().unwrap();
        let stopping = since(begun);
        let begun = steady();
        trace.write(std::io::sink(), Format::Json).unwrap();
        let writing = since(begun);
        let stats = trace.stats();
        let report = stats.collectors.iter().find(|report| report.name == "cupti").unwrap();
        let (records, notes) = (report.records, report.notes.clone());
        let growth = peak().saturating_sub(before);
        let (bytes, kernels, losses) = (stats.bytes, stats.device_activities, stats.losses);
        let outcome = Outcome { launching, stopping, writing, growth, bytes, kernels, records, losses, notes };
        gpu::say(&format!("{} launches, limits {:?}: {outcome:#?}", self.launches, self.limits));
        self.check(&outcome);
    }

    fn patience(&self) -> Duration {
        if self.kernel == LONG { Duration::from_millis(300) } else { gpu::PATIENCE }
    }

    fn check(&self, outcome: &Outcome) {
        assert_eq!(cuda::count("launches"), self.launches);
        assert!(outcome.bytes <= self.limits[0], "{} bytes in the trace", outcome.bytes);
        let limit = self.limits[0] + self.limits[1] + self.extra;
        assert!(outcome.growth <= limit, "grew by {} of {limit} bytes", outcome.growth);
        // CUPTI's records are in the trace or counted as lost, except those of work that ended after the stop's timeout.
        let lost = |cause: Loss| outcome.losses.iter().find(|(loss, _)| *loss == cause).map_or(0, |(_, count)| *count);
        let outside = lost(Loss::OutOfWindow);
        let lost = lost(Loss::VendorDropped) + lost(Loss::DeviceRecordsOverLimit);
        assert!(lost > 0, "the limits are too wide for this test");
        let is_noted = |part: &str| outcome.notes.iter().any(|note| note.contains(part));
        assert!(is_noted("CUPTI requested ") || self.kernel == SHORT, "CUPTI's buffers are not full: {outcome:?}");
        assert!(!is_noted("libcupti hung"), "{outcome:?}");
        let made = cuda::count("api_records") + cuda::count("device_records");
        assert!(made >= 2 * self.launches);
        let known = outcome.records + outside;
        assert_eq!(known + lost, made, "{outcome:?}");
    }
}

/// Resets the process's peak memory; returns its current memory in bytes.
fn reset_peak() -> u64 {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    peak()
}

/// Returns the process's peak memory in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Runs in a child process: its memory is the recording's.
#[virtual_time]
fn memory_is_bounded_while_a_program_launches() {
    gpu::in_child(name_of(child_that_launches), &[]);
}

#[test]
#[ignore = "run by another test"]
fn child_that_launches() {
    let _watch = gpu::watch(LONGEST_RUN);
    // One run in which CUPTI may be refused buffers, and one in which it must get some.
    let refusing = "cupti=13.4,driver=13040";
    let insisting = "cupti=12.4,driver=12040";
    for (settings, kernel) in [(refusing, SHORT), (refusing, LONG), (insisting, LONG)] {
        LaunchRun { launches: 100_000, limits: [2 * MIB, 8 * MIB], extra: 16 * MIB, settings, kernel }.run();
    }
}

#[virtual_time]
fn newest_kernels_are_kept_with_their_spans() {
    const LAUNCHES: u64 = 40_000;
    let _watch = gpu::watch(LONGEST_RUN);
    let machine = machine("");
    let (stream, kernel) = (machine.stream(), machine.only_kernel(SHORT));
    let newest = |builder: KinetoLayerBuilder| {
        let types = TYPES.with(ActivityType::ExternalCorrelation);
        builder.activities(types).buffer_limit_bytes(2 * MIB).overflow(Overflow::KeepNewest)
    };
    let (layer, guard) = support::layer(newest);
    subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let _root = info_span!("root", id = 7).entered();
        for step in 0..LAUNCHES / 100 {
            // The collector keeps up.
            sleep(Duration::from_millis(1));
            let _span = info_span!("hundred", step).entered();
            (0..100).for_each(|_| machine.launch(kernel, 1, stream));
        }
    });
    let file = File::of(guard.finish().unwrap());
    let stats = file.trace.stats();
    // Kernels in the window may have been launched before it.
    assert!(stats.bytes <= 2 * MIB && stats.losses.is_empty(), "{stats}");
    assert_eq!(stats.slices + stats.device_activities + stats.before_window, LAUNCHES + LAUNCHES / 100 + 1, "{stats}");
    let root = file.slice("root").args;
    assert_eq!((&root["id"], &root["clipped"]), (&7.into(), &true.into()));
    let (kernels, calls) = (gpu::kernels(&file), gpu::calls(&file));
    assert!(kernels.len() > 2_500, "{stats}");
    let launched: HashSet<_> = calls.iter().map(|call| call["args"]["correlation"].as_u64()).collect();
    let linked = kernels.iter().filter(|kernel| launched.contains(&kernel["args"]["correlation"].as_u64()));
    // Those of a few steps may have been launched before the window.
    assert!(kernels.len() - linked.count() < 1_000, "{stats}");
    let last = kernels.iter().max_by_key(|kernel| kernel["args"]["correlation"].as_u64()).unwrap();
    assert_eq!(gpu::under(&file, last), "hundred");
}

#[virtual_time]
fn newest_kernels_of_threads_are_counted() {
    const THREADS: u64 = 4;
    const EACH: u64 = 25;
    let _watch = gpu::watch(LONGEST_RUN);
    let machine = machine("");
    let (cuda, context) = (*machine, machine.context(0));
    let newest = |builder: KinetoLayerBuilder| {
        let types = TYPES.with(ActivityType::ExternalCorrelation);
        builder.activities(types).buffer_limit_bytes(2 * MIB).overflow(Overflow::KeepNewest)
    };
    let (layer, guard) = support::layer(newest);
    let (requests, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        std::thread::scope(|scope| {
            for number in 0..THREADS {
                let (requests, ended) = (&requests, &ended);
                spawn(scope, &format!("launcher {number}"), move || {
                    cuda.set_current(context);
                    let (stream, kernel) = (cuda.stream(), cuda.only_kernel(SHORT));
                    while !ended.load(Ordering::Relaxed) {
                        let _span = info_span!("request").entered();
                        (0..EACH).for_each(|_| info_span!("launch").in_scope(|| cuda.launch(kernel, 1, stream)));
                        requests.fetch_add(1, Ordering::Relaxed);
                        // The collector keeps up.
                        sleep(Duration::from_millis(5));
                    }
                });
            }
            for _ in 0..4 {
                sleep(Duration::from_millis(200));
                guard.profiler().snapshot().unwrap().write(std::io::sink(), Format::Json).unwrap();
            }
            ended.store(true, Ordering::Relaxed);
        });
    });
    let file = File::of(guard.finish().unwrap());
    let stats = file.trace.stats();
    assert!(stats.bytes <= 2 * MIB && stats.before_window > 0, "{stats}");
    let all = requests.into_inner() * (1 + 2 * EACH);
    let counted = stats.slices + stats.device_activities + stats.before_window;
    assert_eq!((counted, stats.losses.iter().find(|(loss, _)| loss.is_loss())), (all, None), "{stats}");
}

#[test]
#[ignore = "takes long: cargo test --release --test devices cuda::bound::ten -- --ignored --nocapture"]
fn ten_million_launches() {
    for kernel in [SHORT, LONG] {
        LaunchRun { launches: 10_000_000, limits: [64 * MIB, 32 * MIB], extra: 32 * MIB, settings: "", kernel }.run();
    }
}

/// Each kernel is in one part, although it may end after the part in which it was launched.
#[virtual_time]
fn kernels_are_spilled_once() {
    const LAUNCHES: u64 = 20_000;
    const LOSSES: [&str; 5] = [
        "records_not_spilled",
        "launches_without_work",
        "work_without_launch",
        "launches_unlinked",
        "external_ids_unknown",
    ];
    let _watch = gpu::watch(LONGEST_RUN);
    let machine = machine("");
    let (stream, kernel) = (machine.stream(), machine.only_kernel(SHORT));
    let folder = tempfile::tempdir().unwrap();
    let spilled = |builder: KinetoLayerBuilder| {
        let types = TYPES.with(ActivityType::ExternalCorrelation);
        builder
            .output(folder.path().join("app.json"))
            .activities(types)
            .buffer_limit_bytes(2 * MIB)
            .overflow(Overflow::Spill)
    };
    let (layer, guard) = support::layer(spilled);
    subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for step in 0..LAUNCHES / 100 {
            // The collector and the disk keep up.
            sleep(Duration::from_millis(2));
            let _span = info_span!("hundred", step).entered();
            (0..100).for_each(|_| machine.launch(kernel, 1, stream));
        }
    });
    drop(guard);
    let count = std::fs::read_dir(folder.path()).unwrap().count();
    let (mut kernels, mut spans, mut linked) = (Vec::new(), 0, 0);
    for number in 1..=count {
        let part = std::fs::read(folder.path().join(format!("app.part{number:04}.json"))).unwrap();
        let part: serde_json::Value = serde_json::from_slice(&part).unwrap();
        let rows = part["traceEvents"].as_array().unwrap();
        let calls = rows.iter().filter(|row| row["cat"] == "cuda_runtime" || row["cat"] == "cuda_driver");
        let launched: HashSet<_> = calls.map(|row| &row["args"]["correlation"]).collect();
        for row in rows.iter().filter(|row| row["ph"] == "X") {
            if row["cat"] == "kernel" {
                kernels.push(row["args"]["correlation"].as_u64().unwrap());
                linked += u64::from(launched.contains(&row["args"]["correlation"]));
            }
            spans += u64::from(row["name"] == "hundred" && row["args"].get("clipped").is_none());
        }
        let losses = &part["tracing_kineto"]["losses"];
        for kind in LOSSES {
            assert_eq!(losses[kind].as_u64(), None, "part {number} of {count}: {losses}");
        }
    }
    let found = kernels.len() as u64;
    kernels.sort_unstable();
    kernels.dedup();
    assert_eq!(kernels.len() as u64, found, "each once");
    assert!(count >= 2, "{count} parts");
    assert_eq!((found, linked, spans), (LAUNCHES, LAUNCHES, LAUNCHES / 100), "in {count} parts");
}
