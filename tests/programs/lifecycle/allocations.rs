//! Fails the n-th allocation of 8 KiB or more, for each n: nothing aborts, and the trace can be saved afterwards.
#![allow(unsafe_code, reason = "a global allocator has no safe form")]

use super::play::{OUTPUT, play, record_as, report};
use super::toy::{NoArgs, SINK, ToyCollector};
use super::{Scenario, Test, sys};
use std::alloc::{GlobalAlloc, Layout, System};
use std::future::{Future, poll_fn};
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{SystemTime, UNIX_EPOCH};
use tracing::field::Empty;
use tracing::{Instrument, error, info, info_span};
use tracing_kineto::activity::{Activity, ActivityType, Body, Track};
use tracing_kineto::integration::{ApiCall, CpuTraceBuilder, DeviceWork, Thread};
use tracing_kineto::torch::Libkineto;
use tracing_kineto::{Error, ErrorKind, KinetoLayer, Profiler, Timestamp, annotate};

pub(crate) const SCENARIOS: &[Scenario] = &[("failed_allocations", failed_allocations)];

pub(crate) const TESTS: &[Test] = &[("failed_allocation_is_an_error_and_the_trace_is_kept", || {
    let played = play("failed_allocations").succeeded();
    let report = played.report();
    let count = |outcome: &str| report.lines().filter(|line| line.ends_with(outcome)).count();
    // A list that cannot be shrunk for lack of memory keeps its length.
    let (refused, saved) = (count(REFUSED), count(SAVED));
    assert!(refused > 50 && refused + saved == report.lines().count(), "{report}{}", played.stderr);
})];

/// Outcomes of a save with a failed allocation: an error, or a whole file.
const REFUSED: &str = "refused";
const SAVED: &str = "saved";

/// Smaller allocations never fail.
const LARGE: usize = 8 << 10;

/// Large allocations left until one fails, once.
static LEFT: AtomicI64 = AtomicI64::new(0);

struct FailingOnce;

fn fails(size: usize) -> bool {
    size >= LARGE && LEFT.fetch_sub(1, Ordering::Relaxed) == 1
}

// SAFETY: every call is forwarded to the system's allocator, or returns null, which the contract permits.
unsafe impl GlobalAlloc for FailingOnce {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the same contract.
        if fails(layout.size()) { std::ptr::null_mut() } else { unsafe { System.alloc(layout) } }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the same contract.
        if fails(layout.size()) { std::ptr::null_mut() } else { unsafe { System.alloc_zeroed(layout) } }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller upholds the same contract.
        if fails(size) { std::ptr::null_mut() } else { unsafe { System.realloc(pointer, layout, size) } }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the same contract.
        unsafe { System.dealloc(pointer, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: FailingOnce = FailingOnce;

/// Records many rows of every kind, and saves them in one child per large allocation, which fails there.
fn failed_allocations(folder: &Path) {
    let builder = KinetoLayer::builder().output(folder.join(OUTPUT)).collector(ToyCollector);
    let guard = record_as(builder);
    make_spans();
    launch();
    push(&guard.profiler());
    let trace = guard.finish().unwrap();
    let paths = [folder.join("x.json"), folder.join("x.json.gz"), folder.join("x.et.json")];
    let [json, packed, execution] = &paths;
    fail_each(folder, "json", || trace.save(json));
    // The first save caches its results, so later failures are in the remaining work.
    trace.save(json).unwrap();
    // In an optimized build zlib allocates but cannot report a failure; the writer reserves that memory before.
    if cfg!(debug_assertions) {
        fail_each(folder, "gzip", || trace.save(packed));
    }
    fail_each(folder, "execution trace", || trace.save_execution_trace(execution));
}

/// Calls `save` in one child per large allocation, which fails there.
fn fail_each(folder: &Path, what: &str, save: impl Fn() -> Result<(), Error>) {
    for nth in 1.. {
        let child = sys::fork();
        if child == 0 {
            sys::exit_now(fail(nth, &save));
        }
        let outcome = match sys::wait(child) {
            sys::End::Exit(NOTHING_FAILED) => break,
            sys::End::Exit(AN_ERROR) => REFUSED.to_owned(),
            sys::End::Exit(WHOLE) => SAVED.to_owned(),
            end => format!("{end:?}"),
        };
        report(folder, &format!("{what} {nth} {outcome}"));
    }
}

const NOTHING_FAILED: i32 = 0;
const AN_ERROR: i32 = 1;
const WHOLE: i32 = 2;
const WRONG: i32 = 3;

/// Fails the n-th large allocation of a save, and saves again after an error.
fn fail(nth: i64, save: impl Fn() -> Result<(), Error>) -> i32 {
    LEFT.store(nth, Ordering::Relaxed);
    let saved = save();
    let nothing_failed = LEFT.swap(0, Ordering::Relaxed) > 0;
    let is_right = |error: &Error| {
        error.kind() == ErrorKind::OutOfMemory
            && error.to_string().ends_with("out of memory; free memory and try again")
    };
    match saved {
        Ok(()) if nothing_failed => NOTHING_FAILED,
        Ok(()) => WHOLE,
        // The second save takes longest.
        Err(error) if is_right(&error) && (nth % 32 != 0 || save().is_ok()) => AN_ERROR,
        Err(_) => WRONG,
    }
}

const MANY: u64 = 400;

/// Makes linked futures, late values, errors, events, and slices that end far from their begin.
fn make_spans() {
    let mut before = None;
    for n in 0..MANY {
        let span = info_span!("future", n, name = %n);
        span.follows_from(before.replace(span.id()).flatten());
        let mut polls = 0;
        let twice = poll_fn(|_| {
            polls += 1;
            if polls == 2 { Poll::Ready(()) } else { Poll::Pending }
        });
        let mut future = pin!(twice.instrument(span));
        while future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {}
        let late = info_span!("late", n, result = Empty, seq = n, fwd_thread = n % 2);
        late.in_scope(|| {
            late.record("result", n);
            late.record("result", n + 1);
            error!(n, "failed");
            info!(n, "event");
        });
    }
    let nested: Vec<_> = (0..MANY).map(|n| info_span!("nested", n).entered()).collect();
    nested.into_iter().rev().for_each(drop);
}

fn now() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

/// Reports calls with near, far and shared ids, and their work, inside annotations.
fn launch() {
    let sink = SINK.lock().unwrap();
    let thread = Thread::Id(tracing_kineto::thread_id());
    for n in 1..=4 * MANY {
        let _step = (n % 4 == 0).then(|| annotate!("step {n}").entered());
        let correlation = if n % 2 == 0 { n * 3 } else { u64::MAX / 2 - (n / 3) * 1_000_000 };
        let start = now();
        sink.as_ref().unwrap().record(|batch| {
            let (kind, name) = (ActivityType::CudaDriver, batch.name("launch"));
            let call = ApiCall::new(kind, name, thread, (start, start + 50), &NoArgs);
            batch.call(&ApiCall { correlation, launches: true, ..call });
            let (kind, name) = (ActivityType::ConcurrentKernel, batch.name("kernel"));
            let work = DeviceWork::new(kind, name, (0, 7), (start + 60, start + 90), &NoArgs);
            batch.work(&DeviceWork { correlation, ..work });
        });
    }
}

/// Pushes the program's own records, on a separate row.
fn push(profiler: &Profiler) {
    let from = now();
    let at = |us: u64| Timestamp::from_nanos(from + us * 1000);
    let mut builder = CpuTraceBuilder::new(at(0), "interpreter");
    for n in 0..2 * MANY {
        let body = Body::Slice { start: at(n), end: at(n + 1) };
        builder.push(&Activity::new(ActivityType::CpuOp, "pushed", Track::new(0, 7), body)).unwrap();
    }
    Libkineto::of(profiler).transfer(builder, at(2 * MANY)).unwrap();
}
