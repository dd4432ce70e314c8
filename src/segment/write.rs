//! Writes a trace, frame by frame, from where its records are.

use super::frame::{FrameKind, FrameWriter};
use super::header::SegmentHeader;
use crate::buffer::Loss;
use crate::encoding::{Encoded, encode_items, encode_words};
use crate::trace::{Trace, TraceContents, TraceInfo};
use kineto_base::fallible::{List, Set, attempt};
use kineto_devices::{Collection, RecordsPart};
use std::io::{self, Write};

/// Writes a trace as the segment of that number.
pub(super) fn write_trace(trace: &Trace, number: u32, mut out: impl Write) -> io::Result<()> {
    let contents = trace.contents();
    SegmentHeader::of_process(number, contents.start()).write(&mut out)?;
    let mut frames = FrameWriter::new(out, number);
    contents.resolve_stacks()?;
    frames.write_frame(FrameKind::Info, |out| {
        contents.info_with_late().encode(out);
        contents.metadata.encode(out);
    })?;
    frames.write_frame(FrameKind::Clock, |out| contents.converter.encode(out))?;
    frames.write_frame(FrameKind::Host, |out| contents.recorded.encode(out))?;
    for (number, pushed) in (0_u32..).zip(contents.own) {
        let mut write = |kind, encode: &dyn Fn(&mut List<u8>)| {
            frames.write_frame(kind, |out| {
                number.encode(out);
                encode(out);
            })
        };
        write(FrameKind::Pushed, &|out| pushed.without_records().encode(out))?;
        pushed.pieces().try_for_each(|piece| write(FrameKind::PushedPiece, &|out| piece.encode(out)))?;
    }
    for (number, collection) in (0..).zip(contents.devices.collections()) {
        write_collection(number, collection, &mut frames)?;
    }
    for payload in contents.recorded.large_payloads() {
        frames.write_frame(FrameKind::LargePayload, |out| {
            payload.0.encode(out);
            payload.1.encode(out);
        })?;
    }
    contents
        .recorded
        .parts
        .iter()
        .try_for_each(|part| frames.write_frame(FrameKind::Records, |out| part.encode(out)))?;
    frames.write_frame(FrameKind::End, |_| {})
}

/// Writes a collection. Each frame has its number, so that a damaged one does no harm to another collection.
fn write_collection(number: u32, collection: &Collection, frames: &mut FrameWriter<impl Write>) -> io::Result<()> {
    frames.write_frame(FrameKind::Collection, |out| {
        number.encode(out);
        collection.encode(out);
    })?;
    collection.records.write_parts(&|entry, each| collection.visit_args(entry, each), &mut |part| match part {
        RecordsPart::Names(first, names) => frames.write_frame(FrameKind::Names, |out| {
            (number, first).encode(out);
            encode_items(names.iter(), out);
        }),
        RecordsPart::Block(_, []) => Ok(()),
        RecordsPart::Block(arena, words) => frames.write_frame(FrameKind::Block, |out| {
            (number, arena).encode(out);
            encode_words(words.iter().copied(), out);
        }),
    })
}

impl TraceContents<'_> {
    /// Resolves the symbols of all stacks, which only this process can.
    fn resolve_stacks(&self) -> io::Result<()> {
        let addresses: Set<u64> = attempt(|| self.recorded.stack_addresses().collect())?;
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
