//! Memory for the records of collectors, out of the one budget of a session.

use crate::collector::Budget;
use crate::os::fork;
use crate::recorder::Recorder;
use std::sync::Arc;

/// The last quarter of the limit is not for calls, of which there may be any number without work.
const PART_FOR_WORK: u64 = 4;

/// What the recorder's pool has left.
#[derive(Debug)]
pub(super) struct PoolBudget {
    recorder: Arc<Recorder>,
    /// A forked child has a pool of its own, out of which its parent's records have taken nothing.
    generation: u64,
}

impl PoolBudget {
    pub(super) fn new(recorder: Arc<Recorder>) -> PoolBudget {
        PoolBudget { recorder, generation: fork::generation() }
    }
}

impl Budget for PoolBudget {
    fn reserve(&self, bytes: u64) -> bool {
        self.generation == fork::generation() && self.recorder.pool().reserve_for_use(bytes, 0)
    }

    fn reserve_beside_work(&self, bytes: u64) -> bool {
        let pool = self.recorder.pool();
        self.generation == fork::generation() && pool.reserve_for_use(bytes, pool.bytes_max() / PART_FOR_WORK)
    }

    fn release(&self, bytes: u64) {
        if self.generation == fork::generation() {
            self.recorder.pool().release(bytes);
        }
    }
}
