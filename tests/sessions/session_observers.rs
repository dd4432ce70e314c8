//! Observers of a session: what they hear of recordings, in which order, and what they may do meanwhile.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use support::{File, layer};
use tracing_kineto::memory::{self, Device};
use tracing_kineto::{
    ErrorKind, KinetoGuard, KinetoLayerBuilder, LogSink, Mode, Profiler, RecordingFlags, Schedule, SessionObserver,
    Status, Trace,
};

/// Writes down what it hears.
#[derive(Clone, Debug, Default)]
struct Notes {
    name: &'static str,
    lines: Arc<Mutex<Vec<String>>>,
    panics_at: &'static str,
    /// What it does when it hears something.
    acts: Acts,
}

type Act = dyn Fn(&Profiler, &str) + Send + Sync;

#[derive(Clone, Default)]
struct Acts(Arc<OnceLock<(Profiler, Box<Act>)>>);

impl std::fmt::Debug for Acts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Acts")
    }
}

impl Notes {
    fn named(&self, name: &'static str) -> Notes {
        Notes { name, ..self.clone() }
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock().unwrap())
    }

    fn act(&self, profiler: Profiler, act: impl Fn(&Profiler, &str) + Send + Sync + 'static) {
        assert!(self.acts.0.set((profiler, Box::new(act))).is_ok());
    }

    fn hear(&self, what: &str) {
        assert!(what != self.panics_at, "as asked");
        self.lines.lock().unwrap().push(format!("{}{what}", self.name));
        if let Some((profiler, act)) = self.acts.0.get() {
            act(profiler, what);
        }
    }
}

impl SessionObserver for Notes {
    fn prepared(&self, flags: &RecordingFlags) {
        let RecordingFlags { record_shapes, profile_memory, with_stack, with_flops, with_modules, .. } = *flags;
        let flags = [record_shapes, profile_memory, with_stack, with_flops, with_modules].map(u8::from);
        self.hear(&format!("prepared {}", flags.map(|flag| flag.to_string()).concat()));
    }
    fn started(&self) {
        self.hear("started");
    }
    fn stopped(&self) {
        self.hear("stopped");
    }
    fn cancelled(&self, reason: &str) {
        self.hear(&format!("cancelled: {reason}"));
    }
    fn memory_profile_started(&self) {
        self.hear("memory profile started");
    }
    fn memory_profile_stopped(&self) {
        self.hear("memory profile stopped");
    }
    fn memory_profile_exported(&self, path: &Path) {
        self.hear(&format!("memory profile in {}", path.display()));
    }
}

/// A layer that does not record yet.
fn idle(configure: impl FnOnce(KinetoLayerBuilder) -> KinetoLayerBuilder) -> KinetoGuard {
    layer(|builder| configure(builder.record_from_start(false))).1
}

const WHOLE: [&str; 3] = ["prepared 00000", "started", "stopped"];

#[test]
fn a_recording_is_prepared_started_and_then_stopped_or_cancelled() {
    let notes = Notes::default();
    let guard = idle(|builder| builder.session_observer(notes.clone()));
    let profiler = guard.profiler();
    profiler.start().unwrap();
    assert_eq!(notes.take(), WHOLE[..2]);
    // What is refused is no news.
    assert_eq!(profiler.start().unwrap_err().kind(), ErrorKind::AlreadyActive);
    assert_eq!(profiler.prepare().unwrap_err().kind(), ErrorKind::AlreadyActive);
    profiler.pause().unwrap();
    profiler.snapshot().unwrap();
    assert_eq!(notes.take(), Vec::<String>::new());
    profiler.stop().unwrap();
    assert_eq!(profiler.stop().unwrap_err().kind(), ErrorKind::NotActive);
    assert_eq!(notes.take(), WHOLE[2..]);
    drop(profiler.prepare().unwrap());
    assert_eq!(notes.take(), ["prepared 00000", "cancelled: the program dropped its preparation"]);
    let prepared = profiler.prepare().unwrap();
    assert_eq!(notes.take(), WHOLE[..1]);
    prepared.start().unwrap();
    drop(guard);
    assert_eq!(notes.take(), WHOLE[1..]);
}

#[test]
fn what_a_recording_is_asked_for_is_told_and_stands_in_the_header_as_torchs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libkineto.conf");
    let heard = |builder: &dyn Fn(KinetoLayerBuilder) -> KinetoLayerBuilder, file: &str| {
        std::fs::write(&path, file).unwrap();
        let notes = Notes::default();
        let guard = idle(|b| builder(b.config_file(&path).session_observer(notes.clone())));
        guard.profiler().start().unwrap();
        let file = File::of(guard.finish().unwrap());
        let names = ["record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules"];
        let header: String = names.map(|name| if file.json[name] == 1 { '1' } else { '0' }).iter().collect();
        let flags = notes.take()[0].strip_prefix("prepared ").unwrap().to_owned();
        assert_eq!(header, flags);
        flags
    };
    let keys = [
        ("PROFILE_REPORT_INPUT_SHAPES", "10000"),
        ("CLIENT_INTERFACE_ENABLE_OP_INPUTS_COLLECTION", "10000"),
        ("PROFILE_PROFILE_MEMORY", "01000"),
        ("PROFILE_WITH_STACK", "00100"),
        ("PYTHON_STACK_TRACE", "00100"),
        ("PROFILE_WITH_FLOPS", "00010"),
        ("PROFILE_WITH_MODULES", "00001"),
    ];
    for (key, flags) in keys {
        assert_eq!(heard(&|builder| builder, &format!("{key}=true\n")), flags, "{key}");
        assert_eq!(heard(&|builder| builder, &format!("{key}=false\n")), "00000", "{key}");
    }
    assert_eq!(heard(&|builder| builder.record_shapes(true), ""), "10000");
    assert_eq!(heard(&|builder| builder.record_shapes(false), "PROFILE_REPORT_INPUT_SHAPES=1"), "00000");
    // As in torch, FLOPs take shapes.
    assert_eq!(heard(&|builder| builder.with_flops(true).with_memory(true).with_modules(true), ""), "11011");
}

#[test]
fn several_hear_all_in_the_order_in_which_they_were_given() {
    let first = Notes::default().named("1 ");
    let second = first.named("2 ");
    let guard = idle(|builder| builder.session_observer(first.clone()).session_observer(second));
    guard.profiler().start().unwrap();
    drop(guard);
    let expected = WHOLE.map(|what| [format!("1 {what}"), format!("2 {what}")]).concat();
    assert_eq!(first.take(), expected);
}

#[test]
fn one_that_panics_is_told_no_more_and_the_others_are() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = told.clone();
    let sink: LogSink = Arc::new(move |message| heard.lock().unwrap().push(message.text.to_string()));
    let (broken, whole) = (Notes { panics_at: "started", ..Notes::default() }, Notes::default());
    let guard = idle(|b| b.log_sink(sink).session_observer(broken.clone()).session_observer(whole.clone()));
    for _ in 0..2 {
        guard.profiler().start().unwrap();
        guard.profiler().stop().unwrap();
    }
    assert_eq!(broken.take(), WHOLE[..1]);
    assert_eq!(whole.take(), [WHOLE, WHOLE].concat());
    let told = told.lock().unwrap();
    let about: Vec<_> = told.iter().filter(|text| text.contains("session observer")).collect();
    let [text] = about.as_slice() else { panic!("{told:?}") };
    assert!(text.ends_with("Notes: it panicked in `started`: as asked; it is disabled now; fix its code"), "{text}");
}

#[test]
fn each_cycle_of_a_schedule_is_a_recording() {
    let (notes, schedule) = (Notes::default(), |warmup| Schedule::new(1, warmup, 1).unwrap());
    let guard = idle(|builder| builder.schedule(schedule(1)).session_observer(notes.clone()));
    let profiler = guard.profiler();
    profiler.start().unwrap();
    let heard: Vec<_> = (0..6).map(|_| (profiler.step(), notes.take().join(" ")).1).collect();
    assert_eq!(heard, ["prepared 00000", "started", "stopped", "prepared 00000", "started", "stopped"]);
    profiler.step();
    // The schedule ends during the warm-up.
    assert_eq!(profiler.stop().unwrap_err().kind(), ErrorKind::NotActive);
    assert_eq!(notes.take(), WHOLE);
    // Without a warm-up, with a handler that looks at what was heard: they are told when the step is done.
    let heard = Arc::new(Mutex::new(Vec::new()));
    let (keep, lines) = (heard.clone(), notes.lines.clone());
    let handler = move |_: Trace| keep.lock().unwrap().push(lines.lock().unwrap().join(" "));
    let guard = idle(|b| b.schedule(schedule(0)).on_trace_ready(handler).session_observer(notes.clone()));
    guard.profiler().start().unwrap();
    (0..2).for_each(|_| drop(guard.profiler().step()));
    assert_eq!((heard.lock().unwrap().join(","), notes.take().join(" ")), (WHOLE[..2].join(" "), WHOLE.join(" ")));
}

#[test]
fn one_may_stop_in_started_and_all_hear_it_in_order() {
    let first = Notes::default().named("1 ");
    let last = Notes { acts: Acts::default(), ..first.named("2 ") };
    let guard = idle(|builder| builder.session_observer(first.clone()).session_observer(last));
    first.act(guard.profiler(), |profiler, what| match what {
        "started" => assert_eq!((profiler.status(), profiler.stop().is_ok()), (Status::Recording, true)),
        "stopped" => assert_eq!(profiler.status(), Status::Idle),
        _ => assert_eq!(profiler.start().unwrap_err().kind(), ErrorKind::AlreadyActive),
    });
    guard.profiler().start().unwrap();
    let expected = WHOLE.map(|what| [format!("1 {what}"), format!("2 {what}")]).concat();
    assert_eq!((first.take(), guard.profiler().status()), (expected, Status::Idle));
}

#[test]
fn one_may_step_and_start_what_it_hears_the_end_of() {
    let (notes, starts) = (Notes::default(), Arc::new(AtomicUsize::new(0)));
    let guard = idle(|builder| builder.session_observer(notes.clone()));
    let counted = starts.clone();
    notes.act(guard.profiler(), move |profiler, what| {
        profiler.step();
        if what == "stopped" && counted.fetch_add(1, Ordering::Relaxed) < 3 {
            profiler.start().unwrap();
            profiler.stop().unwrap();
        }
    });
    guard.profiler().start().unwrap();
    guard.profiler().stop().unwrap();
    assert_eq!(notes.take(), [WHOLE; 4].concat());
    assert_eq!((starts.load(Ordering::Relaxed), guard.profiler().iteration()), (4, 12));
}

/// Holds what an observer hears against what may follow what.
fn check_order(lines: &[String]) {
    let mut before = "stopped";
    for line in lines {
        let now = line.split_whitespace().next().unwrap().trim_end_matches(':');
        let may = match now {
            "prepared" => ["stopped", "cancelled"],
            "started" => ["prepared", "prepared"],
            "stopped" => ["started", "started"],
            "cancelled" => ["prepared", "started"],
            other => panic!("{other}"),
        };
        assert!(may.contains(&before), "{now} after {before}");
        before = now;
    }
    assert!(["stopped", "cancelled"].contains(&before), "{before}");
}

#[test]
fn threads_that_start_and_stop_at_once_are_told_in_order_and_one_at_a_time() {
    const THREADS: usize = 6;
    const ROUNDS: usize = 60;
    let (notes, other) = (Notes::default(), Notes::default());
    let guard = idle(|builder| builder.session_observer(notes.clone()).session_observer(other.clone()));
    let is_telling = AtomicBool::new(false);
    notes.act(guard.profiler(), move |profiler, _| {
        assert!(!is_telling.swap(true, Ordering::SeqCst), "two are told at once");
        profiler.status();
        std::thread::yield_now();
        is_telling.store(false, Ordering::SeqCst);
    });
    let started = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (profiler, started) = (guard.profiler(), &started);
            let play = move || {
                for round in 0..ROUNDS {
                    match (thread + round) % 3 {
                        0 => drop(profiler.prepare()),
                        _ => drop(profiler.start().map(|()| started.fetch_add(1, Ordering::Relaxed))),
                    }
                    drop(profiler.stop());
                }
            };
            std::thread::Builder::new().spawn_scoped(scope, play).unwrap();
        }
    });
    drop(guard);
    let lines = notes.take();
    check_order(&lines);
    assert_eq!(lines.iter().filter(|line| *line == "started").count(), started.load(Ordering::Relaxed));
    assert_eq!(lines, other.take());
}

#[test]
fn a_memory_profile_is_heard_of_beside_recordings() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory.json");
    let notes = Notes::default();
    let guard = idle(|builder| builder.session_observer(notes.clone()));
    let profiler = guard.profiler();
    assert!(profiler.export_memory_profile(&path).is_err() && notes.take().is_empty());
    profiler.start_memory_profile().unwrap();
    memory::record(0x10, 64, 64, 64, Device::CPU);
    assert!(profiler.start_memory_profile().is_err());
    profiler.stop_memory_profile().unwrap();
    profiler.export_memory_profile(&path).unwrap();
    let exported = format!("memory profile in {}", path.display());
    assert_eq!(notes.take(), ["memory profile started", "memory profile stopped", &exported]);
}

#[test]
fn none_hears_of_a_layer_that_is_switched_off() {
    let notes = Notes::default();
    let guard = idle(|builder| builder.mode(Mode::Disabled).session_observer(notes.clone()));
    guard.profiler().start().unwrap();
    drop(guard);
    assert_eq!(notes.take(), Vec::<String>::new());
}
