//! Forks: the child leaves its parent's recording alone, and may start its own.

use super::ends::exit;
use super::play::{File, OUTPUT, play, record, record_as, report, work};
use super::sys::{self, End};
use super::{Scenario, Test};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Instant;
use tracing_kineto::integration::Collector;
use tracing_kineto::integration::{Capabilities, RecordSink, Recording, Selection, Unavailable};
use tracing_kineto::torch::Libkineto;
use tracing_kineto::{
    ActivityType, ActivityTypes, ErrorKind, KinetoLayer, Mode, ObservedSpan, RecordingFlags, SessionObserver,
    SpanObserver, Status, Timestamp, memory,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("fork", |folder| {
        let _guard = record(folder);
        let _open = tracing::info_span!("open").entered();
        work();
        let child = sys::fork();
        if child == 0 {
            in_child(100);
            exit(0);
        }
        report(folder, &format!("{:?} {}", sys::wait(child), folder.join(OUTPUT).exists()));
        work();
    }),
    ("fork_returns", |folder| {
        let guard = record(folder);
        work();
        let child = sys::fork();
        if child == 0 {
            // The child runs to the end of main with a copy of the guard.
            in_child(1);
            assert_eq!(guard.profiler().status(), Status::Idle);
            assert_eq!(guard.finish().unwrap_err().kind(), ErrorKind::Forked);
            return;
        }
        report(folder, &format!("{:?} {}", sys::wait(child), folder.join(OUTPUT).exists()));
    }),
    ("fork_starts", fork_starts),
    ("fork_exits", |folder| {
        let guard = record(folder);
        work();
        let child = sys::fork();
        if child == 0 {
            guard.profiler().start().unwrap();
            in_child(2);
            exit(0);
        }
        report(folder, &format!("{child} {:?} {}", sys::wait(child), folder.join(OUTPUT).exists()));
    }),
    ("fork_drops", |folder| {
        let guard = record(folder);
        work();
        let child = sys::fork();
        if child == 0 {
            guard.profiler().start().unwrap();
            in_child(2);
            return;
        }
        report(folder, &format!("{child} {:?} {}", sys::wait(child), folder.join(OUTPUT).exists()));
    }),
    ("fork_of_a_fork", fork_of_a_fork),
    ("fork_builds", |folder| {
        let guard = record(folder);
        work();
        let child = sys::fork();
        if child == 0 {
            use tracing_subscriber::prelude::*;
            let build = KinetoLayer::builder().output(folder.join("child.json")).build();
            let (layer, _guard) = build.unwrap();
            tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || in_child(2));
            drop(guard);
            return;
        }
        report(folder, &format!("{:?}", sys::wait(child)));
    }),
    ("fork_with_collector", fork_with_collector),
    ("fork_while_a_clock_is_read", fork_while_a_clock_is_read),
    ("fork_with_observer", fork_with_observer),
    ("fork_with_session_observer", fork_with_session_observer),
    ("fork_with_memory_profile", fork_with_memory_profile),
    ("fork_with_counters", fork_with_counters),
    ("fork_inside_of_a_span_that_is_waited_for", fork_inside_of_a_span_that_is_waited_for),
    ("forks_among_threads", forks_among_threads),
    ("forks_beside_ending_threads", forks_beside_ending_threads),
];

pub(crate) const TESTS: &[Test] = &[
    ("forked_child_records_and_writes_nothing", || {
        let played = play("fork").succeeded();
        assert_eq!(played.report(), "Exit(0) false\n", "{}", played.stderr);
        let file = played.file(OUTPUT);
        assert_eq!((file.slices("work"), file.slices("open"), file.slices("child")), (2, 1, 0));
        assert_eq!(file.processes(), [i64::from(played.pid)]);
        assert_eq!(played.files(), [OUTPUT, "report"]);
    }),
    ("guard_copied_by_a_fork_does_nothing_in_the_child", || {
        let played = play("fork_returns").succeeded();
        assert_eq!(played.report(), "Exit(0) false\n", "{}", played.stderr);
        assert_eq!((played.file(OUTPUT).slices("work"), played.file(OUTPUT).slices("child")), (1, 0));
        assert_eq!(played.files(), [OUTPUT, "report"]);
    }),
    ("forked_child_may_start_its_own_recording", || {
        let played = play("fork_starts").succeeded();
        let (parent, child) = (played.file(OUTPUT), played.file("child.json"));
        assert_eq!((parent.slices("work"), parent.slices("child")), (2, 0));
        assert_eq!((child.slices("work"), child.slices("child"), child.slices("open")), (0, 5, 0));
        assert_eq!(played.report(), format!("Exit(0)\n{}\n", child.processes()[0]), "{}", played.stderr);
        assert_ne!(child.processes(), parent.processes());
        assert_ne!(child.json["trace_id"], parent.json["trace_id"]);
    }),
    ("forked_child_does_not_replace_its_parents_file", || {
        for scenario in ["fork_exits", "fork_drops"] {
            let played = play(scenario).succeeded();
            let report = played.report();
            let (pid, rest) = report.trim_end().split_once(' ').unwrap();
            assert_eq!(rest, "Exit(0) false", "{scenario}: {}", played.stderr);
            let own = format!("out_{pid}.pt.trace.json");
            assert_eq!(played.files(), [OUTPUT, own.as_str(), "report"], "{scenario}");
            assert_eq!((played.file(OUTPUT).slices("work"), played.file(OUTPUT).slices("child")), (1, 0));
            assert_eq!((played.file(&own).slices("work"), played.file(&own).slices("child")), (0, 2));
        }
    }),
    ("nested_fork_may_record_whether_its_parent_did_or_not", || {
        let played = play("fork_of_a_fork").succeeded();
        assert_eq!(played.report(), "grandchild Exit(0)\ngrandchild Exit(0)\nchild Exit(0)\n", "{}", played.stderr);
        let (parent, child) = (played.file(OUTPUT), played.file("child.json"));
        assert_eq!((parent.slices("work"), parent.slices("child")), (1, 0));
        assert_eq!((child.slices("work"), child.slices("child")), (0, 3));
        for (name, spans) in [("grandchild1.json", 1), ("grandchild2.json", 2)] {
            let file = played.file(name);
            assert_eq!((file.slices("work"), file.slices("child")), (0, spans), "{name}");
            assert!(file.processes() != child.processes() && file.processes() != parent.processes());
        }
    }),
    ("forked_child_may_build_its_own_layer", || {
        let played = play("fork_builds").succeeded();
        assert_eq!(played.report(), "Exit(0)\n", "{}", played.stderr);
        assert_eq!((played.file(OUTPUT).slices("work"), played.file(OUTPUT).slices("child")), (1, 0));
        assert_eq!(played.file("child.json").slices("child"), 2);
    }),
    ("child_gets_no_collector_records_from_before_the_fork", || {
        let played = play("fork_with_collector").succeeded();
        assert_eq!(played.report(), "Exit(0)\n", "{}", played.stderr);
        assert_eq!(played.file("child.json").slices("child"), 5);
    }),
    ("fork_during_a_clock_read_does_not_hang_the_child", || {
        let played = play("fork_while_a_clock_is_read").succeeded();
        assert_eq!(played.report(), "Exit(0)\n", "{}", played.stderr);
        assert_eq!(played.file("child.json").slices("child"), 5);
    }),
    ("observers_see_no_spans_of_a_child_in_parents_recording", || {
        assert_eq!(play("fork_with_observer").succeeded().report(), "Exit(0)\nExit(0)\n");
    }),
    ("session_observers_in_a_child_see_its_recordings_alone", || {
        assert_eq!(play("fork_with_session_observer").succeeded().report(), "Exit(0)\n");
    }),
    ("forked_child_may_take_its_own_memory_profile", || {
        assert_eq!(play("fork_with_memory_profile").succeeded().report(), "Exit(0)\n");
    }),
    ("forked_child_drops_its_parents_counters_and_opens_own", || {
        assert_eq!(play("fork_with_counters").succeeded().report(), "Exit(0)\n");
    }),
    ("forked_child_is_outside_of_spans_of_parents_threads", || {
        assert_eq!(play("fork_inside_of_a_span_that_is_waited_for").succeeded().report(), "Exit(0)\n");
    }),
    ("forks_while_threads_record_do_not_hang_or_lose_rows", || {
        let played = play("forks_among_threads").succeeded();
        let file: File = played.file(OUTPUT);
        let made: usize = played.report().trim_end().parse().unwrap();
        assert_eq!((file.slices("busy"), file.slices("child")), (made, 0), "{}", played.stderr);
        assert_eq!(file.processes(), [i64::from(played.pid)]);
        assert_eq!(played.files(), [OUTPUT, "report"]);
    }),
    ("forks_while_threads_end_do_not_hang_the_child", || {
        play("forks_beside_ending_threads").succeeded();
    }),
];

fn in_child(spans: usize) {
    for _ in 0..spans {
        tracing::info_span!("child", n = 1).in_scope(|| ());
    }
}

/// Makes spans that evict each other from the thread's slots, and keeps them for a while.
fn evict_spans(spans: usize) {
    let kept: Vec<_> = (0..spans).map(|_| tracing::info_span!("kept")).collect();
    drop(kept);
}

fn fork_starts(folder: &Path) {
    let guard = record(folder);
    work();
    let open = tracing::info_span!("open").entered();
    let child = sys::fork();
    if child == 0 {
        let profiler = guard.profiler();
        in_child(3);
        assert_eq!(profiler.stop().unwrap_err().kind(), ErrorKind::Forked);
        assert_eq!(profiler.pause().unwrap_err().kind(), ErrorKind::Forked);
        assert_eq!(profiler.flush().unwrap_err().kind(), ErrorKind::Forked);
        profiler.start().unwrap();
        assert_eq!(profiler.status(), Status::Recording);
        in_child(5);
        let trace = profiler.stop().unwrap();
        trace.save(folder.join("child.json")).unwrap();
        drop(open);
        sys::exit_now(0);
    }
    report(folder, &format!("{:?}\n{child}", sys::wait(child)));
    work();
    drop(open);
}

/// Counts enters and exits.
#[derive(Clone, Debug, Default)]
struct CountingObserver(Arc<AtomicUsize>);

impl SpanObserver for CountingObserver {
    fn name(&self) -> &'static str {
        "counts"
    }
    fn enter(&self, _: &ObservedSpan) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn exit(&self, _: &ObservedSpan) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn fork_with_observer(folder: &Path) {
    use tracing_subscriber::prelude::*;
    for mode in [Mode::PrivateUse1, Mode::Kineto] {
        let counts = CountingObserver::default();
        let builder = KinetoLayer::builder().no_output().mode(mode).observer(counts.clone());
        let (layer, guard) = builder.build().unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            in_child(1);
            let child = sys::fork();
            if child == 0 {
                let count = || counts.0.load(Ordering::Relaxed);
                in_child(3);
                assert_eq!((guard.profiler().status(), count()), (Status::Idle, 2));
                guard.profiler().start().unwrap();
                in_child(3);
                assert_eq!(count(), 8);
                sys::exit_now(0);
            }
            report(folder, &format!("{:?}", sys::wait(child)));
        });
    }
}

/// Keeps the names of its callbacks.
#[derive(Clone, Debug, Default)]
struct CallbackNames(Arc<Mutex<Vec<&'static str>>>);

impl SessionObserver for CallbackNames {
    fn prepared(&self, _: &RecordingFlags) {
        self.0.lock().unwrap().push("prepared");
    }
    fn started(&self) {
        self.0.lock().unwrap().push("started");
    }
    fn stopped(&self) {
        self.0.lock().unwrap().push("stopped");
    }
    fn cancelled(&self, _: &str) {
        self.0.lock().unwrap().push("cancelled");
    }
}

fn fork_with_session_observer(folder: &Path) {
    let heard = CallbackNames::default();
    let guard = record_as(KinetoLayer::builder().no_output().session_observer(heard.clone()));
    let profiler = guard.profiler();
    let child = sys::fork();
    let take = || std::mem::take(&mut *heard.0.lock().unwrap());
    assert_eq!(take(), ["prepared", "started"]);
    if child == 0 {
        assert_eq!((profiler.stop().unwrap_err().kind(), take().len()), (ErrorKind::Forked, 0));
        profiler.start().unwrap();
        profiler.stop().unwrap();
        assert_eq!(take(), ["prepared", "started", "stopped"]);
        exit(0);
    }
    report(folder, &format!("{:?}", sys::wait(child)));
    profiler.stop().unwrap();
    assert_eq!(take(), ["stopped"]);
}

fn fork_with_memory_profile(folder: &Path) {
    let guard = record(folder);
    let profiler = guard.profiler();
    let libkineto = Libkineto::of(&profiler);
    libkineto.start_memory_profile().unwrap();
    let child = sys::fork();
    if child == 0 {
        assert_eq!(libkineto.stop_memory_profile().unwrap_err().kind(), ErrorKind::NotActive);
        libkineto.start_memory_profile().unwrap();
        memory::record(0x1000, 64, 64, 64, memory::Device::cuda(0));
        assert_eq!(libkineto.stop_memory_profile().unwrap().stats().memory_events, 1);
        sys::exit_now(0);
    }
    report(folder, &format!("{:?}", sys::wait(child)));
    libkineto.stop_memory_profile().unwrap();
}

/// Returns the number of counters that this process has open.
fn open_counters() -> usize {
    let links = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let links = links.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.filter(|link| link.to_string_lossy().contains("perf_event")).count()
}

fn fork_with_counters(folder: &Path) {
    use tracing_subscriber::prelude::*;
    let (layer, guard) = KinetoLayer::builder().no_output().performance_events(["task-clock"]).build().unwrap();
    tracing_subscriber::registry().with(layer).init();
    let counted = |trace: &tracing_kineto::Trace| {
        let events = trace.events();
        events.iter().filter(|event| event.performance_counters().next().is_some()).count()
    };
    let (counts, ends) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (theirs, their_end) = (counts.clone(), ends.clone());
    let thread = std::thread::Builder::new().spawn(move || {
        in_child(1);
        theirs.wait();
        their_end.wait();
    });
    in_child(1);
    counts.wait();
    let is_counted = open_counters() == 2;
    let child = sys::fork();
    if child == 0 {
        assert_eq!(open_counters(), 0);
        guard.profiler().start().unwrap();
        in_child(3);
        assert_eq!(open_counters(), usize::from(is_counted));
        assert_eq!(counted(&guard.profiler().stop().unwrap()), if is_counted { 3 } else { 0 });
        sys::exit_now(0);
    }
    report(folder, &format!("{:?}", sys::wait(child)));
    in_child(1);
    ends.wait();
    thread.unwrap().join().unwrap();
    assert_eq!(open_counters(), usize::from(is_counted));
    assert_eq!(counted(&guard.finish().unwrap()), if is_counted { 3 } else { 0 });
}

fn fork_inside_of_a_span_that_is_waited_for(folder: &Path) {
    use tracing_subscriber::prelude::*;
    let (layer, guard) = KinetoLayer::builder().no_output().build().unwrap();
    let subscriber = tracing_subscriber::registry().with(guard.profiler().record_while("train")).with(layer);
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let (inside, ends) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (theirs, their_end) = (inside.clone(), ends.clone());
    let thread = std::thread::Builder::new().spawn(move || {
        tracing::info_span!("train").in_scope(|| {
            theirs.wait();
            their_end.wait();
        });
    });
    inside.wait();
    let child = sys::fork();
    if child == 0 {
        guard.profiler().start().unwrap();
        tracing::info_span!("train").in_scope(|| assert_eq!(guard.profiler().status(), Status::Recording));
        assert_eq!(guard.profiler().status(), Status::Paused);
        sys::exit_now(0);
    }
    report(folder, &format!("{:?}", sys::wait(child)));
    ends.wait();
    thread.unwrap().join().unwrap();
}

/// Records an overhead row at each start.
#[derive(Clone, Debug)]
struct OverheadCollector;

impl Collector for OverheadCollector {
    fn name(&self) -> &'static str {
        "costly"
    }
    fn types(&self) -> ActivityTypes {
        ActivityTypes::from(ActivityType::Overhead)
    }
    fn probe(&self) -> Result<Capabilities, Unavailable> {
        Ok(Capabilities::default())
    }
    fn start(&self, _: &Selection, sink: RecordSink) -> Result<(Capabilities, Box<dyn Recording>), Unavailable> {
        static STARTS: AtomicUsize = AtomicUsize::new(0);
        let first = STARTS.fetch_add(1, Ordering::Relaxed) == 0;
        sink.record(|batch| batch.name(&"costs".repeat(if first { 100_000 } else { 1 })));
        Ok((self.probe()?, Box::new(self.clone())))
    }
}

impl Recording for OverheadCollector {
    fn stop(&self, _: Timestamp, _: Instant) {}
}

fn fork_with_collector(folder: &Path) {
    use tracing_subscriber::prelude::*;
    let (layer, guard) = KinetoLayer::builder().collector(OverheadCollector).build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let child = sys::fork();
        if child == 0 {
            guard.profiler().start().unwrap();
            in_child(5);
            guard.profiler().stop().unwrap().save(folder.join("child.json")).unwrap();
            sys::exit_now(0);
        }
        report(folder, &format!("{:?}", sys::wait(child)));
    });
}

/// Whether [`SlowClock`] blocks, and whether a thread is reading it.
static IS_SLOW: AtomicBool = AtomicBool::new(false);
static IS_READ: AtomicBool = AtomicBool::new(false);

/// A collector whose clock blocks while [`IS_SLOW`] is set.
#[derive(Clone, Debug)]
struct SlowClock;

impl Collector for SlowClock {
    fn name(&self) -> &'static str {
        "slow clock"
    }
    fn types(&self) -> ActivityTypes {
        ActivityTypes::from(ActivityType::Overhead)
    }
    fn probe(&self) -> Result<Capabilities, Unavailable> {
        Ok(Capabilities::default())
    }
    fn start(&self, _: &Selection, _: RecordSink) -> Result<(Capabilities, Box<dyn Recording>), Unavailable> {
        Ok((self.probe()?, Box::new(self.clone())))
    }
}

impl Recording for SlowClock {
    fn stop(&self, _: Timestamp, _: Instant) {}
    fn clock(&self) -> Option<u64> {
        while IS_SLOW.load(Ordering::Relaxed) {
            IS_READ.store(true, Ordering::Relaxed);
            std::thread::yield_now();
        }
        None
    }
}

fn fork_while_a_clock_is_read(folder: &Path) {
    let guard = record_as(KinetoLayer::builder().collector(SlowClock).no_output());
    work();
    IS_SLOW.store(true, Ordering::Relaxed);
    while !IS_READ.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
    let child = sys::fork();
    IS_SLOW.store(false, Ordering::Relaxed);
    if child == 0 {
        guard.profiler().start().unwrap();
        in_child(5);
        guard.profiler().stop().unwrap().save(folder.join("child.json")).unwrap();
        sys::exit_now(0);
    }
    report(folder, &format!("{:?}", sys::wait(child)));
}

fn fork_of_a_fork(folder: &Path) {
    let guard = record(folder);
    work();
    let child = sys::fork();
    if child == 0 {
        let profiler = guard.profiler();
        let grandchild = |name: &str, spans: usize| {
            let grandchild = sys::fork();
            if grandchild == 0 {
                profiler.start().unwrap();
                in_child(spans);
                profiler.stop().unwrap().save(folder.join(name)).unwrap();
                sys::exit_now(0);
            }
            report(folder, &format!("grandchild {:?}", sys::wait(grandchild)));
        };
        grandchild("grandchild1.json", 1);
        profiler.start().unwrap();
        in_child(1);
        grandchild("grandchild2.json", 2);
        in_child(2);
        profiler.stop().unwrap().save(folder.join("child.json")).unwrap();
        sys::exit_now(0);
    }
    report(folder, &format!("child {:?}", sys::wait(child)));
}

fn forks_among_threads(folder: &Path) {
    const FORKS: usize = 30;
    let guard = record_as(KinetoLayer::builder().output(folder.join(OUTPUT)));
    // Registered before the forks: a child may not wait for a thread that was registering it.
    in_child(0);
    evict_spans(1);
    let (stop, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (stop, made) = (stop.clone(), made.clone());
            let busy = move || {
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..20 {
                        tracing::info_span!("busy").in_scope(|| ());
                        made.fetch_add(1, Ordering::Relaxed);
                        evict_spans(10);
                    }
                    std::thread::yield_now();
                }
            };
            std::thread::Builder::new().spawn(busy).unwrap()
        })
        .collect();
    for turn in 0..FORKS {
        let child = sys::fork();
        if child == 0 {
            in_child(3);
            if turn % 3 == 0 {
                guard.profiler().start().unwrap();
                in_child(3);
                evict_spans(1000);
                let stats = guard.profiler().stop().unwrap().stats();
                sys::exit_now(i32::from(stats.slices != 3));
            }
            if turn % 3 == 1 {
                drop(guard);
                exit(0);
            }
            sys::exit_now(0);
        }
        assert_eq!(sys::wait(child), End::Exit(0), "fork {turn}");
    }
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    report(folder, &made.load(Ordering::Relaxed).to_string());
    drop(guard);
}

/// Threads start, record and end all the time, so almost every fork hits shared state in mid-change. The child stays on
/// one thread: another would need a lock of the registry's, which a lost thread may have held. `FORKS` sets the number.
#[expect(clippy::disallowed_methods, reason = "a long run takes more forks than the gate")]
fn forks_beside_ending_threads(_folder: &Path) {
    const FORKS: usize = 200;
    let forks = std::env::var("FORKS").map_or(FORKS, |forks| forks.parse().unwrap());
    let guard = record_as(KinetoLayer::builder().no_output());
    in_child(1);
    let stop = Arc::new(AtomicBool::new(false));
    let short_lived = |stop: Arc<AtomicBool>| {
        while !stop.load(Ordering::Relaxed) {
            std::thread::Builder::new().spawn(|| in_child(1)).unwrap().join().unwrap();
        }
    };
    let threads = [(); 3].map(|()| {
        let stop = stop.clone();
        std::thread::Builder::new().spawn(move || short_lived(stop)).unwrap()
    });
    for turn in 0..forks {
        let child = sys::fork();
        if child == 0 {
            guard.profiler().start().unwrap();
            in_child(3);
            let slices = guard.profiler().stop().unwrap().stats().slices;
            sys::exit_now(i32::from(slices != 3));
        }
        assert_eq!(sys::wait(child), End::Exit(0), "fork {turn}");
    }
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
