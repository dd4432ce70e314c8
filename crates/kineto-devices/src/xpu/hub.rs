//! Process-wide state of PTI's callbacks, which have no user data: the buffers and the current recording.

use crate::buffered::kinds::PausableKinds;
use crate::buffered::pool::Pool;
use crate::library::lease::{ExclusiveLease, OwningProcess};
use std::sync::Arc;

/// The hub of the process.
pub(super) static HUB: Hub = Hub { pool: Pool::new(), lease: ExclusiveLease::new(), owner: OwningProcess::new() };

/// State that PTI's callbacks and the recording share.
#[derive(Debug)]
pub(super) struct Hub {
    pub(super) pool: Pool,
    pub(super) lease: ExclusiveLease,
    /// The process that loaded the driver: a forked child cannot use it.
    pub(super) owner: OwningProcess,
}

/// The exclusive lease of PTI. Dropping it, even during a panic, disables its views and releases it.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) views: Option<Arc<PausableKinds>>,
}

impl Lease {
    /// Acquires the lease; returns `None` if another recording holds it.
    pub(super) fn acquire() -> Option<Lease> {
        HUB.lease.try_acquire().then(|| Lease { views: None })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(views) = &self.views {
            views.disable_all();
        }
        HUB.pool.close();
        HUB.lease.release();
    }
}
