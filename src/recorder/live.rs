//! What a recorder notes in the live file of its recording.

use super::Recorder;
use crate::encoding::Encoded;
use crate::live::{JournalKind, LiveFile, LiveOwner};
use crate::time::Ticks;
use std::sync::Arc;

impl Recorder {
    /// Begins to record into a live file, before the recording's first epoch opens.
    pub(crate) fn begin_live(&self, file: Arc<LiveFile>) {
        let slots = file.slot_file();
        // First: what threads add from now on is noted by them.
        drop(self.live().replace(Some(file)));
        self.pool().set_file(Some(slots));
        self.note_tables();
    }

    /// Returns the live file of the recording, which has ended.
    pub(crate) fn take_live(&self) -> Option<LiveOwner> {
        let file = self.live().replace(None);
        file.inspect(|_| self.pool().set_file(None)).map(LiveOwner::new)
    }

    /// Notes all callsites, the lanes that have records in the file or may add some, and the records that outlived their chunks.
    pub(crate) fn note_tables(&self) {
        let Some(live) = self.live().current() else { return };
        self.sites.note_all(&live);
        let ring = &self.buffers().ring;
        self.lanes().note_all(&live, &ring.used_lanes(self.pool()));
        ring.note_retained();
    }

    /// Notes a window of the host.
    pub(crate) fn note_window(&self, epoch: u64, start: Ticks, end: Option<Ticks>) {
        self.live().put(JournalKind::Window, (epoch, 0), |out| (start, end).encode(out));
    }
}
