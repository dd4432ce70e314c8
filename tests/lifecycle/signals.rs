//! SIGTERM, with and without the opt-in.

use crate::play::{play, record, record_as, report, work};
use crate::sys::{self, End};
use crate::{Scenario, Test};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;
use tracing_kineto::{KinetoGuard, KinetoLayer};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("term", |folder| {
        let _guard = record(folder);
        work();
        sys::raise(libc::SIGTERM);
        wait_for_the_end();
    }),
    ("term_flushed", |folder| {
        let _guard = watched(folder);
        work();
        sys::raise(libc::SIGTERM);
        wait_for_the_end();
    }),
    ("term_handled", |folder| {
        sys::count(libc::SIGTERM);
        let _guard = watched(folder);
        work();
        sys::raise(libc::SIGTERM);
        while sys::counted() == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        // The file was there before the program's own handler was called.
        report(folder, &format!("{}", folder.join(crate::play::OUTPUT).exists()));
        sys::raise(libc::SIGTERM);
        report(folder, &format!("{}", sys::counted()));
        crate::ends::exit(3);
    }),
    ("term_ignored", |folder| {
        sys::ignore(libc::SIGTERM);
        let _guard = watched(folder);
        work();
        sys::raise(libc::SIGTERM);
        while !folder.join(crate::play::OUTPUT).exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        sys::raise(libc::SIGTERM);
        sys::exit_now(4);
    }),
    ("term_of_a_fork", term_of_a_fork),
];

pub(crate) const TESTS: &[Test] = &[
    ("sigterm_ends_the_process_as_ever_and_leaves_nothing_half_written", || {
        let played = play("term");
        assert_eq!((played.status.signal(), played.files().len()), (Some(libc::SIGTERM), 0), "{}", played.stderr);
    }),
    ("sigterm_is_preceded_by_a_whole_file_where_it_was_asked_for", || {
        let played = play("term_flushed");
        assert_eq!(played.status.signal(), Some(libc::SIGTERM), "{}", played.stderr);
        assert_eq!(played.output().slices("work"), 1);
    }),
    ("a_handler_of_the_programs_own_is_called_after_the_file_is_written", || {
        let played = play("term_handled");
        assert_eq!(played.status.code(), Some(3), "{}", played.stderr);
        assert_eq!(played.report(), "true\n2\n");
        assert_eq!(played.file(crate::play::OUTPUT).slices("work"), 1);
    }),
    ("a_program_that_ignores_sigterm_gets_its_file_and_goes_on", || {
        let played = play("term_ignored");
        assert_eq!(played.status.code(), Some(4), "{}", played.stderr);
        assert_eq!(played.output().slices("work"), 1);
    }),
    ("sigterm_to_a_forked_child_is_the_childs_alone", || {
        let played = play("term_of_a_fork").succeeded();
        assert_eq!(played.report(), "Signal(15)\nno file yet\n", "{}", played.stderr);
        assert_eq!(played.file(crate::play::OUTPUT).slices("work"), 1);
    }),
];

fn watched(folder: &Path) -> KinetoGuard {
    record_as(KinetoLayer::builder().output(folder.join(crate::play::OUTPUT)).flush_on_sigterm(true))
}

/// Waits for the signal to end the process, for longer than it takes.
fn wait_for_the_end() -> ! {
    std::thread::sleep(Duration::from_secs(60));
    sys::exit_now(99)
}

fn term_of_a_fork(folder: &Path) {
    let _guard = watched(folder);
    work();
    let child = sys::fork();
    if child == 0 {
        sys::raise(libc::SIGTERM);
        wait_for_the_end();
    }
    let end: End = sys::wait(child);
    report(folder, &format!("{end:?}"));
    // Time enough for a thread of this process that had taken the signal for its own.
    std::thread::sleep(Duration::from_millis(100));
    let early = folder.join(crate::play::OUTPUT).exists();
    report(folder, if early { "a file" } else { "no file yet" });
}
