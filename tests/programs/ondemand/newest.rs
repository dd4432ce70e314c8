//! Requests to programs that keep their newest records all the time.

use std::fs;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};
use support::daemon::Stub;
use support::harness::Test;
use support::program::{Program, TestFolders, Trace};

pub(crate) const TESTS: &[Test] = &[
    ("request_gets_a_part_of_the_programs_recording", request_gets_a_part_of_the_programs_recording),
    ("request_gets_what_was_recorded_last", request_gets_what_was_recorded_last),
    ("last_records_may_be_requested_again_at_once", last_records_may_be_requested_again_at_once),
    ("request_keeps_its_part_when_the_program_stops", request_keeps_its_part_when_the_program_stops),
    ("last_records_are_refused_without_a_recording", last_records_are_refused_without_a_recording),
    ("request_of_iterations_gets_whole_ones", request_of_iterations_gets_whole_ones),
    ("request_starts_at_its_time_in_the_programs_recording", request_starts_at_its_time_in_the_programs_recording),
];

/// Starts a program that records all the time, and writes its own file at the end.
fn start(place: &TestFolders, scenario: &str) -> Program {
    let own = place.trace("own.json").display().to_string();
    let env = [("KINETO_OVERFLOW", "keep_newest"), ("KINETO_ACTIVITIES_LOG_FILE", &own), ("KINETO_LOG_LEVEL", "info")];
    let program = place.start_watching_with(scenario, &env);
    program.wait_for_watch();
    program
}

fn ask(place: &TestFolders, program: &Program, name: &str, text: &str) -> Trace {
    let request: PathBuf = place.triggers().join(format!("{}.request", program.pid()));
    fs::write(request, place.text_for(name, text)).unwrap();
    // The request ends after its file is there.
    let path = place.trace_of(program, name);
    program.wait_for(&format!(" to {}: ", path.display()));
    Trace::wait_for(&path)
}

fn nanoseconds_now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

/// Checks that all slices of work lie in the trace's window, and returns their number and the window.
fn work_in_window(trace: &Trace) -> (usize, (i64, i64)) {
    let (window, work) = (trace.window(), trace.slices("work"));
    let (begin, length) = (trace.recording_start(), window.1 as f64 / 1000.0);
    for slice in &work {
        let (start, end) =
            (slice["ts"].as_f64().unwrap(), slice["ts"].as_f64().unwrap() + slice["dur"].as_f64().unwrap());
        assert!(start >= begin - 0.002 && end <= begin + length + 0.002, "{slice} {begin} {length}");
    }
    (work.len(), window)
}

fn request_gets_a_part_of_the_programs_recording() {
    let place = TestFolders::new();
    let program = start(&place, "serve");
    let mut ends = 0;
    for (nth, name) in ["a.json", "b.json"].into_iter().enumerate() {
        let asked = nanoseconds_now();
        let id = format!("REQUEST_TRACE_ID=trace{nth}\nACTIVITIES_DURATION_MSECS=100");
        let trace = ask(&place, &program, name, &id);
        let (work, (start, length)) = work_in_window(&trace);
        assert!(work > 0 && start >= asked && length >= 99_000_000 && start >= ends, "{start} {length} {asked}");
        ends = start + length;
        assert_eq!(trace.json["trace_id"], format!("trace{nth}"));
        assert_eq!(trace.json["tracing_kineto"]["config"]["OVERFLOW"], "keep_newest");
    }
    ask(&place, &program, "c.json", "ACTIVITIES_DURATION_MSECS=10\nACTIVITY_TYPES=kernel");
    program.wait_for("its activity types and options have no effect");
    let own = place.trace_of(&program, "own.json");
    let (said, _) = program.end();
    assert!(!said.contains("was refused") && !said.contains("was cancelled"), "{said}");
    // The program's own recording was not ended.
    let (work, (start, length)) = work_in_window(&Trace::wait_for(&own));
    assert!(work > 0 && start + length > ends);
}

// Shows the key PROFILE_LAST_MSECS.
fn request_gets_what_was_recorded_last() {
    let place = TestFolders::new();
    let program = start(&place, "serve");
    ask(&place, &program, "first.json", "ACTIVITIES_DURATION_MSECS=200");
    let asked = nanoseconds_now();
    let trace = ask(&place, &program, "a.json", "PROFILE_LAST_MSECS=150\nREQUEST_TRACE_ID=seven");
    let (work, (start, length)) = work_in_window(&trace);
    assert!(work > 0 && (149_000_000..=151_000_000).contains(&length), "{length}");
    assert!(start + length >= asked && trace.json["trace_id"] == "seven", "{start} {asked}");
    // All there is, if that is less.
    let all = ask(&place, &program, "b.json", "PROFILE_LAST_MSECS=3600000");
    assert!(work_in_window(&all).1.0 < start && all.slices("work").len() > work);
    let (said, _) = program.end();
    assert!(said.contains("the last 150ms into") && said.matches("request ended: written").count() == 3, "{said}");
}

fn last_records_may_be_requested_again_at_once() {
    let place = TestFolders::new();
    let program = start(&place, &format!("asks again in {}", place.triggers().display()));
    ask(&place, &program, "a.json", "PROFILE_LAST_MSECS=100");
    program.wait_for_times("request ended: ", 2);
    let (said, _) = program.end();
    assert_eq!(said.matches("request ended: written to ").count(), 2, "{said}");
}

fn request_keeps_its_part_when_the_program_stops() {
    let place = TestFolders::new();
    let mut program = start(&place, "commanded");
    let request = place.triggers().join(format!("{}.request", program.pid()));
    fs::write(request, place.text_for("a.json", "ACTIVITIES_DURATION_SECS=600")).unwrap();
    program.wait_for("recording started");
    for command in ["work", "stop"] {
        program.send(command);
        program.wait_for(&format!("done: {command}"));
    }
    let stopped = nanoseconds_now();
    program.send("start");
    program.wait_for("(ended early: the program ended its recording)");
    let trace = Trace::wait_for(&place.trace_of(&program, "a.json"));
    let (work, (start, length)) = work_in_window(&trace);
    assert!(work > 0 && start + length <= stopped, "{work} {start} {length} {stopped}");
    program.end();
}

fn last_records_are_refused_without_a_recording() {
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let program = place.start("serve");
    stub.answer(&stub.poll(), &place.text_for("a.json", "PROFILE_LAST_MSECS=100"));
    program.wait_for("the program records nothing now; record all the time with KINETO_OVERFLOW=keep_newest");
    // The next request is served.
    stub.answer(&stub.poll_for_a_trace(), &place.text_for("b.json", "ACTIVITIES_DURATION_MSECS=10"));
    Trace::wait_for(&place.trace_of(&program, "b.json"));
    program.end();
}

fn request_of_iterations_gets_whole_ones() {
    let place = TestFolders::new();
    let program = start(&place, "steps");
    program.wait_for("counts its iterations");
    let text = "PROFILE_START_ITERATION=0\nPROFILE_START_ITERATION_ROUNDUP=10\nACTIVITIES_ITERATIONS=3";
    let trace = ask(&place, &program, "i.json", text);
    let iterations: Vec<_> =
        trace.slices("iteration").iter().map(|slice| slice["args"]["n"].as_u64().unwrap()).collect();
    assert!(iterations.len() == 3 && iterations[0] % 10 == 0, "{iterations:?}");
    program.end();
}

fn request_starts_at_its_time_in_the_programs_recording() {
    let place = TestFolders::new();
    let program = start(&place, "serve");
    let start = nanoseconds_now() / 1_000_000 + 400;
    let text = format!("PROFILE_START_TIME={start}\nACTIVITIES_DURATION_MSECS=50");
    let trace = ask(&place, &program, "t.json", &text);
    let (work, window) = work_in_window(&trace);
    assert!(work > 0);
    assert!((window.0 - start * 1_000_000).abs() < 1000 && (window.1 - 50_000_000).abs() < 1000, "{window:?} {start}");
    program.end();
}
