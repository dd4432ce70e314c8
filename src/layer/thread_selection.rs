//! Each thread's decisions on whether a recording includes it.
//!
//! Other threads treat a span that an excluded thread created like one that was created while nothing was recorded.

use super::lane::Lane;
use super::missing::Missing;
use super::thread_lanes;
use super::{Hook, TRIES};
use crate::clock;
use crate::os::thread;
use crate::recorder::memory_listeners::{InternalAllocGuard, Listener};
use crate::recorder::{Busy, Recorder, span_bucket};
use crate::time::Ticks;
use std::cell::Cell;
use std::sync::Arc;

/// Whether a recording includes the thread.
#[derive(Clone, Copy)]
struct Decision {
    layer: u64,
    recording: u64,
    is_included: bool,
    /// Made for an allocator, which cannot read the thread's name yet.
    is_provisional: bool,
    /// The epoch in which the thread joined, 0 if it was included from the start.
    joined: u64,
}

/// The number of decisions kept for a thread. With more restricted layers, a thread's own choice may be forgotten.
const LAYERS: usize = 8;
/// The number of spans remembered that an excluded thread created; a power of two.
const EXCLUDED_SPANS: usize = 16;

const NONE: Decision = Decision { layer: 0, recording: 0, is_included: false, is_provisional: false, joined: 0 };

thread_local! {
    /// The latest recording that is known to exclude the thread.
    static EXCLUDED_FROM: Cell<u64> = const { Cell::new(0) };
    static DECISIONS: [Cell<Decision>; LAYERS] = const { [const { Cell::new(NONE) }; LAYERS] };
    static SPANS: [Cell<u64>; EXCLUDED_SPANS] = const { [const { Cell::new(0) }; EXCLUDED_SPANS] };
}

/// Returns whether the recording is already known to exclude the calling thread.
#[inline(always)]
pub(super) fn is_known_excluded(recorder: &Recorder) -> bool {
    let recording = recorder.thread_selection.selective_recording();
    recording != 0 && EXCLUDED_FROM.with(Cell::get) == recording
}

/// Returns whether the recording excludes the calling thread.
#[inline]
pub(crate) fn is_excluded(recorder: &Recorder) -> bool {
    let recording = recorder.thread_selection.selective_recording();
    recording != 0 && (EXCLUDED_FROM.with(Cell::get) == recording || check_exclusion(recorder, recording))
}

#[cold]
fn check_exclusion(recorder: &Recorder, recording: u64) -> bool {
    let known = known_decision(recording).filter(|known| !known.is_provisional);
    let is_included = known.unwrap_or_else(|| decide_inclusion(recorder, recording, false)).is_included;
    if !is_included {
        EXCLUDED_FROM.with(|excluded_from| excluded_from.set(recording));
    }
    !is_included
}

/// Returns whether allocations of the calling thread are excluded. Unlike a span's hook, an allocator cannot read the
/// thread's name.
pub(super) fn is_allocator_excluded(listener: &Listener) -> bool {
    let recording = listener.selective_recording();
    let decided = || listener.recorder().map_or(NONE, |recorder| decide_inclusion(&recorder, recording, true));
    recording != 0 && !known_decision(recording).unwrap_or_else(decided).is_included
}

#[inline]
fn known_decision(recording: u64) -> Option<Decision> {
    DECISIONS.with(|known| known.iter().map(Cell::get).find(|known| known.recording == recording))
}

/// Asks the thread filter, and keeps its decision.
#[cold]
fn decide_inclusion(recorder: &Recorder, recording: u64, allocator: bool) -> Decision {
    let _own = InternalAllocGuard::begin();
    let takes = recorder.thread_selection.filter.includes_thread((!allocator).then_some(thread::rust_name));
    let decision = Decision {
        layer: recorder.thread_selection.layer,
        recording,
        is_included: takes.unwrap_or(false),
        is_provisional: takes.is_none(),
        joined: 0,
    };
    keep_decision(decision);
    decision
}

/// Keeps a decision, in place of the layer's previous one, else of the oldest.
fn keep_decision(decision: Decision) {
    EXCLUDED_FROM.with(|excluded_from| excluded_from.set(0));
    DECISIONS.with(|known| {
        let own = known.iter().find(|known| known.get().layer == decision.layer);
        let place = own.or_else(|| known.iter().min_by_key(|known| known.get().recording));
        if let Some(place) = place {
            place.set(decision);
        }
    });
}

/// Includes the calling thread in the recording from an epoch on, 0 for its start, regardless of the filter.
pub(crate) fn include_thread(recorder: &Recorder, joined: u64) {
    let (layer, recording) = (recorder.thread_selection.layer, recorder.thread_selection.recording());
    keep_decision(Decision { layer, recording, is_included: true, joined, ..NONE });
}

/// Excludes the calling thread from the recording, and ends its open slices, for observers too.
pub(crate) fn leave_recording(recorder: &Arc<Recorder>) {
    let _own = InternalAllocGuard::begin();
    let (layer, recording) = (recorder.thread_selection.layer, recorder.thread_selection.recording());
    recorder.restrict_threads();
    let (epoch, now) = (recorder.epoch(), clock::now());
    // The ends may fill the chunk.
    for _ in 0..TRIES {
        let Err(Missing::Chunk) = thread_lanes::with_lane(epoch, |lane| lane.end_all(now, recorder)) else { break };
        thread_lanes::install_chunk(recorder, epoch);
    }
    keep_decision(Decision { layer, recording, ..NONE });
    thread_lanes::remove_lane(epoch);
    if let Some(_busy) = Busy::begin() {
        recorder.observers.leave_all();
    }
}

/// Returns whether the thread joined in that epoch; enters before that were not recorded.
pub(super) fn has_joined(recorder: &Recorder, epoch: u64) -> bool {
    let recording = recorder.thread_selection.selective_recording();
    recording != 0 && known_decision(recording).is_some_and(|decision| decision.joined == epoch)
}

/// Remembers a span that an excluded thread creates.
pub(super) fn remember_span(key: u64) {
    SPANS.with(|made| made.get(span_bucket(key) % EXCLUDED_SPANS).into_iter().for_each(|made| made.set(key)));
}

/// Forgets a span that an excluded thread closes; returns whether it remembers creating it.
fn forget_span(key: u64) -> bool {
    let take = |made: &Cell<u64>| made.get() == key && made.replace(0) == key;
    SPANS.with(|made| made.get(span_bucket(key) % EXCLUDED_SPANS).is_some_and(take))
}

/// Closes a span on an excluded thread, for other threads that may know it.
#[cold]
pub(super) fn close_excluded(hook: &Hook<'_>, key: u64) {
    if !forget_span(key) || hook.recorder.thread_selection.may_have_seen(key) {
        super::find::close_span(hook, key, None);
    }
}

impl Lane {
    /// Ends all open slices, and pops them from the collectors.
    fn end_all(&self, end: Ticks, recorder: &Recorder) -> Result<(), Missing> {
        // Drops slices first that other threads have ended.
        self.innermost_slice()?;
        let deep = self.deep.try_borrow().ok();
        for open in deep.as_deref().map_or(&[][..], Vec::as_slice).iter().rev() {
            self.end_slice(open.slice, end, true, recorder)?;
        }
        for (_, frame) in self.position()?.frames.open_frames() {
            self.end_slice(frame.slice(), end, true, recorder)?;
        }
        self.tell_collectors(|pushed_slices| pushed_slices.sync_with(&|_| ()));
        Ok(())
    }
}
