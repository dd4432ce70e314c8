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

/// The collectors of which a live file has records.
#[derive(Debug, Default)]
pub(super) struct LiveBlocks(SortedSet<u64>);

/// Writes nothing: this build records no devices.
pub(super) fn write_devices(_devices: &DeviceRecords, _frames: &mut FrameWriter<impl Write>) -> io::Result<()> {
    Ok(())
}

impl StoredDevices {
    /// Notes whose records a frame has; `None` if it makes no sense.
    pub(super) fn add_frame(&mut self, kind: FrameKind, from: &mut &[u8]) -> Option<()> {
        let number = u32::decode(from)?;
        if kind == FrameKind::Block {
            self.0.insert(number);
        }
        *from = &[];
        Some(())
    }

    pub(super) fn into_devices(self) -> DeviceRecords {
        DeviceRecords::of_unread(self.0.into_iter().count() as u64)
    }
}

impl LiveBlocks {
    /// Notes whose records a block has.
    pub(super) fn add_block(&mut self, of: u64, _place: u64, _moved: Ticks, _words: &[u64]) {
        self.0.insert(of >> 8);
    }

    pub(super) fn read_devices(self, _entries: &Entries<'_>, _until: Option<Ticks>, _damaged: &mut u64) -> LiveBlocks {
        self
    }

    pub(super) fn with_windows(
        self,
        _numbers: &[u64],
        _windows: &mut WindowSet,
        _converter: &Converter,
        _last: Ticks,
    ) -> DeviceRecords {
        DeviceRecords::of_unread(self.0.into_iter().count() as u64)
    }
}
