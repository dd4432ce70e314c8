//! The vendors whose devices this crate records by itself.

use super::{Collector, Cupti, Places, Rocm, Xpu};
use std::sync::Arc;

/// A vendor's collector, not made yet.
#[derive(Debug)]
pub(crate) struct Vendor {
    /// The collector's name.
    pub(crate) name: &'static str,
    /// The key of the configuration that leaves its devices alone.
    pub(crate) switch: &'static str,
    /// Makes the collector, which looks for the vendor's library in these places too.
    pub(crate) make: fn(Places) -> Arc<dyn Collector>,
}

/// All of them, in the order in which they are started.
pub(crate) const VENDORS: [Vendor; 3] = [
    Vendor { name: "cupti", switch: "DISABLE_CUPTI", make: |places| Arc::new(Cupti::new(places)) },
    Vendor { name: "rocm", switch: "DISABLE_ROCM", make: |places| Arc::new(Rocm::new(places)) },
    Vendor { name: "xpu", switch: "DISABLE_XPU", make: |places| Arc::new(Xpu::new(places)) },
];
