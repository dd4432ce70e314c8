//! GPU recordings: starts and stops, other profilers, selected types, and threads.

use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use support::cuda::{Cuda, Stream};
use support::gpu::{Counts, calls, events, interval, kernels, losses, machine, name, reason, tally, under};
use support::virtual_time;
use support::wait::{since, sleep, steady};
use support::{File, cuda, gpu, layer, on_thread, own_process, record_with, spawn};
use tracing::{info_span, subscriber};
use tracing_kineto::integration::Why;
use tracing_kineto::torch::Libkineto;
use tracing_kineto::{ActivityType, ActivityTypes, Devices, KinetoLayerBuilder, Loss, Profiler, Status, annotate};
use tracing_subscriber::layer::SubscriberExt;

/// Runs `work` under a layer that starts no recording itself.
fn idle<R>(configure: impl FnOnce(KinetoLayerBuilder) -> KinetoLayerBuilder, work: impl FnOnce(&Profiler) -> R) -> R {
    let (layer, guard) = layer(|builder| configure(gpu::all(builder)).record_from_start(false));
    subscriber::with_default(tracing_subscriber::registry().with(layer), || work(&guard.profiler()))
}

/// Launches `count` kernels in a span of the kernel's name.
fn launch(cuda: &Cuda, kernel: &'static str, count: usize) {
    let function = cuda.only_kernel(kernel);
    let _span = annotate!("{}", kernel).entered();
    (0..count).for_each(|_| cuda.launch(function, 2, Stream::NULL));
}

/// Returns the kernels of a trace with counts; checks that each is under the span of its name.
#[track_caller]
fn found(file: &File) -> BTreeMap<String, usize> {
    Counts::of(file);
    for kernel in kernels(file) {
        assert_eq!(under(file, kernel), name(kernel));
    }
    tally(kernels(file).iter().map(|kernel| name(kernel).to_owned()))
}

fn counts<const N: usize>(counts: [(&str, usize); N]) -> BTreeMap<String, usize> {
    BTreeMap::from(counts.map(|(name, count)| (name.to_owned(), count)))
}

/// Stops a recording within the tests' time limit.
#[track_caller]
fn stop(profiler: &Profiler) -> File {
    let begun = steady();
    let trace = profiler.stop().unwrap();
    assert!(since(begun) < gpu::PATIENCE, "{:?}", since(begun));
    File::of(trace)
}

#[virtual_time]
fn successive_recordings_have_their_own_kernels() {
    let machine = machine("");
    idle(
        |builder| builder,
        |profiler| {
            launch(&machine, "before", 3);
            for kernel in ["one", "two", "three"] {
                profiler.start().unwrap();
                launch(&machine, kernel, 5);
                let file = stop(profiler);
                assert_eq!(found(&file), counts([(kernel, 5)]));
                assert!(file.trace.stats().losses.is_empty(), "{}", file.trace.stats());
                launch(&machine, "between", 3);
                assert_eq!(cuda::count("subscribes"), cuda::count("unsubscribes"), "other profilers may record now");
            }
        },
    );
    assert_eq!((cuda::count("push_depth"), cuda::count("synchronizes")), (0, 0));
}

#[virtual_time]
fn span_open_at_the_stop_leaves_no_pushed_id() {
    let machine = machine("");
    idle(
        |builder| builder,
        |profiler| {
            profiler.start().unwrap();
            let open = info_span!("open").entered();
            stop(profiler);
            profiler.start().unwrap();
            launch(&machine, "inside", 2);
            drop(open);
            let function = machine.only_kernel("outside");
            machine.launch(function, 1, Stream::NULL);
            let file = stop(profiler);
            let spans = tally(kernels(&file).iter().map(|kernel| under(&file, kernel).to_owned()));
            assert_eq!(spans, counts([("", 1), ("inside", 2)]));
            assert_eq!(file.lost(Loss::LaunchesUnlinked), 1);
        },
    );
    assert_eq!(cuda::count("push_depth"), 0);
}

#[virtual_time]
fn prepared_recording_has_work_after_its_start_alone() {
    let machine = machine("");
    idle(
        |builder| builder,
        |profiler| {
            let prepared = Libkineto::of(profiler).prepare().unwrap();
            let report = prepared.reports().iter().find(|report| report.name == "cupti").unwrap();
            assert_eq!(report.state.as_ref().unwrap().proven, Some(true));
            assert_eq!((profiler.status(), cuda::count("subscribes")), (Status::Prepared, 1));
            launch(&machine, "early", 3);
            machine.synchronize();
            prepared.start().unwrap();
            launch(&machine, "inside", 4);
            let file = stop(profiler);
            assert_eq!(found(&file), counts([("inside", 4)]));
            drop(Libkineto::of(profiler).prepare().unwrap());
            assert_eq!(cuda::count("subscribes"), cuda::count("unsubscribes"), "dropping it releases the library");
        },
    );
}

#[virtual_time]
fn old_preparation_does_not_disarm_a_new_recording() {
    let machine = machine("");
    idle(
        |builder| builder,
        |profiler| {
            let first = Libkineto::of(profiler).prepare().unwrap();
            profiler.start().unwrap();
            stop(profiler);
            let second = Libkineto::of(profiler).prepare().unwrap();
            drop(first);
            assert_eq!((profiler.status(), cuda::count("unsubscribes")), (Status::Prepared, 1));
            second.start().unwrap();
            launch(&machine, "inside", 2);
            assert_eq!(found(&stop(profiler)), counts([("inside", 2)]));
        },
    );
}

#[virtual_time]
fn host_recording_does_not_touch_the_gpu() {
    let machine = machine("");
    let cpu = ActivityTypes::from(ActivityType::CpuOp).with(ActivityType::UserAnnotation);
    let file = record_with(|builder| gpu::all(builder).activities(cpu), || launch(&machine, "unseen", 2));
    assert_eq!((file.slices().len(), Counts::of(&file)), (1, Counts::default()));
    assert_eq!(["subscribes", "requested_buffers", "pushes"].map(cuda::count), [0; 3]);
    // It does not block the next recording.
    let file = gpu::record(|| launch(&machine, "seen", 2));
    assert_eq!(found(&file), counts([("seen", 2)]));
}

#[virtual_time]
fn snapshot_has_ended_work_and_removes_none() {
    let machine = machine("no_finish=endless");
    let other = machine.stream();
    idle(
        |builder| builder,
        |profiler| {
            profiler.start().unwrap();
            launch(&machine, "done", 3);
            machine.synchronize();
            let look = File::of(profiler.snapshot().unwrap());
            assert_eq!(found(&look), counts([("done", 3)]));
            let endless = machine.only_kernel("endless");
            annotate!("endless").in_scope(|| machine.launch(endless, 1, other));
            let begun = steady();
            let look = File::of(profiler.snapshot().unwrap());
            assert!(since(begun) < gpu::PATIENCE / 2, "a snapshot does not wait for running work");
            assert!(found(&look).get("done") == Some(&3));
            cuda::finish();
            let file = stop(profiler);
            assert_eq!(found(&file), counts([("done", 3), ("endless", 1)]));
            assert_eq!(file.lost(Loss::UnfinishedWork), 0, "{}", file.trace.stats());
        },
    );
}

/// CUPTI returns no buffer in which a kernel still runs: one that is flushed by chance between two kernels is awaited.
#[virtual_time]
fn snapshot_of_a_busy_gpu_has_ended_work() {
    let machine = machine("");
    let other = machine.stream();
    idle(
        |builder| builder,
        |profiler| {
            profiler.start().unwrap();
            launch(&machine, "done", 3);
            machine.synchronize();
            annotate!("busy_us50000").in_scope(|| machine.launch(machine.only_kernel("busy_us50000"), 1, other));
            let look = File::of(profiler.snapshot().unwrap());
            assert_eq!(found(&look), counts([("busy_us50000", 1), ("done", 3)]));
            stop(profiler);
        },
    );
}

#[virtual_time]
fn stop_keeps_earlier_launches_while_threads_launch() {
    const THREADS: usize = 4;
    const EACH: usize = 50;
    let _watch = gpu::watch(Duration::from_secs(100));
    let machine = machine("");
    let (cuda, context) = (*machine, machine.context(0));
    let (launched, over) = (Barrier::new(THREADS + 1), AtomicBool::new(false));
    idle(
        |builder| builder,
        |profiler| {
            profiler.start().unwrap();
            std::thread::scope(|scope| {
                for number in 0..THREADS {
                    let (launched, over) = (&launched, &over);
                    spawn(scope, &format!("launcher {number}"), move || {
                        cuda.set_current(context);
                        let stream = cuda.stream();
                        let [before, after] = ["before_us5", "after_us5"].map(|kernel| cuda.only_kernel(kernel));
                        for _ in 0..EACH {
                            info_span!("before_us5").in_scope(|| cuda.launch(before, 1, stream));
                        }
                        launched.wait();
                        while !over.load(Ordering::Relaxed) {
                            info_span!("after_us5").in_scope(|| cuda.launch(after, 1, stream));
                            sleep(Duration::from_millis(1));
                        }
                    });
                }
                launched.wait();
                let file = stop(profiler);
                over.store(true, Ordering::Relaxed);
                let found =
                    tally(kernels(&file).iter().map(|kernel| format!("{} {}", name(kernel), under(&file, kernel))));
                assert_eq!(found["before_us5 before_us5"], THREADS * EACH, "{found:?}");
                let rows: HashSet<_> = calls(&file).iter().map(|call| call["tid"].as_u64().unwrap()).collect();
                assert_eq!(rows.len(), THREADS);
                Counts::of(&file);
            });
        },
    );
}

#[virtual_time]
fn start_loses_nothing_while_threads_launch() {
    let _watch = gpu::watch(Duration::from_secs(100));
    let machine = machine("slow_enable=5");
    let (cuda, context) = (*machine, machine.context(0));
    let (over, is_idle, count) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU32::new(0));
    let launches = || count.load(Ordering::Relaxed);
    let wait_for_a_hundred = || {
        let before = launches();
        while launches() < before + 100 {
            sleep(Duration::from_millis(1));
        }
    };
    idle(
        // The stop must not wait for work that is not recorded.
        |builder| builder.flush_timeout(Duration::from_secs(300)),
        |profiler| {
            std::thread::scope(|scope| {
                let (over, is_idle, count) = (&over, &is_idle, &count);
                spawn(scope, "launcher", move || {
                    cuda.set_current(context);
                    // More is launched than runs, so work launched before the recording runs inside of it.
                    let (stream, kernels) =
                        (cuda.stream(), ["queued_us300", "alone_us1"].map(|it| cuda.only_kernel(it)));
                    while !over.load(Ordering::Relaxed) {
                        let kernel = kernels[usize::from(is_idle.load(Ordering::Relaxed))];
                        (0..10).for_each(|_| info_span!("launch").in_scope(|| cuda.launch(kernel, 1, stream)));
                        count.fetch_add(10, Ordering::Relaxed);
                        sleep(Duration::from_millis(1));
                    }
                });
                wait_for_a_hundred();
                // A hundred take 30 ms, and were launched in 10.
                profiler.start().unwrap();
                wait_for_a_hundred();
                // CUPTI records nothing once all queued work has ended.
                is_idle.store(true, Ordering::Relaxed);
                profiler.pause().unwrap();
                sleep(Duration::from_millis(300));
                is_idle.store(false, Ordering::Relaxed);
                profiler.resume().unwrap();
                wait_for_a_hundred();
                over.store(true, Ordering::Relaxed);
                let file = stop(profiler);
                let launched: HashSet<_> =
                    calls(&file).iter().map(|call| call["args"]["correlation"].clone()).collect();
                let is_earlier = |kernel: &&&Value| !launched.contains(&kernel["args"]["correlation"]);
                let earlier = kernels(&file).iter().filter(is_earlier).count();
                assert!(earlier > 50, "{}", file.trace.stats());
                assert!(kernels(&file).len() > 50, "{}", file.trace.stats());
                // At the resume, a launch may precede the hook with which its thread notices that.
                let is_allowed = |loss: Loss| !loss.is_loss() || loss == Loss::LaunchesUnlinked;
                assert!(losses(&file).iter().all(|(loss, _)| is_allowed(*loss)), "{}", file.trace.stats());
            });
        },
    );
}

#[virtual_time]
fn stop_during_a_capture_keeps_the_capture_valid() {
    let machine = machine("");
    let stream = machine.stream();
    let kernel = machine.only_kernel("node");
    idle(
        |builder| builder,
        |profiler| {
            profiler.start().unwrap();
            launch(&machine, "direct", 2);
            machine.begin_capture(stream);
            machine.launch(kernel, 1, stream);
            let file = stop(profiler);
            assert_eq!(found(&file), counts([("direct", 2)]));
            assert_eq!(file.lost(Loss::LaunchesWithoutWork), 0, "captured launches reach no device");
            let graph = machine.end_capture(stream).unwrap();
            profiler.start().unwrap();
            annotate!("node").in_scope(|| machine.launch_graph(graph, stream));
            assert_eq!(found(&stop(profiler)), counts([("node", 1)]));
        },
    );
    assert_eq!(cuda::count("synchronizes"), 0);
}

#[virtual_time]
fn stop_waits_for_no_launch_that_another_thread_captures() {
    let machine = machine("");
    let (stream, kernel, context) = (machine.stream(), machine.only_kernel("node"), machine.context(0));
    let (begun, mut graph) = (steady(), None);
    let file = gpu::record(|| {
        machine.begin_capture(stream);
        // As a backward pass, which another thread runs.
        on_thread("captured", || {
            machine.set_current(context);
            (0..5).for_each(|_| machine.launch(kernel, 1, stream));
        });
        graph = machine.end_capture(stream).ok();
        launch(&machine, "direct", 2);
    });
    assert!(since(begun) < gpu::PATIENCE, "the stop waits for captured launches");
    assert_eq!((found(&file), losses(&file)), (counts([("direct", 2)]), vec![]));
    let file = gpu::record(|| annotate!("node").in_scope(|| machine.launch_graph(graph.unwrap(), stream)));
    assert_eq!((found(&file), losses(&file)), (counts([("node", 5)]), vec![]));
}

#[virtual_time]
fn kernel_names_outlive_their_module() {
    let _watch = gpu::watch(Duration::from_secs(100));
    let machine = machine("");
    let file = gpu::record(|| {
        let module = machine.module(&["_Z4leftv"]);
        let kernel = machine.kernel(module, "_Z4leftv");
        info_span!("launch").in_scope(|| machine.launch(kernel, 1, Stream::NULL));
        machine.synchronize();
        machine.unload(module);
    });
    assert_eq!(kernels(&file).iter().map(|kernel| name(kernel)).collect::<Vec<_>>(), ["left()"]);
}

#[own_process]
fn stop_waits_for_running_work_up_to_its_timeout() {
    let _watch = gpu::watch(Duration::from_secs(100));
    let machine = machine("no_finish=endless");
    let file = gpu::record(|| launch(&machine, "slow_us300000", 1));
    let (start, end) = interval(kernels(&file)[0]);
    assert!(end - start >= 299_000_000, "the kernel is recorded to its end");
    assert_eq!(file.lost(Loss::UnfinishedWork), 0);
    let begun = steady();
    let timeout = Duration::from_millis(200);
    let file = record_with(|builder| gpu::all(builder).flush_timeout(timeout), || launch(&machine, "endless", 2));
    // Part of the timeout is reserved for the library's last calls.
    assert!(since(begun) >= timeout / 2 && since(begun) < gpu::PATIENCE, "{:?}", since(begun));
    assert_eq!(found(&file), counts([("endless", 2)]));
    assert_eq!(file.lost(Loss::UnfinishedWork), 2);
    assert!(kernels(&file).iter().all(|kernel| kernel["args"]["finished"] == false));
    let end = gpu::window(&file).1;
    assert!(kernels(&file).iter().all(|kernel| interval(kernel).1 <= end + 1), "they end with the recording");
    // The next recording has none of these kernels.
    cuda::finish();
    assert_eq!(found(&gpu::record(|| launch(&machine, "next", 1))), counts([("next", 1)]));
    assert_eq!(cuda::count("synchronizes"), 0);
}

#[virtual_time]
fn second_layer_records_the_host_while_the_first_has_cupti() {
    let machine = machine("");
    let (first, guard) = layer(gpu::all);
    let file = subscriber::with_default(tracing_subscriber::registry().with(first), || {
        launch(&machine, "of_both", 2);
        let second = gpu::record(|| launch(&machine, "of_both", 3));
        assert_eq!(reason(&second).why(), Why::Busy);
        assert_eq!((second.slices().len(), Counts::of(&second)), (1, Counts::default()));
        File::of(guard.finish().unwrap())
    });
    // The first layer recorded the second's device work, outside of its own spans.
    assert_eq!(kernels(&file).len(), 5);
    assert_eq!(file.slices().len(), 1);
    assert_eq!(found(&gpu::record(|| launch(&machine, "later", 1))), counts([("later", 1)]));
}

/// Another profiler: returns the results of `cuptiSubscribe` and `cuptiUnsubscribe`.
mod other {
    #![allow(unsafe_code, reason = "calls C functions of the simulator")]

    use super::cuda;
    use std::ffi::c_void;

    extern "C" fn ignore(_: *mut c_void, _: u32, _: u32, _: *const c_void) {}

    type Callback = extern "C" fn(*mut c_void, u32, u32, *const c_void);

    /// Subscribes; returns the handle or CUPTI's error.
    pub(super) fn subscribe() -> Result<usize, i32> {
        type Subscribe = extern "C" fn(*mut usize, Callback, *mut c_void) -> i32;
        // SAFETY: the simulator's function of that name has this type.
        let subscribe = unsafe { *cuda::cupti().get::<Subscribe>(b"cuptiSubscribe\0").unwrap() };
        let mut handle = 0;
        match subscribe(&raw mut handle, ignore, std::ptr::null_mut()) {
            0 => Ok(handle),
            code => Err(code),
        }
    }

    pub(super) fn unsubscribe(handle: usize) {
        // SAFETY: the simulator's function of that name has this type.
        let unsubscribe = unsafe { *cuda::cupti().get::<extern "C" fn(usize) -> i32>(b"cuptiUnsubscribe\0").unwrap() };
        assert_eq!(unsubscribe(handle), 0);
    }
}

#[virtual_time]
fn another_profiler_and_ours_exclude_each_other() {
    let machine = machine("");
    let theirs = other::subscribe().unwrap();
    let file = gpu::record(|| launch(&machine, "unseen", 2));
    let why = reason(&file);
    assert_eq!(why.why(), Why::Busy);
    assert!(why.message().contains("PyTorch's profiler") && !why.advice().is_empty(), "{why}");
    assert_eq!((file.slices().len(), cuda::count("pushes")), (1, 0));
    other::unsubscribe(theirs);
    let file = gpu::record(|| {
        assert_eq!(other::subscribe(), Err(39), "we hold it");
        launch(&machine, "seen", 2);
    });
    assert_eq!(found(&file), counts([("seen", 2)]));
    other::unsubscribe(other::subscribe().unwrap());
}

// Shows the key CUDA_GRAPH_TRACE.
#[virtual_time]
fn graph_can_be_one_row() {
    let machine = machine("");
    let stream = machine.stream();
    let kernel = machine.only_kernel("node");
    let graph = machine.graph(stream, || (0..4).for_each(|_| machine.launch(kernel, 1, stream)));
    let work = || {
        let _span = info_span!("replay").entered();
        (0..3).for_each(|_| machine.launch_graph(graph, stream));
    };
    let nodes = gpu::record(work);
    let one = Counts { launches: 3, starts: 3, ..Counts::default() };
    assert_eq!(Counts::of(&nodes), Counts { kernels: 12, linked: 12, ends: 12, ..one });
    let whole = record_with(|builder| gpu::all(builder).devices(Devices::new().graph_trace(true)), work);
    assert_eq!(Counts::of(&whole), Counts { kernels: 3, linked: 3, ends: 3, ..one });
    assert!(kernels(&whole).iter().all(|row| row["args"]["graph id"] != 0 && under(&whole, row) == "replay"));
    assert!(whole.trace.stats().losses.is_empty(), "{}", whole.trace.stats());
}

#[virtual_time]
fn collective_is_named_on_its_kernels() {
    let machine = machine("");
    let file = gpu::record(|| {
        let span = info_span!("all_reduce", collective_name = "all_reduce", dtype = "Half", other = 3);
        let kernel = machine.only_kernel("ncclDevKernel_AllReduce");
        span.in_scope(|| (0..2).for_each(|_| machine.launch(kernel, 2, Stream::NULL)));
        launch(&machine, "gemm", 1);
    });
    for kernel in kernels(&file) {
        let of_collective = name(kernel) != "gemm";
        let args = &kernel["args"];
        assert_eq!(args["Collective name"] == "all_reduce" && args["dtype"] == "Half", of_collective, "{kernel}");
        assert_eq!(args.get("other"), None);
    }
}

mod selection {
    use super::*;

    fn recorded(types: ActivityTypes) -> File {
        let machine = machine("");
        let memory = machine.allocate(64);
        let file = record_with(
            |builder| gpu::all(builder).activities(types),
            || {
                let _span = info_span!("span").entered();
                machine.memset(memory, 0, Stream::NULL);
                machine.memcpy_htod(memory, &[1; 64], Stream::NULL);
                launch(&machine, "kernel_us50", 2);
                machine.synchronize();
            },
        );
        let has_ids = types.contains(ActivityType::ExternalCorrelation);
        assert_eq!(cuda::count("pushes") > 0, has_ids, "ids are pushed only if selected");
        file
    }

    fn kinds(file: &File) -> BTreeMap<String, usize> {
        let device = |event: &&Value| {
            let kind = event["cat"].as_str().unwrap();
            !matches!(kind, "cpu_op" | "user_annotation" | "Trace")
        };
        tally(
            file.events()
                .filter(|event| event["ph"] == "X")
                .filter(device)
                .map(|event| event["cat"].as_str().unwrap().to_owned()),
        )
    }

    #[own_process]
    fn kernels_alone() {
        let file = recorded(ActivityTypes::from(ActivityType::ConcurrentKernel).with(ActivityType::CpuOp));
        assert_eq!(kinds(&file), counts([("kernel", 2)]));
        assert_eq!(file.lost(Loss::WorkWithoutLaunch), 2, "calls are not recorded");
    }

    #[own_process]
    fn copies_alone() {
        let types =
            [ActivityType::CpuOp, ActivityType::GpuMemcpy, ActivityType::CudaDriver, ActivityType::ExternalCorrelation];
        let begun = steady();
        let file = recorded(ActivityTypes::of(&types));
        assert!(since(begun) < gpu::PATIENCE, "the stop does not wait for unselected kernels");
        assert_eq!(events(&file, "X", "gpu_memcpy").len(), 1);
        assert_eq!((kernels(&file).len(), events(&file, "X", "gpu_memset").len()), (0, 0));
        assert_eq!(under(&file, events(&file, "X", "gpu_memcpy")[0]), "span");
    }

    #[own_process]
    fn work_is_linked_by_time_without_external_correlation() {
        let file = recorded(gpu::TYPES.without(ActivityType::ExternalCorrelation));
        assert_eq!(Counts::of(&file).linked, 4);
        assert_eq!(file.lost(Loss::LinkedByTime), 4);
        let spans = tally(gpu::work(&file).iter().map(|work| format!("{} {}", work["cat"], under(&file, work))));
        let expected = [("\"gpu_memcpy\" span", 1), ("\"gpu_memset\" span", 1), ("\"kernel\" kernel_us50", 2)];
        assert_eq!(spans, counts(expected));
    }

    #[own_process]
    fn without_annotations_on_the_gpu() {
        let file = recorded(gpu::TYPES.without(ActivityType::GpuUserAnnotation));
        assert_eq!(Counts::of(&file).annotations, 0);
        assert_eq!(Counts::of(&recorded(gpu::TYPES)).annotations, 1);
    }
}

mod threads {
    use super::*;

    fn row_name(file: &File, tid: &Value) -> String {
        let is_it = |event: &&Value| event["name"] == "thread_name" && event["tid"] == *tid;
        let name = file.events().find(is_it).unwrap_or_else(|| panic!("row {tid} has no name"));
        name["args"]["name"].as_str().unwrap().to_owned()
    }

    fn in_thread(cuda: Cuda, kernel: &'static str, with_span: bool) {
        cuda.set_current(cuda.context(0));
        let function = cuda.only_kernel(kernel);
        let _span = with_span.then(|| info_span!("of_thread").entered());
        cuda.launch(function, 1, Stream::NULL);
    }

    /// The row of the call that launched a kernel.
    fn row_of(file: &File, kernel: &str) -> Value {
        let kernel = kernels(file).into_iter().find(|found| name(found) == kernel).unwrap();
        let call = calls(file).into_iter().find(|call| gpu::correlation(call) == gpu::correlation(kernel)).unwrap();
        call["tid"].clone()
    }

    #[own_process]
    fn thread_without_spans_has_its_own_row() {
        let machine = machine("");
        let cuda = *machine;
        let file = gpu::record(|| {
            launch(&machine, "of_main", 1);
            on_thread("silent", move || in_thread(cuda, "of_silent", false));
        });
        assert_ne!(row_of(&file, "of_main"), row_of(&file, "of_silent"));
        assert!(row_name(&file, &row_of(&file, "of_silent")).contains("no spans"));
        assert_eq!(file.lost(Loss::LaunchesUnlinked), 1);
    }

    #[own_process]
    fn threads_that_reuse_a_handle_have_separate_rows() {
        let machine = machine("");
        let cuda = *machine;
        let kernels = ["one", "two", "three", "four"];
        let file = gpu::record(|| {
            for kernel in kernels {
                on_thread(kernel, move || in_thread(cuda, kernel, true));
            }
        });
        let slices: HashSet<_> = file.slices().iter().map(|slice| slice.tid).collect();
        assert_eq!(slices.len(), kernels.len());
        for kernel in kernels {
            let row = row_of(&file, kernel);
            assert_eq!(row_name(&file, &row), kernel);
            assert!(slices.contains(&row.as_u64().unwrap()));
        }
        assert_eq!(Counts::of(&file).linked, kernels.len());
        assert!(file.trace.stats().losses.is_empty(), "{}", file.trace.stats());
    }

    #[own_process]
    fn spanless_thread_is_not_the_ended_one_with_its_handle() {
        let machine = machine("");
        let cuda = *machine;
        let file = gpu::record(|| {
            on_thread("speaking", move || in_thread(cuda, "of_speaking", true));
            on_thread("silent", move || in_thread(cuda, "of_silent", false));
        });
        assert_eq!(row_name(&file, &row_of(&file, "of_speaking")), "speaking");
        let row = row_name(&file, &row_of(&file, "of_silent"));
        assert!(row.contains("no spans"), "{row}");
    }
}
