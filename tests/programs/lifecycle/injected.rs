//! Fails the n-th mmap, thread or open, for each n: nothing aborts or hangs, and each loss is counted or an error.
#![allow(unsafe_code, reason = "replacing functions of libc has no safe form")]
#![allow(clippy::disallowed_methods, reason = "a scenario gets its settings from the environment")]

use super::play::{OUTPUT, play_with, report, work};
use super::{Scenario, Test};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tracing_kineto::{Error, KinetoLayer};

pub(crate) const SCENARIOS: &[Scenario] = &[("injected", injected)];

pub(crate) const TESTS: &[Test] = &[("failed_system_call_is_counted_or_an_error", || {
    for what in CALLS {
        let failed = (1..).take_while(|nth| {
            let played = play_with("injected", &[("WHAT", what), ("NTH", &nth.to_string())]).succeeded();
            let report = played.report();
            let at = format!("{what} {nth}: {:?} {report} {}", played.files(), played.stderr);
            let made = report.lines().find_map(|line| line.strip_prefix("made ")?.parse::<u64>().ok());
            if played.path(FIRST).exists() {
                let file = played.file(FIRST);
                let losses = file.json["tracing_kineto"]["losses"].as_object().map_or(0, serde_json::Map::len);
                assert!(losses > 0 || made == Some(file.slices("work") as u64), "{at}");
            } else {
                assert!(report.contains("cannot create"), "{at}");
            }
            if played.path(OUTPUT).exists() {
                assert_eq!(played.file(OUTPUT).slices("work"), 1, "{at}");
            } else {
                assert!(made.is_none() || played.stderr.contains("the trace was not written: cannot create"), "{at}");
            }
            !report.contains("nothing failed")
        });
        assert!(failed.count() > 0, "{what}");
    }
})];

/// The call that fails, as an index into [`CALLS`], and the calls left until it does.
static WHAT: AtomicUsize = AtomicUsize::new(usize::MAX);
static LEFT: AtomicU64 = AtomicU64::new(0);
const CALLS: [&str; 3] = ["mmap", "pthread_create", "open64"];
const MAP: usize = 0;
const THREAD: usize = 1;
const FILE: usize = 2;

/// The file that the scenario saves itself.
const FIRST: &str = "first.json";

/// Returns whether this call must fail.
fn fails(what: usize) -> bool {
    WHAT.load(Ordering::Relaxed) == what && LEFT.fetch_sub(1, Ordering::Relaxed) == 1
}

/// Returns the address of libc's function that a function below replaces.
fn original(name: &CStr, known: &AtomicUsize) -> usize {
    if known.load(Ordering::Relaxed) == 0 {
        // SAFETY: the name ends with a zero byte.
        known.store(unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }.addr(), Ordering::Relaxed);
    }
    known.load(Ordering::Relaxed)
}

fn fail(error: c_int) {
    // SAFETY: takes no argument and always returns a valid pointer.
    let number = unsafe { libc::__errno_location() };
    // SAFETY: the pointer is the calling thread's errno.
    unsafe { *number = error };
}

type Map = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void;

/// Replaces libc's function for this program's code.
// SAFETY: the symbol has libc's signature and contract: it forwards the call, or fails with an errno.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    at: *mut c_void,
    size: usize,
    access: c_int,
    kind: c_int,
    file: c_int,
    from: i64,
) -> *mut c_void {
    static KNOWN: AtomicUsize = AtomicUsize::new(0);
    if fails(MAP) {
        fail(libc::ENOMEM);
        return libc::MAP_FAILED;
    }
    // SAFETY: libc's function of that name has this type.
    let original = unsafe { std::mem::transmute::<usize, Map>(original(c"mmap", &KNOWN)) };
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { original(at, size, access, kind, file, from) }
}

type Begin = extern "C" fn(*mut c_void) -> *mut c_void;
type Create = unsafe extern "C" fn(*mut libc::pthread_t, *const libc::pthread_attr_t, Begin, *mut c_void) -> c_int;

/// Replaces libc's function for this program's code.
// SAFETY: the symbol has libc's signature and contract: it forwards the call, or fails with an errno.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    how: *const libc::pthread_attr_t,
    begin: Begin,
    with: *mut c_void,
) -> c_int {
    static KNOWN: AtomicUsize = AtomicUsize::new(0);
    if fails(THREAD) {
        return libc::EAGAIN;
    }
    // SAFETY: libc's function of that name has this type.
    let original = unsafe { std::mem::transmute::<usize, Create>(original(c"pthread_create", &KNOWN)) };
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { original(thread, how, begin, with) }
}

type Open = unsafe extern "C" fn(*const c_char, c_int, libc::mode_t) -> c_int;

/// Replaces libc's function for this program's code, which always passes a mode.
// SAFETY: the symbol has libc's signature and contract: it forwards the call, or fails with an errno.
#[unsafe(no_mangle)]
unsafe extern "C" fn open64(path: *const c_char, how: c_int, mode: libc::mode_t) -> c_int {
    static KNOWN: AtomicUsize = AtomicUsize::new(0);
    if fails(FILE) {
        fail(libc::EMFILE);
        return -1;
    }
    // SAFETY: libc's function of that name has this type.
    let original = unsafe { std::mem::transmute::<usize, Open>(original(c"open64", &KNOWN)) };
    // SAFETY: the arguments are the caller's, unchanged.
    unsafe { original(path, how, mode) }
}

/// Makes and saves a recording, and ends during a second. The chosen call fails once.
fn injected(folder: &Path) {
    let what = std::env::var("WHAT").unwrap();
    let nth = std::env::var("NTH").unwrap().parse().unwrap();
    LEFT.store(nth, Ordering::Relaxed);
    WHAT.store(CALLS.iter().position(|known| *known == what).unwrap(), Ordering::Relaxed);
    let outcome = record_twice(folder);
    WHAT.store(usize::MAX, Ordering::Relaxed);
    if let Err(error) = outcome {
        report(folder, &error.to_string());
    }
    // The count continues below 0.
    let has_failed = LEFT.load(Ordering::Relaxed).wrapping_sub(1) >= nth;
    report(folder, if has_failed { "failed" } else { "nothing failed" });
}

fn record_twice(folder: &Path) -> Result<(), Error> {
    use tracing_subscriber::prelude::*;
    let (layer, guard) = KinetoLayer::builder().output(folder.join(OUTPUT)).build()?;
    tracing_subscriber::registry().with(layer).init();
    let thread = std::thread::Builder::new().spawn(many);
    many();
    let threads = if thread.is_ok_and(|thread| thread.join().is_ok()) { 2 } else { 1 };
    let trace = guard.profiler().stop()?;
    let saved = trace.save(folder.join(FIRST));
    guard.profiler().start()?;
    work();
    drop(guard);
    report_made(folder, threads * SPANS);
    saved
}

/// Reports the number of spans made, and stops failing calls.
fn report_made(folder: &Path, spans: usize) {
    WHAT.store(usize::MAX, Ordering::Relaxed);
    report(folder, &format!("made {spans}"));
}

fn many() {
    (0..SPANS).for_each(|_| work());
}

const SPANS: usize = 2_000;
