//! Memory: categories, devices, and timelines of allocations.

mod category;
mod device;
mod timeline;

pub use category::Category;
pub use device::Device;
pub use timeline::{MemoryAction, MemoryRow, MemoryTimeline, TimelineFormat};
