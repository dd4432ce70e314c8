//! CUDA's driver: whether there is one, which devices it has, and its events.

mod devices;
mod driver;
mod events;
mod init;

pub(crate) use devices::{BLOCKS_PER_MULTIPROCESSOR, RESERVED_SHARED_MEMORY};
pub(crate) use driver::Driver;
pub use events::CudaEvents;
#[cfg(feature = "capi")]
pub(crate) use init::inside_init;
pub(crate) use init::is_inside_init;

use super::{Collector, EventTimers, Unavailable};
use std::sync::Arc;

/// Returns the collector that times spans by CUDA's events.
///
/// # Errors
/// Only in a build without the feature `cuda`.
pub(crate) fn timers() -> Result<Arc<dyn Collector>, Unavailable> {
    Ok(Arc::new(EventTimers::new(CudaEvents::new())))
}
