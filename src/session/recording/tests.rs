//! Tests of a recording's clocks and its lock.

use crate::buffer::{Chunk, CommittedRecord, Head, Loss, Tag, flag};
use crate::clock::Anchor;
use crate::config::Config;
use crate::recorder::{LaneRow, RecordedBuffers, RecordedPart, Recorder, TakenChunk};
use crate::session::Session;
use crate::time::{Ticks, Timestamp};
use crate::trace::{DeviceRecords, Recorded, Trace, Window};
use crate::wait::sleep;
use kineto_devices::trial::unbounded_sink;
use kineto_devices::{Capabilities, Collection, DeviceWork, RecordLayout, RecordView};
use kineto_model::activity::{ActivityType, ActivityTypes, ArgValue, Body};
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, Instant};
use test_base::{poll_until, virtual_time};

#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn first_chunk_starts_the_thread_and_reads_the_clocks() {
    virtual_time(|clock| clock.run(open_the_first_chunk));
}

fn open_the_first_chunk() {
    let session = Session::for_tests();
    session.start().unwrap();
    let recording = &session.recording;
    recording.pause(ActivityTypes::ALL).unwrap();
    recording.resume(ActivityTypes::ALL).unwrap();
    sleep(Duration::from_secs(5));
    assert_eq!((recording.recorder.pool().bytes(), recording.clock_thread.anchors().len()), (0, 3));
    drop(recording.recorder.open_chunk(recording.recorder.epoch()));
    // The thread adds one each second.
    assert!(recording.clock_thread.anchors().len() >= 4);
    // The thread fills the pool.
    poll_until(|| recording.recorder.pool().bytes() >= 16 * Chunk::BYTES);
}

#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn clocks_are_read_each_second_after_a_pause() {
    virtual_time(|clock| clock.run(read_clocks_after_a_pause));
}

fn read_clocks_after_a_pause() {
    let session = Session::for_tests();
    session.start().unwrap();
    let recording = &session.recording;
    drop(recording.recorder.open_chunk(recording.recorder.epoch()));
    recording.pause(ActivityTypes::ALL).unwrap();
    // Long enough for the clock thread to notice that nothing is recorded.
    sleep(Duration::from_millis(1200));
    recording.resume(ActivityTypes::ALL).unwrap();
    let before = recording.clock_thread.anchors().len();
    sleep(Duration::from_millis(3500));
    assert_eq!(recording.clock_thread.anchors().len(), before + 3);
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

/// A recording of ten seconds in which CLOCK_REALTIME was set by so many seconds after 5.5 s: a thread with slices, and a
/// device with a kernel each half second. Its collector paused from the fourth second to the sixth if `pauses`.
fn recording_over_a_step(set_by: i64, pauses: bool) -> Trace {
    const SECOND: u64 = 1_000_000_000;
    let seconds = |seconds: u64| Ticks(seconds * SECOND);
    let unix_of = |at: u64| {
        let set_by = if at > 11 * SECOND / 2 { set_by * 1_000_000_000 } else { 0 };
        ((1 << 60) + at).saturating_add_signed(set_by)
    };
    let read = |at: u64| {
        let (ticks, unix) = (Ticks(at + 1), Timestamp::from_nanos(unix_of(at)));
        Anchor { counter: ticks, monotonic: ticks, unix, error_ticks: 30 }
    };
    let sink = unbounded_sink();
    sink.discard_early_records();
    sink.record(|batch| {
        let (kind, name) = (ActivityType::ConcurrentKernel, batch.name("kernel"));
        for start in (0..20).map(|half| unix_of(half * SECOND / 2 + SECOND / 10)) {
            batch.work(&DeviceWork::new(kind, name, (0, 7), (start, start + 1000), &NoLayout));
        }
    });
    let all = (Ticks(1), seconds(10));
    let collection = Collection {
        name: "test".into(),
        state: Ok(Capabilities::default()),
        records: sink.collect_records(true),
        clock: Default::default(),
        since: Timestamp::from_nanos(unix_of(0) - SECOND),
        latest: Timestamp::from_nanos(unix_of(10 * SECOND) + SECOND),
        windows: if pauses { vec![(all.0, seconds(4)), (seconds(6), all.1)] } else { vec![all] },
        uncut_window: None,
    };
    let chunk = Chunk::new().unwrap();
    chunk.open(1 << 20, 1);
    let write = |at, tag, words| CommittedRecord::write_head(chunk.slots(), at, Head::new(tag, flag::FIRST, 0), words);
    write(1, Tag::Lane, [1, 0, 0]);
    // One over the step, and a short one each half second.
    let short = (0..20).map(|half| half * SECOND / 2 + 50_000_000).map(|start| (start, start + 300_000_000));
    let mut slices: Vec<_> = short.chain([(9 * SECOND / 2, 8 * SECOND - 100_000_000)]).collect();
    slices.sort_unstable();
    for (at, (start, end)) in (2..).zip(&slices) {
        write(at, Tag::Slice, [*start, *end, 0]);
    }
    chunk.slots().commit_below((1 << 20) + 2 + slices.len() as u64);
    let part = RecordedPart::Chunk(TakenChunk { chunk, committed_len: 2 + slices.len(), new_from: None });
    let lane = LaneRow { number: 1, thread: 5, name: "T".into(), handle: 0, since: all.0, until: None };
    let taken = RecordedBuffers { parts: vec![part], lanes: vec![lane], ..RecordedBuffers::default() };
    let window = Window::new(1, all.0, all.1);
    let mut recorded = Recorded::new(taken, vec![window], all, &Arc::new(Recorder::for_tests()), false);
    recorded.add_unknown_site();
    let converter = super::build_converter((0..=10).map(|at| read(at * SECOND)).collect(), read(0), None);
    let info = super::trace_info(&Arc::new(Config::default()), String::new());
    Trace::new(recorded, DeviceRecords::new(vec![collection]), Vec::new(), converter, Arc::default(), info)
}

#[derive(Debug)]
struct NoLayout;

impl RecordLayout for NoLayout {
    fn visit(&self, _: &RecordView<'_>, _: &mut dyn FnMut(&str, ArgValue<'_>)) {}
}

#[test]
fn step_of_the_clock_loses_no_record() {
    const YEAR: i64 = 31_536_000;
    for (set_by, pauses) in [0, -1, -2, -5, -60, -YEAR, 2, 60].into_iter().flat_map(|by| [(by, false), (by, true)]) {
        let trace = recording_over_a_step(set_by, pauses);
        let stats = trace.stats();
        let count = |of| stats.losses.iter().find(|(loss, _)| *loss == of).map_or(0, |(_, count)| *count);
        let (shown, outside) = (stats.device_activities, count(Loss::OutOfWindow));
        assert_eq!((shown + outside, count(Loss::ImpossibleTimes)), (20, 0), "{set_by} {stats}");
        match (pauses, set_by) {
            (false, _) => assert_eq!(outside, 0, "{set_by}"),
            // The time of the pause was shown before or after it.
            (true, -5..0) => assert!(outside < 4, "{set_by}"),
            (true, _) => assert_eq!(outside, 4, "{set_by}"),
        }
        assert_eq!((stats.slices, stats.duration), (21, Duration::from_nanos(9_999_999_999)));
        let mut slices = Vec::new();
        trace.for_each(|activity| {
            let Body::Slice { start, end } = activity.body else { return };
            let ((from, until), duration) = (trace.window(), end.since(start));
            let is_known = match activity.kind {
                ActivityType::CpuOp => [300_000_000, 3_400_000_000].contains(&duration),
                _ => duration == 1000,
            };
            assert!(is_known && from <= start && start <= until, "{set_by} {activity:?}");
            slices.push((format!("{:?}", activity.track), start, Reverse(end)));
        });
        slices.sort_unstable();
        assert_eq!(slices.len() as u64, 21 + stats.device_activities);
        // Readers drop slices of a row that overlap without nesting.
        for (at, (row, start, Reverse(end))) in slices.iter().enumerate() {
            let mut later = slices[at + 1..].iter().take_while(|(of, begin, _)| of == row && begin < end);
            assert!(later.all(|(_, _, Reverse(other))| other <= end), "{set_by} {row} {start:?}");
        }
    }
}
