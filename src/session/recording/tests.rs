//! Tests of a recording's clocks and its lock.

use crate::session::Session;
use kineto_trace::activity::ActivityTypes;
use std::time::{Duration, Instant};

#[test]
fn first_chunk_starts_the_thread_and_reads_the_clocks() {
    let session = Session::for_tests();
    session.start().unwrap();
    let recording = &session.recording;
    recording.pause(ActivityTypes::ALL).unwrap();
    recording.resume(ActivityTypes::ALL).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!((recording.recorder.pool().bytes(), recording.clock_thread.anchors().len()), (0, 3));
    drop(recording.recorder.open_chunk(recording.recorder.epoch()));
    // The thread adds one each second.
    assert!(recording.clock_thread.anchors().len() >= 4);
    // The thread fills the pool.
    while recording.recorder.pool().bytes() < 16 * crate::buffer::Chunk::BYTES {
        std::thread::yield_now();
    }
}

#[test]
#[cfg_attr(miri, ignore = "waits for seconds of the real clock")]
fn clocks_are_read_each_second_after_a_pause() {
    let session = Session::for_tests();
    session.start().unwrap();
    let recording = &session.recording;
    drop(recording.recorder.open_chunk(recording.recorder.epoch()));
    recording.pause(ActivityTypes::ALL).unwrap();
    // Long enough for the clock thread to notice that nothing is recorded.
    std::thread::sleep(Duration::from_millis(1200));
    recording.resume(ActivityTypes::ALL).unwrap();
    let before = recording.clock_thread.anchors().len();
    let deadline = Instant::now() + Duration::from_secs(60);
    while recording.clock_thread.anchors().len() == before {
        assert!(Instant::now() < deadline, "{before}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn session_is_unreachable_while_its_lock_is_held() {
    let session = Session::for_tests();
    let recording = &session.recording;
    let held = recording.lock_state().unwrap();
    assert!(!recording.is_reachable(Instant::now()));
    drop(held);
    assert!(recording.is_reachable(Instant::now()));
}
