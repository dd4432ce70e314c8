//! Stub of the program's own collectors for builds without the feature `devices`.

use crate::config::Config;
use kineto_devices::CollectorSet;

/// The program's own collectors: none.
#[derive(Default)]
pub(super) struct OwnCollectors;

impl OwnCollectors {
    /// Returns no collectors.
    pub(super) fn build_set(self, _config: &Config) -> CollectorSet {
        CollectorSet::default()
    }
}
