//! CUDA's driver: whether there is one, which devices it has, and its events.

mod devices;
mod driver;
mod events;

pub(crate) use devices::{BLOCKS_PER_MULTIPROCESSOR, RESERVED_SHARED_MEMORY};
pub(crate) use driver::{Driver, version_text};
pub use events::CudaEvents;
