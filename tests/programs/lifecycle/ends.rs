//! Ends of the process and the guard.

use super::play::{OUTPUT, play, play_by_clock, play_with, record, record_as, report, work};
use super::{Scenario, Test};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use support::poll_until;
use support::wait::sleep;
use tracing_kineto::analysis::Events;
use tracing_kineto::chrome::ChromeLayerBuilder;
use tracing_kineto::torch::Libkineto;
use tracing_kineto::{ErrorKind, KinetoLayer, Status};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// That many spans are several blocks of text.
const LONG: usize = 20_000;

fn slices(path: &Path) -> usize {
    Events::read(path).unwrap().iter().filter(|event| event.name() == "work").count()
}

/// More spans than fit into a part of the smallest limit.
const PARTED: usize = 60_000;

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("drop", |folder| {
        let _guard = record(folder);
        work();
    }),
    ("leak", |folder| {
        Box::leak(Box::new(record(folder)));
        work();
    }),
    ("exit", |folder| {
        let _guard = record(folder);
        let _open = tracing::info_span!("open").entered();
        work();
        exit(7);
    }),
    ("exit_as_tracing_chrome", |folder| {
        let (layer, _guard) = ChromeLayerBuilder::new().file(folder.join(OUTPUT)).build();
        tracing_subscriber::registry().with(layer).init();
        work();
        exit(7);
    }),
    ("parts_as_tracing_chrome", |folder| {
        std::env::set_current_dir(folder).unwrap();
        let (layer, guard) = ChromeLayerBuilder::new().file(OUTPUT).build();
        tracing_subscriber::registry().with(layer).init();
        (0..PARTED).for_each(|_| work());
        guard.start_new(Some(Box::new(std::io::sink())));
        (0..PARTED).for_each(|_| work());
        guard.start_new(None);
        work();
    }),
    ("exit_in_a_dump", |folder| {
        let guard = record(folder);
        work();
        drop(guard.profiler().dump("at the end").unwrap());
        exit(0);
    }),
    ("end_in_a_dump", |folder| {
        let builder = KinetoLayer::builder().output(folder.join(OUTPUT)).flush_timeout(Duration::from_secs(100));
        let guard = record_as(builder);
        // Enough that the file takes longer than the end of the process.
        (0..100_000).for_each(|_| work());
        drop(guard.profiler().dump("at the end").unwrap());
        drop(guard.finish().unwrap());
    }),
    ("end_in_a_background_save", |folder| {
        let guard = record_as(KinetoLayer::builder().no_output().flush_timeout(Duration::from_secs(100)));
        (0..100_000).for_each(|_| work());
        let trace = guard.finish().unwrap();
        trace.save_in_background(folder.join(OUTPUT)).unwrap();
    }),
    ("cut_background_save", |folder| {
        let builder = KinetoLayer::builder().no_output().flush_timeout(Duration::from_secs(1));
        let guard = record_as(builder.post_process(|_| sleep(Duration::from_millis(1))));
        (0..100_000).for_each(|_| work());
        guard.finish().unwrap().save_in_background(folder.join(OUTPUT)).unwrap();
    }),
    ("no_threads", |folder| {
        let guard = record(folder);
        (0..LONG).for_each(|_| work());
        let error = guard.profiler().dump("no thread").unwrap_err();
        report(folder, &format!("{:?}: {error}", error.kind()));
        let trace = guard.finish().unwrap();
        let path = folder.join("saved.json.gz");
        assert_eq!(trace.save_in_background(&path).unwrap_err().path(), Some(&*path));
        trace.save(&path).unwrap();
        assert_eq!(slices(&path), LONG);
    }),
    #[cfg(target_os = "linux")]
    ("compress", |folder| {
        let guard = record_as(KinetoLayer::builder().no_output());
        (0..LONG).for_each(|_| work());
        let path = folder.join("saved.json.gz");
        guard.finish().unwrap().save(&path).unwrap();
        assert_eq!(slices(&path), LONG);
        // The system may list a thread that has ended for some microseconds.
        let is_listed = || {
            let mut threads = std::fs::read_dir("/proc/self/task").unwrap().map(|thread| thread.unwrap().path());
            threads.any(|thread| std::fs::read_to_string(thread.join("comm")).is_ok_and(|name| name == "kineto-gzip\n"))
        };
        while is_listed() {
            std::thread::yield_now();
        }
    }),
    ("exit_on_thread", exit_on_thread),
    ("panic", |folder| {
        let _guard = record(folder);
        let _open = tracing::info_span!("open").entered();
        work();
        panic!("out of main");
    }),
    ("abort", |folder| abort(folder, false)),
    ("abort_flushed", |folder| abort(folder, true)),
    ("flush_writer", flush_writer),
    ("finish", finish),
    ("finish_unused", |folder| {
        let guard = record(folder);
        let profiler = guard.profiler();
        work();
        drop(profiler.stop().unwrap());
        profiler.start().unwrap();
        work();
        assert_eq!(profiler.stop().unwrap().stats().slices, 1);
        profiler.start().unwrap();
        work();
        drop(guard.finish().unwrap());
    }),
    ("same_output", |folder| {
        let build = || KinetoLayer::builder().output(folder.join(".").join(OUTPUT)).build();
        let (first, guard) = build().unwrap();
        tracing_subscriber::registry().with(first).init();
        work();
        report(folder, &format!("{}", build().unwrap_err()));
        drop(guard);
        drop(build().unwrap());
    }),
    ("drop_after_stop", |folder| {
        let guard = record(folder);
        work();
        let trace = guard.profiler().stop().unwrap();
        drop(guard);
        trace.save(folder.join("saved.json")).unwrap();
    }),
    ("start_again", |folder| {
        let guard = record(folder);
        work();
        let profiler = guard.profiler();
        drop(guard);
        assert_eq!(profiler.status(), Status::Idle);
        for error in [profiler.start().unwrap_err(), Libkineto::of(&profiler).prepare().unwrap_err()] {
            report(folder, &format!("{:?}: {error}", error.kind()));
        }
    }),
    ("empty", |folder| drop(record(folder))),
    ("empty_young", |folder| {
        let (layer, _) = KinetoLayer::builder().output(folder.join(OUTPUT)).build().unwrap();
        tracing_subscriber::registry().with(layer).init();
        work();
    }),
    ("empty_not_installed", |folder| {
        let (_layer, _guard) = KinetoLayer::builder().output(folder.join(OUTPUT)).build().unwrap();
        work();
        sleep(Duration::from_millis(1100));
    }),
    ("empty_at_exit", |folder| {
        let (_layer, _guard) = KinetoLayer::builder().output(folder.join(OUTPUT)).build().unwrap();
        exit(0);
    }),
    ("empty_filtered_in_a_list", |folder| {
        let builder = KinetoLayer::builder().output(folder.join(OUTPUT));
        let filter = Targets::new().with_target("none", tracing::Level::INFO);
        let (layer, _guard) = builder.filter(filter).build().unwrap();
        tracing_subscriber::registry().with(vec![layer]).init();
        work();
    }),
    ("empty_filtered", |folder| {
        let _guard = record_as(
            KinetoLayer::builder()
                .output(folder.join(OUTPUT))
                .filter(Targets::new().with_target("none", tracing::Level::INFO)),
        );
        work();
    }),
    ("empty_schedule", |folder| {
        let schedule = tracing_kineto::Schedule::new(3, 0, 1).unwrap();
        let _guard = record_as(KinetoLayer::builder().output(folder.join(OUTPUT)).schedule(schedule));
        work();
    }),
    ("no_output", |_| {
        let _guard = record_as(KinetoLayer::builder().no_output());
        work();
    }),
    ("snapshot", |folder| {
        let guard = record(folder);
        work();
        guard.flush().unwrap();
        report(folder, "flushed");
        super::sys::exit_now(0);
    }),
    ("two", |folder| {
        let build = |name: &str| KinetoLayer::builder().output(folder.join(name)).build().unwrap();
        let ((first, _one), (second, _two)) = (build("one.json"), build("two.json.gz"));
        tracing_subscriber::registry().with(first).with(second).init();
        work();
        exit(0);
    }),
];

pub(crate) const TESTS: &[Test] = &[
    ("dropped_guard_leaves_a_whole_file", || {
        let played = play("drop").succeeded();
        assert_eq!(played.output().slices("work"), 1);
        assert_eq!(played.output().processes(), [i64::from(played.pid)]);
        let lines: Vec<&str> = played.stderr.lines().collect();
        assert!(lines.len() == 1 && lines[0].contains("Z  INFO tracing-kineto: "), "{lines:?}");
        assert!(lines[0].contains(": wrote /") && lines[0].ends_with(&format!("{OUTPUT}: 1 slice")), "{lines:?}");
    }),
    ("leaked_guard_leaves_a_whole_file", || {
        let played = play("leak").succeeded();
        assert_eq!(played.output().slices("work"), 1);
        let lines: Vec<&str> = played.stderr.lines().collect();
        assert!(lines.len() == 1 && lines[0].contains("wrote /") && lines[0].ends_with("1 slice"), "{lines:?}");
    }),
    ("exit_leaves_a_whole_file_with_open_spans_marked", || {
        let played = play("exit");
        assert_eq!(played.status.code(), Some(7));
        let file = played.output();
        assert_eq!((file.slices("work"), file.slices("open"), file.lost("unfinished_slices")), (1, 1, 1));
    }),
    ("exit_waits_for_the_file_of_a_dump", || {
        let played = play("exit_in_a_dump").succeeded();
        let files = played.files();
        let dump = files.iter().find(|name| name.ends_with("_001_at-the-end.pt.trace.json")).expect("a dump");
        assert_eq!((files.len(), played.file(dump).slices("work"), played.file(OUTPUT).slices("work")), (2, 1, 1));
    }),
    ("end_waits_for_the_file_of_a_dump", || {
        let played = play("end_in_a_dump").succeeded();
        let files = played.files();
        assert!(files.len() == 1 && files[0].ends_with("_001_at-the-end.pt.trace.json"), "{files:?}");
        assert_eq!(played.file(&files[0]).slices("work"), 100_000);
    }),
    ("end_waits_for_a_background_save", || {
        let played = play("end_in_a_background_save").succeeded();
        assert_eq!((played.files(), played.output().slices("work")), (vec![OUTPUT.to_owned()], 100_000));
    }),
    ("background_save_is_cut_at_the_end_of_the_process", || {
        let played = play_by_clock("cut_background_save").succeeded();
        let written = played.output().slices("work");
        assert!(written < 100_000 && played.stderr.contains("closed at the time limit"), "{}", played.stderr);
    }),
    #[cfg(target_os = "linux")]
    ("trace_is_kept_when_no_thread_can_write_it", || {
        // No thread of this stack size can be started.
        let played = play_with("no_threads", &[("RUST_MIN_STACK", "1000000000000000")]).succeeded();
        assert!(played.report().starts_with("Io: cannot start a thread that writes "), "{}", played.report());
    }),
    #[cfg(target_os = "linux")]
    ("threads_of_a_save_end_with_it", || {
        play("compress").succeeded();
    }),
    ("exit_leaves_a_whole_file_while_other_threads_record", || {
        let played = play("exit_on_thread").succeeded();
        assert!(played.output().slices("busy") > 0);
    }),
    ("panic_out_of_main_leaves_a_whole_file", || {
        let played = play("panic");
        assert_eq!(played.status.code(), Some(101), "{}", played.stderr);
        let file = played.output();
        assert_eq!((file.slices("work"), file.slices("open"), file.lost("unfinished_slices")), (1, 1, 0));
    }),
    ("abort_leaves_no_partial_file", || {
        let played = play("abort");
        assert_eq!((played.status.signal(), played.files().len()), (Some(libc::SIGABRT), 0), "{}", played.stderr);
    }),
    ("flush_all_in_a_panic_hook_writes_before_the_abort", || {
        let played = play("abort_flushed");
        assert_eq!(played.status.signal(), Some(libc::SIGABRT), "{}", played.stderr);
        assert_eq!((played.output().slices("work"), played.output().slices("open")), (1, 1));
    }),
    ("flush_all_leaves_a_writer_its_trace", || {
        let played = play("flush_writer").succeeded();
        assert_eq!(
            (played.file(OUTPUT).slices("work"), played.stderr.contains("ERROR")),
            (2, false),
            "{}",
            played.stderr
        );
    }),
    ("finished_guard_writes_no_file", || {
        let played = play("finish").succeeded();
        assert_eq!(played.files(), ["saved.json"], "{}", played.stderr);
        assert_eq!(played.file("saved.json").slices("work"), 1);
        assert_eq!(played.stderr, "");
    }),
    ("unused_traces_are_reported", || {
        let played = play("finish_unused").succeeded();
        let lines: Vec<_> = played.stderr.lines().collect();
        assert_eq!((played.files().len(), lines.len()), (0, 2), "{lines:?}");
        for line in lines {
            assert!(line.contains("WARN") && line.contains(&format!("/{OUTPUT} was not written")), "{line}");
        }
    }),
    ("build_fails_when_another_layer_has_the_output", || {
        let played = play("same_output").succeeded();
        assert!(played.report().contains(&format!("{OUTPUT} belongs to another layer")), "{}", played.report());
        assert_eq!(played.file(OUTPUT).slices("work"), 1, "{}", played.stderr);
    }),
    ("guard_dropped_after_a_stop_writes_no_file", || {
        let played = play("drop_after_stop").succeeded();
        assert_eq!((played.files(), played.stderr.as_str()), (vec!["saved.json".to_owned()], ""));
    }),
    ("start_fails_when_the_guard_was_dropped", || {
        let played = play("start_again").succeeded();
        let report = played.report();
        assert_eq!(report.matches("NotActive: the KinetoGuard was dropped").count(), 2, "{report}");
        assert_eq!(played.file(OUTPUT).slices("work"), 1);
    }),
    ("guard_reports_why_nothing_was_recorded", || {
        for (scenario, why) in [
            ("empty", "another subscriber was set before; install the layer first (the guard was dropped "),
            ("empty_young", "the layer was not installed when the guard was dropped"),
            ("empty_not_installed", "the layer was not installed; add it with"),
            ("empty_at_exit", "the layer was not installed; add it with"),
            ("empty_filtered", "every span that reached the layer is left out by its filter"),
            ("empty_filtered_in_a_list", "every span that reached the layer is left out by its filter"),
            ("empty_schedule", "the schedule ended while it waited, 3 more steps needed; call Profiler::step"),
        ] {
            let played = play_by_clock(scenario).succeeded();
            assert_eq!(played.stderr.lines().count(), 1, "{scenario}: {}", played.stderr);
            let (_, reason) = played.stderr.split_once("nothing was recorded: ").expect(&played.stderr);
            assert!(reason.contains(why) && reason.matches("; ").count() <= 1, "{scenario}: {reason}");
            assert!(played.files().is_empty(), "{scenario}: {:?}", played.files());
        }
    }),
    ("recording_without_output_leaves_no_file", || {
        assert!(play("no_output").succeeded().files().is_empty());
    }),
    ("flushed_file_survives_later_failures", || {
        let played = play("snapshot").succeeded();
        assert_eq!((played.files(), played.report()), (vec![OUTPUT.to_owned(), "report".into()], "flushed\n".into()));
        assert_eq!(played.file(OUTPUT).slices("work"), 1);
    }),
    ("layer_of_tracing_chrome_is_written_at_exit", || {
        let played = play("exit_as_tracing_chrome");
        assert_eq!((played.status.code(), played.files()), (Some(7), vec![OUTPUT.to_owned()]), "{}", played.stderr);
        assert_eq!(played.file(OUTPUT).slices("work"), 1);
    }),
    ("layer_of_tracing_chrome_writes_all_parts", || {
        let env = [("KINETO_OVERFLOW", "spill"), ("KINETO_BUFFER_LIMIT_MB", "8")];
        let played = play_with("parts_as_tracing_chrome", &env).succeeded();
        let refused = "OVERFLOW=spill writes a file for each part";
        assert!(played.stderr.contains(refused), "{}", played.stderr);
        let (last, parts): (Vec<_>, Vec<_>) = played.files().into_iter().partition(|file| file.starts_with("trace-"));
        assert!(parts.len() > 1 && parts.iter().all(|file| file.ends_with(".json")), "{parts:?}: {}", played.stderr);
        let slices = |files: &[String]| files.iter().map(|file| played.file(file).slices("work")).sum::<usize>();
        // A slice that is open at the end of a part is also in the next.
        let (of_parts, all) = (slices(&parts), 2 * PARTED..2 * PARTED + parts.len());
        assert!(all.contains(&of_parts) && slices(&last) == 1, "{of_parts} {}", played.stderr);
    }),
    #[cfg(feature = "gzip")]
    ("two_recordings_are_both_written_at_exit", || {
        let played = play("two").succeeded();
        assert_eq!(played.files(), ["one.json", "two.json.gz"], "{}", played.stderr);
        assert_eq!(played.file("one.json").slices("work"), 1);
    }),
];

#[expect(clippy::exit, reason = "the test checks what an exit leaves behind")]
pub(crate) fn exit(code: i32) -> ! {
    std::process::exit(code)
}

fn exit_on_thread(folder: &Path) {
    static RECORDED: AtomicUsize = AtomicUsize::new(0);
    let _guard = record(folder);
    for _ in 0..3 {
        let busy = || {
            loop {
                tracing::info_span!("busy").in_scope(work);
                RECORDED.fetch_add(1, Ordering::Relaxed);
            }
        };
        std::thread::Builder::new().spawn(busy).unwrap();
    }
    let ender = || {
        poll_until(|| RECORDED.load(Ordering::Relaxed) > 1000);
        exit(0)
    };
    let _ = std::thread::Builder::new().spawn(ender).unwrap().join();
}

fn abort(folder: &Path, flush: bool) {
    let _guard = record(folder);
    std::panic::set_hook(Box::new(move |_| {
        if flush {
            tracing_kineto::flush_all();
        }
        std::process::abort();
    }));
    let _open = tracing::info_span!("open").entered();
    work();
    panic!("into the hook");
}

fn flush_writer(folder: &Path) {
    let file = std::fs::File::create(folder.join(OUTPUT)).unwrap();
    let (layer, guard) = KinetoLayer::builder().writer(file).build().unwrap();
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer)).unwrap();
    work();
    tracing_kineto::flush_all();
    assert_eq!(guard.flush().unwrap_err().kind(), ErrorKind::Config);
    work();
}

fn finish(folder: &Path) {
    let guard = record(folder);
    let profiler = guard.profiler();
    work();
    let trace = guard.finish().unwrap();
    work();
    assert_eq!(profiler.stop().unwrap_err().kind(), ErrorKind::NotActive);
    tracing_kineto::flush_all();
    trace.save(folder.join("saved.json")).unwrap();
}
