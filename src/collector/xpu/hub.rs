//! What there is one of in a process, since PTI has no user data for its callbacks: the buffers, and who records.

use crate::collector::pool::Pool;
use crate::collector::turn::Turn;
use crate::os::fork::Home;

/// The one hub.
pub(super) static HUB: Hub = Hub { pool: Pool::new(), turn: Turn::new(), home: Home::new() };

/// The one place where PTI's callbacks and the recording meet.
#[derive(Debug)]
pub(super) struct Hub {
    pub(super) pool: Pool,
    pub(super) turn: Turn,
    /// The process that has the driver: a forked child has none.
    pub(super) home: Home,
}
