//! Schedules: what each step starts and stops, the step annotations, and where traces go.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use support::{File, layer, on_thread};
use tracing::info_span;
use tracing_kineto::integration::Collector;
use tracing_kineto::integration::{Capabilities, RecordSink, Recording, Selection, Unavailable};
use tracing_kineto::torch::{Libkineto, TorchOptions};
use tracing_kineto::{
    ActivityType, ActivityTypes, Error, ErrorKind, KinetoGuard, KinetoLayer, KinetoLayerBuilder, LogSink, Profiler,
    ProfilerAction, Schedule, Status, StepState, Timestamp, Trace, tensorboard_trace_handler,
};
use tracing_subscriber::layer::SubscriberExt;

/// Runs `work` under a layer whose schedule has not begun; then drops the guard.
fn with_profiler<R>(
    configure: impl FnOnce(KinetoLayerBuilder) -> KinetoLayerBuilder,
    work: impl FnOnce(&Profiler) -> R,
) -> R {
    let (layer, guard) = layer(|builder| configure(builder.record_from_start(false)));
    let profiler = guard.profiler();
    let done = tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || work(&profiler));
    drop(guard);
    done
}

/// Keeps traces in a list.
#[derive(Clone, Default)]
struct KeptTraces(Arc<Mutex<Vec<Trace>>>);

impl KeptTraces {
    fn keep(&self) -> impl FnMut(Trace) + Send + use<> {
        let kept = self.0.clone();
        move |trace: Trace| kept.lock().unwrap().push(trace)
    }

    fn files(&self) -> Vec<File> {
        self.0.lock().unwrap().iter().cloned().map(File::of).collect()
    }
}

/// Returns a sink and the layer's messages; the process has one sink, so such tests take turns.
fn messages() -> (LogSink, Arc<Mutex<Vec<String>>>, MutexGuard<'static, ()>) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let logged = Arc::new(Mutex::new(Vec::new()));
    let logged_by_sink = logged.clone();
    let sink: LogSink = Arc::new(move |message| logged_by_sink.lock().unwrap().push(message.text.to_string()));
    (sink, logged, turn)
}

#[track_caller]
fn assert_logged(logged: &Mutex<Vec<String>>, text: &str) {
    let logged = logged.lock().unwrap();
    assert!(logged.iter().any(|message| message.contains(text)), "{text:?} is not in {logged:#?}");
}

fn cycles(wait: u64, warmup: u64, active: u64) -> Schedule {
    Schedule::new(wait, warmup, active).unwrap()
}

fn work(step: u64) {
    info_span!("work", step).in_scope(|| ());
}

/// Works and steps `steps` times; returns the outcome of each step as text.
fn run(profiler: &Profiler, steps: u64) -> Vec<String> {
    let step = |_| {
        work(Libkineto::of(profiler).iteration());
        profiler.step().to_string()
    };
    (0..steps).map(step).collect()
}

fn header(trace: &Trace, key: &str) -> Option<String> {
    trace.metadata().into_iter().find(|(known, _)| known == key).map(|(_, value)| value)
}

#[test]
fn each_cycle_has_a_trace_of_its_annotated_steps() {
    let kept = KeptTraces::default();
    with_profiler(
        |b| b.schedule(cycles(1, 1, 2).repeat(2)).on_trace_ready(kept.keep()),
        |profiler| {
            profiler.start().unwrap();
            let outcomes = run(profiler, 9);
            assert_eq!(
                outcomes,
                [
                    "step 1: warming up, 1 more step until one is recorded",
                    "step 2: recording",
                    "step 3: recording the last step of the cycle",
                    "step 4: waiting, 2 more steps until one is recorded; cycle 1 ended",
                    "step 5: warming up, 1 more step until one is recorded",
                    "step 6: recording",
                    "step 7: recording the last step of the cycle",
                    "step 8: nothing: the schedule is over; cycle 2 ended",
                    "step 9: nothing: the schedule is over",
                ]
            );
            assert_eq!((Libkineto::of(profiler).iteration(), profiler.status()), (9, Status::Idle));
            assert_eq!(profiler.stop().unwrap_err().kind(), ErrorKind::NotActive);
        },
    );
    let files = kept.files();
    let trees: Vec<_> = files.iter().map(|file| file.tree(&["step", "finished", "clipped"])).collect();
    assert_eq!(
        trees,
        [
            "main\n  ProfilerStep#2\n    work step=2\n  ProfilerStep#3\n    work step=3\n",
            "main\n  ProfilerStep#6\n    work step=6\n  ProfilerStep#7\n    work step=7\n",
        ]
    );
    assert!(files.iter().all(|file| file.slices().iter().all(|s| (s.cat == "user_annotation") != (s.name == "work"))));
}

#[test]
fn cycles_follow_at_once_when_there_is_no_wait() {
    let kept = KeptTraces::default();
    with_profiler(
        |b| b.schedule(cycles(0, 0, 1)).on_trace_ready(kept.keep()),
        |profiler| {
            profiler.start().unwrap();
            run(profiler, 3);
            profiler.stop().unwrap();
        },
    );
    let parents: Vec<_> = kept.files().iter().map(File::parents).collect();
    let step = |n| format!("ProfilerStep#{n}< work<ProfilerStep#{n}");
    assert_eq!(parents, [step(0), step(1), step(2), "ProfilerStep#3<".to_owned()]);
}

#[test]
fn unfinished_cycle_is_handed_out_when_the_steps_end() {
    let kept = KeptTraces::default();
    with_profiler(
        |b| b.schedule(cycles(0, 1, 3)).on_trace_ready(kept.keep()),
        |profiler| {
            profiler.start().unwrap();
            run(profiler, 2);
            work(2);
        },
    );
    let parents: Vec<_> = kept.files().iter().map(File::parents).collect();
    assert_eq!(parents, ["ProfilerStep#1< work<ProfilerStep#1 ProfilerStep#2< work<ProfilerStep#2"]);
}

#[test]
fn stop_names_the_missing_steps_when_none_was_recorded() {
    let (sink, logged, _turn) = messages();
    for (steps, reason) in [
        (
            0,
            "the schedule ended while it waited, 4 more steps needed; call Profiler::step after each step of the program",
        ),
        (1, "the schedule ended while it waited, 3 more steps needed"),
        (2, "the schedule ended during warm-up, 2 more steps needed"),
        (3, "the schedule ended during warm-up, 1 more step needed"),
    ] {
        let begin = |profiler: &Profiler| {
            profiler.start().unwrap();
            run(profiler, steps);
        };
        let plan = |b: KinetoLayerBuilder| b.schedule(cycles(2, 2, 1)).log_sink(sink.clone());
        let error = with_profiler(plan, |profiler| {
            begin(profiler);
            profiler.stop().unwrap_err()
        });
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::NotActive, reason.to_owned()));
        logged.lock().unwrap().clear();
        with_profiler(plan, begin);
        assert_logged(&logged, &format!("nothing was recorded: {reason}"));
    }
}

#[test]
fn stop_ends_the_schedule_and_start_continues_counting() {
    with_profiler(
        |b| b.schedule(cycles(1, 0, 2)),
        |profiler| {
            assert!(profiler.step().to_string().contains("has not begun"));
            profiler.start().unwrap();
            assert_eq!(profiler.start().unwrap_err().kind(), ErrorKind::AlreadyActive);
            assert_eq!(profiler.schedule(None).unwrap_err().kind(), ErrorKind::AlreadyActive);
            run(profiler, 1);
            assert_eq!(File::of(profiler.stop().unwrap()).parents(), "ProfilerStep#1<");
            assert_eq!(profiler.status(), Status::Idle);
            profiler.start().unwrap();
            assert_eq!(run(profiler, 1), ["step 2: recording the last step of the cycle"]);
            assert_eq!(
                File::of(profiler.stop().unwrap()).parents(),
                "ProfilerStep#1< work<ProfilerStep#1 ProfilerStep#2<"
            );
        },
    );
}

#[test]
fn schedule_may_be_set_and_removed_while_idle() {
    with_profiler(
        |b| b,
        |profiler| {
            profiler.schedule(cycles(0, 1, 1)).unwrap();
            profiler.start().unwrap();
            assert_eq!(profiler.status(), Status::Prepared);
            assert_eq!(run(profiler, 1), ["step 1: recording the last step of the cycle"]);
            profiler.stop().unwrap();
            // `prepare` starts a schedule too.
            Libkineto::of(profiler).prepare().unwrap().start().unwrap();
            assert_eq!(profiler.status(), Status::Recording);
            profiler.stop().unwrap();
            profiler.schedule(None).unwrap();
            profiler.start().unwrap();
            let outcome = profiler.step();
            assert_eq!((outcome.step, outcome.state), (1, StepState::Recording { is_last: false }));
            assert_eq!(File::of(profiler.stop().unwrap()).parents(), "", "no schedule, no annotation");
            assert!(profiler.step().to_string().contains("no recording is running"));
            assert_eq!(Libkineto::of(profiler).iteration(), 3);
        },
    );
}

#[test]
fn automatic_start_is_step_0() {
    let kept = KeptTraces::default();
    let (layer, guard) = layer(|b| b.schedule(cycles(0, 0, 2)).on_trace_ready(kept.keep()));
    assert_eq!(guard.profiler().status(), Status::Recording);
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        // The first step under the installed layer annotates the running recording.
        let profiler = guard.profiler();
        run(&profiler, 3);
        drop(guard);
    });
    let parents: Vec<_> = kept.files().iter().map(File::parents).collect();
    let pair = |a, b| format!("ProfilerStep#{a}< work<ProfilerStep#{a} ProfilerStep#{b}< work<ProfilerStep#{b}");
    assert_eq!(parents, [pair(0, 1), pair(2, 3).replace(" work<ProfilerStep#3", "")]);
}

#[test]
fn each_step_has_one_annotation_when_threads_take_turns() {
    let kept = KeptTraces::default();
    with_profiler(
        |b| b.schedule(cycles(0, 0, 6).repeat(1)).on_trace_ready(kept.keep()),
        |profiler| {
            profiler.start().unwrap();
            on_thread("other", || profiler.step());
            // This thread's list still has step 0, whose span must exist for this one to be made.
            info_span!("between").in_scope(|| ());
            profiler.step();
            info_span!("inside").in_scope(|| ());
            on_thread("third", || run(profiler, 1));
            profiler.step();
            info_span!("last").in_scope(|| ());
            on_thread("fourth", || run(profiler, 2));
            info_span!("after").in_scope(|| ());
        },
    );
    let files = kept.files();
    assert_eq!(files.len(), 1);
    let annotations: Vec<_> = files[0].slices().iter().filter(|slice| slice.cat == "user_annotation").collect();
    let mut names: Vec<_> = annotations.iter().map(|slice| slice.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, (0..6).map(|n| format!("ProfilerStep#{n}")).collect::<Vec<_>>());
    for slice in annotations {
        assert!(slice.args.get("clipped").is_none() && slice.args.get("finished").is_none(), "{slice:?}");
    }
    let mut ends: Vec<_> = (0..6).map(|n| files[0].slice(&format!("ProfilerStep#{n}"))).collect();
    ends.sort_by_key(|slice| slice.start);
    assert!(ends.windows(2).all(|pair| pair[0].end <= pair[1].start), "each ends where the next begins: {ends:#?}");
    assert_eq!(files[0].slice("inside").parent(), files[0].slice("ProfilerStep#2").span());
    assert_eq!(files[0].slice("last").parent(), files[0].slice("ProfilerStep#4").span());
}

#[test]
fn filter_that_hides_annotations_is_named_once() {
    use tracing_subscriber::filter::{LevelFilter, Targets};
    let (sink, logged, _turn) = messages();
    let program = |profiler: &Profiler| {
        profiler.start().unwrap();
        run(profiler, 3);
        File::of(profiler.stop().unwrap())
    };
    let hidden = |logged: &Mutex<Vec<String>>| {
        logged.lock().unwrap().extract_if(.., |text| text.contains("tracing_kineto=info")).collect::<Vec<_>>()
    };
    // Filters in front of all layers.
    for (filter, expected) in [
        (
            Targets::new().with_target("recordings::sessions::schedule", LevelFilter::TRACE),
            "a filter in front of all layers",
        ),
        (Targets::new().with_default(LevelFilter::ERROR), "every layer filters out level INFO"),
    ] {
        let (layer, guard) = layer(|b| b.record_from_start(false).schedule(cycles(0, 0, 9)).log_sink(sink.clone()));
        let registry = tracing_subscriber::registry().with(layer).with(filter);
        let file = tracing::subscriber::with_default(registry, || program(&guard.profiler()));
        assert_eq!(file.slices().iter().filter(|slice| slice.cat == "user_annotation").count(), 0);
        let logged = hidden(&logged);
        // Other tests run at the same time, so the most verbose level may be theirs.
        assert!(logged.len() == 1 && (logged[0].contains(expected) || logged[0].contains("in front of")), "{logged:?}");
    }
    // The layer's own filter.
    let own = Targets::new().with_target("recordings::sessions::schedule", LevelFilter::TRACE);
    let file = with_profiler(|b| b.filter(own).schedule(cycles(0, 0, 9)).log_sink(sink.clone()), program);
    assert_eq!(file.parents(), "work< work< work<");
    let logged = hidden(&logged);
    assert!(logged.len() == 1 && logged[0].contains("KINETO_FILTER"), "{logged:?}");
}

#[test]
fn step_is_refused_when_a_custom_schedule_is_invalid() {
    use ProfilerAction::{DeviceStopped, None as Nothing, Record, RecordAndSave};
    let is_bad = Arc::new(AtomicBool::new(true));
    let bad = is_bad.clone();
    let plan = move |step| match step {
        2 if bad.load(Ordering::Relaxed) => DeviceStopped,
        3 => RecordAndSave,
        4 => Nothing,
        _ => Record,
    };
    with_profiler(
        |b| b.schedule(Schedule::custom(plan)),
        |profiler| {
            profiler.start().unwrap();
            profiler.step();
            let refused = profiler.step();
            assert_eq!(refused.step, 1);
            assert!(matches!(&refused.state, StepState::Nothing { reason } if reason.contains("DeviceStopped")));
            assert_eq!((profiler.status(), Libkineto::of(profiler).iteration()), (Status::Recording, 1));
            work(1);
            is_bad.store(false, Ordering::Relaxed);
            run(profiler, 2);
            let file = File::of(profiler.step().cycle.unwrap().trace);
            // The refused step continued: its work and that of the next try lie in one annotation.
            let steps = file.parents();
            assert_eq!(
                steps,
                "ProfilerStep#0< ProfilerStep#1< work<ProfilerStep#1 work<ProfilerStep#1 ProfilerStep#2< \
                 work<ProfilerStep#2 ProfilerStep#3<"
            );
        },
    );
    let error = KinetoLayer::builder().no_output().schedule(Schedule::custom(|_| DeviceStopped)).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
}

#[test]
fn unsaved_recording_is_in_the_outcome_with_the_reason() {
    let (sink, logged, _turn) = messages();
    use ProfilerAction::{None as Nothing, Record, Warmup};
    let plan = |step| {
        if step == 0 {
            Record
        } else if step == 1 {
            Nothing
        } else if step == 2 {
            Warmup
        } else {
            Nothing
        }
    };
    let kept = KeptTraces::default();
    with_profiler(
        |b| b.schedule(Schedule::custom(plan)).on_trace_ready(kept.keep()).log_sink(sink),
        |profiler| {
            profiler.start().unwrap();
            work(0);
            let outcome = profiler.step();
            let cycle = outcome.cycle.unwrap();
            assert_eq!(File::of(cycle.trace).parents(), "ProfilerStep#0< work<ProfilerStep#0");
            assert!(cycle.error.unwrap().to_string().contains("without RecordAndSave"));
            assert_logged(&logged, "the recording is dropped");
            profiler.step();
            assert!(profiler.step().cycle.is_none());
            assert_logged(&logged, "nothing was recorded: the schedule goes from Warmup");
        },
    );
    assert!(kept.files().is_empty());
}

#[test]
fn next_cycle_is_handed_out_after_a_handler_fails() {
    let (sink, logged, _turn) = messages();
    let mut calls = 0;
    let handler = move |trace: Trace| -> Result<PathBuf, String> {
        calls += 1;
        drop(trace);
        match calls {
            1 => Err("no room".to_owned()),
            2 => std::panic::resume_unwind(Box::new(())),
            _ => Ok("somewhere.json".into()),
        }
    };
    with_profiler(
        |b| b.schedule(cycles(0, 0, 1)).on_trace_ready(handler).log_sink(sink),
        |profiler| {
            profiler.start().unwrap();
            let cycles: Vec<_> = (0..3).map(|_| profiler.step().cycle.unwrap()).collect();
            let texts: Vec<_> = cycles.iter().map(ToString::to_string).collect();
            let errors = [
                "cycle 1 ended: the trace handler failed: no room",
                "cycle 2 ended: the trace handler panicked; fix its code",
            ];
            assert_eq!(texts, [errors[0], errors[1], "cycle 3 ended: saved as somewhere.json"]);
            assert!(cycles[..2].iter().all(|cycle| cycle.error.as_ref().unwrap().kind() == ErrorKind::Handler));
            assert_logged(&logged, "failed: no room");
            assert_logged(&logged, "panicked");
        },
    );
}

#[test]
fn step_inside_a_trace_handler_is_refused() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (profiler, notes) = (Arc::new(Mutex::new(None::<Profiler>)), seen.clone());
    let own = profiler.clone();
    let handler = move |_: Trace| {
        let profiler = own.lock().unwrap().clone().unwrap();
        let step = profiler.step().to_string();
        let refused =
            [profiler.start().unwrap_err(), profiler.stop().unwrap_err(), profiler.schedule(None).unwrap_err()];
        notes.lock().unwrap().push((step, refused.map(|error| error.kind()), profiler.status()));
    };
    with_profiler(
        |b| b.schedule(cycles(1, 0, 1)).on_trace_ready(handler),
        |stepped| {
            *profiler.lock().unwrap() = Some(stepped.clone());
            stepped.start().unwrap();
            run(stepped, 3);
        },
    );
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 2, "the traces of steps 1 and 3");
    for (step, errors, status) in seen.iter() {
        assert!(step.contains("a trace handler cannot step"), "{step}");
        assert_eq!((errors, status), (&[ErrorKind::AlreadyActive; 3], &Status::Idle));
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = entries.collect();
    names.sort_unstable();
    names
}

#[test]
fn each_cycle_has_its_own_file_without_a_handler() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.pt.trace.json");
    with_profiler(
        |b| b.output(&path).schedule(cycles(0, 0, 1)),
        |profiler| {
            profiler.start().unwrap();
            let first = profiler.step();
            assert_eq!(first.cycle.unwrap().path, Some(folder.path().join("app.1.pt.trace.json")));
            // A flush in between writes the running cycle.
            profiler.flush().unwrap();
            assert_eq!(names(folder.path()), ["app.1.pt.trace.json", "app.2.pt.trace.json"]);
            profiler.step();
        },
    );
    assert_eq!(names(folder.path()), ["app.1.pt.trace.json", "app.2.pt.trace.json", "app.3.pt.trace.json"]);
    let single = folder.path().join("single.json");
    let program = |profiler: &Profiler| {
        profiler.start().unwrap();
        run(profiler, 2);
    };
    with_profiler(|b| b.output(&single).schedule(cycles(0, 0, 1).repeat(1)), program);
    assert!(single.exists(), "the only cycle needs no number");
}

#[test]
fn cycles_are_saved_when_the_flush_timeout_is_zero() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("run.json");
    let configure = |builder: KinetoLayerBuilder| {
        builder.output(&output).schedule(cycles(0, 0, 1).repeat(3)).flush_timeout(std::time::Duration::ZERO)
    };
    with_profiler(configure, |profiler| {
        profiler.start().unwrap();
        for step in 0..3 {
            work(step);
            let cycle = profiler.step().cycle.unwrap();
            assert!(cycle.error.is_none() && cycle.path.is_some_and(|path| path.exists()), "{:?}", cycle.error);
        }
    });
}

#[test]
fn tensorboard_folder_is_made_and_filled() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("a/b");
    let handler = tensorboard_trace_handler(&runs).worker_name("worker0").gzip(cfg!(feature = "gzip"));
    let path = with_profiler(
        |b| b.schedule(cycles(0, 0, 1).repeat(2)).on_trace_ready(handler),
        |profiler| {
            profiler.start().unwrap();
            run(profiler, 1);
            profiler.step().cycle.unwrap().path.unwrap()
        },
    );
    let files = names(&runs);
    assert_eq!(files.len(), 2);
    assert!(files.contains(&path.file_name().unwrap().to_str().unwrap().to_owned()));
    let end = if cfg!(feature = "gzip") { ".pt.trace.json.gz" } else { ".pt.trace.json" };
    for file in files {
        // TensorBoard's own pattern: a worker, digits, the end.
        let digits = file.strip_prefix("worker0.").and_then(|name| name.strip_suffix(end)).unwrap();
        assert!(digits.len() >= 19 && digits.bytes().all(|byte| byte.is_ascii_digit()), "{file}");
    }
    // A folder that disappears and cannot be made again is an error of the cycle.
    let lost = folder.path().join("lost");
    let handler = tensorboard_trace_handler(&lost);
    let error = with_profiler(
        |b| b.schedule(cycles(0, 0, 1)).on_trace_ready(handler),
        |profiler| {
            std::fs::remove_dir(&lost).unwrap();
            std::fs::write(&lost, "").unwrap();
            profiler.start().unwrap();
            profiler.step().cycle.unwrap().error.unwrap()
        },
    );
    assert!(error.to_string().contains("cannot make"), "{error}");
}

#[test]
fn trace_ids_come_from_the_program_once_per_recording() {
    let calls = Arc::new(AtomicU64::new(0));
    let count = calls.clone();
    let kept = KeptTraces::default();
    let name = move || format!("cycle {}", count.fetch_add(1, Ordering::Relaxed));
    with_profiler(
        |b| b.schedule(cycles(0, 1, 1)).on_trace_ready(kept.keep()).torch(TorchOptions::new().trace_id_callback(name)),
        |profiler| {
            assert_eq!(Libkineto::of(profiler).trace_id(), None);
            profiler.start().unwrap();
            assert_eq!(Libkineto::of(profiler).trace_id().unwrap(), "cycle 0", "a warm-up already has its id");
            profiler.step();
            assert_eq!(Libkineto::of(profiler).trace_id().unwrap(), "cycle 0");
            run(profiler, 3);
            profiler.stop().unwrap_err();
        },
    );
    let ids: Vec<_> = kept.0.lock().unwrap().iter().map(|trace| header(trace, "trace_id").unwrap()).collect();
    assert_eq!((ids, calls.load(Ordering::Relaxed)), (vec!["\"cycle 0\"".to_owned(), "\"cycle 1\"".to_owned()], 3));
    // Ids in torch's form, also when the callback panics.
    let id = with_profiler(
        |b| b.torch(TorchOptions::new().trace_id_callback(|| std::panic::resume_unwind(Box::new(())))),
        |profiler| {
            profiler.start().unwrap();
            Libkineto::of(profiler).trace_id().unwrap()
        },
    );
    assert!(id.len() == 32 && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'A'..=b'F')), "{id}");
}

#[test]
fn preset_metadata_and_kept_traces_survive_cycles() {
    with_profiler(
        |b| b.schedule(cycles(0, 0, 1)).torch(TorchOptions::new().acc_events(true)),
        |profiler| {
            let libkineto = Libkineto::of(profiler);
            libkineto.preset_metadata("run", "7");
            libkineto.preset_metadata_json("list", "[1, 2]").unwrap();
            assert_eq!(libkineto.preset_metadata_json("bad", "{").unwrap_err().kind(), ErrorKind::Json);
            profiler.start().unwrap();
            run(profiler, 2);
            libkineto.preset_metadata("run", "8");
            run(profiler, 1);
            let traces = libkineto.traces();
            let runs: Vec<_> = traces.iter().map(|trace| header(trace, "run").unwrap()).collect();
            assert_eq!(runs, ["\"7\"", "\"7\"", "\"7\""], "from the next start on");
            assert!(traces.iter().all(|trace| header(trace, "list").unwrap() == "[1,2]"));
            assert_eq!(header(&profiler.stop().unwrap(), "run").unwrap(), "\"8\"");
            assert_eq!(libkineto.traces().len(), 4);
            assert_eq!(File::of(libkineto.traces()[1].clone()).parents(), "ProfilerStep#1< work<ProfilerStep#1");
        },
    );
}

#[test]
fn strict_traces_are_saved_once() {
    let folder = tempfile::tempdir().unwrap();
    let trace = |strict| {
        with_profiler(
            |b| b.torch(TorchOptions::new().strict(strict)),
            |profiler| {
                profiler.start().unwrap();
                profiler.stop().unwrap()
            },
        )
    };
    let strict = trace(true);
    let clone = strict.clone();
    assert_eq!(strict.save(folder.path().join("no/folder.json")).unwrap_err().kind(), ErrorKind::Io);
    strict.save(folder.path().join("a.json")).unwrap();
    assert_eq!(clone.save(folder.path().join("b.json")).unwrap_err().kind(), ErrorKind::AlreadySaved);
    assert_eq!(names(folder.path()), ["a.json"]);
    let lenient = trace(false);
    (0..2).for_each(|_| lenient.save(folder.path().join("c.json")).unwrap());
}

#[test]
fn handler_gets_the_trace_of_a_stop_without_a_schedule() {
    let kept = KeptTraces::default();
    with_profiler(
        |b| b.on_trace_ready(kept.keep()),
        |profiler| {
            for step in 0..2 {
                profiler.start().unwrap();
                work(step);
                profiler.step();
                if step == 0 {
                    profiler.stop().unwrap();
                }
            }
        },
    );
    let parents: Vec<_> = kept.files().iter().map(File::parents).collect();
    assert_eq!(parents, ["work<", "work<"]);
}

#[test]
fn gate_records_only_while_its_span_is_open() {
    let (layer, guard) = layer(|b| b.schedule(cycles(0, 0, 2)));
    let profiler = guard.profiler();
    let while_training = profiler.record_while("train");
    let registry = tracing_subscriber::registry().with(while_training).with(layer);
    tracing::subscriber::with_default(registry, || {
        assert_eq!(profiler.status(), Status::Paused);
        work(0);
        let open = info_span!("train").entered();
        work(1);
        // Another thread enters it too; it stays open until both have exited.
        on_thread("other", || info_span!("train").in_scope(|| work(2)));
        assert_eq!(profiler.status(), Status::Recording);
        // The next cycle starts inside the gate, the following one outside.
        profiler.step();
        let first = File::of(profiler.step().cycle.unwrap().trace);
        work(3);
        drop(open);
        work(4);
        profiler.step();
        let second = File::of(profiler.step().cycle.unwrap().trace);
        assert_eq!(profiler.status(), Status::Paused, "a recording that starts is paused");
        info_span!("train").in_scope(|| work(5));
        let third = File::of(profiler.stop().unwrap());
        let steps = |file: &File| file.all("work").iter().map(|s| s.args["step"].as_u64().unwrap()).collect::<Vec<_>>();
        assert_eq!([&first, &second, &third].map(steps), [vec![1, 2], vec![3], vec![5]]);
        assert_eq!((first.all("train").len(), third.slice("train").args["finished"].as_bool()), (2, Some(false)));
    });
}

#[test]
fn iteration_is_the_largest_count_of_all_requesters() {
    let (_layer, guard): (_, KinetoGuard) = layer(|b| b.record_from_start(false));
    let profiler = guard.profiler();
    let libkineto = Libkineto::of(&profiler);
    assert_eq!((libkineto.iteration(), libkineto.count_iteration("optimizer")), (0, 1));
    profiler.step();
    assert_eq!((libkineto.iteration(), profiler.step().step, libkineto.iteration()), (1, 2, 2));
    assert!(libkineto.forget_iterations("optimizer") && !libkineto.forget_iterations("optimizer"));
    assert_eq!((libkineto.count_iteration("late"), libkineto.count_iteration("late")), (2, 3));
}

/// A collector that can report that it has stopped.
#[derive(Clone, Debug, Default)]
struct FragileCollector(Arc<[AtomicU64; 3]>);

impl FragileCollector {
    /// Returns the number of starts and stops.
    fn calls(&self) -> (u64, u64) {
        (self.0[0].load(Ordering::Relaxed), self.0[1].load(Ordering::Relaxed))
    }

    fn set_broken(&self, breaks: bool) {
        self.0[2].store(breaks.into(), Ordering::Relaxed);
    }
}

impl Collector for FragileCollector {
    fn name(&self) -> &'static str {
        "fragile"
    }
    fn types(&self) -> ActivityTypes {
        ActivityType::ConcurrentKernel.into()
    }
    fn probe(&self) -> Result<Capabilities, Unavailable> {
        let mut can = Capabilities::default();
        (can.types, can.proven) = (self.types(), Some(true));
        Ok(can)
    }
    fn start(&self, _: &Selection, _: RecordSink) -> Result<(Capabilities, Box<dyn Recording>), Unavailable> {
        self.0[0].fetch_add(1, Ordering::Relaxed);
        Ok((self.probe()?, Box::new(self.clone())))
    }
}

impl Recording for FragileCollector {
    fn stop(&self, _: Timestamp, _: Instant) {
        self.0[1].fetch_add(1, Ordering::Relaxed);
    }
    fn stopped(&self) -> Option<String> {
        (self.0[2].load(Ordering::Relaxed) != 0).then(|| "the cable is out".to_owned())
    }
}

#[test]
fn next_cycle_records_after_a_collector_stopped_itself() {
    let (sink, logged, _turn) = messages();
    let (kept, collector) = (KeptTraces::default(), FragileCollector::default());
    let only = ActivityTypes::from(ActivityType::UserAnnotation).with(ActivityType::ConcurrentKernel);
    with_profiler(
        |b| {
            let plan = b.activities(only).collector(collector.clone()).log_sink(sink);
            plan.schedule(cycles(0, 1, 3)).on_trace_ready(kept.keep())
        },
        |profiler| {
            profiler.start().unwrap();
            assert_eq!(collector.calls(), (1, 0), "a warm-up starts it");
            run(profiler, 1);
            collector.set_broken(true);
            let stopped = profiler.step();
            assert_eq!(stopped.state, StepState::DeviceStopped { reason: "fragile: the cable is out".to_owned() });
            assert_eq!(File::of(stopped.cycle.unwrap().trace).parents(), "ProfilerStep#1<");
            assert_eq!(collector.calls(), (1, 1));
            assert_logged(&logged, "a collector has stopped on its own");
            let outcome = profiler.step().to_string();
            assert_eq!(outcome, "step 3: nothing until the next cycle: fragile: the cable is out");
            // At the end of the cycle, a warm-up follows, the collector stops again, and the cycle's trace is empty.
            let warm = profiler.step();
            assert!(matches!(warm.state, StepState::WarmingUp { .. }) && warm.cycle.is_none());
            let report = warm.collectors.iter().find(|report| report.name == "fragile").unwrap();
            assert_eq!(report.state.as_ref().unwrap().proven, Some(true));
            let stopped = profiler.step();
            assert!(matches!(stopped.state, StepState::DeviceStopped { .. }) && stopped.trace().is_some());
            collector.set_broken(false);
            run(profiler, 2);
            assert_eq!(
                run(profiler, 2),
                ["step 8: warming up, 1 more step until one is recorded", "step 9: recording"]
            );
        },
    );
    assert_eq!(collector.calls(), (3, 3));
    let parents: Vec<_> = kept.files().iter().map(File::parents).collect();
    assert_eq!(parents, ["ProfilerStep#1<", "", "ProfilerStep#9<"]);
}

#[test]
fn disabled_profiler_reports_why_it_does_nothing() -> Result<(), Error> {
    // No environment variable requests a trace.
    let (layer, guard) = KinetoLayer::from_env()?;
    assert!(layer.is_none());
    let profiler = guard.profiler();
    let libkineto = Libkineto::of(&profiler);
    assert!(profiler.step().to_string().contains("the profiler is disabled"));
    assert_eq!(profiler.schedule(cycles(0, 0, 1)).unwrap_err().kind(), ErrorKind::NotActive);
    assert_eq!((libkineto.iteration(), libkineto.traces().len(), libkineto.trace_id()), (0, 0, None));
    Ok(())
}

#[test]
fn build_fails_when_the_handlers_folder_cannot_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let build = |folder: &Path| {
        let handler = tensorboard_trace_handler(folder);
        KinetoLayer::builder().schedule(Schedule::default().active(1)).on_trace_ready(handler).build()
    };
    let why = build(&file.join("runs")).unwrap_err().to_string();
    assert!(why.contains("file/runs") && why.contains("name a folder that can be made"), "{why}");
    let why = build(Path::new("/proc/self")).unwrap_err().to_string();
    assert!(why.contains("no file can be created in /proc/self; save elsewhere"), "{why}");
    assert!(build(&folder.path().join("new/runs")).is_ok());
}
