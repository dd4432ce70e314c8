//! Process-wide state of roctracer's callbacks: the current recording, and the pool.

use super::ffi::PoolHandle;
use super::recording::TracerRecording;
use super::start::Loaded;
use crate::library::lease::OwningProcess;
use kineto_base::os::fork;
use std::sync::{Arc, LazyLock, OnceLock};

/// The hub of the process.
pub(super) static HUB: LazyLock<Hub> = LazyLock::new(Hub::default);

/// State that roctracer's callbacks and the recording share.
#[derive(Debug, Default)]
pub(super) struct Hub {
    /// The current recording and its libraries; none in a forked child, whatever its parent did.
    recording: fork::Own<Option<(TracerRecording, Arc<Loaded>)>>,
    /// The process that recorded first: HIP does not work in a forked child.
    pub(super) owner: OwningProcess,
    /// The pool, once it is made.
    pub(super) pool: OnceLock<PoolHandle>,
}

impl Hub {
    /// Acquires the hub for a recording; returns `false` if another recording holds it.
    pub(super) fn acquire(&self, recording: TracerRecording, loaded: Arc<Loaded>) -> bool {
        let mut held = self.recording.lock();
        let is_free = held.is_none();
        if is_free {
            *held = Some((recording, loaded));
        }
        is_free
    }

    /// Releases the hub: later callbacks do nothing.
    pub(super) fn release(&self) {
        let held = self.recording.lock().take();
        // Drop the recording without holding the lock.
        drop(held);
    }

    /// Calls `act` with the current recording.
    pub(super) fn with_recording<R>(&self, act: impl FnOnce(&mut TracerRecording) -> R) -> Option<R> {
        self.recording.lock().as_mut().map(|(recording, _)| act(recording))
    }

    /// Returns the libraries of the current recording.
    pub(super) fn loaded_libraries(&self) -> Option<Arc<Loaded>> {
        self.recording.lock().as_ref().map(|(_, loaded)| loaded.clone())
    }
}
