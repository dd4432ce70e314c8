//! What the recording's thread does to roctracer: calls of roctracer may block for long.

use super::ffi::PoolHandle;
use super::hub::HUB;
use super::start::Loaded;
use crate::RecordSink;
use crate::buffered::engine::{BufferedLibrary, Cutoff, LibraryTraits};
use crate::buffered::pool::{Pool, PoolCounts};
use crate::rocm::launches::has_arrived;
use kineto_base::text::count_with_noun;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// roctracer during a recording, which the hub holds. Dropping it releases the hub.
#[derive(Debug)]
pub(super) struct TracerLibrary {
    pub(super) loaded: Arc<Loaded>,
    /// Whether work is recorded, and not calls alone.
    pub(super) records: bool,
    /// The pool of device records, if any are recorded.
    pub(super) pool: Option<PoolHandle>,
    pub(super) sink: RecordSink,
    pub(super) has_failed: bool,
}

/// Empty: roctracer has buffers of its own.
pub(super) static POOL: Pool = Pool::new();

pub(super) const TRAITS: LibraryTraits = LibraryTraits {
    name: "roctracer",
    waits: [Duration::from_micros(200), Duration::from_millis(20), Duration::from_secs(1)],
    needs_flushes: true,
};

impl BufferedLibrary for TracerLibrary {
    fn sink(&self) -> &RecordSink {
        &self.sink
    }

    fn ignore_launches_after(&mut self, _at: u64) {
        HUB.with_recording(|recording| recording.is_ending = true);
    }

    fn flush_buffers(&mut self, _forced: bool) {
        let Some(pool) = self.pool else { return };
        if let Err(error) = self.loaded.api.flush_pool(pool)
            && !std::mem::replace(&mut self.has_failed, true)
        {
            self.sink.note(format!("roctracer_flush_activity_expl: {error}"));
        }
    }

    fn has_records(&mut self, cutoff: &Cutoff) -> bool {
        has_arrived(HUB.with_recording(|recording| recording.pending_counts()).unwrap_or_default(), cutoff)
    }

    fn finish_recording(&mut self, _counts: &PoolCounts, _deadline: Instant) {
        self.loaded.disable_recording(self.records);
        // Records that arrived meanwhile.
        self.flush_buffers(false);
        let [owed, _] = HUB.with_recording(|recording| recording.pending_counts()).unwrap_or_default();
        if owed > 0 {
            let launches = count_with_noun(owed as u64, "launch");
            self.sink.note(format!("{launches} without device work: not ended in time, or failed"));
        }
    }
}

impl Drop for TracerLibrary {
    fn drop(&mut self) {
        // Also after a panic: another recording may acquire the hub.
        self.loaded.disable_recording(self.records);
        HUB.release();
    }
}
