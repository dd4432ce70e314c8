//! Many polls and traces of one program: no leaks.

use support::daemon::Stub;
use support::harness::Test;
use support::program::{TestFolders, Trace};

pub(crate) const TESTS: &[Test] = &[("polls_and_traces_leak_nothing", || soak(400, 40))];

/// Makes as many polls as in a day; takes a quarter of an hour. `cargo test --test programs -- --play soak`
pub(crate) fn long() {
    soak(100_000, 10_000);
}

/// Answers polls, some with requests, and checks the program's memory and descriptors.
fn soak(polls: usize, traces: usize) {
    let place = TestFolders::new();
    let stub = Stub::start(&place.sockets());
    let fast = ("KINETO_ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS", "0");
    let program = place.start_with("serve", &[fast, ("KINETO_LOG_LEVEL", "error")]);
    let path = place.trace_of(&program, "a.json");
    let text = place.text_for_a_time("a.json", 2);
    let (mut asked, mut done, mut figures) = (0, 0, Vec::new());
    while asked < polls || done < traces {
        let poll = stub.poll();
        asked += 1;
        match poll.wanted() == 2 && done < traces && asked >= done * (polls / traces) {
            false => stub.answer(&poll, ""),
            true => {
                stub.answer(&poll, &text);
                Trace::wait_for(&path);
                std::fs::remove_file(&path).unwrap();
                done += 1;
            }
        }
        if asked % (polls / 8) == 0 {
            figures.push((asked, done, resident(program.pid()), descriptors(program.pid())));
        }
    }
    println!("polls, traces, KiB of memory, descriptors: {figures:?}");
    let (early, last) = (figures[1], figures[figures.len() - 1]);
    // Allows a file that is open now and pages first touched later, but nothing per trace.
    assert!(last.3 <= early.3 + 2 && last.2 < early.2 + 4096, "{figures:?}");
    program.end();
}

/// Returns a process's resident memory in KiB.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}
