//! Stub of what the ring notes in a live file, for builds without the feature `segments`: there are no live files.

use super::RingState;
use super::chunk::RingChunk;
use crate::time::Ticks;

/// The stretches of time that a live file shows: none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeldStretches;

impl HeldStretches {
    pub(super) fn overlaps(self, _start: Ticks, _end: Ticks) -> bool {
        false
    }
}

impl RingState {
    pub(super) fn note_changes(&mut self) {}

    pub(super) fn note_held(&mut self, _now: Ticks) {}

    pub(super) fn note_lost(&mut self, _chunk: &RingChunk, _retired: Ticks) {}
}
