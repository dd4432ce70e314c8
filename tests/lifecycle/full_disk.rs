//! Disks that are full while records are moved to them, and have space again later.
#![allow(clippy::disallowed_methods, reason = "the test reads messages from stderr")]

use crate::play::{OUTPUT, Played, play, record_as, report, work};
use crate::{Scenario, Test, sys};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tracing_kineto::analysis::Events;
use tracing_kineto::{KinetoLayer, Message, Overflow};

pub(crate) const SCENARIOS: &[Scenario] = &[
    // Each segment is larger.
    ("spill_at_the_file_size_limit", |folder| {
        spill(folder, folder, |is_full| sys::limit_files(is_full.then_some(64 << 10)));
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

/// Records while segments can be written to `disk`, cannot, and can again; `set_full` makes the disk full.
fn spill(folder: &Path, disk: &Path, set_full: impl Fn(bool)) {
    let messages = Arc::new(Mutex::new(String::new()));
    let kept = messages.clone();
    let log = move |message: &Message<'_>| {
        let _ = writeln!(io::stderr(), "{message}");
        kept.lock().unwrap().push_str(&message.to_string());
    };
    let builder = KinetoLayer::builder().output(folder.join(OUTPUT)).overflow(Overflow::Spill).spill_folder(disk);
    let guard = record_as(builder.buffer_limit_bytes(2 << 20).log_sink(Arc::new(log)));
    let mut count = 0_u64;
    let mut work_until = |is_done: &dyn Fn() -> bool| {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is_done() {
            assert!(Instant::now() < deadline, "{}", messages.lock().unwrap());
            (0..1000).for_each(|_| work());
            count += 1000;
        }
    };
    work_until(&|| segments(disk) > 0);
    set_full(true);
    work_until(&|| messages.lock().unwrap().contains(PAUSED));
    // More than the memory holds, and the second try.
    let begun = Instant::now();
    work_until(&|| begun.elapsed() > Duration::from_millis(1500));
    let written = segments(disk);
    set_full(false);
    work_until(&|| segments(disk) > written + 1);
    drop(guard);
    report(folder, &count.to_string());
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
    let parts: Vec<_> = played.files().into_iter().filter(|name| name.contains(".part")).collect();
    let (mut found, mut lost) = (0, 0);
    for part in &parts {
        let whole = Events::read(played.path(part)).unwrap();
        found += whole.iter().filter(|event| event.name() == "work" && event.arg("clipped").is_none()).count();
        lost += usize::try_from(played.file(part).lost("records_not_spilled")).unwrap();
    }
    assert_eq!(found + lost, recorded, "{found} in {}, {lost} lost: {}", parts.join(", "), played.stderr);
    assert!(lost > 0, "more than fits into memory was recorded while the disk was full");
    assert!(!played.files().iter().any(|name| name.ends_with(".segments")), "{:?}", played.files());
}
