//! Counts the records that are missing from a trace, by cause.

use std::sync::atomic::{AtomicU64, Ordering};

pub use kineto_model::Loss;

/// The counters of all causes.
#[derive(Debug)]
pub(crate) struct Losses {
    counts: [AtomicU64; Loss::ALL.len()],
}

impl Losses {
    pub(crate) const fn new() -> Losses {
        Losses { counts: [const { AtomicU64::new(0) }; Loss::ALL.len()] }
    }

    /// Adds `count` to the counter of a cause.
    pub(crate) fn add(&self, loss: Loss, count: u64) {
        if let Some(counter) = self.counts.get(loss as usize) {
            // Relaxed: counters may lag behind threads that are still recording.
            counter.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Returns whether records were dropped because of the buffer limit.
    pub(crate) fn is_over_limit(&self) -> bool {
        let over = [Loss::SlicesOverLimit, Loss::FieldsOverLimit, Loss::EventsOverLimit, Loss::EndsOverLimit];
        let counts = over.iter().chain(&[Loss::MemoryOverLimit]).filter_map(|loss| self.counts.get(*loss as usize));
        counts.into_iter().any(|count| count.load(Ordering::Relaxed) > 0)
    }

    /// Returns all counts, in the order of [`Loss::ALL`].
    pub(crate) fn counts(&self) -> [u64; Loss::ALL.len()] {
        std::array::from_fn(|i| self.counts.get(i).map_or(0, |counter| counter.load(Ordering::Relaxed)))
    }

    /// Takes all counts, in the order of [`Loss::ALL`], and resets them.
    pub(crate) fn take_counts(&self) -> [u64; Loss::ALL.len()] {
        std::array::from_fn(|i| self.counts.get(i).map_or(0, |counter| counter.swap(0, Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_loss_has_its_own_counter_and_key() {
        let losses = Losses::new();
        for (i, loss) in Loss::ALL.iter().enumerate() {
            losses.add(*loss, i as u64 + 1);
        }
        let counts = losses.take_counts();
        assert!(counts.iter().enumerate().all(|(i, count)| *count == i as u64 + 1));
        assert_eq!(losses.take_counts(), [0; Loss::ALL.len()]);
        let mut keys: Vec<_> = Loss::ALL.iter().map(|loss| loss.as_str()).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), Loss::ALL.len());
    }
}
