//! What a thread records beside the times of its slices: from where it entered them, and what its counters stood at.
//!
//! Where any of that is wanted, the usual form of the hooks sees another epoch, as where collectors are told of slices, and
//! the careful one does this. What was so at the enter stands right before the slice's own record, so that it is written
//! when the clock is read.

use super::{Lane, NO_EPOCH};
use crate::buffer::{Head, Loss, Tag};
use crate::layer::need::Need;
use crate::os::counters::{EVENTS_MAX, Reader, Reading};
use crate::recorder::Recorder;

impl Lane {
    /// Has the slices of this epoch accompanied, if the thread has counters by what those say.
    pub(in crate::layer) fn accompany(&self, counters: Option<Reader>) {
        self.untold.set(NO_EPOCH);
        self.counters.set(counters);
    }

    /// Returns the id of the slice that comes next, 0 if it is lost; before it stand `stack` and what has been counted.
    pub(super) fn reserve_slice(&self, stack: &[u64], recorder: &Recorder) -> Result<u64, Need> {
        /// Of counters: head, slice, two times.
        const COUNTS_MAX: usize = (4 + EVENTS_MAX).div_ceil(4);
        let counters = self.counters.get();
        if stack.is_empty() && counters.is_none() {
            return self.reserve(1);
        }
        if self.reserve(stack.len().div_ceil(4) + 1 + COUNTS_MAX + 1)? == 0 {
            recorder.losses.add(Loss::FieldsOverLimit, 1);
            return self.reserve(1);
        }
        if !stack.is_empty() {
            self.put(Head::new(Tag::Stack, 0, 0), [0; 3], stack)?;
        }
        if let Some(reading) = counters.and_then(Reader::read) {
            self.put(Head::new(Tag::Counts, 0, 0), [0; 3], reading.words())?;
        }
        self.reserve(1)
    }

    /// Reads the counters for the innermost open slice of that span, if the thread is inside it; returns that slice too.
    pub(in crate::layer) fn counted(&self, key: u64) -> Option<(u64, Reading)> {
        let counters = self.counters.get()?;
        let (slice, _) = self.inside(key).filter(|(slice, _)| *slice != 0)?;
        Some((slice, counters.read()?))
    }
}
