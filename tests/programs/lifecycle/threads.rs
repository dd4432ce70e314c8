//! Threads that outlive the recording, or record while they end.

use super::ends::exit;
use super::play::{play, play_by_clock, record, record_as, work};
use super::{Scenario, Test};
use std::cell::RefCell;
use std::path::Path;
use std::sync::mpsc;
use tracing_kineto::KinetoLayer;
use tracing_subscriber::prelude::*;

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("outlived", |folder| {
        let _guard = record(folder);
        busy_for_ever();
    }),
    ("outlived_and_leaked", |folder| {
        Box::leak(Box::new(record(folder)));
        busy_for_ever();
    }),
    ("destructors", destructors),
    ("destructor_of_main", |folder| {
        let guard = record(folder);
        work();
        Box::leak(Box::new(guard));
        // Runs during process exit: after `main`, before the exit handlers.
        LAST.with(|last| *last.borrow_mut() = Some(SpanOnDrop("at_exit")));
    }),
    ("guard_in_a_destructor", |folder| {
        thread_local! { static GUARD: RefCell<Option<tracing_kineto::KinetoGuard>> = const { RefCell::new(None) }; }
        let guard = record(folder);
        let thread = std::thread::Builder::new().spawn(move || {
            GUARD.with(|place| *place.borrow_mut() = Some(guard));
            work();
        });
        thread.unwrap().join().unwrap();
    }),
    ("hanging_sink", |folder| {
        let _guard = record_as(hanging(folder));
        work();
    }),
    ("hanging_sink_at_exit", |folder| {
        Box::leak(Box::new(record_as(hanging(folder))));
        work();
    }),
    ("hanging_sinks_at_exit", |folder| {
        const LIMIT: std::time::Duration = std::time::Duration::from_secs(2);
        let build = || hanging(folder).flush_timeout(LIMIT).build().unwrap();
        let ((first, _one), (second, _two), (third, _three)) = (build(), build(), build());
        tracing_subscriber::registry().with(first).with(second).with(third).init();
        work();
        // Fires before three limits in sequence would end, and long after one.
        let late = || {
            support::wait::sleep(LIMIT * 5 / 2);
            super::sys::exit_now(9)
        };
        std::thread::Builder::new().spawn(late).unwrap();
        exit(0);
    }),
];

pub(crate) const TESTS: &[Test] = &[
    ("thread_may_outlive_main", || {
        for scenario in ["outlived", "outlived_and_leaked"] {
            let file = play(scenario).succeeded().output();
            assert!(file.slices("busy") > 0 && file.slices("work") > 0);
        }
    }),
    ("spans_in_thread_destructors_are_recorded_or_counted", || {
        let file = play("destructors").succeeded().output();
        assert_eq!((file.slices("before"), file.slices("work")), (1, 1));
        // This destructor ran after the thread's lane was destroyed.
        assert_eq!(file.slices("after"), 0);
        assert!(file.lost("reentered_hooks") > 0);
    }),
    ("destructor_of_the_main_thread_may_record", || {
        let file = play("destructor_of_main").succeeded().output();
        assert_eq!(file.slices("work"), 1);
        assert!(file.slices("at_exit") == 1 || file.lost("reentered_hooks") > 0);
    }),
    ("guard_may_be_dropped_by_a_thread_local_destructor", || {
        let played = play("guard_in_a_destructor").succeeded();
        assert_eq!(played.output().slices("work"), 1);
    }),
    ("guard_waits_for_a_hung_sink_up_to_its_timeout", || {
        for (scenario, why) in
            [("hanging_sink", "no progress for 1s"), ("hanging_sink_at_exit", "the process ended first")]
        {
            let played = play_by_clock(scenario).succeeded();
            let why = format!("was not written: {why}");
            assert_eq!(played.stderr.matches(&why).count(), 1, "{}", played.stderr);
        }
    }),
    ("hung_sinks_at_exit_share_one_time_limit", || {
        let played = play_by_clock("hanging_sinks_at_exit").succeeded();
        assert_eq!(played.stderr.matches("hang://there was not written").count(), 3, "{}", played.stderr);
    }),
];

fn busy_for_ever() {
    let (ready, started) = mpsc::channel();
    let busy = move || {
        loop {
            tracing::info_span!("busy").in_scope(work);
            let _ = ready.send(());
        }
    };
    std::thread::Builder::new().spawn(busy).unwrap();
    started.recv().unwrap();
}

fn hanging(folder: &Path) -> tracing_kineto::KinetoLayerBuilder {
    let _ = folder;
    let hang = |_: &str| -> std::io::Result<Box<dyn std::io::Write + Send>> {
        let (_never, nothing) = mpsc::channel::<()>();
        // The sender outlives this wait.
        let _ = nothing.recv();
        Err(std::io::Error::other("woken without a cause"))
    };
    KinetoLayer::builder().sink("hang", hang).output("hang://there").flush_timeout(std::time::Duration::from_millis(50))
}

/// Makes a span when dropped.
struct SpanOnDrop(&'static str);

impl Drop for SpanOnDrop {
    fn drop(&mut self) {
        match self.0 {
            "before" => tracing::info_span!("before").in_scope(|| ()),
            "after" => tracing::info_span!("after").in_scope(|| ()),
            _ => tracing::info_span!("at_exit").in_scope(|| ()),
        }
    }
}

thread_local! {
    static LAST: RefCell<Option<SpanOnDrop>> = const { RefCell::new(None) };
    static FIRST: RefCell<Option<SpanOnDrop>> = const { RefCell::new(None) };
}

/// Thread-local destructors run in reverse order of first use: `LAST`, the lane, `FIRST`, then the registry's thread id,
/// without which the registry cannot make spans.
fn destructors(folder: &Path) {
    let guard = record(folder);
    let profiler = guard.profiler();
    profiler.pause().unwrap();
    let thread = std::thread::Builder::new().spawn(move || {
        tracing::info_span!("has the registry number the thread").in_scope(|| ());
        profiler.resume().unwrap();
        FIRST.with(|first| *first.borrow_mut() = Some(SpanOnDrop("after")));
        work();
        LAST.with(|last| *last.borrow_mut() = Some(SpanOnDrop("before")));
    });
    thread.unwrap().join().unwrap();
}
