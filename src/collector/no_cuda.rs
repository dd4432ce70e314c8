//! CUDA's driver in a build without the feature `cuda`: it is unavailable, and the reason names the feature.

use super::library::Attempt;
use super::{Collector, DeviceDescription, Unavailable};
use std::path::PathBuf;
use std::sync::Arc;

/// The driver, which this build never opens.
#[derive(Debug)]
pub(crate) enum Driver {}

impl Driver {
    /// Opens nothing.
    ///
    /// # Errors
    /// Always: the feature is off.
    pub(crate) fn open(_attempts: &mut Vec<Attempt>) -> Result<Driver, Unavailable> {
        Err(Unavailable::not_built("cuda"))
    }

    pub(crate) fn version(&self) -> i32 {
        match *self {}
    }

    pub(crate) fn path(&self) -> Option<PathBuf> {
        match *self {}
    }

    pub(crate) fn ids(&self) -> Vec<(i32, String)> {
        match *self {}
    }

    pub(crate) fn devices(&self) -> &[DeviceDescription] {
        match *self {}
    }
}

/// Returns no collector.
///
/// # Errors
/// Always: the feature is off.
pub(crate) fn timers() -> Result<Arc<dyn Collector>, Unavailable> {
    Err(Unavailable::not_built("cuda"))
}

/// Calls `work`, which makes no call of the driver's.
#[cfg(feature = "capi")]
pub(crate) fn inside_init<R>(work: impl FnOnce() -> R) -> R {
    work()
}
