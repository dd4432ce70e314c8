//! Which output file belongs to which layer of this process: two layers with one file would lose a trace.

use crate::os::fork;
use std::path::{Path, PathBuf};

/// A forked child has claimed nothing: its files have its own number.
static CLAIMED: fork::Own<Vec<PathBuf>> = fork::Own::of_first(Vec::new());

/// A file that no other layer of this process may have for its output, until this is dropped.
#[derive(Debug)]
pub(crate) struct OutputClaim(PathBuf);

impl OutputClaim {
    /// Claims a file; `None` if another layer has it.
    pub(crate) fn take(path: &Path) -> Option<OutputClaim> {
        // Components leave out `.` and doubled separators, so that paths of one file compare equal.
        let path: PathBuf = path.components().collect();
        let mut claimed = CLAIMED.lock();
        if claimed.contains(&path) {
            return None;
        }
        claimed.push(path.clone());
        Some(OutputClaim(path))
    }
}

impl Drop for OutputClaim {
    fn drop(&mut self) {
        CLAIMED.lock().retain(|path| *path != self.0);
    }
}
