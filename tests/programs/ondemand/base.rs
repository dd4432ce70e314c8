//! Changes of the configuration file while the program serves requests.

use std::fs;
use std::time::Duration;
use support::CLOCK_VARIABLE;
use support::daemon::Stub;
use support::harness::Test;
use support::program::{Program, TestFolders, Trace};

pub(crate) const TESTS: &[Test] = &[
    ("immediate_keys_take_effect_at_once", immediate_keys_take_effect_at_once),
    ("verbose_messages_follow_the_modules_in_the_file", verbose_messages_follow_the_modules_in_the_file),
    ("client_stops_and_starts_by_the_file", client_stops_and_starts_by_the_file),
    ("next_request_follows_the_file", next_request_follows_the_file),
    ("programs_next_recording_follows_the_file", programs_next_recording_follows_the_file),
    ("invalid_file_changes_nothing", invalid_file_changes_nothing),
];

const SECOND: Duration = Duration::from_secs(1);

/// Starts a program with that text in its configuration file.
fn start(place: &TestFolders, scenario: &str, text: &str) -> Program {
    start_with(place, scenario, text, &[])
}

/// As [`start`] with more variables.
fn start_with(place: &TestFolders, scenario: &str, text: &str, env: &[(&str, &str)]) -> Program {
    write(place, text);
    let file = place.file("libkineto.conf");
    place.start_with(scenario, &[&[("KINETO_CONFIG", file.to_str().unwrap())], env].concat())
}

fn write(place: &TestFolders, text: &str) {
    // A rename, so that the program never reads a partial file.
    fs::write(place.file("next.conf"), text).unwrap();
    fs::rename(place.file("next.conf"), place.file("libkineto.conf")).unwrap();
}

/// Requests a trace of 10 ms and waits for it.
fn trace(place: &TestFolders, stub: &Stub, program: &Program, name: &str) -> Trace {
    let text = place.text_for_a_time(name, 10);
    stub.answer(&stub.poll_for_a_trace(), &text);
    Trace::wait_for(&place.trace_of(program, name))
}

// Shows the keys LOG_LEVEL, ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS.
fn immediate_keys_take_effect_at_once() {
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let program = start(&place, "serve", "LOG_LEVEL=error\nON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=600");
    stub.answer(&stub.poll(), "");
    write(&place, "LOG_LEVEL=info\nON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=0");
    program.wait_for("was read again: LOG_LEVEL=info, ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=0 (at once)\n");
    // The next poll would be ten minutes away.
    (0..20).for_each(|_| stub.answer(&stub.poll(), ""));
    trace(&place, &stub, &program, "a.json");
    program.wait_for("written");
    let (said, _) = program.end();
    assert!(!said.contains("registered") && said.contains("triggered by"), "{said}");
}

// Shows the keys VERBOSE_LOG_LEVEL, VERBOSE_LOG_MODULES.
fn verbose_messages_follow_the_modules_in_the_file() {
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let verbose = "ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=0\nVERBOSE_LOG_LEVEL=0";
    let program = start(&place, "serve", &format!("{verbose}\nVERBOSE_LOG_MODULES=Config.cpp,runner.rs"));
    trace(&place, &stub, &program, "a.json");
    program.wait_for("received a request by dynolog");
    assert!(!program.stderr().contains("asked the dynolog daemon"), "{}", program.stderr());
    write(&place, verbose);
    program.wait_for("VERBOSE_LOG_MODULES= (at once)");
    stub.answer(&stub.poll(), "");
    program.wait_for("asked the dynolog daemon for Activities");
    program.end();
}

// Shows the key ENABLE_IPC_FABRIC.
fn client_stops_and_starts_by_the_file() {
    const OFTEN: &str = "ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=0";
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let (clock, file) = place.clock();
    let off = format!("{OFTEN}\nENABLE_IPC_FABRIC=false");
    let mut program = start_with(&place, "commanded", &off, &[(CLOCK_VARIABLE, &file)]);
    program.send("nothing");
    clock.run(|| program.wait_for("done: nothing"));
    clock.advance(SECOND);
    assert!(stub.waiting_poll().is_none(), "the file disables the client");
    write(&place, OFTEN);
    clock.run(|| {
        program.wait_for("ENABLE_IPC_FABRIC unset (at once)");
        trace(&place, &stub, &program, "a.json");
        write(&place, &format!("{OFTEN}\nENABLE_IPC_FABRIC=0"));
        program.wait_for("ENABLE_IPC_FABRIC=false (at once)");
    });
    // A poll that was under way.
    if let Some(poll) = stub.waiting_poll() {
        stub.answer(&poll, "");
    }
    clock.advance(SECOND);
    assert!(stub.waiting_poll().is_none(), "the client was disabled");
    write(&place, &format!("{OFTEN}\nENABLE_IPC_FABRIC=yes"));
    let (said, _) = clock.run(|| {
        trace(&place, &stub, &program, "b.json");
        program.end()
    });
    assert_eq!(said.matches("registered with the dynolog daemon").count(), 2, "{said}");
}

// Shows the keys ACTIVITY_TYPES, WITH_LOCATION, HOST_NAME.
fn next_request_follows_the_file() {
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let mut program = start(&place, "collects", "HOST_NAME=first");
    let text = place.text_for("a.json", "ACTIVITIES_DURATION_SECS=600");
    stub.answer(&stub.poll_for_a_trace(), &text);
    program.wait_for("recording started");
    write(&place, "HOST_NAME=second\nACTIVITY_TYPES=kernel\nWITH_LOCATION=1\nWITH_ARGS=no");
    program.wait_for(
        "ACTIVITY_TYPES=kernel, WITH_LOCATION=true, HOST_NAME=second (from the next recording on); WITH_ARGS=false \
         (when the program is started again)\n",
    );
    // The running recording keeps its settings.
    program.send("full");
    let first = Trace::wait_for(&place.trace_of(&program, "a.json"));
    assert_eq!(first.json["host_name"], "first");
    // The first slice may have been open at the start.
    let has = |trace: &Trace, arg: &str| trace.slices("work").iter().any(|row| row["args"].get(arg).is_some());
    assert!(!has(&first, "location"));
    program.send("empty");
    program.wait_for("done: empty");
    let second = trace(&place, &stub, &program, "b.json");
    let config = &second.json["tracing_kineto"]["config"];
    assert_eq!((&second.json["host_name"], &config["ACTIVITY_TYPES"]), (&"second".into(), &"kernel".into()));
    assert_eq!((&config["from"]["ACTIVITY_TYPES"], &config["WITH_ARGS"]), (&"file".into(), &"true".into()));
    assert!(second.slices("work").is_empty());
    // Spans again, with the fields that their callsites had before.
    write(&place, "ACTIVITY_TYPES=cpu_op\nWITH_LOCATION=1\nWITH_ARGS=no");
    program.wait_for("ACTIVITY_TYPES=cpu_op, HOST_NAME unset (from the next recording on)\n");
    let third = trace(&place, &stub, &program, "c.json");
    assert_ne!(third.json["host_name"], "second");
    assert!(has(&third, "location") && has(&third, "n"));
    program.end();
}

fn programs_next_recording_follows_the_file() {
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let output = |name: &str| format!("ACTIVITIES_LOG_FILE={}", place.trace(name).display());
    let mut program = start(&place, "commanded", &output("a.json"));
    stub.answer(&stub.poll(), "");
    // A recording without spans, since the file excludes them.
    write(&place, &format!("{}\nACTIVITY_TYPES=kernel", output("a.json")));
    program.wait_for("ACTIVITY_TYPES=kernel (from the next recording on)");
    for command in ["start", "stop"] {
        program.send(command);
        program.wait_for(&format!("done: {command}"));
    }
    // A recording that goes to the output that the file names at its start.
    for (name, then) in [("b.json", "start"), ("c.json", "nothing")] {
        write(&place, &output(name));
        program.wait_for(&format!("{} (from the next", output(name)));
        program.send(then);
        program.wait_for(&format!("done: {then}"));
    }
    let path = place.trace_of(&program, "b.json");
    let (said, out) = program.end();
    assert!(out.contains("0 slices of its own"), "{out}");
    assert!(!Trace::wait_for(&path).slices("work").is_empty() && place.traces().len() == 1, "{said}");
    drop(stub);
}

fn invalid_file_changes_nothing() {
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let program = start(&place, "serve", "HOST_NAME=first\nON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=0");
    let host_name = |name: &str| trace(&place, &stub, &program, name).json["host_name"].clone();
    assert_eq!(host_name("before.json"), "first");
    write(&place, "HOST_NAME=second\nGZIP_LEVEL=99");
    let broken = "libkineto.conf: line 2: `GZIP_LEVEL=99`: expected a whole number from 0 to 9; correct it; keeping the \
                  previous configuration";
    program.wait_for(broken);
    assert_eq!(host_name("a.json"), "first");
    fs::remove_file(place.file("libkineto.conf")).unwrap();
    let removed = "name a file that can be read in KINETO_CONFIG, or none; keeping the previous configuration";
    program.wait_for(removed);
    assert_eq!(host_name("b.json"), "first");
    // A file that replaces it atomically.
    fs::write(place.file("new"), "HOST_NAME=third\nON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=0\nUNKNOWN=1").unwrap();
    fs::rename(place.file("new"), place.file("libkineto.conf")).unwrap();
    program.wait_for("was read again: HOST_NAME=third (from the next recording on)");
    assert_eq!(host_name("c.json"), "third");
    let (said, _) = program.end();
    for message in [broken, removed, "line 3: unknown key UNKNOWN", "was read again"] {
        assert_eq!(said.matches(message).count(), 1, "{message:?} in {said}");
    }
}
