//! Live files under a limit on the size of files, whose signal ends the process by default.

use super::full_disk::read_parts;
use super::live::{live_files, segment_folder_in, shm};
use super::play::{Played, play_with, record_as, report, work};
use super::sys;
use super::{Scenario, Test};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tracing_kineto::{KinetoLayer, Message, Overflow, Trace};

/// Less than a live file, and more than the traces of these scenarios.
const LIMIT: u64 = 512 << 10;
/// More than the first chunks have.
const MANY: usize = 10_000;

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("limited_before", |_| {
        sys::limit_files(Some(LIMIT));
        let _guard = record_as(KinetoLayer::builder());
        work();
    }),
    ("limited_while_recording", |_| {
        let _guard = record_as(KinetoLayer::builder());
        sys::limit_files(Some(0));
        (0..MANY).for_each(|_| work());
        sys::raise(libc::SIGKILL);
    }),
    ("limited_by_full_memory", |folder| {
        let memory = folder.join("memory");
        std::fs::create_dir(&memory).unwrap();
        if !sys::mount_small_disk(&memory, c"size=24m") {
            return report(folder, "no disk can be mounted");
        }
        let guard = record_as(KinetoLayer::builder().shm_folder(&memory).buffer_limit_bytes(8 << 20));
        // Allocation by address works without the descriptor too.
        sys::close_from(3);
        let mut filler = std::fs::File::create(memory.join("filler")).unwrap();
        while std::io::Write::write_all(&mut filler, &[1; 4096]).is_ok() {}
        (0..MANY).for_each(|_| work());
        assert_eq!(guard.finish().unwrap().stats().slices, MANY as u64);
        report(folder, "recorded");
    }),
    ("limited_between_recordings", |_| {
        let guard = record_as(KinetoLayer::builder());
        drop(guard.profiler().stop().unwrap());
        sys::limit_files(Some(LIMIT));
        guard.profiler().start().unwrap();
        work();
    }),
    ("limited_while_spilling", |folder| {
        let is_refused = Arc::new(AtomicBool::new(false));
        let noted = is_refused.clone();
        let log = move |message: &Message<'_>| {
            noted.fetch_or(message.to_string().contains("records are not moved to disk"), Ordering::SeqCst);
        };
        let builder = KinetoLayer::builder().overflow(Overflow::Spill).buffer_limit_bytes(2 << 20);
        let guard = record_as(builder.log_sink(Arc::new(log)));
        sys::limit_files(Some(0));
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut count = 0;
        while !is_refused.load(Ordering::SeqCst) && Instant::now() < deadline {
            (0..1000).for_each(|_| work());
            count += 1000;
        }
        sys::limit_files(None);
        drop(guard);
        report(folder, &count.to_string());
    }),
];

const TROUBLE: &str = "raise the limit on file sizes (ulimit -f), or lower BUFFER_LIMIT_MB";

fn play_in(scenario: &str, shm: &Path) -> Played {
    let output = ("KINETO_ACTIVITIES_LOG_FILE", "{}/out.pt.trace.json");
    play_with(scenario, &[("KINETO_SHM_DIR", shm.to_str().unwrap()), output])
}

pub(crate) const TESTS: &[Test] = &[
    ("live_file_over_the_size_limit_is_reported", || {
        for scenario in ["limited_before", "limited_between_recordings"] {
            let shm = shm();
            let played = play_in(scenario, shm.path()).succeeded();
            assert_eq!(played.stderr.matches(TROUBLE).count(), 1, "{scenario}: {}", played.stderr);
            assert_eq!(live_files(shm.path()).len(), 0, "{scenario}");
            let output = played.files().into_iter().find(|name| name.ends_with(".json")).unwrap();
            assert_eq!(played.file(&output).slices("work"), 1, "{scenario}");
        }
    }),
    ("full_shared_memory_is_no_signal", || {
        let output = ("KINETO_ACTIVITIES_LOG_FILE", "{}/out.pt.trace.json");
        let played = play_with("limited_by_full_memory", &[output]).succeeded();
        assert!(["no disk can be mounted", "recorded"].contains(&played.report().trim()), "{}", played.stderr);
    }),
    ("live_file_grows_into_a_lowered_size_limit", || {
        let shm = shm();
        let played = play_in("limited_while_recording", shm.path());
        assert_eq!(played.status.signal(), Some(libc::SIGKILL), "{}", played.stderr);
        let [file] = &live_files(shm.path())[..] else { panic!("{}", played.stderr) };
        assert_eq!(Trace::read_segment(file).unwrap().trace.stats().slices, MANY as u64);
    }),
    ("size_limit_while_spilling_ends_no_program", || {
        let shm = shm();
        let played = play_in("limited_while_spilling", shm.path()).succeeded();
        let recorded: usize = played.report().trim_end().parse().unwrap();
        let (found, lost) = read_parts(&played);
        assert_eq!(found + lost, recorded, "{found}, {lost}: {}", played.stderr);
        assert!(segment_folder_in(&played.path("")).is_none(), "{:?}", played.files());
    }),
];
