//! Spans timed by CUDA events on the simulated GPU: with CUPTI, instead of CUPTI, and when the driver refuses.

use serde_json::{Value, json};
use std::time::Duration;
use support::cuda::{Cuda, Stream};
use support::gpu::{PATIENCE, events, interval, kernels, machine, name, stream, under};
use support::virtual_time;
use support::wait::{since, steady};
use support::{File, cuda, gpu, on_thread, record_with};
use tracing::info_span;
use tracing_kineto::integration::{CudaEvents, EventTimers};
use tracing_kineto::{Devices, KinetoLayerBuilder, Mode, annotate};

/// Rounding of times between events, which are milliseconds as a float.
const FLOAT_NS: u64 = 200;
/// Time from a call until the simulated device executes it.
const LATENCY_NS: u64 = 3000;

fn fallback(builder: KinetoLayerBuilder) -> KinetoLayerBuilder {
    builder.mode(Mode::KinetoGpuFallback).flush_timeout(PATIENCE)
}

fn timed(file: &File) -> Vec<&Value> {
    let rows = events(file, "X", "gpu_user_annotation").into_iter();
    rows.filter(|row| row["args"]["timing_source"] == "events").collect()
}

fn notes(file: &File) -> Vec<String> {
    let reports = file.trace.stats().collectors;
    reports.into_iter().find(|report| report.name == "cuda_events").unwrap().notes
}

/// Launches each kernel in its own span, inside one span for all; returns the host time of each in nanoseconds.
fn launch(cuda: &Cuda, names: &[&'static str], on: Stream) -> Vec<u64> {
    let _step = annotate!("step").entered();
    let launch = |name: &&'static str| {
        let (kernel, begun) = (cuda.only_kernel(name), steady());
        info_span!("op").in_scope(|| cuda.launch(kernel, 1, on));
        let took = since(begun);
        // The next kernel begins on an idle stream.
        cuda.synchronize();
        u64::try_from(took.as_nanos()).unwrap()
    };
    names.iter().map(launch).collect()
}

#[virtual_time]
fn timed_rows_are_as_long_as_cuptis_kernels() {
    let cuda = machine("");
    let mut host = Vec::new();
    let file = record_with(
        |builder| gpu::all(builder).collector(EventTimers::new(CudaEvents::new())),
        || host = launch(&cuda, &["a_us500", "b_us2000", "c_us100"], Stream::NULL),
    );
    let (timed, recorded) = (timed(&file), kernels(&file));
    assert_eq!((timed.len(), recorded.len(), host.len()), (4, 3, 3));
    for ((row, kernel), cpu_ns) in timed.iter().filter(|row| name(row) == "op").zip(&recorded).zip(host) {
        let ((start, end), (from, to)) = (interval(row), interval(kernel));
        let (row_ns, kernel_ns) = (end - start, to - from);
        // The kernel lies between the events, with the host's time between recording them.
        assert!(row_ns + FLOAT_NS >= kernel_ns, "{row_ns} {kernel_ns}");
        assert!(row_ns <= kernel_ns + cpu_ns + 2 * LATENCY_NS + FLOAT_NS, "{row_ns} {kernel_ns} {cpu_ns}");
        assert_eq!(row["args"]["External id"], kernel["args"]["External id"], "both belong to the launch's span");
    }
}

#[virtual_time]
fn fallback_mode_uses_events_and_not_cupti() {
    let cuda = machine("");
    let file = record_with(fallback, || drop(launch(&cuda, &["a_us500", "b_us100"], Stream::NULL)));
    assert_eq!(cuda::count("subscribes"), 0, "CUPTI is not started");
    let rows = timed(&file);
    assert_eq!(rows.iter().map(|row| name(row)).collect::<Vec<_>>(), ["step", "op", "op"]);
    for row in &rows {
        assert_eq!(stream(row), (0, 7), "{row}");
        assert_eq!(under(&file, row), name(row));
        let id = &row["args"]["External id"];
        let args = json!({"External id": id, "device": 0, "stream": 7, "timing_source": "events",
            "start_source": "earliest_possible"});
        assert_eq!(row["args"], args);
    }
    let [step, a, b] = [0, 1, 2].map(|at| interval(rows[at]));
    assert!(a.1 - a.0 >= 500_000 - FLOAT_NS && b.1 - b.0 >= 100_000 - FLOAT_NS, "{a:?} {b:?}");
    assert!(step.0 <= a.0 && a.1 <= b.0 && b.1 <= step.1, "{step:?} {a:?} {b:?}");
    assert_eq!(file.json["deviceProperties"][0]["name"], "Simulated GPU (no real device)");
    let cupti = &file.json["tracing_kineto"]["collectors"]["cupti"]["unavailable"];
    assert_eq!(cupti, "the mode is kineto_gpu_fallback; use the mode kineto");
    assert!(notes(&file).is_empty() && file.trace.stats().losses.is_empty(), "{}", file.trace.stats());
}

#[virtual_time]
fn spans_without_context_or_with_driver_errors_are_counted() {
    let cuda = machine("");
    let file = record_with(fallback, || {
        on_thread("no context", || info_span!("elsewhere").in_scope(|| ()));
        info_span!("here").in_scope(|| cuda.synchronize());
    });
    assert_eq!(timed(&file).iter().map(|row| name(row)).collect::<Vec<_>>(), ["here"]);
    assert_eq!(notes(&file), ["1 span not timed: no device was current on the thread"]);
    drop(file);
    cuda::configure("event_error=700");
    let file = record_with(fallback, || info_span!("refused").in_scope(|| ()));
    assert_eq!((timed(&file).len(), file.slices().len()), (0, 1));
    assert_eq!(notes(&file), ["1 span not timed: recording an event gave error 700"]);
}

#[virtual_time]
fn timer_uses_the_programs_streams_and_skips_captures() {
    let cuda = machine("");
    let own = cuda.stream();
    // SAFETY: the stream is valid until the machine is dropped, after the recording.
    #[allow(unsafe_code, reason = "the caller passes a stream's handle")]
    let timer = unsafe { CudaEvents::on_streams(move || usize::try_from(own.0).unwrap()) };
    let kernel = cuda.only_kernel("k_us200");
    let file = record_with(
        |builder| {
            builder.mode(Mode::KinetoPrivateUse1Fallback).devices(Devices::new().timer(timer)).flush_timeout(PATIENCE)
        },
        || {
            info_span!("launched").in_scope(|| cuda.launch(kernel, 1, own));
            cuda.begin_capture(own);
            info_span!("captured").in_scope(|| cuda.launch(kernel, 1, own));
            let graph = cuda.end_capture(own).expect("the capture is whole");
            info_span!("graph").in_scope(|| cuda.launch_graph(graph, own));
        },
    );
    let rows = timed(&file);
    assert_eq!(rows.iter().map(|row| name(row)).collect::<Vec<_>>(), ["launched", "graph"], "{:?}", notes(&file));
    for row in &rows {
        let (start, end) = interval(row);
        assert!(end - start >= 200_000 - FLOAT_NS && stream(row) == (0, 8), "{row}");
    }
    assert_eq!(notes(&file), ["1 span not timed: the stream was being captured"]);
}

#[virtual_time]
fn stop_waits_for_an_endless_kernel_up_to_its_timeout() {
    let cuda = machine("no_finish=endless");
    let kernel = cuda.only_kernel("endless");
    let _watch = gpu::watch(PATIENCE);
    let file = record_with(
        |builder| fallback(builder).flush_timeout(Duration::from_millis(50)),
        || {
            info_span!("before").in_scope(|| ());
            info_span!("never").in_scope(|| cuda.launch(kernel, 1, Stream::NULL));
        },
    );
    assert_eq!(timed(&file).iter().map(|row| name(row)).collect::<Vec<_>>(), ["before"]);
    let late = "the device had not reached their end by the deadline of the stop";
    assert_eq!(notes(&file), [format!("1 span not timed: {late}")]);
    cuda::finish();
}
