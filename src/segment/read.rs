//! Reads a trace from the frames of a file, which is untrusted.

use super::Segment;
use super::devices::StoredDevices;
use super::frame::{FrameKind, FrameReader, SegmentFrame};
use super::header::{HeaderFault, SegmentHeader};
use super::live;
use crate::clock::Converter;
use crate::encoding::Encoded;
use crate::recorder::{LargePayload, RecordedPart};
use crate::trace::{Recorded, StoredCpuTrace, Trace, TraceInfo, TraceMetadata};
use kineto_base::fallible::attempt;
use kineto_base::sorted::SortedMap;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

/// Why a file yields no trace.
#[derive(Debug)]
pub(super) enum SegmentFault {
    Io(io::Error),
    Header(HeaderFault),
    /// A table is missing without which the others mean nothing.
    Missing(&'static str),
}

/// The contents of a trace, as far as they were read.
#[derive(Default)]
struct PartialTrace {
    info: Option<(TraceInfo, TraceMetadata)>,
    converter: Option<Converter>,
    recorded: Option<Recorded>,
    parts: Vec<RecordedPart>,
    large_payloads: Vec<(u64, Arc<LargePayload>)>,
    /// By their numbers in the file.
    pushed: SortedMap<u32, StoredCpuTrace>,
    devices: StoredDevices,
    has_end: bool,
}

/// Reads a segment or a live file; the segments of the latter may lie in the folder `near`.
pub(super) fn read_segment(mut file: impl Read, near: Option<&Path>) -> Result<Segment, SegmentFault> {
    let mut header = Vec::new();
    file.by_ref().take(SegmentHeader::BYTES as u64).read_to_end(&mut header)?;
    if live::is_live_file(&header) { live::read_live_file(header, file, near) } else { read_frames(&header, file) }
}

/// Reads a segment whose header was read already.
pub(super) fn read_frames(header: &[u8], file: impl Read) -> Result<Segment, SegmentFault> {
    let header = SegmentHeader::read(header)?;
    let (mut frames, mut contents) = (FrameReader::new(file, header.number), PartialTrace::default());
    let mut unreadable = 0;
    while let Some(frame) = frames.next_frame()? {
        let added = attempt(|| contents.add_frame(frame)).map_err(io::Error::from)?;
        unreadable += u64::from(added.is_none());
    }
    let (lost, is_complete) = (frames.lost, contents.has_end);
    let (trace, strays) = contents.into_trace()?;
    let devices = trace.contents().devices;
    let (unknown_layouts, unread_collectors) = (devices.unknown_layouts(), devices.unread_collectors());
    let SegmentHeader { number, process_id, process_uuid, boot_id, start } = header;
    let segment = Segment {
        trace,
        number,
        process_id,
        process_uuid,
        boot_id,
        start,
        is_complete,
        lost_frames: lost.frames.saturating_add(unreadable).saturating_add(strays),
        lost_bytes: lost.bytes,
        unknown_layouts,
        unread_collectors,
    };
    if !segment.is_whole() {
        segment.trace.contents().metadata.mark_incomplete(&segment.to_string());
    }
    Ok(segment)
}

impl PartialTrace {
    /// Adds the contents of a frame; `None` if it makes no sense, or belongs to a frame that was lost.
    fn add_frame(&mut self, frame: SegmentFrame<'_>) -> Option<()> {
        let from = &mut { frame.body };
        match FrameKind::from_number(frame.kind)? {
            FrameKind::Info => self.info = Some((Encoded::decode(from)?, Encoded::decode(from)?)),
            FrameKind::Clock => self.converter = Some(Encoded::decode(from)?),
            FrameKind::Host => self.recorded = Some(Encoded::decode(from)?),
            FrameKind::Records => self.parts.push(Encoded::decode(from)?),
            FrameKind::LargePayload => self.large_payloads.push(Encoded::decode(from)?),
            FrameKind::Pushed => drop(self.pushed.insert(u32::decode(from)?, Encoded::decode(from)?)),
            FrameKind::PushedPiece => self.pushed.get_mut(&u32::decode(from)?)?.add_piece(from)?,
            kind @ (FrameKind::Collection | FrameKind::Names | FrameKind::Block) => {
                self.devices.add_frame(kind, from)?
            }
            FrameKind::End => self.has_end = true,
        }
        from.is_empty().then_some(())
    }

    /// Makes the trace; also returns how many frames had records that belong to no window.
    fn into_trace(self) -> Result<(Trace, u64), SegmentFault> {
        let (info, metadata) = self.info.ok_or(SegmentFault::Missing("facts about the trace"))?;
        let converter = self.converter.ok_or(SegmentFault::Missing("clock"))?;
        let mut recorded = self.recorded.ok_or(SegmentFault::Missing("table of callsites and threads"))?;
        let strays = recorded.add_stored(self.parts, self.large_payloads);
        let pushed = self.pushed.into_iter().map(|(_, value)| value).map(|pushed| Arc::new(pushed.close())).collect();
        Ok((Trace::new(recorded, self.devices.into_devices(), pushed, converter, Arc::new(metadata), info), strays))
    }
}

impl From<io::Error> for SegmentFault {
    fn from(error: io::Error) -> SegmentFault {
        SegmentFault::Io(error)
    }
}

impl From<HeaderFault> for SegmentFault {
    fn from(fault: HeaderFault) -> SegmentFault {
        SegmentFault::Header(fault)
    }
}
