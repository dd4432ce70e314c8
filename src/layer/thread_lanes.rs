//! A thread's lanes, and the resources that they refer to.
//!
//! The first layer's lane lies inline in a thread-local without a destructor, so access costs nothing. Its resources, and the
//! lanes of further layers, are stored separately and dropped when the thread ends.

use super::lane::{Lane, LanePosition, NO_EPOCH};
use super::missing::Missing;
use super::thread_selection;
use crate::buffer::{Chunk, Head, Slots, Tag};
use crate::clock;
use crate::os::counters::{self, Group};
use crate::os::thread;
use crate::recorder::{Busy, Frames, Recorder};
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::sync::Arc;

thread_local! {
    static LANE: Lane = const { Lane::new() };
    static STORE: RefCell<ThreadStore> = const { RefCell::new(ThreadStore { first: None, others: Vec::new() }) };
    /// Whether the thread has used its store.
    static HAS_STORE: Cell<bool> = const { Cell::new(false) };
    /// The epoch for which an allocator created the first layer's lane without a name.
    static UNNAMED: Cell<u64> = const { Cell::new(NO_EPOCH) };
}
const _: () = assert!(!std::mem::needs_drop::<Lane>());

/// Owns the resources of the lanes.
struct ThreadStore {
    /// Not in the list, so that most threads allocate nothing here.
    first: Option<LaneResources>,
    others: Vec<LaneResources>,
}

/// The resources of one lane. The lane is closed when they are dropped.
struct LaneResources {
    /// The lane of a further layer; `None` for the first layer's, which is the thread's own.
    other: Option<Rc<Lane>>,
    epoch: u64,
    recorder: Arc<Recorder>,
    frames: &'static Frames,
    chunk: Option<Chunk>,
    /// The thread's performance counters.
    counters: Option<Group>,
    /// The number of its row.
    row: u64,
}

/// Calls `hook` with the thread's lane if it is the first layer's and its fast path is enabled. Otherwise, or if `hook` does,
/// returns false.
///
/// Such a lane exists only where the CPU's counter is usable, so `hook` may read it without a check.
#[inline(always)]
pub(crate) fn fast_path(epoch: u64, hook: impl FnOnce(&Lane) -> bool) -> bool {
    LANE.with(|lane| lane.fast_epoch() == epoch && hook(lane))
}

/// Like [`fast_path`], for a hook that has no effect on an excluded thread or while nothing is recorded.
#[inline(always)]
pub(crate) fn fast_path_or_ignored(epoch: u64, recorder: &Recorder, hook: impl FnOnce(&Lane) -> bool) -> bool {
    LANE.with(|lane| {
        if lane.fast_epoch() == epoch {
            hook(lane)
        } else {
            epoch == 0 || thread_selection::is_known_excluded(recorder)
        }
    })
}

/// Like [`fast_path`], also if collectors receive slices.
#[inline(always)]
pub(crate) fn with_first_lane(epoch: u64, hook: impl FnOnce(&Lane) -> bool) -> bool {
    LANE.with(|lane| lane.epoch() == epoch && hook(lane))
}

/// Like [`with_first_lane`], unless observers receive spans.
#[inline(always)]
pub(crate) fn with_unobserved_lane(epoch: u64, hook: impl FnOnce(&Lane) -> bool) -> bool {
    LANE.with(|lane| lane.epoch() == epoch && !lane.is_observed.get() && hook(lane))
}

/// Calls `hook` with the thread's lane for `epoch`, whichever layer it belongs to.
pub(crate) fn with_lane<R>(epoch: u64, hook: impl FnOnce(&Lane) -> Result<R, Missing>) -> Result<R, Missing> {
    LANE.with(|lane| if lane.epoch() == epoch { hook(lane) } else { with_other(epoch, hook) })
}

#[cold]
fn with_other<R>(epoch: u64, hook: impl FnOnce(&Lane) -> Result<R, Missing>) -> Result<R, Missing> {
    hook(&*find_other(epoch).ok_or(Missing::Lane)?)
}

/// Returns the thread's lane for the epoch of a further layer.
fn find_other(epoch: u64) -> Option<Rc<Lane>> {
    let find = |store: &RefCell<ThreadStore>| {
        let store = store.try_borrow().ok()?;
        store.others.iter().filter_map(|owned| owned.other.as_ref()).find(|lane| lane.epoch() == epoch).cloned()
    };
    STORE.try_with(find).ok().flatten()
}

/// Gives the thread a lane for `epoch`; `false` if the thread is ending, or is already being enrolled.
///
/// For an `allocator`, the lane stays unnamed for now: the standard library knows no name while it allocates the thread's own
/// handle.
pub(crate) fn enroll_thread(recorder: &Arc<Recorder>, epoch: u64, allocator: bool) -> bool {
    HAS_STORE.set(true);
    let has_ended = |store: &RefCell<ThreadStore>| {
        store.try_borrow().is_ok_and(|store| store.first.as_ref().is_none_or(LaneResources::has_ended))
    };
    let is_first =
        clock::is_counter() && (LANE.with(|lane| !lane.is_open()) || STORE.try_with(has_ended).unwrap_or(false));
    if STORE.try_with(|store| store.try_borrow_mut().is_err()).unwrap_or(true) {
        return false;
    }
    let frames = Frames::take_empty();
    let name = if allocator { String::new() } else { thread::rust_name() };
    let row = recorder.lanes().add_lane(frames, name, clock::now());
    let chunk = recorder.chunk_for_new_thread(epoch);
    let other = (!is_first).then(|| Rc::new(Lane::new()));
    let counters =
        recorder.slice_extras.has_counters().then(|| recorder.slice_extras.open_counters(&recorder.losses)).flatten();
    let owned = LaneResources { other, epoch, recorder: recorder.clone(), frames, chunk, counters, row };
    owned.with_lane(|lane| {
        owned.open_lane(lane);
        if allocator && is_first {
            // The next span takes the slow path, which names the lane.
            lane.fast_epoch.set(NO_EPOCH);
            UNNAMED.with(|unnamed| unnamed.set(epoch));
        }
    });
    let over = STORE.try_with(|store| {
        let mut store = store.try_borrow_mut().ok()?;
        if is_first {
            return Some((store.first.replace(owned), Vec::new()));
        }
        let over = store.others.extract_if(.., |owned| owned.has_ended()).collect();
        store.others.push(owned);
        Some((None, over))
    });
    // Resources of ended epochs are dropped here, outside the borrow; dropping those that could not be kept closes their lane.
    matches!(over, Ok(Some(_)))
}

/// Names the thread's row, if an allocator created it.
#[inline]
pub(crate) fn name_row_if_unnamed(recorder: &Arc<Recorder>, epoch: u64) {
    if UNNAMED.with(Cell::get) == epoch {
        name_now(recorder, epoch);
    }
}

#[cold]
fn name_now(recorder: &Arc<Recorder>, epoch: u64) {
    let Some(_busy) = Busy::begin() else { return };
    UNNAMED.with(|unnamed| unnamed.set(NO_EPOCH));
    if recorder.correlation_sink().is_none() && !recorder.slice_extras.are_enabled() {
        LANE.with(|lane| lane.fast_epoch.set(if lane.is_observed.get() { NO_EPOCH } else { epoch }));
    }
    let row = |store: &RefCell<ThreadStore>| {
        let store = store.try_borrow().ok()?;
        store.first.as_ref().filter(|owned| owned.epoch == epoch).map(|owned| owned.row)
    };
    if let Ok(Some(row)) = STORE.try_with(row) {
        recorder.lanes().name_lane(row, thread::rust_name());
    }
}

/// Gives the thread's lane another chunk, or marks the limit as reached.
pub(crate) fn install_chunk(recorder: &Recorder, epoch: u64) {
    let chunk = recorder.open_chunk(epoch);
    let before = STORE.try_with(|store| {
        let mut store = store.try_borrow_mut().ok()?;
        let ThreadStore { first, others } = &mut *store;
        first.iter_mut().chain(others).find(|owned| owned.epoch == epoch)?.install_chunk(chunk)
    });
    // The previous chunk, outside of the borrow.
    if let Some(chunk) = before.ok().flatten() {
        recorder.retire_chunk(chunk);
    }
}

/// Removes the thread's lane for that epoch.
pub(crate) fn remove_lane(epoch: u64) {
    let left = STORE.try_with(|store| {
        let mut store = store.try_borrow_mut().ok()?;
        let ThreadStore { first, others } = &mut *store;
        first.take_if(|owned| owned.epoch == epoch).or_else(|| {
            let at = others.iter().position(|owned| owned.epoch == epoch)?;
            Some(others.swap_remove(at))
        })
    });
    // Outside the borrow.
    drop(left);
}

/// Forgets the forking thread's lanes, so that its next hook in the child detects the fork.
pub(crate) fn forget_lane() {
    counters::close_all();
    LANE.with(Lane::abandon);
    // The first use of the store on a thread registers its destructor, which allocates.
    if !HAS_STORE.get() {
        return;
    }
    let _ = STORE.try_with(|store| {
        if let Ok(store) = store.try_borrow() {
            store.others.iter().filter_map(|owned| owned.other.as_ref()).for_each(|lane| lane.abandon());
        }
    });
}

impl LaneResources {
    /// Returns whether the epoch has ended or its layer was dropped.
    fn has_ended(&self) -> bool {
        self.recorder.epoch() != self.epoch
    }

    /// Calls `action` with the lane.
    fn with_lane<R>(&self, action: impl FnOnce(&Lane) -> R) -> R {
        match &self.other {
            Some(lane) => action(lane),
            None => LANE.with(action),
        }
    }

    /// Makes `lane` the thread's lane for this epoch.
    fn open_lane(&self, lane: &Lane) {
        let (correlation_sink, observed) = (self.recorder.correlation_sink(), self.recorder.observers.are_active());
        lane.open_epoch(self.epoch, self.begin_in_chunk(self.chunk.as_ref()), correlation_sink, observed);
        lane.limited.set(if self.chunk.is_none() { self.recorder.lost_until_retry() } else { 0 });
        if self.recorder.slice_extras.are_enabled() {
            lane.set_counters(self.counters.as_ref().and_then(Group::reader));
        }
    }

    /// Writes a [`Tag::Lane`] record, so that later records in the chunk belong to this lane;
    /// returns the lane's position.
    fn begin_in_chunk(&self, chunk: Option<&Chunk>) -> LanePosition {
        let slots = chunk.map_or(Slots::full_placeholder(), Chunk::slots);
        if let Some(id) = slots.id_for(1) {
            slots.put_record(id, Head::new(Tag::Lane, 0, 0), [self.row, 0, 0], &[]);
        }
        LanePosition { frames: self.frames, slots }
    }

    /// Continues in another chunk. Without one, new records are lost, but slices still end in the previous chunk.
    fn install_chunk(&mut self, chunk: Option<Chunk>) -> Option<Chunk> {
        self.with_lane(|lane| {
            lane.limited.set(if chunk.is_none() { self.recorder.lost_until_retry() } else { 0 });
            if chunk.is_some() {
                lane.place.set(Some(self.begin_in_chunk(chunk.as_ref())));
            }
        });
        self.chunk.replace(chunk?)
    }
}

impl Drop for LaneResources {
    fn drop(&mut self) {
        self.with_lane(|lane| {
            // The thread's own lane may serve another epoch.
            if self.other.is_some() || lane.epoch() == self.epoch {
                lane.close_down();
            }
        });
        if self.recorder.is_forked() {
            // The locks needed below may have been held by a thread that does not exist in this process.
            let _kept = ManuallyDrop::new(self.chunk.take());
            return;
        }
        self.recorder.lanes().end_lane(self.frames, !self.has_ended(), clock::now());
        self.frames.give_back();
        if let Some(chunk) = self.chunk.take() {
            self.recorder.leave_chunk(chunk);
        }
    }
}
