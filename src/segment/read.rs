//! Reads a trace from the frames of a file, which is untrusted.

use super::devices::StoredDevices;
use super::frame::{FrameKind, FrameReader};
use super::header::SegmentHeader;
use super::{Segment, SegmentFault, live};
use crate::clock::Converter;
use crate::encoding::Encoded;
use crate::recorder::{LargePayload, RecordedPart};
use crate::time::Timestamp;
use crate::trace::{CpuTraceBuilder, Recorded, Trace, TraceInfo, TraceMetadata};
use kineto_base::fallible::attempt;
use kineto_base::sorted::SortedMap;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

/// The contents of a trace, as far as they were read.
#[derive(Default)]
struct PartialTrace {
    info: Option<(TraceInfo, TraceMetadata)>,
    converter: Option<Converter>,
    recorded: Option<Recorded>,
    parts: Vec<RecordedPart>,
    large_payloads: Vec<(u64, Arc<LargePayload>)>,
    /// Builders and their ends, by their numbers in the file.
    pushed: SortedMap<u32, (CpuTraceBuilder, Timestamp)>,
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
    while let Some((kind, body)) = frames.next_frame()? {
        let added = attempt(|| contents.add_frame(kind, body)).map_err(io::Error::from)?;
        unreadable += u64::from(added.is_none());
    }
    let (lost, is_complete) = (frames.lost, contents.has_end);
    let (trace, strays) = contents.into_trace()?;
    let lost_frames = lost.frames.saturating_add(unreadable).saturating_add(strays);
    Ok(Segment::new(trace, header, is_complete, lost_frames, lost.bytes))
}

impl PartialTrace {
    /// Adds the contents of a frame; `None` if it makes no sense, or belongs to a frame that was lost.
    fn add_frame(&mut self, kind: FrameKind, mut body: &[u8]) -> Option<()> {
        let from = &mut body;
        match kind {
            FrameKind::INFO => self.info = Some((Encoded::decode(from)?, Encoded::decode(from)?)),
            FrameKind::CLOCK => self.converter = Some(Encoded::decode(from)?),
            FrameKind::HOST => self.recorded = Some(Encoded::decode(from)?),
            FrameKind::RECORDS => self.parts.push(Encoded::decode(from)?),
            FrameKind::LARGE_PAYLOAD => self.large_payloads.push(Encoded::decode(from)?),
            FrameKind::PUSHED => drop(self.pushed.insert(u32::decode(from)?, Encoded::decode(from)?)),
            FrameKind::PUSHED_PIECE => self.pushed.get_mut(&u32::decode(from)?)?.0.add_piece(from)?,
            FrameKind::COLLECTION | FrameKind::NAMES | FrameKind::BLOCK => self.devices.add_frame(kind, from)?,
            FrameKind::END => self.has_end = true,
            // Of a later version.
            _ => return None,
        }
        from.is_empty().then_some(())
    }

    /// Makes the trace; also returns how many frames had records that belong to no window.
    fn into_trace(self) -> Result<(Trace, u64), SegmentFault> {
        let (info, metadata) = self.info.ok_or(SegmentFault::Missing("facts about the trace"))?;
        let converter = self.converter.ok_or(SegmentFault::Missing("clock"))?;
        let mut recorded = self.recorded.ok_or(SegmentFault::Missing("table of callsites and threads"))?;
        let strays = recorded.add_stored(self.parts, self.large_payloads);
        let pushed = self.pushed.into_iter().map(|(_, (builder, end))| Arc::new(builder.close(end))).collect();
        Ok((Trace::new(recorded, self.devices.into_devices(), pushed, converter, Arc::new(metadata), info), strays))
    }
}
