//! Stub of the program's own collectors for builds without the feature `devices`.

use crate::config::{Config, Mode};
use crate::diag::diag;
use kineto_devices::CollectorSet;

/// The program's own collectors: none.
#[derive(Default)]
pub(super) struct OwnCollectors;

impl OwnCollectors {
    /// Returns no collectors. Warns about modes that select them.
    pub(super) fn build_set(self, config: &Config) -> CollectorSet {
        let fallback = [Mode::KinetoGpuFallback, Mode::KinetoPrivateUse1Fallback];
        if let Some(mode) = fallback.into_iter().find(|mode| config.mode.contains(*mode)) {
            diag!(
                Warning,
                "config",
                "the mode {} needs tracing-kineto's feature `devices`, which is off; enable it in Cargo.toml, or use the mode kineto",
                mode.as_str()
            );
        }
        CollectorSet::default()
    }
}
