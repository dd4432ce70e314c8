//! Signals: SIGINT, SIGTERM and SIGHUP write the trace.

use super::ends::exit;
use super::play::{self, OUTPUT, Played, play, play_by_clock, record, record_as, report, work};
use super::sys::{self, End};
use super::{Scenario, Test};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;
use support::wait_for_rest;
use tracing_kineto::{KinetoGuard, KinetoLayer, Schedule, tensorboard_trace_handler};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("signal_int", |folder| recorded_and_raised(folder, libc::SIGINT)),
    ("signal_term", |folder| recorded_and_raised(folder, libc::SIGTERM)),
    ("signal_hup", |folder| recorded_and_raised(folder, libc::SIGHUP)),
    ("signal_off", |folder| {
        let _guard = record_as(KinetoLayer::builder().output(folder.join(OUTPUT)).flush_on_signals(false));
        work();
        sys::raise(libc::SIGINT);
        wait_for_the_end();
    }),
    ("signal_without_spans", |folder| {
        let _guard = record(folder);
        sys::raise(libc::SIGINT);
        wait_for_the_end();
    }),
    ("signal_handled_before", |folder| {
        sys::count(libc::SIGINT);
        handled(folder, || ());
    }),
    ("signal_handled_after", |folder| handled(folder, || sys::count(libc::SIGINT))),
    ("signal_chained_after", |folder| handled(folder, || sys::chain(libc::SIGINT))),
    ("signal_ignored", |folder| {
        sys::ignore(libc::SIGINT);
        let _guard = record(folder);
        work();
        sys::raise(libc::SIGINT);
        report(folder, "alive");
    }),
    ("signal_twice", |_| {
        // Takes no bytes and never returns; meanwhile, the second signal comes.
        let stuck = |_: &str| -> std::io::Result<Box<dyn std::io::Write + Send>> {
            sys::raise(libc::SIGINT);
            wait_for_the_end()
        };
        let builder = KinetoLayer::builder().sink("stuck", stuck).output("stuck://x.json");
        let _guard = record_as(builder.flush_timeout(Duration::from_secs(60)));
        work();
        sys::raise(libc::SIGINT);
        wait_for_the_end();
    }),
    ("signal_while_the_guard_writes", |_| {
        let interrupted = |_: &str| -> std::io::Result<Box<dyn std::io::Write + Send>> {
            sys::raise(libc::SIGINT);
            Ok(Box::new(std::io::sink()))
        };
        let _guard = record_as(KinetoLayer::builder().sink("interrupted", interrupted).output("interrupted://x.json"));
        work();
    }),
    ("signal_in_a_cycle", |folder| {
        let _guard = scheduled(folder, Schedule::default().active(5));
        sys::raise(libc::SIGINT);
        wait_for_the_end();
    }),
    ("exit_in_a_warmup", |folder| {
        let _guard = scheduled(folder, Schedule::default().warmup(2).active(5));
        exit(0);
    }),
    ("signal_at_random", |folder| {
        let guard = record(folder);
        work();
        report(folder, "ready");
        (0..20_000).for_each(|_| work());
        drop(guard);
        wait_for_the_end();
    }),
    ("signal_in_fork", signal_in_fork),
];

pub(crate) const TESTS: &[Test] = &[
    ("signals_leave_a_whole_file_and_end_the_process", || {
        for (name, signal) in
            [("signal_int", libc::SIGINT), ("signal_term", libc::SIGTERM), ("signal_hup", libc::SIGHUP)]
        {
            let played = play(name);
            assert_eq!(played.status.signal(), Some(signal), "{}", played.stderr);
            assert_eq!(played.output().slices("work"), 1);
            assert_eq!(played.stderr.matches("wrote /").count(), 1, "{}", played.stderr);
        }
    }),
    ("signal_ends_the_process_while_the_guard_writes", || {
        for _ in 0..5 {
            let played = play("signal_while_the_guard_writes");
            assert_eq!(played.status.signal(), Some(libc::SIGINT), "{}", played.stderr);
        }
    }),
    ("signal_in_a_cycle_reports_the_file", || {
        let played = play("signal_in_a_cycle");
        assert_eq!((played.status.signal(), played.files().len()), (Some(libc::SIGINT), 1), "{}", played.stderr);
        assert!(played.stderr.contains("wrote /") && played.stderr.contains("slice"), "{}", played.stderr);
    }),
    ("exit_in_a_warmup_reports_why_there_is_no_trace", || {
        let played = play("exit_in_a_warmup").succeeded();
        assert!(played.files().is_empty(), "{:?}", played.files());
        assert!(played.stderr.contains("the schedule ended during warm-up, 1 more step needed"), "{}", played.stderr);
    }),
    ("signal_ends_the_first_process_of_a_container", || {
        for (name, signal) in [("signal_int", libc::SIGINT), ("signal_term", libc::SIGTERM)] {
            let Some(played) = play::play_as_first_process(name) else { return };
            assert_eq!(played.status.code(), Some(128 + signal), "{}", played.stderr);
            assert_eq!(played.output().slices("work"), 1);
        }
        let Some(played) = play::play_as_first_process("signal_without_spans") else { return };
        assert_eq!(played.status.code(), Some(128 + libc::SIGINT), "{}", played.stderr);
    }),
    // Shows the key FLUSH_ON_SIGNALS.
    ("signal_leaves_nothing_when_flushing_is_off", || {
        let played = play("signal_off");
        assert_eq!((played.status.signal(), played.files().len()), (Some(libc::SIGINT), 0), "{}", played.stderr);
    }),
    ("signal_ends_the_process_when_nothing_was_recorded", || {
        let played = play("signal_without_spans");
        assert_eq!((played.status.signal(), played.files().len()), (Some(libc::SIGINT), 0), "{}", played.stderr);
        assert!(played.stderr.contains("nothing was recorded: "), "{}", played.stderr);
    }),
    ("signal_handlers_of_the_program_keep_control", || {
        for name in ["signal_handled_before", "signal_handled_after", "signal_chained_after"] {
            let played = play_by_clock(name).succeeded();
            assert_eq!(played.report(), "2 signals, file: false\n", "{name}: {}", played.stderr);
            assert_eq!(played.file(OUTPUT).slices("work"), 1);
        }
    }),
    ("signal_stays_ignored_when_it_was", || {
        let played = play("signal_ignored").succeeded();
        assert_eq!(played.report(), "alive\n");
        assert_eq!(played.file(OUTPUT).slices("work"), 1);
    }),
    ("second_signal_ends_the_process_at_once", || {
        let played = play("signal_twice");
        assert_eq!(played.status.signal(), Some(libc::SIGINT), "{}", played.stderr);
    }),
    ("signal_at_any_moment_leaves_a_whole_file", || {
        const ROUNDS: u64 = 10;
        let mut slices = Vec::new();
        for round in 0..ROUNDS {
            let is_ready = |folder: &Path| folder.join("report").exists();
            // Delays from the first span to after the drop of the guard.
            let delay = Duration::from_micros((round * 50_021 + u64::from(std::process::id()) * 7919) % 500_000);
            let played: Played = play::interrupt("signal_at_random", is_ready, delay, libc::SIGINT);
            assert_eq!(played.status.signal(), Some(libc::SIGINT), "{}", played.stderr);
            assert_eq!(played.files(), [OUTPUT, "report"], "after {delay:?}: {}", played.stderr);
            slices.push(played.file(OUTPUT).slices("work"));
        }
        assert!(slices.iter().all(|count| (1..=20_001).contains(count)), "{slices:?}");
    }),
    ("signal_to_a_forked_child_spares_the_parent", || {
        let played = play_by_clock("signal_in_fork").succeeded();
        assert_eq!(played.report(), "Signal(15)\nno file yet\n", "{}", played.stderr);
        assert_eq!(played.file(OUTPUT).slices("work"), 1);
    }),
];

fn recorded_and_raised(folder: &Path, signal: i32) {
    let _guard = record(folder);
    work();
    sys::raise(signal);
    wait_for_the_end();
}

/// Starts a schedule and returns in its second step.
fn scheduled(folder: &Path, schedule: Schedule) -> KinetoGuard {
    let builder = KinetoLayer::builder().schedule(schedule).on_trace_ready(tensorboard_trace_handler(folder));
    let guard = record_as(builder);
    work();
    guard.profiler().step();
    work();
    guard
}

/// Raises two signals that the program handles; `install` runs after the layer is built.
fn handled(folder: &Path, install: fn()) {
    let _guard = record(folder);
    install();
    work();
    sys::raise(libc::SIGINT);
    sys::raise(libc::SIGINT);
    // A signal thread of the library, if there were one, has written by then.
    wait_for_rest();
    report(folder, &format!("{} signals, file: {}", sys::counted(), folder.join(OUTPUT).exists()));
}

/// Waits for the signal to end the process.
fn wait_for_the_end() -> ! {
    std::thread::sleep(Duration::from_secs(60));
    sys::exit_now(99)
}

fn signal_in_fork(folder: &Path) {
    let _guard = record(folder);
    work();
    let child = sys::fork();
    if child == 0 {
        sys::raise(libc::SIGTERM);
        wait_for_the_end();
    }
    let end: End = sys::wait(child);
    report(folder, &format!("{end:?}"));
    // A signal thread of this process, if there were one, has written by then.
    wait_for_rest();
    let early = folder.join(OUTPUT).exists();
    report(folder, if early { "a file" } else { "no file yet" });
}
