//! Metrics of annotations on the simulated devices: each is one range of its context, and none has the work of others.

use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;
use support::cuda::{self, Cuda, Stream};
use support::gpu::{PATIENCE, events, keep_trace, kernels, machine, name, report};
use support::virtual_time;
use support::wait::sleep;
use support::{File, nanos, own_process, record_with};
use tracing::{Dispatch, dispatcher, info_span, subscriber};
use tracing_kineto::integration::trial::Trial;
use tracing_kineto::integration::{Cupti, Options, PmSampling, Selection};
use tracing_kineto::{ActivityType, ActivityTypes, Doctor, KinetoLayer, KinetoLayerBuilder, Loss, Metrics, annotate};
use tracing_subscriber::layer::SubscriberExt;

const CYCLES: &str = "sm__cycles_active.avg";
const INSTRUCTIONS: &str = "sm__inst_executed.sum";

/// Records with metrics of annotations and these settings of the builder.
pub(super) fn measured(configure: impl Fn(KinetoLayerBuilder) -> KinetoLayerBuilder, work: impl FnOnce()) -> File {
    let configure = |builder: KinetoLayerBuilder| {
        let builder =
            builder.activities(support::gpu::TYPES).metrics(Metrics::new().per_annotation([CYCLES, INSTRUCTIONS]));
        configure(builder.flush_timeout(PATIENCE))
    };
    record_with(configure, work)
}

pub(super) fn rows(file: &File) -> Vec<&Value> {
    events(file, "X", "gpu_user_annotation")
}

/// Returns name, launches and blocks of each row, and checks its values.
#[track_caller]
pub(super) fn planted(file: &File, device: u64) -> Vec<(&str, u64, u64)> {
    let planted = |row: &&'_ Value| {
        let value = |key: &str| row["args"][key].as_u64().unwrap_or_else(|| panic!("no {key}: {row}"));
        let blocks = value(CYCLES) - device * 1000;
        assert_eq!(value(INSTRUCTIONS), device * 1000 + 100 + blocks, "{row}");
        (value("launches"), blocks)
    };
    let of_device = rows(file).into_iter().filter(|row| row["pid"] == device);
    of_device.map(|row| (name(row), planted(&row).0, planted(&row).1)).collect()
}

#[track_caller]
pub(super) fn check_released(enabled: u64) {
    let count = cuda::count;
    assert_eq!((count("range_enables"), count("range_disables")), (enabled, enabled));
    assert_eq!(count("profiler_inits"), count("profiler_deinits"));
}

#[track_caller]
pub(super) fn check_note(file: &File, note: &str) {
    let notes = report(file).notes;
    assert!(notes.iter().any(|known| known == note), "{note}: {notes:?}");
}

fn selection(metrics: &[&str]) -> Selection {
    let types = [ActivityType::GpuUserAnnotation, ActivityType::UserAnnotation, ActivityType::ExternalCorrelation];
    let mut selection = Selection::of(ActivityTypes::of(&types));
    let metrics: Vec<_> = metrics.iter().map(ToString::to_string).collect();
    selection.options.set("CUPTI_PROFILER_METRICS", metrics);
    selection
}

/// Returns why nothing is measured, as the notes say.
#[track_caller]
fn refusal(selection: &Selection) -> String {
    let cupti = Cupti::new(&Options::default());
    let trial = Trial::start(&cupti, selection).unwrap();
    let notes = trial.capabilities().notes.join("; ");
    assert!(
        trial.capabilities().is_incomplete && !trial.capabilities().types.contains(ActivityType::GpuUserAnnotation)
    );
    trial.stop(PATIENCE);
    notes
}

// Shows the key CUPTI_PROFILER_ENABLE_PER_KERNEL.
// On the machine's clock: the trace is read by programs that round times to more than a nanosecond.
#[own_process]
fn each_annotation_has_a_row_with_planted_values() {
    for settings in ["", "nested_driver=1", "cupti=12.6,driver=12060", "cupti=13.4,driver=13040"] {
        let machine = machine(settings);
        let kernel = machine.only_kernel("work");
        let streams = [Stream::NULL, machine.stream(), machine.stream()];
        let file = measured(
            |builder| builder,
            || {
                for step in 1..=5 {
                    let _step = annotate!("step {}", step).entered();
                    (1..=step).for_each(|nth| machine.launch_by_runtime(kernel, nth, streams[nth as usize % 3]));
                    info_span!("plain").in_scope(|| machine.launch(kernel, 1, streams[1]));
                }
                // Not part of any annotation; it still runs when the next one begins.
                machine.launch(kernel, 4000, streams[2]);
                annotate!("last").in_scope(|| machine.launch(kernel, 7, Stream::NULL));
            },
        );
        keep_trace(&file, "annotations");
        let expected: Vec<_> = (1..=5).map(|step| (step + 1, step * (step + 1) / 2 + 1)).chain([(1, 7)]).collect();
        let found = planted(&file, 0);
        assert_eq!(found.iter().map(|row| (row.1, row.2)).collect::<Vec<_>>(), expected, "{:?}", report(&file));
        assert_eq!((found[0].0, found[5].0), ("step 1", "last"));
        let host = events(&file, "X", "user_annotation");
        for (row, span) in rows(&file).iter().zip(&host) {
            assert_eq!((name(row), &row["args"]["External id"]), (name(span), &span["args"]["External id"]));
            assert!(nanos(&row["ts"]) >= nanos(&span["ts"]), "{row} {span}");
        }
        assert!(kernels(&file).is_empty());
        let about = &file.json["range_metrics"];
        assert_eq!((&about["ranges"], &about["passes"]["0"]), (&"annotations".into(), &1.into()), "{about}");
        assert!(about["nested"].is_string() && about["times"].is_string() && about["left_out"].is_string(), "{about}");
        // The wait at the first launch has the id of that launch.
        let lost = [Loss::VendorDropped, Loss::LaunchesWithoutWork, Loss::CorrelationsReused];
        assert_eq!(lost.map(|loss| file.lost(loss)), [0; 3], "{settings}");
        check_released(1);
    }
}

#[virtual_time]
fn nested_annotations_belong_to_the_outer_one() {
    let machine = machine("");
    let kernel = machine.only_kernel("work");
    let file = measured(
        |builder| builder,
        || {
            let _outer = annotate!("outer").entered();
            machine.launch(kernel, 1, Stream::NULL);
            for _ in 0..2 {
                annotate!("inner").in_scope(|| machine.launch(kernel, 10, Stream::NULL));
            }
        },
    );
    assert_eq!(planted(&file, 0), [("outer", 3, 21)]);
    check_note(&file, "2 nested annotations were measured as part of the outer one");
}

#[virtual_time]
fn annotation_that_launches_nothing_has_no_row() {
    let machine = machine("");
    let kernel = machine.only_kernel("work");
    let file = measured(
        |builder| builder,
        || {
            (0..3).for_each(|_| annotate!("idle").in_scope(|| machine.synchronize()));
            annotate!("busy").in_scope(|| machine.launch(kernel, 1, Stream::NULL));
        },
    );
    assert_eq!(planted(&file, 0), [("busy", 1, 1)]);
    check_note(&file, "3 annotations were not measured: no work was submitted");
    assert_eq!(file.lost(Loss::VendorDropped), 0);
}

#[virtual_time]
fn overlapping_annotations_are_not_measured() {
    let machine = machine("devices=2");
    let (kernel, barrier) = (machine.only_kernel("work"), Barrier::new(2));
    let file = measured(
        |builder| builder,
        || {
            let layers = dispatcher::get_default(Clone::clone);
            thread::scope(|scope| {
                let other = scope.spawn(|| {
                    let _layers = dispatcher::set_default(&layers);
                    let cuda = Cuda::new();
                    cuda.set_current(cuda.context(0));
                    let kernel = cuda.only_kernel("work");
                    barrier.wait();
                    annotate!("second").in_scope(|| (0..2).for_each(|_| cuda.launch(kernel, 1, Stream::NULL)));
                    barrier.wait();
                    // On a device of its own.
                    cuda.set_current(cuda.context(1));
                    let kernel = cuda.only_kernel("work");
                    annotate!("apart").in_scope(|| {
                        cuda.launch(kernel, 5, Stream::NULL);
                        barrier.wait();
                    });
                });
                let first = annotate!("first").entered();
                machine.launch(kernel, 1, Stream::NULL);
                barrier.wait();
                barrier.wait();
                drop(first);
                annotate!("alone").in_scope(|| {
                    machine.launch(kernel, 3, Stream::NULL);
                    barrier.wait();
                });
                other.join().unwrap();
            });
        },
    );
    assert_eq!(planted(&file, 0), [("alone", 1, 3)], "{:?}", report(&file));
    assert_eq!(planted(&file, 1), [("apart", 1, 5)], "{:?}", report(&file));
    check_note(&file, "2 annotations were not measured: another thread used the context meanwhile");
    assert_eq!(file.lost(Loss::VendorDropped), 2);
    check_released(2);
}

#[virtual_time]
fn one_annotation_has_a_row_for_each_device() {
    let machine = machine("devices=2");
    let file = measured(
        |builder| builder,
        || {
            let _both = annotate!("both").entered();
            for (device, blocks) in [(1, 4), (0, 9), (1, 5)] {
                machine.set_current(machine.context(device));
                machine.launch(machine.only_kernel("work"), blocks, Stream::NULL);
            }
        },
    );
    assert_eq!((planted(&file, 0), planted(&file, 1)), (vec![("both", 1, 9)], vec![("both", 2, 9)]));
    check_released(2);
}

#[virtual_time]
fn captures_are_not_disturbed() {
    let machine = machine("");
    let (kernel, stream) = (machine.only_kernel("work"), machine.stream());
    let file = measured(
        |builder| builder,
        || {
            let capturing = annotate!("capture").entered();
            let graph = machine.graph(stream, || machine.launch(kernel, 6, stream));
            drop(capturing);
            annotate!("graph").in_scope(|| machine.launch_graph(graph, stream));
            // The range is open when the capture begins, and ends while it runs.
            let open = annotate!("open").entered();
            machine.launch(kernel, 2, Stream::NULL);
            machine.begin_capture(stream);
            drop(open);
            machine.launch(kernel, 2, stream);
            machine.end_capture(stream).unwrap();
        },
    );
    assert_eq!(planted(&file, 0), [("graph", 1, 6)], "{:?}", report(&file));
    check_note(&file, "2 annotations were not measured: a stream was being captured");
}

#[virtual_time]
fn captures_by_the_runtime_are_not_disturbed() {
    for settings in ["", "nested_driver=1"] {
        let machine = machine(settings);
        let (kernel, stream) = (machine.only_kernel("work"), machine.stream());
        let file = measured(
            |builder| builder,
            || {
                let during = annotate!("during").entered();
                machine.begin_capture_by_runtime(stream);
                machine.launch_by_runtime(kernel, 2, stream);
                assert_eq!(machine.end_capture_by_runtime(stream), Ok(()), "{settings}");
                drop(during);
                annotate!("after").in_scope(|| machine.launch_by_runtime(kernel, 3, stream));
            },
        );
        assert_eq!(planted(&file, 0), [("after", 1, 3)], "{settings} {:?}", report(&file));
        check_note(&file, "1 annotation was not measured: a stream was being captured");
    }
}

#[virtual_time]
fn captures_of_before_the_recording_are_not_disturbed() {
    let machine = machine("");
    let kernel = machine.only_kernel("work");
    for (stream, other) in [(machine.stream(), None), (machine.blocking_stream(), Some(machine.stream()))] {
        machine.begin_capture(stream);
        let file = measured(
            |builder| builder,
            || annotate!("during").in_scope(|| machine.launch(kernel, 2, other.unwrap_or(stream))),
        );
        machine.end_capture(stream).unwrap();
        assert_eq!(rows(&file).len(), 0);
        check_note(&file, "1 annotation was not measured: a stream was being captured");
    }
}

#[virtual_time]
fn capture_survives_the_end_of_another_context() {
    let machine = machine("");
    let (kernel, stream) = (machine.only_kernel("work"), machine.stream());
    let file = measured(
        |builder| builder,
        || {
            machine.begin_capture(stream);
            let first = machine.context(0);
            let other = machine.new_context(0);
            machine.destroy_context(other);
            machine.set_current(first);
            annotate!("during").in_scope(|| machine.launch(kernel, 2, stream));
            machine.end_capture(stream).unwrap();
            // A capture that does not begin counts as none.
            assert!(machine.end_capture(stream).is_err());
            annotate!("after").in_scope(|| machine.launch(kernel, 3, stream));
        },
    );
    assert_eq!(planted(&file, 0), [("after", 1, 3)], "{:?}", report(&file));
    check_note(&file, "1 annotation was not measured: a stream was being captured");
}

#[virtual_time]
fn open_annotation_is_cut_by_the_stop() {
    let machine = machine("");
    let kernel = machine.only_kernel("work");
    let mut open = None;
    let file = measured(
        |builder| builder,
        || {
            open = Some(annotate!("open").entered());
            machine.launch(kernel, 1, Stream::NULL);
        },
    );
    check_released(1);
    drop(open);
    assert_eq!((rows(&file).len(), file.lost(Loss::VendorDropped)), (0, 1));
    check_note(&file, "1 annotation was not measured: the recording, the context or the annotation around it ended");
    let again = measured(|builder| builder, || annotate!("again").in_scope(|| machine.launch(kernel, 8, Stream::NULL)));
    assert_eq!(planted(&again, 0), [("again", 1, 8)]);
}

#[virtual_time]
fn paused_annotations_have_no_values() {
    let machine = machine("");
    let kernel = machine.only_kernel("work");
    let builder = KinetoLayer::builder()
        .no_output()
        .activities(support::gpu::TYPES)
        .metrics(Metrics::new().per_annotation([CYCLES]));
    let (layer, guard) = builder.flush_timeout(PATIENCE).build().unwrap();
    let profiler = guard.profiler();
    subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let cut = annotate!("cut").entered();
        machine.launch(kernel, 1, Stream::NULL);
        profiler.pause().unwrap();
        profiler.resume().unwrap();
        drop(cut);
        annotate!("whole").in_scope(|| machine.launch(kernel, 2, Stream::NULL));
    });
    let trace = guard.finish().unwrap();
    let names: Vec<_> = trace
        .events()
        .iter()
        .filter(|row| row.category() == "gpu_user_annotation")
        .map(|row| row.name().to_owned())
        .collect();
    let stats = trace.stats();
    assert_eq!(names, ["whole"], "{stats:?}");
    assert_eq!(stats.lost(Loss::VendorDropped), 0, "{stats:?}");
}

#[virtual_time]
fn stop_during_annotations_releases_all_counters() {
    let machine = machine("");
    let is_over = AtomicBool::new(false);
    for _ in 0..5 {
        let (layer, guard) = KinetoLayer::builder()
            .no_output()
            .activities(support::gpu::TYPES)
            .metrics(Metrics::new().per_annotation([CYCLES]))
            .flush_timeout(PATIENCE)
            .build()
            .unwrap();
        let layers = Dispatch::new(tracing_subscriber::registry().with(layer));
        let work = || {
            let _layers = dispatcher::set_default(&layers);
            machine.set_current(machine.context(0));
            let kernel = machine.only_kernel("work_us500");
            while !is_over.load(Ordering::Relaxed) {
                annotate!("step").in_scope(|| machine.launch(kernel, 1, Stream::NULL));
                machine.synchronize();
            }
        };
        thread::scope(|scope| {
            (0..3).for_each(|_| drop(scope.spawn(work)));
            sleep(Duration::from_millis(20));
            guard.finish().unwrap();
            is_over.store(true, Ordering::Relaxed);
        });
        is_over.store(false, Ordering::Relaxed);
        let count = cuda::count;
        assert_eq!(count("range_enables"), count("range_disables"));
        assert_eq!(count("profiler_inits"), count("profiler_deinits"));
    }
}

#[virtual_time]
fn limit_leaves_later_annotations_unmeasured() {
    let machine = machine("");
    let kernel = machine.only_kernel("work");
    let file = measured(
        |builder| builder.metrics(Metrics::new().limit(2)),
        || (1..=5).for_each(|nth| annotate!("step").in_scope(|| machine.launch(kernel, nth, Stream::NULL))),
    );
    assert_eq!(planted(&file, 0), [("step", 1, 1), ("step", 1, 2)]);
    check_note(&file, "3 annotations were not measured: CUPTI_PROFILER_MAX_RANGES is 2");
}

#[virtual_time]
fn each_refusal_has_a_reason_and_advice() {
    let _machine = machine("");
    let mut without_type = selection(&[CYCLES]);
    without_type.types = ActivityType::CudaRuntime.into();
    let [two_passes, missing] =
        [selection(&["dram__bytes_read.sum", "dram__bytes_write.sum"]), without_type].map(|it| refusal(&it));
    assert!(two_passes.contains("these metrics take 2 passes, and an annotation runs once"), "{two_passes}");
    let types = "user_annotation,gpu_user_annotation,external_correlation";
    assert!(missing.contains(&format!("add {types} to ACTIVITY_TYPES")), "{missing}");
    let mut without_host = selection(&[CYCLES]);
    without_host.types = without_host.types.difference(ActivityType::UserAnnotation.into());
    let missing = refusal(&without_host);
    assert!(missing.contains("add user_annotation to ACTIVITY_TYPES"), "{missing}");
    let mut both = selection(&[CYCLES]);
    both.types = both.types.with(ActivityType::HardwareCounters);
    both.options.set("CUPTI_PM_SAMPLING_METRICS", vec![CYCLES.to_owned()]);
    let reason = Trial::start(&PmSampling::new(&Options::default()), &both).err().unwrap();
    assert!(reason.to_string().contains("CUPTI_PROFILER_METRICS excludes PM sampling"), "{reason}");
}

#[virtual_time]
fn doctor_names_metrics_that_fit_in_one_pass() {
    let _machine = machine("");
    let names = ["dram__bytes_read.sum", CYCLES, "dram__bytes_write.sum", INSTRUCTIONS].map(ToOwned::to_owned);
    let gpus = Doctor::new().metrics(&names).unwrap();
    assert!(matches!(gpus[0].range_passes, Some(Ok(2))), "{:?}", gpus[0].range_passes);
    assert_eq!(gpus[0].one_pass, ["dram__bytes_read.sum", CYCLES, INSTRUCTIONS]);
}

#[virtual_time]
fn context_that_cannot_be_measured_has_a_note() {
    for (settings, text) in
        [("range_error=35", "NVreg_RestrictProfilingToAdminUsers=0"), ("range_stop_error=9", "HARDWARE")]
    {
        let machine = machine(settings);
        let kernel = machine.only_kernel("work");
        let step = || annotate!("step").in_scope(|| machine.launch(kernel, 1, Stream::NULL));
        let file = measured(|builder| builder, || (0..4).for_each(|_| step()));
        let report = report(&file);
        assert_eq!((rows(&file).len(), file.lost(Loss::VendorDropped)), (0, 4), "{settings} {report:?}");
        assert!(report.notes.iter().any(|note| note.contains(text)), "{settings} {report:?}");
    }
}

#[virtual_time]
fn failed_wait_leaves_an_annotation_without_a_row() {
    let machine = machine("");
    let kernel = machine.only_kernel("work");
    let file = measured(
        |builder| builder,
        || {
            // Once at the begin, once at the end.
            cuda::configure("synchronize_error=700");
            annotate!("unbegun").in_scope(|| machine.launch(kernel, 1, Stream::NULL));
            cuda::configure("");
            let unfinished = annotate!("unfinished").entered();
            machine.launch(kernel, 2, Stream::NULL);
            cuda::configure("synchronize_error=700");
            drop(unfinished);
            cuda::configure("");
            annotate!("whole").in_scope(|| machine.launch(kernel, 3, Stream::NULL));
        },
    );
    assert_eq!(planted(&file, 0), [("whole", 1, 3)], "{:?}", report(&file));
    check_note(&file, "annotations were not measured: cuCtxSynchronize returned 700");
    assert_eq!(file.lost(Loss::VendorDropped), 2);
}

#[virtual_time]
fn annotation_of_an_earlier_recording_owns_no_range() {
    let machine = machine("");
    let (kernel, barrier) = (machine.only_kernel("work"), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let cuda = Cuda::new();
            let kernel = cuda.only_kernel("work");
            let mut open = None;
            measured(
                |builder| builder,
                || {
                    open = Some(annotate!("stale").entered());
                    cuda.launch(kernel, 1, Stream::NULL);
                },
            );
            barrier.wait();
            barrier.wait();
            // Work that is not part of the other thread's annotation.
            cuda.launch(kernel, 2, Stream::NULL);
            barrier.wait();
            drop(open);
        });
        barrier.wait();
        let file = measured(
            |builder| builder,
            || {
                let _disturbed = annotate!("disturbed").entered();
                machine.launch(kernel, 4, Stream::NULL);
                barrier.wait();
                barrier.wait();
            },
        );
        assert_eq!(rows(&file).len(), 0, "{:?}", rows(&file));
        check_note(&file, "1 annotation was not measured: another thread used the context meanwhile");
    });
}

#[virtual_time]
fn stop_during_a_wait_counts_one_loss() {
    for waits_at_end in [false, true] {
        let machine = machine("");
        let (kernel, barrier) = (machine.only_kernel("work"), Barrier::new(2));
        let file = thread::scope(|scope| {
            measured(
                |builder| builder,
                || {
                    annotate!("before").in_scope(|| machine.launch(kernel, 1, Stream::NULL));
                    let layers = dispatcher::get_default(Clone::clone);
                    let barrier = &barrier;
                    scope.spawn(move || {
                        let _layers = dispatcher::set_default(&layers);
                        let cuda = Cuda::new();
                        let kernel = cuda.only_kernel("work");
                        let open = annotate!("open").entered();
                        if waits_at_end {
                            cuda.launch(kernel, 2, Stream::NULL);
                        }
                        // Longer than the stop waits for the thread.
                        cuda::configure("slow_synchronize=1500");
                        barrier.wait();
                        barrier.wait();
                        if !waits_at_end {
                            cuda.launch(kernel, 2, Stream::NULL);
                        }
                        drop(open);
                    });
                    barrier.wait();
                    let waits = cuda::count("synchronizes");
                    barrier.wait();
                    while cuda::count("synchronizes") == waits {
                        thread::yield_now();
                    }
                },
            )
        });
        assert_eq!(planted(&file, 0), [("before", 1, 1)], "{waits_at_end} {:?}", report(&file));
        assert_eq!(file.lost(Loss::VendorDropped), 1, "{waits_at_end} {:?}", report(&file));
        check_released(1);
    }
}

#[virtual_time]
fn call_that_outlives_its_recording_is_replaced() {
    let machine = machine("no_finish=endless");
    let endless = machine.only_kernel("endless");
    let (barrier, layers) = (Barrier::new(2), Mutex::new(None));
    thread::scope(|scope| {
        scope.spawn(|| {
            let cuda = Cuda::new();
            let (memory, kernel) = (cuda.allocate(64), cuda.only_kernel("work"));
            barrier.wait();
            // The first recording ends meanwhile, so there is no callback when it returns.
            cuda.memcpy_dtoh_blocking(&mut [0; 64], memory);
            barrier.wait();
            let layers: Dispatch = layers.lock().unwrap().take().unwrap();
            let _layers = dispatcher::set_default(&layers);
            annotate!("again").in_scope(|| cuda.launch(kernel, 5, Stream::NULL));
            barrier.wait();
        });
        let work = || {
            machine.launch(endless, 1, Stream::NULL);
            barrier.wait();
            sleep(Duration::from_millis(50));
        };
        measured(|builder| builder, work);
        cuda::finish();
        let work = || {
            *layers.lock().unwrap() = Some(dispatcher::get_default(Clone::clone));
            barrier.wait();
            barrier.wait();
        };
        let file = measured(|builder| builder, work);
        assert_eq!(planted(&file, 0), [("again", 1, 5)], "{:?}", report(&file));
    });
}

#[virtual_time]
fn first_launch_without_a_context_is_counted() {
    for (settings, measures) in [("nested_driver=1,late_context=1", true), ("late_context=1", false)] {
        let machine = machine(settings);
        let kernel = machine.only_kernel("work");
        let file = measured(
            |builder| builder,
            || {
                annotate!("first").in_scope(|| {
                    machine.launch_by_runtime(kernel, 5, Stream::NULL);
                    machine.launch(kernel, 2, Stream::NULL);
                });
                annotate!("only").in_scope(|| machine.launch_by_runtime(kernel, 3, Stream::NULL));
            },
        );
        let found = planted(&file, 0);
        if measures {
            assert_eq!(found, [("first", 2, 7), ("only", 1, 3)], "{:?}", report(&file));
        } else {
            assert_eq!(found, [], "{:?}", report(&file));
            check_note(&file, "2 annotations were not measured: the context of a launch was not known");
        }
    }
}

#[virtual_time]
fn other_than_one_range_has_one_note_with_figures() {
    const NO_RANGE: &str = "range_fault=1";
    const DROPPED_RANGE: &str = "range_fault=2";
    const TWO_RANGES: &str = "range_fault=3";
    for (settings, figures) in [
        (NO_RANGE, "0 ranges instead of 1, dropped 0, and the pass was incomplete"),
        (DROPPED_RANGE, "1 ranges instead of 1, dropped 1, and the pass was complete"),
        (TWO_RANGES, "2 ranges instead of 1, dropped 0, and the pass was complete"),
    ] {
        let machine = machine(settings);
        let kernel = machine.only_kernel("work");
        let step = || annotate!("step").in_scope(|| machine.launch(kernel, 1, Stream::NULL));
        let file = measured(|builder| builder.metrics(Metrics::new().limit(3)), || (0..4).for_each(|_| step()));
        // Those that failed are not among the three that may be measured.
        assert_eq!((rows(&file).len(), file.lost(Loss::VendorDropped)), (0, 4), "{settings} {:?}", report(&file));
        check_note(&file, &format!("an annotation was not measured: CUPTI returned {figures}"));
        check_note(&file, "4 annotations could not be measured");
    }
}

#[virtual_time]
fn rest_of_an_inner_annotation_has_no_row() {
    let machine = machine("");
    let kernel = machine.only_kernel("work");
    let file = measured(
        |builder| builder,
        || {
            let outer = annotate!("outer").entered();
            let inner = annotate!("inner").entered();
            machine.launch(kernel, 1, Stream::NULL);
            drop(outer);
            machine.launch(kernel, 2, Stream::NULL);
            annotate!("innermost").in_scope(|| machine.launch(kernel, 4, Stream::NULL));
            drop(inner);
            annotate!("next").in_scope(|| machine.launch(kernel, 8, Stream::NULL));
        },
    );
    assert_eq!(planted(&file, 0), [("outer", 1, 1), ("next", 1, 8)], "{:?}", report(&file));
    check_note(&file, "1 annotation was not measured: the recording, the context or the annotation around it ended");
    assert_eq!(file.lost(Loss::VendorDropped), 1);
}
