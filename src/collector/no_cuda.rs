//! CUDA's driver in a build without the feature `cuda`: it is unavailable, and the reason names the feature.

use super::Unavailable;
use super::library::Attempt;

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
}

/// Calls `work`, which makes no call of the driver's.
#[cfg(feature = "capi")]
pub(crate) fn inside_init<R>(work: impl FnOnce() -> R) -> R {
    work()
}
