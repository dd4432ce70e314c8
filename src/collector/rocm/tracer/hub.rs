//! What there is one of in a process, since roctracer has one table of callbacks: who records, and the pool.

use super::ffi::PoolHandle;
use super::recording::TracerRecording;
use super::start::Loaded;
use crate::collector::lease::OwningProcess;
use crate::os::fork;
use std::sync::{Arc, LazyLock, OnceLock};

/// The one hub.
pub(super) static HUB: LazyLock<Hub> = LazyLock::new(Hub::default);

/// The one place where roctracer's callbacks and the recording meet.
#[derive(Debug, Default)]
pub(super) struct Hub {
    /// The recording under way with the libraries that it uses: none in a forked child, whatever its parent did.
    recording: fork::Own<Option<(TracerRecording, Arc<Loaded>)>>,
    /// The process that recorded first: a forked child has no HIP.
    pub(super) owner: OwningProcess,
    /// The pool, once there is one.
    pub(super) pool: OnceLock<PoolHandle>,
}

impl Hub {
    /// Takes the hub for a recording; `false` if another one has it.
    pub(super) fn take(&self, recording: TracerRecording, loaded: Arc<Loaded>) -> bool {
        let mut held = self.recording.lock();
        let is_free = held.is_none();
        if is_free {
            *held = Some((recording, loaded));
        }
        is_free
    }

    /// Gives it up: callbacks that come from now on do nothing.
    pub(super) fn release(&self) {
        let held = self.recording.lock().take();
        // Not under the lock.
        drop(held);
    }

    /// Does something with the recording under way.
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut TracerRecording) -> R) -> Option<R> {
        self.recording.lock().as_mut().map(|(recording, _)| act(recording))
    }

    /// Returns the libraries that the recording under way uses.
    pub(super) fn loaded(&self) -> Option<Arc<Loaded>> {
        self.recording.lock().as_ref().map(|(_, loaded)| loaded.clone())
    }
}
