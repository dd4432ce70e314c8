//! Daemons that are absent, restarted, slow or impersonated.

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Instant;
use support::daemon::{Daemon, Stub, answer, is_available};
use support::harness::Test;
use support::program::{Program, TestFolders, Trace};

pub(crate) const TESTS: &[Test] = &[
    ("late_daemon_is_found", late_daemon_is_found),
    ("restarted_daemon_is_found", restarted_daemon_is_found),
    ("request_works_when_answers_take_a_third_of_a_second", || slow("0.3")),
    ("request_works_when_answers_take_two_seconds", || slow("2")),
    ("request_works_when_answers_are_lost", request_works_when_answers_are_lost),
    ("polls_have_the_daemons_format", polls_have_the_daemons_format),
    ("socket_folder_may_be_made_again", socket_folder_may_be_made_again),
    ("socket_folder_may_be_made_late", socket_folder_may_be_made_late),
    ("daemon_that_replaces_a_hung_one_is_found", daemon_that_replaces_a_hung_one_is_found),
    ("sockets_of_killed_programs_are_removed", sockets_of_killed_programs_are_removed),
    ("impostor_of_the_daemon_is_rejected", impostor_of_the_daemon_is_rejected),
];

fn trace_once(place: &TestFolders, daemon: &Daemon, program: &Program, name: &str) -> u128 {
    let text = place.text_for_a_time(name, 50);
    daemon.trigger_all(&text, &[program.pid()]);
    let asked = Instant::now();
    Trace::wait_for(&place.trace_of(program, name));
    asked.elapsed().as_millis()
}

fn late_daemon_is_found() {
    if !is_available() {
        return;
    }
    let place = TestFolders::new();
    let program = place.start("serve");
    program.wait_for("the dynolog daemon is not reachable");
    let daemon = Daemon::start(&place.sockets(), &[]);
    trace_once(&place, &daemon, &program, "a.json");
    let (said, _) = program.end();
    assert_eq!(said.matches("the dynolog daemon is").count(), 1, "{said}");
}

fn restarted_daemon_is_found() {
    if !is_available() {
        return;
    }
    let place = TestFolders::new();
    let daemon = Daemon::start(&place.sockets(), &[]);
    let program = place.start("serve");
    trace_once(&place, &daemon, &program, "a.json");
    drop(daemon);
    program.wait_for("the dynolog daemon is no longer reachable");
    let daemon = Daemon::start(&place.sockets(), &[]);
    trace_once(&place, &daemon, &program, "b.json");
    let (said, _) = program.end();
    assert_eq!(said.matches("registered with the dynolog daemon").count(), 2, "{said}");
}

fn slow(seconds: &str) {
    if !is_available() {
        return;
    }
    let place = TestFolders::new();
    let daemon = Daemon::start(&place.sockets(), &["--reply-delay", seconds]);
    let program = place.start("serve");
    let took = ["a.json", "b.json"].map(|name| trace_once(&place, &daemon, &program, name));
    println!("answers take {seconds} s: from the trigger to the file {took:?} ms");
    let (said, _) = program.end();
    assert!(!said.contains("was dropped"), "{said}");
}

fn request_works_when_answers_are_lost() {
    if !is_available() {
        return;
    }
    let place = TestFolders::new();
    let daemon = Daemon::start(&place.sockets(), &["--lose", "1"]);
    let program = place.start("serve");
    program.wait_for("registered");
    trace_once(&place, &daemon, &program, "a.json");
    program.end();
}

// Shows the key SLURM_JOB_ID.
fn polls_have_the_daemons_format() {
    let place = TestFolders::new();
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

/// Answers the program's next poll with a trace request, and waits for the file.
fn trace_by(place: &TestFolders, daemon: &Stub, program: &Program, name: &str) {
    daemon.answer(&daemon.poll_for_a_trace(), &place.text_for_a_time(name, 10));
    Trace::wait_for(&place.trace_of(program, name));
}

fn socket_folder_may_be_made_again() {
    let place = TestFolders::new();
    let before = Stub::start(&place.sockets());
    let program = place.start("serve");
    trace_by(&place, &before, &program, "a.json");
    fs::remove_dir_all(place.sockets()).unwrap();
    fs::create_dir(place.sockets()).unwrap();
    // The old daemon is stopped: it receives polls but answers none.
    trace_by(&place, &Stub::start(&place.sockets()), &program, "b.json");
    drop(before);
    program.end();
    assert_eq!(fs::read_dir(place.sockets()).unwrap().count(), 1, "the program has removed its socket");
}

fn socket_folder_may_be_made_late() {
    let place = TestFolders::new();
    fs::remove_dir(place.sockets()).unwrap();
    let program = place.start("serve");
    program.wait_for(&format!("polling continues: create {}", place.sockets().display()));
    fs::create_dir(place.sockets()).unwrap();
    trace_by(&place, &Stub::start(&place.sockets()), &program, "a.json");
    let (said, _) = program.end();
    assert_eq!(said.matches("cannot be polled").count(), 1, "{said}");
}

fn daemon_that_replaces_a_hung_one_is_found() {
    let place = TestFolders::new();
    let hangs = Stub::start(&place.sockets());
    let program = place.start("serve");
    hangs.poll();
    fs::remove_file(place.sockets().join("dynolog")).unwrap();
    trace_by(&place, &Stub::start(&place.sockets()), &program, "a.json");
    program.end();
}

fn sockets_of_killed_programs_are_removed() {
    let place = TestFolders::new();
    let daemon = Stub::start(&place.sockets());
    let (mut killed, lives) = (place.start("serve"), place.start("serve"));
    let sockets = || {
        let names = fs::read_dir(place.sockets()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.retain(|name| name != "dynolog");
        names.sort();
        names
    };
    let is_of = |name: &String, program: &Program| name.starts_with(&format!("dynoconfigclient{}-", program.pid()));
    for program in [&killed, &lives] {
        while !sockets().iter().any(|name| is_of(name, program)) {}
    }
    let pid = killed.pid();
    killed.kill();
    assert_eq!(sockets().len(), 2);
    let next = place.start("serve");
    while !sockets().iter().any(|name| is_of(name, &next)) {}
    assert!(sockets().len() == 2 && sockets().iter().any(|name| is_of(name, &lives)), "{:?} {pid}", sockets());
    // The live program still gets answers.
    let text = answer(&place.text_for_a_time("a.json", 10));
    while !place.trace_of(&lives, "a.json").exists() {
        let poll = daemon.poll();
        let is_of_lives =
            is_of(&poll.from.as_pathname().unwrap().file_name().unwrap().to_str().unwrap().to_owned(), &lives);
        if poll.wanted() == 2 && is_of_lives {
            daemon.send(&poll, &text);
        }
    }
    next.end();
    lives.end();
}

/// An untrusted user with access to the program's socket takes the daemon's name.
fn impostor_of_the_daemon_is_rejected() {
    const FLOOD_SCRIPT: &str = r#"
import os, socket, struct, sys
folder, text = sys.argv[1], sys.argv[2].encode()
ours = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
ours.bind(folder + "/dynolog")
os.chmod(folder + "/dynolog", 0o666)
print("READY", flush=True)
_, program = ours.recvfrom(4096)
ours.connect(program)
sent = 0
try:
    while True:
        ours.send(struct.pack("=Q32s", len(text), b"req") + text)
        sent += 1
except OSError as error:
    print(sent, error.strerror, flush=True)
"#;
    let place = TestFolders::new();
    for folder in [place.file(""), place.sockets()] {
        fs::set_permissions(folder, Permissions::from_mode(0o777)).unwrap();
    }
    let mut impostor = Command::new("python3");
    impostor.args(["-c", FLOOD_SCRIPT]).arg(place.sockets()).arg(place.text_for_a_time("theirs.json", 10)).uid(65534);
    let Ok(mut impostor) = impostor.stdout(Stdio::piped()).spawn() else {
        println!("skipped: needs root and python3");
        return;
    };
    let mut out = impostor.stdout.take().unwrap();
    out.read_exact(&mut [0; b"READY\n".len()]).unwrap();
    let program = place.start_with("serve", &[("KINETO_DAEMON_UID", "65533")]);
    program.wait_for("may be impersonated: a process of user 65534 answers under its name");
    let mut sent = String::new();
    out.read_to_string(&mut sent).unwrap();
    let (sent, why) = sent.trim().split_once(' ').unwrap();
    // At most the contents of its send buffer.
    assert!(sent.parse::<u64>().unwrap() < 10_000, "{sent} datagrams were let in, then: {why}");
    assert_eq!(why, "Connection refused");
    impostor.wait().unwrap();
    fs::remove_file(place.sockets().join("dynolog")).unwrap();
    trace_by(&place, &Stub::start(&place.sockets()), &program, "ours.json");
    let (said, _) = program.end();
    assert!(!said.contains("theirs"), "{said}");
    assert_eq!(place.traces().len(), 1);
}
