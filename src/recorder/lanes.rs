//! The lanes of recording threads, the frames of live threads, and the spans that ended threads leave behind.

use super::frames::lent_key;
use super::{Frames, LiveIds, SpanState};
use crate::encoding::{Encoded, encoded};
use crate::live::{JournalKind, LiveFile, LiveHandle};
use crate::os::thread;
use crate::time::Ticks;
use kineto_base::hash::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// All threads that have recorded in this session.
///
/// Nothing is allocated under the lock, because an allocator with spans would re-enter it.
#[derive(Debug, Default)]
pub(crate) struct LaneRegistry {
    known: Mutex<LaneLists>,
    /// Where lanes are noted.
    live: LiveHandle,
}

#[derive(Debug, Default)]
struct LaneLists {
    /// By number; those of ended threads may be gone.
    lanes: Vec<LaneEntry>,
    /// The number of the next lane.
    next: u64,
    /// Live threads, each with the number of its lane.
    live: Vec<(&'static Frames, u64)>,
    /// Spans of ended threads that are stored nowhere else, or were lent. Other threads may still enter or close them.
    left: Vec<(u64, SpanState)>,
    /// When lanes were dropped last, and the horizon then.
    dropped: Option<(Instant, Ticks)>,
}

#[derive(Clone, Debug)]
struct LaneEntry {
    row: Arc<LaneRow>,
    /// Whether the name is the kernel's, which may change while the thread lives.
    is_kernels_name: bool,
    /// When the thread ended; `None` while it lives.
    until: Option<Ticks>,
}

/// A thread's row in the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LaneRow {
    pub(crate) number: u64,
    /// The kernel's id of the thread.
    pub(crate) thread: i64,
    /// The name from Rust, else the kernel's; empty if it has none.
    pub(crate) name: String,
    /// The lower half of `pthread_self`, which vendors' records contain. Later threads may reuse it.
    pub(crate) handle: u32,
    /// When it began to record.
    pub(crate) since: Ticks,
    /// When it ended, or began another row; `None` while it lives.
    pub(crate) until: Option<Ticks>,
}

encoded! {
    LaneRow { number, thread, name, handle, since, until }
}

impl LaneRegistry {
    pub(super) fn new(live: LiveHandle) -> LaneRegistry {
        LaneRegistry { known: Mutex::default(), live }
    }

    /// Notes a lane.
    fn note_lane(&self, number: u64) {
        let lane = self.live.current().and_then(|_| self.lock().lane_mut(number).cloned());
        lane.iter().for_each(|lane| {
            let row = LaneRow { until: lane.until, ..LaneRow::clone(&lane.row) };
            self.live.put(JournalKind::Lane, (number, 0), |out| row.encode(out));
        });
    }

    /// Notes the lanes of threads that live, and the `used` ones, in a live file.
    pub(super) fn note_all(&self, live: &LiveFile, used: &HashSet<u64>) {
        let rows = self.rows();
        let noted = rows.iter().filter(|row| row.until.is_none() || used.contains(&row.number));
        noted.for_each(|row| _ = live.put_value(JournalKind::Lane, (row.number, 0), row));
    }

    fn lock(&self) -> MutexGuard<'_, LaneLists> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the lists, after making sure that `list` has capacity for `more` entries.
    fn lock_with_capacity<T>(&self, more: usize, list: fn(&mut LaneLists) -> &mut Vec<T>) -> MutexGuard<'_, LaneLists> {
        loop {
            let mut known = self.lock();
            let wanted = list(&mut known).len() + more;
            if wanted <= list(&mut known).capacity() {
                return known;
            }
            drop(known);
            let mut larger = Vec::with_capacity(wanted * 2 + 16);
            let mut known = self.lock();
            let full = list(&mut known);
            if full.len() <= wanted {
                larger.append(full);
                std::mem::swap(full, &mut larger);
            }
            // Unlocks before `larger`, which now is the old list, is freed.
            drop(known);
        }
    }

    /// Adds a lane for the calling thread, under the name from Rust; returns the lane's number.
    ///
    /// If that name is empty, reads the kernel's now, because it is gone once the thread has ended.
    pub(crate) fn add_lane(&self, frames: &'static Frames, name: String, now: Ticks) -> u64 {
        let (thread, handle) = (thread::id(), thread::pthread_low32());
        let is_kernels_name = name.is_empty();
        let name = if is_kernels_name { thread::kernel_name() } else { name };
        let row = LaneRow { number: 0, thread, name, handle, since: now, until: None };
        let mut row = Arc::new(row);
        let mut known = loop {
            let known = self.lock_with_capacity(1, |known| &mut known.lanes);
            if known.live.len() < known.live.capacity() {
                break known;
            }
            drop(known);
            drop(self.lock_with_capacity(1, |known| &mut known.live));
        };
        let number = known.next;
        known.next += 1;
        if let Some(row) = Arc::get_mut(&mut row) {
            row.number = number;
        }
        known.lanes.push(LaneEntry { row, is_kernels_name, until: None });
        known.live.push((frames, number));
        drop(known);
        self.note_lane(number);
        number
    }

    /// Names a lane by the name from Rust, unless that is empty.
    pub(crate) fn name_lane(&self, number: u64, name: String) {
        if name.is_empty() {
            return;
        }
        let before = self.lock().lane_mut(number).map(|lane| lane.row.clone());
        let Some(before) = before else { return };
        let mut named = Arc::new(LaneRow { name, ..LaneRow::clone(&before) });
        if let Some(lane) = self.lock().lane_mut(number) {
            std::mem::swap(&mut lane.row, &mut named);
            lane.is_kernels_name = false;
        }
        self.note_lane(number);
    }

    /// Ends the lane of the thread with those frames; its row is kept.
    ///
    /// If the epoch continues, keeps the spans that only these frames hold.
    pub(crate) fn end_lane(&self, frames: &'static Frames, epoch_continues: bool, now: Ticks) {
        let mut left = Vec::new();
        if epoch_continues {
            for span in frames.only_here() {
                left.push(span);
            }
        }
        let mut ended = None;
        let mut known = self.lock_with_capacity(left.len(), |known| &mut known.left);
        if let Some(at) = known.live.iter().position(|(live, _)| std::ptr::eq(*live, frames)) {
            let (_, number) = known.live.swap_remove(at);
            if let Some(lane) = known.lane_mut(number) {
                lane.until = Some(now);
                ended = Some(number);
            }
        }
        known.left.extend_from_slice(&left);
        drop(known);
        if let Some(number) = ended {
            self.note_lane(number);
        }
    }

    /// Returns the time before which lanes must have ended to be dropped now, if that is due; `horizon` is that of the records.
    ///
    /// Devices deliver calls of ended threads late, so this is the horizon some seconds ago.
    pub(super) fn begin_drop(&self, horizon: Ticks, now: Instant) -> Option<Ticks> {
        const INTERVAL: Duration = Duration::from_secs(10);
        let mut known = self.lock();
        match known.dropped {
            Some((at, _)) if now.saturating_duration_since(at) < INTERVAL => None,
            before => {
                known.dropped = Some((now, horizon));
                before.map(|(_, horizon)| horizon)
            }
        }
    }

    /// Drops the rows of threads that ended before that time, other than those with `used` numbers.
    pub(super) fn drop_ended(&self, before: Ticks, used: &HashSet<u64>) {
        // Threads begin meanwhile.
        let most = self.lock().lanes.len() * 5 / 4 + 64;
        let (mut kept, mut dropped) = (Vec::with_capacity(most), Vec::with_capacity(most));
        let mut known = self.lock();
        if known.lanes.len() <= most {
            let is_needed =
                |lane: &LaneEntry| lane.until.is_none_or(|until| until >= before) || used.contains(&lane.row.number);
            for lane in known.lanes.drain(..) {
                if is_needed(&lane) { kept.push(lane) } else { dropped.push(lane) }
            }
            std::mem::swap(&mut known.lanes, &mut kept);
        }
        drop(known);
        if let Some(live) = self.live.current() {
            dropped.iter().for_each(|lane| live.remove(JournalKind::Lane, (lane.row.number, 0)));
        }
    }

    /// Calls `search` with the frames of each live thread until it returns `Some`.
    pub(crate) fn search_frames<R>(&self, search: impl FnMut(&Frames) -> Option<R>) -> Option<R> {
        self.lock().search_frames(search)
    }

    /// Adds the ids of the spans and slices in frames, and of the spans that ended threads have left.
    pub(super) fn collect_ids(&self, ids: &mut LiveIds) {
        loop {
            let wanted = self.lock().id_count();
            ids.reserve(wanted + wanted / 2);
            let known = self.lock();
            if known.id_count() <= ids.capacity() - ids.len() {
                // Threads use more frames meanwhile.
                let most = ids.capacity();
                known.visit_ids(&mut |id| {
                    if ids.len() < most {
                        ids.push(id);
                    }
                });
                return;
            }
        }
    }

    /// Returns the state of a span that another thread holds, or held when it ended.
    pub(crate) fn lend_span(&self, key: u64) -> Option<SpanState> {
        let known = self.lock();
        known.search_frames(|frames| frames.lend_span(key)).or_else(|| known.left_span(key).map(|(_, state)| state))
    }

    /// Removes a closed span and returns its state.
    pub(crate) fn take_out(&self, key: u64) -> Option<SpanState> {
        let mut known = self.lock();
        known.search_frames(|frames| frames.take_out(key)).or_else(|| {
            let (at, state) = known.left_span(key)?;
            known.left.swap_remove(at);
            Some(state)
        })
    }

    /// Takes all rows, at the end of a session.
    pub(crate) fn take_rows(&self) -> Vec<LaneRow> {
        let LaneLists { lanes, .. } = std::mem::take(&mut *self.lock());
        LaneEntry::to_rows(&lanes)
    }

    /// Returns all rows.
    pub(crate) fn rows(&self) -> Vec<LaneRow> {
        loop {
            let mut lanes = Vec::with_capacity(self.lock().lanes.len());
            let known = self.lock();
            if known.lanes.len() <= lanes.capacity() {
                lanes.extend_from_slice(&known.lanes);
                drop(known);
                return LaneEntry::to_rows(&lanes);
            }
        }
    }
}

impl LaneLists {
    fn lane_mut(&mut self, number: u64) -> Option<&mut LaneEntry> {
        let at = self.lanes.binary_search_by_key(&number, |lane| lane.row.number).ok()?;
        self.lanes.get_mut(at)
    }

    /// Calls `each` with the ids of the spans and slices in frames, and of the spans that ended threads have left.
    fn visit_ids(&self, each: &mut dyn FnMut(u64)) {
        for (frames, _) in &self.live {
            // Twice: a thread may move a span to a frame that was read already.
            for _ in 0..2 {
                for (_, frame) in frames.used_frames() {
                    each(frame.span());
                    each(frame.slice());
                    each(frame.parent());
                }
            }
        }
        for (_, state) in &self.left {
            each(state.span);
        }
    }

    fn id_count(&self) -> usize {
        let mut count = 0;
        self.visit_ids(&mut |_| count += 1);
        count
    }

    /// Returns the index and state of a span that an ended thread left behind.
    fn left_span(&self, key: u64) -> Option<(usize, SpanState)> {
        let at = self.left.iter().position(|(left, _)| *left == key || *left == lent_key(key))?;
        self.left.get(at).map(|(_, state)| (at, *state))
    }

    fn search_frames<R>(&self, mut search: impl FnMut(&Frames) -> Option<R>) -> Option<R> {
        self.live.iter().find_map(|(frames, _)| search(frames))
    }
}

impl LaneEntry {
    fn to_rows(lanes: &[LaneEntry]) -> Vec<LaneRow> {
        let mut rows = Vec::with_capacity(lanes.len());
        for lane in lanes {
            rows.push(lane.to_row());
        }
        rows
    }

    /// Returns the row; the kernel's name of a live thread is read again.
    fn to_row(&self) -> LaneRow {
        let mut row = LaneRow { until: self.until, ..LaneRow::clone(&self.row) };
        if self.is_kernels_name && self.until.is_none() {
            row.name = thread::kernel_name_of(row.thread).unwrap_or(row.name);
        }
        row
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::recorder::frames::state;

    #[test]
    fn row_has_the_last_name_from_rust() {
        let (lanes, frames) = (LaneRegistry::default(), Frames::take_empty());
        let number = lanes.add_lane(frames, "first".to_owned(), Ticks(1));
        let names = || lanes.rows().into_iter().map(|row| row.name).collect::<Vec<_>>();
        lanes.name_lane(number, "second".to_owned());
        assert_eq!(names(), ["second"]);
        lanes.name_lane(number, String::new());
        lanes.name_lane(number + 1, "of no lane".to_owned());
        assert_eq!(names(), ["second"]);
        assert_eq!((lanes.rows()[0].thread, lanes.rows()[0].since), (thread::id(), Ticks(1)));
        frames.give_back();
    }

    #[test]
    fn rows_of_ended_threads_are_dropped_later() {
        let (lanes, frames) = (LaneRegistry::default(), Frames::take_empty());
        for number in 0..4 {
            assert_eq!(lanes.add_lane(frames, String::new(), Ticks(number)), number);
            if number < 3 {
                lanes.end_lane(frames, false, Ticks(10 * number));
            }
        }
        let (start, used) = (Instant::now(), HashSet::from_iter([1]));
        let drop_at = |seconds, horizon| {
            let before = lanes.begin_drop(Ticks(horizon), start + Duration::from_secs(seconds));
            before.into_iter().for_each(|before| lanes.drop_ended(before, &used));
            lanes.rows().iter().map(|row| row.number).collect::<Vec<_>>()
        };
        assert_eq!(drop_at(0, 15), [0, 1, 2, 3], "calls may be delivered late");
        assert_eq!(drop_at(9, 25), [0, 1, 2, 3]);
        assert_eq!(drop_at(10, 25), [1, 2, 3]);
        assert_eq!(drop_at(20, 99), [1, 3]);
        lanes.name_lane(3, "last".to_owned());
        assert_eq!(lanes.rows()[1].name, "last");
        assert_eq!(lanes.add_lane(frames, String::new(), Ticks(1)), 4);
        lanes.take_rows();
        frames.give_back();
    }

    #[test]
    fn ended_thread_leaves_its_spans_while_the_epoch_continues() {
        let (lanes, frames) = (LaneRegistry::default(), Frames::take_empty());
        let state = SpanState { span: 50, meta: state::new(3), parent: 0 };
        for (epoch_continues, found) in [(false, None), (true, Some(state))] {
            lanes.add_lane(frames, "thread".to_owned(), Ticks(1));
            frames.frame(2).put_span(5, state, 0);
            lanes.end_lane(frames, epoch_continues, Ticks(9));
            frames.forget_span(5);
            assert_eq!((lanes.lend_span(5), lanes.take_out(5), lanes.take_out(5)), (found, found, None));
        }
        let ends = lanes.take_rows().into_iter().map(|row| row.until).collect::<Vec<_>>();
        assert_eq!((ends, lanes.rows().len()), (vec![Some(Ticks(9)); 2], 0));
        frames.give_back();
    }
}
