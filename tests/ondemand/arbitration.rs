//! Several who want to record at one time: requests, and the program itself.

use support::daemon::{Daemon, Stub, is_there};
use support::harness::Test;
use support::program::{Place, Trace};

pub(crate) const TESTS: &[Test] = &[
    ("a_second_request_stays_with_the_daemon", a_second_request_stays_with_the_daemon),
    ("requests_that_come_all_the_same_wait_or_are_refused", requests_that_come_all_the_same_wait_or_are_refused),
    ("collectors_begin_with_the_first_request", collectors_begin_with_the_first_request),
    ("the_programs_start_takes_the_session", the_programs_start_takes_the_session),
    ("the_programs_memory_profile_goes_first", the_programs_memory_profile_goes_first),
    ("memory_profile_is_refused_without_an_allocator", memory_profile_is_refused_without_an_allocator),
    ("the_programs_collectors_are_its_own", the_programs_collectors_are_its_own),
    ("steps_do_not_wait_for_a_collectors_start", steps_do_not_wait_for_a_collectors_start),
    ("while_the_program_records_requests_stay_where_they_are", while_the_program_records_requests_stay_where_they_are),
];

/// Devices are looked for with the first request, and not before.
fn collectors_begin_with_the_first_request() {
    let place = Place::new();
    let stub = Stub::start(&place.sockets());
    let mut program = place.start("collects");
    (0..2).for_each(|_| stub.answer(&stub.poll(), ""));
    assert!(!program.said().contains("collector"), "{}", program.said());
    stub.answer(&stub.poll_for_a_trace(), &place.text_for_a_time("a.json", 600_000));
    program.wait_for("recording started");
    program.tell("full");
    let trace = Trace::wait_for(&place.trace_of(&program, "a.json"));
    assert!(!trace.slices("work").is_empty());
    program.wait_for("ended early: a collector stopped: told: its buffers are full");
    program.tell("empty");
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

fn a_second_request_stays_with_the_daemon() {
    if !is_there() {
        return;
    }
    let place = Place::new();
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

fn requests_that_come_all_the_same_wait_or_are_refused() {
    let place = Place::new();
    let stub = Stub::start(&place.sockets());
    let program = place.start("serve");
    let poll = stub.poll();
    // The first goes on until the others have come.
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

fn the_programs_start_takes_the_session() {
    let place = Place::new();
    let stub = Stub::start(&place.sockets());
    let mut program = place.start("commanded");
    stub.answer(&stub.poll(), &place.text_for_a_time("a.json", 60_000));
    program.wait_for("recording started");
    program.tell("stop in vain");
    program.wait_for("the running recording belongs to an external request");
    program.tell("start");
    program.wait_for("was cancelled: the program started its own recording");
    program.tell("stop");
    program.wait_for("done: stop\n");
    // And then it is the requests' again.
    stub.answer(&stub.poll_for_a_trace(), &place.text_for_a_time("b.json", 10));
    Trace::wait_for(&place.trace_of(&program, "b.json"));
    let (_, out) = program.end();
    assert!(out.contains(" slices of its own"), "{out}");
    assert_eq!(place.traces().len(), 1);
}

fn the_programs_memory_profile_goes_first() {
    let place = Place::new();
    let stub = Stub::start(&place.sockets());
    let mut program = place.start("commanded");
    let memory = "PROFILE_PROFILE_MEMORY=true\nPROFILE_MEMORY=true\nPROFILE_MEMORY_DURATION_MSECS=60000";
    stub.answer(&stub.poll(), &format!("{}\n{memory}", place.text_for_a_time("m.json", 1)));
    program.wait_for("recording started");
    program.tell("stop memory in vain");
    program.wait_for("the running recording belongs to an external request");
    program.tell("start memory");
    program.wait_for("was cancelled: the program started its own memory profile");
    // One that comes meanwhile does not take it.
    stub.answer(&stub.poll_for_a_trace(), &format!("{}\n{memory}", place.text_for_a_time("n.json", 1)));
    program.wait_for("was refused: a memory profile is running already");
    program.tell("stop memory");
    program.wait_for("done: stop memory\n");
    stub.answer(&stub.poll_for_a_trace(), &place.text_for_a_time("b.json", 10));
    Trace::wait_for(&place.trace_of(&program, "b.json"));
    program.end();
    assert_eq!(place.traces().len(), 1);
}

fn memory_profile_is_refused_without_an_allocator() {
    let place = Place::new();
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

/// What stops in a recording of the program's own is nothing to a memory profile beside it.
fn the_programs_collectors_are_its_own() {
    let place = Place::new();
    let stub = Stub::start(&place.sockets());
    let mut program = place.start("collects");
    let memory = "PROFILE_MEMORY=true\nPROFILE_MEMORY_DURATION_MSECS=600000";
    stub.answer(&stub.poll(), &format!("{}\n{memory}", place.text_for_a_time("m.json", 1)));
    program.wait_for("recording started");
    for word in ["start", "full"] {
        program.tell(word);
        program.wait_for(&format!("done: {word}"));
    }
    // Between two polls, all that is due is done.
    (0..3).for_each(|_| stub.answer(&stub.poll(), ""));
    program.tell("stop");
    program.wait_for("done: stop");
    let (said, _) = program.end();
    assert!(said.contains("ended early: the program ends") && !said.contains("a collector stopped"), "{said}");
}

fn steps_do_not_wait_for_a_collectors_start() {
    let place = Place::new();
    let stub = Stub::start(&place.sockets());
    let program = place.start("begins slowly");
    stub.answer(&stub.poll_for_a_trace(), &place.text_for_a_time("a.json", 10));
    Trace::wait_for(&place.trace_of(&program, "a.json"));
    let (said, _) = program.end();
    assert!(!said.contains("nobody steps"), "{said}");
}

fn while_the_program_records_requests_stay_where_they_are() {
    let place = Place::new();
    let stub = Stub::start(&place.sockets());
    let mut program = place.start("commanded");
    stub.answer(&stub.poll(), "");
    program.tell("start");
    program.wait_for("done: start");
    let poll = loop {
        let poll = stub.poll();
        if poll.wanted() == 0 {
            break poll;
        }
        stub.answer(&poll, "");
    };
    // One that comes all the same is refused, and says why.
    stub.answer(&poll, &place.text_for_a_time("a.json", 10));
    program.wait_for("was refused: the program is recording itself");
    program.tell("stop");
    stub.answer(&stub.poll_for_a_trace(), &place.text_for_a_time("b.json", 10));
    Trace::wait_for(&place.trace_of(&program, "b.json"));
    program.end();
    assert_eq!(place.traces().len(), 1);
}
