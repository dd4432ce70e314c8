//! What the thread that reads PTI's buffers does to the library.

use super::ffi::Api;
use super::hub::{HUB, Lease};
use super::reader::Reader;
use super::scope::Sampling;
use crate::RecordSink;
use crate::buffered::engine::{BufferedLibrary, Cutoff, LibraryTraits};
use crate::buffered::kinds::PausableKinds;
use crate::buffered::launches::UnfinishedLaunches;
use crate::buffered::pool::PoolCounts;
use crate::buffered::walk::Records;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a pause polls for the end of earlier launches.
const MAX_PAUSE_POLLS: u32 = 12;

/// PTI during a recording.
///
/// It notices the end of a kernel only when the program waits for it. The program's devices are never synchronized, so
/// kernels that it has not waited for by the end have no record.
#[derive(Debug)]
pub(super) struct PtiLibrary {
    pub(super) api: &'static Api,
    pub(super) views: Arc<PausableKinds>,
    pub(super) reader: Reader,
    pub(super) sampling: Option<Sampling>,
    pub(super) _lease: Lease,
}

/// PTI flushes by itself, and a flush disables views.
pub(super) const TRAITS: LibraryTraits = LibraryTraits {
    name: "PTI",
    waits: [Duration::from_millis(1), Duration::from_millis(50), Duration::from_millis(50)],
    needs_flushes: false,
};

impl BufferedLibrary for PtiLibrary {
    fn sink(&self) -> &RecordSink {
        self.reader.sink()
    }

    fn unfinished_launches(&mut self) -> Option<&mut UnfinishedLaunches> {
        Some(&mut self.reader.launches)
    }

    fn flush_buffers(&mut self, _forced: bool) {
        if let Err(error) = self.api.flush_buffers() {
            // Their records arrive when the buffers are full, or are counted as missing.
            self.sink().note(format!("PTI failed to flush its buffers, so records are missing: {error}"));
        }
    }

    fn read_buffer(&mut self, bytes: &[u8]) {
        self.reader.read_buffer(bytes, self.api);
    }

    fn count_records(&self, bytes: &[u8]) -> u64 {
        Records::new(bytes, self.api).count() as u64
    }

    /// Samples metrics only while views record.
    fn poll(&mut self) {
        if let Some(sampling) = &mut self.sampling {
            sampling.follow_views(self.views.are_enabled(), self.reader.sink());
        }
    }

    fn has_records(&mut self, _cutoff: &Cutoff) -> bool {
        // PTI may deliver flushed buffers on its own thread.
        self.reader.launches.unfinished_count() == 0 && !HUB.pool.holds_records(u64::MAX)
    }

    fn can_suspend(&mut self, cutoff: &Cutoff) -> bool {
        self.reader.launches.unfinished_count() == 0 || cutoff.polls >= MAX_PAUSE_POLLS
    }

    fn finish_recording(&mut self, _counts: &PoolCounts, _deadline: Instant) {
        if let Some(sampling) = self.sampling.take() {
            sampling.stop_and_deliver(&mut self.reader);
        }
        self.reader.finish_recording();
    }
}
