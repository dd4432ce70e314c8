//! Requests with a start far ahead, their bounds, and cancelling requests.

use super::files::{ask, path_of, start_after};
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};
use support::daemon::Stub;
use support::harness::Test;
use support::program::{TestFolders, Trace};

pub(crate) const TESTS: &[Test] = &[
    ("far_start_lets_other_requests_go_first", far_start_lets_other_requests_go_first),
    ("start_ahead_is_kept_while_another_goes_first", start_ahead_is_kept_while_another_goes_first),
    ("cancel_takes_back_queued_and_running_requests", cancel_takes_back_queued_and_running_requests),
    ("daemon_is_polled_while_a_start_lies_ahead", daemon_is_polled_while_a_start_lies_ahead),
    ("bounds_follow_the_configuration", bounds_follow_the_configuration),
];

/// Returns the text of a request that starts `minutes` from now.
fn text_ahead(place: &TestFolders, name: &str, minutes: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let start = now + u128::from(minutes) * 60_000;
    place.text_for(name, &format!("PROFILE_START_TIME={start}\nACTIVITIES_DURATION_MSECS=1"))
}

fn far_start_lets_other_requests_go_first() {
    let place = TestFolders::new();
    let program = place.start_watching("serve");
    let answer = ask(&place, &program, &text_ahead(&place, "far.json", 50), "cancels it\n");
    assert!(answer.contains("starts in 29"), "{answer}");
    for name in ["a.json", "b.json"] {
        ask(&place, &program, &place.text_for_a_time(name, 1), "done\n");
        Trace::wait_for(&place.trace_of(&program, name));
    }
    let (said, _) = program.end();
    assert!(said.contains("was cancelled: the program ends"), "{said}");
}

fn start_ahead_is_kept_while_another_goes_first() {
    let place = TestFolders::new();
    let program = place.start_watching("serve");
    let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() + 4_000;
    let when = format!("PROFILE_START_TIME={start}\nACTIVITIES_DURATION_MSECS=100\nACTIVITIES_WARMUP_PERIOD_SECS=0");
    ask(&place, &program, &place.text_for("ahead.json", &when), "cancels it\n");
    ask(&place, &program, &place.text_for_a_time("first.json", 10), "done\n");
    Trace::wait_for(&place.trace_of(&program, "first.json"));
    Trace::wait_for(&place.trace_of(&program, "ahead.json"));
    let (said, _) = program.end();
    assert!(!said.contains("refused"), "{said}");
}

// Shows the key CANCEL.
fn cancel_takes_back_queued_and_running_requests() {
    let place = TestFolders::new();
    let program = place.start_watching("serve");
    ask(&place, &program, &text_ahead(&place, "far.json", 50), "cancels it\n");
    fs::write(path_of(&place, &program, "request"), place.text_for_a_time("long.json", 3_600_000)).unwrap();
    program.wait_for("recording started");
    let answer = ask(&place, &program, "CANCEL=true", "done\n");
    assert!(answer.contains("2 requests cancelled by a file of user"), "{answer}");
    assert_eq!(program.stderr().matches("was cancelled: a file of user").count(), 2);
    assert_eq!(place.traces().len(), 0);
    let answer = ask(&place, &program, "CANCEL=true", "done\n");
    assert!(answer.contains("0 requests cancelled"), "{answer}");
    ask(&place, &program, &place.text_for_a_time("a.json", 1), "done\n");
    Trace::wait_for(&place.trace_of(&program, "a.json"));
    program.end();
}

fn daemon_is_polled_while_a_start_lies_ahead() {
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let program = place.start("serve");
    stub.answer(&stub.poll_for_a_trace(), &text_ahead(&place, "far.json", 50));
    program.wait_for("CANCEL=true cancels it");
    stub.answer(&stub.poll_for_a_trace(), &place.text_for_a_time("a.json", 1));
    Trace::wait_for(&place.trace_of(&program, "a.json"));
    stub.answer(&stub.poll_for_a_trace(), "CANCEL=1");
    program.wait_for("1 request cancelled by dynolog");
    program.end();
}

// Shows the keys KINETO_ONDEMAND_MAX_DURATION_SECS, KINETO_ONDEMAND_MAX_AHEAD_SECS.
fn bounds_follow_the_configuration() {
    let place = TestFolders::new();
    let env = [("KINETO_ONDEMAND_MAX_DURATION_SECS", "7"), ("KINETO_ONDEMAND_MAX_AHEAD_SECS", "60")];
    let program = start_after(&place, "true", &env);
    program.wait_for_watch();
    let answer = ask(&place, &program, &place.text_for_a_time("a.json", 7_001), "failed\n");
    assert!(answer.contains("must be between 1 ms and 7s (KINETO_ONDEMAND_MAX_DURATION_SECS)"), "{answer}");
    let answer = ask(&place, &program, &text_ahead(&place, "a.json", 2), "failed\n");
    assert!(answer.contains("must be within the next 60s (KINETO_ONDEMAND_MAX_AHEAD_SECS)"), "{answer}");
    ask(&place, &program, &place.text_for_a_time("a.json", 1), "done\n");
    program.end();
}
