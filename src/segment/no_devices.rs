//! Stub of collectors in segments and live files for builds without the feature `devices`: their records are counted, not read.

use super::frame::{FrameKind, FrameWriter};
use super::live::Entries;
use crate::clock::Converter;
use crate::encoding::Encoded;
use crate::time::Ticks;
use crate::trace::{DeviceRecords, WindowSet};
use kineto_base::sorted::SortedSet;
use std::io::{self, Write};

/// The collectors of which a segment has records, by their numbers in the file.
#[derive(Default)]
pub(super) struct StoredDevices(SortedSet<u32>);

/// The blocks of records that a live file has: the collector of each, and when it was moved to disk; 0 if it was not.
#[derive(Debug, Default)]
pub(super) struct LiveBlocks(Vec<(u64, Ticks)>);

/// Writes nothing: this build records no devices. Those of a file that it did not read would be lost.
///
/// # Errors
/// The trace is of such a file.
pub(super) fn write_devices(devices: &DeviceRecords, _frames: &mut FrameWriter<impl Write>) -> io::Result<()> {
    if devices.unread_collectors() == 0 {
        return Ok(());
    }
    let why = "cannot write the records of devices that were not read; enable tracing-kineto's feature `devices` in Cargo.toml";
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

impl StoredDevices {
    /// Notes whose records a frame has; `None` if it makes no sense.
    pub(super) fn add_frame(&mut self, kind: FrameKind, from: &mut &[u8]) -> Option<()> {
        let number = u32::decode(from)?;
        if kind == FrameKind::BLOCK {
            self.0.insert(number);
        }
        *from = &[];
        Some(())
    }

    pub(super) fn into_devices(self) -> DeviceRecords {
        DeviceRecords::of_unread(self.0.len() as u64)
    }
}

impl LiveBlocks {
    /// Notes whose records a block has.
    pub(super) fn add_block(&mut self, of: u64, _place: u64, moved: Ticks, _words: &[u64]) {
        self.0.push((of >> 8, moved));
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
        let is_here = |moved| moved == Ticks(0) || until.is_none_or(|until| moved > until);
        let here = self.0.into_iter().filter(|(_, moved)| is_here(*moved));
        (DeviceRecords::of_unread(here.map(|(of, _)| of).collect::<SortedSet<_>>().len() as u64), 0)
    }
}
