//! The CUPTI collector on the simulated GPU: records found, by version and by fault.

use std::collections::HashSet;
use std::sync::Barrier;
use std::time::Duration;
use support::cuda;
use support::cuda::{Cuda, Stream};
use support::gpu::{PATIENCE, in_child, machine};
use support::wait::{since, steady};
use support::{name_of, virtual_time};
use tracing_kineto::activity::CorrelationId;
use tracing_kineto::integration::trial::{Findings, Trial, TrialRecord};
use tracing_kineto::integration::{Collector, Cupti, Options, Recording, Selection, Thread, Why};
use tracing_kineto::{ActivityType, ActivityTypes, Loss};

const TYPES: ActivityTypes = ActivityTypes::of(&[
    ActivityType::ConcurrentKernel,
    ActivityType::GpuMemcpy,
    ActivityType::GpuMemset,
    ActivityType::CudaRuntime,
    ActivityType::CudaDriver,
    ActivityType::ExternalCorrelation,
    ActivityType::CudaSync,
    ActivityType::CudaEvent,
    ActivityType::Overhead,
]);

fn selection() -> Selection {
    Selection::of(TYPES)
}

/// Runs `work` while the collector records; returns its findings.
fn recorded(work: impl FnOnce(&dyn Recording)) -> Findings {
    let cupti = Cupti::new(&Options::default());
    let trial = Trial::start(&cupti, &selection()).unwrap();
    work(trial.recording());
    trial.stop(PATIENCE)
}

fn inside<R>(recording: &dyn Recording, slice: u64, work: impl FnOnce() -> R) -> R {
    assert!(recording.push(CorrelationId(slice)));
    let result = work();
    recording.pop();
    result
}

fn kernels(findings: &Findings) -> Vec<&TrialRecord> {
    findings.of(ActivityType::ConcurrentKernel).collect()
}

/// Returns the call that launched `work`.
fn launch<'f>(findings: &'f Findings, work: &TrialRecord) -> &'f TrialRecord {
    let owns = |call: &&TrialRecord| call.thread.is_some() && call.correlation == work.correlation;
    findings.records.iter().find(owns).unwrap_or_else(|| panic!("no launch of {work:?}"))
}

/// Returns the slice of a call: the one that it names, or the one that was delivered separately because too many records
/// of other threads came in between.
fn slice(findings: &Findings, call: &TrialRecord) -> u64 {
    let apart = |record: &&TrialRecord| {
        record.kind == ActivityType::ExternalCorrelation && record.correlation == call.correlation
    };
    let apart = findings.records.iter().find(apart).map_or(0, |record| record.external);
    if call.external == 0 { apart } else { call.external }
}

/// Launches a kernel of half a millisecond ten times.
fn launch_ten(cuda: &Cuda) {
    let kernel = cuda.only_kernel("ten_us500");
    (0..10).for_each(|_| cuda.launch(kernel, 4, Stream::NULL));
}

#[virtual_time]
fn all_work_is_found_with_each_version() {
    for version in ["11.7", "11.8", "12.0", "12.4", "12.8", "12.9", "13.0", "13.1", "13.2", "13.3", "13.4"] {
        let machine = machine(&format!("cupti={version},nested_driver=1"));
        let cuda = &machine.cuda;
        let (one, two) = (cuda.stream(), cuda.stream_with_priority(-2));
        let memory = cuda.allocate(4096);
        let found = recorded(|recording| {
            inside(recording, 101, || cuda.memcpy_htod(memory, &[1; 4096], one));
            inside(recording, 102, || cuda.memset(memory, 0, one));
            let add = cuda.only_kernel("_Z3addPKfS0_Pfi");
            inside(recording, 103, || {
                cuda.launch(add, 10, one);
                inside(recording, 104, || cuda.launch(add, 10, two));
            });
            let event = cuda.event();
            cuda.record(event, one);
            cuda.wait(two, event);
            cuda.synchronize_event(event);
            inside(recording, 105, || cuda.launch_by_runtime(add, 10, one));
            let graph = cuda.graph(one, || (0..4).for_each(|_| cuda.launch(add, 3, one)));
            inside(recording, 106, || cuda.launch_graph(graph, one));
            inside(recording, 107, || cuda.memcpy_dtoh(&mut [0; 1024], memory, one));
            cuda.synchronize_stream(one);
            cuda.synchronize();
        });
        check_work(version, &found);
        check_links(version, &found);
        check_waits(version, &found);
        assert_eq!(found.lost(Loss::DeviceRecordsUnread) + found.lost(Loss::VendorDropped), 0, "{version}");
    }
}

fn check_work(version: &str, found: &Findings) {
    assert_eq!(kernels(found).len(), 3 + 4, "{version}");
    let names: Vec<_> = found.of(ActivityType::GpuMemcpy).map(|copy| copy.name.as_str()).collect();
    assert_eq!(names, ["Memcpy HtoD (Pageable -> Device)", "Memcpy DtoH (Device -> Pageable)"], "{version}");
    let fills: Vec<_> = found.of(ActivityType::GpuMemset).collect();
    assert_eq!((fills.len(), fills[0].name.as_str(), fills[0].arg("bytes")), (1, "Memset (Device)", Some("4096")));
    for kernel in kernels(found) {
        assert_eq!(kernel.name, "add(float const*, float const*, float*, int)", "{version}");
        assert!(kernel.device == 0 && kernel.start > 0 && kernel.start < kernel.end, "{version}: {kernel:?}");
        let [grid, block] = ["grid", "block"].map(|key| kernel.arg(key).unwrap());
        assert!(matches!((grid, block), ("[10, 1, 1]" | "[3, 1, 1]", "[256, 1, 1]")), "{version}: {kernel:?}");
        let has_priority = ["13.1", "13.2", "13.3", "13.4"].contains(&version);
        assert_eq!(kernel.arg("priority").is_some(), has_priority, "{version}");
    }
    let of_graphs = kernels(found).into_iter().filter(|kernel| kernel.arg("graph node id") != Some("0"));
    assert_eq!(of_graphs.count(), 4, "{version}");
}

fn check_links(version: &str, found: &Findings) {
    let work = [ActivityType::ConcurrentKernel, ActivityType::GpuMemcpy, ActivityType::GpuMemset];
    let work = found.records.iter().filter(|record| work.contains(&record.kind));
    let mut slices: Vec<_> = work.map(|work| launch(found, work).external).collect();
    slices.sort_unstable();
    assert_eq!(slices, [101, 102, 103, 104, 105, 106, 106, 106, 106, 107], "{version}");
    let by_runtime: Vec<_> = found.of(ActivityType::CudaRuntime).map(|call| call.name.as_str()).collect();
    assert_eq!(by_runtime, ["cudaLaunchKernel"], "{version}");
    let launches: Vec<_> =
        found.of(ActivityType::CudaDriver).filter(|call| call.launches).map(|call| call.name.as_str()).collect();
    let count = |name: &str| launches.iter().filter(|launch| **launch == name).count();
    // Two driver calls and one inside a runtime call; launches captured into the graph reached no device.
    assert_eq!((count("cuLaunchKernel"), count("cuGraphLaunch")), (3, 1), "{version}: {launches:?}");
    let noise = found.of(ActivityType::CudaDriver).find(|call| call.name.starts_with("cuCtxGet"));
    assert!(noise.is_none(), "{version}: {noise:?}");
    let threads: HashSet<_> = found.records.iter().filter_map(|record| record.thread).collect();
    assert_eq!(threads.len(), 1, "{version}");
    assert!(matches!(threads.iter().next(), Some(Thread::Handle(_))));
}

fn check_waits(version: &str, found: &Findings) {
    let waits: Vec<_> = found.of(ActivityType::CudaSync).map(|wait| wait.name.as_str()).collect();
    assert_eq!(waits, ["Stream Wait Event", "Event Sync", "Stream Sync", "Context Sync"], "{version}");
    assert!(found.of(ActivityType::CudaSync).all(|wait| wait.device == 0), "{version}");
    let events: Vec<_> = found.of(ActivityType::CudaEvent).collect();
    assert_eq!(events.len(), 1, "{version}");
    let has_time = version.starts_with("13");
    assert_eq!(events[0].start > 0, has_time, "{version}");
}

#[virtual_time]
fn types_that_are_not_selected_are_absent() {
    let machine = machine("");
    let cupti = Cupti::new(&Options::default());
    let types = ActivityTypes::from(ActivityType::ConcurrentKernel).with(ActivityType::CudaDriver);
    let trial = Trial::start(&cupti, &Selection::of(types)).unwrap();
    assert_eq!(trial.capabilities().types, types);
    assert_eq!(trial.capabilities().proven, Some(true));
    let memory = machine.cuda.allocate(16);
    machine.cuda.memset(memory, 0, Stream::NULL);
    launch_ten(&machine.cuda);
    let found = trial.stop(PATIENCE);
    let kinds: HashSet<_> = found.records.iter().map(|record| record.kind.to_string()).collect();
    assert_eq!(kinds, HashSet::from(["kernel".to_owned(), "cuda_driver".to_owned()]));
    assert_eq!(kernels(&found).len(), 10);
}

#[virtual_time]
fn stop_waits_for_running_work_but_not_for_captures() {
    let machine = machine("");
    let cuda = &machine.cuda;
    let stream = cuda.stream();
    let mut graph = None;
    let found = recorded(|_| {
        let slow = cuda.only_kernel("slow_us200000");
        cuda.launch(slow, 1, Stream::NULL);
        cuda.begin_capture(stream);
        cuda.launch(slow, 1, stream);
        graph = Some(stream);
    });
    assert_eq!(kernels(&found).len(), 1);
    assert!(kernels(&found)[0].end - kernels(&found)[0].start >= 200_000_000);
    assert!(found.notes.is_empty(), "{:?}", found.notes);
    // The capture is still valid.
    cuda.end_capture(stream).unwrap();
    assert_eq!(cuda::count("synchronizes"), 0);
}

#[virtual_time]
fn endless_work_has_no_end() {
    let machine = machine("no_finish=endless");
    let cuda = &machine.cuda;
    let cupti = Cupti::new(&Options::default());
    let trial = Trial::start(&cupti, &selection()).unwrap();
    cuda.launch(cuda.only_kernel("first"), 1, Stream::NULL);
    cuda.synchronize();
    cuda.launch(cuda.only_kernel("endless"), 1, Stream::NULL);
    let begun = steady();
    let found = trial.stop(Duration::from_millis(300));
    // Part of the timeout is reserved for the library's last calls.
    assert!(since(begun) >= Duration::from_millis(150));
    let ends: Vec<_> = kernels(&found).iter().map(|kernel| (kernel.name.as_str(), kernel.end > 0)).collect();
    assert_eq!(ends, [("first", true), ("endless", false)]);
    cuda::finish();
    // Its late records belong to no recording, and the next recording is complete.
    let found = recorded(|_| launch_ten(cuda));
    assert_eq!(kernels(&found).len(), 10);
}

#[virtual_time]
fn successive_recordings_leak_no_ids() {
    let machine = machine("");
    let cuda = &machine.cuda;
    let cupti = Cupti::new(&Options::default());
    for round in 1..4u64 {
        let trial = Trial::start(&cupti, &selection()).unwrap();
        assert!(trial.recording().push(CorrelationId(round * 10)));
        launch_ten(cuda);
        // The recording stops inside the slice.
        let found = trial.stop(PATIENCE);
        let slices: HashSet<_> = kernels(&found).iter().map(|kernel| launch(&found, kernel).external).collect();
        assert_eq!(slices, HashSet::from([round * 10]));
    }
    let trial = Trial::start(&cupti, &selection()).unwrap();
    inside(trial.recording(), 77, || ());
    launch_ten(cuda);
    let found = trial.stop(PATIENCE);
    assert!(kernels(&found).iter().all(|kernel| launch(&found, kernel).external == 0), "no id is left over");
}

#[virtual_time]
fn snapshot_has_ended_work() {
    let machine = machine("");
    let cupti = Cupti::new(&Options::default());
    let trial = Trial::start(&cupti, &selection()).unwrap();
    launch_ten(&machine.cuda);
    machine.cuda.synchronize();
    assert_eq!(kernels(&trial.look()).len(), 10);
    launch_ten(&machine.cuda);
    assert_eq!(kernels(&trial.stop(PATIENCE)).len(), 20);
}

#[virtual_time]
fn other_user_of_the_library_is_named_and_goes_first() {
    let machine = machine("busy=1");
    let cupti = Cupti::new(&Options::default());
    let reason = Trial::start(&cupti, &selection()).unwrap_err();
    assert_eq!(reason.why(), Why::Busy);
    assert!(reason.message().contains("`a tool`") && reason.message().contains("(39)"), "{reason}");
    assert_eq!(cuda::count("requested_buffers"), 0);
    cuda::configure("");
    let other = Cupti::new(&Options::default());
    let first = Trial::start(&other, &selection()).unwrap();
    assert_eq!(Trial::start(&cupti, &selection()).unwrap_err().why(), Why::Busy);
    launch_ten(&machine.cuda);
    assert_eq!(kernels(&first.stop(PATIENCE)).len(), 10);
    assert_eq!(kernels(&Trial::start(&cupti, &selection()).unwrap().stop(PATIENCE)).len(), 0);
}

#[virtual_time]
fn refused_types_are_noted_and_others_recorded() {
    let machine = machine("privileges=1");
    let cupti = Cupti::new(&Options::default());
    let reason = Trial::start(&cupti, &selection()).unwrap_err();
    assert_eq!(reason.why(), Why::Forbidden);
    assert!(reason.advice().contains("NVreg_RestrictProfilingToAdminUsers=0"), "{reason}");
    cuda::configure("enable_error=27:38");
    let trial = Trial::start(&cupti, &selection()).unwrap();
    assert!(!trial.capabilities().notes.is_empty());
    assert!(trial.capabilities().notes[0].starts_with("cuda_sync is not recorded"), "{:?}", trial.capabilities().notes);
    launch_ten(&machine.cuda);
    assert_eq!(kernels(&trial.stop(PATIENCE)).len(), 10);
}

#[virtual_time]
fn dropped_records_are_counted() {
    let machine = machine("drop=2");
    let found = recorded(|_| {
        launch_ten(&machine.cuda);
        machine.cuda.synchronize();
    });
    assert!(found.lost(Loss::VendorDropped) > 0);
    assert!(kernels(&found).len() < 10);
}

#[virtual_time]
fn late_buffers_and_foreign_threads_lose_no_records() {
    for settings in
        ["late_buffers=50", "foreign_thread=1", "slow_callbacks=5", "late_buffers=50,foreign_thread=1,cupti=12.4"]
    {
        let machine = machine(settings);
        let found = recorded(|_| {
            launch_ten(&machine.cuda);
            machine.cuda.synchronize();
        });
        assert_eq!(kernels(&found).len(), 10, "{settings}");
    }
}

#[virtual_time]
fn garbage_and_unknown_kinds_are_counted_and_skipped() {
    for (settings, all) in [("garbage=5", false), ("unknown_kinds=2", true)] {
        let machine = machine(settings);
        let found = recorded(|_| {
            launch_ten(&machine.cuda);
            machine.cuda.synchronize();
        });
        assert!(found.lost(Loss::DeviceRecordsUnread) > 0, "{settings}");
        let count = kernels(&found).len();
        assert!(count == 10 || !all && count > 0, "{settings}: {count}");
    }
}

#[virtual_time]
fn refused_push_is_reported_to_the_caller() {
    let machine = machine("push_error=1");
    let found = recorded(|recording| {
        assert!(!recording.push(CorrelationId(1)));
        launch_ten(&machine.cuda);
    });
    assert_eq!(kernels(&found).len(), 10);
}

#[virtual_time]
fn clock_offset_does_not_end_the_recording_early() {
    for settings in ["clock_skew_ns=3600000000000", "clock_skew_ns=-3600000000000"] {
        let machine = machine(settings);
        let found = recorded(|_| launch_ten(&machine.cuda));
        assert_eq!(kernels(&found).len(), 10, "{settings}");
    }
}

// Shows the key ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB.
#[virtual_time]
fn memory_is_bounded_and_losses_are_counted() {
    for version in ["12.4", "13.0"] {
        let machine = machine(&format!("cupti={version}"));
        let cupti = Cupti::new(&Options::default());
        let mut selection = selection();
        // Two small buffers: launches come faster than their records are read.
        selection.buffer_bytes = 128 << 10;
        let trial = Trial::start(&cupti, &selection).unwrap();
        let kernel = machine.cuda.only_kernel("short_us1");
        (0..20_000).for_each(|_| machine.cuda.launch(kernel, 1, Stream::NULL));
        let found = trial.stop(PATIENCE);
        let lost = found.lost(Loss::VendorDropped) + found.lost(Loss::DeviceRecordsOverLimit);
        let read = found.records.len() as u64;
        // A launch has two records: a call and a kernel.
        assert!(read + lost >= 40_000, "{version}: {read} read, {lost} lost");
    }
}

#[virtual_time]
fn records_of_many_threads_and_contexts_do_not_mix() {
    let machine = machine("devices=2");
    let cuda = machine.cuda;
    let together = Barrier::new(4);
    let found = recorded(|recording| {
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let together = &together;
                scope.spawn(move || {
                    together.wait();
                    cuda.set_current(cuda.context((thread % 2) as i32));
                    let kernel = cuda.only_kernel("of_thread_us10");
                    let stream = cuda.stream();
                    (0..25).for_each(|n| inside(recording, 1000 * (thread + 1) + n, || cuda.launch(kernel, 1, stream)));
                    together.wait();
                });
            }
        });
    });
    assert_eq!(kernels(&found).len(), 100);
    for kernel in kernels(&found) {
        let slice = slice(&found, launch(&found, kernel));
        assert_ne!(slice, 0, "{kernel:?}");
        assert_eq!(kernel.device, ((slice / 1000 - 1) % 2) as i32);
    }
    let slices: HashSet<_> = kernels(&found).iter().map(|kernel| slice(&found, launch(&found, kernel))).collect();
    assert_eq!(slices.len(), 100);
    let threads: HashSet<_> = kernels(&found).iter().map(|kernel| launch(&found, kernel).thread).collect();
    assert_eq!(threads.len(), 4);
}

#[virtual_time]
fn copies_between_devices_have_source_and_target() {
    let machine = machine("devices=2");
    let cuda = &machine.cuda;
    let contexts = [0, 1].map(|device| cuda.context(device));
    let memory = contexts.map(|context| {
        cuda.set_current(context);
        cuda.allocate(1024)
    });
    cuda.set_current(contexts[0]);
    let found = recorded(|_| {
        cuda.memcpy_peer((memory[1], contexts[1]), (memory[0], contexts[0]), Stream::NULL);
        cuda.synchronize();
    });
    let copy = found.of(ActivityType::GpuMemcpy).next().unwrap();
    assert!(copy.name.starts_with("Memcpy PtoP "), "{copy:?}");
    assert_eq!((copy.arg("fromDevice"), copy.arg("toDevice"), copy.arg("bytes")), (Some("0"), Some("1"), Some("1024")));
}

#[virtual_time]
fn graph_can_be_one_record() {
    let machine = machine("");
    let cuda = &machine.cuda;
    let stream = cuda.stream();
    let kernel = cuda.only_kernel("node");
    let graph = cuda.graph(stream, || (0..4).for_each(|_| cuda.launch(kernel, 3, stream)));
    let cupti = Cupti::new(&Options::default());
    let mut selection = selection();
    selection.options.set("CUDA_GRAPH_TRACE", true);
    let trial = Trial::start(&cupti, &selection).unwrap();
    cuda.launch_graph(graph, stream);
    cuda.launch(kernel, 1, stream);
    cuda.synchronize();
    let found = trial.stop(PATIENCE);
    let names: Vec<_> = kernels(&found).iter().map(|kernel| kernel.name.as_str()).collect();
    assert_eq!(names, ["CUDA graph", "node"]);
}

#[virtual_time]
fn library_can_be_released() {
    let machine = machine("");
    let cupti = Cupti::new(&Options::default());
    let mut selection = selection();
    selection.options.set("TEARDOWN_CUPTI", true);
    for _ in 0..2 {
        let trial = Trial::start(&cupti, &selection).unwrap();
        launch_ten(&machine.cuda);
        let found = trial.stop(PATIENCE);
        assert_eq!((kernels(&found).len(), found.notes.len()), (10, 0), "{:?}", found.notes);
    }
    assert_eq!(cuda::count("subscribes"), cuda::count("unsubscribes"));
}

#[virtual_time]
fn devices_match_the_machine() {
    let _machine = machine("devices=3,name=Fake GPU");
    let cupti = Cupti::new(&Options::default());
    let trial = Trial::start(&cupti, &selection()).unwrap();
    let devices = cupti.devices();
    assert_eq!(devices.iter().map(|device| device.id).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(devices[0].name, "Fake GPU");
    for key in
        ["totalGlobalMem", "computeMajor", "numSms", "warpSize", "sharedMemPerBlockOptin", "regsPerMultiprocessor"]
    {
        assert!(devices[0].property(key).is_some_and(|value| value > 0), "{key}");
    }
    assert_eq!(trial.capabilities().metadata[0], ("cupti_version".to_owned(), "130001".to_owned()));
    assert!(trial.capabilities().library.is_some());
    trial.stop(PATIENCE);
    assert!(cupti.attempts().iter().any(|attempt| attempt.what.starts_with("libcupti.so.13, already loaded")));
}

#[virtual_time]
fn nothing_is_called_without_a_driver() {
    in_child(name_of(child_without_a_driver), &[]);
}

/// Loads no simulator, so there is no driver unless the machine has a real one.
#[test]
#[ignore = "run by another test"]
fn child_without_a_driver() {
    let mut options = Options::default();
    options.set("KINETO_CUPTI_PATH", cuda::library("sim_cupti").to_str().unwrap());
    let cupti = Cupti::new(&options);
    let Err(reason) = cupti.probe() else { return };
    assert_eq!(reason.why(), Why::NoDevice);
    assert!(reason.advice().contains("install NVIDIA's driver"), "{reason}");
    let attempts = cupti.attempts();
    assert!(attempts.iter().all(|attempt| !attempt.what.contains("cupti")), "{attempts:?}");
    // A driver loaded later is found.
    cuda::driver();
    let capabilities = cupti.probe().unwrap();
    assert_eq!(capabilities.library, Some(cuda::library("sim_cupti")));
}

#[virtual_time]
fn unusable_or_old_driver_is_reported() {
    in_child(name_of(child_with_an_old_driver), &[]);
}

#[test]
#[ignore = "run by another test"]
fn child_with_an_old_driver() {
    cuda::configure("driver=0");
    let reason = Cupti::new(&Options::default()).probe().unwrap_err();
    assert_eq!(reason.why(), Why::NoDevice);
    assert!(reason.message().contains("stub"), "{reason}");
    cuda::configure("driver=10020");
    let reason = Cupti::new(&Options::default()).probe().unwrap_err();
    assert_eq!(reason.why(), Why::LibraryNotFound);
    assert!(reason.message().contains("CUDA 10.2"), "{reason}");
}

#[virtual_time]
fn recording_may_start_before_the_first_call() {
    in_child(name_of(child_that_starts_early), &[]);
}

#[test]
#[ignore = "run by another test"]
fn child_that_starts_early() {
    cuda::cupti();
    let cupti = Cupti::new(&Options::default());
    let trial = Trial::start(&cupti, &selection()).unwrap();
    let cuda = Cuda::new();
    launch_ten(&cuda);
    assert_eq!(kernels(&trial.stop(PATIENCE)).len(), 10);
}
