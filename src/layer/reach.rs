//! What each thread knows of the recordings that leave it out.
//!
//! A span that a left-out thread makes is to other threads as one that was made while nothing was recorded.

use super::Hook;
use super::home;
use super::lane::Lane;
use super::need::Need;
use crate::clock;
use crate::os::thread;
use crate::recorder::listeners::{Listener, Own};
use crate::recorder::{Recorder, bucket};
use crate::time::Ticks;
use std::cell::Cell;
use std::sync::Arc;

/// What holds for a thread in a recording.
#[derive(Clone, Copy)]
struct Verdict {
    layer: u64,
    recording: u64,
    is_reached: bool,
    /// An allocator was told so, before the thread's name could be asked for.
    is_passing: bool,
    /// The epoch in which the thread joined, 0 if it was there from the start.
    joined: u64,
}

/// More layers with recordings of some threads than that, and what a thread has said itself may be forgotten.
const LAYERS: usize = 8;
/// Spans that a left-out thread has made, as far as they are remembered: a power of two.
const MADE: usize = 16;

const NONE: Verdict = Verdict { layer: 0, recording: 0, is_reached: false, is_passing: false, joined: 0 };

thread_local! {
    /// The recording that was last found to leave the thread out.
    static LEFT_OUT: Cell<u64> = const { Cell::new(0) };
    static VERDICTS: [Cell<Verdict>; LAYERS] = const { [const { Cell::new(NONE) }; LAYERS] };
    static SPANS: [Cell<u64>; MADE] = const { [const { Cell::new(0) }; MADE] };
}

/// Returns whether the recording is known to leave the calling thread out; one that leaves out none is asked for no more
/// than that.
#[inline(always)]
pub(super) fn is_known_left_out(recorder: &Recorder) -> bool {
    let recording = recorder.reach.selective();
    recording != 0 && LEFT_OUT.with(Cell::get) == recording
}

/// Returns whether the recording leaves the calling thread out.
#[inline]
pub(crate) fn is_left_out(recorder: &Recorder) -> bool {
    let recording = recorder.reach.selective();
    recording != 0 && (LEFT_OUT.with(Cell::get) == recording || find_out(recorder, recording))
}

#[cold]
fn find_out(recorder: &Recorder, recording: u64) -> bool {
    let known = verdict(recording).filter(|known| !known.is_passing);
    let is_reached = known.unwrap_or_else(|| judge(recorder, recording, false)).is_reached;
    if !is_reached {
        LEFT_OUT.with(|left_out| left_out.set(recording));
    }
    !is_reached
}

/// Returns whether allocations of the calling thread are left out; unlike a span's hook, an allocator cannot ask for the
/// thread's name.
pub(super) fn is_passed_over(listener: &Listener) -> bool {
    let recording = listener.selective();
    let judged = || listener.recorder().map_or(NONE, |recorder| judge(&recorder, recording, true));
    recording != 0 && !verdict(recording).unwrap_or_else(judged).is_reached
}

#[inline]
fn verdict(recording: u64) -> Option<Verdict> {
    VERDICTS.with(|known| known.iter().map(Cell::get).find(|known| known.recording == recording))
}

/// Asks the filter.
#[cold]
fn judge(recorder: &Recorder, recording: u64, allocator: bool) -> Verdict {
    let _own = Own::begin();
    let takes = recorder.reach.filter.takes((!allocator).then_some(thread::name));
    let verdict = Verdict {
        layer: recorder.reach.layer,
        recording,
        is_reached: takes.unwrap_or(false),
        is_passing: takes.is_none(),
        joined: 0,
    };
    keep(verdict);
    verdict
}

/// Keeps what holds for the thread, in place of what held in the layer's recording before, else of the oldest.
fn keep(verdict: Verdict) {
    LEFT_OUT.with(|left_out| left_out.set(0));
    VERDICTS.with(|known| {
        let own = known.iter().find(|known| known.get().layer == verdict.layer);
        let place = own.or_else(|| known.iter().min_by_key(|known| known.get().recording));
        place.into_iter().for_each(|place| place.set(verdict));
    });
}

/// The calling thread is in the recording that begins, whatever the filter says.
pub(crate) fn begin(recorder: &Recorder) {
    let (layer, recording) = (recorder.reach.layer, recorder.reach.recording());
    keep(Verdict { layer, recording, is_reached: true, ..NONE });
}

/// The calling thread joins the recording that goes on.
pub(crate) fn join(recorder: &Recorder) {
    let (layer, recording) = (recorder.reach.layer, recorder.reach.recording());
    keep(Verdict { layer, recording, is_reached: true, is_passing: false, joined: recorder.epoch() });
}

/// The calling thread leaves the recording: the slices that it has open end here, for observers too.
pub(crate) fn leave(recorder: &Arc<Recorder>) {
    let _own = Own::begin();
    let (layer, recording) = (recorder.reach.layer, recorder.reach.recording());
    recorder.restrict();
    let (epoch, now) = (recorder.epoch(), clock::now());
    if home::with(epoch, |_| Ok(())).is_ok() {
        Hook { recorder, epoch }.with(|lane| lane.end_all(now, recorder));
    }
    keep(Verdict { layer, recording, ..NONE });
    home::leave(epoch);
    if let Some(_busy) = home::Busy::begin() {
        recorder.observers.leave_all();
    }
}

/// Whether the thread has joined in that epoch: what it was in before, nobody has seen it enter.
pub(super) fn has_joined(recorder: &Recorder, epoch: u64) -> bool {
    let recording = recorder.reach.selective();
    recording != 0 && verdict(recording).is_some_and(|verdict| verdict.joined == epoch)
}

/// A thread that is left out makes a span.
pub(super) fn make(key: u64) {
    SPANS.with(|made| made.get(bucket(key) % MADE).into_iter().for_each(|made| made.set(key)));
}

/// Returns whether a thread that is left out has made the span that it closes, as far as it knows.
fn unmake(key: u64) -> bool {
    let take = |made: &Cell<u64>| made.get() == key && made.replace(0) == key;
    SPANS.with(|made| made.get(bucket(key) % MADE).is_some_and(take))
}

/// A span closes on a thread that is left out: those that know it forget it.
#[cold]
pub(super) fn close_left_out(hook: &Hook<'_>, key: u64) {
    if !unmake(key) || hook.recorder.reach.has_met(key) {
        super::find::close(hook, key, None);
    }
}

impl Lane {
    /// Ends all open slices, and tells the collectors.
    fn end_all(&self, end: Ticks, recorder: &Recorder) -> Result<(), Need> {
        // Those that other threads have ended are dropped first.
        self.innermost()?;
        let deep = self.deep.try_borrow().ok();
        let deep = deep.iter().flat_map(|deep| deep.iter().rev()).map(|open| open.slice);
        let visible = self.place()?.frames.open().map(|(_, frame)| frame.slice());
        deep.chain(visible).try_for_each(|slice| self.end(slice, end, true, recorder))?;
        self.mirror.apart([&self.epoch, &self.unobserved], |mirror| mirror.follow(std::iter::empty()));
        Ok(())
    }
}
