//! Programs that close all descriptors, as daemons do, and use the numbers for files of their own.

use super::live::{live_files, shm};
use super::play::{Played, play_with, record_as, report, work};
use super::sys;
use super::{Scenario, Test};
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use support::poll_until;
use tracing_kineto::{KinetoGuard, KinetoLayer, Overflow};

/// More than the descriptors that the library has open.
const FILES: usize = 64;
/// As large as several slots of the live file.
const BYTES: usize = 4 << 20;

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("closed_and_evicted", |folder| {
        let _guard = record_as(KinetoLayer::builder().overflow(Overflow::KeepNewest).buffer_limit_bytes(2 << 20));
        (0..1000).for_each(|_| work());
        let reused = Reused::new(folder, false);
        (0..100_000).for_each(|_| work());
        reused.check();
        report(folder, "unchanged");
        sys::raise(libc::SIGTERM);
        wait_for_the_end();
    }),
    ("closed_between_recordings", |folder| {
        let guard = record_as(KinetoLayer::builder());
        work();
        let reused = Reused::new(folder, false);
        let trace = guard.profiler().stop().unwrap();
        trace.save(folder.join("first.json")).unwrap();
        drop(trace);
        guard.profiler().start().unwrap();
        (0..10_000).for_each(|_| work());
        drop(guard);
        reused.check();
        report(folder, "unchanged");
    }),
    ("closed_in_a_child", |folder| {
        let guard = record_as(KinetoLayer::builder());
        work();
        let reused = Reused::new(folder, false);
        if sys::fork() == 0 {
            reused.check();
            report(folder, "unchanged");
            sys::exit_now(0);
        }
        poll_until(|| folder.join("report").exists());
        drop(guard);
        reused.check();
    }),
    ("closed_while_spilling", |folder| {
        let guard = record_as(KinetoLayer::builder().overflow(Overflow::Spill).buffer_limit_bytes(2 << 20));
        let record = |until: &dyn Fn() -> bool| {
            poll_until(|| {
                (0..1000).for_each(|_| work());
                until()
            });
        };
        record(&|| has_segment(folder, 1));
        // Sockets, of which a read takes something away.
        let reused = Reused::new(folder, true);
        record(&|| has_segment(folder, 3));
        drop(guard);
        reused.check();
        report(folder, "unchanged");
    }),
    ("closed_with_counters", |folder| {
        let guard = counted();
        work();
        let reused = Reused::new(folder, true);
        (0..100).for_each(|_| work());
        let trace = guard.profiler().stop().unwrap();
        assert_eq!(trace.stats().slices, 101);
        drop((trace, guard));
        reused.check();
        report(folder, "unchanged");
    }),
    #[cfg(feature = "ondemand")]
    ("closed_while_waiting_for_requests", |folder| {
        let guard = record_as(KinetoLayer::builder().trigger_folder(folder));
        let request = |name: &str| folder.join(format!("{}.{name}", std::process::id()));
        poll_until(|| request("status").exists());
        let reused = Reused::new(folder, true);
        // The folder is watched again.
        fs::write(request("request"), "ACTIVITIES_DURATION_MSECS=10\n").unwrap();
        poll_until(|| !request("request").exists());
        drop(guard);
        reused.check();
        report(folder, "unchanged");
    }),
];

fn counted() -> KinetoGuard {
    record_as(KinetoLayer::builder().performance_events(["task-clock", "page-faults"]))
}

fn has_segment(folder: &Path, number: u32) -> bool {
    let segments = super::live::segment_folder_in(folder);
    segments.is_some_and(|segments| segments.join(format!("seg-{number:06}.kseg")).exists())
}

fn wait_for_the_end() -> ! {
    loop {
        std::thread::park();
    }
}

/// Files of the program whose descriptors were the library's before.
struct Reused {
    path: PathBuf,
    files: Vec<File>,
    sockets: Vec<std::os::unix::net::UnixStream>,
    ids: Vec<(i32, u64)>,
}

impl Reused {
    fn new(folder: &Path, with_sockets: bool) -> Reused {
        sys::close_from(3);
        let path = folder.join("own.dat");
        fs::write(&path, vec![0xaa; BYTES]).unwrap();
        let mut reused = Reused { path: path.clone(), files: Vec::new(), sockets: Vec::new(), ids: Vec::new() };
        for at in 0..FILES {
            // Each second number, and all of the others.
            if with_sockets && at % 2 == 0 {
                let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
                std::io::Write::write_all(&mut &near, &[0xaa; 100]).unwrap();
                std::io::Write::write_all(&mut &far, &[0xaa; 100]).unwrap();
                reused.sockets.extend([near, far]);
            } else {
                reused.files.push(File::options().read(true).write(true).open(&path).unwrap());
            }
        }
        reused.ids = reused.ids_now();
        reused
    }

    fn ids_now(&self) -> Vec<(i32, u64)> {
        let numbers = self.files.iter().map(AsRawFd::as_raw_fd).chain(self.sockets.iter().map(AsRawFd::as_raw_fd));
        let inode = |number: i32| fs::metadata(format!("/proc/self/fd/{number}")).map_or(0, |found| found.ino());
        numbers.map(|number| (number, inode(number))).collect()
    }

    /// Checks that all are open, and that nothing was written, read or locked.
    fn check(&self) {
        assert_eq!(self.ids_now(), self.ids, "open, each with its file");
        for file in &self.files {
            assert_eq!((&mut &*file).stream_position().unwrap(), 0);
        }
        let text = fs::read(&self.path).unwrap();
        assert!(text.len() == BYTES && text.iter().all(|byte| *byte == 0xaa), "{} bytes", text.len());
        assert!(fs::metadata(&self.path).unwrap().blocks() >= BYTES as u64 / 512);
        for socket in &self.sockets {
            let mut bytes = [0; 200];
            socket.set_nonblocking(true).unwrap();
            assert_eq!((&mut &*socket).read(&mut bytes).unwrap(), 100, "as much as was written");
        }
    }
}

fn play_in(scenario: &str, shm: &Path) -> Played {
    play_with(scenario, &[("KINETO_SHM_DIR", shm.to_str().unwrap()), ("KINETO_ACTIVITIES_LOG_FILE", "{}/out.json")])
}

pub(crate) const TESTS: &[Test] = &[("program_keeps_files_of_reused_descriptors", || {
    let shm = shm();
    let played = play_in("closed_and_evicted", shm.path());
    assert_eq!(
        (played.report().trim(), played.status.signal()),
        ("unchanged", Some(libc::SIGTERM)),
        "{}",
        played.stderr
    );
    let output = played.files().into_iter().find(|name| name.starts_with("out")).expect("a trace");
    assert!(played.file(&output).slices("work") > 1000);
    let mut scenarios = vec!["closed_between_recordings", "closed_in_a_child", "closed_while_spilling"];
    scenarios.push("closed_with_counters");
    #[cfg(feature = "ondemand")]
    scenarios.push("closed_while_waiting_for_requests");
    for scenario in scenarios {
        let played = play_in(scenario, shm.path()).succeeded();
        assert_eq!(played.report().trim(), "unchanged", "{scenario}: {}", played.stderr);
    }
    assert!(live_files(shm.path()).is_empty());
})];
