//! Ends of traced programs, and the threads of idle ones.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use support::daemon::Stub;
use support::harness::Test;
use support::program::{TestFolders, Trace};

pub(crate) const TESTS: &[Test] = &[
    ("running_request_is_written_when_the_guard_is_dropped", || collected_at_the_end("serve")),
    ("running_request_is_written_when_the_process_exits", || collected_at_the_end("exits")),
    ("exit_does_not_wait_for_an_absent_daemon", exit_does_not_wait_for_an_absent_daemon),
    ("exit_does_not_wait_for_a_hung_daemon", exit_does_not_wait_for_a_hung_daemon),
    ("no_thread_is_started_without_the_variable", no_thread_is_started_without_the_variable),
    ("set_user_id_program_serves_no_requests", set_user_id_program_serves_no_requests),
    ("forked_child_does_not_poll_the_daemon", forked_child_does_not_poll_the_daemon),
    ("workers_serve_requests_after_a_fork", workers_serve_requests_after_a_fork),
];

fn collected_at_the_end(scenario: &str) {
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let program = place.start(scenario);
    let text = place.text_for("a.json", "ACTIVITIES_DURATION_SECS=600");
    stub.answer(&stub.poll(), &text);
    program.wait_for("recording started");
    let path = place.trace_of(&program, "a.json");
    let (said, _) = program.end();
    assert!(said.contains("(ended early: the program ends)"), "{said}");
    assert!(!Trace::wait_for(&path).slices("work").is_empty());
    assert_eq!((place.traces().len(), std::fs::read_dir(place.sockets()).unwrap().count()), (1, 1));
}

fn exit_does_not_wait_for_an_absent_daemon() {
    let place = TestFolders::new();
    let mut program = place.start("idle");
    program.wait_for("the dynolog daemon is not reachable");
    program.send("threads");
    let (_, out) = program.end();
    println!("no daemon: {out}");
    assert!(out.contains("kineto-ondemand"), "{out}");
}

fn exit_does_not_wait_for_a_hung_daemon() {
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let program = place.start("idle");
    stub.poll();
    let (_, out) = program.end();
    println!("a daemon that does not answer: {out}");
    // Nor when the daemon's queue is full.
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

// Shows the key KINETO_USE_DAEMON.
fn no_thread_is_started_without_the_variable() {
    for value in ["", "0", "off", "FALSE"] {
        let place = TestFolders::new();
        let env = [("KINETO_USE_DAEMON", value), ("KINETO_ENABLED", "1"), ("KINETO_RECORD_FROM_START", "0")];
        let mut program = place.start_with("idle", &env);
        program.send("threads");
        let (said, out) = program.end();
        assert!(out.contains("threads: programs"), "{value:?}: {out}");
        assert!(!out.contains("kineto-ondemand") && said.is_empty(), "{value:?}: {out} {said}");
    }
}

/// The caller of such a program controls its environment.
fn set_user_id_program_serves_no_requests() {
    const OTHER_USER: u32 = 65534;
    let place = TestFolders::new();
    let program = place.trace("set-user-id");
    // Another process copies it: a child of a concurrent test would inherit the open file and prevent its execution.
    assert!(Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status().unwrap().success());
    if std::os::unix::fs::chown(&program, Some(OTHER_USER), None).is_err() {
        println!("skipped: only root can give a program to another user");
        return;
    }
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let env = [("KINETO_USE_DAEMON", "1"), ("KINETO_CONFIG", "/dev/null"), ("KINETO_DISABLE_CUPTI", "1")];
    let mut command = Command::new(&program);
    command.args(["--play", "idle"]).env_clear().envs(env);
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap().to_owned();
    process.stdin.take().unwrap().write_all(b"threads\n").unwrap();
    let output = process.wait_with_output().unwrap();
    if users.split_whitespace().nth(1) != Some("65534") {
        println!("skipped: the file system ignores set-user-ID");
        return;
    }
    let [said, out] = [output.stderr, output.stdout].map(|text| String::from_utf8(text).unwrap());
    assert!(said.contains("the environment is not read and no library is loaded"), "{said}");
    assert!(output.status.success() && !out.contains("kineto-ondemand"), "{out}");
}

fn forked_child_does_not_poll_the_daemon() {
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let program = place.start("forks");
    stub.answer(&stub.poll(), "");
    program.wait_for("the child has ended with 7");
    let text = place.text_for_a_time("a.json", 10);
    stub.answer(&stub.poll_for_a_trace(), &text);
    Trace::wait_for(&place.trace_of(&program, "a.json"));
    program.end();
    assert_eq!(place.traces().len(), 1);
}

fn workers_serve_requests_after_a_fork() {
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let mut program = place.start("preforks");
    // The server forks while a second request records it.
    let server = program.pid();
    for (name, milliseconds) in [("first.json", 10), ("second.json", 500)] {
        stub.answer(&stub.poll_for_a_trace(), &place.text_for_a_time(name, milliseconds));
        program.wait_for(&format!("into {}", place.trace_of(&program, name).display()));
    }
    program.wait_for_times("recording started", 2);
    program.send("fork");
    let mut traced = std::collections::BTreeSet::new();
    while traced.len() < 2 {
        let poll = stub.poll_for_a_trace();
        let pid = u32::from_ne_bytes(poll.bytes[56..60].try_into().unwrap());
        let is_new = pid != server && traced.insert(pid);
        stub.answer(&poll, &if is_new { place.text_for_a_time("worker.json", 200) } else { String::new() });
    }
    let works = |path: &std::path::Path, pid: u32| {
        let trace = Trace::wait_for(path);
        let works = trace.slices("work");
        assert!(!works.is_empty() && works.iter().all(|slice| slice["pid"] == pid), "{}", path.display());
    };
    traced.iter().for_each(|pid| works(&place.trace(&format!("worker_{pid}.json")), *pid));
    works(&place.trace_of(&program, "second.json"), server);
    let (said, _) = program.end();
    assert_eq!(said.matches("registered with the dynolog daemon").count(), 3, "{said}");
}
