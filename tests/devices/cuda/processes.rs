//! GPU recordings in child processes: first calls, the environment, ranks, forks.

use support::cuda::{Cuda, Stream};
use support::gpu::{Counts, events, in_child, kernels, name, reason, report, under};
use support::virtual_time;
use support::{File, cuda, gpu, layer, name_of};
use tracing::{info_span, subscriber};
use tracing_kineto::integration::Why;
use tracing_subscriber::layer::SubscriberExt;

/// Launches a kernel in a span of its name.
fn launch(cuda: &Cuda, kernel: &str) {
    let function = cuda.only_kernel(kernel);
    info_span!("launch").in_scope(|| cuda.launch(function, 2, Stream::NULL));
}

#[track_caller]
fn check(file: &File, expected: &[&str]) {
    let all = expected.len();
    let counts = Counts { launches: all, kernels: all, linked: all, starts: all, ends: all, ..Counts::default() };
    assert_eq!(Counts::of(file), counts, "{}", file.trace.stats());
    assert_eq!(kernels(file).iter().map(|kernel| name(kernel)).collect::<Vec<_>>(), expected);
    assert!(kernels(file).iter().all(|kernel| under(file, kernel) == "launch"));
}

#[virtual_time]
fn recording_may_start_before_the_first_call() {
    in_child(name_of(child_that_starts_early), &[]);
}

#[test]
#[ignore = "run by another test"]
fn child_that_starts_early() {
    cuda::cupti();
    let file = gpu::record(|| launch(&Cuda::new(), "first"));
    check(&file, &["first"]);
    assert_eq!(cuda::count("synchronizes"), 0);
}

#[virtual_time]
fn gpu_is_found_after_a_recording_without_one() {
    in_child(name_of(child_that_finds_a_gpu_later), &[]);
}

/// Loads no simulator at first, so there is no driver unless the machine has a real one.
#[test]
#[ignore = "run by another test"]
fn child_that_finds_a_gpu_later() {
    let (layer, guard) = layer(gpu::all);
    subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let profiler = guard.profiler();
        info_span!("host").in_scope(|| ());
        let file = File::of(profiler.stop().unwrap());
        assert_eq!(file.slices().len(), 1);
        if report(&file).state.is_ok() {
            return;
        }
        assert_eq!(reason(&file).why(), Why::NoDevice);
        assert!(reason(&file).advice().contains("install NVIDIA's driver"), "{}", reason(&file));
        let cuda = Cuda::with("");
        profiler.start().unwrap();
        launch(&cuda, "later");
        check(&File::of(profiler.stop().unwrap()), &["later"]);
    });
}

// Shows the key DISABLE_CUPTI.
#[virtual_time]
fn cupti_can_be_disabled() {
    in_child(name_of(child_without_cupti), &[("KINETO_DISABLE_CUPTI", "1")]);
}

#[test]
#[ignore = "run by another test"]
fn child_without_cupti() {
    let cuda = Cuda::with("");
    let file = gpu::record(|| launch(&cuda, "unseen"));
    assert_eq!((file.slices().len(), Counts::of(&file)), (1, Counts::default()));
    assert_eq!(reason(&file).why(), Why::Disabled);
    assert!(reason(&file).message().contains("DISABLE_CUPTI"), "{}", reason(&file));
    assert_eq!(["subscribes", "requested_buffers", "pushes"].map(cuda::count), [0; 3]);
}

// Shows the key TEARDOWN_CUPTI.
#[virtual_time]
fn libcupti_can_be_released_after_each_recording() {
    in_child(name_of(child_that_releases_libcupti), &[("KINETO_TEARDOWN_CUPTI", "1")]);
}

#[test]
#[ignore = "run by another test"]
fn child_that_releases_libcupti() {
    let cuda = Cuda::with("");
    let (layer, guard) = layer(gpu::all);
    subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let profiler = guard.profiler();
        profiler.stop().unwrap();
        for kernel in ["one", "two", "three"] {
            profiler.start().unwrap();
            launch(&cuda, kernel);
            let file = File::of(profiler.stop().unwrap());
            check(&file, &[kernel]);
            assert!(report(&file).notes.is_empty(), "{:?}", report(&file).notes);
            assert_eq!(cuda::count("subscribes"), cuda::count("unsubscribes"));
            // The program continues undisturbed.
            launch(&cuda, "between");
            cuda.synchronize();
        }
    });
    assert_eq!(cuda::count("synchronizes"), 3, "the program's own");
}

// Shows the key ACTIVITIES_DISPLAY_CUDA_SYNC_WAIT_EVENTS.
#[test]
fn stream_waits_can_be_disabled() {
    for shown in ["true", "false"] {
        in_child(
            name_of(child_that_waits),
            &[("KINETO_ACTIVITIES_DISPLAY_CUDA_SYNC_WAIT_EVENTS", shown), ("SHOWN", shown)],
        );
    }
}

#[test]
#[ignore = "run by another test"]
#[expect(clippy::disallowed_methods, reason = "the parent test passes the expectation")]
fn child_that_waits() {
    let shown = usize::from(std::env::var("SHOWN").unwrap() == "true");
    let cuda = Cuda::with("");
    let (stream, event) = (cuda.stream(), cuda.event());
    let file = gpu::record(|| {
        launch(&cuda, "before");
        cuda.record(event, Stream::NULL);
        cuda.wait(stream, event);
        let after = cuda.only_kernel("after");
        info_span!("launch").in_scope(|| cuda.launch(after, 1, stream));
        cuda.synchronize_stream(stream);
    });
    check(&file, &["before", "after"]);
    let waits: Vec<_> = events(&file, "X", "cuda_sync").into_iter().map(name).collect();
    assert_eq!(waits.iter().filter(|wait| **wait == "Stream Wait Event").count(), shown, "{waits:?}");
    assert!(waits.contains(&"Stream Sync"), "{waits:?}");
}

#[test]
fn each_rank_sees_its_own_gpu() {
    for rank in ["0", "1"] {
        let name = format!("devices=1,name=GPU of rank {rank}");
        in_child(name_of(child_of_a_job), &[("RANK", rank), ("WORLD_SIZE", "2"), ("SIM_CUDA", &name)]);
    }
}

#[test]
#[ignore = "run by another test"]
#[expect(clippy::disallowed_methods, reason = "the parent test passes the expectation")]
fn child_of_a_job() {
    let rank: u32 = std::env::var("RANK").unwrap().parse().unwrap();
    cuda::cupti();
    let cuda = Cuda::new();
    let file = gpu::record(|| launch(&cuda, "of_rank"));
    check(&file, &["of_rank"]);
    let info = &file.json["distributedInfo"];
    assert_eq!((&info["rank"], &info["world_size"]), (&rank.into(), &2.into()));
    let devices = file.json["deviceProperties"].as_array().unwrap();
    assert_eq!(devices.len(), 1);
    assert_eq!((&devices[0]["id"], &devices[0]["name"]), (&0.into(), &format!("GPU of rank {rank}").into()));
    assert_eq!(kernels(&file)[0]["pid"], 0);
}

#[virtual_time]
fn forked_child_records_the_host_without_its_parents_gpu() {
    in_child(name_of(child_that_forks), &[]);
}

#[test]
#[ignore = "run by another test"]
fn child_that_forks() {
    let _watch = gpu::watch(std::time::Duration::from_secs(60));
    let cuda = Cuda::with("");
    let (layer, guard) = layer(gpu::all);
    subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let profiler = guard.profiler();
        launch(&cuda, "before");
        let status = gpu::fork(|| {
            // Neither CUDA nor CUPTI works in a forked process.
            info_span!("of the parent's recording").in_scope(|| ());
            profiler.start().unwrap();
            info_span!("own").in_scope(|| ());
            let file = File::of(profiler.stop().unwrap());
            assert_eq!((file.slice("own").name.as_str(), file.slices().len()), ("own", 1));
            assert_eq!(Counts::of(&file), Counts::default());
            assert!(reason(&file).message().contains("fork"), "{}", reason(&file));
            true
        });
        assert_eq!(status, 0);
        launch(&cuda, "after");
        check(&File::of(profiler.stop().unwrap()), &["before", "after"]);
        assert_eq!(cuda::count("subscribes"), cuda::count("unsubscribes"));
    });
}
