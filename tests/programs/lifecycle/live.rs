//! What a live file holds of a process that is killed.

use super::play::{Played, play_while, play_with, record_as, report, work};
use super::sys::{self, SharedCounts};
use super::toy::{NoArgs, SINK, ToyCollector};
use super::{Scenario, Test};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::ManuallyDrop;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use support::poll_until;
use tracing::field::Empty;
use tracing_kineto::activity::{Activity, ActivityType, Body};
use tracing_kineto::integration::{ApiCall, DeviceWork, Thread};
use tracing_kineto::{ArgValue, ErrorKind, KinetoGuard, KinetoLayer, Loss, Overflow, Segment, Timestamp, Trace};
use tracing_subscriber::prelude::*;

/// The file in which a scenario counts what each of its threads has recorded.
pub(crate) const COUNTS: &str = "counts";
const THREADS: usize = 3;
/// Where the times of the threads' last spans begin.
const TIMES: usize = 8;
/// The count of short-lived threads.
const SHORT: usize = THREADS;

/// How many spans a scenario records until it drops a snapshot or is killed, and how many after it dropped one.
const LAST_WHILE_HELD: u64 = 80_000;
const AFTER_RELEASE: u64 = 40_000;

/// The count of device records.
const DEVICE: usize = THREADS + 1;

/// Returns a variable of the test itself.
#[expect(clippy::disallowed_methods, reason = "the library does not read it")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// How often each policy is killed.
pub(crate) fn runs() -> u64 {
    variable("KINETO_KILLS").and_then(|text| text.parse().ok()).unwrap_or(5)
}

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("live_work", |folder| {
        let (layer, guard) = KinetoLayer::builder().collector(ToyCollector).build().unwrap();
        let second = variable("SECOND_SHM_DIR").map(|shm| {
            let (layer, guard) = KinetoLayer::builder().no_output().shm_folder(shm).build().unwrap();
            let _guard = ManuallyDrop::new(guard);
            layer
        });
        tracing_subscriber::registry().with(layer).with(second).init();
        // Callsites and lanes of an earlier recording.
        iterate(9, 0, false);
        let profiler = guard.profiler();
        drop(profiler.stop().unwrap());
        profiler.start().unwrap();
        work_for_ever(folder, &guard);
    }),
    ("live_fork", |folder| {
        let guard = record_as(KinetoLayer::builder());
        (0..100).for_each(|_| work());
        let child = if variable("RAW_CLONE").is_some() { sys::clone_without_handlers() } else { sys::fork() };
        if child == 0 {
            // Not recorded.
            (0..50).for_each(|_| work());
            let profiler = guard.profiler();
            profiler.start().unwrap();
            (0..7).for_each(|_| work());
            drop(profiler.stop().unwrap());
            report(folder, "the child has recorded");
            // Until the test has read the file of the parent.
            poll_until(|| !folder.exists());
            sys::exit_now(0);
        }
        poll_until(|| folder.join("report").exists());
        (0..10).for_each(|_| work());
        sys::raise(libc::SIGKILL);
    }),
    ("live_snapshot", |folder| {
        let (layer, guard) = KinetoLayer::builder().collector(ToyCollector).build().unwrap();
        tracing_subscriber::registry().with(layer).init();
        let record = |numbers: std::ops::Range<u64>| {
            for n in numbers {
                if n.is_multiple_of(16) {
                    launch(n / 16);
                }
                iterate(0, n, false);
            }
        };
        let _root = tracing::info_span!("root", thread = 0).entered();
        let open = tracing::info_span!("open while held").entered();
        record(0..25_000);
        let snapshot = guard.profiler().snapshot().unwrap();
        let mut numbers = Numbers::new();
        add_numbers(&snapshot, &mut numbers);
        let of_snapshot = &numbers[&0];
        report(folder, &format!("{} {}", of_snapshot[0], of_snapshot.last().unwrap()));
        record(25_000..30_000);
        drop(open);
        record(30_000..LAST_WHILE_HELD);
        if variable("RELEASES").is_some() {
            drop(snapshot);
            record(LAST_WHILE_HELD..LAST_WHILE_HELD + AFTER_RELEASE);
        }
        sys::raise(libc::SIGKILL);
    }),
    ("live_queued_part", |_| {
        let (layer, guard) = KinetoLayer::builder().collector(ToyCollector).build().unwrap();
        tracing_subscriber::registry().with(layer).init();
        sys::ignore(libc::SIGXFSZ);
        sys::limit_files(Some(0));
        let lost = || guard.profiler().snapshot().unwrap().stats().lost(Loss::DeviceRecordsUnread);
        SINK.lock().unwrap().as_ref().unwrap().lost(Loss::DeviceRecordsUnread, 7);
        let deadline = Instant::now() + Duration::from_secs(60);
        // Until a part was taken out of memory, which cannot be written.
        while lost() == 7 && Instant::now() < deadline {
            (0..100).for_each(|_| work());
        }
        sys::raise(libc::SIGKILL);
    }),
    ("live_fork_unmapped", |folder| {
        let (layer, _guard) = KinetoLayer::builder().collector(ToyCollector).build().unwrap();
        tracing_subscriber::registry().with(layer).init();
        launch(0);
        iterate(0, 0, false);
        // The child cannot map private memory over the file, or none at all.
        let refused = if variable("NO_MEMORY").is_some() { 0 } else { libc::MAP_PRIVATE };
        assert!(sys::refuse_mappings(libc::MAP_FIXED | refused));
        if sys::fork() == 0 {
            launch(100);
            iterate(0, 100, false);
            report(folder, "the child has recorded");
            sys::exit_now(0);
        }
        poll_until(|| folder.join("report").exists());
        sys::raise(libc::SIGKILL);
    }),
    ("live_saved", |_| {
        let _guard = record_as(KinetoLayer::builder());
        work();
    }),
    ("live_exit", |_| {
        let _guard = record_as(KinetoLayer::builder());
        work();
        std::process::exit(0);
    }),
    ("live_dropped", |_| {
        let guard = record_as(KinetoLayer::builder());
        work();
        let trace = guard.finish().unwrap();
        assert_eq!(trace.stats().slices, 1);
    }),
    ("live_unsaved", |_| {
        let guard = record_as(KinetoLayer::builder());
        (0..7000).for_each(|_| work());
        sys::limit_files(Some(0));
        drop(guard);
    }),
    ("live_part_unsaved", |_| {
        let guard = record_as(KinetoLayer::builder().overflow(Overflow::Spill).buffer_limit_bytes(2 << 20));
        // The first part is larger; the rest is smaller or empty.
        sys::ignore(libc::SIGXFSZ);
        sys::limit_files(Some(400 << 10));
        for _ in 0..55 {
            (0..200).for_each(|_| work());
            std::thread::sleep(Duration::from_millis(2));
        }
        drop(guard);
    }),
    ("live_held", |_| {
        let guard = record_as(KinetoLayer::builder());
        work();
        let _trace = guard.profiler().stop().unwrap();
        sys::exit_now(0);
    }),
    ("live_abort", |_| {
        let _guard = record_as(KinetoLayer::builder());
        let _open = tracing::info_span!("open").entered();
        work();
        std::process::abort();
    }),
    ("live_forgotten", |_| {
        let _guard = ManuallyDrop::new(record_as(KinetoLayer::builder()));
        work();
        sys::exit_now(0);
    }),
];

/// Delivers a call and its work, which has that number.
fn launch(n: u64) {
    let (thread, start, correlation) = (Thread::Id(tracing_kineto::thread_id()), now(), n + 1);
    SINK.lock().unwrap().as_ref().unwrap().record(|batch| {
        let (kind, name) = (ActivityType::CudaDriver, batch.name("launch"));
        let call = ApiCall::new(kind, name, thread, (start, start + 50), &NoArgs);
        batch.call(&ApiCall { correlation, launches: true, ..call });
        let (kind, name) = (ActivityType::ConcurrentKernel, batch.name(&format!("kernel {n}")));
        let work = DeviceWork::new(kind, name, (0, 7), (start + 60, start + 90), &NoArgs);
        batch.work(&DeviceWork { correlation, ..work });
    });
}

macro_rules! sites {
    ($n:expr, $($number:literal)*) => {
        match $n % 16 {
            $($number => tracing::info_span!("new", number = $number).in_scope(|| ()),)*
            _ => {}
        }
    };
}

/// Records a span of a callsite that is perhaps new.
fn meet_site(number: u64) {
    sites!(number, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
}

/// Records the span number `n` of a thread, with what else a program may do around it.
fn iterate(thread: u64, n: u64, spawns: bool) {
    let late = tracing::info_span!("numbered", thread, n, late = Empty);
    late.in_scope(|| {
        if n.is_multiple_of(7) {
            tracing::info_span!("inner").in_scope(|| tracing::info!(target: "kineto::instant", "event"));
        }
        late.record("late", n);
    });
    if n.is_multiple_of(64) {
        meet_site(n / 64);
    }
    if spawns && n.is_multiple_of(16) {
        let short = move || tracing::info_span!("short", n = n / 16).in_scope(|| ());
        std::thread::Builder::new().spawn(short).unwrap().join().unwrap();
    }
}

/// Records until the process is killed.
fn work_for_ever(folder: &Path, guard: &KinetoGuard) -> ! {
    let counts = SharedCounts::open(&folder.join(COUNTS));
    let gate = Arc::new(RwLock::new(()));
    let pace = variable("PACE").unwrap().parse::<u64>().unwrap();
    for thread in 0..THREADS {
        let gate = gate.clone();
        let work = move || {
            let _root = tracing::info_span!("root", thread).entered();
            for n in 0.. {
                let open = gate.read().unwrap();
                iterate(thread as u64, n, thread == 0);
                if thread == 0 && n.is_multiple_of(16) {
                    counts.get(SHORT).store(n / 16 + 1, Ordering::SeqCst);
                    launch(n / 16);
                    counts.get(DEVICE).store(n / 16 + 1, Ordering::SeqCst);
                    for of in [SHORT, DEVICE] {
                        counts.get(TIMES + of).store(now(), Ordering::SeqCst);
                    }
                }
                counts.get(thread).store(n + 1, Ordering::SeqCst);
                counts.get(TIMES + thread).store(now(), Ordering::SeqCst);
                drop(open);
                if n.is_multiple_of(pace) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        };
        std::thread::Builder::new().name(format!("worker {thread}")).spawn(work).unwrap();
    }
    loop {
        std::thread::sleep(Duration::from_millis(7));
        if variable("NO_PAUSES").is_some() {
            continue;
        }
        let closed = gate.write().unwrap();
        guard.profiler().pause().unwrap();
        guard.profiler().resume().unwrap();
        drop(closed);
    }
}

/// The numbers that were found of each thread, in order, and of short-lived threads.
type Numbers = BTreeMap<usize, Vec<u64>>;

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_nanos()).unwrap()
}

pub(crate) fn number(activity: &Activity<'_>, key: &str) -> Option<u64> {
    let mut found = None;
    activity.args.visit(&mut |name, value| match value {
        ArgValue::U64(value) if name == key => found = Some(value),
        ArgValue::I64(value) if name == key => found = Some(value.cast_unsigned()),
        _ => {}
    });
    found
}

/// Adds the numbers in a trace. Checks that each span has its fields.
fn add_numbers(trace: &Trace, numbers: &mut Numbers) {
    trace.for_each(|activity| {
        let thread = match activity.name {
            "numbered" => usize::try_from(number(activity, "thread").expect("a field")).unwrap(),
            "short" => SHORT,
            name => match name.strip_prefix("kernel ") {
                Some(n) => return numbers.entry(DEVICE).or_default().push(n.parse().unwrap()),
                None => return,
            },
        };
        let n = number(activity, "n").expect("a field");
        numbers.entry(thread).or_default().push(n);
    });
}

/// Checks that each thread's numbers have no gap, and reach what the process said.
///
/// A slice that a segment cuts in two is in both parts: as many may occur twice as there are `cuts`.
fn check_numbers(mut numbers: Numbers, counts: &Path, since: Option<Timestamp>, cuts: usize) {
    let counts = SharedCounts::open(counts);
    for thread in 0..=DEVICE {
        let count = counts.get(thread).load(Ordering::SeqCst);
        let mut found = numbers.remove(&thread).unwrap_or_default();
        let last = counts.get(TIMES + thread).load(Ordering::SeqCst);
        if found.is_empty() && since.is_some_and(|since| last <= since.as_nanos()) {
            // It waited for so long that newer records have replaced all of its own.
            continue;
        }
        found.sort_unstable();
        let all = found.len();
        found.dedup();
        assert!(all - found.len() <= if thread == DEVICE { 0 } else { cuts }, "{all} of {thread} with {}", found.len());
        let first = found.first().copied().unwrap_or(0);
        let gap = found.windows(2).find(|pair| pair[0] + 1 != pair[1]);
        assert_eq!(gap, None, "thread {thread} of {count}: {} numbers from {first}", found.len());
        let after = found.last().map_or(0, |last| last + 1);
        assert!((count..=count + 1).contains(&after), "thread {thread}: {after} of {count}");
        assert!(first == 0 || since.is_some(), "thread {thread} begins at {first}");
    }
}

pub(crate) fn live_files(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|end| end == "klive")).collect()
}

fn segment_folder(played: &Played) -> Option<PathBuf> {
    segment_folder_in(&played.path(""))
}

pub(crate) fn segment_folder_in(folder: &Path) -> Option<PathBuf> {
    let mut paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.find(|path| path.extension().is_some_and(|end| end == "segments"))
}

pub(crate) fn shm() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("kineto-test-").tempdir_in("/dev/shm").unwrap()
}

/// Small parts, and memory for all that is recorded while the slowest disk writes one.
const SPILL: &[(&str, &str)] =
    &[("KINETO_OVERFLOW", "spill"), ("KINETO_SPLIT", "2MB"), ("KINETO_BUFFER_LIMIT_MB", "1024")];

const ENV_OUTPUT: (&str, &str) = ("KINETO_ACTIVITIES_LOG_FILE", "{}/out.pt.trace.json");

fn play_in(scenario: &str, shm: &Path) -> Played {
    play_with(scenario, &[("KINETO_SHM_DIR", shm.to_str().unwrap()), ENV_OUTPUT])
}

/// Kills the scenario after up to so many milliseconds; returns what it left.
fn kill(run: u64, most: u64, shm: &Path, env: &[(&str, &str)]) -> Played {
    let folder = [("KINETO_SHM_DIR", shm.to_str().unwrap())];
    play_while("live_work", &[&folder, &[ENV_OUTPUT], env].concat(), |process, folder| {
        let has_begun = || {
            let counts = folder.join(COUNTS).exists().then(|| SharedCounts::open(&folder.join(COUNTS)));
            counts.is_some_and(|counts| counts.get(0).load(Ordering::SeqCst) > 0)
        };
        poll_until(has_begun);
        for file in live_files(shm) {
            let error = Trace::read_segment(&file).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyActive, "its process still runs: {error}");
        }
        std::thread::sleep(Duration::from_micros(2_000 + run * 97_771 % (most * 1000)));
        sys::kill(process.cast_signed(), libc::SIGKILL);
    })
}

pub(crate) const TESTS: &[Test] = &[
    // Shows the key SHM_DIR.
    ("killed_process_loses_no_record", || {
        for run in 0..runs() {
            let shm = shm();
            let env =
                [("PACE", "20"), ("KINETO_BUFFER_LIMIT_MB", "64"), ("SECOND_SHM_DIR", shm.path().to_str().unwrap())];
            let played = kill(run, 150, shm.path(), &env);
            assert_eq!(played.status.signal(), Some(libc::SIGKILL), "{}", played.stderr);
            let files = live_files(shm.path());
            assert_eq!(files.len(), 2, "{}", played.stderr);
            for file in files {
                let segment = Trace::read_segment(&file).unwrap();
                assert_eq!(segment.lost_frames, 0, "{segment}");
                let mut numbers = Numbers::new();
                add_numbers(&segment.trace, &mut numbers);
                if file.to_str().unwrap().ends_with("-1.klive") {
                    // That of the second layer, which has no devices.
                    assert!(!numbers.contains_key(&DEVICE));
                    let device = SharedCounts::open(&played.path(COUNTS)).get(DEVICE).load(Ordering::SeqCst);
                    numbers.insert(DEVICE, (0..device).collect());
                }
                check_numbers(numbers, &played.path(COUNTS), None, 0);
            }
        }
    }),
    ("killed_process_keeps_its_newest_records", || {
        for run in 0..runs() {
            let shm = shm();
            let env = [
                ("PACE", "50"),
                ("KINETO_OVERFLOW", "keep_newest"),
                ("KINETO_BUFFER_LIMIT_MB", "2"),
                ("NO_PAUSES", ""),
            ];
            let has_pauses = run.is_multiple_of(2);
            let played = kill(run, 700, shm.path(), &env[..env.len() - usize::from(has_pauses)]);
            assert_eq!(played.status.signal(), Some(libc::SIGKILL), "{}", played.stderr);
            let [file] = &live_files(shm.path())[..] else { panic!("{}", played.stderr) };
            let segment = Trace::read_segment(file).unwrap();
            assert_eq!(segment.lost_frames, 0, "{segment}");
            let (mut numbers, mut roots) = (Numbers::new(), BTreeSet::new());
            add_numbers(&segment.trace, &mut numbers);
            check_numbers(numbers, &played.path(COUNTS), Some(segment.trace.window().0), 0);
            segment.trace.for_each(|activity| {
                if activity.name == "root" {
                    roots.insert(number(activity, "thread"));
                }
            });
            let counts = SharedCounts::open(&played.path(COUNTS));
            let begun = (0..THREADS).filter(|thread| counts.get(*thread).load(Ordering::SeqCst) > 0).count();
            assert!(has_pauses || roots.len() >= begun, "open spans are shown, with their fields: {roots:?}");
        }
    }),
    ("killed_process_keeps_what_a_snapshot_holds", || {
        for releases in [false, true] {
            let shm = shm();
            let env = [
                ("KINETO_SHM_DIR", shm.path().to_str().unwrap()),
                ("KINETO_OVERFLOW", "keep_newest"),
                ("KINETO_BUFFER_LIMIT_MB", "2"),
                ENV_OUTPUT,
                ("RELEASES", ""),
            ];
            let played = play_with("live_snapshot", &env[..env.len() - usize::from(!releases)]);
            assert_eq!(played.status.signal(), Some(libc::SIGKILL), "{}", played.stderr);
            let [file] = &live_files(shm.path())[..] else { panic!("{}", played.stderr) };
            let segment = Trace::read_segment(file).unwrap();
            assert_eq!(segment.lost_frames, 0, "{segment}");
            let mut numbers = Numbers::new();
            add_numbers(&segment.trace, &mut numbers);
            let (found, kernels) = (&numbers[&0], &numbers[&DEVICE]);
            let in_snapshot = std::fs::read_to_string(played.path("report")).unwrap();
            let (first, last) = in_snapshot.trim().split_once(' ').unwrap();
            let (first, last) = (first.parse::<u64>().unwrap(), last.parse::<u64>().unwrap());
            let stats = segment.trace.stats();
            let last_of = |numbers: &[u64]| {
                numbers.windows(2).filter(|pair| pair[0] + 1 != pair[1]).map(|pair| pair[0]).collect::<Vec<_>>()
            };
            let end = if releases { LAST_WHILE_HELD + AFTER_RELEASE } else { LAST_WHILE_HELD };
            assert_eq!(found.last(), Some(&(end - 1)), "{stats}");
            assert_eq!(stats.lost(Loss::WorkWithoutLaunch) + stats.lost(Loss::OutOfWindow), 0, "{stats}");
            let mut open = Vec::new();
            segment.trace.for_each(|activity| {
                if let ("open while held", Body::Slice { start, end }) = (activity.name, &activity.body) {
                    open.push((*start, *end));
                }
            });
            if releases {
                assert_eq!((last_of(found), last_of(kernels), open.len()), (vec![], vec![], 0), "{stats}");
                assert!(found[0] > LAST_WHILE_HELD, "{stats}");
                continue;
            }
            // What the snapshot had, then a gap of which no record is shown, then the newest.
            assert_eq!((found[0], last_of(found)), (first, vec![last]), "{stats}");
            assert!(kernels[0] <= first / 16 + 1 && last_of(kernels) == [last / 16], "{stats}");
            let host = &stats.recorded.iter().find(|time| time.name == "host").unwrap().stretches;
            let [held, newest] = host[..] else { panic!("{host:?}") };
            let [open] = open[..] else { panic!("{open:?}") };
            assert!(open.0 <= held.0 && held.1 < open.1 && open.1 < newest.0, "{open:?} {host:?}");
        }
    }),
    ("killed_process_loses_no_record_while_spilling", || {
        for run in 0..runs() {
            let shm = shm();
            let env = [&[("PACE", "20")], SPILL].concat();
            let played = kill(run, 2000, shm.path(), &env);
            let segments = segment_folder(&played);
            // The kill may come before the folder has a link to the live file.
            let files = segments.and_then(|folder| Segment::files_in(folder).ok());
            let files = files.unwrap_or_else(|| live_files(shm.path()));
            assert!(
                files.last().unwrap().extension().is_some_and(|end| end == "klive"),
                "{files:?}: {}",
                played.stderr
            );
            let mut numbers = Numbers::new();
            for file in &files {
                let segment = Trace::read_segment(file).unwrap();
                let stats = segment.trace.stats();
                assert_eq!(stats.lost(Loss::NotSpilled), 0, "{stats}");
                add_numbers(&segment.trace, &mut numbers);
            }
            check_numbers(numbers, &played.path(COUNTS), None, files.len() - 1);
        }
    }),
    ("losses_of_queued_parts_are_shown", || {
        let shm = shm();
        let env = [
            ("KINETO_OVERFLOW", "spill"),
            ("KINETO_BUFFER_LIMIT_MB", "4"),
            ("KINETO_SHM_DIR", shm.path().to_str().unwrap()),
            ENV_OUTPUT,
        ];
        let played = play_with("live_queued_part", &env);
        assert_eq!(played.status.signal(), Some(libc::SIGKILL), "{}", played.stderr);
        let [file] = &live_files(shm.path())[..] else { panic!("{}", played.stderr) };
        let stats = Trace::read_segment(file).unwrap().trace.stats();
        assert_eq!(stats.lost(Loss::DeviceRecordsUnread), 7, "{stats}");
    }),
    ("moved_crash_folder_is_read_as_it_lies", || {
        let shm = shm();
        let env = [&[("PACE", "20"), ("KINETO_SHM_DIR", shm.path().to_str().unwrap()), ENV_OUTPUT], SPILL].concat();
        let played = play_while("live_work", &env, |process, folder| {
            let has_two = |folder: &Path| folder.join("seg-000002.kseg").exists();
            poll_until(|| segment_folder_in(folder).is_some_and(|segments| has_two(&segments)));
            sys::kill(process.cast_signed(), libc::SIGKILL);
        });
        let read = |folder: &Path| {
            let files = Segment::files_in(folder).unwrap();
            let mut numbers = Numbers::new();
            for file in &files {
                let segment = Trace::read_segment_in(folder, file).unwrap();
                let stats = segment.trace.stats();
                assert_eq!(stats.lost(Loss::NotSpilled), 0, "{stats}");
                add_numbers(&segment.trace, &mut numbers);
            }
            check_numbers(numbers, &played.path(COUNTS), None, files.len() - 1);
            files
        };
        let segments = segment_folder(&played).unwrap();
        let live = read(&segments).pop().unwrap();
        let moved = played.path("moved");
        std::fs::rename(&segments, &moved).unwrap();
        assert_eq!(read(&moved).last(), Some(&live));
        // With the live file, as on another machine.
        let copied = moved.join(live.file_name().unwrap());
        std::fs::copy(&live, &copied).unwrap();
        std::fs::remove_file(&live).unwrap();
        assert_eq!(read(&moved).last(), Some(&copied));
    }),
    ("forked_child_leaves_the_live_file_alone", || {
        let shm = shm();
        let played = play_in("live_fork", shm.path());
        assert_eq!(played.status.signal(), Some(libc::SIGKILL), "{}", played.stderr);
        // The child still runs.
        let [file] = &live_files(shm.path())[..] else { panic!("{}", played.stderr) };
        assert_eq!(Trace::read_segment(file).unwrap().trace.stats().slices, 110);
    }),
    ("cloned_child_leaves_the_live_file_alone", || {
        let shm = shm();
        let env = [("KINETO_SHM_DIR", shm.path().to_str().unwrap()), ENV_OUTPUT, ("RAW_CLONE", "")];
        let played = play_with("live_fork", &env);
        assert_eq!(played.status.signal(), Some(libc::SIGKILL), "{}", played.stderr);
        let [file] = &live_files(shm.path())[..] else { panic!("{}", played.stderr) };
        let (mut slices, segment) = (0, Trace::read_segment(file).unwrap());
        segment.trace.for_each(|activity| slices += u32::from(activity.name == "work"));
        assert_eq!((slices, segment.trace.stats().slices, segment.lost_frames), (110, 110, 0), "{segment}");
    }),
    ("child_without_memory_leaves_the_live_file_alone", || {
        for env in [&[][..], &[("NO_MEMORY", "")]] {
            let shm = shm();
            let folder = [("KINETO_SHM_DIR", shm.path().to_str().unwrap()), ENV_OUTPUT];
            let played = play_with("live_fork_unmapped", &[&folder, env].concat());
            assert_eq!(played.status.signal(), Some(libc::SIGKILL), "{}", played.stderr);
            let [file] = &live_files(shm.path())[..] else { panic!("{}", played.stderr) };
            let segment = Trace::read_segment(file).unwrap();
            assert_eq!(segment.lost_frames, 0, "{segment}");
            let mut names = BTreeSet::new();
            segment.trace.for_each(|activity| {
                assert!(names.insert(activity.name.to_owned()), "{} twice", activity.name);
            });
            let expected = ["event", "inner", "kernel 0", "launch", "new", "numbered"];
            assert_eq!(names.iter().map(String::as_str).collect::<Vec<_>>(), expected, "{env:?}");
        }
    }),
    ("live_file_goes_with_its_trace", || {
        for scenario in ["live_saved", "live_exit", "live_dropped"] {
            let shm = shm();
            let played = play_in(scenario, shm.path()).succeeded();
            assert_eq!(live_files(shm.path()), [] as [PathBuf; 0], "{scenario}: {}", played.stderr);
            assert_eq!(played.files().len(), usize::from(scenario != "live_dropped"), "{}", played.stderr);
        }
    }),
    ("live_file_stays_until_its_trace_is_written", || {
        let scenarios =
            [("live_unsaved", 7000), ("live_part_unsaved", 11_000), ("live_held", 1), ("live_forgotten", 1)];
        for (scenario, slices) in scenarios {
            let shm = shm();
            let played = play_in(scenario, shm.path()).succeeded();
            let [file] = &live_files(shm.path())[..] else { panic!("{scenario}: {}", played.stderr) };
            assert_eq!(
                Trace::read_segment(file).unwrap().trace.stats().slices,
                slices,
                "{scenario}: {}",
                played.stderr
            );
            // The next start reports it, and leaves it there.
            let next = play_in("live_saved", shm.path()).succeeded();
            let command = format!("run `kineto repair {}`", file.display());
            assert!(next.stderr.contains(&command), "{scenario}: {}", next.stderr);
            assert!(file.exists());
        }
    }),
    ("aborted_process_leaves_its_open_spans", || {
        let shm = shm();
        let played = play_in("live_abort", shm.path());
        assert_eq!(played.status.signal(), Some(libc::SIGABRT), "{}", played.stderr);
        let segment = Trace::read_segment(&live_files(shm.path())[0]).unwrap();
        let mut slices = BTreeMap::new();
        segment.trace.for_each(|activity| {
            if let Body::Slice { start, end } = activity.body {
                slices.insert(activity.name.to_owned(), (start, end));
            }
        });
        let ((open, cut), (start, end)) = (slices["open"], slices["work"]);
        assert!(open <= start && start <= end && end <= cut, "{slices:?}");
    }),
    ("folder_without_memory_is_reported", || {
        let on_disk = play_with("live_saved", &[("KINETO_SHM_DIR", "{}"), ENV_OUTPUT]).succeeded();
        assert!(on_disk.stderr.contains("is not in shared memory"), "{}", on_disk.stderr);
        let shm = shm();
        let env =
            [("KINETO_SHM_DIR", shm.path().to_str().unwrap()), ("KINETO_BUFFER_LIMIT_MB", "100000000"), ENV_OUTPUT];
        let too_large = play_with("live_saved", &env).succeeded();
        assert!(too_large.stderr.contains(" MiB free, and "), "{}", too_large.stderr);
        for played in [on_disk, too_large] {
            let files = played.files();
            let output = files.iter().find(|name| name.ends_with(".json")).unwrap();
            assert_eq!(played.file(output).slices("work"), 1);
        }
    }),
    ("damaged_live_file_does_no_harm", || {
        let shm = shm();
        let env = [("KINETO_SHM_DIR", shm.path().to_str().unwrap()), ("KINETO_BUFFER_LIMIT_MB", "1"), ENV_OUTPUT];
        drop(play_with("live_forgotten", &env).succeeded());
        let intact = std::fs::read(&live_files(shm.path())[0]).unwrap();
        let read = |bytes: &[u8]| {
            if let Ok(segment) = Trace::read_segment_from(bytes, "damaged.klive") {
                segment.trace.for_each(|_| ());
            }
        };
        // The header, the directory and the slots are mostly zeros: what is not is damaged.
        let used: Vec<usize> = (0..intact.len()).filter(|at| intact[*at] != 0).collect();
        for nth in 0..200 {
            let mut damaged = intact.clone();
            let at = used[nth * 7919 % used.len()];
            damaged[at] = damaged[at].wrapping_add(1 + u8::try_from(nth % 255).unwrap());
            read(&damaged);
        }
        for length in [0, 7, 8, 100, 4095, 4096, 70_000, intact.len() / 2, intact.len() - 1] {
            read(&intact[..length]);
        }
    }),
];
