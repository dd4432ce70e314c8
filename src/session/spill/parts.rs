//! The parts of a recording that were moved to disk, and what is lost with them.

use super::{SpillState, SpilledRecording};
use crate::diag::diag;
use crate::session::part_counts::PartCounts;
use crate::text::count_with_noun;
use crate::trace::Trace;
use std::path::PathBuf;

/// A part on disk.
#[derive(Clone, Debug)]
pub(super) struct SegmentFile {
    pub(super) path: PathBuf,
    pub(super) number: u32,
    pub(super) counts: PartCounts,
}

impl SpilledRecording {
    /// Removes the parts whose files are gone, and reports what is lost with them.
    pub(super) fn report_gone(&self) {
        // A thread that steps must not wait for the disk.
        let known: Vec<PathBuf> = self.lock().segments.iter().map(|segment| segment.path.clone()).collect();
        let missing: Vec<PathBuf> = known.into_iter().filter(|path| !path.exists()).collect();
        let is_gone = |segment: &mut SegmentFile| missing.contains(&segment.path);
        let gone: Vec<SegmentFile> = self.lock().segments.extract_if(.., is_gone).collect();
        let Some(first) = gone.first() else { return };
        let counts = gone.iter().fold(PartCounts::default(), |all, segment| all.add(segment.counts));
        let (parts, path) = (count_with_noun(gone.len() as u64, "part"), first.path.display());
        diag!(
            Error,
            "spill",
            "{parts} of the recording lost, {counts}: {path} is gone; keep the folder until the program has ended"
        );
    }
}

impl SpillState {
    /// Returns whether no part is left to write: no segment, no unwritten part, and none that is being written.
    pub(super) fn has_no_parts(&self) -> bool {
        self.segments.is_empty() && self.unwritten.is_empty() && !self.is_writing
    }
}

/// Reports that a part has no file, unless a live file keeps its records.
pub(super) fn report_lost(number: u32, trace: &Trace, why: &str) {
    if trace.contents().recorded.keep_live_file() {
        diag!(Error, "spill", "part {number} of the recording was not written: {why}");
        return;
    }
    let counts = PartCounts::of_trace(trace);
    diag!(Error, "spill", "part {number} of the recording is lost, {counts}: {why}");
}
