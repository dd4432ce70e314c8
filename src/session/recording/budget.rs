//! Memory for the records of collectors, out of the one budget of a session.

use crate::os::fork;
use crate::recorder::Recorder;
use crate::time::Ticks;
use kineto_base::budget::{Budget, Eviction};
use std::sync::Arc;

/// One part in that many is reserved for spans: a program may make any number of calls that launch nothing.
const PART_FOR_WORK: u64 = 4;

/// Takes memory from the recorder's pool.
#[derive(Debug)]
pub(super) struct PoolBudget {
    recorder: Arc<Recorder>,
    /// The fork generation of the pool: a child has its own, and the parent's records do not count there.
    generation: u64,
}

impl PoolBudget {
    pub(super) fn new(recorder: Arc<Recorder>) -> PoolBudget {
        PoolBudget { recorder, generation: fork::generation() }
    }

    fn reserve(&self, bytes: u64, left: u64) -> bool {
        let pool = self.recorder.pool();
        let is_reserved = self.generation == fork::generation() && pool.reserve_for_use(bytes, left);
        if is_reserved && self.recorder.is_spilling() {
            // A segment may be due.
            pool.wake_helper();
        }
        is_reserved
    }
}

impl Budget for PoolBudget {
    fn reserve_bytes(&self, bytes: u64) -> bool {
        self.reserve(bytes, 0)
    }

    fn reserve_non_work(&self, bytes: u64) -> bool {
        let pool = self.recorder.pool();
        // Where the oldest records make room, the newest calls do not displace work.
        let left = if self.recorder.settings.evicts_oldest { 0 } else { pool.bytes_max() / PART_FOR_WORK };
        self.reserve(bytes, left)
    }

    fn evict_for_collector(&self, oldest: Option<Ticks>) -> Eviction {
        if self.generation == fork::generation() { self.recorder.evict_for_devices(oldest) } else { Eviction::None }
    }

    fn needs_all_records(&self) -> bool {
        self.recorder.is_spilling()
    }

    fn release_bytes(&self, bytes: u64) {
        if self.generation == fork::generation() {
            self.recorder.pool().release_bytes(bytes);
        }
    }
}
