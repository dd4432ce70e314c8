//! Tests of sessions.

use super::*;
use crate::buffer::{Head, Tag};

impl Session {
    /// Returns a session without a layer.
    pub(crate) fn for_tests() -> Arc<Session> {
        Session::with_config(Config::default())
    }

    pub(super) fn with_config(config: Config) -> Arc<Session> {
        Session::with_recorder(Recorder::for_tests(), config)
    }

    /// Returns a session that evicts its oldest records beyond that many bytes.
    pub(super) fn with_limit(bytes_max: u64, config: Config) -> Arc<Session> {
        Session::with_recorder(Recorder::with_limit(bytes_max, true), config)
    }

    fn with_recorder(recorder: Recorder, config: Config) -> Arc<Session> {
        let collectors = CollectorSet::new(vec![], vec![]);
        Session::new(Arc::new(recorder), config, SessionOptions::default(), Sinks::default(), collectors)
    }

    /// Records so many events in a chunk of their own.
    pub(super) fn record_instants(&self, count: u64) {
        let chunk = self.recorder.open_chunk(self.recorder.epoch()).unwrap();
        let writer = chunk.slots();
        for _ in 0..count {
            let words = [crate::clock::now().0, 0, 0];
            writer.put_record(writer.next_slot_id().unwrap(), Head::new(Tag::Instant, 0, 0), words, &[]);
        }
        self.recorder.retire_chunk(chunk);
    }
}

// Shows the key REQUEST_GROUP_TRACE_ID.
#[test]
fn each_recording_has_its_own_trace_id() {
    for mode in [Mode::Kineto, Mode::PrivateUse1] {
        let mut config = Config::default();
        config.mode = mode.into();
        config.group_trace_id = "7".to_owned();
        let session = Session::with_config(config);
        let id = |trace: Trace| trace.metadata().into_iter().find(|(key, _)| key == "trace_id");
        session.start().unwrap();
        let ids = [
            id(session.recording.snapshot().unwrap()),
            id(session.recording.snapshot().unwrap()),
            id(session.stop().unwrap()),
        ];
        assert!(ids[0].is_some() && ids.iter().all(|id| *id == ids[0]), "{ids:?}");
        session.start().unwrap();
        let next = session.stop().unwrap();
        assert!(next.metadata().contains(&("group_trace_id".to_owned(), "\"7\"".to_owned())));
        assert_ne!(id(next), ids[0], "{mode:?}");
    }
}

#[test]
fn impossible_records_are_reported_and_skipped() {
    use crate::buffer::{Head, Tag};
    use crate::time::Ticks;
    let session = Session::for_tests();
    session.start().unwrap();
    let chunk = session.recorder.open_chunk(session.recorder.epoch()).unwrap();
    let writer = chunk.slots();
    let put = |head: Head| writer.put_record(writer.next_slot_id().unwrap(), head, [9, 10, 0], &[]);
    // Without a thread or callsite; of an unknown kind.
    put(Head::new(Tag::Slice, 0, 77));
    put(Head::new(Tag::Span, 0, 77));
    writer.put_slice(writer.next_slot_id().unwrap(), 0xff, Ticks(9), 0);
    let trace = session.stop().unwrap();
    let stats = trace.stats();
    let violations: Vec<_> = stats.violations.iter().map(ToString::to_string).collect();
    assert_eq!(
        violations,
        [
            "committed chunks are readable: partly unreadable: 1 chunk (1x)",
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
        session.recorder.keep_large_payload(&[0; 100]).unwrap();
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
    let session = Session::with_config(config);
    session.start().unwrap();
    assert_eq!(session.requests.start(1, None, Config::default()).unwrap_err().kind(), ErrorKind::AlreadyActive);
    session.stop().unwrap();
    // The preparation was in progress when the start failed.
    session.requests.prepare(1, Config::default()).unwrap();
    assert_eq!(session.recording.status(), Status::Idle);
    session.requests.start(2, None, Config::default()).unwrap();
    assert_eq!(session.output_path(), Some("/no/such/own.json".into()));
    assert_eq!(session.flush().unwrap_err().kind(), ErrorKind::NotActive);
    session.requests.stop(2).unwrap();
}
