//! Violated assertions: in the statistics, in the file, and as errors in strict mode.

use serde_json::json;
use std::sync::{Arc, Mutex};
use support::{File, layer};
use tracing::{info_span, subscriber};
use tracing_kineto::analysis::Events;
use tracing_kineto::torch::{Libkineto, TorchOptions};
use tracing_kineto::{ErrorKind, Schedule, StepState, Trace};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry;

#[test]
fn violations_are_in_the_statistics_and_the_file() {
    let (layer, guard) = layer(|b| b);
    let profiler = guard.profiler();
    let libkineto = Libkineto::of(&profiler);
    let name = libkineto.trace_id().unwrap();
    subscriber::with_default(registry().with(layer), || {
        info_span!("op").in_scope(|| ());
        libkineto.log_invariant_violation("ids are unique", "7 twice", "ranks").unwrap();
        libkineto.log_invariant_violation("ids are unique", "7 twice", "ranks").unwrap();
        assert_eq!(profiler.snapshot().unwrap().stats().violations.len(), 1);
        libkineto.log_invariant_violation("ends follow starts", "\"op\"", "").unwrap();
    });
    let file = File::of(profiler.stop().unwrap());
    assert_eq!(libkineto.log_invariant_violation("a", "b", "").unwrap_err().kind(), ErrorKind::NotActive);
    let stats = file.trace.stats();
    let [first, second] = stats.violations.as_slice() else { panic!("{stats}") };
    assert_eq!(
        (&*first.assertion, &*first.error, &*first.group_id, first.count),
        ("ids are unique", "7 twice", "ranks", 2)
    );
    assert_eq!((&first.trace_id, &second.trace_id), (&name, &name));
    assert!(stats.to_string().contains("ends follow starts: \"op\" (1x)"), "{stats}");
    assert_eq!(
        file.json["invariant_violations"][0],
        json!({"assertion": "ids are unique", "error": "7 twice", "trace_id": name, "group_id": "ranks", "count": 2})
    );
    // The next recording starts without them.
    profiler.start().unwrap();
    let next = File::of(profiler.stop().unwrap());
    assert!(next.trace.stats().violations.is_empty() && next.json.get("invariant_violations").is_none());
}

#[test]
fn strict_stop_fails_once_and_keeps_the_recording() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pt.trace.json");
    let (layer, guard) = layer(|b| b.torch(TorchOptions::new().strict(true)));
    let profiler = guard.profiler();
    subscriber::with_default(registry().with(layer), || {
        info_span!("op").in_scope(|| ());
        Libkineto::of(&profiler).log_invariant_violation("a", "b", "").unwrap();
        let snapshot = profiler.snapshot().unwrap();
        let refused = snapshot.save(&path).unwrap_err();
        assert!(refused.kind() == ErrorKind::InvariantViolated && !path.exists(), "{refused}");
        snapshot.save(&path).unwrap();
        assert_eq!(snapshot.save(&path).unwrap_err().kind(), ErrorKind::AlreadySaved);
        std::fs::remove_file(&path).unwrap();
    });
    let refused = guard.finish().unwrap_err();
    assert!(refused.kind() == ErrorKind::InvariantViolated && refused.to_string().contains("a: b"), "{refused}");
    let trace = refused.trace().unwrap();
    trace.save(&path).unwrap();
    let events = Events::read(&path).unwrap();
    assert!(events.len() == 1 && events.metadata().any(|(key, _)| key == "invariant_violations"));
    profiler.start().unwrap();
    assert!(profiler.stop().is_ok(), "this recording has no violation");
}

#[test]
fn strict_step_returns_the_trace_with_the_error() {
    let seen: Arc<Mutex<u64>> = Arc::default();
    let count = seen.clone();
    let (layer, guard) = layer(|b| {
        b.torch(TorchOptions::new().strict(true))
            .schedule(Schedule::new(0, 0, 1).unwrap())
            .on_trace_ready(move |_: Trace| *count.lock().unwrap() += 1)
    });
    let profiler = guard.profiler();
    let libkineto = Libkineto::of(&profiler);
    subscriber::with_default(registry().with(layer), || {
        libkineto.log_invariant_violation("a", "b", "").unwrap();
        let outcome = profiler.step();
        assert!(matches!(outcome.state, StepState::Recording { .. }), "the schedule continues: {outcome}");
        let cycle = outcome.cycle.unwrap();
        assert_eq!(cycle.error.unwrap().kind(), ErrorKind::InvariantViolated);
        assert_eq!((cycle.trace.stats().violations.len(), *seen.lock().unwrap()), (1, 0));
        assert!(profiler.step().cycle.unwrap().error.is_none());
        libkineto.log_invariant_violation("a", "b", "").unwrap();
        assert!(profiler.stop().unwrap_err().trace().is_some());
    });
    assert_eq!(*seen.lock().unwrap(), 1);
}

#[test]
fn dropped_guard_writes_the_trace_despite_violations() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pt.trace.json");
    let (layer, guard) =
        tracing_kineto::KinetoLayer::builder().output(&path).torch(TorchOptions::new().strict(true)).build().unwrap();
    Libkineto::of(&guard.profiler()).log_invariant_violation("a", "b", "").unwrap();
    drop(guard);
    assert!(Events::read(&path).unwrap().metadata().any(|(key, _)| key == "invariant_violations"));
    drop(layer);
}
