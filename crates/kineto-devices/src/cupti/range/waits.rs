//! The waits that annotations make inside callbacks: CUPTI records them with the id of the call around them.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// The ids of calls at whose begin a thread waits, until the wait's record arrives.
#[derive(Debug)]
pub(crate) struct OwnWaits {
    calls: Mutex<BTreeSet<u32>>,
}

/// The most ids: none is removed while calls of the driver are not recorded.
const MOST_WAITS: usize = 1 << 16;
/// The driver's number of `cuCtxSynchronize`.
const SYNCHRONIZE: u32 = 17;

impl OwnWaits {
    pub(crate) const fn new() -> OwnWaits {
        OwnWaits { calls: Mutex::new(BTreeSet::new()) }
    }

    fn with_calls<R>(&self, act: impl FnOnce(&mut BTreeSet<u32>) -> R) -> R {
        act(&mut self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Forgets the waits of earlier recordings.
    pub(crate) fn clear(&self) {
        self.with_calls(BTreeSet::clear);
    }

    /// Notes that the thread waits at the begin of a call.
    pub(super) fn note(&self, correlation: u32) {
        self.with_calls(|calls| {
            calls.insert(correlation);
            if calls.len() > MOST_WAITS {
                calls.pop_first();
            }
        });
    }

    /// Returns whether the record of a driver's call is that of such a wait, once.
    pub(crate) fn take(&self, function: u32, correlation: u32) -> bool {
        function == SYNCHRONIZE && self.with_calls(|calls| calls.remove(&correlation))
    }
}
