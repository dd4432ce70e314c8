//! Processes at the limit of open files, and without /proc.
#![allow(clippy::disallowed_methods, reason = "a scenario gets its settings from the environment")]

use super::play::{OUTPUT, Played, play_with, record_as, report, work};
use super::{Scenario, Test, ends, sys};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tracing_kineto::{KinetoGuard, KinetoLayer, Message};
use tracing_subscriber::prelude::*;

pub(crate) const SCENARIOS: &[Scenario] = &[
    ("recording", |folder| drop(record_twice(folder))),
    ("recording_that_exits", |folder| {
        let _guard = record_twice(folder);
        ends::exit(0);
    }),
    ("requests", requests),
];

pub(crate) const TESTS: &[Test] = &[
    ("save_without_descriptors_works_or_names_the_limit", || {
        for (from, to, error) in [
            ("build", "built", "build"),
            ("built", "stop", ""),
            ("stop", "save", ""),
            ("save", "saved", "save"),
            ("saved", "", "end"),
        ] {
            for scenario in ["recording", "recording_that_exits"] {
                let played = play_with(scenario, &[("FROM", from), ("TO", to)]).succeeded();
                let failed = format!("{}{}", played.report(), played.stderr);
                let at = format!("{scenario} {from}: {failed}");
                let limit = "Too many open files (os error 24); close files or raise the limit (ulimit -n)";
                assert_eq!(failed.matches(limit).count(), usize::from(!error.is_empty()), "{at}");
                let saved = |name: &str| played.path(name).exists().then(|| played.file(name).slices("work"));
                let is_built = error != "build";
                assert_eq!(saved(FIRST), is_built.then_some(2), "{at}");
                assert_eq!(saved(OUTPUT), (is_built && error != "end").then_some(1), "{at}");
            }
        }
    }),
    ("request_without_descriptors_is_refused_and_next_served", || {
        let played = request("descriptors");
        let refused = "was refused: it cannot be read: Too many open files";
        assert_eq!(played.stderr.matches(refused).count(), 1, "{}", played.stderr);
        assert!(played.stderr.contains("recording started"), "{}", played.stderr);
        played.file(played.report().trim_end());
    }),
    ("trace_is_saved_without_proc", || {
        for scenario in ["recording", "recording_that_exits"] {
            let played = play_with(scenario, &[("HIDE", "proc")]).succeeded();
            if played.report().contains(HAS_PROC) {
                return;
            }
            assert_eq!((played.file(FIRST).slices("work"), played.file(OUTPUT).slices("work")), (2, 1), "{scenario}");
        }
    }),
    ("request_is_served_without_proc", || {
        let played = request("proc");
        if !played.report().contains(HAS_PROC) {
            played.file(played.report().trim_end());
        }
    }),
];

/// Reported if the kernel does not let this process hide /proc.
const HAS_PROC: &str = "/proc cannot be hidden";

/// The file that a scenario saves itself.
const FIRST: &str = "first.json";

/// Makes and saves a recording, and starts another. The process can open no file from step `FROM` to step `TO`.
fn record_twice(folder: &Path) -> Option<KinetoGuard> {
    if std::env::var_os("HIDE").is_some() && !sys::hide_proc() {
        report(folder, HAS_PROC);
        return None;
    }
    let is = |key: &str, step: &str| std::env::var(key).is_ok_and(|at| at == step);
    let at = |step: &str| {
        if is("FROM", step) {
            sys::limit_descriptors(true);
        }
        if is("TO", step) {
            sys::limit_descriptors(false);
        }
    };
    at("build");
    let built = KinetoLayer::builder().output(folder.join(OUTPUT)).record_from_start(false).build();
    at("built");
    let (layer, guard) = built.map_err(|error| report(folder, &error.to_string())).ok()?;
    tracing_subscriber::registry().with(layer).init();
    let profiler = guard.profiler();
    profiler.start().unwrap();
    work();
    std::thread::Builder::new().spawn(work).unwrap().join().unwrap();
    at("stop");
    let trace = profiler.stop().unwrap();
    at("save");
    let saved = trace.save(folder.join(FIRST));
    at("saved");
    if let Err(error) = saved {
        report(folder, &error.to_string());
        trace.save(folder.join(FIRST)).unwrap();
    }
    profiler.start().unwrap();
    work();
    Some(guard)
}

/// Plays a program that gets requests while `missing` is unavailable.
fn request(missing: &str) -> Played {
    play_with("requests", &[("MISSING", missing), ("KINETO_ONDEMAND_TRACE_DIR", "{}")]).succeeded()
}

fn requests(folder: &Path) {
    let is_missing = |what: &str| std::env::var("MISSING").is_ok_and(|missing| missing == what);
    if is_missing("proc") && !sys::hide_proc() {
        return report(folder, HAS_PROC);
    }
    let lines = Arc::new(Mutex::new(String::new()));
    let heard = lines.clone();
    let log = move |message: &Message<'_>| {
        let _ = writeln!(io::stderr(), "{message}");
        heard.lock().unwrap().push_str(&message.to_string());
    };
    let builder = KinetoLayer::builder().no_output().record_from_start(false).trigger_folder(folder);
    let _guard = record_as(builder.log_sink(Arc::new(log)));
    let wait_for = |text: &str| {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !lines.lock().unwrap().contains(text) && Instant::now() < deadline {
            work();
        }
    };
    wait_for("traces this process");
    let pid = std::process::id();
    let leave = |prepared: PathBuf| std::fs::rename(prepared, folder.join(format!("{pid}.request"))).unwrap();
    let prepare = |name: &str| {
        let text = format!("ACTIVITIES_LOG_FILE={}\nACTIVITIES_DURATION_MSECS=10", folder.join("x.json").display());
        std::fs::write(folder.join(name), text).unwrap();
        folder.join(name)
    };
    if is_missing("descriptors") {
        let prepared = prepare("refused");
        sys::limit_descriptors(true);
        leave(prepared);
        wait_for("was refused");
        sys::limit_descriptors(false);
        lines.lock().unwrap().clear();
    }
    leave(prepare("taken"));
    wait_for("written");
    report(folder, &format!("x_{pid}.json"));
}
