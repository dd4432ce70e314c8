//! Tests of moving records to disk.

use super::*;
use crate::config::{Config, Overflow};

/// Returns a session that moves records to a folder, and has a live file if there is a folder for it.
fn spilling_session(folder: &Path, shm_folder: Option<&Path>) -> Arc<Session> {
    let mut config = Config::default();
    config.overflow = Overflow::Spill;
    (config.spill_folder, config.shm_folder) = (Some(folder.to_owned()), shm_folder.map(Path::to_owned));
    let session = Session::with_limit(64 << 20, config);
    session.start().unwrap();
    session
}

/// Moves what was recorded until now to disk; returns the segment, unless nothing was recorded.
fn write_part(session: &Arc<Session>) -> Option<SegmentFile> {
    let recording = session.spill.current().unwrap();
    let written = recording.write_segment(&Arc::downgrade(session), PartEnd::StepOrNow, false).unwrap();
    recording.lock().segments.extend(written.clone());
    written
}

#[test]
fn split_replaces_the_size_of_segments() {
    let sizes = |limit| {
        let splits = [None, Some(Split::Steps(1)), Some(Split::Bytes(64 << 20)), Some(Split::Bytes(1 << 20))];
        splits.map(|split| part_bytes(split, limit) >> 20)
    };
    assert_eq!(sizes(64 << 20), [16, 16, 16, 1]);
    assert_eq!(sizes(512 << 20), [32, 128, 64, 1]);
}

#[test]
fn part_taken_after_the_rest_has_another_number() {
    let folder = tempfile::tempdir().unwrap();
    let session = spilling_session(folder.path(), None);
    session.record_instants(3);
    let recording = session.spill.current().unwrap();
    let rest = session.recording.snapshot().unwrap();
    assert!(recording.leave_on_disk(&session, Some(rest), None));
    let segment = write_part(&session).unwrap();
    let left = recording.lock().segments.clone();
    let events = |left: &SegmentFile| Trace::read_segment(&left.path).unwrap().trace.stats().events;
    assert_eq!((left.len(), left.iter().map(events).collect::<Vec<_>>()), (2, vec![3, 3]));
    assert_eq!(left.iter().position(|left| left.path == segment.path), Some(1));
    assert_ne!(left[0].path, segment.path);
    session.stop().unwrap();
}

#[cfg(all(target_os = "linux", not(miri)))]
mod live_file {
    use super::*;
    use crate::live::{JournalKind, LiveFile};
    use crate::trace::Window;
    use kineto_model::activity::ActivityTypes;

    fn count_entries(live: &LiveFile, kind: JournalKind) -> usize {
        test_base::read_entries(live.path()).keys().filter(|(of, _)| *of == kind as u32).count()
    }

    #[test]
    fn trace_removes_its_file_while_a_thread_has_it() {
        let shm_folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut config = Config::default();
        config.shm_folder = Some(shm_folder.path().to_owned());
        let session = Session::with_limit(1 << 20, config);
        session.start().unwrap();
        let live = session.recorder.live().current().unwrap();
        let trace = session.stop().unwrap();
        assert!(live.path().exists());
        drop(trace);
        assert!(!live.path().exists());
    }

    #[test]
    fn losses_of_empty_parts_leave_the_journal() {
        let (folder, shm_folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
        let session = spilling_session(folder.path(), Some(shm_folder.path()));
        let live = session.recorder.live().current().unwrap();
        for _ in 0..10 {
            assert!(write_part(&session).is_none());
        }
        assert_eq!(count_entries(&live, JournalKind::PartLosses), 0);
        session.stop().unwrap();
    }

    #[test]
    fn windows_are_dropped_with_their_part() {
        const PAUSES: usize = 50;
        let (folder, shm_folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
        let session = spilling_session(folder.path(), Some(shm_folder.path()));
        let live = session.recorder.live().current().unwrap();
        let windows = |trace: &Trace| trace.contents().recorded.windows.clone();
        for round in 0..4 {
            for _ in 0..PAUSES {
                session.record_instants(1);
                session.recording.pause(ActivityTypes::ALL).unwrap();
                session.recording.resume(ActivityTypes::ALL).unwrap();
            }
            let segment = Trace::read_segment(write_part(&session).unwrap().path).unwrap().trace;
            assert_eq!(segment.stats().events, PAUSES as u64);
            // Those of the part, the open one, and the last one of the part before.
            let expected = PAUSES + 1 + usize::from(round > 0);
            assert_eq!(windows(&segment).len(), expected, "part {round}");
            // The first one, the last one, and the open one.
            assert_eq!(count_entries(&live, JournalKind::Window), 3, "part {round}");
        }
        session.record_instants(1);
        assert!(!session.recording.snapshot().unwrap().contents().recorded.is_without_pause());
        let before_pause = session.recording.snapshot().unwrap().contents().recorded.whole;
        session.recording.pause(ActivityTypes::ALL).unwrap();
        let rest = session.stop().unwrap();
        let (all, whole) = (windows(&rest), rest.contents().recorded.whole);
        assert!(all.is_sorted_by_key(|window: &Window| window.epoch) && whole.1 >= before_pause.1);
        assert_eq!((all.len(), whole.0, rest.stats().events), (2, before_pause.0, 1));
        assert_eq!(rest.stats().losses, []);
    }

    /// Otherwise records would be counted as evicted that the file has.
    #[test]
    #[cfg_attr(miri, ignore = "starts a process")]
    fn kept_live_file_takes_no_count_of_what_is_evicted() {
        let check = |is_kept: bool| {
            let shm = tempfile::tempdir_in("/dev/shm").unwrap();
            let mut config = Config::default();
            (config.overflow, config.shm_folder) = (Overflow::KeepNewest, Some(shm.path().to_owned()));
            let session = Session::with_limit(64 << 20, config);
            session.start().unwrap();
            session.record_instants(10);
            let live = session.recorder.live().current().unwrap();
            let snapshot = session.recording.snapshot().unwrap();
            // Only the snapshot holds the chunk then.
            session.recorder.evict_until(clock::now(), &session.recording.collectors);
            assert!(!is_kept || live.keep());
            let noted = || test_base::read_entries(live.path());
            let before = noted();
            drop(snapshot);
            session.recorder.used_epochs();
            before == noted()
        };
        let check = || assert_eq!([false, true].map(check), [false, true], "the journal is unchanged");
        test_base::virtual_time(|clock| clock.run(check));
    }
}

/// Returns a session in which each step ends a part.
fn splitting_session(folder: &Path) -> Arc<Session> {
    let mut config = Config::default();
    (config.overflow, config.split) = (Overflow::Spill, Some(Split::Steps(1)));
    config.spill_folder = Some(folder.to_owned());
    let session = Session::with_limit(64 << 20, config);
    session.start().unwrap();
    session
}

#[test]
fn joined_parts_end_with_the_last_step() {
    let folder = tempfile::tempdir().unwrap();
    let session = splitting_session(folder.path());
    // Its thread takes no part meanwhile.
    let recording = session.spill.current().unwrap();
    recording.lock().is_writing = true;
    for _ in 0..3 {
        session.record_instants(2);
        session.spill.end_step(&session.recorder);
    }
    session.record_instants(1);
    session.spill.join_cuts();
    session.spill.take_cuts(&session);
    let parts: Vec<_> =
        recording.lock().unwritten.iter().map(|(number, part)| (*number, part.stats().events)).collect();
    assert_eq!((parts, session.stop().unwrap().stats().events), (vec![(1, 6)], 1));
}

#[test]
fn dump_is_whole_if_a_part_is_taken_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let session = splitting_session(folder.path());
    session.record_instants(10);
    let first = session.recording.mark().unwrap();
    let is_taken = first.trace.lock().unwrap();
    session.spill.end_step(&session.recorder);
    let second = std::thread::scope(|scope| {
        scope.spawn(|| session.spill.take_cuts(&session));
        // The thread that takes the part knows the first mark, and waits for its snapshot.
        while Arc::strong_count(&first) < 3 {
            std::thread::yield_now();
        }
        let second = session.recording.mark().unwrap();
        drop(is_taken);
        second
    });
    let events = [first, second].map(|mark| session.recording.take_snapshot(&mark).unwrap().stats().events);
    assert_eq!((events, session.stop().unwrap().stats().events), ([10; 2], 0));
}
