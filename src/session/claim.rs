//! Claims on output files: two layers of a process with one file would lose a trace.

use crate::os::fork;
use std::path::{Path, PathBuf};

/// A forked child has no claims, because the names of its files contain its process id.
static CLAIMED: fork::Own<Vec<PathBuf>> = fork::Own::of_first(Vec::new());

/// Reserves an output file for one layer of this process, until this is dropped.
#[derive(Debug)]
pub(crate) struct OutputClaim(PathBuf);

impl OutputClaim {
    /// Claims a file; `None` if another layer has it.
    pub(crate) fn try_claim(path: &Path) -> Option<OutputClaim> {
        // Components omit `.` and repeated separators, so that paths of one file compare equal.
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
