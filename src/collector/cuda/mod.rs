//! CUDA's driver: whether there is one, which devices it has, and its events.

mod devices;
mod driver;
mod events;
mod init;

pub(crate) use devices::{BLOCKS_PER_MULTIPROCESSOR, RESERVED_SHARED_MEMORY};
pub(crate) use driver::{Driver, version_text};
pub use events::CudaEvents;
#[cfg(feature = "capi")]
pub(crate) use init::inside_init;
pub(crate) use init::is_inside_init;
