//! Dumps that the process itself triggers: panics, signals, and what its end does to a dump that is due later.

use super::ends::exit;
use super::play::{self, OUTPUT, Played, play, play_with, record_as, report, work};
use super::sys;
use super::{Scenario, Test};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use support::poll_until;
use tracing_kineto::{DumpTrigger, Dumps, ErrorKind, KinetoGuard, KinetoLayer, Overflow, Segment, Spill, Split, Trace};
use tracing_subscriber::prelude::*;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);
const NOT_DUMPED: &str = "no dump for: the process received SIGUSR2: nothing is recorded now";

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("dump_of_a_panic_on_a_thread", |folder| {
        let _guard = dumping(folder, DumpTrigger::Panic, MS);
        work();
        let _ = std::thread::Builder::new().spawn(|| panic!("on a thread")).unwrap().join();
        wait_for_a_dump(folder, || ());
        work();
    }),
    ("dump_of_a_panic_in_main", |folder| {
        let _guard = dumping(folder, DumpTrigger::Panic, HOUR);
        let _open = tracing::info_span!("open").entered();
        work();
        panic!("out of main");
    }),
    ("dump_by_env", |_| {
        let (layer, _guard) = KinetoLayer::from_env().unwrap();
        tracing_subscriber::registry().with(layer).init();
        work();
        tracing::error!("in the program");
        tracing::info_span!("request").in_scope(|| std::thread::sleep(5 * MS));
    }),
    ("only_dumps_by_drop", |_| drop(only_dumps())),
    ("only_dumps_by_finish", |_| drop(only_dumps().finish().unwrap())),
    ("only_dumps_by_exit", |_| {
        let _guard = only_dumps();
        exit(0);
    }),
    ("only_dumps_by_call", |folder| {
        let guard = only_dumps();
        // It lies in /tmp.
        let dump = guard.profiler().dump("by call").unwrap().wait().unwrap();
        std::fs::copy(&dump, folder.join(dump.file_name().unwrap())).unwrap();
        std::fs::remove_file(dump).unwrap();
    }),
    ("dump_of_a_signal", |folder| {
        let guard = dumping(folder, DumpTrigger::Signal, MS);
        work();
        wait_for_a_dump(folder, || sys::raise(libc::SIGUSR2));
        work();
        drop(guard.finish().unwrap());
    }),
    ("dump_signal_without_records", |folder| {
        let guard = dumping(folder, DumpTrigger::Signal, MS);
        (0..1000).for_each(|_| sys::raise(libc::SIGUSR2));
        guard.profiler().pause().unwrap();
        sys::raise(libc::SIGUSR2);
        // The thread that takes signals reports the last one. The test harness makes stderr a file.
        poll_until(|| std::fs::read_to_string("/proc/self/fd/2").unwrap().contains(NOT_DUMPED));
        report(folder, "alive");
    }),
    ("dump_signal_handled", |folder| {
        sys::count(libc::SIGUSR2);
        let _guard = dumping(folder, DumpTrigger::Signal, MS);
        work();
        sys::raise(libc::SIGUSR2);
        report(folder, &format!("handled {}", sys::counted()));
    }),
    ("dump_at_exit", |folder| {
        let _guard = dumping(folder, slow_request(), HOUR);
        slow();
        exit(0);
    }),
    ("dump_on_term", |folder| {
        let _guard = dumping(folder, slow_request(), HOUR);
        slow();
        sys::raise(libc::SIGTERM);
        loop {
            std::thread::park();
        }
    }),
    ("exit_while_spilling", |folder| {
        let _guard = spilling(folder);
        work_until_segments(folder, 2);
        work();
        exit(0);
    }),
    ("exit_after_steps_without_an_output", |folder| {
        let builder = KinetoLayer::builder().no_output().overflow(Overflow::Spill).spill(Spill::new().folder(folder));
        let guard = record_as(builder.spill(Spill::new().split(Split::Steps(2))));
        let profiler = guard.profiler();
        for _ in 0..7 {
            work();
            profiler.step();
        }
        work();
        exit(0);
    }),
    ("killed_while_spilling", |folder| {
        let _guard = spilling(folder);
        work_until_segments(folder, 2);
        sys::raise(libc::SIGKILL);
    }),
    ("dump_in_a_forked_child", |folder| {
        let guard = dumping(folder, slow_request(), HOUR);
        slow();
        let child = sys::fork();
        if child == 0 {
            guard.profiler().start().unwrap();
            slow();
            drop(guard);
            return;
        }
        report(folder, &format!("{child} {:?}", sys::wait(child)));
    }),
];

fn spilling(folder: &Path) -> KinetoGuard {
    let builder = KinetoLayer::builder().output(folder.join(OUTPUT)).overflow(Overflow::Spill);
    record_as(builder.buffer_limit_bytes(2 << 20))
}

fn segment_folder(folder: &Path) -> Option<PathBuf> {
    let mut folders = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    folders.find(|path| path.extension().is_some_and(|end| end == "segments"))
}

fn work_until_segments(folder: &Path, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let files = || segment_folder(folder).and_then(|folder| Segment::files_in(folder).err());
    let is_enough = || {
        let names = segment_folder(folder).map(|folder| std::fs::read_dir(folder).unwrap().flatten());
        names.is_some_and(|names| {
            names.filter(|file| file.path().extension().is_some_and(|end| end == "kseg")).count() >= count
        })
    };
    while !is_enough() {
        assert!(Instant::now() < deadline, "no segments");
        (0..1000).for_each(|_| work());
    }
    let error = files().expect("this process still runs");
    assert_eq!(error.kind(), ErrorKind::AlreadyActive, "{error}");
}

/// Returns the slices in the segments of a process that has ended.
fn slices_in_segments(played: &Played) -> u64 {
    let folder = segment_folder(&played.path("")).expect("a folder of segments");
    let segments = Segment::files_in(folder).unwrap();
    assert!(segments.len() >= 2, "{segments:?}");
    segments.iter().map(|path| Trace::read_segment(path).unwrap().trace.stats().slices).sum()
}

fn slow_request() -> DumpTrigger {
    DumpTrigger::slow_span("request", MS)
}

fn slow() {
    tracing::info_span!("request").in_scope(|| std::thread::sleep(5 * MS));
}

/// Records work as the environment says.
fn only_dumps() -> KinetoGuard {
    let (layer, guard) = KinetoLayer::from_env().unwrap();
    tracing_subscriber::registry().with(layer).init();
    work();
    guard
}

fn dumping(folder: &Path, trigger: DumpTrigger, after: Duration) -> KinetoGuard {
    record_as(KinetoLayer::builder().output(folder.join(OUTPUT)).dumps(Dumps::on([trigger]).after(after)))
}

/// Repeats `ask` until a dump is complete.
fn wait_for_a_dump(folder: &Path, ask: impl Fn()) {
    let is_dump = |name: &str| name.starts_with("out_") && name.ends_with(".json");
    poll_until(|| {
        ask();
        std::fs::read_dir(folder).unwrap().any(|file| is_dump(file.unwrap().file_name().to_str().unwrap()))
    });
}

/// Returns the process's only dump.
fn only_dump(played: &Played, pid: u32, reason: &str) -> play::File {
    let start = format!("out_{pid}_");
    let dumps: Vec<_> = played.files().into_iter().filter(|name| name.starts_with(&start)).collect();
    assert!(
        dumps.len() == 1 && dumps[0].ends_with(&format!("_001_{reason}.pt.trace.json")),
        "{dumps:?}: {}",
        played.stderr
    );
    played.file(&dumps[0])
}

pub(crate) const TESTS: &[Test] = &[
    ("panic_on_a_thread_dumps", || {
        let played = play("dump_of_a_panic_on_a_thread").succeeded();
        assert_eq!(only_dump(&played, played.pid, "panic").slices("work"), 1);
        assert_eq!(played.file(OUTPUT).slices("work"), 2);
        assert!(played.stderr.contains("on a thread"), "the earlier hook ran: {}", played.stderr);
    }),
    ("panic_in_main_dumps_before_the_guard_writes", || {
        let played = play("dump_of_a_panic_in_main");
        assert_eq!(played.status.code(), Some(101), "{}", played.stderr);
        let dump = only_dump(&played, played.pid, "panic");
        assert_eq!((dump.slices("work"), dump.slices("open")), (1, 1));
        assert_eq!(dump.json["dump_reason"], "a thread panicked");
        assert_eq!(played.file(OUTPUT).slices("open"), 1);
    }),
    // Shows the key DUMP_ON.
    ("dumps_are_configured_by_the_environment", || {
        let triggers = "span:request>1ms, event:error, panic";
        for (more, expected) in [(&[("KINETO_OVERFLOW", "stop")][..], ["stop", "64"]), (&[][..], ["keep_newest", "64"])]
        {
            let mut env = vec![("KINETO_DUMP_ON", triggers), ("KINETO_ACTIVITIES_LOG_FILE", "{}/out.pt.trace.json")];
            env.extend(more);
            let played = play_with("dump_by_env", &env).succeeded();
            let dump = only_dump(&played, played.pid, "error-event");
            assert_eq!((dump.slices("work"), dump.slices("request")), (1, 1), "the second trigger joined the first");
            assert_eq!(dump.json["dump_triggers_joined"], 1);
            let config = &dump.json["tracing_kineto"]["config"];
            assert_eq!(["OVERFLOW", "BUFFER_LIMIT_MB"].map(|key| config[key].as_str().unwrap()), expected);
            assert_eq!(config["DUMP_ON"], "span:request>1ms,event:error,panic");
        }
    }),
    // Shows the key WRITE_AT_END.
    ("end_without_a_named_file_writes_only_dumps", || {
        const WHY: &str = "DUMP_ON is set and no file is named";
        let only_dumps = |end: &str, env: &[(&str, &str)]| {
            let trigger = [("KINETO_DUMP_ON", "span:request>3600s")];
            play_with(&format!("only_dumps_by_{end}"), &[&trigger, env].concat()).succeeded()
        };
        for end in ["drop", "exit", "call"] {
            // A file's time may lag a little behind the clock.
            let begun = SystemTime::now() - Duration::from_secs(1);
            let played = only_dumps(end, &[]);
            let dumps = usize::from(end == "call");
            let expected =
                format!("wrote no file at the end, after {dumps} dump{}: {WHY}", if dumps == 1 { "" } else { "s" });
            assert!(played.stderr.contains(&expected), "{end}: {}", played.stderr);
            assert_eq!(played.files().len(), dumps, "{end}");
            // An earlier process with the same number may have left such a file.
            let default = std::fs::metadata(format!("/tmp/libkineto_activities_{}.json", played.pid));
            assert!(default.is_err() || default.unwrap().modified().unwrap() < begun, "{end}: {}", played.stderr);
        }
        let played = only_dumps("finish", &[]);
        assert!(!played.stderr.contains("unused"), "{}", played.stderr);
        let named = ("KINETO_ACTIVITIES_LOG_FILE", "{}/out_{pid}.json");
        for (env, files) in [(&[named][..], 1), (&[named, ("KINETO_WRITE_AT_END", "false")][..], 0)] {
            for end in ["drop", "exit"] {
                let played = only_dumps(end, env);
                assert_eq!(played.files().len(), files, "{end}: {}", played.stderr);
                assert_eq!(played.stderr.contains("WRITE_AT_END is false"), files == 0, "{end}: {}", played.stderr);
            }
        }
    }),
    ("signal_dumps_and_the_program_continues", || {
        let played = play("dump_of_a_signal").succeeded();
        assert_eq!(only_dump(&played, played.pid, "signal").slices("work"), 1);
    }),
    ("signals_without_records_dump_nothing", || {
        let played = play("dump_signal_without_records").succeeded();
        assert_eq!((played.files(), played.report().as_str()), (vec!["report".to_owned()], "alive\n"));
        assert!(played.stderr.contains(NOT_DUMPED), "{}", played.stderr);
    }),
    ("signal_of_the_program_stays_its_own", || {
        let played = play("dump_signal_handled").succeeded();
        assert_eq!(played.files(), [OUTPUT, "report"]);
        assert_eq!(played.report(), "handled 1\n");
        assert!(played.stderr.contains("SIGUSR2 triggers no dump"), "{}", played.stderr);
    }),
    ("end_of_the_process_does_not_wait_until_a_dump_is_due", || {
        for scenario in ["dump_at_exit", "dump_on_term"] {
            let played = play(scenario);
            assert_eq!(only_dump(&played, played.pid, "slow-span-request").slices("request"), 1, "{scenario}");
            assert_eq!(played.file(OUTPUT).slices("request"), 1, "{scenario}");
        }
    }),
    ("segments_stay_when_the_process_ends", || {
        let played = play("exit_while_spilling").succeeded();
        assert!(played.stderr.contains("of the recording: run `kineto repair "), "{}", played.stderr);
        assert!(slices_in_segments(&played) > 0);
        // The rest was written, unless it had been moved a moment before.
        assert!(!played.path(OUTPUT).exists() || played.file(OUTPUT).slices("work") > 0);
    }),
    ("segments_have_all_steps_when_the_process_ends", || {
        let played = play("exit_after_steps_without_an_output").succeeded();
        assert!(played.stderr.contains("of the recording: run `kineto repair "), "{}", played.stderr);
        assert_eq!(slices_in_segments(&played), 8);
    }),
    ("segments_stay_when_the_process_is_killed", || {
        let played = play("killed_while_spilling");
        assert_eq!(played.status.signal(), Some(libc::SIGKILL));
        assert!(slices_in_segments(&played) > 0);
    }),
    ("forked_child_dumps_its_own_records", || {
        let played = play("dump_in_a_forked_child").succeeded();
        let report = played.report();
        let (child, end) = report.split_once(' ').unwrap();
        assert_eq!(end, "Exit(0)\n");
        for pid in [played.pid, child.parse().unwrap()] {
            let dump = only_dump(&played, pid, "slow-span-request");
            assert_eq!((dump.slices("request"), dump.processes()), (1, vec![i64::from(pid)]));
        }
    }),
];
