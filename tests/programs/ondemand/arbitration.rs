//! Competing recordings: concurrent requests, and the program itself.

use support::daemon::{Daemon, Stub, is_available};
use support::harness::Test;
use support::program::{TestFolders, Trace};

pub(crate) const TESTS: &[Test] = &[
    ("second_request_stays_with_the_daemon", second_request_stays_with_the_daemon),
    ("early_requests_are_queued_or_refused", early_requests_are_queued_or_refused),
    ("collectors_start_with_the_first_request", collectors_start_with_the_first_request),
    ("programs_start_takes_the_session", programs_start_takes_the_session),
    ("programs_memory_profile_goes_first", programs_memory_profile_goes_first),
    ("memory_profile_is_refused_without_an_allocator", memory_profile_is_refused_without_an_allocator),
    ("collector_stop_of_the_program_spares_memory_profile", collector_stop_of_the_program_spares_memory_profile),
    ("steps_do_not_wait_for_a_collectors_start", steps_do_not_wait_for_a_collectors_start),
    (
        "requests_stay_with_the_daemon_while_the_program_records",
        requests_stay_with_the_daemon_while_the_program_records,
    ),
];

/// Collectors probe for devices at the first request, not before.
fn collectors_start_with_the_first_request() {
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let mut program = place.start("collects");
    (0..2).for_each(|_| stub.answer(&stub.poll(), ""));
    assert!(!program.stderr().contains("collector"), "{}", program.stderr());
    stub.answer(&stub.poll_for_a_trace(), &place.text_for_a_time("a.json", 600_000));
    program.wait_for("recording started");
    program.send("full");
    let trace = Trace::wait_for(&place.trace_of(&program, "a.json"));
    assert!(!trace.slices("work").is_empty());
    program.wait_for("ended early: a collector stopped: reporting: its buffers are full");
    program.send("empty");
    program.wait_for("done: empty");
    stub.answer(&stub.poll_for_a_trace(), &place.text_for_a_time("b.json", 10));
    Trace::wait_for(&place.trace_of(&program, "b.json"));
    let (said, _) = program.end();
    assert_eq!(
        (said.matches("collector: started").count(), said.matches("collector: stopped").count()),
        (2, 2),
        "{said}"
    );
}

fn second_request_stays_with_the_daemon() {
    if !is_available() {
        return;
    }
    let place = TestFolders::new();
    let daemon = Daemon::start(&place.sockets(), &[]);
    let program = place.start("serve");
    let pids = [program.pid()];
    daemon.trigger_all(&place.text_for_a_time("a.json", 3000), &pids);
    program.wait_for("started");
    assert_eq!(daemon.trigger(&place.text_for_a_time("b.json", 10), &pids)["activityProfilersBusy"], 0);
    assert_eq!(daemon.trigger(&place.text_for_a_time("c.json", 10), &pids)["activityProfilersBusy"], 1);
    let first = Trace::wait_for(&place.trace(&format!("a_{}.json", pids[0])));
    let second = Trace::wait_for(&place.trace(&format!("b_{}.json", pids[0])));
    assert!(second.window().0 >= first.window().0 + first.window().1);
    let (said, _) = program.end();
    assert!(!said.contains("is queued behind"), "{said}");
}

fn early_requests_are_queued_or_refused() {
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let program = place.start("serve");
    let poll = stub.poll();
    // The first runs until the others have arrived.
    for (name, milliseconds) in [("a.json", 2000), ("b.json", 10), ("c.json", 10)] {
        stub.answer(&poll, &place.text_for_a_time(name, milliseconds));
    }
    let pid = program.pid();
    for name in ["a", "b"] {
        Trace::wait_for(&place.trace(&format!("{name}_{pid}.json")));
    }
    program.wait_for("was refused: another request is waiting already");
    let (said, _) = program.end();
    assert!(said.contains("is queued behind"), "{said}");
    assert_eq!(place.traces().len(), 2);
}

fn programs_start_takes_the_session() {
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let mut program = place.start("commanded");
    stub.answer(&stub.poll(), &place.text_for_a_time("a.json", 60_000));
    program.wait_for("recording started");
    program.send("stop in vain");
    program.wait_for("the running recording belongs to an external request");
    program.send("start");
    program.wait_for("was cancelled: the program started its own recording");
    program.send("stop");
    program.wait_for("done: stop\n");
    // Afterwards requests can use it again.
    stub.answer(&stub.poll_for_a_trace(), &place.text_for_a_time("b.json", 10));
    Trace::wait_for(&place.trace_of(&program, "b.json"));
    let (_, out) = program.end();
    assert!(out.contains(" slices of its own"), "{out}");
    assert_eq!(place.traces().len(), 1);
}

fn programs_memory_profile_goes_first() {
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let mut program = place.start("commanded");
    let memory = "PROFILE_PROFILE_MEMORY=true\nPROFILE_MEMORY=true\nPROFILE_MEMORY_DURATION_MSECS=60000";
    stub.answer(&stub.poll(), &format!("{}\n{memory}", place.text_for_a_time("m.json", 1)));
    program.wait_for("recording started");
    program.send("stop memory in vain");
    program.wait_for("the running recording belongs to an external request");
    program.send("start memory");
    program.wait_for("was cancelled: the program started its own memory profile");
    // A request that arrives in the meantime does not take it.
    stub.answer(&stub.poll_for_a_trace(), &format!("{}\n{memory}", place.text_for_a_time("n.json", 1)));
    program.wait_for("was refused: a memory profile is running already");
    program.send("stop memory");
    program.wait_for("done: stop memory\n");
    stub.answer(&stub.poll_for_a_trace(), &place.text_for_a_time("b.json", 10));
    Trace::wait_for(&place.trace_of(&program, "b.json"));
    program.end();
    assert_eq!(place.traces().len(), 1);
}

fn memory_profile_is_refused_without_an_allocator() {
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let program = place.start("serve");
    let memory = "PROFILE_MEMORY=true\nPROFILE_MEMORY_DURATION_MSECS=3600000";
    stub.answer(&stub.poll_for_a_trace(), &format!("{}\n{memory}", place.text_for_a_time("m.json", 1)));
    program.wait_for("was refused: no allocator has reported anything; make memory::Tracked the global allocator");
    stub.answer(&stub.poll_for_a_trace(), &place.text_for_a_time("a.json", 1));
    Trace::wait_for(&place.trace_of(&program, "a.json"));
    program.end();
    assert_eq!(place.traces().len(), 1);
}

/// A collector that stops in the program's own recording does not end a concurrent memory profile.
fn collector_stop_of_the_program_spares_memory_profile() {
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let mut program = place.start("collects");
    let memory = "PROFILE_MEMORY=true\nPROFILE_MEMORY_DURATION_MSECS=600000";
    stub.answer(&stub.poll(), &format!("{}\n{memory}", place.text_for_a_time("m.json", 1)));
    program.wait_for("recording started");
    for word in ["start", "full"] {
        program.send(word);
        program.wait_for(&format!("done: {word}"));
    }
    // All due work is done between two polls.
    (0..3).for_each(|_| stub.answer(&stub.poll(), ""));
    program.send("stop");
    program.wait_for("done: stop");
    let (said, _) = program.end();
    assert!(said.contains("ended early: the program ends") && !said.contains("a collector stopped"), "{said}");
}

fn steps_do_not_wait_for_a_collectors_start() {
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let program = place.start("begins slowly");
    stub.answer(&stub.poll_for_a_trace(), &place.text_for_a_time("a.json", 10));
    Trace::wait_for(&place.trace_of(&program, "a.json"));
    let (said, _) = program.end();
    assert!(!said.contains("no step was made"), "{said}");
}

fn requests_stay_with_the_daemon_while_the_program_records() {
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let mut program = place.start("commanded");
    stub.answer(&stub.poll(), "");
    program.send("start");
    program.wait_for("done: start");
    let poll = loop {
        let poll = stub.poll();
        if poll.wanted() == 0 {
            break poll;
        }
        stub.answer(&poll, "");
    };
    // A request that arrives anyway is refused with the reason.
    stub.answer(&poll, &place.text_for_a_time("a.json", 10));
    program.wait_for("was refused: the program is recording itself");
    program.send("stop");
    stub.answer(&stub.poll_for_a_trace(), &place.text_for_a_time("b.json", 10));
    Trace::wait_for(&place.trace_of(&program, "b.json"));
    program.end();
    assert_eq!(place.traces().len(), 1);
}
