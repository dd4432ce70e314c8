//! The process-wide state of CUPTI's profiler: one recording at a time, and one initialisation.

use super::ffi::{CallFailure, ProfilerApi};
use crate::library::lease::{ExclusiveLease, OwningProcess};

/// The exclusive use of the profiler, released on drop.
///
/// The library does not count initialisations and crashes at the second end of one. So only the lease's holder
/// initialises the profiler, once.
#[derive(Debug)]
pub(crate) struct ProfilerLease {
    /// Whose profiler to deinitialise.
    initialized: Option<&'static ProfilerApi>,
}

static LEASE: ExclusiveLease = ExclusiveLease::new();
/// The process that used the profiler first: CUDA does not work in a forked child.
pub(crate) static OWNER: OwningProcess = OwningProcess::new();

impl ProfilerLease {
    /// Acquires the lease; returns `None` if another recording holds it.
    pub(crate) fn acquire() -> Option<ProfilerLease> {
        LEASE.try_acquire().then(|| ProfilerLease { initialized: None })
    }

    /// Initialises the profiler until the lease is dropped.
    pub(crate) fn initialize(&mut self, api: &'static ProfilerApi) -> Result<(), CallFailure> {
        if self.initialized.is_none() {
            api.initialize_profiler()?;
            self.initialized = Some(api);
        }
        Ok(())
    }
}

impl Drop for ProfilerLease {
    fn drop(&mut self) {
        if let Some(api) = self.initialized {
            api.deinitialize_profiler();
        }
        LEASE.release();
    }
}
