//! Daemons that are not there, come back, or are slow.

use crate::program::{Place, Trace};
use std::time::Instant;
use support::daemon::{Daemon, Stub, is_there};
use support::harness::Test;

pub(crate) const TESTS: &[Test] = &[
    ("a_daemon_that_comes_late_is_found", a_daemon_that_comes_late_is_found),
    ("a_daemon_that_is_restarted_is_found", a_daemon_that_is_restarted_is_found),
    ("answers_after_a_third_of_a_second", || slow("0.3")),
    ("answers_after_two_seconds", || slow("2")),
    ("answers_that_are_lost", answers_that_are_lost),
    ("polls_are_those_that_the_daemon_expects", polls_are_those_that_the_daemon_expects),
];

fn trace_once(place: &Place, daemon: &Daemon, program: &crate::program::Program, name: &str) -> u128 {
    let text = place.text_for_a_time(name, 50);
    daemon.trigger_all(&text, &[program.pid()]);
    let asked = Instant::now();
    Trace::wait_for(&place.trace_of(program, name));
    asked.elapsed().as_millis()
}

fn a_daemon_that_comes_late_is_found() {
    if !is_there() {
        return;
    }
    let place = Place::new();
    let program = place.start("serve");
    program.wait_for("the dynolog daemon is not there");
    let daemon = Daemon::start(&place.sockets(), &[]);
    trace_once(&place, &daemon, &program, "a.json");
    let (said, _) = program.end();
    assert_eq!(said.matches("the dynolog daemon is").count(), 1, "{said}");
}

fn a_daemon_that_is_restarted_is_found() {
    if !is_there() {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place.sockets(), &[]);
    let program = place.start("serve");
    trace_once(&place, &daemon, &program, "a.json");
    drop(daemon);
    program.wait_for("the dynolog daemon is no longer there");
    let daemon = Daemon::start(&place.sockets(), &[]);
    trace_once(&place, &daemon, &program, "b.json");
    let (said, _) = program.end();
    assert_eq!(said.matches("registered with the dynolog daemon").count(), 2, "{said}");
}

fn slow(seconds: &str) {
    if !is_there() {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place.sockets(), &["--reply-delay", seconds]);
    let program = place.start("serve");
    let took = ["a.json", "b.json"].map(|name| trace_once(&place, &daemon, &program, name));
    println!("answers take {seconds} s: from the trigger to the file {took:?} ms");
    let (said, _) = program.end();
    assert!(!said.contains("thrown away"), "{said}");
}

fn answers_that_are_lost() {
    if !is_there() {
        return;
    }
    let place = Place::new();
    let daemon = Daemon::start(&place.sockets(), &["--lose", "1"]);
    let program = place.start("serve");
    program.wait_for("registered");
    trace_once(&place, &daemon, &program, "a.json");
    program.end();
}

fn polls_are_those_that_the_daemon_expects() {
    let place = Place::new();
    let stub = Stub::start(&place.sockets());
    let program = place
        .start_with("serve", &[("SLURM_JOB_ID", "4711 [3]"), ("KINETO_ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS", "1")]);
    let poll = stub.poll();
    let count = u32::from_ne_bytes(poll.bytes[44..48].try_into().unwrap()) as usize;
    let pids: Vec<_> = poll.bytes[56..].chunks(4).map(|pid| u32::from_ne_bytes(pid.try_into().unwrap())).collect();
    let mut expected = (16 + 4 * count as u64).to_ne_bytes().to_vec();
    expected.extend(b"req");
    expected.resize(40, 0);
    expected.extend(2i32.to_ne_bytes());
    expected.extend((count as i32).to_ne_bytes());
    expected.extend(4711i64.to_ne_bytes());
    expected.extend(pids.iter().flat_map(|pid| pid.to_ne_bytes()));
    assert_eq!(poll.bytes, expected);
    assert_eq!(pids[..2], [program.pid(), std::process::id()]);
    assert!((2..=11).contains(&count) && !pids.contains(&1), "{pids:?}");
    let path = poll.from.as_pathname().unwrap();
    assert_eq!(path.parent(), Some(place.sockets().as_path()));
    stub.answer(&poll, "");
    assert_eq!(stub.poll().bytes, expected);
    program.end();
    assert!(!path.exists());
}
