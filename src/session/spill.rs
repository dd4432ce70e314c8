//! Moves the oldest records to disk while the recording continues, and writes them as traces at its end.
//!
//! When enough records are complete, a thread takes them out of memory as a trace and writes that as a
//! [segment](crate::Segment). Meanwhile threads record into the rest of the memory. If the disk fails, the part that could not
//! be written stays in memory, and the rest of the memory keeps the newest records, which are counted where they replace
//! others. Writing is tried again, less and less often.
//!
//! A part also ends with a step of the program, if that is wanted. The thread that steps only notes the time. The thread that
//! takes the next part takes what was recorded until then. The clock is read while the list of these times is locked, so that
//! no part contains a time that is noted later.

mod parts;

use super::dumps::with_process_and_time;
use super::part_counts::PartCounts;
use super::recording::live::{forget_part_losses, link_live_file};
use super::writes::ActiveWrite;
use super::{Session, deadline_after};
use crate::clock;
use crate::config::Split;
use crate::diag::diag;
use crate::error::{Error, ErrorKind};
use crate::handler::part_path;
use crate::os::descriptor::CheckedDescriptor;
use crate::os::file_limit::FileLimitGuard;
use crate::os::{disk, file_lock, fork};
use crate::recorder::Recorder;
use crate::segment::folder::LOCK;
use crate::text::count_with_noun;
use crate::time::Ticks;
use crate::trace::Trace;
use crate::wait::{since, sleep, steady, wall};
use crate::write::file::stem_and_end;
use crate::write::sink::Sinks;
use kineto_devices::CollectorSet;
use parts::{SegmentFile, report_lost};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// Moves the records of a session's recordings to disk, if that is configured.
#[derive(Debug, Default)]
pub(crate) struct SpillControl {
    /// When a part ends; without it, parts end after [`SEGMENT_TIME`].
    split: Option<Split>,
    /// The recording whose records are moved; `None` for those of requests.
    current: fork::Own<Option<Arc<SpilledRecording>>>,
    /// Recordings that have ended, whose parts are still to be taken.
    ended: fork::Own<Vec<Arc<SpilledRecording>>>,
}

/// The parts of a recording that are not in the session's memory any more.
#[derive(Debug, Default)]
pub(crate) struct SpilledRecording {
    state: Mutex<SpillState>,
    /// Locked while a part is taken, so that parts are numbered in their order. The session's state is locked after it, and
    /// [`state`](Self::state) last.
    taking: Mutex<()>,
}

#[derive(Debug, Default)]
struct SpillState {
    folder: Option<SegmentFolder>,
    /// Oldest first.
    segments: Vec<SegmentFile>,
    /// The highest number of a part.
    count: u32,
    /// The parts that could not be written, with their numbers, oldest first.
    unwritten: VecDeque<(u32, Trace)>,
    /// The number of steps that have ended.
    steps: u64,
    /// The ends of steps with which a part ends that was not taken yet, oldest first.
    cuts: VecDeque<Ticks>,
    /// Whether a thread is writing a segment.
    is_writing: bool,
    /// Whether the recording has ended, so that no further segment begins.
    is_closed: bool,
    /// Whether the parts that could not be written were taken, so that a later one is lost.
    is_left: bool,
    /// When the last segment was begun.
    begun: Option<Instant>,
    /// When to try again, and how long that wait is.
    retry: Option<(Instant, Duration)>,
}

/// Where the next part may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartEnd {
    /// Only with a step; another thread may take that part first.
    Step,
    /// With the first step that ends a part, else now.
    StepOrNow,
}

/// A part that was taken out of memory.
enum TakenPart {
    /// The number and the records of the part.
    Records(u32, Trace),
    /// Nothing began or ended in the time of the part, until then, so it gets no number and no file.
    Empty(Ticks),
    /// Another thread has taken the part that ended with a step.
    TakenBefore,
    /// The recording has ended; its records are in its last trace.
    RecordingEnded,
}

/// The folder of a recording's segments.
#[derive(Debug)]
struct SegmentFolder {
    path: PathBuf,
    /// Locked until the segments are written as traces, so that others know that this process will do it.
    _lock: CheckedDescriptor<File>,
}

/// Without a split, a segment is written when so many bytes are complete; in any case at that part of the limit.
const SEGMENT_BYTES: u64 = 32 << 20;
const PART_FOR_SEGMENT: u64 = 4;
/// Or after that time, so that a crash does not lose more.
const SEGMENT_TIME: Duration = Duration::from_secs(60);
/// While the disk takes no parts, the oldest beyond that number are joined.
const CUTS_MAX: usize = 64;
/// How long to wait at least, and at most, until a segment is due by time.
const SHORTEST_WAIT: Duration = Duration::from_millis(10);
const LONGEST_WAIT: Duration = Duration::from_secs(1);
const AT_DEADLINE: &str = "the time limit of the exit has passed; raise FLUSH_TIMEOUT_MSECS";
/// How long a part waits to drop the windows of its time.
const DROP_WAIT: Duration = Duration::from_secs(1);
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);

impl SpillControl {
    /// Creates the control of a session whose parts end as `split` says.
    pub(super) fn new(split: Option<Split>) -> SpillControl {
        SpillControl { split, ..SpillControl::default() }
    }

    /// Begins a recording, whose records are moved if `moves`.
    pub(super) fn begin_recording(&self, moves: bool) {
        *self.current.lock() = moves.then(Arc::default);
    }

    /// Returns the recording whose records are moved.
    pub(super) fn current(&self) -> Option<Arc<SpilledRecording>> {
        self.current.lock().clone()
    }

    /// Ends the recording: no further segment begins.
    pub(super) fn end_recording(&self) {
        let ended = self.current.lock().take();
        if let Some(recording) = &ended {
            let mut state = recording.lock();
            state.is_closed = true;
            state.cuts.clear();
        }
        self.ended.lock().extend(ended);
    }

    /// Returns the recording that has ended last, if a part of it was moved. Waits for the segment that is being written, at
    /// most until `deadline`. The segments of earlier recordings are left on disk.
    pub(crate) fn take_ended(&self, session: &Session, deadline: Instant) -> Option<Arc<SpilledRecording>> {
        self.take_last(session)?.when_written(deadline)
    }

    /// Returns the recording that has ended last. The segments of earlier recordings are left on disk.
    pub(crate) fn take_last(&self, session: &Session) -> Option<Arc<SpilledRecording>> {
        let mut ended = std::mem::take(&mut *self.ended.lock());
        let last = ended.pop();
        for recording in ended {
            recording.leave_on_disk(session, None, None);
        }
        last
    }

    /// Leaves the parts of recordings that have ended on disk, unless [`write_parts`](Session::write_parts) has taken them.
    ///
    /// Writes the parts that are in memory. If there are any, it also writes the `rest` of the last recording.
    pub(crate) fn leave_ended(&self, session: &Session, rest: Option<Trace>) {
        let parts = self.take_ended(session, session.settings.exit_deadline(steady()));
        let Some(parts) = parts else { return };
        parts.leave_on_disk(session, rest.filter(|rest| session.has_content(rest)), None);
    }

    /// Ends a step of the program now, and a part with it if that is wanted. Waits for no disk; the clock has advanced afterwards.
    pub(super) fn end_step(&self, recorder: &Recorder) {
        let Some(Split::Steps(steps)) = self.split else { return };
        if self.current().is_some_and(|recording| recording.end_step(steps)) {
            recorder.pool().wake_helper();
        }
    }

    /// Takes the parts that have ended with steps out of memory, because the recording is about to end.
    pub(super) fn take_cuts(&self, session: &Session) {
        let Some(recording) = self.current() else { return };
        while recording.has_cuts() {
            match recording.take_part(session, PartEnd::Step, false) {
                TakenPart::Records(number, trace) => recording.lock().unwritten.push_back((number, trace)),
                TakenPart::Empty(_) | TakenPart::TakenBefore => {}
                TakenPart::RecordingEnded => recording.lock().cuts.clear(),
            }
        }
    }

    /// Joins the parts that have ended with steps and were not taken.
    pub(super) fn join_cuts(&self) {
        if let Some(recording) = self.current() {
            let cuts = &mut recording.lock().cuts;
            *cuts = cuts.pop_back().into_iter().collect();
        }
    }

    /// Returns after what time a part ends; `None` if time does not end parts.
    fn interval(&self) -> Option<Duration> {
        match self.split {
            None => Some(SEGMENT_TIME),
            Some(Split::Time(time)) => Some(time),
            Some(Split::Bytes(_) | Split::Steps(_)) => None,
        }
    }
}

impl SpillState {
    /// Returns the number of a part that is about to be taken: no other part gets it meanwhile.
    fn reserve_number(&mut self) -> u32 {
        self.count += 1;
        self.count
    }

    /// Returns the end of the part that is taken now, and whether that is a step. Steps that end later have a later time, since they
    /// need the state too.
    fn end_part(&mut self) -> (Ticks, bool) {
        let cut = self.cuts.pop_front();
        (cut.unwrap_or_else(clock::now), cut.is_some())
    }

    /// Lets the next part have that number, unless a later one is reserved.
    fn release_number(&mut self, number: u32) {
        if self.count == number {
            self.count -= 1;
        }
    }
}

impl SpilledRecording {
    fn lock(&self) -> MutexGuard<'_, SpillState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when the next segment may be due.
    fn next_due_time(&self, interval: Option<Duration>) -> Instant {
        let state = self.lock();
        let left = match (state.retry, interval) {
            // The end of the write wakes the thread.
            _ if state.is_writing => LONGEST_WAIT,
            (Some((at, _)), _) => at.saturating_duration_since(steady()),
            (None, Some(interval)) => interval.saturating_sub(state.begun.map_or(Duration::ZERO, since)),
            (None, None) => LONGEST_WAIT,
        };
        steady() + left.clamp(SHORTEST_WAIT, LONGEST_WAIT)
    }

    /// Ends a step; returns whether a part ends with it, since `split` steps are complete.
    fn end_step(&self, split: u64) -> bool {
        let mut state = self.lock();
        state.steps += 1;
        let is_cut = state.steps.is_multiple_of(split) && !state.is_closed;
        if is_cut {
            if state.cuts.len() == CUTS_MAX {
                state.cuts.pop_front();
            }
            let end = clock::now();
            state.cuts.push_back(end);
            // What this thread records next is in the next part.
            while clock::now() <= end {
                std::hint::spin_loop();
            }
        }
        is_cut
    }

    fn has_cuts(&self) -> bool {
        !self.lock().cuts.is_empty()
    }

    /// Returns where the next part may end if a segment is due, and notes that it is being written.
    fn begin_if_due(&self, is_enough: bool, interval: Option<Duration>) -> Option<PartEnd> {
        let mut state = self.lock();
        let begun = *state.begun.get_or_insert_with(steady);
        let is_late = |interval| state.retry.is_some() || since(begun) >= interval;
        let ends_now = is_enough || interval.is_some_and(is_late);
        let is_due = match state.retry {
            Some((at, _)) => steady() >= at,
            None => ends_now || !state.cuts.is_empty(),
        };
        let begins = is_due && !state.is_writing && !state.is_closed;
        if begins {
            (state.is_writing, state.begun) = (true, Some(steady()));
        }
        begins.then_some(if ends_now { PartEnd::StepOrNow } else { PartEnd::Step })
    }

    /// Takes the records out of memory, or the part that could not be written before, and writes them. Returns the segment;
    /// `None` if there is nothing to write.
    fn write_segment(
        self: &Arc<Self>,
        session: &Weak<Session>,
        end: PartEnd,
        is_enough: bool,
    ) -> Result<Option<SegmentFile>, String> {
        // The session keeps its recordings as long as its guard or a profiler lives.
        let Some(session) = session.upgrade() else { return Ok(None) };
        let unwritten = self.lock().unwritten.pop_front();
        let part = unwritten.map(|(number, trace)| TakenPart::Records(number, trace));
        let part = part.unwrap_or_else(|| self.take_part(&session, end, is_enough));
        let (number, trace) = match part {
            TakenPart::Records(number, trace) => (number, trace),
            TakenPart::Empty(until) => {
                session.drop_windows(until, DROP_WAIT);
                return Ok(None);
            }
            TakenPart::TakenBefore | TakenPart::RecordingEnded => return Ok(None),
        };
        let until = trace.contents().recorded.whole.1;
        let written = self.folder(&session, &trace).and_then(|folder| write_segment_file(&trace, &folder, number));
        if let Err(why) = &written {
            let mut state = self.lock();
            if state.is_left {
                drop(state);
                report_lost(number, &trace, why);
            } else {
                state.unwritten.push_front((number, trace));
            }
        } else {
            // Its chunks are free then.
            drop(trace);
            session.drop_windows(until, DROP_WAIT);
        }
        written.map(Some)
    }

    /// Takes the records of the recording out of memory, unless it has ended: until `end`. If `is_enough`, there are some until now.
    fn take_part(self: &Arc<Self>, session: &Session, end: PartEnd, is_enough: bool) -> TakenPart {
        let _taking = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        if end == PartEnd::Step && !self.has_cuts() {
            return TakenPart::TakenBefore;
        }
        let is_current = || session.spill.current().is_some_and(|current| Arc::ptr_eq(&current, self));
        let mut is_cut = false;
        let end = || {
            let (end, is_step) = self.lock().end_part();
            is_cut = is_step;
            end
        };
        let number = self.lock().reserve_number();
        let locked = session.recording.lock_to_move_part();
        let taken = locked.and_then(|(mut state, _scope)| session.recording.take_segment(&mut state, is_current, end));
        let Some(trace) = taken else {
            self.lock().release_number(number);
            return TakenPart::RecordingEnded;
        };
        if (is_cut || !is_enough) && !trace.has_new_records() {
            forget_part_losses(&trace);
            self.lock().release_number(number);
            return TakenPart::Empty(trace.contents().recorded.whole.1);
        }
        TakenPart::Records(number, trace)
    }

    /// Notes how writing has ended: with that segment, without records, or because of an error.
    fn end_write(&self, written: Result<Option<SegmentFile>, String>) {
        let mut state = self.lock();
        state.is_writing = false;
        match written {
            Ok(segment) => {
                state.segments.extend(segment);
                if state.retry.take().is_some() {
                    drop(state);
                    diag!(Stage, "spill", "records are moved to disk again");
                }
            }
            // The end of the recording tries again.
            Err(_) if state.is_closed => {}
            Err(why) => {
                let wait = state.retry.map_or(FIRST_RETRY, |(_, wait)| (wait * 2).min(LAST_RETRY));
                let is_news = state.retry.replace((deadline_after(wait), wait)).is_none();
                drop(state);
                if is_news {
                    diag!(
                        Error,
                        "spill",
                        "records are not moved to disk for now: {why}; until it succeeds, the newest are kept in memory, and \
                         those that they replace are counted"
                    );
                }
            }
        }
    }

    /// Returns the folder of the segments, after creating it for that part.
    fn folder(&self, session: &Session, part: &Trace) -> Result<PathBuf, String> {
        let known = self.lock().folder.as_ref().map(|folder| folder.path.clone());
        if let Some(known) = known.filter(|path| path.exists()) {
            return Ok(known);
        }
        let path = session.segment_folder()?;
        let failed = |error: io::Error| format!("cannot create {}: {error}; set SPILL_DIR to a folder", path.display());
        let _limit = FileLimitGuard::new();
        create_private_folder(&path).map_err(failed)?;
        let lock = private_file(&path.join(LOCK)).and_then(|mut lock| {
            // Without file locks, other processes cannot see it.
            let _ = file_lock::try_lock(&lock);
            writeln!(lock, "{}", std::process::id()).map(|()| lock)
        });
        if let Some(live) = &part.contents().recorded.shared_live() {
            link_live_file(live, &path);
        }
        let lock = lock.map_err(|error| {
            let _ = fs::remove_dir_all(&path);
            failed(error)
        })?;
        let before =
            self.lock().folder.replace(SegmentFolder { path: path.clone(), _lock: CheckedDescriptor::new(lock) });
        drop(before);
        Ok(path)
    }

    /// Waits for the segment that is being written, at most until `deadline`; returns the recording if a part of it was moved.
    pub(crate) fn when_written(self: Arc<Self>, deadline: Instant) -> Option<Arc<SpilledRecording>> {
        const INTERVAL: Duration = Duration::from_millis(1);
        while self.lock().is_writing && steady() < deadline {
            sleep(INTERVAL);
        }
        let has_parts = !self.lock().has_no_parts();
        has_parts.then_some(self)
    }

    /// Writes a part as a segment, unless `deadline` is over; returns whether it is on disk. If not, the live file keeps its records.
    fn leave_part(&self, session: &Session, number: u32, trace: &Trace, deadline: Option<Instant>) -> bool {
        let is_late = deadline.is_some_and(|deadline| steady() >= deadline);
        let folder = if is_late { Err(AT_DEADLINE.to_owned()) } else { self.folder(session, trace) };
        match folder.and_then(|folder| write_segment_file(trace, &folder, number)) {
            Ok(segment) => {
                trace.settle_live_file(true);
                self.lock().segments.push(segment);
                true
            }
            Err(why) => {
                report_lost(number, trace, &why);
                false
            }
        }
    }

    /// Leaves the segments on disk, and reports them. Writes the parts that are in memory, and the rest of the recording; those
    /// that are not begun before `deadline` are lost. Returns whether all are on disk.
    pub(crate) fn leave_on_disk(&self, session: &Session, rest: Option<Trace>, deadline: Option<Instant>) -> bool {
        let (unwritten, rest) = {
            let mut state = self.lock();
            state.is_left = true;
            (std::mem::take(&mut state.unwritten), rest.map(|rest| (state.reserve_number(), rest)))
        };
        let mut has_all = true;
        for (number, trace) in unwritten.into_iter().chain(rest) {
            has_all &= self.leave_part(session, number, &trace, deadline);
        }
        self.report_gone();
        let state = self.lock();
        let is_writing = state.is_writing;
        let count = state.segments.len() as u64 + u64::from(is_writing);
        if let (Some(folder), 1..) = (&state.folder, count) {
            let parts = count_with_noun(count, "earlier part");
            let path = folder.path.display().to_string();
            drop(state);
            diag!(Stage, "spill", "{parts} of the recording: run `kineto repair {path}`");
        }
        has_all && !is_writing
    }
}

impl Session {
    /// Starts a thread that writes a segment, if one is due. Returns when the next one may be; `None` if no records are moved.
    pub(super) fn spill_if_due(self: &Arc<Self>, collectors: &CollectorSet) -> Option<Instant> {
        let (recording, interval) = (self.spill.current()?, self.spill.interval());
        let complete = self.recorder.retired_bytes() + collectors.full_bytes();
        let is_enough = complete >= part_bytes(self.spill.split, self.recorder.pool().bytes_max());
        if let Some(end) = recording.begin_if_due(is_enough, interval) {
            let (session, writing, ending) = (Arc::downgrade(self), recording.clone(), recording.clone());
            let of_session = session.clone();
            let work = move |_: &ActiveWrite| {
                let written = writing.write_segment(&of_session, end, is_enough);
                written.map_err(|why| Error::new(ErrorKind::Io, why))
            };
            let note_end = move |_: &ActiveWrite, segment: Result<_, Error>| {
                ending.end_write(segment.map_err(|error| error.to_string()));
                // Another one may be due.
                if let Some(session) = &session.upgrade() {
                    session.recorder.pool().wake_helper();
                }
            };
            let started = self.writes.register_background().start("a segment".into(), work, note_end);
            if let Err(unstarted) = started {
                recording.end_write(Err(unstarted.into_error().to_string()));
            }
        }
        Some(recording.next_due_time(interval))
    }

    /// Writes a recording with parts that were moved to disk: each to a file of its own, `app.part0001.json`, `app.part0002.json` …
    ///
    /// What is only in memory comes first: the parts that could not be written, then the rest. A segment is removed when its file is
    /// whole, or as large as wanted. One that cannot be read is left; when a file cannot be written, so are all further ones. What
    /// has no file of its own is left as a segment.
    pub(crate) fn write_parts(
        &self,
        parts: &SpilledRecording,
        rest: Option<Trace>,
        output: Option<&Path>,
    ) -> Result<(), Error> {
        let rest = rest.filter(|rest| self.has_content(rest));
        let Some(output) = output else {
            parts.leave_on_disk(self, rest, None);
            return Ok(());
        };
        let write = |trace: &Trace, number: u32| {
            let path = part_path(output, number.into());
            self.writes.write_in_time(trace.clone(), path, self.settings.patience())?;
            Ok::<_, Error>(trace.progress().file_cut().is_none_or(|cut| cut.is_at_size_limit()))
        };
        let (count, mut unwritten, segments) = {
            let mut state = parts.lock();
            state.is_left = true;
            (state.count, std::mem::take(&mut state.unwritten), std::mem::take(&mut state.segments))
        };
        let write_or_report = |trace: &Trace, number| {
            write(trace, number).unwrap_or_else(|error| {
                diag!(Error, "spill", "{error}");
                false
            })
        };
        let mut can_write = true;
        unwritten.retain(|(number, trace)| {
            can_write = can_write && write_or_report(trace, *number);
            !can_write
        });
        // Before the rest is written, after which the live file is removed unless it is kept.
        let is_writing = parts.lock().is_writing;
        rest.iter().filter(|_| is_writing).for_each(|rest| _ = rest.contents().recorded.keep_live_file());
        for (number, trace) in unwritten {
            parts.leave_part(self, number, &trace, None);
        }
        let written = rest.as_ref().map_or(Ok(true), |rest| write(rest, count + 1));
        let rest = rest.filter(|_| written.is_err());
        let mut left = Vec::new();
        for segment in segments {
            let folder = segment.path.parent().unwrap_or(Path::new(""));
            let read = || Trace::read_segment_in(folder, &segment.path);
            let is_written = match (can_write && segment.path.exists()).then(read) {
                Some(Ok(read)) => {
                    can_write = write_or_report(&read.trace, read.number);
                    can_write
                }
                Some(Err(error)) => {
                    let SegmentFile { number, counts, .. } = &segment;
                    diag!(Error, "spill", "part {number} of the recording has no trace, {counts}: {error}");
                    false
                }
                None => false,
            };
            if is_written {
                // One that cannot be removed is only a second copy.
                let _ = fs::remove_file(&segment.path);
            } else {
                left.push(segment);
            }
        }
        parts.lock().segments.splice(..0, left);
        parts.report_gone();
        let folder = {
            let mut state = parts.lock();
            let is_over = state.has_no_parts() && can_write && rest.is_none();
            state.folder.take_if(|_| is_over).map(|folder| folder.path)
        };
        if let Some(path) = folder {
            let _ = fs::remove_dir_all(path);
        } else {
            parts.leave_on_disk(self, rest, None);
        }
        written.map(drop)
    }

    /// Leaves parts as segments when the process ends, with the rest of the recording if no file takes that. Returns whether all are
    /// on disk; if not, the live file is kept.
    pub(super) fn leave_parts_at_exit(&self, parts: &SpilledRecording, deadline: Instant) -> bool {
        let takes_rest = self.output_path().is_some() && self.why_unwritten_at_end().is_none();
        let take = || (!takes_rest).then(|| self.recording.snapshot().ok()).flatten();
        let (rest, live) = self.recording.with_live_file(take);
        let has_all = parts.leave_on_disk(self, rest.filter(|rest| self.has_content(rest)), Some(deadline));
        live.iter().filter(|_| !has_all).for_each(|live| _ = live.keep());
        has_all
    }

    /// Returns whether the last part of a recording gets a file: also if slices only continue, because there is no next part.
    pub(super) fn has_content(&self, rest: &Trace) -> bool {
        self.why_empty(rest).is_none() || rest.has_new_records()
    }

    /// Returns the folder for the segments of a recording: in the configured one, or next to the output.
    fn segment_folder(&self) -> Result<PathBuf, String> {
        let output = self.dump_output().ok();
        let folder = self.settings.first_config().spill_folder.clone();
        let folder = folder.or_else(|| Some(Sinks::file_path(output.as_ref()?)?.parent()?.to_owned()));
        let stem =
            output.as_deref().and_then(Path::file_name).map_or(OsStr::new("kineto"), |name| stem_and_end(name).0);
        let since = wall().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut name = with_process_and_time(stem, std::process::id(), since);
        name.push(".segments");
        folder
            .map(|folder| folder.join(name))
            .ok_or_else(|| "there is no folder for segments; set SPILL_DIR".to_owned())
    }
}

/// Returns the size at which a part ends in any case, for the limit of the recording's memory.
pub(crate) fn part_bytes_max(limit: u64) -> u64 {
    limit / PART_FOR_SEGMENT
}

/// Returns the size at which a part ends.
fn part_bytes(split: Option<Split>, limit: u64) -> u64 {
    let most = part_bytes_max(limit);
    match split {
        None => most.min(SEGMENT_BYTES),
        Some(Split::Bytes(bytes)) => most.min(bytes),
        Some(Split::Time(_) | Split::Steps(_)) => most,
    }
}

/// Writes a segment.
fn write_segment_file(trace: &Trace, folder: &Path, number: u32) -> Result<SegmentFile, String> {
    let path = folder.join(format!("seg-{number:06}.kseg"));
    let growing = path.with_extension("kseg.tmp");
    let write = || -> io::Result<()> {
        let _limit = FileLimitGuard::new();
        disk::check_free_space(folder)?;
        let _ = fs::remove_file(&growing);
        trace.write_segment(number, &CheckedDescriptor::new(private_file(&growing)?))?;
        fs::rename(&growing, &path)?;
        forget_part_losses(trace);
        Ok(())
    };
    write().map_err(|error| {
        let _ = fs::remove_file(&growing);
        Error::io("write", &path, error, "free the disk, or set SPILL_DIR to another").to_string()
    })?;
    Ok(SegmentFile { path, number, counts: PartCounts::of_trace(trace) })
}

/// Creates a folder that only this user may read: fields of spans may be secret.
fn create_private_folder(path: &Path) -> io::Result<()> {
    let builder = &mut fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(builder, 0o700);
    builder.create(path)
}

/// Creates a file that only this user may read.
pub(super) fn private_file(path: &Path) -> io::Result<File> {
    let mut options = fs::OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.write(true).create_new(true).open(path)
}

#[cfg(test)]
mod tests;
