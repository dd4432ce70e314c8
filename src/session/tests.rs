//! Tests of `mod.rs`.

use super::*;

fn session() -> Arc<Session> {
    Session::new(
        Arc::new(Recorder::for_tests()),
        Config::default(),
        Sinks::default(),
        CollectorSet::new(vec![], vec![]),
    )
}

#[test]
fn the_thread_starts_with_the_first_chunk_and_the_clocks_are_read_then() {
    let session = session();
    session.start().unwrap();
    session.pause(ActivityTypes::ALL).unwrap();
    session.resume(ActivityTypes::ALL).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!((session.recorder.pool().bytes(), session.pulse.anchors().len()), (0, 3));
    drop(session.recorder.open_chunk(session.recorder.epoch()));
    assert_eq!(session.pulse.anchors().len(), 4);
    // The thread has the pool filled.
    while session.recorder.pool().bytes() < 16 * crate::buffer::Chunk::BYTES {
        std::thread::yield_now();
    }
}

#[test]
#[cfg_attr(miri, ignore = "waits for seconds of the real clock")]
fn the_clocks_are_read_each_second_after_a_pause_too() {
    let session = session();
    session.start().unwrap();
    drop(session.recorder.open_chunk(session.recorder.epoch()));
    session.pause(ActivityTypes::ALL).unwrap();
    // Long enough for the session's thread to find that nothing is recorded.
    std::thread::sleep(Duration::from_millis(1200));
    session.resume(ActivityTypes::ALL).unwrap();
    let before = session.pulse.anchors().len();
    std::thread::sleep(Duration::from_millis(2500));
    assert!(session.pulse.anchors().len() > before, "{before}");
}

#[test]
fn who_holds_the_state_for_ever_is_not_waited_for_for_ever() {
    let mut config = Config::default();
    config.flush_timeout = Duration::from_millis(1);
    let recorder = Arc::new(Recorder::for_tests());
    let session = Session::new(recorder, config, Sinks::default(), CollectorSet::new(vec![], vec![]));
    let held = session.lock().unwrap();
    assert!(!session.is_reachable());
    drop(held);
    assert!(session.is_reachable());
}

#[test]
fn a_recording_has_one_name_of_its_own() {
    for mode in [Mode::Kineto, Mode::PrivateUse1] {
        let mut config = Config::default();
        config.mode = mode.into();
        config.group_trace_id = "7".to_owned();
        let recorder = Arc::new(Recorder::for_tests());
        let session = Session::new(recorder, config, Sinks::default(), CollectorSet::new(vec![], vec![]));
        let id = |trace: Trace| trace.metadata().into_iter().find(|(key, _)| key == "trace_id");
        session.start().unwrap();
        let looks = [id(session.look().unwrap()), id(session.look().unwrap()), id(session.stop().unwrap())];
        assert!(looks[0].is_some() && looks.iter().all(|look| *look == looks[0]), "{looks:?}");
        session.start().unwrap();
        let next = session.stop().unwrap();
        assert!(next.metadata().contains(&("group_trace_id".to_owned(), "\"7\"".to_owned())));
        assert_ne!(id(next), looks[0], "{mode:?}");
    }
}

#[test]
fn records_that_cannot_be_are_told_and_left_out() {
    use crate::buffer::{Head, Tag, Writer};
    use crate::time::Ticks;
    let session = session();
    session.start().unwrap();
    let chunk = session.recorder.open_chunk(session.recorder.epoch()).unwrap();
    let writer = Writer::of(&chunk);
    let put = |head: Head| writer.put(writer.next().unwrap(), head, [9, 10, 0], &[]);
    // On no thread and of no callsite; of no kind.
    put(Head::new(Tag::Slice, 0, 77));
    put(Head::new(Tag::Span, 0, 77));
    writer.put_slice(writer.next().unwrap(), 0xff, Ticks(9), 0);
    let trace = session.stop().unwrap();
    let stats = trace.stats();
    let told: Vec<_> = stats.violations.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "what threads have committed can be read: 1 chunks are read in part (1x)",
            "records are of known threads and callsites: 4 are not, and are left out (1x)"
        ]
    );
    assert_eq!(trace.events().len(), 0);
}

#[test]
fn what_threads_open_after_a_stop_goes_back_into_the_budget() {
    let session = session();
    for _ in 0..40 {
        session.start().unwrap();
        let epoch = session.recorder.epoch();
        drop(session.stop().unwrap());
        drop(session.recorder.open_chunk(epoch));
        session.recorder.keep_block(&[0; 100]).unwrap();
    }
    session.start().unwrap();
    drop(session.stop().unwrap());
    let ready = 16 * crate::buffer::Chunk::BYTES;
    assert!(session.recorder.pool().bytes() <= ready, "{}", session.recorder.pool().bytes());
}

#[test]
fn a_request_that_has_failed_is_not_prepared_and_the_output_is_the_programs() {
    let mut config = Config::default();
    config.output = Output::Exact("/no/such/own.json".into());
    let recorder = Arc::new(Recorder::for_tests());
    let session = Session::new(recorder, config, Sinks::default(), CollectorSet::new(vec![], vec![]));
    session.start().unwrap();
    assert_eq!(session.start_for(1, None, Config::default).unwrap_err().kind(), ErrorKind::AlreadyActive);
    session.stop().unwrap();
    // It was under way while the start failed.
    session.prepare_for(1, Config::default()).unwrap();
    assert_eq!(session.status(), Status::Idle);
    session.start_for(2, None, Config::default).unwrap();
    assert_eq!(session.output(), Some("/no/such/own.json".into()));
    assert_eq!(session.flush().unwrap_err().kind(), ErrorKind::NotActive);
    session.stop_for(2).unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "waits for the real clock")]
fn a_recording_between_two_times_has_what_lies_between_them() {
    use tracing_subscriber::prelude::*;
    let builder = crate::KinetoLayer::builder().no_output().record_from_start(false).events(tracing::Level::INFO);
    let (layer, guard) = builder.build().unwrap();
    let session = guard.profiler().session().unwrap().clone();
    let now = || {
        // So that no clock's error tells otherwise.
        std::thread::sleep(Duration::from_millis(2));
        let now = SystemTime::now();
        std::thread::sleep(Duration::from_millis(2));
        now
    };
    let (from, until) = tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        session.start().unwrap();
        tracing::info_span!("before").in_scope(|| tracing::info!("an event before"));
        let around = tracing::info_span!("around", field = 7).entered();
        let ends_inside = tracing::info_span!("ends inside").entered();
        let from = now();
        drop(ends_inside);
        tracing::info_span!("inside").in_scope(|| tracing::info!("an event inside"));
        let ends_behind = tracing::info_span!("ends behind").entered();
        let until = now();
        drop(ends_behind);
        tracing::info_span!("behind").in_scope(|| tracing::info!("an event behind"));
        drop(around);
        (from, until)
    });
    session.lock().unwrap().between = Some((from, until));
    for trace in [session.look().unwrap(), session.stop().unwrap()] {
        let mut rows = Vec::new();
        trace.for_each(|row| {
            let mut args = Vec::new();
            row.args.visit(&mut |key, value| args.push(format!("{key}={value:?}")));
            let said = |key: &str| args.iter().any(|arg| arg.starts_with(key));
            rows.push((row.name.to_owned(), said("field"), said("clipped"), said("finished")));
        });
        let row = |name: &str, field, is_clipped, is_unfinished| (name.to_owned(), field, is_clipped, is_unfinished);
        let mut expected = vec![
            row("around", true, true, true),
            row("ends inside", false, true, false),
            row("inside", false, false, false),
            row("an event inside", false, false, false),
            row("ends behind", false, false, true),
        ];
        expected.sort();
        rows.sort();
        assert_eq!(rows, expected);
        let window = trace.window();
        let nanoseconds = |time: SystemTime| Timestamp::from(time).as_nanos();
        assert!(window.0.as_nanos().abs_diff(nanoseconds(from)) <= 1, "{window:?} {from:?}");
        assert!(window.1.as_nanos().abs_diff(nanoseconds(until)) <= 1, "{window:?} {until:?}");
        let stats = trace.stats();
        let losses: Vec<_> = stats.losses.iter().map(|(loss, count)| (loss.as_str(), *count)).collect();
        assert_eq!((stats.slices, stats.events), (4, 1));
        assert_eq!(losses, [("clipped_slices", 2), ("unfinished_slices", 2)]);
    }
    // One that has begun later is what it is.
    session.start_between(Some((from, until))).unwrap();
    std::thread::sleep(Duration::from_millis(5));
    let (start, end) = session.stop().unwrap().window();
    assert!(start > until.into() && end.since(start) >= 5_000_000, "{start:?} {end:?}");
    drop(guard);
}
