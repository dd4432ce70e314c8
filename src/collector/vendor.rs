//! The vendors whose devices this crate records: one row for each, and what a vendor's folder says about itself.

use super::{Collector, DeviceDescription, Options, Unavailable};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A vendor's row. It is there in every build; the folder only with its Cargo feature.
#[derive(Debug)]
pub(crate) struct Vendor {
    /// The collector's name.
    pub(crate) name: &'static str,
    /// The key that disables it.
    pub(crate) disabled_by: &'static str,
    /// The Cargo feature of its folder.
    feature: &'static str,
    folder: Option<&'static VendorFolder>,
}

/// What a vendor's folder provides.
#[derive(Debug)]
pub(crate) struct VendorFolder {
    /// Makes the collector, which finds its libraries by these options.
    pub(super) new_collector: fn(&Options) -> Arc<dyn Collector>,
    /// Makes a collector that times spans by the vendor's events, for the fallback mode of GPUs.
    pub(super) new_timers: Option<fn() -> Arc<dyn Collector>>,
    /// Returns warnings about options, when a layer is built.
    pub(super) warnings: fn(&Options) -> Option<&'static str>,
    /// Examines the vendor's driver, for the doctor.
    pub(super) examine: fn(&Surroundings<'_>) -> Examination,
}

impl VendorFolder {
    /// A vendor that has nothing but a collector.
    pub(super) const fn new(new_collector: fn(&Options) -> Arc<dyn Collector>) -> VendorFolder {
        VendorFolder { new_collector, new_timers: None, warnings: |_| None, examine: |_| Examination::default() }
    }
}

/// What a vendor's advice depends on.
#[derive(Debug)]
pub(crate) struct Surroundings<'a> {
    /// The root of the file system, other than `/` in tests.
    pub(crate) root: PathBuf,
    /// The kind of container, if this looks like one.
    pub(crate) container: Option<&'static str>,
    /// Whether this is Linux in Windows.
    pub(crate) is_wsl: bool,
    pub(crate) options: &'a Options,
    /// Whether the collector was examined, rather than disabled by its key.
    pub(crate) is_enabled: bool,
    /// Why the collector cannot record.
    pub(crate) reason: Option<&'a Unavailable>,
    /// The [metadata](super::Capabilities::metadata) of the collector.
    pub(crate) versions: &'a [(String, String)],
    /// The library that the collector uses.
    pub(crate) library: Option<&'a Path>,
}

/// What a vendor found about its driver, and what follows for its collector.
#[derive(Debug, Default)]
pub(crate) struct Examination {
    /// The driver; the collector's devices are listed with it.
    pub(crate) driver: Option<DriverDiagnosis>,
    /// Why the collector records nothing after all.
    pub(crate) refusal: Option<Unavailable>,
    /// Whether the collector is likely to fail unless its records were seen to arrive.
    pub(crate) is_doubtful: bool,
    pub(crate) notes: Vec<String>,
    pub(crate) advice: Vec<String>,
}

/// What was found about a vendor's driver.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DriverDiagnosis {
    /// The vendor, such as "NVIDIA".
    pub vendor: &'static str,
    /// Words such as "cuda" with what was seen; "missing" with the reason if there is no driver.
    pub facts: Vec<(&'static str, String)>,
    /// The devices, each with the id that the vendor's tools show if it is known.
    pub devices: Vec<(DeviceDescription, Option<String>)>,
}

macro_rules! vendor {
    ($name:literal, $disabled_by:literal, $feature:tt, $folder:ident) => {
        Vendor {
            name: $name,
            disabled_by: $disabled_by,
            feature: $feature,
            #[cfg(feature = $feature)]
            folder: Some(&super::$folder::VENDOR),
            #[cfg(not(feature = $feature))]
            folder: None,
        }
    };
}

/// All vendors, in the order in which their collectors are started.
pub(crate) const VENDORS: [Vendor; 3] = [
    vendor!("cupti", "DISABLE_CUPTI", "cuda", cupti),
    vendor!("rocm", "DISABLE_ROCM", "rocm", rocm),
    vendor!("xpu", "DISABLE_XPU", "xpu", xpu),
];

impl Vendor {
    /// Makes the collector.
    ///
    /// # Errors
    /// The collector is not in this build.
    pub(crate) fn collector(&self, options: &Options) -> Result<Arc<dyn Collector>, Unavailable> {
        let folder = self.folder.ok_or_else(|| Unavailable::not_built(self.feature))?;
        Ok((folder.new_collector)(options))
    }

    /// Returns a warning about options that have no effect.
    pub(crate) fn warning(&self, options: &Options) -> Option<&'static str> {
        (self.folder?.warnings)(options)
    }

    /// Examines the driver.
    pub(crate) fn examine(&self, surroundings: &Surroundings<'_>) -> Examination {
        self.folder.map(|folder| (folder.examine)(surroundings)).unwrap_or_default()
    }
}

/// Makes the collector that times spans by a vendor's events, for the fallback mode of GPUs.
///
/// # Errors
/// No vendor in this build has one.
pub(crate) fn timers() -> Result<Arc<dyn Collector>, Unavailable> {
    let timers = VENDORS.iter().find_map(|vendor| vendor.folder?.new_timers);
    timers.map(|new_timers| new_timers()).ok_or_else(|| Unavailable::not_built(VENDORS[0].feature))
}
