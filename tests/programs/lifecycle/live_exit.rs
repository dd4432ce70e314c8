//! What an exit leaves of a recording whose parts wait for a slow disk.

use super::live::{live_files, segment_folder_in, shm};
use super::play::{File, play_with, record_as, report, work};
use super::{Scenario, Test, ends, sys};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::poll_until;
use tracing_kineto::{KinetoLayer, Loss, Message, Overflow, Segment, Spill, Trace};

const PATIENCE: Duration = Duration::from_secs(30);
const OUTPUT: &str = "rest.json";

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("exit_with_slow_output", |folder| exit_with_queued_part(folder, PATIENCE)),
    ("exit_on_full_disk", |folder| exit_with_queued_part(folder, Duration::ZERO)),
    ("exec", |folder| {
        use std::os::unix::process::CommandExt;
        let _guard = record_as(KinetoLayer::builder().output(folder.join(OUTPUT)));
        work();
        panic!("{}", std::process::Command::new("true").exec());
    }),
];

/// Exits while a part is in memory that could not be written; without time, the disk is still full then.
fn exit_with_queued_part(folder: &Path, timeout: Duration) {
    let (to, is_refused) = (folder.to_owned(), Arc::new(AtomicBool::new(false)));
    let open = move |_: &str| -> io::Result<Box<dyn Write + Send>> {
        Ok(Box::new(HeldWriter { file: std::fs::File::create(to.join(OUTPUT))?, folder: to.clone() }))
    };
    let refused = is_refused.clone();
    let log = move |message: &Message<'_>| {
        if message.to_string().contains("records are not moved to disk for now") {
            refused.store(true, Ordering::SeqCst);
        }
    };
    let builder = KinetoLayer::builder().sink("held", open).output("held://rest.json").log_sink(Arc::new(log));
    let builder = builder.overflow(Overflow::Spill).spill(Spill::new().folder(folder)).buffer_limit_bytes(2 << 20);
    let _guard = record_as(builder.flush_timeout(timeout));
    sys::ignore(libc::SIGXFSZ);
    sys::limit_files(Some(0));
    let (mut made, deadline) = (0, Instant::now() + PATIENCE);
    while !is_refused.load(Ordering::SeqCst) && Instant::now() < deadline {
        work();
        made += 1;
    }
    sys::limit_files(None);
    work();
    report(folder, &(made + 1).to_string());
    if timeout.is_zero() {
        sys::limit_files(Some(0));
    }
    ends::exit(0);
}

/// A disk that takes the rest of a recording only once its earlier part is in a segment.
struct HeldWriter {
    file: std::fs::File,
    folder: PathBuf,
}

impl Write for HeldWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let has_part = || segment_folder_in(&self.folder).is_some_and(|folder| folder.join("seg-000001.kseg").exists());
        poll_until(has_part);
        self.file.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

pub(crate) const TESTS: &[Test] = &[
    ("exit_leaves_parts_while_the_rest_is_written", || {
        let shm = shm();
        let played =
            play_with("exit_with_slow_output", &[("KINETO_SHM_DIR", shm.path().to_str().unwrap())]).succeeded();
        let folder = segment_folder_in(&played.path("")).expect(&played.stderr);
        let parts = Segment::files_in(folder).unwrap();
        let read = |part: &PathBuf| {
            let file = part.with_extension("json");
            Trace::read_segment(part).unwrap().trace.save(&file).unwrap();
            File::read(&file)
        };
        let parts: Vec<_> = parts.iter().map(read).collect();
        let in_parts: usize = parts.iter().map(|part| part.slices("work")).sum();
        let last = File::read(&played.path(OUTPUT));
        // A slice that was open at the end of the part is in both.
        let is_again = |row: &&serde_json::Value| row["name"] == "work" && !row["args"]["clipped"].is_null();
        let rest = last.slices("work") - last.rows().iter().filter(is_again).count();
        // The program may be faster than the message that the disk is full.
        let lost: u64 = parts.iter().chain([&last]).map(|file| file.lost("records_not_spilled")).sum();
        let made: usize = played.report().trim().parse().unwrap();
        assert_eq!(in_parts + rest + usize::try_from(lost).unwrap(), made, "{}", played.stderr);
        assert!(in_parts > 0 && rest > 0);
        // Everything is on disk.
        assert_eq!(live_files(shm.path()), [] as [PathBuf; 0], "{}", played.stderr);
    }),
    ("exec_leaves_the_live_file_alone", || {
        let shm = shm();
        let played = play_with("exec", &[("KINETO_SHM_DIR", shm.path().to_str().unwrap())]).succeeded();
        assert_eq!(played.files(), [] as [&str; 0], "nothing of the process runs any more");
        let [file] = &live_files(shm.path())[..] else { panic!("{}", played.stderr) };
        assert_eq!(Trace::read_segment(file).unwrap().trace.stats().slices, 1);
    }),
    ("exit_keeps_live_file_of_unwritten_parts", || {
        let shm = shm();
        let played = play_with("exit_on_full_disk", &[("KINETO_SHM_DIR", shm.path().to_str().unwrap())]).succeeded();
        let [file] = &live_files(shm.path())[..] else { panic!("{}", played.stderr) };
        let stats = Trace::read_segment(file).unwrap().trace.stats();
        // The program may be faster than the message that the disk is full.
        let all = stats.slices + stats.lost(Loss::NotSpilled);
        assert_eq!(all, played.report().trim().parse::<u64>().unwrap(), "{:?} {}", stats.losses, played.stderr);
    }),
];
