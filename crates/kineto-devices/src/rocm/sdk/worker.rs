//! What the recording's thread does to rocprofiler-sdk.

use super::hub::Hub;
use crate::buffered::commands::ReaderCommands;
use crate::buffered::engine::{BufferedLibrary, Cutoff, LibraryTraits, ReaderThread};
use crate::buffered::kinds::PausableKinds;
use crate::buffered::pool::{Pool, PoolCounts};
use crate::rocm::launches::has_arrived;
use crate::{RecordSink, Unavailable};
use kineto_base::text::count_with_noun;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// rocprofiler-sdk during a recording, which the hub holds. Dropping it releases the hub.
#[derive(Debug)]
struct SdkLibrary {
    hub: &'static Hub,
    sink: RecordSink,
    is_stopped: bool,
}

/// Empty: the library has a buffer of its own, which it flushes itself.
static POOL: Pool = Pool::new();

const TRAITS: LibraryTraits = LibraryTraits {
    name: "rocprofiler-sdk",
    waits: [Duration::from_micros(200), Duration::from_millis(20), Duration::from_secs(1)],
    needs_flushes: false,
};

/// Starts the thread of the hub's recording.
///
/// # Errors
/// The operating system refuses a thread; the recording has ended.
pub(super) fn spawn_thread(hub: &'static Hub, sink: RecordSink) -> Result<Arc<ReaderCommands>, Unavailable> {
    let (commands, kinds) = (Arc::new(ReaderCommands::new(&POOL)), Arc::new(PausableKinds::none()));
    let library = Box::new(SdkLibrary { hub, sink, is_stopped: false });
    ReaderThread::spawn("kineto-rocm", TRAITS, &POOL, &commands, &kinds, library)?;
    Ok(commands)
}

impl BufferedLibrary for SdkLibrary {
    fn sink(&self) -> &RecordSink {
        &self.sink
    }

    fn ignore_launches_after(&mut self, at: u64) {
        self.hub.with_reader(|reader| reader.ignore_launches_after(at));
    }

    fn flush_buffers(&mut self, _forced: bool) {
        self.hub.flush_buffer();
    }

    fn has_records(&mut self, cutoff: &Cutoff) -> bool {
        self.hub.is_final() || has_arrived(self.hub.pending_counts(), cutoff)
    }

    fn finish_recording(&mut self, _counts: &PoolCounts, _deadline: Instant) {
        self.is_stopped = true;
        self.hub.stop_context();
        // Records that arrived meanwhile.
        self.hub.flush_all();
        let [owed, _] = self.hub.pending_counts();
        if owed > 0 {
            let launches = count_with_noun(owed as u64, "launch");
            self.sink.note(format!("not ended by the time limit: {launches}, whose work is missing"));
        }
    }
}

impl Drop for SdkLibrary {
    fn drop(&mut self) {
        // After a panic the context still runs.
        if !self.is_stopped {
            self.hub.stop_context();
        }
        self.hub.release();
    }
}
