//! Writes a trace, part by part, from where its records are.

use super::devices;
use super::parts::PartWriter;
use crate::buffer::Loss;
use crate::clock;
use crate::encoding::{Encoded, encode_words};
use crate::live::{FileHeader, JournalKind, SlotUse};
use crate::trace::{Recorded, Trace, TraceContents, TraceInfo};
use kineto_base::fallible::{Set, attempt};
use std::io::{self, Write};

/// Writes a trace as the segment of that number.
pub(super) fn write_trace(trace: &Trace, number: u32, out: impl Write) -> io::Result<()> {
    let contents = trace.contents();
    let start = contents.converter.timestamp_of(contents.recorded.whole.0);
    let mut parts = PartWriter::begin(out, &FileHeader::of_process(0, number, start))?;
    contents.resolve_stacks()?;
    parts.put(JournalKind::Info, (0, 0), |out| {
        clock::is_counter().encode(out);
        contents.metadata.encode(out);
        contents.info_with_late().encode(out);
    })?;
    parts.put(JournalKind::Sealed, (0, 0), |out| {
        contents.converter.encode(out);
        contents.recorded.encode(out);
    })?;
    // Without these two, nothing else means anything.
    parts.end_journal()?;
    for (number, site) in (0..).zip(&contents.recorded.sites) {
        parts.put(JournalKind::Site, (number, 0), |out| site.encode(out))?;
    }
    for lane in &contents.recorded.lanes {
        parts.put(JournalKind::Lane, (lane.number, 0), |out| lane.encode(out))?;
    }
    for (number, pushed) in (0..).zip(&contents.own) {
        parts.put(JournalKind::Pushed, (number, 0), |out| pushed.without_records().encode(out))?;
        for (at, piece) in (0..).zip(pushed.pieces()) {
            parts.put(JournalKind::PushedPiece, (number, at), piece)?;
            parts.end_journal()?;
        }
    }
    devices::write_devices(&contents.devices, &mut parts)?;
    write_records(&contents.recorded, &mut parts)?;
    parts.end()
}

/// Writes what outlived its chunk, then the chunks.
fn write_records(recorded: &Recorded, parts: &mut PartWriter<impl Write>) -> io::Result<()> {
    for (id, payload) in recorded.large_payloads() {
        parts.put(JournalKind::LargePayload, (*id, 0), |out| payload.encode(out))?;
    }
    for (at, part) in (0..).zip(recorded.parts.iter().filter(|part| part.lane().is_some())) {
        parts.put(JournalKind::Retained, (part.first_id(), at), |out| part.encode(out))?;
    }
    for part in recorded.parts.iter().filter(|part| part.lane().is_none()) {
        let new_from = part.new_from().map_or(0, |at| at as u64 + 1);
        let records = part.records();
        if records.len() == 0 {
            continue;
        }
        parts.put_part(SlotUse::Chunk, [new_from, 0, 0, 0], |out| {
            let first = records.first_id.saturating_sub(1);
            encode_words([records.first_id + records.len() as u64, first, part.epoch(), 0].into_iter(), out);
            encode_words(records.words(), out);
        })?;
    }
    Ok(())
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
