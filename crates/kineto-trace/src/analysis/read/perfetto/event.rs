//! Track events: slices, instants and counters.

use super::annotations::{annotation_as_json, store_annotation};
use super::flows::RawFlowEnd;
use super::wire::ProtoMessage;
use super::{CounterPoint, LooseEnd, OpenSlice, PerfettoReader};
use crate::activity::ArgValue;
use crate::analysis::events::{ArgumentRange, EventDraft, Events, Note, Pairing, Phase, StringId};
use crate::analysis::json_reader::Result;
use crate::analysis::json_reader::{Json, JsonValue};
use crate::write::chrome::{INCOMPLETE, spaced_rank};
use crate::write::perfetto::fields::{event, interned};
use crate::write::perfetto::{
    ABOUT_FILE, COUNTER_THREAD, FLOW_SEED, TRACE_METADATA, WINDOW_END, decode_flow_id, flow_kind_of_name,
};

/// The sequence and the time of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketTime {
    pub(super) sequence: u64,
    /// In nanoseconds since 1970.
    pub(super) at: i64,
}

/// The fields of a track event but its annotations.
#[derive(Clone, Debug, Default)]
struct TrackEvent {
    kind: u64,
    name: StringId,
    category: StringId,
    track: u64,
    value: Option<ArgValue<'static>>,
    has_flows: bool,
}

impl PerfettoReader {
    pub(super) fn read_track_event(&mut self, message: ProtoMessage<'_>, time: PacketTime) -> Result<()> {
        let read = self.read_fields(message, time.sequence)?;
        let track = self.local_track(read.track);
        match read.kind {
            event::SLICE_BEGIN => self.begin_slice(&read, message, track, time)?,
            event::SLICE_END => self.end_slice(message, track, time)?,
            event::INSTANT => self.add_instant(&read, message, track, time)?,
            event::COUNTER => {
                if let Some(value) = read.value.filter(|_| !self.is_late) {
                    let thread = self.counter_thread(message, time.sequence)?;
                    self.counters.push(CounterPoint { track, thread, at: time.at, value });
                }
            }
            _ => self.builder.events.notes.add(Note::OtherPhase, 1),
        }
        Ok(())
    }

    /// Reads all fields but annotations and flows.
    fn read_fields(&mut self, mut message: ProtoMessage<'_>, sequence: u64) -> Result<TrackEvent> {
        let track = self.sequences.get(&sequence).map_or(0, |sequence| sequence.default_track);
        let mut read = TrackEvent { track, ..TrackEvent::default() };
        while let Some((field, value)) = message.next_field()? {
            match field {
                event::TYPE => read.kind = value.number(),
                event::TRACK_UUID => read.track = value.number(),
                event::NAME_ID => read.name = self.sequence_text(sequence, interned::NAMES, value.number()),
                event::NAME => read.name = self.intern(value.bytes()),
                event::CATEGORY_IDS => {
                    let category = self.sequence_text(sequence, interned::CATEGORIES, value.number());
                    self.add_category(&mut read.category, category);
                }
                event::CATEGORIES => {
                    let category = self.intern(value.bytes());
                    self.add_category(&mut read.category, category);
                }
                event::COUNTER_VALUE => read.value = Some(ArgValue::I64(value.signed())),
                event::DOUBLE_COUNTER_VALUE => read.value = Some(ArgValue::F64(value.double())),
                event::FLOW_IDS | event::TERMINATING_FLOW_IDS => read.has_flows = true,
                _ => {}
            }
        }
        Ok(read)
    }

    /// Adds a category to those of an event; several are joined with commas, as in Chrome's JSON.
    fn add_category(&mut self, category: &mut StringId, new: StringId) {
        let strings = &mut self.builder.events.strings;
        if *category == StringId::EMPTY {
            *category = new;
        } else {
            let both = format!("{},{}", strings.get(*category), strings.get(new));
            *category = strings.intern(&both);
        }
    }

    fn begin_slice(
        &mut self,
        read: &TrackEvent,
        message: ProtoMessage<'_>,
        track: u32,
        time: PacketTime,
    ) -> Result<()> {
        if self.is_late {
            self.open_slice(track, OpenSlice::LeftOut);
            return Ok(());
        }
        if read.category == StringId::TRACE {
            self.open_slice(track, OpenSlice::Recording(self.builder.recorded.rows.len()));
            self.builder.recorded.rows.push((read.name, time.at, time.at));
            return Ok(());
        }
        let mark = self.builder.events.arguments.current_mark();
        let arguments = self.store_annotations(message, time.sequence)?;
        if read.category == StringId::ASYNC && self.builder.events.arguments.get(arguments, StringId::SPAN).is_some() {
            self.builder.async_span_of(arguments, None);
            self.builder.events.arguments.rewind_to(mark);
            self.builder.events.notes.add(Note::AsyncTrack, 1);
            self.open_slice(track, OpenSlice::Async);
            return Ok(());
        }
        let category = self.category_of(read.category, arguments);
        self.open_slice(track, OpenSlice::Event);
        self.read_flows(message)?;
        let (phase, start, name) = (Phase::Slice, time.at, read.name);
        self.builder.push(&EventDraft { phase, track, start, end: None, category, name, arguments, external: None });
        Ok(())
    }

    /// Returns the category of an event. PyTorch writes none for waits.
    fn category_of(&mut self, category: StringId, arguments: ArgumentRange) -> StringId {
        let events = &mut self.builder.events;
        if category != StringId::EMPTY {
            return category;
        }
        let kind = events.strings.find(b"cuda_sync_kind");
        let is_wait = kind.is_some_and(|kind| events.arguments.get(arguments, kind).is_some());
        if is_wait { events.strings.intern("cuda_sync") } else { category }
    }

    fn end_slice(&mut self, message: ProtoMessage<'_>, track: u32, time: PacketTime) -> Result<()> {
        match self.close_slice(track) {
            Some(OpenSlice::LeftOut) => {}
            Some(OpenSlice::Async) => self.builder.events.notes.add(Note::AsyncTrack, 1),
            Some(OpenSlice::Recording(index)) => {
                if let Some((_, start, end)) = self.builder.recorded.rows.get_mut(index) {
                    *end = time.at.max(*start);
                }
            }
            Some(OpenSlice::Event) | None => {
                let arguments = self.store_annotations(message, time.sequence)?;
                self.builder.end_slice(track, Pairing::default(), time.at, arguments);
            }
        }
        Ok(())
    }

    fn add_instant(
        &mut self,
        read: &TrackEvent,
        message: ProtoMessage<'_>,
        track: u32,
        time: PacketTime,
    ) -> Result<()> {
        let name = self.builder.events.strings.get(read.name);
        let has_category = read.category != StringId::EMPTY;
        if !has_category && name == TRACE_METADATA {
            return self.read_metadata(message, time.sequence);
        }
        if self.is_late {
            return Ok(());
        }
        if !has_category && name.starts_with("Iteration Start: ") {
            self.builder.recorded.add_start(time.at);
            return Ok(());
        }
        if !has_category && read.has_flows && flow_kind_of_name(name).is_some() {
            return self.add_loose_ends_of(read.name, message, (track, time.at));
        }
        let arguments = self.store_annotations(message, time.sequence)?;
        self.read_flows(message)?;
        let (phase, start, end) = (Phase::Instant, time.at, Some(time.at));
        let (category, name) = (read.category, read.name);
        self.builder.push(&EventDraft { phase, track, start, end, category, name, arguments, external: None });
        Ok(())
    }

    /// Adds the ends of arrows that belong to no event, which the writer draws as an instant.
    fn add_loose_ends_of(
        &mut self,
        name: StringId,
        mut message: ProtoMessage<'_>,
        (track, at): (u32, i64),
    ) -> Result<()> {
        while let Some((field, value)) = message.next_field()? {
            if matches!(field, event::FLOW_IDS | event::TERMINATING_FLOW_IDS) {
                let (id, is_last) = (value.number(), field == event::TERMINATING_FLOW_IDS);
                self.loose.push(LooseEnd { track, at, name, id, is_last, is_decoded: false });
            }
        }
        Ok(())
    }

    fn store_annotations(&mut self, mut message: ProtoMessage<'_>, sequence: u64) -> Result<ArgumentRange> {
        let events = &mut self.builder.events;
        let first = events.arguments.current_mark().entry;
        let Some(sequence) = self.sequences.get(&sequence) else { return Ok(ArgumentRange::default()) };
        while let Some((field, value)) = message.next_field()? {
            if field == event::DEBUG_ANNOTATIONS {
                store_annotation(value.message(), first, sequence, events)?;
            }
        }
        Ok(events.arguments.range_from(first))
    }

    /// Returns the thread that a counter's value names.
    fn counter_thread(&mut self, message: ProtoMessage<'_>, sequence: u64) -> Result<Option<i64>> {
        let mark = self.builder.events.arguments.current_mark();
        let range = self.store_annotations(message, sequence)?;
        let Events { strings, arguments, .. } = &mut self.builder.events;
        let thread = strings.find(COUNTER_THREAD.as_bytes()).and_then(|key| arguments.get(range, key));
        let thread = match thread {
            Some(ArgValue::I64(thread)) => Some(thread),
            _ => None,
        };
        arguments.rewind_to(mark);
        Ok(thread)
    }

    /// Reads the arrows of the next event.
    fn read_flows(&mut self, mut message: ProtoMessage<'_>) -> Result<()> {
        let row = self.next_row();
        while let Some((field, value)) = message.next_field()? {
            let id = value.number();
            match field {
                event::FLOW_IDS | event::OLD_FLOW_IDS => self.flows.push_end(RawFlowEnd { row, id, is_last: false }),
                event::TERMINATING_FLOW_IDS | event::OLD_TERMINATING_FLOW_IDS => {
                    self.flows.push_end(RawFlowEnd { row, id, is_last: true });
                }
                event::GPU_CORRELATION => {
                    let mut stages = value.message();
                    while let Some((field, value)) = stages.next_field()? {
                        if field == event::SUBMISSION_EVENT_IDS {
                            self.flows.push_launch(row, value.number());
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads the header, which is an instant.
    fn read_metadata(&mut self, mut message: ProtoMessage<'_>, sequence: u64) -> Result<()> {
        while let Some((field, value)) = message.next_field()? {
            let Some(sequence) = self.sequences.get(&sequence).filter(|_| field == event::DEBUG_ANNOTATIONS) else {
                continue;
            };
            let (key, json) = annotation_as_json(value.message(), sequence, &mut self.builder.events)?;
            let key = self.builder.events.strings.get(key).to_owned();
            match key.as_str() {
                ABOUT_FILE => self.read_about_file(&json),
                INCOMPLETE => self.builder.events.notes.add(Note::Incomplete, 1),
                "traceName" => {}
                _ => self.add_header_entry(key, &json),
            }
        }
        Ok(())
    }

    /// Adds an entry to the header.
    pub(super) fn add_header_entry(&mut self, key: String, json: &str) {
        self.builder.add_header_entry(key, spaced_rank(json).into_owned());
    }

    /// Reads what this crate writes about a file.
    fn read_about_file(&mut self, json: &str) {
        self.builder.is_kinetos = true;
        let (mut seed, mut end) = (None, None);
        let number = |value: JsonValue<'_>| match value {
            JsonValue::Number(number) => number.as_str().parse::<u64>().ok(),
            // Numbers above 2^63 are strings.
            JsonValue::Text(text) => text.as_plain_str().and_then(|text| text.parse().ok()),
            _ => None,
        };
        let mut members = Json::new(json.as_bytes(), 0);
        let _ = members.read_object(|key, json| {
            let value = json.read_value()?;
            if key.is_word(FLOW_SEED) {
                seed = number(value);
            } else if key.is_word(WINDOW_END) {
                end = number(value);
            }
            Ok(())
        });
        let end = end.map(|end| i64::try_from(end).unwrap_or(i64::MAX));
        self.builder.recorded.end = self.builder.recorded.end.max(end);
        if let Some(seed) = seed {
            self.flows.decode_ends(seed, &mut self.builder.events);
            for loose in self.loose.iter_mut().filter(|loose| !loose.is_decoded) {
                if let Some((_, id)) = decode_flow_id(loose.id, seed) {
                    (loose.id, loose.is_decoded) = (id, true);
                }
            }
        }
    }
}
