//! Tests of sessions.

use super::*;

impl Session {
    /// Returns a session without a layer.
    pub(super) fn for_tests() -> Arc<Session> {
        let recorder = Arc::new(Recorder::for_tests());
        Session::new(recorder, Config::default(), Sinks::default(), CollectorSet::new(vec![], vec![]))
    }
}

#[test]
fn first_chunk_starts_the_thread_and_reads_the_clocks() {
    let session = Session::for_tests();
    session.start().unwrap();
    session.pause(ActivityTypes::ALL).unwrap();
    session.resume(ActivityTypes::ALL).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!((session.recorder.pool().bytes(), session.clock_thread.anchors().len()), (0, 3));
    drop(session.recorder.open_chunk(session.recorder.epoch()));
    assert_eq!(session.clock_thread.anchors().len(), 4);
    // The thread fills the pool.
    while session.recorder.pool().bytes() < 16 * crate::buffer::Chunk::BYTES {
        std::thread::yield_now();
    }
}

#[test]
#[cfg_attr(miri, ignore = "waits for seconds of the real clock")]
fn clocks_are_read_each_second_after_a_pause() {
    let session = Session::for_tests();
    session.start().unwrap();
    drop(session.recorder.open_chunk(session.recorder.epoch()));
    session.pause(ActivityTypes::ALL).unwrap();
    // Long enough for the clock thread to notice that nothing is recorded.
    std::thread::sleep(Duration::from_millis(1200));
    session.resume(ActivityTypes::ALL).unwrap();
    let before = session.clock_thread.anchors().len();
    std::thread::sleep(Duration::from_millis(2500));
    assert!(session.clock_thread.anchors().len() > before, "{before}");
}

#[test]
fn session_is_unreachable_while_its_lock_is_held() {
    let session = Session::for_tests();
    let held = session.lock().unwrap();
    assert!(!session.is_reachable(Instant::now()));
    drop(held);
    assert!(session.is_reachable(Instant::now()));
}

#[test]
fn each_recording_has_its_own_trace_id() {
    for mode in [Mode::Kineto, Mode::PrivateUse1] {
        let mut config = Config::default();
        config.mode = mode.into();
        config.group_trace_id = "7".to_owned();
        let recorder = Arc::new(Recorder::for_tests());
        let session = Session::new(recorder, config, Sinks::default(), CollectorSet::new(vec![], vec![]));
        let id = |trace: Trace| trace.metadata().into_iter().find(|(key, _)| key == "trace_id");
        session.start().unwrap();
        let ids = [id(session.snapshot().unwrap()), id(session.snapshot().unwrap()), id(session.stop().unwrap())];
        assert!(ids[0].is_some() && ids.iter().all(|id| *id == ids[0]), "{ids:?}");
        session.start().unwrap();
        let next = session.stop().unwrap();
        assert!(next.metadata().contains(&("group_trace_id".to_owned(), "\"7\"".to_owned())));
        assert_ne!(id(next), ids[0], "{mode:?}");
    }
}

#[test]
fn impossible_records_are_reported_and_skipped() {
    use crate::buffer::{Head, Tag, Writer};
    use crate::time::Ticks;
    let session = Session::for_tests();
    session.start().unwrap();
    let chunk = session.recorder.open_chunk(session.recorder.epoch()).unwrap();
    let writer = Writer::of(&chunk);
    let put = |head: Head| writer.put(writer.next().unwrap(), head, [9, 10, 0], &[]);
    // Without a thread or callsite; of an unknown kind.
    put(Head::new(Tag::Slice, 0, 77));
    put(Head::new(Tag::Span, 0, 77));
    writer.put_slice(writer.next().unwrap(), 0xff, Ticks(9), 0);
    let trace = session.stop().unwrap();
    let stats = trace.stats();
    let violations: Vec<_> = stats.violations.iter().map(ToString::to_string).collect();
    assert_eq!(
        violations,
        [
            "committed chunks are readable: 1 chunks are partly unreadable (1x)",
            "records belong to known threads and callsites: 4 do not, and are omitted (1x)"
        ]
    );
    assert_eq!(trace.events().len(), 0);
}

#[test]
fn chunks_opened_after_a_stop_return_to_the_budget() {
    let session = Session::for_tests();
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
fn failed_request_is_not_prepared_nor_changes_the_output() {
    let mut config = Config::default();
    config.output = Output::Exact("/no/such/own.json".into());
    let recorder = Arc::new(Recorder::for_tests());
    let session = Session::new(recorder, config, Sinks::default(), CollectorSet::new(vec![], vec![]));
    session.start().unwrap();
    assert_eq!(session.start_for(1, None, Config::default).unwrap_err().kind(), ErrorKind::AlreadyActive);
    session.stop().unwrap();
    // The preparation was in progress when the start failed.
    session.prepare_for(1, Config::default()).unwrap();
    assert_eq!(session.status(), Status::Idle);
    session.start_for(2, None, Config::default).unwrap();
    assert_eq!(session.output(), Some("/no/such/own.json".into()));
    assert_eq!(session.flush().unwrap_err().kind(), ErrorKind::NotActive);
    session.stop_for(2).unwrap();
}
