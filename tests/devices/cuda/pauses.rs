//! Pauses of a GPU recording: of all types, of a group, and outside of the program's profiler ranges.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::cuda::{Cuda, Stream};
use support::gpu::{Counts, calls, interval, kernels, machine, name, tally, under};
use support::virtual_time;
use support::wait::{since, sleep, steady};
use support::{File, cuda, gpu, layer};
use tracing::subscriber;
use tracing_kineto::torch::Libkineto;
use tracing_kineto::{
    ActivityGroup, ActivityType, ActivityTypes, Devices, KinetoLayerBuilder, Loss, Profiler, RecordedTime, Status,
    annotate,
};
use tracing_subscriber::layer::SubscriberExt;

/// Records `work`.
#[track_caller]
fn record(
    configure: impl FnOnce(KinetoLayerBuilder) -> KinetoLayerBuilder,
    work: impl FnOnce(&Profiler),
) -> (File, BTreeMap<String, usize>) {
    let (layer, guard) = layer(|builder| configure(gpu::all(builder)));
    subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let profiler = guard.profiler();
        work(&profiler);
        let begun = steady();
        let file = File::of(profiler.stop().unwrap());
        assert!(since(begun) < gpu::PATIENCE, "{:?}", since(begun));
        Counts::of(&file);
        let found = tally(kernels(&file).iter().map(|kernel| name(kernel).to_owned()));
        (file, found)
    })
}

/// Launches `count` kernels in a span of the kernel's name.
fn launch(cuda: &Cuda, kernel: &'static str, count: usize) {
    let function = cuda.only_kernel(kernel);
    let _span = annotate!("{}", kernel).entered();
    (0..count).for_each(|_| cuda.launch(function, 2, Stream::NULL));
}

fn counts<const N: usize>(counts: [(&str, usize); N]) -> BTreeMap<String, usize> {
    BTreeMap::from(counts.map(|(name, count)| (name.to_owned(), count)))
}

fn spans(file: &File) -> Vec<&str> {
    file.slices().iter().map(|slice| &*slice.name).collect()
}

/// Returns the number of recorded stretches of the host and of CUPTI.
fn stretches(file: &File) -> [usize; 2] {
    let recorded = file.trace.stats().recorded;
    let of =
        |name: &str| recorded.iter().find(|time| time.name == name).map_or(usize::MAX, |time| time.stretches.len());
    let header = &file.json["tracing_kineto"]["recorded"];
    assert!(recorded.iter().all(|time| header[&*time.name]["stretches"] == time.stretches.len()), "{header}");
    [of("host"), of("cupti")]
}

#[virtual_time]
fn work_launched_in_a_pause_is_not_recorded() {
    let machine = machine("");
    let (file, found) = record(
        |builder| builder,
        |profiler| {
            launch(&machine, "first", 2);
            machine.synchronize();
            profiler.pause().unwrap();
            launch(&machine, "paused", 3);
            machine.synchronize();
            profiler.resume().unwrap();
            launch(&machine, "second", 4);
        },
    );
    assert_eq!(found, counts([("first", 2), ("second", 4)]));
    assert!(kernels(&file).iter().all(|kernel| under(&file, kernel) == name(kernel)));
    assert_eq!(stretches(&file), [2, 2]);
    assert_eq!(file.lost(Loss::LaunchesWithoutWork) + file.lost(Loss::WorkWithoutLaunch), 0, "{}", file.trace.stats());
    assert_eq!((cuda::count("push_depth"), cuda::count("synchronizes")), (0, 2));
}

#[virtual_time]
fn work_launched_before_a_pause_is_recorded_to_its_end() {
    let machine = machine("");
    let (file, found) = record(
        |builder| builder,
        |profiler| {
            launch(&machine, "long_us50000", 3);
            profiler.pause().unwrap();
        },
    );
    assert_eq!(found, counts([("long_us50000", 3)]));
    assert!(kernels(&file).iter().all(|kernel| interval(kernel).1 - interval(kernel).0 >= 50_000_000));
    assert_eq!(file.lost(Loss::UnfinishedWork), 0, "{}", file.trace.stats());
    assert_eq!(cuda::count("synchronizes"), 0, "no call waits for a device");
}

#[virtual_time]
fn cupti_is_suspended_in_a_pause_and_records_again_after() {
    let _watch = gpu::watch(Duration::from_secs(100));
    let machine = machine("");
    let (file, found) = record(
        |builder| builder,
        |profiler| {
            for (before, after) in [("one", "two"), ("three", "four")] {
                launch(&machine, before, 5);
                profiler.pause().unwrap();
                let records = || cuda::count("api_records") + cuda::count("device_records");
                // It records until the work launched before has ended.
                loop {
                    let so_far = records();
                    launch(&machine, "paused", 2);
                    machine.synchronize();
                    if records() == so_far {
                        break;
                    }
                    sleep(Duration::from_millis(10));
                }
                profiler.resume().unwrap();
                launch(&machine, after, 5);
            }
        },
    );
    assert_eq!(found, counts([("one", 5), ("two", 5), ("three", 5), ("four", 5)]));
    assert!(kernels(&file).iter().all(|kernel| under(&file, kernel) == name(kernel)));
    assert_eq!(stretches(&file), [3, 3]);
}

#[virtual_time]
fn activity_group_can_be_paused_alone() {
    let machine = machine("");
    let (file, found) = record(
        |builder| builder,
        |profiler| {
            launch(&machine, "both", 1);
            Libkineto::of(profiler).pause_activities(ActivityGroup::Cuda).unwrap();
            assert_eq!(profiler.status(), Status::Recording);
            launch(&machine, "cpu_alone", 2);
            machine.synchronize();
            Libkineto::of(profiler).pause_activities(ActivityGroup::Cpu).unwrap();
            Libkineto::of(profiler).resume_activities(ActivityGroup::Cuda).unwrap();
            assert_eq!(profiler.status(), Status::Paused);
            launch(&machine, "device_alone", 3);
            Libkineto::of(profiler).resume_activities(ActivityGroup::Cpu | ActivityGroup::Cuda).unwrap();
            launch(&machine, "again", 4);
        },
    );
    assert_eq!(found, counts([("both", 1), ("device_alone", 3), ("again", 4)]));
    assert_eq!(spans(&file), ["both", "cpu_alone", "again"]);
    for kernel in kernels(&file) {
        assert_eq!(under(&file, kernel), if name(kernel) == "device_alone" { "" } else { name(kernel) });
    }
    assert_eq!(stretches(&file), [2, 2]);
    let [host, cupti] = &file.trace.stats().recorded[..] else { panic!("two") };
    let is_before = |one: &RecordedTime, other: &RecordedTime| one.stretches[0].1 < other.stretches[0].1;
    assert!(is_before(cupti, host) && cupti.stretches[1].0 < host.stretches[1].0);
}

#[virtual_time]
fn span_exited_while_the_host_is_paused_launches_nothing() {
    let machine = machine("");
    let (file, _) = record(
        |builder| builder,
        |profiler| {
            let function = machine.only_kernel("kernel");
            let span = annotate!("left").entered();
            machine.launch(function, 1, Stream::NULL);
            Libkineto::of(profiler).pause_activities(ActivityGroup::Cpu).unwrap();
            drop(span);
            machine.launch(function, 1, Stream::NULL);
        },
    );
    let kernels = kernels(&file);
    assert_eq!(kernels.iter().map(|kernel| under(&file, kernel)).collect::<Vec<_>>(), ["left", ""]);
}

// Shows the key CUDA_PROFILER_RANGE.
#[virtual_time]
fn nothing_is_recorded_outside_of_profiler_ranges() {
    for options in ["", "nested_driver=1"] {
        let machine = machine(options);
        let (file, found) = record(
            |builder| builder.devices(Devices::new().profiler_range(true)),
            |profiler| {
                assert_eq!(profiler.status(), Status::Paused);
                launch(&machine, "before", 2);
                machine.start_profiler();
                assert_eq!(profiler.status(), Status::Recording);
                launch(&machine, "by_driver", 3);
                machine.stop_profiler();
                launch(&machine, "between", 4);
                machine.synchronize();
                machine.start_profiler_by_runtime();
                machine.start_profiler();
                launch(&machine, "by_runtime", 5);
                machine.stop_profiler_by_runtime();
                assert_eq!(profiler.status(), Status::Paused, "ranges do not nest");
                launch(&machine, "after", 6);
            },
        );
        assert_eq!(found, counts([("by_driver", 3), ("by_runtime", 5)]), "{options}");
        assert_eq!(spans(&file), ["by_driver", "by_runtime"]);
        assert!(kernels(&file).iter().all(|kernel| under(&file, kernel) == name(kernel)));
        assert_eq!(stretches(&file), [2, 2], "a call within a call counts once");
        assert!(!calls(&file).iter().any(|call| name(call).ends_with("ProfilerStart_v4000")));
        assert_eq!(cuda::count("subscribes"), cuda::count("unsubscribes"));
    }
}

#[virtual_time]
fn range_may_be_open_at_the_end_and_across_recordings() {
    let machine = machine("");
    let (layer, guard) = layer(|builder| gpu::all(builder).devices(Devices::new().profiler_range(true)));
    subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let profiler = guard.profiler();
        machine.start_profiler();
        launch(&machine, "open", 2);
        let file = File::of(profiler.stop().unwrap());
        assert_eq!(tally(kernels(&file).iter().map(|kernel| name(kernel).to_owned())), counts([("open", 2)]));
        assert!(file.trace.stats().recorded.is_empty(), "the range was open for the whole recording");
        // The next recording begins outside.
        profiler.start().unwrap();
        launch(&machine, "later", 2);
        let file = File::of(profiler.stop().unwrap());
        assert_eq!((kernels(&file).len(), file.slices().len()), (0, 0));
        let why = file.trace.why_empty().unwrap();
        assert!(why.contains("cudaProfilerStart was not called"), "{why}");
        assert_eq!(file.json["tracing_kineto"]["empty"], why);
    });
}

#[virtual_time]
fn host_alone_can_be_recorded_in_ranges() {
    let machine = machine("");
    let host = ActivityTypes::from(ActivityType::UserAnnotation);
    let (file, found) = record(
        |builder| builder.activities(host).devices(Devices::new().profiler_range(true)),
        |_| {
            launch(&machine, "outside", 1);
            machine.start_profiler();
            launch(&machine, "inside", 1);
        },
    );
    assert_eq!((found, spans(&file)), (counts([]), vec!["inside"]));
    assert_eq!(cuda::count("api_records"), 0);
}

#[virtual_time]
fn empty_trace_reports_that_ranges_cannot_be_observed() {
    let machine = machine("busy=1");
    let (file, found) = record(
        |builder| builder.devices(Devices::new().profiler_range(true)),
        |profiler| {
            machine.start_profiler();
            launch(&machine, "unseen", 2);
            assert_eq!(profiler.status(), Status::Paused);
        },
    );
    assert_eq!((found, file.slices().len()), (counts([]), 0));
    assert!(gpu::reason(&file).to_string().contains("another profiler"));
    let why = file.trace.why_empty().unwrap();
    assert!(why.contains("which needs CUPTI"), "{why}");
    let (file, _) = record(
        |builder| builder.devices(Devices::new().profiler_range(true)),
        |profiler| {
            profiler.resume().unwrap();
            launch(&machine, "by_hand", 1);
        },
    );
    assert_eq!(spans(&file), ["by_hand"]);
}

#[virtual_time]
fn concurrent_ranges_pauses_snapshots_and_stops_finish() {
    let _watch = gpu::watch(Duration::from_secs(100));
    let machine = machine("");
    let (cuda, over) = (*machine, AtomicBool::new(false));
    let (layer, guard) = layer(|builder| gpu::all(builder).devices(Devices::new().profiler_range(true)));
    let profiler = guard.profiler();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                cuda.set_current(cuda.context(0));
                let function = cuda.only_kernel("kernel");
                while !over.load(Ordering::Relaxed) {
                    cuda.start_profiler();
                    cuda.launch(function, 1, Stream::NULL);
                    cuda.stop_profiler();
                    sleep(Duration::from_micros(100));
                }
            });
        }
        for _ in 0..20 {
            profiler.pause().unwrap();
            profiler.resume().unwrap();
            drop(profiler.snapshot().unwrap());
            drop(profiler.stop().unwrap());
            profiler.start().unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
    drop(profiler.stop());
    subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        profiler.start().unwrap();
        cuda.start_profiler();
        launch(&machine, "next", 3);
        let file = File::of(profiler.stop().unwrap());
        assert_eq!(tally(kernels(&file).iter().map(|kernel| name(kernel).to_owned())), counts([("next", 3)]));
    });
    assert_eq!(cuda::count("subscribes"), cuda::count("unsubscribes"));
}
