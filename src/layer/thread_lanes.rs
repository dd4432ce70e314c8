//! A thread's lanes, and the resources that they refer to.
//!
//! The first layer's lane lies inline in a thread-local without a destructor, so access costs nothing. Its resources, and the
//! lanes of further layers, are stored separately and dropped when the thread ends.

use super::lane::{Lane, LanePosition, NO_EPOCH};
use super::missing::Missing;
use super::thread_selection;
use crate::buffer::{Chunk, Head, Tag, Writer};
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
    first: Option<LaneResources>,
    /// Lanes of further layers, with their resources.
    others: Vec<(OtherLane, LaneResources)>,
}

/// The lane of a further layer, which is closed when its owner drops it.
struct OtherLane(Rc<Lane>);

impl Drop for OtherLane {
    fn drop(&mut self) {
        self.0.close_down();
    }
}

/// The resources of one lane.
struct LaneResources {
    epoch: u64,
    recorder: Arc<Recorder>,
    frames: &'static Frames,
    chunk: Option<Chunk>,
    /// The thread's performance counters.
    counters: Option<Group>,
    /// The number of its row.
    row: u64,
    is_first: bool,
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
        store.others.iter().find(|(lane, _)| lane.0.epoch() == epoch).map(|(lane, _)| lane.0.clone())
    };
    STORE.try_with(find).ok().flatten()
}

/// Gives the thread a lane for `epoch`; `false` if the thread is ending, or is already being enrolled.
///
/// For an `allocator`, the lane stays unnamed for now: the standard library knows no name while it allocates the thread's own
/// handle.
pub(crate) fn enroll_thread(recorder: &Arc<Recorder>, epoch: u64, allocator: bool) -> bool {
    HAS_STORE.set(true);
    let is_free = LANE.with(|lane| !lane.is_open()) || STORE.try_with(ThreadStore::has_first_ended).unwrap_or(false);
    let is_first = is_free && clock::is_counter();
    if STORE.try_with(|store| store.try_borrow_mut().is_err()).unwrap_or(true) {
        return false;
    }
    let frames = Frames::take_empty();
    let name = if allocator { String::new() } else { thread::rust_name() };
    let row = recorder.lanes().add_lane(frames, name, clock::now());
    let chunk = recorder.chunk_for_new_thread(epoch);
    let other = (!is_first).then(|| OtherLane(Rc::new(Lane::new())));
    let counters =
        recorder.slice_extras.has_counters().then(|| recorder.slice_extras.open_counters(&recorder.losses)).flatten();
    let owned = LaneResources { epoch, recorder: recorder.clone(), frames, chunk, counters, row, is_first };
    match &other {
        Some(lane) => owned.open_lane(&lane.0),
        None => LANE.with(|lane| {
            owned.open_lane(lane);
            if allocator {
                // The next span takes the slow path, which names the lane.
                lane.fast_epoch.set(NO_EPOCH);
                UNNAMED.with(|unnamed| unnamed.set(epoch));
            }
        }),
    }
    let over = STORE.try_with(|store| {
        let mut store = store.try_borrow_mut().ok()?;
        Some(match other {
            Some(lane) => {
                let mut over = Vec::new();
                while let Some(at) = store.others.iter().position(|(_, owned)| owned.has_ended()) {
                    over.push(store.others.swap_remove(at));
                }
                store.others.push((lane, owned));
                (None, over)
            }
            None => (store.first.replace(owned), Vec::new()),
        })
    });
    // Resources of ended epochs are dropped here, outside the borrow; dropping a lane that could not be kept closes it.
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
        if let Some(owned) = first.as_mut().filter(|owned| owned.epoch == epoch) {
            return Some(LANE.with(|lane| owned.install_chunk(lane, chunk)));
        }
        let (lane, owned) = others.iter_mut().find(|(_, owned)| owned.epoch == epoch)?;
        Some(owned.install_chunk(&lane.0, chunk))
    });
    // The previous chunk, outside of the borrow.
    if let Some(chunk) = before.ok().flatten().flatten() {
        recorder.retire_chunk(chunk);
    }
}

/// Removes the thread's lane for that epoch.
pub(crate) fn remove_lane(epoch: u64) {
    let left = STORE.try_with(|store| {
        let mut store = store.try_borrow_mut().ok()?;
        let is_its = |owned: &LaneResources| owned.epoch == epoch;
        let first = store.first.take_if(|owned| is_its(owned));
        first.map(|owned| (None, owned)).or_else(|| {
            let at = store.others.iter().position(|(_, owned)| is_its(owned))?;
            let (lane, owned) = store.others.swap_remove(at);
            Some((Some(lane), owned))
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
            store.others.iter().for_each(|(lane, _)| lane.0.abandon());
        }
    });
}

impl ThreadStore {
    fn has_first_ended(store: &RefCell<ThreadStore>) -> bool {
        store.try_borrow().is_ok_and(|store| store.first.as_ref().is_none_or(LaneResources::has_ended))
    }
}

impl LaneResources {
    /// Returns whether the epoch has ended or its layer was dropped.
    fn has_ended(&self) -> bool {
        self.recorder.epoch() != self.epoch
    }

    /// Makes `lane` the thread's lane for this epoch.
    fn open_lane(&self, lane: &Lane) {
        let (correlation_sink, observed) = (self.recorder.correlation_sink(), self.recorder.observers.are_active());
        lane.open_epoch(self.epoch, self.begin_in_chunk(self.chunk.as_ref()), correlation_sink, observed);
        lane.set_limited(if self.chunk.is_none() { self.recorder.lost_until_retry() } else { 0 });
        if self.recorder.slice_extras.are_enabled() {
            lane.set_counters(self.counters.as_ref().and_then(Group::reader));
        }
    }

    /// Writes a [`Tag::Lane`] record, so that later records in the chunk belong to this lane;
    /// returns the lane's position.
    fn begin_in_chunk(&self, chunk: Option<&Chunk>) -> LanePosition {
        let writer = chunk.map_or(Writer::without_chunk(), Writer::for_chunk);
        if let Some(id) = writer.next_id(1) {
            writer.put_record(id, Head::new(Tag::Lane, 0, 0), [self.row, 0, 0], &[]);
        }
        LanePosition { frames: self.frames, writer }
    }

    /// Continues in another chunk. Without one, new records are lost, but slices still end in the previous chunk.
    fn install_chunk(&mut self, lane: &Lane, chunk: Option<Chunk>) -> Option<Chunk> {
        lane.set_limited(if chunk.is_none() { self.recorder.lost_until_retry() } else { 0 });
        let chunk = chunk?;
        lane.set_position(self.begin_in_chunk(Some(&chunk)));
        self.chunk.replace(chunk)
    }
}

impl Drop for LaneResources {
    fn drop(&mut self) {
        let ours = |lane: &Lane| lane.epoch() == self.epoch;
        if self.is_first && LANE.with(ours) {
            LANE.with(Lane::close_down);
        }
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
