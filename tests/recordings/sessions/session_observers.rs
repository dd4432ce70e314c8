//! Session observers: their callbacks, the order of these, and what a callback may do.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use support::virtual_time;
use support::wait::sleep;
use support::{File, layer};
use tracing_kineto::memory::{self, Device};
use tracing_kineto::torch::{Libkineto, TorchOptions};
use tracing_kineto::{
    DumpTrigger, Dumps, Error, ErrorKind, KinetoGuard, KinetoLayer, KinetoLayerBuilder, LogSink, Mode, Profiler,
    RecordingFlags, Schedule, SessionObserver, Status, Trace,
};
use tracing_subscriber::layer::SubscriberExt;

/// Keeps a line for each callback.
#[derive(Clone, Debug, Default)]
struct SessionLog {
    name: &'static str,
    lines: Arc<Mutex<Vec<String>>>,
    panics_at: &'static str,
    /// The closure that runs in each callback.
    hook: CallbackHook,
}

type HookFn = dyn Fn(&Profiler, &str) + Send + Sync;

#[derive(Clone, Default)]
struct CallbackHook(Arc<OnceLock<(Profiler, Box<HookFn>)>>);

impl std::fmt::Debug for CallbackHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CallbackHook")
    }
}

impl SessionLog {
    fn named(&self, name: &'static str) -> SessionLog {
        SessionLog { name, ..self.clone() }
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock().unwrap())
    }

    fn set_hook(&self, profiler: Profiler, hook: impl Fn(&Profiler, &str) + Send + Sync + 'static) {
        assert!(self.hook.0.set((profiler, Box::new(hook))).is_ok());
    }

    fn record_callback(&self, what: &str) {
        assert!(what != self.panics_at, "on purpose");
        self.lines.lock().unwrap().push(format!("{}{what}", self.name));
        if let Some((profiler, hook)) = self.hook.0.get() {
            hook(profiler, what);
        }
    }
}

impl SessionObserver for SessionLog {
    fn prepared(&self, flags: &RecordingFlags) {
        let RecordingFlags { record_shapes, profile_memory, with_stack, with_flops, with_modules, .. } = *flags;
        let flags = [record_shapes, profile_memory, with_stack, with_flops, with_modules].map(u8::from);
        self.record_callback(&format!("prepared {}", flags.map(|flag| flag.to_string()).concat()));
    }
    fn started(&self) {
        self.record_callback("started");
    }
    fn stopped(&self) {
        self.record_callback("stopped");
    }
    fn cancelled(&self, reason: &str) {
        self.record_callback(&format!("cancelled: {reason}"));
    }
    fn memory_profile_started(&self) {
        self.record_callback("memory profile started");
    }
    fn memory_profile_stopped(&self) {
        self.record_callback("memory profile stopped");
    }
    fn memory_profile_exported(&self, path: &Path) {
        self.record_callback(&format!("memory profile in {}", path.display()));
    }
    fn dump_ended(&self, reason: &str, dump: Result<&Path, &Error>) {
        let dump = dump.map_or_else(|error| format!("{:?}", error.kind()), |path| path.display().to_string());
        self.record_callback(&format!("dump of {reason}: {dump}"));
    }
}

/// Returns the guard of a layer that does not record yet.
fn idle(configure: impl FnOnce(KinetoLayerBuilder) -> KinetoLayerBuilder) -> KinetoGuard {
    layer(|builder| configure(builder.record_from_start(false))).1
}

const WHOLE: [&str; 3] = ["prepared 00000", "started", "stopped"];

#[virtual_time]
fn callbacks_follow_prepare_start_stop_and_cancel() {
    let notes = SessionLog::default();
    let guard = idle(|builder| builder.session_observer(notes.clone()));
    let profiler = guard.profiler();
    let libkineto = Libkineto::of(&profiler);
    profiler.start().unwrap();
    assert_eq!(notes.take(), WHOLE[..2]);
    // A refused call has no callback.
    assert_eq!(profiler.start().unwrap_err().kind(), ErrorKind::AlreadyActive);
    assert_eq!(libkineto.prepare().unwrap_err().kind(), ErrorKind::AlreadyActive);
    profiler.pause().unwrap();
    profiler.snapshot().unwrap();
    assert_eq!(notes.take(), Vec::<String>::new());
    profiler.stop().unwrap();
    assert_eq!(profiler.stop().unwrap_err().kind(), ErrorKind::NotActive);
    assert_eq!(notes.take(), WHOLE[2..]);
    drop(libkineto.prepare().unwrap());
    assert_eq!(notes.take(), ["prepared 00000", "cancelled: the program dropped its preparation"]);
    let prepared = libkineto.prepare().unwrap();
    assert_eq!(notes.take(), WHOLE[..1]);
    prepared.start().unwrap();
    drop(guard);
    assert_eq!(notes.take(), WHOLE[1..]);
}

// Shows the keys CLIENT_INTERFACE_ENABLE_OP_INPUTS_COLLECTION, PROFILE_REPORT_INPUT_SHAPES, PROFILE_WITH_FLOPS.
#[virtual_time]
fn prepared_flags_match_torchs_keys_in_the_header() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libkineto.conf");
    let flags_with = |builder: &dyn Fn(KinetoLayerBuilder) -> KinetoLayerBuilder, file: &str| {
        std::fs::write(&path, file).unwrap();
        let notes = SessionLog::default();
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
        assert_eq!(flags_with(&|builder| builder, &format!("{key}=true\n")), flags, "{key}");
        assert_eq!(flags_with(&|builder| builder, &format!("{key}=false\n")), "00000", "{key}");
    }
    assert_eq!(flags_with(&|builder| builder.torch(TorchOptions::new().record_shapes(true)), ""), "10000");
    assert_eq!(
        flags_with(&|builder| builder.torch(TorchOptions::new().record_shapes(false)), "PROFILE_REPORT_INPUT_SHAPES=1"),
        "00000"
    );
    // As in torch, FLOPs need shapes.
    let flops = TorchOptions::new().with_flops(true).with_modules(true);
    assert_eq!(flags_with(&|builder| builder.torch(flops.clone()).with_memory(true), ""), "11011");
}

#[virtual_time]
fn observers_are_called_in_the_order_they_were_added() {
    let first = SessionLog::default().named("1 ");
    let second = first.named("2 ");
    let guard = idle(|builder| builder.session_observer(first.clone()).session_observer(second));
    guard.profiler().start().unwrap();
    drop(guard);
    let expected = WHOLE.map(|what| [format!("1 {what}"), format!("2 {what}")]).concat();
    assert_eq!(first.take(), expected);
}

#[virtual_time]
fn observer_that_panics_is_disabled_and_others_are_not() {
    let logged = Arc::new(Mutex::new(Vec::new()));
    let logged_by_sink = logged.clone();
    let sink: LogSink = Arc::new(move |message| logged_by_sink.lock().unwrap().push(message.text.to_string()));
    let (broken, whole) = (SessionLog { panics_at: "started", ..SessionLog::default() }, SessionLog::default());
    let guard = idle(|b| b.log_sink(sink).session_observer(broken.clone()).session_observer(whole.clone()));
    for _ in 0..2 {
        guard.profiler().start().unwrap();
        guard.profiler().stop().unwrap();
    }
    assert_eq!(broken.take(), WHOLE[..1]);
    assert_eq!(whole.take(), [WHOLE, WHOLE].concat());
    let logged = logged.lock().unwrap();
    let about: Vec<_> = logged.iter().filter(|text| text.contains("session observer")).collect();
    let [text] = about.as_slice() else { panic!("{logged:?}") };
    assert!(
        text.ends_with("SessionLog: it panicked in `started`: on purpose; it is disabled now; fix its code"),
        "{text}"
    );
}

#[virtual_time]
fn callbacks_follow_each_cycle_of_a_schedule() {
    let (notes, schedule) = (SessionLog::default(), |warmup| Schedule::new(1, warmup, 1).unwrap());
    let guard = idle(|builder| builder.schedule(schedule(1)).session_observer(notes.clone()));
    let profiler = guard.profiler();
    profiler.start().unwrap();
    let lines_at_call: Vec<_> = (0..6).map(|_| (profiler.step(), notes.take().join(" ")).1).collect();
    assert_eq!(lines_at_call, ["prepared 00000", "started", "stopped", "prepared 00000", "started", "stopped"]);
    profiler.step();
    // The schedule ends during the warm-up.
    assert_eq!(profiler.stop().unwrap_err().kind(), ErrorKind::NotActive);
    assert_eq!(notes.take(), WHOLE);
    // Without a warm-up, and with a handler that reads the log: callbacks run when the step is done.
    let lines_at_call = Arc::new(Mutex::new(Vec::new()));
    let (keep, lines) = (lines_at_call.clone(), notes.lines.clone());
    let handler = move |_: Trace| keep.lock().unwrap().push(lines.lock().unwrap().join(" "));
    let guard = idle(|b| b.schedule(schedule(0)).on_trace_ready(handler).session_observer(notes.clone()));
    guard.profiler().start().unwrap();
    (0..2).for_each(|_| drop(guard.profiler().step()));
    assert_eq!(
        (lines_at_call.lock().unwrap().join(","), notes.take().join(" ")),
        (WHOLE[..2].join(" "), WHOLE.join(" "))
    );
}

#[virtual_time]
fn callback_may_stop_the_recording_that_started() {
    let first = SessionLog::default().named("1 ");
    let last = SessionLog { hook: CallbackHook::default(), ..first.named("2 ") };
    let guard = idle(|builder| builder.session_observer(first.clone()).session_observer(last));
    first.set_hook(guard.profiler(), |profiler, what| match what {
        "started" => assert_eq!((profiler.status(), profiler.stop().is_ok()), (Status::Recording, true)),
        "stopped" => assert_eq!(profiler.status(), Status::Idle),
        _ => assert_eq!(profiler.start().unwrap_err().kind(), ErrorKind::AlreadyActive),
    });
    guard.profiler().start().unwrap();
    let expected = WHOLE.map(|what| [format!("1 {what}"), format!("2 {what}")]).concat();
    assert_eq!((first.take(), guard.profiler().status()), (expected, Status::Idle));
}

#[virtual_time]
fn callback_may_step_and_start_recordings() {
    let (notes, starts) = (SessionLog::default(), Arc::new(AtomicUsize::new(0)));
    let guard = idle(|builder| builder.session_observer(notes.clone()));
    let counted = starts.clone();
    notes.set_hook(guard.profiler(), move |profiler, what| {
        profiler.step();
        if what == "stopped" && counted.fetch_add(1, Ordering::Relaxed) < 3 {
            profiler.start().unwrap();
            profiler.stop().unwrap();
        }
    });
    guard.profiler().start().unwrap();
    guard.profiler().stop().unwrap();
    assert_eq!(notes.take(), [WHOLE; 4].concat());
    assert_eq!((starts.load(Ordering::Relaxed), Libkineto::of(&guard.profiler()).iteration()), (4, 12));
}

/// Checks that each callback may follow the one before.
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

#[virtual_time]
fn callbacks_are_ordered_when_threads_start_and_stop() {
    const THREADS: usize = 6;
    const ROUNDS: usize = 60;
    let (notes, other) = (SessionLog::default(), SessionLog::default());
    let guard = idle(|builder| builder.session_observer(notes.clone()).session_observer(other.clone()));
    let is_in_callback = AtomicBool::new(false);
    notes.set_hook(guard.profiler(), move |profiler, _| {
        assert!(!is_in_callback.swap(true, Ordering::SeqCst), "two callbacks run at once");
        profiler.status();
        std::thread::yield_now();
        is_in_callback.store(false, Ordering::SeqCst);
    });
    let started = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (profiler, started) = (guard.profiler(), &started);
            let play = move || {
                for round in 0..ROUNDS {
                    match (thread + round) % 3 {
                        0 => drop(Libkineto::of(&profiler).prepare()),
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

#[virtual_time]
fn memory_profile_has_its_own_callbacks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory.json");
    let notes = SessionLog::default();
    let guard = idle(|builder| builder.session_observer(notes.clone()));
    let profiler = guard.profiler();
    let libkineto = Libkineto::of(&profiler);
    assert!(libkineto.export_memory_profile(&path).is_err() && notes.take().is_empty());
    libkineto.start_memory_profile().unwrap();
    memory::record(0x10, 64, 64, 64, Device::CPU);
    assert!(libkineto.start_memory_profile().is_err());
    libkineto.stop_memory_profile().unwrap();
    libkineto.export_memory_profile(&path).unwrap();
    let exported = format!("memory profile in {}", path.display());
    assert_eq!(notes.take(), ["memory profile started", "memory profile stopped", &exported]);
}

#[virtual_time]
fn disabled_layer_calls_no_session_observer() {
    let notes = SessionLog::default();
    let guard = idle(|builder| builder.mode(Mode::Disabled).session_observer(notes.clone()));
    guard.profiler().start().unwrap();
    drop(guard);
    assert_eq!(notes.take(), Vec::<String>::new());
}

#[virtual_time]
fn observer_receives_dumps_of_triggers_and_of_the_program() {
    let (notes, folder) = (SessionLog::default(), tempfile::tempdir().unwrap());
    let output = folder.path().join("app.json");
    let trigger = DumpTrigger::slow_span("request", Duration::from_millis(1));
    let builder = KinetoLayer::builder().output(&output).dumps(Dumps::on([trigger])).session_observer(notes.clone());
    let (layer, guard) = builder.build().unwrap();
    let called_with = |start: &str| loop {
        let lines = notes.take();
        if let Some(line) = lines.iter().find_map(|line| line.strip_prefix(start)) {
            return line.to_owned();
        }
        sleep(Duration::from_millis(1));
    };
    let profiler = guard.profiler();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        tracing::info_span!("request").in_scope(|| sleep(Duration::from_millis(5)));
        let by_call = profiler.dump("by call").unwrap().wait().unwrap();
        assert_eq!(called_with("dump of by call: "), by_call.to_str().unwrap());
    });
    drop(guard.finish().unwrap());
    let triggered = called_with("dump of span request took ");
    let path = triggered.split_once(", longer than 1ms: ").unwrap().1;
    assert!(path.ends_with("_slow-span-request.json") && Path::new(path).exists(), "{path}");
}

#[virtual_time]
fn observer_receives_why_a_dump_failed() {
    let (notes, folder) = (SessionLog::default(), tempfile::tempdir().unwrap());
    let gone = folder.path().join("gone");
    std::fs::create_dir(&gone).unwrap();
    let builder = KinetoLayer::builder().output(gone.join("app.json")).session_observer(notes.clone());
    let (layer, guard) = builder.build().unwrap();
    std::fs::remove_dir(&gone).unwrap();
    guard.profiler().dump("no folder").unwrap().wait().unwrap_err();
    let expected = "dump of no folder: Io".to_owned();
    while !notes.lines.lock().unwrap().contains(&expected) {
        sleep(Duration::from_millis(1));
    }
    drop((layer, guard.finish()));
}
