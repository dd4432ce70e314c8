//! Dumps that something triggers.
#![cfg(feature = "gzip")]

use std::path::{Path, PathBuf};
use std::time::Duration;
use support::File;
use support::virtual_time;
use support::wait::{since, sleep, steady};
use tracing::{error, info_span, warn};
use tracing_kineto::analysis::Events;
use tracing_kineto::{DumpTrigger, Dumps, ErrorKind, KinetoGuard, KinetoLayer, KinetoLayerBuilder, Overflow};
use tracing_subscriber::layer::SubscriberExt;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Runs `work` under a layer that writes to `app.json.gz` in a folder; returns the dumps that it left, oldest first.
fn dumps_of(
    configure: impl FnOnce(KinetoLayerBuilder) -> KinetoLayerBuilder,
    work: impl FnOnce(&KinetoGuard),
) -> DumpFolder {
    let folder = tempfile::tempdir().unwrap();
    let builder = configure(KinetoLayer::builder().output(folder.path().join("app.json.gz")));
    let (layer, guard) = builder.build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || work(&guard));
    drop(guard);
    DumpFolder(folder)
}

struct DumpFolder(tempfile::TempDir);

impl DumpFolder {
    fn paths(&self) -> Vec<PathBuf> {
        dumps_in(self.0.path())
    }

    /// Returns the only dump, whose name ends with that reason. It may be written after the guard was dropped.
    fn only(&self, reason: &str) -> Events {
        wait_until(|| !self.paths().is_empty());
        let paths = self.paths();
        assert_eq!(paths.len(), 1, "{paths:?}");
        let name = paths[0].file_name().unwrap().to_str().unwrap();
        assert!(name.ends_with(&format!("Z_001_{reason}.json.gz")), "{name}");
        Events::read(&paths[0]).unwrap()
    }
}

fn dumps_in(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let is_dump = |path: &PathBuf| {
        path.extension().is_some_and(|end| end == "gz") && path.file_name().is_some_and(|name| name != "app.json.gz")
    };
    let mut dumps: Vec<_> = files.filter(is_dump).collect();
    dumps.sort();
    dumps
}

fn count(events: &Events, name: &str) -> usize {
    events.iter().filter(|event| event.name() == name && event.category() == "cpu_op").count()
}

fn header<'e>(events: &'e Events, key: &str) -> Option<&'e str> {
    events.metadata().find(|(known, _)| *known == key).map(|(_, json)| json)
}

fn wait_until(is_done: impl Fn() -> bool) {
    let deadline = steady() + Duration::from_secs(60);
    while !is_done() {
        assert!(steady() < deadline);
        sleep(MS);
    }
}

// Shows the key DUMP_AFTER.
#[virtual_time]
fn slow_span_triggers_a_dump_of_what_was_around_it() {
    let dumps = dumps_of(
        |builder| builder.dumps(Dumps::on([DumpTrigger::slow_span("request", 20 * MS)]).after(Duration::MAX)),
        |_| {
            let request = |time| info_span!("request", path = "/").in_scope(|| sleep(time));
            request(Duration::ZERO);
            info_span!("other").in_scope(|| sleep(30 * MS));
            info_span!("request but another").in_scope(|| sleep(30 * MS));
            sleep(50 * MS);
            request(30 * MS);
            info_span!("after").in_scope(|| ());
        },
    );
    // The end of the recording did not wait.
    let dump = dumps.only("slow-span-request");
    assert_eq!(["request", "other", "after"].map(|name| count(&dump, name)), [2, 1, 1]);
    let reason = header(&dump, "dump_reason").unwrap();
    assert!(reason.starts_with("\"span request took ") && reason.ends_with("longer than 20ms\""), "{reason}");
    let at: u64 = header(&dump, "dump_triggered_at_ns").unwrap().parse().unwrap();
    let after = dump.iter().find(|event| event.name() == "after").unwrap();
    assert!(at < after.start().as_nanos() + 1_000_000, "{at}");
}

/// Polls take no time; the request does, on two threads.
#[virtual_time]
fn slow_span_is_measured_from_creation_to_close() {
    let dumps = dumps_of(
        |builder| builder.dumps(Dumps::on([DumpTrigger::slow_span("request", 20 * MS)])),
        |_| {
            let request = info_span!("request");
            request.in_scope(|| info_span!("first poll").in_scope(|| ()));
            sleep(30 * MS);
            let dispatch = tracing::dispatcher::get_default(Clone::clone);
            let poll = || tracing::dispatcher::with_default(&dispatch, || request.in_scope(|| ()));
            std::thread::scope(|scope| std::thread::Builder::new().spawn_scoped(scope, poll).unwrap().join().unwrap());
        },
    );
    let dump = dumps.only("slow-span-request");
    assert_eq!(count(&dump, "first poll"), 1);
    let child = dump.iter().find(|event| event.name() == "first poll").unwrap();
    assert!(dump.iter().any(|event| event.name() == "request" && event.start() <= child.start()));
}

#[virtual_time]
fn watched_spans_are_recorded_like_others() {
    let record = |watches: bool| {
        let folder = tempfile::tempdir().unwrap();
        let mut builder = KinetoLayer::builder().output(folder.path().join("app.json"));
        if watches {
            builder = builder
                .overflow(Overflow::Stop)
                .dumps(Dumps::on(["watched", "shared"].map(|name| DumpTrigger::slow_span(name, HOUR))));
        }
        let (layer, guard) = builder.build().unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let shared = info_span!("shared", n = 1);
            for n in 0..3 {
                let watched = info_span!("watched", n, later = tracing::field::Empty).entered();
                watched.record("later", n);
                info_span!("inside").in_scope(|| shared.in_scope(|| ()));
                info_span!(parent: &shared, "child").in_scope(|| ());
                drop(watched);
                drop(info_span!("watched", n = 7));
            }
            let depth: Vec<_> = (0..100).map(|n| info_span!("watched", n).entered()).collect();
            depth.into_iter().rev().for_each(drop);
        });
        let file = File::of(guard.finish().unwrap());
        let shown = file.json["traceEvents"].as_array().unwrap().iter().map(|row| {
            let args = ["n", "later", "name"].map(|key| row["args"].get(key).map(ToString::to_string));
            (["ph", "cat", "name"].map(|key| row[key].to_string()), args)
        });
        (shown.filter(|(row, _)| !row[2].contains("PyTorch Profiler")).collect::<Vec<_>>(), file.trace.stats().losses)
    };
    let (plain, watched) = (record(false), record(true));
    assert_eq!(plain, watched);
    let slices = plain.0.iter().filter(|(row, _)| row[0] == "\"X\"" && row[1] == "\"cpu_op\"").count();
    assert_eq!(slices, 3 * 4 + 100);
}

#[virtual_time]
fn event_triggers_a_dump_from_its_level_up() {
    let dumps = dumps_of(
        |builder| builder.dumps(Dumps::on([DumpTrigger::Event(tracing::Level::ERROR)])),
        |_| {
            info_span!("fine").in_scope(|| warn!("not severe"));
            sleep(5 * MS);
            info_span!("failed").in_scope(|| error!("severe"));
        },
    );
    let dump = dumps.only("error-event");
    assert_eq!(["fine", "failed"].map(|name| count(&dump, name)), [1, 1]);
    let reason = header(&dump, "dump_reason").unwrap();
    assert!(reason.starts_with("\"ERROR event at tests/recordings/sessions/triggers.rs:"), "{reason}");
}

// Shows the key DUMP_INTERVAL.
#[virtual_time]
fn triggers_join_a_waiting_dump_and_are_skipped_after_it() {
    let dumps = dumps_of(
        |builder| {
            let dumps = Dumps::on([DumpTrigger::Event(tracing::Level::ERROR)]);
            builder.dumps(dumps.after(500 * MS).interval(2000 * MS))
        },
        |guard| {
            let folder = guard.profiler().dump("path").unwrap().wait().unwrap().parent().unwrap().to_owned();
            let triggered = || dumps_in(&folder).len() - 1;
            info_span!("one").in_scope(|| (0..200).for_each(|_| error!("at once")));
            wait_until(|| triggered() == 1);
            let first = Events::read(&dumps_in(&folder)[1]).unwrap();
            assert_eq!(header(&first, "dump_triggers_skipped"), Some("0"));
            let joined: u64 = header(&first, "dump_triggers_joined").unwrap().parse().unwrap();
            let wait = steady();
            let mut posted = 0;
            while triggered() == 1 {
                error!("again");
                posted += 1;
                sleep(MS);
                assert!(since(wait) < Duration::from_secs(60));
            }
            let second = Events::read(&dumps_in(&folder)[2]).unwrap();
            let counts = ["dump_triggers_joined", "dump_triggers_skipped"];
            let [joined_again, skipped] = counts.map(|key| header(&second, key).unwrap().parse::<u64>().unwrap());
            assert!(joined > 0 && skipped > 0 && joined_again > 0, "{skipped} {joined_again}");
            let answered = 2 + joined + joined_again + skipped;
            assert!((200..=200 + posted).contains(&answered), "{answered} of {}", 200 + posted);
        },
    );
    assert_eq!(dumps.paths().len(), 3);
}

#[virtual_time]
fn slow_step_triggers_a_dump() {
    let dumps = dumps_of(
        |builder| builder.dumps(Dumps::on(["step>5x".parse().unwrap()]).after(HOUR)),
        |guard| {
            let profiler = guard.profiler();
            let mut longest = Duration::ZERO;
            for _ in 0..30 {
                let begun = steady();
                info_span!("work").in_scope(|| ());
                profiler.step();
                longest = longest.max(since(begun));
            }
            info_span!("stall").in_scope(|| sleep(100 * MS + 6 * longest));
            profiler.step();
        },
    );
    let dump = dumps.only("slow-step");
    assert_eq!(["work", "stall"].map(|name| count(&dump, name)), [30, 1]);
    let reason = header(&dump, "dump_reason").unwrap();
    assert!(reason.starts_with("\"step ") && reason.contains(", the median of the steps before it "), "{reason}");
}

#[virtual_time]
fn triggers_need_an_output() {
    let triggered = || KinetoLayer::builder().dumps(Dumps::on([DumpTrigger::Panic]));
    for builder in [triggered().no_output(), triggered().writer(Vec::new()), triggered().on_trace_ready(|_| ())] {
        let error = builder.build().unwrap_err();
        assert!(error.kind() == ErrorKind::Config && error.to_string().contains("set `output`"), "{error}");
    }
    let error = KinetoLayer::builder().dumps(Dumps::on([DumpTrigger::slow_span("", MS)])).build().unwrap_err();
    assert!(error.to_string().contains("span:NAME>TIME"), "{error}");
    // An empty list changes nothing.
    let (_layer, guard) = KinetoLayer::builder().no_output().dumps(Dumps::on([])).build().unwrap();
    let trace = guard.finish().unwrap();
    let config = trace.metadata().into_iter().find(|(key, _)| key == "tracing_kineto").map(|(_, json)| json);
    assert!(config.is_none_or(|json| !json.contains("keep_newest")));
}

/// The names of dumps have neither the number of a recording nor the time of the output.
#[virtual_time]
fn old_dumps_of_all_recordings_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let builder = KinetoLayer::builder().output(folder.path().join("app_{time}.json.gz")).record_from_start(false);
    let (layer, guard) = builder.dumps(Dumps::new().keep(2, 1 << 30)).build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for n in 0..4 {
            let recording = guard.profiler().record().unwrap();
            info_span!("work").in_scope(|| ());
            guard.profiler().dump(&format!("reason {n}")).unwrap().wait().unwrap();
            drop(recording.finish().unwrap());
        }
    });
    let names: Vec<_> = dumps_in(folder.path()).iter().map(|path| path.to_str().unwrap().to_owned()).collect();
    let start = format!("/app_{}_2", std::process::id());
    assert!(names.len() == 2 && names.iter().all(|name| name.contains(&start)), "{names:?}");
}

// Shows the key DUMP_FILES.
#[virtual_time]
fn old_dumps_are_removed() {
    let dumps = dumps_of(
        |builder| builder.dumps(Dumps::new().keep(2, 1 << 30)),
        |guard| {
            info_span!("work").in_scope(|| ());
            for n in 0..4 {
                guard.profiler().dump(&format!("reason {n}")).unwrap().wait().unwrap();
            }
        },
    );
    let names: Vec<_> = dumps.paths().iter().map(|path| path.to_str().unwrap().to_owned()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names[0].ends_with("_003_reason-2.json.gz") && names[1].ends_with("_004_reason-3.json.gz"), "{names:?}");
}

#[virtual_time]
fn dump_goes_to_the_sink_of_a_url() {
    use std::sync::{Arc, Mutex};
    let (names, folder) = (Arc::new(Mutex::new(Vec::new())), tempfile::tempdir().unwrap());
    let (log, files) = (names.clone(), folder.path().to_owned());
    let open = move |url: &str| -> std::io::Result<Box<dyn std::io::Write + Send>> {
        log.lock().unwrap().push(url.to_owned());
        Ok(Box::new(std::fs::File::create(files.join(url.rsplit('/').next().unwrap()))?))
    };
    let builder = KinetoLayer::builder().sink("store", open).output("store://bucket/app.json");
    let (layer, guard) = builder.dumps(Dumps::on([DumpTrigger::slow_span("request", MS)])).build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        info_span!("request").in_scope(|| sleep(5 * MS));
    });
    drop(guard);
    // A thread writes the dump.
    wait_until(|| names.lock().unwrap().len() == 2);
    let names = names.lock().unwrap();
    let dump = names.iter().find(|name| name.ends_with("Z_001_slow-span-request.json")).unwrap();
    assert!(dump.starts_with("store://bucket/app_"), "{dump}");
    let file = folder.path().join(dump.rsplit('/').next().unwrap());
    wait_until(|| Events::read(&file).is_ok());
    assert_eq!(count(&Events::read(&file).unwrap(), "request"), 1);
}
