//! How many files of one kind are kept.

use std::time::Duration;

/// How many files are kept, how many bytes they may take, and how old they may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetentionLimits {
    pub(crate) files_max: usize,
    pub(crate) bytes_max: u64,
    pub(crate) age_max: Duration,
}

/// Keeps all files.
impl Default for RetentionLimits {
    fn default() -> Self {
        RetentionLimits { files_max: usize::MAX, bytes_max: u64::MAX, age_max: Duration::MAX }
    }
}
