//! Reads Perfetto's native format: packets of this crate, of PyTorch, and track events of others.
//!
//! Packets may refer to strings and defaults that earlier packets of their sequence define. Tracks may be described after
//! their events, so events get their rows at the end.

mod annotations;
mod clocks;
mod detect;
mod event;
mod finish;
mod flows;
mod gpu;
mod sequence;
#[cfg(test)]
mod tests;
mod tracks;
mod wire;

pub(super) use detect::{PREFIX, is_perfetto};

use super::source::ValueReader;
use crate::activity::ArgValue;
use crate::analysis::events::{Builder, Events, Note, StringId, TrackId};
use crate::analysis::fault::{Cause, Fault};
use crate::analysis::json_reader::Result;
use crate::hash::HashMap;
use crate::write::json_text;
use crate::write::perfetto::fields::{attributes, packet};
use clocks::GlobalClocks;
use event::PacketTime;
use flows::ReadFlows;
use sequence::{PacketSequence, intern_bytes};
use std::io::Read;
use std::time::Duration;
use tracks::{KinetoRow, TrackDescriptions};
use wire::{ProtoMessage, Varint};

/// Builds events from a file.
#[derive(Debug, Default)]
pub(super) struct PerfettoReader {
    builder: Builder,
    clocks: GlobalClocks,
    sequences: HashMap<u64, PacketSequence>,
    descriptions: TrackDescriptions,
    tracks: Vec<LocalTrack>,
    /// The indexes of tracks by their uuid, and of those whose row is known from the event.
    by_uuid: HashMap<u64, u32>,
    by_row: HashMap<(TrackId, TrackId), u32>,
    /// The track met last.
    recent: Option<(u64, u32)>,
    counters: Vec<CounterPoint>,
    flows: ReadFlows,
    loose: Vec<LooseEnd>,
    /// Whether the time limit has passed; then only the ends of slices, descriptions and the header are read.
    is_late: bool,
    /// The number of packets with an event.
    elements: u64,
}

/// A track of the file, which becomes a row of Kineto.
#[derive(Debug)]
struct LocalTrack {
    uuid: u64,
    /// The row, if the events name it themselves.
    row: Option<KinetoRow>,
    /// The slices that have begun, in order of the file.
    open: Vec<OpenSlice>,
}

/// What a slice that has begun becomes.
#[derive(Clone, Copy, Debug)]
enum OpenSlice {
    Event,
    /// A recording, by its index.
    Recording(usize),
    Async,
    /// It began after the time limit.
    LeftOut,
}

/// A value of a counter.
#[derive(Clone, Copy, Debug)]
struct CounterPoint {
    track: u32,
    /// The thread, if it is another one than the track's.
    thread: Option<i64>,
    at: i64,
    value: ArgValue<'static>,
}

/// The end of an arrow that belongs to no event in the file.
#[derive(Clone, Copy, Debug)]
struct LooseEnd {
    track: u32,
    at: i64,
    name: StringId,
    id: u64,
    is_last: bool,
    /// Whether the id is the arrow's, not the flow's.
    is_decoded: bool,
}

/// The fields of a packet that are read.
#[derive(Clone, Copy, Debug, Default)]
struct Packet<'a> {
    time: Option<u64>,
    clock: Option<u64>,
    sequence: u64,
    flags: u64,
    has_loss: bool,
    snapshot: Option<ProtoMessage<'a>>,
    defaults: Option<ProtoMessage<'a>>,
    interned: Option<ProtoMessage<'a>>,
    descriptor: Option<ProtoMessage<'a>>,
    attributes: Option<ProtoMessage<'a>>,
    event: Option<ProtoMessage<'a>>,
    stage: Option<ProtoMessage<'a>>,
    counters: Option<ProtoMessage<'a>>,
    compressed: Option<ProtoMessage<'a>>,
}

impl<'a> Packet<'a> {
    fn read(mut message: ProtoMessage<'a>) -> Result<Packet<'a>> {
        let mut read = Packet::default();
        while let Some((field, value)) = message.next_field()? {
            match field {
                packet::TIMESTAMP => read.time = Some(value.number()),
                packet::CLOCK_ID => read.clock = Some(value.number()),
                packet::SEQUENCE_ID => read.sequence = value.number(),
                packet::SEQUENCE_FLAGS => read.flags = value.number(),
                packet::PREVIOUS_DROPPED => read.has_loss = value.number() != 0,
                packet::CLOCK_SNAPSHOT => read.snapshot = Some(value.message()),
                packet::DEFAULTS => read.defaults = Some(value.message()),
                packet::INTERNED_DATA => read.interned = Some(value.message()),
                packet::TRACK_DESCRIPTOR => read.descriptor = Some(value.message()),
                packet::TRACE_ATTRIBUTES => read.attributes = Some(value.message()),
                packet::TRACK_EVENT => read.event = Some(value.message()),
                packet::GPU_RENDER_STAGE_EVENT => read.stage = Some(value.message()),
                packet::GPU_COUNTER_EVENT => read.counters = Some(value.message()),
                packet::COMPRESSED_PACKETS => read.compressed = Some(value.message()),
                _ => {}
            }
        }
        Ok(read)
    }
}

impl PerfettoReader {
    /// Returns a reader that stops after `limit`.
    pub(super) fn with_time_limit(limit: Option<Duration>) -> PerfettoReader {
        PerfettoReader { builder: Builder::with_time_limit(limit), ..PerfettoReader::default() }
    }

    /// Reads the whole file.
    pub(super) fn read_file(&mut self, source: &mut ValueReader<impl Read>) -> Result<()> {
        while let Some(message) = next_packet(source)? {
            self.read_packet(message, true)?;
            if self.builder.is_full() {
                let cause = Cause::TooLarge("more than four billion events or arguments");
                return Err(Fault::new(cause, source.position()));
            }
        }
        if self.elements == 0 {
            return Err(Fault::new(Cause::NotATrace("it has no track events"), source.position()));
        }
        Ok(())
    }

    pub(super) fn has_events(&self) -> bool {
        !self.builder.events.rows.is_empty()
    }

    /// Records that the file was truncated.
    pub(super) fn cut_off(&mut self) {
        self.builder.events.notes.add(Note::CutOff, 1);
    }

    fn read_packet(&mut self, message: ProtoMessage<'_>, is_outermost: bool) -> Result<()> {
        let packet = Packet::read(message)?;
        if !self.is_late && self.builder.deadline.is_over() {
            self.is_late = true;
            self.builder.events.notes.add(Note::TimeLimit, 1);
        }
        self.read_state(&packet)?;
        if let Some(descriptor) = packet.descriptor {
            self.descriptions.read_descriptor(descriptor)?;
        }
        if let Some(attributes) = packet.attributes {
            self.read_attributes(attributes)?;
        }
        if let Some(compressed) = packet.compressed.filter(|_| is_outermost) {
            self.read_compressed(compressed)?;
        }
        self.read_events(&packet)
    }

    /// Reads what later packets of the sequence refer to.
    fn read_state(&mut self, packet: &Packet<'_>) -> Result<()> {
        let is_cleared = packet.flags & packet::STATE_CLEARED != 0;
        let has_state = packet.snapshot.or(packet.defaults).or(packet.interned).is_some();
        if !is_cleared && !packet.has_loss && !has_state {
            return Ok(());
        }
        let sequence = self.sequences.entry(packet.sequence).or_default();
        if is_cleared {
            sequence.clear();
        } else if packet.has_loss {
            sequence.is_complete = false;
        }
        if let Some(snapshot) = packet.snapshot {
            self.clocks.read_snapshot(snapshot, &mut sequence.clocks)?;
        }
        if let Some(defaults) = packet.defaults {
            sequence.read_defaults(defaults)?;
        }
        if let Some(interned) = packet.interned {
            let events = &mut self.builder.events;
            sequence.read_interned(interned, &mut events.strings, &mut events.notes)?;
        }
        Ok(())
    }

    fn read_events(&mut self, packet: &Packet<'_>) -> Result<()> {
        let has_event = packet.event.or(packet.stage).or(packet.counters).is_some();
        if !has_event && packet.time.is_none() {
            return Ok(());
        }
        self.elements += u64::from(has_event);
        let sequence = self.sequences.entry(packet.sequence).or_default();
        if has_event && packet.flags & packet::NEEDS_STATE != 0 && !sequence.is_complete {
            self.builder.events.notes.add(Note::LostState, 1);
            return Ok(());
        }
        let Some(time) = packet.time else {
            self.builder.events.notes.add(Note::WithoutTime, 1);
            return Ok(());
        };
        let clock = packet.clock.or(sequence.default_clock);
        let at = self.clocks.time_of_packet(clock, time, &mut sequence.clocks);
        let time = PacketTime { sequence: packet.sequence, at };
        if let Some(event) = packet.event {
            self.read_track_event(event, time)?;
        }
        if let Some(stage) = packet.stage {
            self.read_render_stage(stage, time)?;
        }
        packet.counters.map_or(Ok(()), |counters| self.read_gpu_counters(counters, time))
    }

    /// Reads entries of the header.
    fn read_attributes(&mut self, mut message: ProtoMessage<'_>) -> Result<()> {
        while let Some((field, value)) = message.next_field()? {
            if field != attributes::ATTRIBUTE {
                continue;
            }
            let (mut key, mut json, mut attribute) = (String::new(), String::from("null"), value.message());
            while let Some((field, value)) = attribute.next_field()? {
                match field {
                    attributes::KEY => key = String::from_utf8_lossy(value.bytes()).into_owned(),
                    attributes::INT => json = value.signed().to_string(),
                    attributes::STRING => json = json_text(&ArgValue::Str(&String::from_utf8_lossy(value.bytes()))),
                    _ => {}
                }
            }
            self.add_header_entry(key, &json);
        }
        Ok(())
    }

    /// Reads packets that are compressed together.
    fn read_compressed(&mut self, message: ProtoMessage<'_>) -> Result<()> {
        let at = message.position();
        let bytes = inflate(message.bytes()).map_err(|cause| Fault::new(cause, at))?;
        let mut packets = ProtoMessage::new(&bytes, at);
        while let Some((field, value)) = packets.next_field()? {
            if field == packet::PACKET {
                self.read_packet(value.message(), false)?;
            }
        }
        Ok(())
    }

    /// Returns the index of a track, and adds it if it is missing.
    fn local_track(&mut self, uuid: u64) -> u32 {
        if let Some((_, number)) = self.recent.filter(|(recent, _)| *recent == uuid) {
            return number;
        }
        let tracks = &mut self.tracks;
        let number = *self.by_uuid.entry(uuid).or_insert_with(|| {
            tracks.push(LocalTrack { uuid, row: None, open: Vec::new() });
            u32::try_from(tracks.len() - 1).unwrap_or(u32::MAX)
        });
        self.recent = Some((uuid, number));
        number
    }

    /// Returns the index of the track of a known row, and adds it if it is missing.
    fn known_track(&mut self, process: TrackId, thread: TrackId, name: &str) -> u32 {
        let tracks = &mut self.tracks;
        *self.by_row.entry((process, thread)).or_insert_with_key(|(process, thread)| {
            let row = KinetoRow { process: process.clone(), thread: thread.clone(), name: name.to_owned() };
            tracks.push(LocalTrack { uuid: 0, row: Some(row), open: Vec::new() });
            u32::try_from(tracks.len() - 1).unwrap_or(u32::MAX)
        })
    }

    fn open_slice(&mut self, track: u32, slice: OpenSlice) {
        if let Some(track) = self.tracks.get_mut(track as usize) {
            track.open.push(slice);
        }
    }

    fn close_slice(&mut self, track: u32) -> Option<OpenSlice> {
        self.tracks.get_mut(track as usize)?.open.pop()
    }

    /// Returns the index of the next event, before events are sorted.
    fn next_row(&self) -> u32 {
        u32::try_from(self.builder.events.rows.len()).unwrap_or(u32::MAX)
    }

    fn intern(&mut self, bytes: &[u8]) -> StringId {
        let Events { strings, notes, .. } = &mut self.builder.events;
        intern_bytes(bytes, strings, notes)
    }

    fn sequence_text(&mut self, sequence: u64, field: u32, id: u64) -> StringId {
        let notes = &mut self.builder.events.notes;
        match self.sequences.get(&sequence) {
            Some(sequence) => sequence.text(field, id, notes),
            None => StringId::EMPTY,
        }
    }
}

/// The maximum length of the tag and the length before a packet.
const HEAD_MAX: usize = 20;

/// Takes the next packet of a file; `None` at its end.
fn next_packet<R: Read>(source: &mut ValueReader<R>) -> Result<Option<ProtoMessage<'_>>> {
    loop {
        let at = source.position();
        let head = source.peek_bytes(HEAD_MAX)?;
        if head.is_empty() {
            return Ok(None);
        }
        let is_whole = head.len() >= HEAD_MAX;
        let varint = |bytes: &[u8], at: u64| match Varint::read_from(bytes) {
            Varint::Whole(value, length) => Ok((value, length)),
            Varint::Cut if !is_whole => Err(Fault::new(Cause::Truncated, at + bytes.len() as u64)),
            Varint::Cut | Varint::TooLong => Err(Fault::new(Cause::NotProtobuf("a number of 64 bits"), at)),
        };
        let (tag, tag_length) = varint(head, at)?;
        if tag & 7 != 2 || tag >> 3 == 0 {
            return Err(Fault::new(Cause::NotProtobuf("a packet"), at));
        }
        let behind = head.get(tag_length..).unwrap_or_default();
        let (length, length_length) = varint(behind, at + tag_length as u64)?;
        source.take_bytes(tag_length + length_length)?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if tag >> 3 == u64::from(packet::PACKET) {
            let at = source.position();
            return source.take_bytes(length).map(|bytes| Some(ProtoMessage::new(bytes, at)));
        }
        source.take_bytes(length)?;
    }
}

/// The maximum size of packets that are compressed together, in bytes.
#[cfg(feature = "gzip")]
const INFLATED_MAX: usize = 64 << 20;

#[cfg(feature = "gzip")]
fn inflate(bytes: &[u8]) -> std::result::Result<Vec<u8>, Cause> {
    let mut inflated = Vec::new();
    let decoder = flate2::read::ZlibDecoder::new(bytes);
    decoder.take(INFLATED_MAX as u64 + 1).read_to_end(&mut inflated).map_err(Cause::Io)?;
    if inflated.len() > INFLATED_MAX {
        return Err(Cause::TooLarge("compressed packets take more than 64 MiB"));
    }
    Ok(inflated)
}

#[cfg(not(feature = "gzip"))]
fn inflate(_: &[u8]) -> std::result::Result<Vec<u8>, Cause> {
    Err(Cause::Io(std::io::Error::other("compressed packets need the feature `gzip`")))
}
