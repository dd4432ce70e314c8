//! Writes a trace, frame by frame, from where its records are.

use super::devices;
use super::frame::{FrameKind, FrameWriter};
use super::header::SegmentHeader;
use crate::buffer::Loss;
use crate::encoding::Encoded;
use crate::trace::{Trace, TraceContents, TraceInfo};
use kineto_base::fallible::{List, Set, attempt};
use std::io::{self, Write};

/// Writes a trace as the segment of that number.
pub(super) fn write_trace(trace: &Trace, number: u32, mut out: impl Write) -> io::Result<()> {
    let contents = trace.contents();
    SegmentHeader::of_process(number, contents.converter.timestamp_of(contents.recorded.whole.0)).write(&mut out)?;
    let mut frames = FrameWriter::new(out, number);
    contents.resolve_stacks()?;
    frames.write_frame(FrameKind::INFO, |out| {
        contents.info_with_late().encode(out);
        contents.metadata.encode(out);
    })?;
    frames.write_frame(FrameKind::CLOCK, |out| contents.converter.encode(out))?;
    frames.write_frame(FrameKind::HOST, |out| contents.recorded.encode(out))?;
    for (number, pushed) in (0_u32..).zip(&contents.own) {
        let mut write = |kind, encode: &dyn Fn(&mut List<u8>)| {
            frames.write_frame(kind, |out| {
                number.encode(out);
                encode(out);
            })
        };
        write(FrameKind::PUSHED, &|out| pushed.without_records().encode(out))?;
        pushed.pieces().try_for_each(|piece| write(FrameKind::PUSHED_PIECE, &piece))?;
    }
    devices::write_devices(&contents.devices, &mut frames)?;
    for payload in contents.recorded.large_payloads() {
        frames.write_frame(FrameKind::LARGE_PAYLOAD, |out| {
            payload.0.encode(out);
            payload.1.encode(out);
        })?;
    }
    contents
        .recorded
        .parts
        .iter()
        .try_for_each(|part| frames.write_frame(FrameKind::RECORDS, |out| part.encode(out)))?;
    frames.write_frame(FrameKind::END, |_| {})
}

impl TraceContents {
    /// Resolves the symbols of all stacks, which only this process can.
    fn resolve_stacks(&self) -> io::Result<()> {
        let mut addresses: Set<u64> = Set::default();
        attempt(|| self.recorded.visit_stack_addresses(&mut |address| _ = addresses.insert(address)))?;
        addresses.iter().for_each(|address| self.info.symbols.resolve_address(*address));
        Ok(())
    }

    /// Returns the facts; the losses include the records that threads committed after the end.
    fn info_with_late(&self) -> TraceInfo {
        let mut info = self.info.clone();
        let late = info.losses.get_mut(Loss::Late as usize);
        if let Some(late) = late {
            *late = late.saturating_add(self.recorded.committed_late());
        }
        info
    }
}
