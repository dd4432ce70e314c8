//! How many files of one kind are kept.

use super::super::value::Value;

/// How many files are kept, and how many bytes they may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetentionLimits {
    pub(crate) files_max: usize,
    pub(crate) bytes_max: u64,
}

impl RetentionLimits {
    /// Keeps all files.
    pub(crate) const NONE: RetentionLimits = RetentionLimits { files_max: usize::MAX, bytes_max: u64::MAX };

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
}
