//! Schedules on a simulated GPU: warm-ups prove delivery, and each cycle has its own kernels.

use std::sync::{Arc, Mutex};
use support::cuda::{Cuda, Stream};
use support::gpu::{Counts, kernels, machine, name, tally, under};
use support::virtual_time;
use support::{File, cuda, gpu, layer};
use tracing::info_span;
use tracing_kineto::{KinetoLayerBuilder, Profiler, Schedule, Status, StepState, Trace};
use tracing_subscriber::layer::SubscriberExt;

/// Runs `work` under a layer with a schedule, and returns the files of its cycles.
fn cycles(
    configure: impl FnOnce(KinetoLayerBuilder) -> KinetoLayerBuilder,
    schedule: Schedule,
    work: impl FnOnce(&Profiler),
) -> Vec<File> {
    let traces = Arc::new(Mutex::new(Vec::new()));
    let kept = traces.clone();
    let keep = move |trace: Trace| kept.lock().unwrap().push(trace);
    let (layer, guard) =
        layer(|builder| configure(gpu::all(builder)).record_from_start(false).schedule(schedule).on_trace_ready(keep));
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let profiler = guard.profiler();
        work(&profiler);
        drop(guard);
    });
    let traces = traces.lock().unwrap();
    traces.iter().cloned().map(File::of).collect()
}

fn launch(cuda: &Cuda, kernel: &str, count: usize) {
    let function = cuda.only_kernel(kernel);
    info_span!("launch").in_scope(|| (0..count).for_each(|_| cuda.launch(function, 2, Stream::NULL)));
}

#[virtual_time]
fn each_cycle_has_its_own_kernels_under_its_own_steps() {
    let machine = machine("");
    let schedule = Schedule::new(1, 1, 2).unwrap().repeat(2);
    let files = cycles(
        |builder| builder,
        schedule,
        |profiler| {
            profiler.start().unwrap();
            for step in 0..9 {
                launch(&machine, &format!("kernel{step}"), 3);
                // Unfinished work of the warm-up would reach into the recording.
                machine.synchronize();
                let outcome = profiler.step();
                if matches!(outcome.state, StepState::WarmingUp { .. }) {
                    let report = outcome.collectors.iter().find(|report| report.name == "cupti").unwrap();
                    assert_eq!(report.state.as_ref().unwrap().proven, Some(true), "a warm-up proves delivery");
                    assert_eq!(profiler.status(), Status::Prepared);
                }
            }
        },
    );
    let found: Vec<_> = files.iter().map(|file| tally(kernels(file).iter().map(|k| name(k).to_owned()))).collect();
    let expected = |steps: [u64; 2]| steps.map(|step| (format!("kernel{step}"), 3)).into();
    assert_eq!(found, [expected([2, 3]), expected([6, 7])]);
    for file in &files {
        let counts = Counts::of(file);
        assert_eq!((counts.kernels, counts.linked, counts.annotations), (6, 6, 2), "{counts:?}");
        assert!(kernels(file).iter().all(|kernel| under(file, kernel) == "launch"));
        let mut steps: Vec<_> =
            gpu::events(file, "X", "gpu_user_annotation").iter().map(|e| name(e).to_owned()).collect();
        steps.sort_unstable();
        let mut host: Vec<_> = file.slices().iter().filter(|s| s.cat == "user_annotation").map(|s| &s.name).collect();
        host.sort_unstable();
        assert_eq!(steps.iter().collect::<Vec<_>>(), host);
    }
    assert_eq!(cuda::count("subscribes"), 2);
    assert_eq!(
        (cuda::count("unsubscribes"), cuda::count("push_depth")),
        (2, 0),
        "the library is released between cycles"
    );
}

#[virtual_time]
fn warm_up_reports_a_gpu_that_cannot_be_recorded() {
    let _machine = machine("busy=1");
    let schedule = Schedule::new(0, 1, 1).unwrap();
    let files = cycles(
        |builder| builder,
        schedule,
        |profiler| {
            profiler.start().unwrap();
            let outcome = profiler.step();
            let report = outcome.collectors.iter().find(|report| report.name == "cupti");
            assert!(report.is_none_or(|report| report.state.is_err()), "{report:?}");
            assert!(matches!(outcome.state, StepState::Recording { is_last: true }));
            profiler.step();
            profiler.stop().unwrap_err();
        },
    );
    assert_eq!(files.iter().map(File::parents).collect::<Vec<_>>(), ["ProfilerStep#1<"]);
}

#[virtual_time]
fn full_buffers_end_the_cycle_early() {
    let machine = machine("");
    let schedule = Schedule::new(0, 0, 3).unwrap();
    let tight = |builder: KinetoLayerBuilder| builder.buffer_limit_bytes(1 << 20);
    let files = cycles(tight, schedule, |profiler| {
        profiler.start().unwrap();
        launch(&machine, "many_us1", 30_000);
        machine.synchronize();
        // A snapshot reads CUPTI's buffers.
        drop(profiler.snapshot().unwrap());
        let outcome = profiler.step();
        assert!(
            matches!(&outcome.state, StepState::DeviceStopped { reason } if reason.contains("buffer limit")),
            "{outcome}"
        );
        drop(outcome);
        assert!(matches!(profiler.step().state, StepState::DeviceStopped { .. }));
        assert!(matches!(profiler.step().state, StepState::Recording { .. }), "the next cycle records again");
    });
    assert_eq!(files.len(), 2);
}
