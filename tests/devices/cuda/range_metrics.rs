//! Metrics of single kernels on the simulated devices: planted values come back, and each fault has its reason.

use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use support::cuda::{self, Cuda, Stream};
use support::gpu::{PATIENCE, calls, correlation, events, keep_trace, kernels, machine, name, report};
use support::virtual_time;
use support::{File, nanos, own_process, poll_until, record_with};
use tracing::info_span;
use tracing_kineto::analysis::Events;
use tracing_kineto::integration::trial::Trial;
use tracing_kineto::integration::{Cupti, Options, PmSampling, Selection, Unavailable, Why};
use tracing_kineto::{ActivityType, ActivityTypes, KinetoLayerBuilder, Loss, Metrics};

const CYCLES: &str = "sm__cycles_active.avg";
const THROUGHPUT: &str = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed";

/// Records with metrics and these settings of the builder.
pub(super) fn measured(configure: impl Fn(KinetoLayerBuilder) -> KinetoLayerBuilder, work: impl FnOnce()) -> File {
    let configure = |builder: KinetoLayerBuilder| {
        configure(
            builder
                .activities(support::gpu::TYPES)
                .metrics(Metrics::new().per_kernel([CYCLES, THROUGHPUT]))
                .flush_timeout(PATIENCE),
        )
    };
    record_with(configure, work)
}

pub(super) fn ranges(file: &File) -> Vec<&Value> {
    events(file, "X", "cuda_profiler_range")
}

/// Checks a row; returns the number of blocks of its kernel.
#[track_caller]
pub(super) fn check_planted(row: &Value, device: u64) -> u64 {
    let value = |metric: &str| row["args"][metric].as_u64().unwrap_or_else(|| panic!("no {metric}: {row}"));
    let blocks = value(CYCLES) - device * 1000;
    assert_eq!(value(THROUGHPUT), device * 1000 + 400 + blocks, "{row}");
    assert_eq!((row["pid"].as_u64(), row["tid"].as_u64()), (Some(device), Some(0)), "{row}");
    blocks
}

#[track_caller]
fn check_released(enabled: u64) {
    let count = cuda::count;
    assert_eq!((count("range_enables"), count("range_disables")), (enabled, enabled));
    assert_eq!(count("profiler_inits"), count("profiler_deinits"));
}

fn selection(metrics: &[&str]) -> Selection {
    let mut selection = Selection::of(ActivityType::CudaProfilerRange.into());
    let metrics: Vec<_> = metrics.iter().map(ToString::to_string).collect();
    selection.options.set("CUPTI_PROFILER_METRICS", metrics);
    selection.options.set("CUPTI_PROFILER_ENABLE_PER_KERNEL", true);
    selection
}

/// Returns why nothing is measured.
#[track_caller]
fn refusal(selection: &Selection) -> Unavailable {
    Trial::start(&Cupti::new(&Options::default()), selection).err().unwrap()
}

// Shows the key CUPTI_PROFILER_METRICS.
// On the machine's clock: the trace is read by programs that round times to more than a nanosecond.
#[own_process]
fn each_launch_has_a_row_with_planted_values() {
    for settings in ["", "nested_driver=1", "cupti=12.6,driver=12060", "cupti=13.4,driver=13040"] {
        let machine = machine(settings);
        let kernel = machine.only_kernel("_Z5scalePfi");
        let streams = [Stream::NULL, machine.stream(), machine.stream()];
        let file = measured(
            |builder| builder,
            || {
                for nth in 1..=30 {
                    let _spans = [info_span!("model").entered(), info_span!("layer", nth).entered()];
                    machine.launch_by_runtime(kernel, nth, streams[nth as usize % 3]);
                }
            },
        );
        keep_trace(&file, "kernels");
        let mut launches = calls(&file);
        launches.retain(|call| name(call).starts_with("cudaLaunchKernel") && call["cat"] == "cuda_runtime");
        let rows = ranges(&file);
        // As HTA pairs them: by their order, if their numbers are equal.
        assert_eq!((rows.len(), launches.len()), (30, 30), "{settings} {:?}", report(&file));
        for (nth, (row, launch)) in rows.iter().zip(&launches).enumerate() {
            assert_eq!(check_planted(row, 0), nth as u64 + 1);
            assert_eq!(correlation(row), correlation(launch), "{settings}");
            assert_eq!(name(row), "scale(float*, int)");
            let [start, end] = [nanos(&row["ts"]), nanos(&row["ts"]) + nanos(&row["dur"])];
            let [begin, exit] = [nanos(&launch["ts"]), nanos(&launch["ts"]) + nanos(&launch["dur"])];
            assert!(begin <= end && start <= exit, "{settings} {row} {launch}");
        }
        assert!(kernels(&file).is_empty() && events(&file, "X", "gpu_memcpy").is_empty());
        let about = &file.json["range_metrics"];
        assert_eq!((&about["metrics"][0], &about["passes"]["0"]), (&CYCLES.into(), &1.into()), "{about}");
        assert!(about["times"].is_string() && about["left_out"].is_string(), "{about}");
        let lost = [Loss::WorkBeforeLaunch, Loss::CorrelationsReused, Loss::LaunchesWithoutWork];
        assert_eq!(lost.map(|loss| file.lost(loss)), [0; 3], "a row includes its launch");
        check_released(1);
    }
}

#[virtual_time]
fn threads_on_two_devices_have_their_own_rows() {
    let _machine = machine("devices=2");
    let file = measured(
        |builder| builder,
        || {
            thread::scope(|scope| {
                for device in [0, 1, 0, 1] {
                    scope.spawn(move || {
                        let cuda = Cuda::new();
                        cuda.set_current(cuda.context(device));
                        let kernel = cuda.only_kernel("work");
                        (1..=20).for_each(|blocks| cuda.launch(kernel, blocks, Stream::NULL));
                    });
                }
            });
        },
    );
    let rows = ranges(&file);
    for device in [0, 1] {
        let of_device = rows.iter().filter(|row| row["pid"] == device);
        let mut blocks: Vec<_> = of_device.map(|row| check_planted(row, device)).collect();
        blocks.sort_unstable();
        let expected: Vec<u64> = (1..=20).flat_map(|blocks| [blocks, blocks]).collect();
        assert_eq!(blocks, expected);
    }
    assert_eq!(file.lost(Loss::VendorDropped), 0);
    check_released(2);
}

#[virtual_time]
fn rows_are_read_back() {
    let machine = machine("");
    let kernel = machine.only_kernel("work");
    let file = measured(|builder| builder, || machine.launch_by_runtime(kernel, 7, Stream::NULL));
    let read = Events::from_reader(file.json.to_string().as_bytes()).unwrap();
    let row = read.iter().find(|event| event.category() == "cuda_profiler_range").unwrap();
    assert_eq!(row.name(), "work");
}

#[virtual_time]
fn nothing_is_measured_without_metrics_or_type() {
    let machine = machine("");
    let kernel = machine.only_kernel("work");
    let types = |builder: KinetoLayerBuilder| builder.activities(ActivityTypes::ALL).flush_timeout(PATIENCE);
    let off = record_with(types, || machine.launch(kernel, 1, Stream::NULL));
    assert_eq!((ranges(&off).len(), kernels(&off).len()), (0, 1));
    let mut without_type = selection(&[CYCLES]);
    without_type.types = ActivityType::ConcurrentKernel.into();
    let cupti = Cupti::new(&Options::default());
    let trial = Trial::start(&cupti, &without_type).unwrap();
    assert!(trial.capabilities().notes.iter().any(|note| note.contains("add cuda_profiler_range to ACTIVITY_TYPES")));
    machine.launch(kernel, 1, Stream::NULL);
    let found = trial.stop(PATIENCE);
    assert_eq!(found.of(ActivityType::ConcurrentKernel).count(), 1, "kernels are recorded without metrics");
    assert_eq!((cuda::count("profiler_inits"), cuda::count("range_enables")), (0, 0));
}

// Shows the key CUPTI_PROFILER_MAX_RANGES.
#[virtual_time]
fn limit_leaves_later_launches_unmeasured() {
    let machine = machine("");
    let kernel = machine.only_kernel("work");
    let file = measured(
        |builder| builder.metrics(Metrics::new().limit(3)),
        || (1..=5).for_each(|blocks| machine.launch(kernel, blocks, Stream::NULL)),
    );
    assert_eq!(ranges(&file).len(), 3);
    assert_eq!((file.lost(Loss::LaunchesWithoutWork), file.lost(Loss::VendorDropped)), (0, 0));
    let notes = report(&file).notes;
    assert!(notes.contains(&"2 launches were not measured: CUPTI_PROFILER_MAX_RANGES is 3".to_owned()), "{notes:?}");
}

#[own_process]
fn stop_during_launches_releases_all_counters() {
    let machine = machine("");
    let kernel = machine.only_kernel("work");
    let cupti = Cupti::new(&Options::default());
    let is_over = AtomicBool::new(false);
    for _ in 0..5 {
        let trial = Trial::start(&cupti, &selection(&[CYCLES])).unwrap();
        let before = cuda::count("launches");
        let measured = thread::scope(|scope| {
            let launch = || {
                machine.set_current(machine.context(0));
                while !is_over.load(Ordering::Relaxed) {
                    machine.launch(kernel, 1, Stream::NULL);
                }
            };
            (0..3).for_each(|_| drop(scope.spawn(launch)));
            poll_until(|| cuda::count("launches") >= before + 100);
            let found = trial.stop(PATIENCE);
            is_over.store(true, Ordering::Relaxed);
            found.of(ActivityType::CudaProfilerRange).count()
        });
        is_over.store(false, Ordering::Relaxed);
        assert!(measured > 0);
        let count = cuda::count;
        assert_eq!(count("range_enables"), count("range_disables"));
        assert_eq!(count("profiler_inits"), count("profiler_deinits"));
    }
}

#[virtual_time]
fn each_refusal_has_a_reason_and_advice() {
    for (settings, metrics, why, texts) in [
        ("pm_level=3", &[CYCLES][..], Why::Forbidden, &["GPU 0", "vGPU"][..]),
        ("cupti=12.4,driver=12040", &[CYCLES], Why::Incompatible, &["CUDA 12.6 or newer"]),
        ("", &["sm__cycle_active.avg"], Why::Unsupported, &["did you mean sm__cycles_active.avg?"]),
        ("busy=1", &[CYCLES], Why::Busy, &["another profiler is subscribed"]),
    ] {
        let _machine = machine(settings);
        let reason = refusal(&selection(metrics));
        assert_eq!(reason.why(), why, "{settings} {reason}");
        for text in texts {
            assert!(reason.to_string().contains(text), "{settings} {text}: {reason}");
        }
        check_released(0);
    }
}

#[virtual_time]
fn several_passes_are_replayed() {
    let machine = machine("");
    let kernel = machine.only_kernel("work");
    let metrics = ["dram__bytes_read.sum", "dram__bytes_write.sum"];
    let file = record_with(
        |builder| builder.metrics(Metrics::new().per_kernel(metrics)).flush_timeout(PATIENCE),
        || machine.launch(kernel, 9, Stream::NULL),
    );
    let rows = ranges(&file);
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0]["args"][metrics[0]].as_f64(), rows[0]["args"][metrics[1]].as_f64()), (Some(209.), Some(309.)));
    assert_eq!(file.json["range_metrics"]["passes"]["0"], 2);
}

#[virtual_time]
fn context_that_cannot_be_measured_has_a_note() {
    for (settings, text) in [
        ("range_error=35", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("range_error=26", "DCGM"),
        ("range_stop_error=9", "cuptiRangeProfilerStop: CUPTI_ERROR_HARDWARE"),
    ] {
        let machine = machine(settings);
        let kernel = machine.only_kernel("work");
        let file =
            measured(|builder| builder, || (1..=4).for_each(|blocks| machine.launch(kernel, blocks, Stream::NULL)));
        let report = report(&file);
        assert_eq!((ranges(&file).len(), file.lost(Loss::VendorDropped)), (0, 4), "{settings} {report:?}");
        assert!(report.notes.iter().any(|note| note.contains(text)), "{settings} {report:?}");
        assert_eq!((cuda::count("launches"), file.lost(Loss::LaunchesWithoutWork)), (4, 0));
    }
}

#[virtual_time]
fn values_that_are_no_numbers_are_counted() {
    let machine = machine("pm_nan=1");
    let kernel = machine.only_kernel("work");
    let file = measured(|builder| builder, || machine.launch(kernel, 1, Stream::NULL));
    let rows = ranges(&file);
    assert!(rows[0]["args"].get(CYCLES).is_none() && rows[0]["args"].get(THROUGHPUT).is_some(), "{rows:?}");
    assert_eq!(file.lost(Loss::CounterValues), 1);
}

#[virtual_time]
fn ended_contexts_release_their_counters() {
    let machine = machine("");
    let context = machine.new_context(0);
    let kernel = machine.only_kernel("work");
    let file = measured(
        |builder| builder,
        || {
            machine.launch(kernel, 1, Stream::NULL);
            machine.destroy_context(context);
            machine.set_current(machine.context(0));
            machine.launch(machine.only_kernel("other"), 2, Stream::NULL);
        },
    );
    assert_eq!(ranges(&file).len(), 2, "{:?}", report(&file));
    check_released(2);
}

#[virtual_time]
fn metrics_of_kernels_exclude_pm_sampling() {
    let _machine = machine("");
    let mut both = selection(&[CYCLES]);
    both.types = both.types.with(ActivityType::HardwareCounters);
    both.options.set("CUPTI_PM_SAMPLING_METRICS", vec![CYCLES.to_owned()]);
    let sampler = PmSampling::new(&Options::default());
    let reason = Trial::start(&sampler, &both).err().unwrap();
    assert_eq!(reason.why(), Why::Unsupported);
    assert!(reason.to_string().contains("CUPTI_PROFILER_METRICS excludes PM sampling"), "{reason}");
    // A recording of another session samples.
    let mut sampled = Selection::of(ActivityType::HardwareCounters.into());
    sampled.options.set("CUPTI_PM_SAMPLING_METRICS", vec![CYCLES.to_owned()]);
    let trial = Trial::start(&sampler, &sampled).unwrap();
    assert_eq!(refusal(&selection(&[CYCLES])).why(), Why::Busy);
    trial.stop(PATIENCE);
}
