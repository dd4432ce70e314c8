//! CUDA's driver: whether there is one, and which devices it has.

mod devices;
mod driver;

pub(crate) use devices::{BLOCKS_PER_MULTIPROCESSOR, RESERVED_SHARED_MEMORY};
pub(crate) use driver::{Driver, version_text};
