//! The table of supported vendors, and the interface of a vendor's module.

use super::registry::NamedLayout;
use super::{Collector, DeviceDescription, Options, Unavailable};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A vendor's row in the table. Every build has it; the module needs its Cargo feature.
#[derive(Debug)]
pub struct Vendor {
    /// The name of its first collector.
    pub name: &'static str,
    /// The configuration key that disables its collectors.
    pub disabled_by: &'static str,
    /// The Cargo feature of its module.
    feature: &'static str,
    folder: Option<&'static VendorFolder>,
}

/// The interface of a vendor's module.
#[derive(Debug)]
pub(crate) struct VendorFolder {
    /// The layouts of its records.
    pub(super) layouts: &'static [&'static [NamedLayout]],
    /// Makes the collectors, which find their libraries by these options. The examination concerns the first; further ones
    /// are [optional](Collector::is_optional).
    pub(super) new_collectors: fn(&Options) -> Vec<Arc<dyn Collector>>,
    /// Makes a collector that times spans by device events, for the fallback mode of GPUs.
    pub(super) new_timers: Option<fn() -> Arc<dyn Collector>>,
    /// Returns a warning about options, when a layer is built.
    pub(super) warnings: fn(&Options) -> Option<&'static str>,
    /// Examines the vendor's driver for `kineto doctor`.
    pub(super) examine: fn(&ExamineContext<'_>) -> Examination,
}

impl VendorFolder {
    /// Makes a vendor that has nothing but collectors.
    pub(super) const fn new(
        layouts: &'static [&'static [NamedLayout]],
        new_collectors: fn(&Options) -> Vec<Arc<dyn Collector>>,
    ) -> VendorFolder {
        let examine = |_: &ExamineContext<'_>| Examination::default();
        VendorFolder { layouts, new_collectors, new_timers: None, warnings: |_| None, examine }
    }
}

/// The inputs of a vendor's examination.
#[derive(Debug)]
pub struct ExamineContext<'a> {
    /// The root of the file system; not `/` in tests.
    pub root: PathBuf,
    /// The kind of container, if this looks like one.
    pub container: Option<&'static str>,
    /// Whether this is Linux on WSL.
    pub is_wsl: bool,
    /// The settings of collectors.
    pub options: &'a Options,
    /// Whether the collector was examined, rather than disabled by its key.
    pub is_enabled: bool,
    /// Why the collector cannot record.
    pub reason: Option<&'a Unavailable>,
    /// The [metadata](super::Capabilities::metadata) of the collector.
    pub versions: &'a [(String, String)],
    /// The library that the collector uses.
    pub library: Option<&'a Path>,
}

/// A vendor's findings about its driver and collector.
#[derive(Debug, Default)]
pub struct Examination {
    /// The driver; the collector's devices are listed with it.
    pub driver: Option<DriverDiagnosis>,
    /// Why the collector cannot record after all.
    pub refusal: Option<Unavailable>,
    /// Whether the collector probably fails unless its records were seen to arrive.
    pub is_doubtful: bool,
    /// Findings, as sentences.
    pub notes: Vec<String>,
    /// What to do about them.
    pub advice: Vec<String>,
}

/// Findings about a vendor's driver.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DriverDiagnosis {
    /// The vendor, such as "NVIDIA".
    pub vendor: &'static str,
    /// Findings by label, such as "cuda"; "missing" with the reason if there is no driver.
    pub facts: Vec<(&'static str, String)>,
    /// The devices, each with the id that the vendor's tools show, if known.
    pub devices: Vec<(DeviceDescription, Option<String>)>,
}

impl DriverDiagnosis {
    /// Creates the diagnosis of a vendor's driver, without findings.
    pub fn new(vendor: &'static str) -> DriverDiagnosis {
        DriverDiagnosis { vendor, facts: Vec::new(), devices: Vec::new() }
    }
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

/// All vendors, in the order in which their collectors are started. A constant would compile their collectors wherever it is used.
pub static VENDORS: [Vendor; 3] = [
    vendor!("cupti", "DISABLE_CUPTI", "cuda", cupti),
    vendor!("rocm", "DISABLE_ROCM", "rocm", rocm),
    vendor!("xpu", "DISABLE_XPU", "xpu", xpu),
];

impl Vendor {
    /// Makes the collectors.
    ///
    /// # Errors
    /// The collectors are not in this build.
    pub fn make_collectors(&self, options: &Options) -> Result<Vec<Arc<dyn Collector>>, Unavailable> {
        let folder = self.folder.ok_or_else(|| Unavailable::not_built(self.feature))?;
        Ok((folder.new_collectors)(options))
    }

    /// Returns a warning about options that have no effect.
    pub fn options_warning(&self, options: &Options) -> Option<&'static str> {
        (self.folder?.warnings)(options)
    }

    /// Examines the driver.
    pub fn examine(&self, context: &ExamineContext<'_>) -> Examination {
        self.folder.map(|folder| (folder.examine)(context)).unwrap_or_default()
    }
}

/// Returns the layouts of the vendors in this build.
pub(super) fn vendor_layouts() -> impl Iterator<Item = &'static NamedLayout> {
    VENDORS.iter().filter_map(|vendor| vendor.folder).flat_map(|folder| folder.layouts).copied().flatten()
}

/// Makes the collector that times spans by a vendor's events, for the fallback mode of GPUs.
///
/// # Errors
/// No vendor in this build has one.
pub fn make_fallback_timers() -> Result<Arc<dyn Collector>, Unavailable> {
    let timers = VENDORS.iter().find_map(|vendor| vendor.folder?.new_timers);
    timers.map(|new_timers| new_timers()).ok_or_else(|| Unavailable::not_built(VENDORS[0].feature))
}
