//! Stub of CUDA's driver for builds without the feature `cuda`; the reason names the feature.

use super::Unavailable;
use super::library::Attempt;

/// The driver, which this build cannot open.
#[derive(Debug)]
pub(crate) enum Driver {}

impl Driver {
    /// Fails.
    ///
    /// # Errors
    /// Always: the feature is off.
    pub(crate) fn open(_attempts: &mut Vec<Attempt>) -> Result<Driver, Unavailable> {
        Err(Unavailable::not_built("cuda"))
    }
}

/// Calls `work`.
pub fn inside_init<R>(work: impl FnOnce() -> R) -> R {
    work()
}
