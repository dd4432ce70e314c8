//! Memory: what it is for, where it is, and what of it lived when.

mod category;
mod device;
mod timeline;

pub use category::{Category, UnknownCategory};
pub use device::Device;
pub use timeline::{MemoryAction, MemoryRow, MemoryTimeline};
