//! Folders in which another user has left pipes, links and names.
#![allow(clippy::print_stdout, reason = "a test notes what it skips")]

use super::play::{OUTPUT, Played, play_in, record_as, work};
use super::{Scenario, Test, sys};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::Path;
use tracing_kineto::{KinetoLayer, Overflow, Segment, Trace};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("hostile_folder", |folder| {
        let builder = KinetoLayer::builder().output(folder.join(OUTPUT)).shm_folder(folder);
        let _guard = record_as(builder.overflow(Overflow::Spill));
        work();
    }),
    ("own_segment", |folder| {
        let guard = record_as(KinetoLayer::builder().no_output());
        work();
        let trace = guard.profiler().stop().unwrap();
        fs::create_dir(folder.join(SEGMENTS)).unwrap();
        trace.write_segment(1, fs::File::create(folder.join(SEGMENTS).join(SEGMENT)).unwrap()).unwrap();
    }),
];

pub(crate) const TESTS: &[Test] = &[
    ("hostile_pipes_do_not_stop_build", || {
        let played = with_entries("hostile_folder", |folder| {
            let segments = folder.join(SEGMENTS);
            fs::create_dir(&segments).unwrap();
            for name in ["lock", "live", SEGMENT, "seg-000002.kseg.tmp"] {
                sys::make_fifo(&segments.join(name));
            }
            for name in ["other.segments", TEMPORARY, "x.klive"] {
                sys::make_fifo(&folder.join(name));
            }
        });
        assert_eq!(played.file(OUTPUT).slices("work"), 1, "{}", played.stderr);
    }),
    ("hostile_links_do_not_fill_build", || {
        let played = with_entries("hostile_folder", |folder| {
            let segments = folder.join(SEGMENTS);
            fs::create_dir(&segments).unwrap();
            for path in ["lock", "live", SEGMENT].map(|name| segments.join(name)) {
                symlink("/dev/zero", path).unwrap();
            }
            for name in [TEMPORARY, "x.klive"] {
                symlink("/dev/zero", folder.join(name)).unwrap();
            }
            symlink(SEGMENTS, folder.join("link.segments")).unwrap();
        });
        assert_eq!(played.file(OUTPUT).slices("work"), 1, "{}", played.stderr);
        assert!(!played.stderr.contains("link.segments") && !played.stderr.contains(TEMPORARY), "{}", played.stderr);
    }),
    ("hostile_sizes_do_not_fill_build", || {
        let played = with_entries("hostile_folder", |folder| {
            let segments = folder.join(SEGMENTS);
            fs::create_dir(&segments).unwrap();
            for path in ["lock", "live"].map(|name| segments.join(name)).into_iter().chain([folder.join("x.klive")]) {
                fs::File::create(path).unwrap().set_len(1 << 43).unwrap();
            }
        });
        assert_eq!(played.file(OUTPUT).slices("work"), 1, "{}", played.stderr);
    }),
    ("hostile_live_name_reads_no_other_file", || {
        let played = with_entries("own_segment", |_| ());
        let segments = played.path(SEGMENTS);
        let own = vec![segments.join(SEGMENT)];
        for other in ["/dev/zero", "/proc/self/environ", "relative", "\u{1b}[2J"] {
            fs::write(segments.join("live"), other).unwrap();
            let files = Segment::files_in(&segments).unwrap();
            assert!(files == own || other.starts_with("/proc"), "{other}: {files:?}");
        }
        symlink(played.path(SEGMENTS), played.path("link")).unwrap();
        fs::write(segments.join("live"), "/x/link").unwrap();
        assert_eq!(
            Segment::files_in(played.path("link")).unwrap(),
            [played.path("link").join(SEGMENT)],
            "a named link"
        );
    }),
    ("segment_that_the_user_names_may_be_a_pipe", || {
        let played = with_entries("own_segment", |_| ());
        let (segment, pipe) = (fs::read(played.path(SEGMENTS).join(SEGMENT)).unwrap(), played.path("pipe.kseg"));
        sys::make_fifo(&pipe);
        let to = pipe.clone();
        let writer = std::thread::Builder::new().spawn(move || fs::write(to, segment));
        let read = Trace::read_segment(&pipe).unwrap();
        writer.unwrap().join().unwrap().unwrap();
        assert_eq!((read.is_whole(), read.trace.stats().slices), (true, 1));
        assert!(
            Trace::read_segment_in(pipe.parent().unwrap(), &pipe).unwrap_err().to_string().contains("regular file")
        );
    }),
    ("hostile_names_are_escaped", || {
        const NAME: &str = "a\u{1b}[2J\nERROR b.segments";
        let played = with_entries("own_segment", |_| ());
        let written = with_entries("hostile_folder", |folder| {
            fs::create_dir(folder.join(NAME)).unwrap();
            fs::copy(played.path(SEGMENTS).join(SEGMENT), folder.join(NAME).join(SEGMENT)).unwrap();
        });
        assert!(written.stderr.contains(r"a\u{1b}[2J\nERROR b.segments"), "{}", written.stderr);
        assert!(!written.stderr.contains('\u{1b}') && !written.stderr.contains("\nERROR"), "{}", written.stderr);
    }),
];

const SEGMENTS: &str = "app.segments";
const SEGMENT: &str = "seg-000001.kseg";
const TEMPORARY: &str = "app.json.4242-0-0123456789abcdef.tmp";

/// A user without rights, who owns the entries if this one may give files away.
const USER: u32 = 65534;

/// Plays a scenario in a folder that every user may write to, after `prepare` has made entries there.
fn with_entries(scenario: &str, prepare: impl FnOnce(&Path)) -> Played {
    if !sys::is_root() {
        println!("the entries belong to this user: only root can give them to another");
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).unwrap();
    prepare(folder.path());
    give_away(folder.path());
    play_in(scenario, &[], folder, |_, _| ()).succeeded()
}

fn give_away(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            give_away(&entry.path());
        }
        let _ = lchown(entry.path(), Some(USER), Some(USER));
    }
}
