//! Claims on output files: two layers of a process with one file would lose a trace.
//!
//! Two shared libraries may each contain this crate, with a list of its own, so on Linux a claim is also a lock that all copies see.

use crate::os::fork;
#[cfg(target_os = "linux")]
use crate::os::process_lock::ProcessLock;
use std::path::{Path, PathBuf};

/// A forked child has no claims, because the names of its files contain its process id.
static CLAIMED: fork::Own<Vec<PathBuf>> = fork::Own::of_first(Vec::new());

/// Reserves an output file for one layer of this process, until this is dropped.
#[derive(Debug)]
pub(crate) struct OutputClaim {
    path: PathBuf,
    /// `None` if the system has no such locks.
    #[cfg(target_os = "linux")]
    _lock: Option<ProcessLock>,
}

impl OutputClaim {
    /// Claims a file; `None` if another layer has it, of this copy of the crate or of another.
    pub(crate) fn try_claim(path: &Path) -> Option<OutputClaim> {
        // Components omit `.` and repeated separators, so that paths of one file compare equal.
        let path: PathBuf = path.components().collect();
        let mut claimed = CLAIMED.lock();
        if claimed.contains(&path) {
            return None;
        }
        #[cfg(target_os = "linux")]
        let lock = match ProcessLock::try_lock(path.as_os_str().as_encoded_bytes()) {
            Ok(None) => return None,
            locked => locked.ok().flatten(),
        };
        claimed.push(path.clone());
        Some(OutputClaim {
            path,
            #[cfg(target_os = "linux")]
            _lock: lock,
        })
    }
}

impl Drop for OutputClaim {
    fn drop(&mut self) {
        CLAIMED.lock().retain(|path| *path != self.path);
    }
}
