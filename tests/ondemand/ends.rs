//! How programs end that are traced from outside, and what idle ones have.

use crate::daemon::Stub;
use crate::harness::Test;
use crate::program::{Place, Trace};

pub(crate) const TESTS: &[Test] = &[
    ("what_is_collected_when_the_guard_is_dropped_is_written", || collected_at_the_end("serve")),
    ("what_is_collected_when_the_process_exits_is_written", || collected_at_the_end("exits")),
    ("no_daemon_is_waited_for", no_daemon_is_waited_for),
    ("a_daemon_that_hangs_is_not_waited_for", a_daemon_that_hangs_is_not_waited_for),
    ("without_the_variable_there_is_no_thread", without_the_variable_there_is_no_thread),
    ("a_forked_child_leaves_the_daemon_alone", a_forked_child_leaves_the_daemon_alone),
];

fn collected_at_the_end(scenario: &str) {
    let place = Place::new();
    let stub = Stub::start(&place.sockets());
    let program = place.start(scenario);
    let text = format!("ACTIVITIES_LOG_FILE={}\nACTIVITIES_DURATION_SECS=600", place.trace("a.json").display());
    stub.answer(&stub.poll(), &text);
    program.wait_for("started what");
    let path = place.trace(&format!("a_{}.json", program.pid()));
    let (said, _) = program.end();
    assert!(said.contains("(ended early: the program ends)"), "{said}");
    assert!(!Trace::wait_for(&path).slices("work").is_empty());
    assert_eq!((place.traces().len(), std::fs::read_dir(place.sockets()).unwrap().count()), (1, 1));
}

fn no_daemon_is_waited_for() {
    let place = Place::new();
    let program = place.start("idle");
    program.wait_for("the dynolog daemon is not there");
    let (_, out) = program.end();
    println!("no daemon: {out}");
    assert!(out.contains("kineto-ondemand"), "{out}");
}

fn a_daemon_that_hangs_is_not_waited_for() {
    let place = Place::new();
    let stub = Stub::start(&place.sockets());
    let program = place.start("idle");
    stub.poll();
    let (_, out) = program.end();
    println!("a daemon that does not answer: {out}");
    // Nor where its queue is full.
    let own = std::os::unix::net::UnixDatagram::unbound().unwrap();
    own.connect(place.sockets().join("dynolog")).unwrap();
    own.set_nonblocking(true).unwrap();
    while own.send(b"x").is_ok() {}
    let program = place.start("idle");
    program.wait_for("the dynolog daemon has not answered for 5s");
    let (_, out) = program.end();
    println!("a daemon that does not read: {out}");
    drop(stub);
}

fn without_the_variable_there_is_no_thread() {
    for value in ["", "0", "off", "FALSE"] {
        let place = Place::new();
        let env = [("KINETO_USE_DAEMON", value), ("KINETO_ENABLED", "1"), ("KINETO_RECORD_FROM_START", "0")];
        let (said, out) = place.start_with("idle", &env).end();
        assert!(!out.contains("kineto-ondemand") && said.is_empty(), "{value:?}: {out} {said}");
    }
}

fn a_forked_child_leaves_the_daemon_alone() {
    let place = Place::new();
    let stub = Stub::start(&place.sockets());
    let program = place.start("forks");
    stub.answer(&stub.poll(), "");
    program.wait_for("the child has ended with 7");
    let text = format!("ACTIVITIES_LOG_FILE={}\nACTIVITIES_DURATION_MSECS=10", place.trace("a.json").display());
    stub.answer(&stub.poll_for_a_trace(), &text);
    Trace::wait_for(&place.trace(&format!("a_{}.json", program.pid())));
    program.end();
    assert_eq!(place.traces().len(), 1);
}
