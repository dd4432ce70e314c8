//! Disks that are full while records are moved to them, and have space again later.
#![allow(clippy::disallowed_methods, reason = "the test reads messages from stderr")]

use super::ends::exit;
use super::play::{OUTPUT, Played, play, record_as, report, work};
use super::{Scenario, Test, sys};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tracing_kineto::analysis::Events;
use tracing_kineto::{KinetoGuard, KinetoLayer, Message, Overflow, Spill};

pub(crate) const SCENARIOS: &[Scenario] = &[
    // Each segment is larger.
    ("spill_at_the_file_size_limit", |folder| {
        spill(folder, folder, |is_full| sys::limit_files(is_full.then_some(64 << 10)));
    }),
    ("spill_to_a_folder_that_is_removed", |folder| {
        let disk = folder.join("disk");
        std::fs::create_dir(&disk).unwrap();
        let mut recording = Recording::begin(&folder.join(OUTPUT), &disk);
        recording.work_until(|recording| segments(&recording.disk) > 1);
        remove_segments(&disk);
        recording.work_until(|recording| segments(&recording.disk) > 1);
        recording.end(folder);
    }),
    ("spill_without_any_folder", |folder| {
        let disk = folder.join("disk");
        std::fs::create_dir(&disk).unwrap();
        let mut recording = Recording::begin(&disk.join(OUTPUT), &disk);
        recording.work_until(|recording| segments(&recording.disk) > 1);
        remove_folder(&disk);
        let begun = Instant::now();
        recording
            .work_until(|recording| recording.has_reported(PAUSED) && begun.elapsed() > Duration::from_millis(300));
        recording.end(folder);
    }),
    ("exit_with_a_removed_folder", |folder| {
        let disk = folder.join("disk");
        std::fs::create_dir(&disk).unwrap();
        let mut recording = Recording::begin(&disk.join(OUTPUT), &disk);
        recording.work_until(|recording| segments(&recording.disk) > 1);
        remove_folder(&disk);
        recording.work_until(|recording| recording.has_reported(PAUSED));
        report(folder, &recording.count.to_string());
        exit(0);
    }),
    #[cfg(target_os = "linux")]
    ("spill_to_a_full_disk", |folder| {
        let disk = folder.join("disk");
        std::fs::create_dir(&disk).unwrap();
        if !sys::mount_small_disk(&disk, c"size=8m") {
            return report(folder, NO_DISK);
        }
        let filler = disk.join("filler");
        spill(folder, &disk, |is_full| match is_full {
            true => fill_disk(&filler),
            false => std::fs::remove_file(&filler).unwrap(),
        });
    }),
];

pub(crate) const TESTS: &[Test] = &[
    ("file_size_limit_while_spilling_is_counted_and_ends", || check(&play("spill_at_the_file_size_limit"))),
    ("folder_that_is_removed_while_spilling_is_told", || {
        for scenario in ["spill_to_a_folder_that_is_removed", "spill_without_any_folder", "exit_with_a_removed_folder"]
        {
            let played = play(scenario).succeeded();
            let recorded: usize = played.report().trim_end().parse().unwrap();
            let (found, counted) = read_parts(&played);
            let told = reported_losses(&played.stderr);
            assert_eq!(found + counted + told, recorded, "{found}, {counted}, {told}, {scenario}: {}", played.stderr);
            assert!(told > 0, "{}", played.stderr);
        }
    }),
    #[cfg(target_os = "linux")]
    ("full_disk_while_spilling_is_counted_and_ends", || {
        let played = play("spill_to_a_full_disk").succeeded();
        if played.report().trim_end() != NO_DISK {
            check(&played);
        }
    }),
];

/// Reported if the kernel does not let this process mount a disk.
#[cfg(target_os = "linux")]
const NO_DISK: &str = "no disk can be mounted";

const PAUSED: &str = "records are not moved to disk for now";
const RESUMED: &str = "records are moved to disk again";

/// A recording whose records are moved to `disk`.
struct Recording {
    guard: KinetoGuard,
    disk: PathBuf,
    messages: Arc<Mutex<String>>,
    count: u64,
}

impl Recording {
    fn begin(output: &Path, disk: &Path) -> Recording {
        let messages = Arc::new(Mutex::new(String::new()));
        let kept = messages.clone();
        let log = move |message: &Message<'_>| {
            let _ = writeln!(io::stderr(), "{message}");
            kept.lock().unwrap().push_str(&message.to_string());
        };
        let builder = KinetoLayer::builder().output(output).overflow(Overflow::Spill).spill(Spill::new().folder(disk));
        let guard = record_as(builder.buffer_limit_bytes(2 << 20).log_sink(Arc::new(log)));
        Recording { guard, disk: disk.to_owned(), messages, count: 0 }
    }

    fn has_reported(&self, text: &str) -> bool {
        self.messages.lock().unwrap().contains(text)
    }

    fn work_until(&mut self, is_done: impl Fn(&Recording) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is_done(self) {
            assert!(Instant::now() < deadline, "{}", self.messages.lock().unwrap());
            (0..1000).for_each(|_| work());
            self.count += 1000;
        }
    }

    fn end(self, folder: &Path) {
        drop(self.guard);
        report(folder, &self.count.to_string());
    }
}

/// Records while segments can be written to `disk`, cannot, and can again; `set_full` makes the disk full.
fn spill(folder: &Path, disk: &Path, set_full: impl Fn(bool)) {
    let mut recording = Recording::begin(&folder.join(OUTPUT), disk);
    recording.work_until(|recording| segments(&recording.disk) > 0);
    set_full(true);
    recording.work_until(|recording| recording.has_reported(PAUSED));
    // More than the memory holds, and the second try.
    let begun = Instant::now();
    recording.work_until(|_| begun.elapsed() > Duration::from_millis(1500));
    let written = segments(disk);
    set_full(false);
    recording.work_until(|recording| segments(&recording.disk) > written + 1);
    recording.end(folder);
}

/// Removes a folder in which a file may be created meanwhile.
fn remove_folder(path: &Path) {
    while let Err(error) = std::fs::remove_dir_all(path) {
        assert_eq!(error.kind(), io::ErrorKind::DirectoryNotEmpty, "{}", path.display());
    }
}

/// Removes the folders of segments.
fn remove_segments(disk: &Path) {
    let folders = std::fs::read_dir(disk).unwrap().map(|entry| entry.unwrap().path());
    let segments = folders.filter(|path| path.extension().is_some_and(|end| end == "segments"));
    segments.for_each(|path| remove_folder(&path));
}

/// Adds up the counts in messages such as "part 3 of the recording is lost, 5 records and 2 that newer ones had replaced: …".
fn reported_losses(messages: &str) -> usize {
    let counts = messages.lines().filter(|line| line.contains("lost") && line.contains(" record")).map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let before = |what: &str| {
            let numbers = words.windows(2).filter(|pair| pair[1].trim_end_matches([':', 's']) == what);
            numbers.filter_map(|pair| pair[0].parse::<usize>().ok()).sum::<usize>()
        };
        before("record") + before("that")
    });
    counts.sum()
}

/// Returns the number of complete segments on a disk.
fn segments(disk: &Path) -> usize {
    let has_end = |path: &PathBuf, end: &str| path.extension().is_some_and(|extension| extension == end);
    let files = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let folders = files(disk).filter(|path| has_end(path, "segments")).collect::<Vec<_>>();
    folders.iter().flat_map(|folder| files(folder)).filter(|path| has_end(path, "kseg")).count()
}

/// Fills a disk, except for less than a segment has: the disk is full in the middle of one.
#[cfg(target_os = "linux")]
fn fill_disk(filler: &Path) {
    let mut file = std::fs::File::create(filler).unwrap();
    let block = [0; 16 << 10];
    let full = std::iter::repeat_with(|| file.write(&block)).map_while(Result::ok).sum::<usize>() as u64;
    file.set_len(full - (256 << 10)).unwrap();
}

/// Checks that the trouble was reported once, and that each slice is in a file or counted.
fn check(played: &Played) {
    let recorded: usize = played.report().trim_end().parse().unwrap();
    for text in [PAUSED, RESUMED] {
        assert_eq!(played.stderr.matches(text).count(), 1, "{text}: {}", played.stderr);
    }
    let (found, lost) = read_parts(played);
    assert_eq!(found + lost, recorded, "{found} and {lost} lost: {}", played.stderr);
    assert!(lost > 0, "more than fits into memory was recorded while the disk was full");
    assert!(!played.files().iter().any(|name| name.ends_with(".segments")), "{:?}", played.files());
}

/// Returns the number of slices that began in the parts, and of those that they count as lost.
pub(crate) fn read_parts(played: &Played) -> (usize, usize) {
    let (mut found, mut lost) = (0, 0);
    for part in played.files().into_iter().filter(|name| name.ends_with(".json")) {
        let whole = Events::read(played.path(&part)).unwrap();
        found += whole.iter().filter(|event| event.name() == "work" && event.arg("clipped").is_none()).count();
        lost += usize::try_from(played.file(&part).lost("records_not_spilled")).unwrap();
    }
    (found, lost)
}
