//! Intel GPU recordings: starts and stops, concurrent recordings, and selected types.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;
use support::gpu::{events, kernels, name, stream, tally, under};
use support::intel::{Counts, launches, machine, record};
use support::virtual_time;
use support::xpu::{MemoryKind, Queue, WaitKind, Xpu};
use support::{File, gpu, intel, layer, record_with, spawn, xpu};
use tracing::{info_span, subscriber};
use tracing_kineto::integration::Why;
use tracing_kineto::{ActivityType, ActivityTypes, Loss, Profiler, annotate};
use tracing_subscriber::layer::SubscriberExt;

/// Runs `work` under a layer that starts no recording itself.
fn idle<R>(work: impl FnOnce(&Profiler) -> R) -> R {
    let (layer, guard) = layer(|builder| intel::all(builder).record_from_start(false));
    subscriber::with_default(tracing_subscriber::registry().with(layer), || work(&guard.profiler()))
}

/// Launches kernels in a span of their name, and waits for their end.
fn launch(xpu: &Xpu, queue: Queue, kernel: &'static str, count: usize) {
    annotate!("{}", kernel).in_scope(|| (0..count).for_each(|_| xpu.submit(queue, kernel)));
    xpu.wait(queue, WaitKind::Queue);
}

/// Returns the kernels of a trace with counts; checks that each is under the span of its name.
#[track_caller]
fn found(file: &File) -> BTreeMap<String, usize> {
    Counts::of(file);
    for kernel in kernels(file) {
        assert_eq!(under(file, kernel), name(kernel));
    }
    tally(kernels(file).into_iter().map(|kernel| name(kernel).to_owned()))
}

fn counts<const N: usize>(counts: [(&str, usize); N]) -> BTreeMap<String, usize> {
    BTreeMap::from(counts.map(|(name, count)| (name.to_owned(), count)))
}

#[virtual_time]
fn successive_recordings_have_their_own_kernels() {
    let machine = machine("");
    let queue = machine.queue(0);
    idle(|profiler| {
        launch(&machine, queue, "before", 2);
        for kernel in ["one", "two", "three"] {
            profiler.start().unwrap();
            launch(&machine, queue, kernel, 3);
            let file = File::of(profiler.stop().unwrap());
            assert_eq!(found(&file), counts([(kernel, 3)]));
            assert!(file.trace.stats().losses.is_empty(), "{}", file.trace.stats());
            assert_eq!(
                (xpu::count("enabled_views"), xpu::count("push_depth")),
                (0, 0),
                "other recordings may start now"
            );
            launch(&machine, queue, "between", 2);
        }
    });
}

#[virtual_time]
fn stop_gets_records_that_the_program_waited_for() {
    let _watch = gpu::watch(Duration::from_secs(100));
    let machine = machine("");
    let (queue, xpu) = (machine.queue(0), *machine);
    idle(|profiler| {
        profiler.start().unwrap();
        annotate!("long_us200000").in_scope(|| machine.submit(queue, "long_us200000"));
        let file = std::thread::scope(|scope| {
            spawn(scope, "waiting", || xpu.wait(queue, WaitKind::Queue));
            File::of(profiler.stop().unwrap())
        });
        assert_eq!(found(&file), counts([("long_us200000", 1)]), "{}", file.trace.stats());
        assert_eq!(file.lost(Loss::LaunchesWithoutWork), 0);
    });
    assert_eq!(xpu::count("synchronizes"), 1, "the program's own");
}

/// Runs work of each kind.
fn program(xpu: &Xpu, queue: Queue) {
    let _span = info_span!("all").entered();
    xpu.submit(queue, "gemm");
    xpu.memcpy(queue, MemoryKind::Pageable, MemoryKind::Device, 4096);
    xpu.memcpy_peer(queue, 1, 4096);
    xpu.memset(queue, 0, 4096);
    xpu.collective("allreduce", 1, 10);
    xpu.wait(queue, WaitKind::Event);
}

#[virtual_time]
fn each_type_can_be_recorded_alone() {
    let machine = machine("devices=2");
    let queue = machine.queue(0);
    let types = [
        (ActivityType::ConcurrentKernel, "kernel", 1),
        (ActivityType::GpuMemcpy, "gpu_memcpy", 2),
        (ActivityType::GpuMemset, "gpu_memset", 1),
        (ActivityType::XpuRuntime, "xpu_runtime", 4),
        (ActivityType::XpuDriver, "xpu_driver", 5),
        (ActivityType::XpuSync, "xpu_sync", 1),
        (ActivityType::CollectiveComm, "collective_comm", 1),
    ];
    for (kind, cat, count) in types {
        let only = ActivityTypes::from(kind).with(ActivityType::CpuOp);
        let file = record_with(|builder| intel::all(builder).activities(only), || program(&machine, queue));
        assert_eq!(events(&file, "X", cat).len(), count, "{cat}");
        let others = types.iter().filter(|(_, other, _)| *other != cat);
        assert!(others.map(|(_, other, _)| events(&file, "X", other).len()).all(|found| found == 0), "{cat}");
        // External correlation is not selected.
        assert_eq!((xpu::count("pushes"), events(&file, "s", "ac2g").len()), (0, 0), "{cat}");
    }
    let cpu = ActivityTypes::from(ActivityType::CpuOp);
    xpu::reset();
    let file = record_with(|builder| intel::all(builder).activities(cpu), || program(&machine, queue));
    assert_eq!(Counts::of(&file), Counts::default());
    assert_eq!(["enables", "requested_buffers", "pushes"].map(xpu::count), [0; 3], "PTI is not used");
}

#[virtual_time]
fn work_that_is_not_waited_for_is_counted_as_missing() {
    let machine = machine("");
    let queue = machine.queue(0);
    let timeout = Duration::from_millis(100);
    let file = record_with(
        |builder| intel::all(builder).flush_timeout(timeout),
        || {
            info_span!("waited_for").in_scope(|| machine.submit(queue, "waited_for"));
            machine.wait(queue, WaitKind::Queue);
            info_span!("forgotten").in_scope(|| machine.submit(queue, "forgotten"));
        },
    );
    assert_eq!(kernels(&file).into_iter().map(name).collect::<Vec<_>>(), ["waited_for"]);
    assert_eq!((launches(&file).len(), file.lost(Loss::LaunchesWithoutWork)), (2, 1), "{}", file.trace.stats());
    assert_eq!(xpu::count("synchronizes"), 1, "the collector does not synchronize");
    // The next recording does not get its late records.
    let file = record(|| machine.wait(queue, WaitKind::Queue));
    assert_eq!(kernels(&file).len(), 0, "{:?}", kernels(&file));
}

#[virtual_time]
fn threads_launch_their_own_work() {
    const EACH: usize = 20;
    let machine = machine("");
    let xpu: Xpu = *machine;
    let names = ["first", "second", "third"];
    let file = record(|| {
        std::thread::scope(|scope| {
            for thread in names {
                spawn(scope, thread, move || {
                    let queue = xpu.queue(0);
                    let work = || annotate!("{}", thread).in_scope(|| xpu.submit(queue, &format!("{thread}_us20")));
                    (0..EACH).for_each(|_| work());
                    xpu.wait(queue, WaitKind::Queue);
                });
            }
        });
    });
    let all = names.len() * EACH;
    let found = Counts::of(&file);
    let counts = [found.runtime, found.kernels, found.linked, found.starts, found.ends];
    assert_eq!(counts, [all; 5], "{}", file.trace.stats());
    for kernel in kernels(&file) {
        assert_eq!(format!("{}_us20", under(&file, kernel)), name(kernel));
    }
    let rows: HashSet<_> = launches(&file).into_iter().map(|call| call["tid"].as_u64().unwrap()).collect();
    let queues: HashSet<_> = kernels(&file).into_iter().map(stream).collect();
    assert_eq!((rows.len(), queues.len(), xpu::count("dropped")), (3, 3, 0));
}

#[virtual_time]
fn one_recording_at_a_time_has_pti() {
    let machine = machine("");
    let queue = machine.queue(0);
    let file = record(|| {
        let other = record(|| info_span!("other").in_scope(|| machine.submit(queue, "seen")));
        assert_eq!((intel::reason(&other).why(), Counts::of(&other)), (Why::Busy, Counts::default()));
        machine.wait(queue, WaitKind::Queue);
    });
    assert_eq!(kernels(&file).into_iter().map(name).collect::<Vec<_>>(), ["seen"]);
    assert_eq!((xpu::count("push_depth"), xpu::count("enabled_views")), (0, 0));
}

#[virtual_time]
fn unavailable_metrics_are_noted() {
    for (settings, metrics) in
        [("scope_error=104", "GpuTime"), ("", "Nonsense"), ("", "GpuTime,L3_MISS"), ("pti=0.14", "GpuTime")]
    {
        let machine = machine(settings);
        let queue = machine.queue(0);
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("kineto.conf");
        let keys = format!("XPUPTI_PROFILER_METRICS={metrics}\nXPUPTI_PROFILER_ENABLE_PER_KERNEL=true\n");
        std::fs::write(&config, keys).unwrap();
        let types = intel::TYPES.with(ActivityType::XpuScopeProfiler);
        let file = record_with(
            |builder| intel::all(builder).activities(types).config_file(&config),
            || launch(&machine, queue, "gemm", 2),
        );
        assert_eq!(found(&file), counts([("gemm", 2)]), "{settings} {metrics}");
        let notes = intel::report(&file).notes;
        assert!(notes.iter().any(|note| note.contains("metric")), "{settings} {metrics}: {notes:?}");
        assert_eq!(xpu::count("open_scopes"), 0);
    }
}
