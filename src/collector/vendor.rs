//! The vendors whose devices this crate records by itself.

use super::{Collector, Places, Unavailable};
use std::sync::Arc;

/// A vendor's collector, not made yet.
#[derive(Debug)]
pub(crate) struct Vendor {
    /// The collector's name.
    pub(crate) name: &'static str,
    /// The key of the configuration that leaves its devices alone.
    pub(crate) switch: &'static str,
    /// The Cargo feature that its code is in.
    feature: &'static str,
    /// Makes the collector; `None` if the feature is off.
    make: Option<Maker>,
}

/// Makes a vendor's collector, which looks for the vendor's library in these places too.
type Maker = fn(Places) -> Arc<dyn Collector>;

macro_rules! vendor {
    ($name:literal, $switch:literal, $feature:tt, $collector:ident) => {
        Vendor {
            name: $name,
            switch: $switch,
            feature: $feature,
            #[cfg(feature = $feature)]
            make: Some(|places| Arc::new(super::$collector::new(places))),
            #[cfg(not(feature = $feature))]
            make: None,
        }
    };
}

/// All of them, in the order in which they are started.
pub(crate) const VENDORS: [Vendor; 3] = [
    vendor!("cupti", "DISABLE_CUPTI", "cuda", Cupti),
    vendor!("rocm", "DISABLE_ROCM", "rocm", Rocm),
    vendor!("xpu", "DISABLE_XPU", "xpu", Xpu),
];

impl Vendor {
    /// Returns the function that makes the collector.
    ///
    /// # Errors
    /// The collector is not in this build.
    pub(crate) fn maker(&self) -> Result<Maker, Unavailable> {
        self.make.ok_or_else(|| Unavailable::not_built(self.feature))
    }
}
