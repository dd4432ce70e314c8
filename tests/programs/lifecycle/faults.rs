//! Unwritable outputs: a clear error, and a trace that can still be saved elsewhere.
#![allow(clippy::disallowed_methods, reason = "a scenario gets its settings from the environment")]

use super::play::{File, OUTPUT, play, play_with, record, record_as, report, work};
use super::{Scenario, Test, sys};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};
use tracing_kineto::analysis::StackMetric;
use tracing_kineto::{ErrorKind, Fields, KinetoLayer, Trace};

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("full", |folder| {
        let _guard = record_as(KinetoLayer::builder().output(folder.join(OUTPUT)).buffer_limit_bytes(1 << 20));
        // The test harness makes stderr a file.
        let is_told = || std::fs::read_to_string("/proc/self/fd/2").unwrap().contains("buffer limit");
        (0..40_000).for_each(|_| work());
        let begun = Instant::now();
        while !is_told() && begun.elapsed() < Duration::from_secs(60) {
            work();
        }
        report(folder, &format!("{}", is_told()));
        (0..1_000).for_each(|_| work());
    }),
    ("full_disk", full_disk),
    ("full_disk_at_drop", |folder| {
        let _guard = record(folder);
        many();
        sys::limit_files(Some(64 * 1024));
    }),
    ("full_disk_at_exit", |folder| {
        Box::leak(Box::new(record(folder)));
        many();
        sys::limit_files(Some(64 * 1024));
    }),
    ("missing_folder_at_drop", |folder| {
        std::fs::create_dir(folder.join("missing")).unwrap();
        let _guard = record_as(KinetoLayer::builder().output(folder.join("missing/out.json")));
        std::fs::remove_dir(folder.join("missing")).unwrap();
        work();
    }),
    ("folder_at_drop", |folder| {
        let _guard = record_as(KinetoLayer::builder().output(folder.join("folder.pftrace")));
        std::fs::create_dir(folder.join("folder.pftrace")).unwrap();
        work();
    }),
    ("full_stderr", |folder| {
        let _guard = record(folder);
        work();
        sys::fill_stderr();
    }),
    ("full_stderr_at_exit", |folder| {
        Box::leak(Box::new(record(folder)));
        work();
        sys::fill_stderr();
    }),
    ("broken_stderr", |folder| {
        let _guard = record(folder);
        work();
        sys::break_stderr();
    }),
    #[cfg(target_os = "linux")]
    ("no_memory", |folder| {
        let _guard = record(folder);
        work();
        sys::limit_memory(Some(2 << 20));
        (0..SPANS_OF_24_MIB).for_each(|_| work());
        sys::limit_memory(None);
    }),
    #[cfg(target_os = "linux")]
    ("no_memory_to_the_end", |folder| {
        let _guard = record(folder);
        (0..100_000).for_each(|_| work());
        #[expect(clippy::disallowed_methods, reason = "the test sets the variable")]
        let left = std::env::var("BYTES_LEFT").unwrap().parse().unwrap();
        sys::limit_memory(Some(left));
    }),
    #[cfg(target_os = "linux")]
    ("little_memory", |folder| {
        #[expect(clippy::disallowed_methods, reason = "the test sets the variable")]
        let left = std::env::var("BYTES_LEFT").unwrap().parse().unwrap();
        sys::limit_memory(Some(left));
        let guard = record(folder);
        const SPANS: usize = 100_000;
        let other = std::thread::Builder::new().spawn(|| (0..SPANS).for_each(|_| work()));
        (0..SPANS).for_each(|_| work());
        let spans = SPANS + other.map_or(0, |other| other.join().map_or(0, |()| SPANS));
        report(folder, &spans.to_string());
        drop(guard);
    }),
    #[cfg(target_os = "linux")]
    ("no_memory_for_long_fields", |folder| {
        let _guard =
            record_as(KinetoLayer::builder().output(folder.join(OUTPUT)).fields(Fields::new().limit_bytes(1 << 20)));
        let long = "x".repeat(1 << 20);
        work();
        sys::limit_memory(Some(8 << 20));
        (0..30).for_each(|_| tracing::info_span!("long", long).in_scope(|| ()));
        sys::limit_memory(None);
    }),
    ("abandoned", |folder| {
        std::fs::write(folder.join("x.json.7-0-0123456789abcdef.tmp"), "{").unwrap();
        let _guard = record(folder);
        work();
    }),
    ("relative_output", |folder| {
        for name in ["before", "elsewhere"] {
            std::fs::create_dir(folder.join(name)).unwrap();
        }
        std::env::set_current_dir(folder.join("before")).unwrap();
        let _guard = record_as(KinetoLayer::builder().output("x.json"));
        std::env::set_current_dir(folder.join("elsewhere")).unwrap();
        work();
    }),
    ("flush_to_a_missing_folder", |folder| {
        std::fs::create_dir(folder.join("late")).unwrap();
        let guard = record_as(KinetoLayer::builder().output(folder.join("late/out.json")));
        std::fs::remove_dir(folder.join("late")).unwrap();
        work();
        let error = guard.flush().unwrap_err();
        report(folder, &format!("{:?}: {error}", error.kind()));
        std::fs::create_dir(folder.join("late")).unwrap();
        work();
    }),
];

/// Each span takes a slot for its slice and two for its field.
#[cfg(target_os = "linux")]
const SPANS_OF_24_MIB: usize = 256_000;

pub(crate) const TESTS: &[Test] = &[
    ("full_buffers_are_reported_once_while_full", || {
        let played = play("full").succeeded();
        assert_eq!(played.report(), "true\n", "{}", played.stderr);
        let expected = "the buffer limit of 1 MiB is reached";
        assert_eq!(played.stderr.matches(expected).count(), 1, "{}", played.stderr);
        assert!(played.stderr.find(expected) < played.stderr.find("wrote /"), "{}", played.stderr);
    }),
    ("full_disk_is_an_error_and_trace_can_be_saved_elsewhere", || {
        let played = play("full_disk").succeeded();
        let report = played.report();
        assert!(report.contains("Io: ") && report.matches("(ulimit -f) or save elsewhere").count() == 2, "{report}");
        assert_eq!(played.files(), ["elsewhere.json", OUTPUT, "report"]);
        assert_eq!(std::fs::read_to_string(played.path(OUTPUT)).unwrap(), "the old file");
        assert_eq!(played.file("elsewhere.json").slices("work"), MANY);
    }),
    ("full_disk_at_the_end_is_reported_with_no_partial_file", || {
        for scenario in ["full_disk_at_drop", "full_disk_at_exit"] {
            let played = play(scenario).succeeded();
            assert!(played.files().is_empty(), "{:?}", played.files());
            let is_report = |line: &&str| line.contains("the trace was not written") && line.contains(": cannot write");
            let lines = played.stderr.lines().filter(is_report).count();
            assert_eq!(lines, 1, "{scenario}: {}", played.stderr);
        }
    }),
    #[cfg(target_os = "linux")]
    ("records_are_counted_as_lost_without_address_space", || {
        // Without an allocator's arena for other threads, which reserves 64 MiB of addresses.
        let one_arena = &[("MALLOC_ARENA_MAX", "1")];
        let file = play_with("no_memory", one_arena).succeeded().output();
        let (found, lost) = (file.slices("work"), file.lost("slices_over_limit") + file.lost("fields_over_limit"));
        assert!(found > 0 && lost > 0, "{found} {lost}");
        let file = play_with("no_memory_for_long_fields", one_arena).succeeded().output();
        assert_eq!(file.slices("long"), 30);
        assert!(file.lost("fields_over_limit") > 0);
    }),
    #[cfg(target_os = "linux")]
    ("end_without_address_space_is_a_file_or_an_error", || {
        // Leaves room for small allocations, without which the program aborts.
        for left in (18..=25).map(|power| 1_u64 << power) {
            let played = play_with("no_memory_to_the_end", &[("BYTES_LEFT", &left.to_string())]);
            assert!(played.status.success(), "{left}: {}", played.stderr);
            assert!(!played.files().is_empty() || played.stderr.contains("memory"), "{left}: {}", played.stderr);
        }
    }),
    #[cfg(target_os = "linux")]
    ("little_address_space_is_counted_and_no_abort", || {
        for left in [8, 10, 12, 13].map(|mebibytes| mebibytes << 20) {
            let played = play_with("little_memory", &[("BYTES_LEFT", &u64::to_string(&left))]).succeeded();
            assert!(played.stderr.contains("the system has no more memory for this process"), "{}", played.stderr);
            assert!(!played.stderr.contains("the buffer limit of"), "{}", played.stderr);
            if played.stderr.contains("nothing was recorded") {
                continue;
            }
            let (file, recorded) = (played.file(OUTPUT), played.report().trim().parse::<u64>().unwrap());
            assert_eq!(file.slices("work") as u64 + file.lost("slices_over_limit"), recorded, "{}", played.stderr);
        }
    }),
    ("blocked_stderr_does_not_block_the_program", || {
        for scenario in ["full_stderr", "full_stderr_at_exit", "broken_stderr"] {
            assert_eq!(play(scenario).succeeded().output().slices("work"), 1, "{scenario}");
        }
    }),
    ("unwritable_output_is_reported_at_the_end", || {
        for (scenario, advice) in
            [("missing_folder_at_drop", "create the folder"), ("folder_at_drop", "name a file in that folder")]
        {
            let played = play(scenario).succeeded();
            assert!(!played.files().iter().any(|name| name.contains("json")), "{:?}", played.files());
            assert!(played.stderr.contains(advice), "{}", played.stderr);
        }
    }),
    ("build_fails_when_the_output_cannot_be_written", || {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path();
        sys::make_fifo(&here.join("fifo"));
        std::fs::create_dir(here.join("folder")).unwrap();
        let mut outputs = vec![
            (here.join("missing/x.json"), ErrorKind::Io, "create the folder"),
            (here.join("fifo"), ErrorKind::Io, "save to a file"),
            (here.join("folder"), ErrorKind::Io, "name a file in that folder"),
            (here.join("none/"), ErrorKind::Io, "name a file in that folder"),
            (here.join("x.json.zst"), ErrorKind::Unsupported, "use .json.gz"),
            (here.join("x.zip"), ErrorKind::Unsupported, "use .json.gz"),
            (here.join("x.txt"), ErrorKind::Unsupported, "use .json or .pftrace"),
            (here.join("x"), ErrorKind::Unsupported, "use .json or .pftrace"),
            ("no-such-scheme://x.json".into(), ErrorKind::UnknownScheme, "no handler is registered"),
            (format!("file://{}/missing/x.json", here.display()).into(), ErrorKind::Io, "create the folder"),
        ];
        let closed: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o500);
        std::fs::create_dir(here.join("closed")).unwrap();
        std::fs::set_permissions(here.join("closed"), closed).unwrap();
        if !sys::is_root() {
            outputs.push((here.join("closed/x.json"), ErrorKind::Io, "allow this user to write"));
        }
        for (output, kind, advice) in outputs {
            let error = KinetoLayer::builder().output(&output).build().unwrap_err();
            assert!(error.kind() == kind && error.to_string().contains(advice), "{}: {error}", output.display());
        }
        let sink = |_: &str| -> io::Result<Box<dyn Write + Send>> { Err(io::ErrorKind::NotFound.into()) };
        for output in ["sink://x.zip", "sink://x", "/dev/null", "/dev/stdout"] {
            assert!(KinetoLayer::builder().sink("sink", sink).output(output).build().is_ok(), "{output}");
        }
        assert_eq!(std::fs::read_dir(here).unwrap().count(), 3, "checking leaves nothing");
    }),
    ("build_reports_unfinished_files_and_keeps_them", || {
        let played = play("abandoned").succeeded();
        assert_eq!(played.files(), [OUTPUT, "x.json.7-0-0123456789abcdef.tmp"]);
        let expected = "unfinished traces of processes that have ended: /";
        assert_eq!(played.stderr.matches(expected).count(), 1, "{}", played.stderr);
        assert!(played.stderr.contains("0123456789abcdef.tmp` for each"), "{}", played.stderr);
    }),
    ("relative_output_is_resolved_by_build", || {
        let played = play("relative_output").succeeded();
        assert_eq!(played.files(), ["before", "elsewhere"], "{}", played.stderr);
        assert_eq!(File::read(&played.path("before").join("x.json")).slices("work"), 1);
    }),
    ("failed_flush_does_not_end_the_recording", || {
        let played = play("flush_to_a_missing_folder").succeeded();
        assert!(played.report().starts_with("Io: cannot create"), "{}", played.report());
        assert_eq!(File::read(&played.path("late").join("out.json")).slices("work"), 2);
    }),
    ("full_device_is_an_error_and_the_trace_is_kept", || {
        let trace = trace();
        let error = trace.save("/dev/full").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("free space or save elsewhere"), "{error}");
        saved_elsewhere(&trace);
    }),
    ("full_sink_is_an_error_and_the_trace_is_kept", || {
        let trace = trace();
        let error = trace.save("small://place").unwrap_err();
        assert!(error.kind() == ErrorKind::Io && error.path() == Some(Path::new("small://place")), "{error}");
        assert!(error.to_string().contains("cannot write small://place"), "{error}");
        saved_elsewhere(&trace);
    }),
    ("unwritable_place_has_advice_and_the_trace_is_kept", || {
        let (trace, folder) = (trace(), tempfile::tempdir().unwrap());
        let here = folder.path();
        std::fs::write(here.join("file"), "").unwrap();
        let mut places = vec![
            (here.join("missing/x.json"), "create the folder"),
            (here.to_owned(), "name a file in that folder"),
            (here.join("file/x.json"), "is not a folder"),
        ];
        std::fs::create_dir(here.join("closed")).unwrap();
        let closed: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o500);
        std::fs::set_permissions(here.join("closed"), closed).unwrap();
        if !sys::is_root() {
            places.push((here.join("closed/x.json"), "allow this user to write"));
        }
        for (place, advice) in places {
            let error = trace.save(&place).unwrap_err();
            assert!(error.kind() == ErrorKind::Io && error.path() == Some(&*place), "{error}");
            assert!(error.to_string().contains(advice), "{error}");
        }
        assert_eq!(std::fs::read_dir(here).unwrap().count(), 2, "no other file was left");
        saved_elsewhere(&trace);
    }),
];

const MANY: usize = 5000;

fn many() {
    (0..MANY).for_each(|_| work());
}

fn full_disk(folder: &Path) {
    let guard = record(folder);
    many();
    let trace = guard.finish().unwrap();
    std::fs::write(folder.join(OUTPUT), "the old file").unwrap();
    sys::limit_files(Some(64 * 1024));
    let error = trace.save(folder.join(OUTPUT)).unwrap_err();
    sys::limit_files(Some(0));
    let stacks = trace.events().export_stacks(folder.join("stacks"), StackMetric::SelfHost).unwrap_err();
    sys::limit_files(None);
    report(folder, &format!("{:?}: {error}", error.kind()));
    report(folder, &stacks.to_string());
    trace.save(folder.join("elsewhere.json")).unwrap();
}

/// A writer that is full after a kilobyte.
struct SmallWriter(usize);

impl Write for SmallWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.min(bytes.len()) {
            0 => Err(io::ErrorKind::StorageFull.into()),
            taken => {
                self.0 -= taken;
                Ok(taken)
            }
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn trace() -> Trace {
    use tracing_subscriber::prelude::*;
    let small = |_: &str| -> io::Result<Box<dyn Write + Send>> { Ok(Box::new(SmallWriter(1024))) };
    let (layer, guard) = KinetoLayer::builder().no_output().sink("small", small).build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), work);
    guard.finish().unwrap()
}

fn saved_elsewhere(trace: &Trace) {
    let folder = tempfile::tempdir().unwrap();
    trace.save(folder.path().join("x.json")).unwrap();
    assert_eq!(File::read(&folder.path().join("x.json")).slices("work"), 1);
}
