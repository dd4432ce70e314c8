//! Threads that end early, steal work, or record during a stop.
#![allow(clippy::disallowed_methods, reason = "tests")]

use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use support::{File, enter, exit, layer, on_thread, record, record_with, spawn};
use tracing::{Dispatch, Span, dispatcher, info_span};
use tracing_kineto::Loss;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;

#[test]
fn ended_threads_keep_their_spans_and_names() {
    const THREADS: usize = 200;
    let file = record(|| {
        for i in 0..THREADS {
            on_thread(&format!("wörker \"{i}\" \\ 工"), || {
                info_span!("work", i).in_scope(|| info_span!("part").in_scope(|| ()))
            });
        }
    });
    assert_eq!(file.all("part").len(), THREADS);
    let mut by_tid: HashMap<u64, HashSet<String>> = HashMap::new();
    for slice in file.all("work") {
        let i = slice.args["i"].as_u64().unwrap();
        by_tid.entry(slice.tid).or_default().insert(format!("wörker \"{i}\" \\ 工"));
    }
    // The kernel may reuse an id: the row then has the name of one of its threads.
    assert!(file.all("work").iter().all(|slice| by_tid[&slice.tid].contains(&slice.row)));
    assert_eq!(file.trace.stats().losses, []);
}

#[test]
fn unnamed_ended_thread_has_the_kernels_name() {
    let mut kernels = String::new();
    let file = record(|| {
        let dispatch = dispatcher::get_default(Dispatch::clone);
        let worker = std::thread::spawn(move || {
            dispatcher::with_default(&dispatch, || info_span!("work").in_scope(|| ()));
            std::fs::read_to_string("/proc/thread-self/comm").unwrap_or_default().trim_end().to_owned()
        });
        kernels = worker.join().unwrap();
    });
    assert_eq!(kernels.is_empty(), !cfg!(target_os = "linux"));
    assert_eq!(file.slice("work").row, kernels, "{:?}", file.trace.tracks());
}

#[test]
fn trace_and_file_have_the_same_rows() {
    let file = record(|| {
        info_span!("here").in_scope(|| ());
        on_thread("worker", || info_span!("there").in_scope(|| ()));
    });
    let tracks = file.trace.tracks();
    let names: HashSet<_> = tracks.iter().map(|track| track.name.clone()).collect();
    assert_eq!(tracks.len(), 2);
    assert!(names.contains("worker"), "{names:?}");
    assert_eq!(file.trace.stats().threads, 2);
}

thread_local! {
    static RUN_ON_DROP: RefCell<Option<RunOnDrop>> = const { RefCell::new(None) };
}

/// Runs a closure while its thread destroys its thread-locals.
struct RunOnDrop(Box<dyn FnMut()>);

impl Drop for RunOnDrop {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Starts a thread that runs `first` before or after it makes the thread-local, and `last` when it ends.
fn run_at_thread_end(local_first: bool, first: impl FnOnce() + Send, last: impl FnMut() + Send + 'static) {
    on_thread("ending", || {
        let dispatch = dispatcher::get_default(Dispatch::clone);
        let mut last = last;
        let last = move || dispatcher::with_default(&dispatch, &mut last);
        let arm = || RUN_ON_DROP.with(|local| local.replace(Some(RunOnDrop(Box::new(last)))));
        if local_first {
            drop(arm());
            first();
        } else {
            first();
            drop(arm());
        }
    });
}

#[test]
fn spans_may_be_used_in_thread_local_destructors() {
    for local_first in [true, false] {
        let file = record(|| {
            let open = info_span!("open");
            let (entered, exited) = (open.clone(), open);
            run_at_thread_end(
                local_first,
                move || {
                    info_span!("before", n = 1).in_scope(|| ());
                    enter(&entered);
                },
                move || {
                    // The registry panics on new spans after its own thread-locals are gone.
                    if !local_first {
                        info_span!("late", n = 2).in_scope(|| tracing::error!(n = 3, "late"));
                    }
                    exit(&exited);
                },
            );
            info_span!("after").in_scope(|| ());
        });
        // Whether the last spans are recorded depends on the platform's order of destruction.
        assert_eq!((file.fields("before").as_str(), file.slice("after").row.as_str()), (r#"{"n":1}"#, "main"));
        assert_eq!(file.all("open").len(), 1);
        let counted = file.lost(Loss::Reentered) > 0;
        assert!(local_first || counted || file.all("late").len() == 1, "{:?}", file.trace.stats());
    }
}

#[test]
fn event_of_an_ending_thread_is_not_counted_over_limit() {
    let file = record_with(
        |builder| builder.events(LevelFilter::INFO),
        || run_at_thread_end(true, || info_span!("before").in_scope(|| ()), || tracing::info!(n = 3, "late")),
    );
    // It is recorded if the platform destroys the lane later.
    let recorded = file.rows("i").len() as u64;
    assert_eq!((recorded + file.lost(Loss::Reentered), file.lost(Loss::EventsOverLimit)), (1, 0));
}

#[test]
fn first_span_of_a_thread_may_be_in_a_destructor() {
    for local_first in [true, false] {
        let file = record(|| {
            run_at_thread_end(local_first, || (), || info_span!("late", n = 2).in_scope(|| ()));
            info_span!("after").in_scope(|| ());
        });
        assert_eq!(file.slice("after").row, "main");
        assert!(file.all("late").len() == 1 || file.lost(Loss::Reentered) > 0, "{:?}", file.trace.stats());
    }
}

#[test]
fn guards_may_be_kept_in_thread_locals() {
    thread_local! {
        static GUARD: RefCell<Option<tracing::span::EnteredSpan>> = const { RefCell::new(None) };
    }
    let file = record(|| {
        for made_early in [true, false] {
            on_thread("keeper", || {
                if !made_early {
                    info_span!("first").in_scope(|| ());
                }
                GUARD.with(|guard| guard.replace(Some(info_span!("kept").entered())));
                info_span!("inside").in_scope(|| ());
            });
        }
    });
    let kept = file.all("kept");
    assert_eq!(kept.len(), 2);
    assert!(file.all("inside").iter().zip(&kept).all(|(inside, kept)| inside.parent() == kept.span()));
}

#[test]
fn stolen_work_nests_where_it_runs_and_keeps_its_parent() {
    // Two workers with a queue each: a worker that waits for its own jobs runs the other's.
    struct Job {
        parent: Span,
        n: u64,
    }
    const JOBS: u64 = 200;
    let queues = [Mutex::new(VecDeque::new()), Mutex::new(VecDeque::new())];
    let done = AtomicU64::new(0);
    let run = |job: Job| {
        info_span!(parent: &job.parent, "job", n = job.n).in_scope(|| info_span!("part").in_scope(|| ()));
        done.fetch_add(1, Ordering::Relaxed);
    };
    let file = record(|| {
        std::thread::scope(|scope| {
            for own in 0..2 {
                let (queues, done, run) = (&queues, &done, &run);
                spawn(scope, &format!("worker {own}"), move || {
                    let batch = info_span!("batch", own).entered();
                    for n in 0..JOBS {
                        queues[own].lock().unwrap().push_back(Job { parent: (*batch).clone(), n });
                    }
                    while done.load(Ordering::Relaxed) < 2 * JOBS {
                        // The newest of its own, else the oldest of the other.
                        let job = { queues[own].lock().unwrap().pop_back() };
                        let job = job.or_else(|| queues[1 - own].lock().unwrap().pop_front());
                        job.map_or_else(std::thread::yield_now, run);
                    }
                });
            }
        });
    });
    let jobs = file.all("job");
    assert_eq!(jobs.len() as u64, 2 * JOBS);
    let batches: HashMap<u64, u64> =
        file.all("batch").iter().map(|batch| (batch.span(), batch.args["own"].as_u64().unwrap())).collect();
    for own in 0..2 {
        let numbers: HashSet<_> = jobs
            .iter()
            .filter(|job| batches[&job.parent()] == own)
            .map(|job| job.args["n"].as_u64().unwrap())
            .collect();
        assert_eq!(numbers.len() as u64, JOBS, "each job has the batch that made it for its parent");
    }
    let job_spans: HashSet<_> = jobs.iter().map(|job| job.span()).collect();
    assert!(file.all("part").iter().all(|part| job_spans.contains(&part.parent())));
    assert_eq!((file.lost(Loss::Overlapping), file.lost(Loss::Unfinished)), (0, 0));
}

#[test]
fn file_has_every_span_of_many_threads() {
    const THREADS: usize = 64;
    const SPANS: usize = 2000;
    let file = record(|| {
        let together = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for i in 0..THREADS {
                let together = &together;
                spawn(scope, &format!("worker {i}"), move || {
                    together.wait();
                    (0..SPANS).for_each(|_| info_span!("work").in_scope(|| ()));
                });
            }
        });
    });
    let mut per_row: HashMap<String, usize> = HashMap::new();
    file.slices().iter().for_each(|slice| *per_row.entry(slice.row.clone()).or_default() += 1);
    assert_eq!(per_row.len(), THREADS);
    assert!(per_row.values().all(|count| *count == SPANS), "{per_row:?}");
    assert_eq!(file.trace.stats().losses, []);
}

/// Stops a test's workers, also when it fails.
struct LeaveOnDrop<'a>(&'a AtomicBool);

impl Drop for LeaveOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

#[test]
fn stop_keeps_committed_spans_while_threads_record() {
    const THREADS: usize = 64;
    let (layer, guard) = layer(|builder| builder.record_from_start(false));
    let profiler = guard.profiler();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let (going, counts) = (AtomicBool::new(true), [const { AtomicU64::new(0) }; THREADS]);
        std::thread::scope(|scope| {
            for (i, count) in counts.iter().enumerate() {
                let going = &going;
                spawn(scope, &format!("worker {i}"), move || {
                    while going.load(Ordering::Relaxed) {
                        info_span!("work").in_scope(|| info_span!("part", i).in_scope(|| ()));
                        // Release: a counted span is committed.
                        count.fetch_add(1, Ordering::Release);
                        std::thread::yield_now();
                    }
                });
            }
            let _leave = LeaveOnDrop(&going);
            for _ in 0..5 {
                let read = || -> Vec<u64> { counts.iter().map(|count| count.load(Ordering::Acquire)).collect() };
                profiler.start().unwrap();
                let before = read();
                while read().iter().zip(&before).any(|(now, before)| *now < before + 3) {
                    std::thread::yield_now();
                }
                let at_the_stop = read();
                let trace = profiler.stop().unwrap();
                let file = File::of(trace);
                let mut per_row: HashMap<String, u64> = HashMap::new();
                file.all("part").into_iter().for_each(|slice| *per_row.entry(slice.row).or_default() += 1);
                for i in 0..THREADS {
                    let (least, found) =
                        (at_the_stop[i] - before[i], per_row.get(&format!("worker {i}")).copied().unwrap_or(0));
                    // The span open at the start may have begun before it.
                    assert!(found + 1 >= least, "worker {i}: {found} of {least}");
                }
                assert!(
                    file.lost(Loss::SlicesOverLimit) == 0 && file.lost(Loss::Reentered) == 0,
                    "{}",
                    file.trace.stats()
                );
                assert!(file.lost(Loss::Unfinished) <= 2 * THREADS as u64);
            }
        });
    });
}

#[test]
fn repeated_starts_and_stops_under_load_write_whole_files() {
    const THREADS: usize = 4;
    let (layer, guard) = layer(|builder| builder.record_from_start(false));
    let profiler = guard.profiler();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let going = AtomicBool::new(true);
        let shared = info_span!("shared", n = 1);
        std::thread::scope(|scope| {
            for i in 0..THREADS {
                let (going, shared) = (&going, &shared);
                spawn(scope, &format!("worker {i}"), move || {
                    while going.load(Ordering::Relaxed) {
                        let made = info_span!("made", n = 2);
                        shared.in_scope(|| made.in_scope(|| info_span!(parent: shared, "child").in_scope(|| ())));
                        std::thread::yield_now();
                    }
                });
            }
            let _leave = LeaveOnDrop(&going);
            for round in 0..12 {
                profiler.start().unwrap();
                (0..round).for_each(|_| std::thread::yield_now());
                if round % 3 == 0 {
                    profiler.pause().unwrap();
                    profiler.resume().unwrap();
                }
                drop(File::of(profiler.snapshot().unwrap()));
                let file = File::of(profiler.stop().unwrap());
                // After a pause, spans that are still open have new ids.
                let shared: HashSet<_> = file.all("shared").iter().map(|slice| slice.span()).collect();
                let known = |parent: u64| parent == 0 || shared.is_empty() || shared.contains(&parent);
                // Nor is the span known whose first slice its thread committed after its chunk was taken.
                let unknown = file.all("child").iter().filter(|child| !known(child.parent())).count();
                assert!(round % 3 == 0 || unknown <= THREADS, "{unknown}: {}", file.tree(&[]));
            }
        });
    });
}
