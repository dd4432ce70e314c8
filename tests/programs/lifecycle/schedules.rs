//! Programs with a schedule: the running cycle when they end or fork.

use super::ends::exit;
use super::play::{OUTPUT, play, record_as, report, work};
use super::sys::{self, End};
use super::{Scenario, Test};
use std::path::{Path, PathBuf};
use tracing_kineto::{KinetoGuard, KinetoLayer, Schedule, Status, StepState, Trace};

/// Starts a schedule of one warm-up step and three recorded steps, with files of its cycles.
fn start_schedule(folder: &Path) -> KinetoGuard {
    let builder = KinetoLayer::builder().output(folder.join(OUTPUT));
    let guard = record_as(builder.schedule(Schedule::new(0, 1, 3).unwrap()));
    step(&guard, 3);
    guard
}

/// Starts that schedule with a handler that numbers its files.
fn start_handled_schedule(folder: &Path, exits: bool) -> KinetoGuard {
    let (folder, mut number) = (folder.to_owned(), 0);
    let handler = move |trace: Trace| -> Result<PathBuf, tracing_kineto::Error> {
        if exits {
            exit(3);
        }
        number += 1;
        let path = folder.join(format!("{number}.json"));
        trace.save(&path)?;
        Ok(path)
    };
    let guard = record_as(KinetoLayer::builder().schedule(Schedule::new(0, 1, 3).unwrap()).on_trace_ready(handler));
    step(&guard, 3);
    guard
}

fn step(guard: &KinetoGuard, steps: usize) {
    let profiler = guard.profiler();
    for _ in 0..steps {
        work();
        profiler.step();
    }
}

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("schedule_exit", |folder| {
        let _guard = start_schedule(folder);
        exit(0);
    }),
    ("schedule_panic", |folder| {
        let _guard = start_schedule(folder);
        panic!("in a step");
    }),
    ("schedule_handled_exit", |folder| {
        let guard = start_handled_schedule(folder, false);
        step(&guard, 4);
        exit(0);
    }),
    ("schedule_exit_in_handler", |folder| {
        let guard = start_handled_schedule(folder, true);
        step(&guard, 1);
    }),
    ("schedule_fork", |folder| {
        let guard = start_schedule(folder);
        let child = sys::fork();
        if child == 0 {
            let profiler = guard.profiler();
            let outcome = profiler.step();
            assert!(matches!(&outcome.state, StepState::Nothing { reason } if reason.contains("parent")), "{outcome}");
            // The child's own schedule, from step 0.
            profiler.start().unwrap();
            assert_eq!((profiler.status(), profiler.step().step), (Status::Prepared, 1));
            work();
            return;
        }
        report(folder, &format!("{:?} {}", sys::wait(child), child));
        step(&guard, 1);
    }),
];

pub(crate) const TESTS: &[Test] = &[
    ("running_cycle_is_written_when_the_process_exits", || {
        let played = play("schedule_exit").succeeded();
        assert_eq!(played.files(), ["out.1.pt.trace.json"], "{}", played.stderr);
        let file = played.file("out.1.pt.trace.json");
        assert_eq!((file.slices("work"), file.slices("ProfilerStep#2"), file.slices("ProfilerStep#3")), (2, 1, 1));
    }),
    ("running_cycle_is_written_when_a_panic_ends_the_process", || {
        let played = play("schedule_panic");
        assert_eq!(played.status.code(), Some(101));
        assert_eq!(played.file("out.1.pt.trace.json").slices("work"), 2);
    }),
    ("handler_gets_the_running_cycle_when_the_process_exits", || {
        let played = play("schedule_handled_exit").succeeded();
        assert_eq!(played.files(), ["1.json", "2.json"], "{}", played.stderr);
        assert_eq!((played.file("1.json").slices("work"), played.file("2.json").slices("work")), (3, 2));
    }),
    ("handler_may_end_the_process", || {
        let played = play("schedule_exit_in_handler");
        assert_eq!((played.status.code(), played.files()), (Some(3), vec![]), "{}", played.stderr);
    }),
    ("forked_child_has_no_schedule_and_may_start_its_own", || {
        let played = play("schedule_fork").succeeded();
        let report = played.report();
        let (end, child) = report.trim().rsplit_once(' ').unwrap();
        assert_eq!(end, format!("{:?}", End::Exit(0)), "{}", played.stderr);
        let theirs = format!("out_{child}.1.pt.trace.json");
        assert_eq!(played.files(), ["out.1.pt.trace.json", &theirs, "report"], "{}", played.stderr);
        assert_eq!((played.file("out.1.pt.trace.json").slices("work"), played.file(&theirs).slices("work")), (3, 1));
    }),
];
