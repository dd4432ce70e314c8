//! Pauses, snapshots and forks of Intel GPU recordings.

use std::collections::BTreeMap;
use support::gpu::{kernels, name, tally, under};
use support::intel::{Counts, Machine, launches, machine};
use support::virtual_time;
use support::xpu::{Queue, WaitKind};
use support::{File, gpu, intel, layer, name_of, xpu};
use tracing::{info_span, subscriber};
use tracing_kineto::integration::Why;
use tracing_kineto::{Loss, Profiler};
use tracing_subscriber::layer::SubscriberExt;

/// Records `work`.
#[track_caller]
fn record(work: impl FnOnce(&Profiler)) -> File {
    let (layer, guard) = layer(intel::all);
    subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let profiler = guard.profiler();
        work(&profiler);
        File::of(profiler.stop().unwrap())
    })
}

fn submit(machine: &Machine, queue: Queue, kernel: &'static str, count: usize) {
    info_span!("work").in_scope(|| (0..count).for_each(|_| machine.submit(queue, kernel)));
}

/// Ends a pause, and waits until `all` views are enabled: a concurrent switch may finish a moment later.
fn resume(profiler: &Profiler, all: u64) {
    profiler.resume().unwrap();
    while xpu::count("enabled_views") != all {
        std::thread::yield_now();
    }
}

fn found(file: &File) -> BTreeMap<String, usize> {
    tally(kernels(file).into_iter().map(|kernel| name(kernel).to_owned()))
}

fn counts<const N: usize>(counts: [(&str, usize); N]) -> BTreeMap<String, usize> {
    BTreeMap::from(counts.map(|(name, count)| (name.to_owned(), count)))
}

#[virtual_time]
fn work_submitted_in_a_pause_is_not_recorded() {
    let machine = machine("");
    let queue = machine.queue(0);
    for rests in [false, true] {
        let file = record(|profiler| {
            submit(&machine, queue, "first", 2);
            machine.wait(queue, WaitKind::Queue);
            let all = xpu::count("enabled_views");
            profiler.pause().unwrap();
            while rests && xpu::count("enabled_views") == all {
                std::thread::yield_now();
            }
            submit(&machine, queue, "paused", 3);
            resume(profiler, all);
            // The kernel runs now, but was submitted in the pause.
            machine.wait(queue, WaitKind::Queue);
            submit(&machine, queue, "second", 4);
            machine.wait(queue, WaitKind::Queue);
        });
        assert_eq!(found(&file), counts([("first", 2), ("second", 4)]), "{}", file.trace.stats());
        let found = Counts::of(&file);
        assert_eq!((launches(&file).len(), found.linked, found.starts, found.ends), (6, 6, 6, 6));
        assert_eq!([Loss::LaunchesWithoutWork, Loss::WorkWithoutLaunch].map(|loss| file.lost(loss)), [0, 0]);
        assert_eq!((xpu::count("enabled_views"), xpu::count("push_depth")), (0, 0));
    }
}

#[virtual_time]
fn work_submitted_before_a_pause_is_recorded_to_its_end() {
    let machine = machine("");
    let queue = machine.queue(0);
    let file = record(|profiler| {
        submit(&machine, queue, "before", 3);
        let all = xpu::count("enabled_views");
        profiler.pause().unwrap();
        machine.wait(queue, WaitKind::Queue);
        resume(profiler, all);
        submit(&machine, queue, "after", 1);
        machine.wait(queue, WaitKind::Queue);
    });
    assert_eq!(launches(&file).len(), 4);
    assert_eq!(found(&file), counts([("before", 3), ("after", 1)]), "{}", file.trace.stats());
}

#[virtual_time]
fn snapshot_does_not_disturb_the_recording() {
    let machine = machine("");
    let queue = machine.queue(0);
    let file = record(|profiler| {
        submit(&machine, queue, "one", 2);
        machine.wait(queue, WaitKind::Queue);
        let look = File::of(profiler.snapshot().unwrap());
        assert_eq!(found(&look), counts([("one", 2)]), "{}", look.trace.stats());
        assert!(kernels(&look).into_iter().all(|kernel| under(&look, kernel) == "work"));
        submit(&machine, queue, "two", 3);
        machine.wait(queue, WaitKind::Queue);
    });
    assert_eq!(found(&file), counts([("one", 2), ("two", 3)]));
    assert!(file.trace.stats().losses.is_empty(), "{}", file.trace.stats());
}

#[virtual_time]
fn forked_child_records_the_host_without_its_parents_gpu() {
    gpu::in_child(name_of(child_that_forks), &[]);
}

#[test]
#[ignore = "run by another test"]
fn child_that_forks() {
    let _watch = gpu::watch(std::time::Duration::from_secs(60));
    let machine = machine("");
    let queue = machine.queue(0);
    let file = record(|profiler| {
        submit(&machine, queue, "before", 1);
        let status = gpu::fork(|| {
            profiler.start().unwrap();
            info_span!("own").in_scope(|| ());
            let file = File::of(profiler.stop().unwrap());
            assert_eq!((file.slices().len(), Counts::of(&file)), (1, Counts::default()));
            assert_eq!(intel::reason(&file).why(), Why::Unsupported);
            assert!(intel::reason(&file).message().contains("fork"), "{}", intel::reason(&file));
            true
        });
        assert_eq!(status, 0);
        submit(&machine, queue, "after", 1);
        machine.wait(queue, WaitKind::Queue);
    });
    assert_eq!(found(&file), counts([("before", 1), ("after", 1)]), "{}", file.trace.stats());
}
