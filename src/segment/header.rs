//! The header of a segment file.

use super::SegmentFault;
use super::frame::UNIT;
use crate::encoding::{Encoded, encoded};
use crate::os::{platform, process};
use crate::time::Timestamp;
use kineto_base::fallible::{List, attempt};
use std::io::{self, Write};

/// Says which part of which recording a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    /// The number among the recording's segments.
    pub(super) number: u32,
    /// The process: its number, which others may use again, and one that is its own.
    pub(super) process_id: u32,
    pub(super) process_uuid: u128,
    pub(super) boot_id: u128,
    /// When the segment begins.
    pub(super) start: Timestamp,
}

encoded! {
    SegmentHeader { number, process_id, process_uuid, boot_id, start }
}

const MAGIC: [u8; 8] = *b"KINETSEG";

/// Bumped whenever a frame changes: only the same version reads a file.
const VERSION: u32 = 3;

/// The size of a slot of a chunk, for readers in other languages.
const SLOT_BYTES: u32 = 32;

impl SegmentHeader {
    pub(super) const BYTES: usize = 3 * UNIT;
    const CHECKED: usize = SegmentHeader::BYTES - 4;

    /// Returns the header of a segment of this process.
    pub(super) fn of_process(number: u32, start: Timestamp) -> SegmentHeader {
        SegmentHeader {
            number,
            process_id: platform::process_id(),
            process_uuid: process::uuid(),
            boot_id: process::boot_id(),
            start,
        }
    }

    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let bytes = attempt(|| {
            let mut bytes = List::new();
            bytes.extend(MAGIC);
            (VERSION, SLOT_BYTES).encode(&mut bytes);
            self.encode(&mut bytes);
            bytes.resize(SegmentHeader::CHECKED, 0);
            crc32fast::hash(&bytes).encode(&mut bytes);
            bytes
        })?;
        out.write_all(&bytes)
    }

    pub(super) fn read(bytes: &[u8]) -> Result<SegmentHeader, SegmentFault> {
        let mut from = bytes.strip_prefix(&MAGIC).ok_or(SegmentFault::NoSegment)?;
        let (version, slot_bytes) = <(u32, u32)>::decode(&mut from).ok_or(SegmentFault::DamagedHeader)?;
        if (version, slot_bytes) != (VERSION, SLOT_BYTES) {
            return Err(SegmentFault::OtherVersion(version));
        }
        let (checked, mut stored) =
            bytes.split_at_checked(SegmentHeader::CHECKED).ok_or(SegmentFault::DamagedHeader)?;
        // A fuzzer does not find checksums.
        if u32::decode(&mut stored) != Some(crc32fast::hash(checked)) && !cfg!(fuzzing) {
            return Err(SegmentFault::DamagedHeader);
        }
        SegmentHeader::decode(&mut from).ok_or(SegmentFault::DamagedHeader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_survives_and_a_damaged_one_is_refused() {
        let header = SegmentHeader::of_process(3, Timestamp::from_nanos(5));
        let mut file = Vec::new();
        header.write(&mut file).unwrap();
        assert_eq!((file.len(), SegmentHeader::read(&file).unwrap()), (SegmentHeader::BYTES, header));
        for at in 0..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 1;
            assert!(SegmentHeader::read(&damaged).is_err(), "byte {at}");
            assert!(SegmentHeader::read(&file[..at]).is_err(), "cut to {at}");
        }
        file[8] = 9;
        assert!(matches!(SegmentHeader::read(&file), Err(SegmentFault::OtherVersion(9))));
    }
}
