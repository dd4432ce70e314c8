//! `profile!`, in child processes: it installs a global subscriber and prints tables to stderr.
#![allow(clippy::disallowed_methods, reason = "tests")]

use support::{child, name_of};
use tracing::info_span;
use tracing_kineto::{Error, KinetoLayer, Schedule, Status, StepState, profile};
use tracing_subscriber::prelude::*;

/// Runs a program below; returns its stderr.
fn run(program: &str) -> String {
    String::from_utf8(child::run(&mut child::command(program)).stderr).unwrap()
}

/// Returns the names and counts of a printed table's rows.
fn rows(output: &str) -> Vec<(&str, &str)> {
    let rows =
        output.lines().filter(|line| line.contains('%') && !line.contains("Self CPU %") && !line.contains("100 % of"));
    rows.map(|line| (line.split_whitespace().next().unwrap(), line.split_whitespace().last().unwrap())).collect()
}

fn work() -> u32 {
    (0..3).for_each(|_| info_span!("work").in_scope(|| info_span!("part").in_scope(|| std::hint::black_box(()))));
    42
}

#[test]
fn first_use_installs_a_layer_and_prints_a_table() {
    let output = run(name_of(program_without_anything));
    let mut rows = rows(&output);
    rows.sort_unstable();
    assert_eq!(rows, [("again", "1"), ("first_look", "1"), ("part", "3"), ("part", "3"), ("work", "3"), ("work", "3")]);
    assert!(output.contains("profile of \"first_look\"") && output.contains("Self CPU time total: "), "{output}");
}

#[test]
#[ignore = "a program for another test"]
fn program_without_anything() {
    assert_eq!(profile!("first_look", { work() }), 42);
    info_span!("unseen").in_scope(|| {});
    assert_eq!(profile!("again", work()), 42);
}

#[test]
fn idle_layer_is_started_and_stopped() {
    let output = run(name_of(program_with_an_idle_layer));
    let mut rows = rows(&output);
    rows.sort_unstable();
    assert_eq!(rows, [("idle", "1"), ("idle", "1"), ("part", "3"), ("part", "3"), ("work", "3"), ("work", "3")]);
}

#[test]
#[ignore = "a program for another test"]
fn program_with_an_idle_layer() {
    let (layer, guard) = KinetoLayer::builder().no_output().record_from_start(false).build().unwrap();
    tracing_subscriber::registry().with(layer).init();
    profile!("idle", work());
    assert_eq!(guard.profiler().status(), Status::Idle);
    profile!(guard.profiler(), "idle", { work() });
    assert_eq!(guard.profiler().status(), Status::Idle);
}

#[test]
fn block_is_recorded_when_the_schedule_waits_or_has_ended() {
    let output = run(name_of(program_with_a_schedule));
    let mut rows = rows(&output);
    rows.sort_unstable();
    assert_eq!(rows, [("ended", "1"), ("part", "3"), ("part", "3"), ("waits", "1"), ("work", "3"), ("work", "3")]);
}

#[test]
#[ignore = "a program for another test"]
fn program_with_a_schedule() {
    let schedule = Schedule::new(1, 0, 1).unwrap().repeat(1);
    let builder = KinetoLayer::builder().no_output().schedule(schedule);
    let (layer, guard) = builder.build().unwrap();
    tracing_subscriber::registry().with(layer).init();
    let profiler = guard.profiler();
    profile!(profiler, "waits", work());
    while profiler.step().state != StepState::Finished {}
    profile!(profiler, "ended", work());
    assert_eq!(profiler.step().state, StepState::Finished);
}

#[test]
fn running_recording_continues_and_the_table_is_the_blocks() {
    let output = run(name_of(program_that_records));
    let mut rows = rows(&output);
    rows.sort_unstable();
    assert_eq!(
        rows,
        [("block", "1"), ("inner", "1"), ("inner", "1"), ("part", "3"), ("part", "3"), ("work", "3"), ("work", "3")]
    );
}

#[test]
#[ignore = "a program for another test"]
fn program_that_records() {
    let (layer, guard) = KinetoLayer::builder().no_output().build().unwrap();
    tracing_subscriber::registry().with(layer).init();
    work();
    profile!("block", profile!("inner", work()));
    work();
    assert_eq!(guard.profiler().status(), Status::Recording);
    assert_eq!(guard.finish().unwrap().stats().slices, 3 * 6 + 2);
}

#[test]
fn block_runs_when_the_subscriber_has_no_layer() {
    let output = run(name_of(program_with_another_subscriber));
    assert!(
        output.contains("\"other\" ran without a profile: the program's subscriber has no KinetoLayer: add one"),
        "{output}"
    );
    assert!(rows(&output).is_empty());
}

#[test]
#[ignore = "a program for another test"]
fn program_with_another_subscriber() {
    tracing_subscriber::registry().init();
    assert_eq!(profile!("other", work()), 42);
}

#[test]
fn early_return_ends_the_block_and_panic_prints_nothing() {
    let output = run(name_of(program_that_returns_early));
    assert_eq!(rows(&output), [("leaves", "1")], "{output}");
}

#[test]
#[ignore = "a program for another test"]
fn program_that_returns_early() {
    fn return_early() -> Result<u32, Error> {
        let number: u32 = profile!("leaves", {
            "seven".parse().ok().ok_or(tracing_kineto::analysis::Events::read("/no/such/file").unwrap_err())?
        });
        Ok(number)
    }
    assert!(return_early().is_err());
    let fails: fn() -> u32 = || panic!("on purpose");
    assert!(std::panic::catch_unwind(|| profile!("panics", fails())).is_err());
    // No recording is running, so the next block starts one.
    info_span!("after").in_scope(|| {});
}
