//! How many files of one kind are kept.

use super::super::value::Value;
use std::time::Duration;

/// How many files are kept, how many bytes they may take, and how old they may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetentionLimits {
    pub(crate) files_max: usize,
    pub(crate) bytes_max: u64,
    pub(crate) age_max: Duration,
}

impl RetentionLimits {
    /// Keeps all files.
    pub(crate) const NONE: RetentionLimits =
        RetentionLimits { files_max: usize::MAX, bytes_max: u64::MAX, age_max: Duration::MAX };

    /// Sets how many files are kept.
    pub(super) fn set_files(&mut self, value: &Value) {
        if let Value::Int(count) = value {
            self.files_max = usize::try_from(*count).unwrap_or(usize::MAX);
        }
    }

    /// Sets how many bytes the files may take.
    pub(super) fn set_bytes(&mut self, value: &Value) {
        if let Value::Bytes(bytes) = value {
            self.bytes_max = *bytes;
        }
    }

    /// Sets how old the files may be.
    pub(super) fn set_age(&mut self, value: &Value) {
        if let Value::Duration(age) = value {
            self.age_max = *age;
        }
    }
}
