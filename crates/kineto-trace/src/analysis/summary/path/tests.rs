//! Tests of critical paths: each rule on a small trace, and tiling on random ones.

use super::*;
use crate::activity::ActivityType;
use proptest::prelude::*;
use std::fmt::Write as _;

/// A trace in JSON; times are microseconds.
#[derive(Clone, Default)]
struct PathTrace(String);

const MAIN: (u32, u32) = (1, 1);
const BACKWARD: (u32, u32) = (1, 2);

impl PathTrace {
    fn slice(mut self, category: &str, name: &str, row: (u32, u32), (start, end): (u32, u32), args: &str) -> PathTrace {
        let (pid, tid) = row;
        let _ = write!(
            self.0,
            "{{\"ph\":\"X\",\"cat\":\"{category}\",\"name\":\"{name}\",\"pid\":{pid},\"tid\":{tid},\"ts\":{start},\"dur\":{},\
             \"args\":{{{args}}}}},",
            end - start
        );
        self
    }

    fn op(self, name: &str, row: (u32, u32), time: (u32, u32)) -> PathTrace {
        self.slice("cpu_op", name, row, time, "")
    }

    fn call(self, name: &str, time: (u32, u32), id: u32) -> PathTrace {
        self.slice("cuda_runtime", name, MAIN, time, &format!("\"correlation\":{id}"))
    }

    /// Adds a call and the kernel that it launches in a stream.
    fn kernel(self, id: u32, name: &str, stream: u32, call: (u32, u32), work: (u32, u32)) -> PathTrace {
        let args = format!("\"correlation\":{id},\"device\":0,\"stream\":{stream}");
        self.call("cudaLaunchKernel", call, id).slice("kernel", name, (0, stream), work, &args)
    }

    fn arrow(mut self, id: u32, from: ((u32, u32), u32), to: ((u32, u32), u32)) -> PathTrace {
        for (phase, ((pid, tid), at)) in [("s", from), ("f", to)] {
            let _ = write!(
                self.0,
                "{{\"ph\":\"{phase}\",\"bp\":\"e\",\"cat\":\"fwdbwd\",\"name\":\"fwdbwd\",\"id\":{id},\"pid\":{pid},\"tid\":{tid},\
                 \"ts\":{at}}},"
            );
        }
        self
    }

    fn events(&self) -> Events {
        Events::from_reader(format!("[{}]", self.0.trim_end_matches(',')).as_bytes()).unwrap()
    }

    /// Returns the pieces of the whole path as text, with their microseconds.
    fn path(&self) -> Vec<String> {
        let events = self.events();
        pieces_text(&events.critical_path(events.slice_range()))
    }
}

fn pieces_text(path: &CriticalPath<'_>) -> Vec<String> {
    let name = |piece: &PathPiece<'_>| piece.event.map_or("-", |event| event.name()).to_owned();
    path.pieces()
        .iter()
        .map(|piece| format!("{} {} {}", piece.kind.as_str(), name(piece), piece.duration_ns() / 1000))
        .collect()
}

/// Asserts that the pieces fill the window, in order and without a gap.
fn assert_tiles(path: &CriticalPath<'_>) {
    let window = path.window();
    let end = path.pieces().iter().fold(window.start, |at, piece| {
        assert!(piece.start == at && piece.end > at, "{at:?}: {piece:?}");
        piece.end
    });
    assert_eq!(end, window.end.max(window.start));
    let figures = path.figures();
    assert_eq!(figures.kinds.iter().map(|row| row.ns).sum::<u64>(), figures.window_ns);
    let places = [PathPlace::Device, PathPlace::Host, PathPlace::Wait].map(|place| figures.place_ns(place));
    assert_eq!(places.iter().sum::<u64>(), figures.window_ns);
}

#[test]
fn kernel_follows_what_ended_last() {
    let queued = PathTrace::default().kernel(1, "a", 7, (0, 2), (5, 20)).kernel(2, "b", 7, (3, 6), (22, 30));
    let before = ["call cudaLaunchKernel 2", "launch_delay a 3", "compute a 15"];
    assert_eq!(queued.path(), [&before[..], &["kernel_gap b 2", "compute b 8"]].concat());
    let late = PathTrace::default().kernel(1, "a", 7, (0, 2), (5, 20)).kernel(2, "b", 7, (23, 26), (30, 40));
    let after = [
        "call cudaLaunchKernel 2",
        "outside_operations - 21",
        "call cudaLaunchKernel 3",
        "launch_delay b 4",
        "compute b 10",
    ];
    assert_eq!(late.path(), after);
}

#[test]
fn overlapping_kernel_follows_the_one_before() {
    let trace = PathTrace::default().kernel(1, "a", 7, (0, 2), (5, 20)).kernel(2, "b", 7, (3, 4), (15, 30));
    assert_eq!(trace.path(), ["call cudaLaunchKernel 2", "launch_delay a 3", "compute a 10", "compute b 15"]);
}

#[test]
fn synchronization_follows_the_work_that_it_awaits() {
    let trace = PathTrace::default()
        .kernel(1, "a", 7, (0, 2), (5, 50))
        .kernel(2, "b", 8, (2, 4), (6, 30))
        .call("cudaDeviceSynchronize", (10, 53), 3)
        .op("aten::add", MAIN, (53, 60));
    let path = ["call cudaLaunchKernel 2", "launch_delay a 3", "compute a 45", "device_wait cudaDeviceSynchronize 3"];
    assert_eq!(trace.path(), [&path[..], &["operation aten::add 7"]].concat());
    let record = |stream: u32| {
        let args = format!("\"cuda_sync_kind\":\"Stream Sync\",\"stream\":{stream},\"correlation\":3,\"device\":0");
        trace.clone().slice("cuda_sync", "Stream Sync", (0, stream), (10, 53), &args).path()
    };
    assert_eq!(record(7)[2..4], ["compute a 45", "device_wait cudaDeviceSynchronize 3"]);
    assert_eq!(
        record(8)[2..],
        ["launch_delay b 2", "compute b 24", "device_wait cudaDeviceSynchronize 23", "operation aten::add 7"]
    );
}

#[test]
fn copy_follows_itself_when_its_call_waits() {
    let copy = |end| {
        let args = "\"correlation\":1,\"device\":0,\"stream\":7";
        PathTrace::default()
            .call("cudaMemcpyAsync", (0, 20), 1)
            .slice("gpu_memcpy", "Memcpy DtoH", (0, 7), (5, end), args)
            .op("aten::item", MAIN, (20, 30))
    };
    let waited =
        ["call cudaMemcpyAsync 5", "copy Memcpy DtoH 10", "device_wait cudaMemcpyAsync 5", "operation aten::item 10"];
    assert_eq!(copy(15).path(), waited);
    assert_eq!(copy(25).path(), ["call cudaMemcpyAsync 20", "operation aten::item 10"]);
}

#[test]
fn work_follows_another_stream() {
    let unrecorded = PathTrace::default().kernel(1, "a", 7, (0, 2), (5, 50)).kernel(2, "b", 8, (2, 4), (52, 60));
    let path = ["call cudaLaunchKernel 2", "launch_delay a 3", "compute a 45", "stream_wait b 2", "compute b 8"];
    assert_eq!(unrecorded.path(), path);
    // With a record, the work that was launched after the event held up nothing.
    let args = "\"cuda_sync_kind\":\"Stream Wait Event\",\"wait_on_stream\":7,\"wait_on_cuda_event_record_corr_id\":5,\
                \"stream\":8,\"correlation\":6,\"device\":0";
    let unrecorded = PathTrace::default()
        .kernel(1, "a", 7, (0, 2), (5, 40))
        .call("cudaEventRecord", (3, 4), 5)
        .kernel(3, "c", 7, (4, 5), (41, 44))
        .call("cudaStreamWaitEvent", (5, 6), 6)
        .kernel(2, "b", 8, (6, 8), (45, 60));
    let recorded = unrecorded.clone().slice("cuda_sync", "Stream Wait Event", (0, 8), (5, 6), args);
    assert_eq!(recorded.path()[2..], ["compute a 35", "stream_wait b 5", "compute b 15"]);
    assert_eq!(
        unrecorded.path()[2..],
        ["compute a 35", "kernel_gap c 1", "compute c 3", "stream_wait b 1", "compute b 15"]
    );
}

#[test]
fn work_of_another_device_holds_up_nothing() {
    let args = "\"correlation\":9,\"device\":1,\"stream\":7";
    let trace = PathTrace::default().kernel(2, "b", 8, (2, 4), (52, 60)).slice("kernel", "a", (1, 7), (5, 50), args);
    assert_eq!(trace.path(), ["call cudaLaunchKernel 2", "launch_delay b 48", "compute b 8"]);
}

#[test]
fn backward_thread_follows_the_forward_one() {
    let trace = PathTrace::default()
        .op("aten::mm", MAIN, (0, 10))
        .op("aten::sum", MAIN, (12, 20))
        .op("SumBackward", BACKWARD, (25, 30))
        .op("MmBackward", BACKWARD, (31, 50))
        .op("Optimizer.step", MAIN, (54, 60));
    let alone = [
        "operation aten::mm 10",
        "outside_operations - 2",
        "operation aten::sum 8",
        "outside_operations - 34",
        "operation Optimizer.step 6",
    ];
    assert_eq!(trace.path(), alone);
    let connected = trace.arrow(1, (MAIN, 0), (BACKWARD, 31));
    let forward = ["operation aten::mm 10", "outside_operations - 2", "operation aten::sum 8", "thread_wait - 5"];
    let backward = ["operation SumBackward 5", "outside_operations - 1", "operation MmBackward 19", "thread_wait - 4"];
    assert_eq!(connected.path(), [&forward[..], &backward, &["operation Optimizer.step 6"]].concat());
    // An annotation around all of it changes nothing but the names of the waits.
    let annotated = connected.slice("user_annotation", "ProfilerStep#1", MAIN, (0, 60), "").path();
    assert_eq!(annotated[3], "thread_wait - 5");
    assert_eq!(annotated[7], "thread_wait ProfilerStep#1 4");
}

#[test]
fn arrow_from_an_operation_that_runs_on_is_followed() {
    let trace = PathTrace::default().op("main", MAIN, (0, 100)).op("task", BACKWARD, (40, 110)).arrow(
        1,
        (MAIN, 0),
        (BACKWARD, 40),
    );
    assert_eq!(trace.path(), ["operation main 40", "operation task 70"]);
}

#[test]
fn path_skips_a_final_polling_call() {
    let trace = PathTrace::default().kernel(1, "a", 7, (0, 2), (5, 50)).slice(
        "cuda_runtime",
        "cudaEventQuery",
        (1, 9),
        (60, 61),
        "",
    );
    assert_eq!(trace.path(), ["call cudaLaunchKernel 2", "launch_delay a 3", "compute a 45", "idle - 11"]);
}

#[test]
fn work_without_a_launch_follows_its_stream() {
    let args = "\"device\":0,\"stream\":7";
    let trace =
        PathTrace::default().slice("kernel", "a", (0, 7), (5, 50), args).slice("kernel", "b", (0, 7), (55, 60), args);
    assert_eq!(trace.path(), ["compute a 45", "unknown_launch b 5", "compute b 5"]);
    assert_eq!(trace.op("x", MAIN, (0, 1)).path()[0], "unknown_launch a 5");
}

#[test]
fn step_reaches_to_the_end_of_its_work() {
    let trace = PathTrace::default()
        .slice("user_annotation", "ProfilerStep#3", MAIN, (0, 10), "")
        .slice("user_annotation", "ProfilerStep#4", MAIN, (10, 20), "")
        .kernel(1, "a", 7, (8, 10), (12, 14))
        .kernel(2, "b", 7, (16, 18), (30, 40));
    let events = trace.events();
    let step = |number| pieces_text(&events.critical_path(events.step_range(number).unwrap()));
    let first = ["outside_operations ProfilerStep#3 8", "call cudaLaunchKernel 2", "launch_delay a 2", "compute a 2"];
    assert_eq!(step(3), first);
    let second =
        ["outside_operations ProfilerStep#4 6", "call cudaLaunchKernel 2", "launch_delay b 12", "compute b 10"];
    assert_eq!(step(4), second);
    assert!(events.step_range(5).unwrap_err().to_string().contains("steps 3 to 4"));
    let summary = events.summary();
    let longest = summary.longest_step_path.unwrap();
    assert_eq!((longest.number, longest.figures.window_ns), (4, 30_000));
    assert_eq!(longest.figures.names[0].name, "b");
    assert_eq!(summary.critical_path.unwrap().window_ns, 40_000);
}

#[test]
fn waits_in_streams_are_waits() {
    let mtia = |trace: PathTrace, stream: u32, name: &str, time| {
        let args = format!("\"device\":0,\"stream\":{stream}");
        trace.slice("mtia_ccp_events", name, (0, stream), time, &args)
    };
    let trace = mtia(PathTrace::default(), 3, "run", (0, 30));
    let trace = mtia(mtia(trace, 4, "event_wait", (10, 32)), 4, "run2", (32, 40));
    assert_eq!(trace.path(), ["compute run 30", "stream_wait event_wait 2", "compute run2 8"]);
}

#[test]
fn window_without_events_is_idle() {
    let events = PathTrace::default().op("a", MAIN, (10, 20)).events();
    let at = |us: u64| Timestamp::from_nanos(us * 1000);
    assert_eq!(pieces_text(&events.critical_path(at(100)..at(103))), ["idle - 3"]);
    assert_eq!(pieces_text(&events.critical_path(at(15)..at(18))), ["operation a 3"]);
    assert!(events.critical_path(at(9)..at(9)).pieces().is_empty());
    let none = Events::default();
    assert!(none.critical_path(none.slice_range()).pieces().is_empty());
    assert_eq!(none.summary().critical_path, None);
}

#[test]
fn dominated_path_is_a_finding() {
    let launches = |count: u32, first: u32, ns: u32| {
        (0..count).fold(PathTrace::default(), |trace, i| {
            trace.kernel(i + 1, "gemm", 7, (i * 2, i * 2 + 1), (first + i * 50, first + i * 50 + ns))
        })
    };
    let found = |trace: &PathTrace| {
        let findings = trace.events().summary().findings();
        findings.into_iter().find(|finding| finding.title.contains(" % of the critical path is "))
    };
    let busy = found(&launches(30, 10, 48)).unwrap();
    assert_eq!(busy.title, "95 % of the critical path is compute kernels: 1.440ms.");
    assert!(busy.evidence.starts_with("`gemm` takes 1.440ms of it (95 % of the path, 30 pieces). "), "{busy:?}");
    assert_eq!(busy.gain_ns, 30 * 48_000);
    let sparse = found(&launches(30, 10, 10)).unwrap();
    assert!(
        sparse.title.contains("gap behind work of the same stream: 1.160ms") && sparse.gain_ns == 29 * 40_000,
        "{sparse:?}"
    );
    assert_eq!((found(&launches(3, 10, 48)), found(&launches(30, 200, 25))), (None, None));
}

#[test]
fn text_and_json_have_the_path() {
    let events = PathTrace::default().kernel(1, "a", 7, (0, 2), (5, 20)).events();
    let summary = events.summary();
    let text = summary.screen().to_string();
    assert!(text.contains("Critical path of the trace, 20.000us: host 10 %, device 75 %, waits 15 %"), "{text}");
    assert!(text.contains("compute kernels 75.0 %   launch delay 15.0 %"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&summary.to_json()).unwrap();
    let path = &json["critical_path"];
    assert_eq!((&path["window"], &path["device"], &path["wait"]), (&20.0.into(), &15.0.into(), &3.0.into()));
    assert_eq!((&path["names"][0]["name"], &path["kinds"][1]["kind"]), (&"a".into(), &"launch_delay".into()));
    assert!(path["longest_step"].is_null());
    let host_only = PathTrace::default().op("a", MAIN, (0, 5)).events().summary();
    assert!(!host_only.screen().to_string().contains("Critical path"));
}

#[test]
fn threads_that_wait_for_each_other_end() {
    // At 20 each thread is in an annotation, and starts what an arrow from the other's annotation leads to.
    let annotation = |trace: PathTrace, row| trace.slice("user_annotation", "step", row, (0, 40), "");
    let trace = annotation(annotation(PathTrace::default(), MAIN), BACKWARD)
        .op("a", MAIN, (20, 30))
        .op("b", BACKWARD, (20, 35))
        .arrow(1, (MAIN, 10), (BACKWARD, 20))
        .arrow(2, (BACKWARD, 10), (MAIN, 20));
    let events = trace.events();
    let path = events.critical_path(events.slice_range());
    assert_tiles(&path);
}

#[test]
fn works_that_end_together_are_searched_once() {
    // A search for each of them through all others would take minutes.
    let kernel = |trace: PathTrace, stream| trace.slice("kernel", "k", (0, stream), (5, 5), "");
    let trace = (1..=20_000).fold(PathTrace::default().op("a", MAIN, (0, 1)), kernel);
    let events = trace.slice("kernel", "last", (0, 0), (6, 7), "").events();
    assert_tiles(&events.critical_path(events.slice_range()));
}

#[test]
fn kinds_have_unique_names() {
    let names: std::collections::BTreeSet<_> = PathKind::ALL.iter().map(|each| each.as_str()).collect();
    assert_eq!(names.len(), PathKind::ALL.len());
}

/// A slice: kind, name, row, start and length, id.
type RandomSlice = (usize, usize, u32, u32, u32, u32);

fn random_trace(drawn: &[RandomSlice], arrows: &[(u32, u32, u32, u32)]) -> Events {
    const CALLS: [&str; 6] = [
        "cudaLaunchKernel",
        "cudaDeviceSynchronize",
        "cudaMemcpyAsync",
        "cudaEventQuery",
        "cudaEventRecord",
        "cudaFree",
    ];
    const WORK: [&str; 4] = ["kernel", "gpu_memcpy", "mtia_ccp_events", "cuda_sync"];

    let mut trace = PathTrace::default();
    for (kind, name, row, start, length, id) in drawn.iter().copied() {
        let time = (start, start + length);
        let call = CALLS[name % CALLS.len()];
        trace = match kind {
            0 => trace.op("op", (1, row), time),
            1 => trace.slice("user_annotation", "ProfilerStep#1", (1, row), time, ""),
            2 => trace.slice("python_function", "f", (1, row), time, ""),
            3 | 4 => trace.slice("cuda_runtime", call, (1, row), time, &format!("\"correlation\":{id}")),
            _ => {
                let args = format!(
                    "\"correlation\":{id},\"device\":0,\"stream\":{row},\"wait_on_stream\":{},\
                     \"wait_on_cuda_event_record_corr_id\":{},\"cuda_sync_kind\":\"{}\"",
                    row % 2 + 1,
                    id + 1,
                    ["Stream Wait Event", "Event Sync", "Stream Sync"][name % 3]
                );
                let name = if name % 2 == 0 { "event_wait" } else { "gemm" };
                trace.slice(WORK[kind % WORK.len()], name, (0, row), time, &args)
            }
        };
    }
    for (number, (from, from_at, to, to_at)) in (1..).zip(arrows.iter().copied()) {
        trace = trace.arrow(number, ((1, from), from_at), ((1, to), to_at));
    }
    trace.events()
}

proptest! {
    #[test]
    fn pieces_tile_each_window(
        drawn in prop::collection::vec((0..12_usize, 0..12_usize, 1..4_u32, 0..60_u32, 0..20_u32, 0..8_u32), 0..30),
        arrows in prop::collection::vec((1..4_u32, 0..60_u32, 1..4_u32, 0..60_u32), 0..8),
        window in (0..90_u64, 0..90_u64),
    ) {
        let events = random_trace(&drawn, &arrows);
        let whole = events.critical_path(events.slice_range());
        assert_tiles(&whole);
        let at = |us: u64| Timestamp::from_nanos(us * 1000);
        let part = events.critical_path(at(window.0)..at(window.0 + window.1));
        assert_tiles(&part);
        for piece in whole.pieces().iter().chain(part.pieces()) {
            let Some(event) = piece.event else { continue };
            let is_work = piece.kind.place() == PathPlace::Device;
            prop_assert_eq!(is_work && !event.is_device_work(), false, "{:?}", piece);
            if piece.kind.place() != PathPlace::Wait {
                prop_assert!(event.start() <= piece.start && piece.end <= event.end(), "{:?}", piece);
            }
            prop_assert!(piece.kind != PathKind::Operation || event.kind() == Some(ActivityType::CpuOp), "{:?}", piece);
        }
        if let Some(path) = events.summary().critical_path {
            prop_assert_eq!(path, whole.figures());
        }
    }
}
