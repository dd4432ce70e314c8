//! Session observers of recordings on external requests.

use std::time::{SystemTime, UNIX_EPOCH};
use support::daemon::{Daemon, Stub, is_available};
use support::harness::Test;
use support::program::{Program, TestFolders, Trace};

pub(crate) const TESTS: &[Test] = &[
    ("observers_get_the_flags_that_dyno_requests", observers_get_the_flags_that_dyno_requests),
    ("observers_are_called_for_memory_profiles", observers_are_called_for_memory_profiles),
    ("observers_get_the_reason_when_a_request_is_cancelled", observers_get_the_reason_when_a_request_is_cancelled),
    ("observers_are_called_at_an_early_end", observers_are_called_at_an_early_end),
    ("observers_may_count_iterations_in_callbacks", observers_may_count_iterations_in_callbacks),
    ("observers_are_called_at_the_exit", observers_are_called_at_the_exit),
];

/// Returns the callbacks that the observer has reported so far.
fn callbacks(program: &Program) -> Vec<String> {
    program.stderr().lines().filter_map(|line| line.strip_prefix("observer: ")).map(str::to_owned).collect()
}

/// Waits until it has reported `count` callbacks.
fn wait_for(program: &Program, count: usize) -> Vec<String> {
    program.wait_until(|| Some(callbacks(program)).filter(|callbacks| callbacks.len() >= count))
}

/// The request text is the same as dyno's.
fn observers_get_the_flags_that_dyno_requests() {
    if !is_available() {
        return;
    }
    let place = TestFolders::new();
    let daemon = Daemon::start(&place.sockets(), &[]);
    let program = place.start("observed");
    let asks = |shapes, memory, stack, flops, modules| {
        let memory = if memory { "PROFILE_PROFILE_MEMORY=true\n" } else { "" };
        format!(
            "PROFILE_START_TIME=0\nACTIVITIES_DURATION_MSECS=50\nPROFILE_REPORT_INPUT_SHAPES={shapes}\n{memory}\
             PROFILE_WITH_STACK={stack}\nPROFILE_WITH_FLOPS={flops}\nPROFILE_WITH_MODULES={modules}"
        )
    };
    let mut expected = Vec::new();
    for (name, more, flags) in [
        ("a", asks(false, false, false, false, false), ""),
        ("b", asks(true, false, false, true, false), " shapes flops"),
        ("c", asks(false, true, true, false, true), " memory stack modules"),
        ("d", "ACTIVITIES_DURATION_MSECS=50\nCLIENT_INTERFACE_ENABLE_OP_INPUTS_COLLECTION=1".to_owned(), " shapes"),
    ] {
        daemon.trigger_all(&place.text_for(&format!("{name}.json"), &more), &[program.pid()]);
        let trace = Trace::wait_for(&place.trace_of(&program, &format!("{name}.json")));
        assert_eq!(trace.json["record_shapes"] == 1, flags.contains("shapes"), "{name}");
        assert_eq!(trace.json["with_flops"] == 1, flags.contains("flops"), "{name}");
        expected.extend([format!("prepared{flags}"), "started".to_owned(), "stopped".to_owned()]);
        assert_eq!(callbacks(&program), expected, "{name}");
    }
    program.end();
}

fn observers_are_called_for_memory_profiles() {
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let program = place.start("observed");
    let more = "PROFILE_PROFILE_MEMORY=true\nPROFILE_MEMORY=true\nPROFILE_MEMORY_DURATION_MSECS=200";
    stub.answer(&stub.poll_for_a_trace(), &place.text_for("m.json", more));
    let path = place.trace_of(&program, "m.json");
    program.wait_for("observer: memory profile in ");
    let exported = format!("memory profile in {}", path.display());
    assert_eq!(callbacks(&program), ["memory profile started", "memory profile stopped", &exported]);
    assert!(path.exists());
    program.end();
}

fn observers_get_the_reason_when_a_request_is_cancelled() {
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let mut program = place.start("observed");
    stub.answer(&stub.poll(), &place.text_for("a.json", "ACTIVITIES_DURATION_SECS=600"));
    program.wait_for("observer: started");
    program.send("start");
    program.wait_for("done: start\n");
    program.send("stop");
    program.wait_for("done: stop\n");
    let cancelled = "cancelled: the program started its own recording";
    assert_eq!(callbacks(&program), ["prepared", "started", cancelled, "prepared", "started", "stopped"]);
    program.end();
    assert!(place.traces().is_empty());
}

fn observers_are_called_at_an_early_end() {
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let mut program = place.start("observed");
    stub.answer(&stub.poll(), &place.text_for("a.json", "ACTIVITIES_DURATION_SECS=600"));
    program.wait_for("observer: started");
    program.send("full");
    program.wait_for("ended early: a collector stopped");
    assert_eq!(callbacks(&program), ["prepared", "started", "stopped"]);
    // A stop before the start cancels: this request starts in a minute, and its collectors start now.
    program.send("empty");
    program.wait_for("done: empty\n");
    let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() + 50_000;
    let more = format!("PROFILE_START_TIME={start}\nACTIVITIES_WARMUP_PERIOD_SECS=60");
    stub.answer(&stub.poll_for_a_trace(), &place.text_for("b.json", &more));
    wait_for(&program, 4);
    program.send("full");
    let cancelled = "cancelled: a collector stopped before the start: reporting: its buffers are full";
    assert_eq!(wait_for(&program, 5)[3..], ["prepared", cancelled]);
    program.end();
}

/// The observer counts three iterations in each callback, which ends the recording.
fn observers_may_count_iterations_in_callbacks() {
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let mut program = place.start("observed");
    let poll = stub.poll();
    program.send("step");
    program.wait_for("done: step\n");
    let more = "PROFILE_START_ITERATION=0\nPROFILE_START_ITERATION_ROUNDUP=10\nACTIVITIES_ITERATIONS=3";
    stub.answer(&poll, &place.text_for("i.json", more));
    program.wait_for("triggered by");
    program.send("step");
    Trace::wait_for(&place.trace_of(&program, "i.json"));
    // The thread that calls them is still in the first one when the file is complete.
    assert_eq!(wait_for(&program, 3), ["prepared", "started", "stopped"]);
    program.end();
}

fn observers_are_called_at_the_exit() {
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let mut program = place.start("observed");
    stub.answer(&stub.poll(), "");
    program.send("start");
    program.wait_for("done: start\n");
    program.send("exit");
    let (said, _) = program.end();
    let callbacks: Vec<_> = said.lines().filter_map(|line| line.strip_prefix("observer: ")).collect();
    assert_eq!(callbacks, ["prepared", "started", "stopped"]);
}
