//! Threads that outlive what they record for, or record while they die.

use crate::ends::exit;
use crate::play::{play, record, record_as, work};
use crate::{Scenario, Test};
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
        // Runs while the process exits: after `main`, before the exit handlers.
        LAST.with(|last| *last.borrow_mut() = Some(Last("at_exit")));
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
        // Comes before three limits are over, one after the other, and long after one.
        let late = || {
            std::thread::sleep(LIMIT * 5 / 2);
            crate::sys::exit_now(9)
        };
        std::thread::Builder::new().spawn(late).unwrap();
        exit(0);
    }),
];

pub(crate) const TESTS: &[Test] = &[
    ("a_thread_that_outlives_main_does_no_harm", || {
        for scenario in ["outlived", "outlived_and_leaked"] {
            let file = play(scenario).succeeded().output();
            assert!(file.slices("busy") > 0 && file.slices("work") > 0);
        }
    }),
    ("spans_of_thread_local_destructors_are_recorded_or_counted", || {
        let file = play("destructors").succeeded().output();
        assert_eq!((file.slices("before"), file.slices("work")), (1, 1));
        // This one ran when the thread's own lane was gone already.
        assert_eq!(file.slices("after"), 0);
        assert!(file.lost("reentered_hooks") > 0);
    }),
    ("a_destructor_of_the_main_thread_may_record", || {
        let file = play("destructor_of_main").succeeded().output();
        assert_eq!(file.slices("work"), 1);
        assert!(file.slices("at_exit") == 1 || file.lost("reentered_hooks") > 0);
    }),
    ("a_guard_may_die_with_its_thread", || {
        let played = play("guard_in_a_destructor").succeeded();
        assert_eq!(played.output().slices("work"), 1);
    }),
    ("a_sink_that_hangs_is_waited_for_no_longer_than_was_said", || {
        for (scenario, why) in
            [("hanging_sink", "no progress for 1s"), ("hanging_sink_at_exit", "the process ended first")]
        {
            let played = play(scenario).succeeded();
            let why = format!("was not written: {why}");
            assert_eq!(played.stderr.matches(&why).count(), 1, "{}", played.stderr);
        }
    }),
    ("sinks_that_hang_at_exit_share_one_time_limit", || {
        let played = play("hanging_sinks_at_exit").succeeded();
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
        // The sender lives as long as this waits.
        let _ = nothing.recv();
        Err(std::io::Error::other("woken without a cause"))
    };
    KinetoLayer::builder().sink("hang", hang).output("hang://there").flush_timeout(std::time::Duration::from_millis(50))
}

/// Makes a span when it is dropped.
struct Last(&'static str);

impl Drop for Last {
    fn drop(&mut self) {
        match self.0 {
            "before" => tracing::info_span!("before").in_scope(|| ()),
            "after" => tracing::info_span!("after").in_scope(|| ()),
            _ => tracing::info_span!("at_exit").in_scope(|| ()),
        }
    }
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
    static FIRST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// A thread's destructors run in the reverse order of their variables' first use: `LAST`, the lane, `FIRST`, and then the
/// registry's own number of the thread, without which the registry itself can make no span.
fn destructors(folder: &Path) {
    let guard = record(folder);
    let profiler = guard.profiler();
    profiler.pause().unwrap();
    let thread = std::thread::Builder::new().spawn(move || {
        tracing::info_span!("has the registry number the thread").in_scope(|| ());
        profiler.resume().unwrap();
        FIRST.with(|first| *first.borrow_mut() = Some(Last("after")));
        work();
        LAST.with(|last| *last.borrow_mut() = Some(Last("before")));
    });
    thread.unwrap().join().unwrap();
}
