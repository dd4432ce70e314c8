//! Hostile input: the program survives, can be traced afterwards, and writes nothing elsewhere.

use std::fs;
use std::os::unix::net::UnixDatagram;
use support::daemon::{Stub, answer};
use support::harness::Test;
use support::program::{Program, TestFolders, Trace};

pub(crate) const TESTS: &[Test] = &[
    ("datagrams_that_are_not_answers_are_ignored", datagrams_that_are_not_answers_are_ignored),
    ("datagrams_of_other_senders_are_ignored", datagrams_of_other_senders_are_ignored),
    ("requests_out_of_bounds_are_refused", requests_out_of_bounds_are_refused),
    ("paths_that_lead_elsewhere_are_refused", paths_that_lead_elsewhere_are_refused),
    ("random_datagrams_are_ignored", random_datagrams_are_ignored),
];

/// Requests a short trace and waits for it.
fn take_trace(place: &TestFolders, stub: &Stub, program: &Program) {
    let text = place.text_for_a_time("last.json", 10);
    stub.answer(&stub.poll_for_a_trace(), &text);
    Trace::wait_for(&place.trace_of(program, "last.json"));
}

const FAST: (&str, &str) = ("KINETO_ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS", "0");

fn datagrams_that_are_not_answers_are_ignored() {
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let program = place.start_with("serve", &[FAST]);
    let poll = stub.poll();
    let good = answer("ACTIVITIES_DURATION_MSECS=10");
    let changed = |at: usize, bytes: &[u8]| {
        let mut datagram = good.clone();
        datagram[at..at + bytes.len()].copy_from_slice(bytes);
        datagram
    };
    let huge = [u64::MAX, 1 << 60, 1 << 31, good.len() as u64, 0].map(|size| changed(0, &size.to_ne_bytes()));
    let kinds = [&b"ctxt"[..], b"REQ\0", b"reqx", b"\0\0\0"].map(|kind| changed(8, kind));
    let cut = [0, 1, 8, 39, good.len() - 1].map(|length| good[..length].to_vec());
    let no_text = changed(50, &[0xc3, 0x28]);
    let all: Vec<_> = huge.into_iter().chain(kinds).chain(cut).chain([no_text]).collect();
    for datagram in &all {
        stub.send(&poll, datagram);
        // The program's queue is short.
        stub.answer(&stub.poll(), "");
    }
    program.wait_for(&format!("datagram {} was dropped", all.len().min(10)));
    take_trace(&place, &stub, &program);
    program.end();
    assert_eq!(place.traces().len(), 1);
}

fn datagrams_of_other_senders_are_ignored() {
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let program = place.start("serve");
    let poll = stub.poll();
    let mallory = UnixDatagram::bind(place.sockets().join("mallory")).unwrap();
    let forged = answer(&place.text_for_a_time("forged.json", 1));
    // The kernel refuses the datagram: the program's socket is connected to the daemon's.
    assert!(mallory.send_to_addr(&forged, &poll.from).is_err());
    let nameless = UnixDatagram::unbound().unwrap();
    assert!(nameless.send_to_addr(&forged, &poll.from).is_err());
    stub.answer(&poll, "");
    take_trace(&place, &stub, &program);
    program.end();
    assert_eq!(place.traces().len(), 1);
}

fn requests_out_of_bounds_are_refused() {
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let program = place.start_with("serve", &[FAST]);
    let texts = [
        "ACTIVITIES_DURATION_SECS=2147483647",
        "ACTIVITIES_DURATION_MSECS=0",
        "ACTIVITIES_DURATION_MSECS=-5",
        "PROFILE_START_TIME=9223372036854775807",
        "PROFILE_START_TIME=1",
        "PROFILE_START_ITERATION=0\nACTIVITIES_ITERATIONS=2147483647",
        "ACTIVITIES_WARMUP_PERIOD_SECS=99999",
        "ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB=2147483647",
        "ACTIVITY_TYPES=everything",
        "not a request",
    ];
    for text in texts {
        stub.answer(&stub.poll_for_a_trace(), text);
    }
    stub.answer(&stub.poll_for_a_trace(), &"A=B\n".repeat(40_000));
    take_trace(&place, &stub, &program);
    let (said, _) = program.end();
    assert!(said.matches(" was refused: ").count() >= texts.len(), "{said}");
}

// Shows the key KINETO_ONDEMAND_TRACE_DIR.
fn paths_that_lead_elsewhere_are_refused() {
    let place = TestFolders::new();
    let outside = tempfile::tempdir().unwrap();
    let stub = Stub::start(&place.sockets());
    let program = place.start_with("serve", &[FAST]);
    std::os::unix::fs::symlink(outside.path(), place.trace("away")).unwrap();
    let own = place.trace_of(&program, "libkineto_activities.json");
    let outside_file = outside.path().join("t.json").display().to_string();
    for path in [
        outside_file,
        place.trace("away/t.json").display().to_string(),
        place.trace("x/../../t.json").display().to_string(),
        place.trace("../t.json").display().to_string(),
        "relative.json".to_owned(),
        "file:///tmp/t.json".to_owned(),
        "/proc/self/fd/1".to_owned(),
        "/dev/stdout".to_owned(),
    ] {
        stub.answer(&stub.poll_for_a_trace(), &format!("ACTIVITIES_LOG_FILE={path}\nACTIVITIES_DURATION_MSECS=1"));
        Trace::wait_for(&own);
        fs::remove_file(&own).unwrap();
    }
    // A link under the file's name is neither followed nor replaced.
    let target = outside.path().join("kept");
    fs::write(&target, "kept").unwrap();
    let link = place.trace_of(&program, "last.json");
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let text = place.text_for_a_time("last.json", 10);
    stub.answer(&stub.poll_for_a_trace(), &text);
    program.wait_for(&format!("last_{}.1.json: ", program.pid()));
    assert_eq!((fs::read_to_string(&target).unwrap().as_str(), link.is_symlink()), ("kept", true));
    program.end();
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

/// Sends random bytes and texts from a fixed seed.
fn random_datagrams_are_ignored() {
    const DATAGRAMS: usize = 3000;
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let program = place.start_with("serve", &[FAST]);
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let words = [
        "ACTIVITIES_LOG_FILE",
        "PROFILE_START_TIME",
        "ACTIVITY_TYPES",
        "=",
        "\n",
        "\"",
        "#",
        "-1",
        "9e9",
        "/etc/x",
        "é",
        "\0",
    ];
    let (mut sent, begun) = (0, std::time::Instant::now());
    while sent < DATAGRAMS {
        let poll = stub.poll();
        for _ in 0..8 {
            let length = next() as usize % 120;
            let datagram = match next() % 3 {
                0 => (0..length).map(|_| next() as u8).collect(),
                1 => answer(&(0..length / 8).map(|_| words[next() as usize % words.len()]).collect::<String>()),
                _ => {
                    let mut datagram = answer("ACTIVITIES_DURATION_MSECS=1");
                    let at = next() as usize % datagram.len();
                    datagram[at] = next() as u8;
                    datagram
                }
            };
            stub.send(&poll, &datagram);
            sent += 1;
        }
        stub.answer(&poll, "");
    }
    println!("{sent} datagrams in {} ms", begun.elapsed().as_millis());
    take_trace(&place, &stub, &program);
    program.end();
    let own = ["last_".to_owned(), "libkineto_activities_".to_owned(), "memory_snapshot_".to_owned()];
    assert!(place.traces().iter().all(|name| own.iter().any(|own| name.starts_with(own))), "{:?}", place.traces());
}
