//! Stacks and counters of a thread's slices.
//!
//! They disable the fast path; the slow path records them. The records of an enter precede the slice's record, so that they
//! are written before the clock is read.

use super::{Lane, NO_EPOCH};
use crate::buffer::{Head, Loss, Tag};
use crate::layer::missing::Missing;
use crate::os::counters::{CounterReader, CounterReading, EVENTS_MAX};
use crate::recorder::Recorder;

impl Lane {
    /// Disables the fast path for this epoch, and sets the thread's counters, if it has any.
    pub(in crate::layer) fn set_counters(&self, counters: Option<CounterReader>) {
        self.fast_epoch.set(NO_EPOCH);
        self.counters.set(counters);
    }

    /// Records `stack` and the counters, and returns the id of the next slice, 0 if it is lost.
    pub(super) fn reserve_slice(&self, stack: &[u64], recorder: &Recorder) -> Result<u64, Missing> {
        /// Slots of a `Counts` record: head, slice and two times, then a word for each event.
        const COUNTS_MAX: usize = (4 + EVENTS_MAX).div_ceil(4);
        let counters = self.counters.get();
        if stack.is_empty() && counters.is_none() {
            return self.reserve_slots(1);
        }
        if self.reserve_slots(stack.len().div_ceil(4) + 1 + COUNTS_MAX + 1)? == 0 {
            recorder.losses.add(Loss::FieldsOverLimit, 1);
            return self.reserve_slots(1);
        }
        if !stack.is_empty() {
            self.put_record(Head::new(Tag::Stack, 0, 0), [0; 3], stack)?;
        }
        if let Some(reading) = counters.and_then(CounterReader::read_counters) {
            self.put_record(Head::new(Tag::Counts, 0, 0), [0; 3], reading.counter_words())?;
        }
        self.reserve_slots(1)
    }

    /// Reads the counters for the innermost open slice of that span, if the thread is inside it; returns that slice too.
    pub(in crate::layer) fn read_counters(&self, key: u64) -> Option<(u64, CounterReading)> {
        let counters = self.counters.get()?;
        let (slice, _) = self.open_slice_of(key).filter(|(slice, _)| *slice != 0)?;
        Some((slice, counters.read_counters()?))
    }
}
