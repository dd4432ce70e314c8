//! The tracked global allocator.

use crate::records::rows;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::RefCell;
use std::fs;
use std::hint::black_box;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use support::harness::Test;
use support::{self, File};
use tracing::info_span;
use tracing_kineto::activity::DeviceType;
use tracing_kineto::memory::{self, Tracked, Usage};
use tracing_kineto::{Loss, ObservedSpan, SpanObserver};
use tracing_subscriber::prelude::*;

pub(crate) const TESTS: &[Test] = &[
    ("record_sums_equal_the_allocators_counters", record_sums_equal_the_allocators_counters),
    ("total_in_each_record_is_exact", total_in_each_record_is_exact),
    ("failed_allocation_is_an_out_of_memory_row", failed_allocation_is_an_out_of_memory_row),
    ("thread_that_allocates_before_spans_has_its_name", thread_that_allocates_before_spans_has_its_name),
    ("thread_with_events_alone_has_its_name", thread_with_events_alone_has_its_name),
    ("observers_see_a_thread_that_allocates_before_spans", observers_see_a_thread_that_allocates_before_spans),
    ("threads_made_by_libc_may_allocate", threads_made_by_libc_may_allocate),
    ("thread_destructors_and_panic_hooks_may_allocate", thread_destructors_and_panic_hooks_may_allocate),
    ("forked_child_may_allocate_and_records_nothing", forked_child_may_allocate_and_records_nothing),
    ("all_hooks_may_allocate", all_hooks_may_allocate),
    ("memory_profile_is_taken_on_request", memory_profile_is_taken_on_request),
];

fn memory_layer() -> (tracing_kineto::KinetoLayer, tracing_kineto::KinetoGuard) {
    support::layer(|builder| builder.with_memory(true).record_from_start(false))
}

/// Returns the total bytes and the number of the host's records.
fn recorded(file: &File) -> (i64, usize) {
    let rows = rows(file, DeviceType::Cpu);
    (rows.iter().map(|row| row["args"]["Bytes"].as_i64().unwrap()).sum(), rows.len())
}

/// Allocates, frees and resizes; returns the remaining blocks.
fn work(rounds: usize) -> Vec<Vec<u8>> {
    let mut kept = Vec::new();
    for i in 0..rounds {
        let mut bytes = vec![0u8; i % 700 + 1];
        bytes.resize(i % 1300 + 1, 1);
        bytes.shrink_to_fit();
        black_box(Box::new(i));
        if i % 3 == 0 {
            kept.push(bytes);
        }
    }
    kept
}

fn record_sums_equal_the_allocators_counters() {
    let (layer, guard) = memory_layer();
    let freed_inside = vec![7u8; 12_345];
    let mut before = Usage::default();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let (ready, begin, end) = (Barrier::new(4), Barrier::new(4), Barrier::new(4));
        std::thread::scope(|scope| {
            let run = || {
                ready.wait();
                begin.wait();
                let kept = info_span!("work").in_scope(|| work(400));
                end.wait();
                drop(kept);
            };
            let workers = [(); 3].map(|()| support::spawn(scope, "worker", run));
            ready.wait();
            guard.profiler().start().unwrap();
            before = memory::usage();
            begin.wait();
            end.wait();
            drop(freed_inside);
            // The scope's end would wait for the closures only, while the threads still free what is their own.
            workers.into_iter().for_each(|worker| worker.join().unwrap());
        });
    });
    let after = memory::usage();
    let trace = guard.profiler().stop().unwrap();
    let file = File::of(trace);
    let (bytes, count) = recorded(&file);
    let live = |usage: Usage| i64::try_from(usage.live_bytes).unwrap();
    // Includes ended threads and this crate's own allocations.
    let unrecorded = after.unrecorded_bytes - before.unrecorded_bytes;
    assert!(count > 3_000, "{count}");
    assert_eq!(live(after) - live(before), bytes + unrecorded, "{}", file.trace.stats());
    assert!(file.lost(Loss::MemoryOwn) > 0);
}

fn total_in_each_record_is_exact() {
    let (layer, guard) = memory_layer();
    let file = tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        guard.profiler().start().unwrap();
        drop(work(10)); // Creates the thread's state.
        for _ in 0..500 {
            drop(black_box(vec![0u8; 1000]));
        }
        File::of(guard.profiler().stop().unwrap())
    });
    // On a thread, each total is the previous one plus the bytes, except for this crate's own allocations.
    let rows = rows(&file, DeviceType::Cpu);
    let value = |row: &serde_json::Value, key| row["args"][key].as_i64().unwrap();
    let steps = rows.windows(2).filter(|pair| pair[0]["tid"] == pair[1]["tid"]);
    let wrong = steps.filter(|pair| {
        value(&pair[0], "Total Allocated") + value(&pair[1], "Bytes") != value(&pair[1], "Total Allocated")
    });
    let wrong = wrong.count() as u64;
    let others = file.lost(Loss::MemoryOwn) + file.lost(Loss::MemoryMissed);
    assert!(rows.len() > 1000 && wrong <= others && others < 500, "{wrong} of {}, {others}", rows.len());
}

/// An allocator without memory.
struct EmptyAllocator;

// SAFETY: it never returns a block, so no block is ever passed to `dealloc`.
#[allow(unsafe_code, reason = "an allocator has no safe form")]
unsafe impl GlobalAlloc for EmptyAllocator {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        std::ptr::null_mut()
    }
    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

fn failed_allocation_is_an_out_of_memory_row() {
    static POOR: Tracked<EmptyAllocator> = Tracked::new(EmptyAllocator);
    let file = support::record_with(
        |builder| builder.with_memory(true),
        || {
            let before = memory::usage().live_bytes;
            #[allow(unsafe_code, reason = "an allocator has no safe form")]
            // SAFETY: the layout has a nonzero size.
            let none = unsafe { POOR.alloc(Layout::new::<[u64; 512]>()) };
            assert!(none.is_null());
            assert_eq!(memory::usage().live_bytes, before);
        },
    );
    let rows = rows(&file, DeviceType::Cpu);
    let failed: Vec<_> = rows.iter().filter(|row| row["name"] == "[OutOfMemory]").collect();
    assert_eq!(failed.len(), 1);
    assert_eq!((&failed[0]["args"]["Bytes"], &failed[0]["args"]["Device Id"]), (&4096.into(), &(-1).into()));
    assert!(failed[0]["args"].get("Addr").is_none());
}

fn thread_that_allocates_before_spans_has_its_name() {
    const NAME: &str = "a name that is longer than the kernel's fifteen bytes";
    let (layer, guard) = memory_layer();
    let file = tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let (ready, go) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            support::spawn(scope, NAME, || {
                ready.wait();
                go.wait();
                drop(black_box(vec![1u8; 10]));
                info_span!("there").in_scope(|| drop(black_box(vec![1u8; 10])));
                info_span!("there again").in_scope(|| ());
            });
            ready.wait();
            guard.profiler().start().unwrap();
            go.wait();
        });
        File::of(guard.profiler().stop().unwrap())
    });
    assert_eq!((file.slice("there").row.as_str(), file.slice("there again").row.as_str()), (NAME, NAME));
    assert_eq!((file.slices().len(), file.lost(Loss::Reentered)), (2, 0));
}

fn thread_with_events_alone_has_its_name() {
    let (layer, guard) =
        support::layer(|builder| builder.with_memory(true).events(tracing::Level::INFO).record_from_start(false));
    let file = tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        guard.profiler().start().unwrap();
        support::on_thread("only events", || {
            drop(black_box(vec![1u8; 10]));
            tracing::info!("there");
        });
        File::of(guard.profiler().stop().unwrap())
    });
    let events = file.json["traceEvents"].as_array().unwrap();
    let is_named =
        |event: &&serde_json::Value| event["args"]["name"].as_str().is_some_and(|name| name.contains("only events"));
    assert_eq!(events.iter().filter(is_named).count(), 1);
}

/// Counts enters and exits.
#[derive(Clone, Debug, Default)]
struct CountingObserver(std::sync::Arc<[AtomicUsize; 2]>);

impl SpanObserver for CountingObserver {
    fn name(&self) -> &'static str {
        "counting"
    }
    fn enter(&self, _: &ObservedSpan) {
        self.0[0].fetch_add(1, Ordering::Relaxed);
    }
    fn exit(&self, _: &ObservedSpan) {
        self.0[1].fetch_add(1, Ordering::Relaxed);
    }
}

fn observers_see_a_thread_that_allocates_before_spans() {
    let counts = CountingObserver::default();
    let (layer, guard) =
        support::layer(|builder| builder.with_memory(true).record_from_start(false).observer(counts.clone()));
    let file = tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        guard.profiler().start().unwrap();
        drop(black_box(vec![1u8; 10]));
        (0..5).for_each(|_| info_span!("work").in_scope(|| ()));
        File::of(guard.profiler().stop().unwrap())
    });
    assert_eq!(counts.0.each_ref().map(|count| count.load(Ordering::Relaxed)), [5, 5]);
    assert_eq!(file.slices().len(), 5);
}

#[cfg(unix)]
#[allow(unsafe_code, reason = "only libc makes threads unknown to std")]
fn threads_made_by_libc_may_allocate() {
    /// std allocates the thread's handle at the first `current` call.
    extern "C" fn foreign(_: *mut libc::c_void) -> *mut libc::c_void {
        drop(black_box(std::thread::current()));
        drop(black_box(vec![0u8; 321]));
        info_span!("foreign").in_scope(|| ());
        std::ptr::null_mut()
    }
    let (layer, guard) = memory_layer();
    guard.profiler().start().unwrap();
    // SAFETY: zeros are a valid `pthread_t`, and `pthread_create` overwrites it.
    let mut thread: libc::pthread_t = unsafe { std::mem::zeroed() };
    // SAFETY: `foreign` ignores its argument and does not unwind, and the thread is joined below.
    assert_eq!(unsafe { libc::pthread_create(&raw mut thread, std::ptr::null(), foreign, std::ptr::null_mut()) }, 0);
    // SAFETY: the thread was just created and is joined once.
    assert_eq!(unsafe { libc::pthread_join(thread, std::ptr::null_mut()) }, 0);
    drop(layer);
    let file = File::of(guard.profiler().stop().unwrap());
    assert!(rows(&file, DeviceType::Cpu).iter().any(|row| row["args"]["Bytes"] == 321));
}

#[cfg(not(unix))]
fn threads_made_by_libc_may_allocate() {}

/// Allocates when dropped at the end of its thread.
struct AllocateOnDrop(&'static str);

impl Drop for AllocateOnDrop {
    fn drop(&mut self) {
        drop(black_box(self.0.repeat(77)));
        info_span!("late").in_scope(|| drop(black_box(vec![0u8; 99])));
    }
}

thread_local! {
    static FIRST: RefCell<Option<AllocateOnDrop>> = const { RefCell::new(None) };
    static LAST: RefCell<Option<AllocateOnDrop>> = const { RefCell::new(None) };
}

fn thread_destructors_and_panic_hooks_may_allocate() {
    std::panic::set_hook(Box::new(|info| drop(black_box(info.to_string()))));
    let mut panicked = 0;
    let file = support::record_with(
        |builder| builder.with_memory(true),
        || {
            for _ in 0..20 {
                std::thread::scope(|scope| {
                    let thread = support::spawn(scope, "ends", || {
                        // One is destroyed before the layer's thread-locals, the other after.
                        FIRST.set(Some(AllocateOnDrop("a")));
                        info_span!("inside").in_scope(|| drop(black_box(vec![1u8; 55])));
                        LAST.set(Some(AllocateOnDrop("b")));
                        let _span = info_span!("panics").entered();
                        panic!("{}", "on purpose".repeat(10));
                    });
                    panicked += usize::from(thread.join().is_err());
                });
            }
        },
    );
    drop(std::panic::take_hook());
    let rows = rows(&file, DeviceType::Cpu);
    let count = |bytes: i64| rows.iter().filter(|row| row["args"]["Bytes"] == bytes).count();
    assert_eq!((panicked, file.all("panics").len()), (20, 20));
    assert!(count(55) == 20 && count(77) >= 20, "{}", file.trace.stats());
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "fork has no safe form")]
fn forked_child_may_allocate_and_records_nothing() {
    let (layer, guard) = memory_layer();
    guard.profiler().start().unwrap();
    let stop = AtomicBool::new(false);
    let busy = || {
        while !stop.load(Ordering::Relaxed) {
            drop(work(50));
            std::thread::yield_now();
        }
    };
    let statuses: Vec<i32> = std::thread::scope(|scope| {
        // Keeps locks held and queues in mid-change at some forks.
        (0..2).for_each(|_| drop(support::spawn(scope, "busy", busy)));
        let statuses = (0..30).map(|_| child()).collect();
        stop.store(true, Ordering::Relaxed);
        statuses
    });
    assert_eq!(statuses, [0; 30]);
    drop(layer);
    assert!(guard.profiler().stop().unwrap().stats().memory_events > 100);

    fn child() -> i32 {
        // SAFETY: the child only allocates, which glibc allows after a fork, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let before = memory::usage().live_bytes;
            let kept = work(200);
            let grew = memory::usage().live_bytes > before;
            drop(kept);
            let was_heard = memory::is_enabled();
            // SAFETY: takes a number and ends the child.
            unsafe { libc::_exit(if grew && !was_heard { 0 } else { 1 }) };
        }
        let mut status = -1;
        // SAFETY: `waitpid` gets the id of this process's child and a valid place for the status.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        status
    }
}

#[cfg(not(target_os = "linux"))]
fn forked_child_may_allocate_and_records_nothing() {}

/// A value whose `Debug` allocates and makes a span.
struct AllocatingDebug;

impl std::fmt::Debug for AllocatingDebug {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        info_span!("shown").in_scope(|| f.write_str(&"shown ".repeat(3)))
    }
}

fn all_hooks_may_allocate() {
    const ROUNDS: usize = 400;
    let text = "x".repeat(70_000);
    let file = support::record_with(
        |builder| builder.with_memory(true).events(tracing::Level::INFO),
        || {
            let other = info_span!("other");
            std::thread::scope(|scope| {
                let run = || {
                    for i in 0..ROUNDS {
                        let span = info_span!("made", i, shown = ?AllocatingDebug, late = tracing::field::Empty);
                        let _inside = span.enter();
                        span.record("late", format!("value {i}"));
                        tracing::info!(i, "event {}", i);
                        if i % 100 == 0 {
                            drop(info_span!("large", text).entered());
                            drop(other.enter());
                            span.follows_from(&other);
                        }
                    }
                };
                (0..3).for_each(|_| drop(support::spawn(scope, "worker", run)));
            });
        },
    );
    assert_eq!(file.all("made").len(), 3 * ROUNDS);
    assert_eq!(file.lost(Loss::Reentered), 0, "{}", file.trace.stats());
    assert!(recorded(&file).1 > 3 * ROUNDS);
}

/// Runs in a child process, in which no other test has called `memory::record`.
fn memory_profile_is_taken_on_request() {
    const CHILD: &str = "TEST_TAKES_MEMORY_PROFILE";
    if cfg!(not(target_os = "linux")) {
        return;
    }
    if std::env::var_os(CHILD).is_none() {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "memory_profile_is_taken_on_request"]).env(CHILD, "1");
        let output = child.env("KINETO_ONDEMAND_TRACE_DIR", std::env::temp_dir()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (profile, pid) = (folder.path().join("m.json"), std::process::id());
    let (_layer, _guard) = support::layer(|builder| builder.trigger_folder(folder.path()));
    let text =
        format!("ACTIVITIES_LOG_FILE={}\nPROFILE_MEMORY=1\nPROFILE_MEMORY_DURATION_MSECS=1\n", profile.display());
    fs::write(folder.path().join("request"), text).unwrap();
    fs::rename(folder.path().join("request"), folder.path().join(format!("{pid}.request"))).unwrap();
    let begin = Instant::now();
    let answer = loop {
        assert!(begin.elapsed() < Duration::from_secs(60), "the request is not answered");
        drop(black_box(vec![0u8; 1000]));
        let answer = fs::read_to_string(folder.path().join(format!("{pid}.answer"))).unwrap_or_default();
        if answer.ends_with("done\n") || answer.ends_with("failed\n") {
            break answer;
        }
    };
    assert!(answer.contains("allocations") && answer.ends_with("done\n"), "{answer}");
}
