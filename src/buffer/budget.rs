//! The limit on the memory of one process's records.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many bytes are reserved, of how many. Relaxed everywhere: the count publishes no other data.
#[derive(Debug)]
pub(crate) struct BufferBudget {
    bytes: AtomicU64,
    pub(super) bytes_max: u64,
}

impl BufferBudget {
    pub(crate) fn new(bytes_max: u64) -> BufferBudget {
        BufferBudget { bytes: AtomicU64::new(0), bytes_max }
    }

    /// Reserves bytes; `false` unless at least `left` bytes stay free.
    pub(crate) fn reserve_leaving(&self, bytes: u64, left: u64) -> bool {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.saturating_add(bytes).saturating_add(left) <= self.bytes_max;
        if !fits {
            self.release(bytes);
        }
        fits
    }

    /// Reserves bytes even if they are not free.
    pub(crate) fn reserve_beyond_limit(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn release(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns whether so many bytes are free.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.bytes.load(Ordering::Relaxed).saturating_add(bytes) <= self.bytes_max
    }

    /// Returns how many bytes are reserved now.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// Reserved bytes, which are released on drop.
#[derive(Debug, Default)]
pub(crate) struct ReservedBytes {
    budget: Option<Arc<BufferBudget>>,
    pub(crate) bytes: u64,
}

impl ReservedBytes {
    /// Takes over bytes that were reserved from `budget`.
    pub(super) fn new(budget: &Arc<BufferBudget>, bytes: u64) -> ReservedBytes {
        ReservedBytes { budget: Some(budget.clone()), bytes }
    }

    /// Leaves the bytes to the caller, who must release them.
    pub(crate) fn into_bytes(mut self) -> u64 {
        self.budget = None;
        self.bytes
    }

    /// Takes some of the bytes; `None` if there are fewer.
    pub(crate) fn split_off(&mut self, bytes: u64) -> Option<ReservedBytes> {
        self.bytes = self.bytes.checked_sub(bytes)?;
        Some(ReservedBytes { budget: self.budget.clone(), bytes })
    }
}

impl Drop for ReservedBytes {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget {
            budget.release(self.bytes);
        }
    }
}
