//! What there is one of in a process, since PTI has no user data for its callbacks: the buffers, and who records.

use super::views::Views;
use crate::collector::lease::{ExclusiveLease, OwningProcess};
use crate::collector::pool::Pool;
use std::sync::Arc;

/// The one hub.
pub(super) static HUB: Hub = Hub { pool: Pool::new(), lease: ExclusiveLease::new(), owner: OwningProcess::new() };

/// The one place where PTI's callbacks and the recording meet.
#[derive(Debug)]
pub(super) struct Hub {
    pub(super) pool: Pool,
    pub(super) lease: ExclusiveLease,
    /// The process that has the driver: a forked child has none.
    pub(super) owner: OwningProcess,
}

/// The right to record with PTI, which one recording of the process has; given up when it is dropped, also by a panic, with
/// the views that it has enabled.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) views: Option<Arc<Views>>,
}

impl Lease {
    /// Takes the lease; `None` if another recording has it.
    pub(super) fn take() -> Option<Lease> {
        HUB.lease.take().then(|| Lease { views: None })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(views) = &self.views {
            views.end();
        }
        HUB.pool.close();
        HUB.lease.release();
    }
}
