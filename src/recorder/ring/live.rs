//! What the ring notes in the live file of its recording.
//!
//! A trace of a running recording holds all chunks, while threads record into those that become free after it. So what was
//! complete at that time stays, and a gap follows. Only the live file needs this, whose reader shows both stretches.

use super::RingState;
use super::chunk::RingChunk;
use crate::encoding::Encoded;
use crate::live::{JournalKind, LiveFile};
use crate::recorder::RecordedPart;
use crate::time::Ticks;

/// Stretches of time before the horizon whose records are complete in chunks that traces hold, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct HeldStretches(Vec<(Ticks, Ticks)>);

/// The oldest beyond that number are forgotten.
const STRETCHES_MAX: usize = 64;

impl HeldStretches {
    /// Adds a stretch that ends after all others.
    fn add(&mut self, (start, end): (Ticks, Ticks)) {
        match self.0.last_mut().filter(|last| start <= last.1) {
            Some(last) => last.1 = last.1.max(end),
            None => self.0.push((start, end)),
        }
        let surplus = self.0.len().saturating_sub(STRETCHES_MAX);
        self.0.drain(..surplus);
    }

    /// Returns whether a period overlaps one of the stretches.
    pub(super) fn overlaps(&self, start: Ticks, end: Ticks) -> bool {
        self.0.iter().any(|held| start < held.1 && held.0 < end)
    }

    /// Removes the time from `from` to `to`, of which records are lost.
    fn remove(&mut self, from: Ticks, to: Ticks) {
        if !self.overlaps(from, to) {
            return;
        }
        for (start, end) in std::mem::take(&mut self.0) {
            for (start, end) in [(start, end.min(from)), (start.max(to), end)] {
                if start < end {
                    self.0.push((start, end));
                }
            }
        }
    }
}

impl RingState {
    /// Notes in the live file what outlives its chunk since the last call, and what was evicted.
    pub(super) fn note_changes(&mut self) {
        let Some(live) = &self.live else { return };
        let (changed, dropped) = (self.retained.take_changed(), std::mem::take(&mut self.large_payloads.dropped));
        let mut entries = Vec::with_capacity(changed.len() + dropped.len() + 1);
        for (key, record) in changed {
            entries.push(match record {
                Some(record) => {
                    LiveFile::entry(JournalKind::Retained, key, |out| RecordedPart::Retained(record).encode(out))
                }
                None => LiveFile::removal(JournalKind::Retained, key),
            });
        }
        for id in dropped {
            entries.push(LiveFile::removal(JournalKind::LargePayload, (id, 0)));
        }
        // What traces hold is in the file.
        let mut evicted = self.evicted;
        for held in &self.held {
            evicted.records = evicted.records.saturating_sub(held.records);
            evicted.unsaved = evicted.unsaved.saturating_sub(held.unsaved);
        }
        entries.push(LiveFile::entry(JournalKind::Evicted, (0, 0), |out| {
            evicted.encode(out);
            self.held_stretches.0.encode(out);
        }));
        live.append(&entries);
    }

    /// Notes that a trace holds all records since the horizon, until now.
    pub(super) fn note_held(&mut self, now: Ticks) {
        if self.live.is_some() {
            self.held_stretches.add((self.evicted.horizon.unwrap_or_default(), now));
        }
    }

    /// Notes that the records of a chunk that was retired then are lost.
    pub(super) fn note_lost(&mut self, chunk: &RingChunk, retired: Ticks) {
        if let Some(first) = chunk.first_time(chunk.chunk.committed_len()) {
            self.held_stretches.remove(first, retired);
        }
        if self.held.is_empty() {
            // Only chunks that were evicted have earlier records.
            self.held_stretches.remove(Ticks(0), self.evicted.horizon.unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_time_is_removed_from_stretches() {
        let mut held = HeldStretches::default();
        let at = |stretches: &[(u64, u64)]| stretches.iter().map(|(a, b)| (Ticks(*a), Ticks(*b))).collect::<Vec<_>>();
        held.add((Ticks(10), Ticks(50)));
        held.add((Ticks(40), Ticks(60)));
        held.add((Ticks(80), Ticks(90)));
        assert_eq!(held.0, at(&[(10, 60), (80, 90)]));
        held.remove(Ticks(60), Ticks(80));
        held.remove(Ticks(20), Ticks(30));
        assert_eq!(held.0, at(&[(10, 20), (30, 60), (80, 90)]));
        held.remove(Ticks(5), Ticks(35));
        held.remove(Ticks(50), Ticks(100));
        assert_eq!(held.0, at(&[(35, 50)]));
        held.remove(Ticks(0), Ticks(100));
        assert!(held.0.is_empty());
        for number in 0..100 {
            held.add((Ticks(number * 10), Ticks(number * 10 + 5)));
        }
        assert_eq!((held.0.len(), held.0[0].0), (STRETCHES_MAX, Ticks(360)));
    }
}
