//! Writes allocators' reports into the chunk of the allocating thread.
//!
//! An allocator may call from anywhere: before `main`, in the middle of a hook, while the thread is torn down, in a forked
//! child. In steady state, a report is a few words written into the chunk. A missing lane or chunk is supplied as for a span,
//! but without starting a thread or asking the standard library about the current one. Allocations by this crate are skipped
//! meanwhile.

use super::TRIES;
use super::lane::Lane;
use super::missing::Missing;
use super::thread_lanes;
use super::thread_selection;
use crate::buffer::{Head, Loss, MemoryTag, Tag};
use crate::recorder::memory_listeners::{self, InternalAllocGuard, Listener};
use crate::recorder::{Busy, Frame, TOO_DEEP, state};
use crate::time::Ticks;

/// What an allocator did.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryEvent {
    pub(crate) time: Ticks,
    pub(crate) address: u64,
    /// Negative for a free, 0 for another use of the same memory.
    pub(crate) bytes: i64,
    /// The allocator's totals after that: allocated, and reserved from the device.
    pub(crate) allocated: u64,
    pub(crate) reserved: u64,
    pub(crate) tag: MemoryTag,
    pub(crate) flags: u8,
}

/// Records an event for every layer that records memory; returns whether all of them kept it.
pub(crate) fn record_memory_event(event: &MemoryEvent) -> bool {
    memory_listeners::open_listeners().filter(|listener| !put_event(event, listener)).count() == 0
}

impl Lane {
    /// Records an event in the innermost open slice; returns the record's id, 0 if it is lost.
    fn put_memory_event(&self, event: &MemoryEvent) -> Result<u64, Missing> {
        let head = Head::new(Tag::Memory, event.flags, event.tag.to_word());
        let words = [event.time.0, self.slice_around()?, event.address];
        self.put_record(head, words, &[event.bytes.cast_unsigned(), event.allocated, event.reserved])
    }

    /// Returns the id of the innermost open slice, 0 if there is none, without changing the lane.
    fn slice_around(&self) -> Result<u64, Missing> {
        let frames = self.position()?.frames;
        let deep = if frames.top() == TOO_DEEP { self.deep.try_borrow().ok() } else { None };
        let mut deep = deep.iter().flat_map(|deep| deep.iter().rev()).map(|open| open.slice);
        if let Some(slice) = deep.find(|slice| *slice != 0) {
            return Ok(slice);
        }
        // A frame without a key: another thread has ended the slice. An ignored span has no slice.
        let has_slice = |frame: &Frame| frame.key() != 0 && frame.meta() & state::IGNORED == 0 && frame.slice() != 0;
        Ok(frames.open_frames().find(|(_, frame)| has_slice(frame)).map_or(0, |(_, frame)| frame.slice()))
    }
}

fn put_event(event: &MemoryEvent, listener: &Listener) -> bool {
    if InternalAllocGuard::is_held() || Busy::is_held() {
        listener.losses.add(Loss::MemoryOwn, 1);
        return false;
    }
    match thread_lanes::with_lane(listener.epoch(), |lane| lane.put_memory_event(event)) {
        Ok(id) => is_kept(id, listener),
        Err(_) => put_slowly(event, listener),
    }
}

/// Supplies what is missing and retries.
#[cold]
fn put_slowly(event: &MemoryEvent, listener: &Listener) -> bool {
    if thread_selection::is_allocator_excluded(listener) {
        return true;
    }
    let (busy, epoch) = (Busy::begin(), listener.epoch());
    let recorder = busy.as_ref().and_then(|_| listener.recorder());
    let tries = recorder.iter().flat_map(|recorder| std::iter::repeat_n(recorder, TRIES));
    for recorder in tries {
        match thread_lanes::with_lane(epoch, |lane| lane.put_memory_event(event)) {
            Ok(id) => return is_kept(id, listener),
            Err(Missing::Lane) if thread_lanes::enroll_thread(recorder, epoch, true) => {}
            Err(Missing::Chunk) => thread_lanes::install_chunk(recorder, epoch),
            Err(_) => break,
        }
    }
    listener.losses.add(Loss::MemoryMissed, 1);
    false
}

fn is_kept(id: u64, listener: &Listener) -> bool {
    if id == 0 {
        listener.losses.add(Loss::MemoryOverLimit, 1);
    }
    id != 0
}
