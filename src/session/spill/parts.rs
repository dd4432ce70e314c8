//! The parts of a recording that were moved to disk: what each holds, and what is lost with it.

use super::{SpillState, SpilledRecording};
use crate::buffer::Loss;
use crate::diag::diag;
use crate::text::count_with_noun;
use crate::trace::Trace;
use std::fmt;
use std::path::PathBuf;

/// A part on disk.
#[derive(Clone, Debug)]
pub(super) struct SegmentFile {
    pub(super) path: PathBuf,
    pub(super) number: u32,
    pub(super) counts: PartCounts,
}

/// How many records a part has, and how many newer ones had replaced before it was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::session) struct PartCounts {
    records: u64,
    replaced: u64,
}

impl PartCounts {
    /// Counts the records of a trace that no earlier part of its recording has.
    pub(in crate::session) fn of_trace(trace: &Trace) -> PartCounts {
        let contents = trace.contents();
        let not_moved = contents.devices.losses().filter(|(loss, _)| *loss == Loss::NotSpilled);
        PartCounts {
            records: contents.recorded.new_record_count() + contents.devices.record_count(),
            replaced: contents.recorded.evicted.unsaved + not_moved.map(|(_, count)| count).sum::<u64>(),
        }
    }

    fn add(self, other: PartCounts) -> PartCounts {
        PartCounts { records: self.records + other.records, replaced: self.replaced + other.replaced }
    }
}

impl fmt::Display for PartCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", count_with_noun(self.records, "record"))?;
        if self.replaced > 0 { write!(f, " and {} that newer ones had replaced", self.replaced) } else { Ok(()) }
    }
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
