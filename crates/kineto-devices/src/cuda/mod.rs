//! The CUDA driver: its availability, devices and events.

mod devices;
mod driver;
mod events;
mod init;
mod nvml;

pub(crate) use devices::{BLOCKS_PER_MULTIPROCESSOR, RESERVED_SHARED_MEMORY};
pub(crate) use driver::Driver;
pub use events::CudaEvents;
pub use init::inside_init;
pub(crate) use init::is_inside_init;
pub(super) use nvml::Nvml;

/// Returns a version of CUDA as text: "CUDA 13.0" for 13000.
pub(crate) fn cuda_version(version: i32) -> String {
    format!("CUDA {}.{}", version / 1000, version % 1000 / 10)
}
