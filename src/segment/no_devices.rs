//! Stub of collectors in segments and live files for builds without the feature `devices`: their records are counted, not read.

use super::parts::PartWriter;
use super::read::Entries;
use crate::clock::Converter;
use crate::time::Ticks;
use crate::trace::{DeviceRecords, WindowSet};
use kineto_base::sorted::SortedSet;
use std::io::{self, Write};

/// The blocks of records that a file has: the collector of each, and when it was moved to disk; 0 if it was not.
#[derive(Debug, Default)]
pub(super) struct StoredBlocks(Vec<(u64, Ticks)>);

/// Writes nothing: this build records no devices. Those of a file that it did not read would be lost.
///
/// # Errors
/// The trace is of such a file.
pub(super) fn write_devices(devices: &DeviceRecords, _parts: &mut PartWriter<impl Write>) -> io::Result<()> {
    if devices.unread_collectors() == 0 {
        return Ok(());
    }
    let why = "cannot write the records of devices that were not read; enable tracing-kineto's feature `devices` in Cargo.toml";
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

impl StoredBlocks {
    /// Notes whose records a block has.
    pub(super) fn add_block(&mut self, of: u64, _place: u64, moved: Ticks, _words: &[u64]) {
        self.0.push((of >> 8, moved));
    }

    /// Counts the collectors of the blocks of a segment.
    pub(super) fn into_sealed(self, _entries: &Entries<'_>, _damaged: &mut u64) -> DeviceRecords {
        self.count_unread(None)
    }

    /// Counts the collectors of the blocks that were not moved to disk `until` that time.
    pub(super) fn into_devices(
        self,
        _entries: &Entries<'_>,
        (until, _last): (Option<Ticks>, Ticks),
        _numbers: &[u64],
        _windows: &mut WindowSet,
        _converter: &Converter,
    ) -> (DeviceRecords, u64) {
        (self.count_unread(until), 0)
    }

    fn count_unread(self, until: Option<Ticks>) -> DeviceRecords {
        let is_here = |moved| moved == Ticks(0) || until.is_none_or(|until| moved > until);
        let here = self.0.into_iter().filter(|(_, moved)| is_here(*moved));
        DeviceRecords::of_unread(here.map(|(of, _)| of).collect::<SortedSet<_>>().len() as u64)
    }
}
