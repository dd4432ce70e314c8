//! The records of a trace that is lost, or of a part of it.

use crate::buffer::Loss;
use crate::text::count_with_noun;
use crate::trace::Trace;
use std::fmt;

/// How many records a trace, or a part of a recording, has, and how many newer ones had replaced before it was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PartCounts {
    records: u64,
    replaced: u64,
}

impl PartCounts {
    /// Counts the records of a trace that no earlier part of its recording has.
    pub(super) fn of_trace(trace: &Trace) -> PartCounts {
        let contents = trace.contents();
        let not_moved = contents.devices.losses().filter(|(loss, _)| *loss == Loss::NotSpilled);
        PartCounts {
            records: contents.recorded.new_record_count() + contents.devices.record_count(),
            replaced: contents.recorded.evicted.unsaved + not_moved.map(|(_, count)| count).sum::<u64>(),
        }
    }

    pub(super) fn add(self, other: PartCounts) -> PartCounts {
        PartCounts { records: self.records + other.records, replaced: self.replaced + other.replaced }
    }
}

impl fmt::Display for PartCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", count_with_noun(self.records, "record"))?;
        if self.replaced > 0 { write!(f, " and {} that newer ones had replaced", self.replaced) } else { Ok(()) }
    }
}
