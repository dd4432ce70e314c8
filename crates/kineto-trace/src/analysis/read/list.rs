//! The elements of a list of events, and what they add up to.

use super::element::{Element, KeyOrder};
use crate::activity::{FlowEnd, FlowKind};
use crate::analysis::events::{Builder, EventDraft, Note, Phase, StringId, TrackId};
use crate::analysis::json_reader::{Json, Result};
use crate::hash::HashMap;
use std::time::Duration;

/// Collects the elements of a list of events, or of a part of it.
#[derive(Debug, Default)]
pub(super) struct EventList {
    pub(super) builder: Builder,
    /// The number of elements, and of those with a phase.
    pub(super) elements: u64,
    pub(super) phase_count: u64,
    /// The names that metadata rows give; a later one replaces an earlier one.
    names: HashMap<NamedPart, String>,
    keys: KeyOrder,
}

/// What a metadata row names, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum NamedPart {
    Track(u32),
    Process(usize),
    ProcessLabel(usize),
}

impl EventList {
    /// Returns an empty list that is to end after `limit`.
    pub(super) fn with_time_limit(limit: Option<Duration>) -> EventList {
        EventList { builder: Builder::with_time_limit(limit), ..EventList::default() }
    }

    /// Reads an element that is an object. If it is truncated, nothing of it is stored.
    pub(super) fn read_element(&mut self, json: &mut Json<'_>) -> Result<()> {
        let line = Element::read(json, &mut self.keys, &mut self.builder)?;
        self.handle_line(&line);
        self.elements += 1;
        Ok(())
    }

    pub(super) fn add_notes(&mut self, note: Note, count: u64) {
        self.builder.events.notes.add(note, count);
    }

    pub(super) fn count_note(&mut self, note: Note) {
        self.builder.events.notes.add(note, 1);
    }

    /// Appends a later part of the same list. Returns whether it fits; otherwise nothing is changed.
    pub(super) fn append(&mut self, part: EventList) -> bool {
        let Some(ids) = self.builder.append(part.builder) else { return false };
        self.elements += part.elements;
        self.phase_count += part.phase_count;
        self.names.extend(part.names.into_iter().map(|(part, name)| {
            let part = match part {
                NamedPart::Track(track) => NamedPart::Track(ids.track(track)),
                NamedPart::Process(process) => NamedPart::Process(ids.process(process)),
                NamedPart::ProcessLabel(process) => NamedPart::ProcessLabel(ids.process(process)),
            };
            (part, name)
        }));
        true
    }

    /// Sets the names of tracks and processes.
    pub(super) fn apply_names(&mut self) {
        let events = &mut self.builder.events;
        for (part, name) in self.names.drain() {
            let named = match part {
                NamedPart::Track(track) => events.tracks.get_mut(track as usize).map(|track| &mut track.name),
                NamedPart::Process(at) => events.processes.get_mut(at).map(|process| &mut process.name),
                NamedPart::ProcessLabel(at) => events.processes.get_mut(at).map(|process| &mut process.label),
            };
            named.into_iter().for_each(|named| named.clone_from(&name));
        }
    }

    /// Handles an element of the list. The space of its arguments is released unless an event uses them.
    fn handle_line(&mut self, line: &Element<'_>) {
        let Some(phase) = line.phase else { return self.drop_line(line, Note::NotAnEvent) };
        self.phase_count += 1;
        let at = line.time;
        match (phase, at) {
            ('X', Some(at)) => self.add_slice(line, at),
            ('i' | 'I', Some(at)) => self.add_instant(line, at),
            ('C', Some(at)) => self.add_event(line, Phase::Counter, at, Some(at)),
            ('B', Some(at)) => self.add_event(line, Phase::Slice, at, None),
            ('E', Some(at)) => {
                let track = self.line_track_number(line);
                self.builder.end_slice(track, (line.name, StringId::EMPTY), at, line.arguments);
            }
            ('M', _) => self.apply_metadata(line),
            ('s' | 'f', Some(at)) => self.add_arrow(line, phase, at),
            ('b' | 'e' | 'n', at) if line.category != Some(StringId::ASYNC) => self.handle_async_line(line, phase, at),
            ('b' | 'e' | 'n', _) => {
                self.builder.async_span_of(line.arguments, line.local_id());
                self.drop_line(line, Note::AsyncTrack);
            }
            ('X' | 'i' | 'I' | 'C' | 'B' | 'E' | 's' | 'f', None) => self.drop_line(line, Note::WithoutTime),
            _ => self.drop_line(line, Note::OtherPhase),
        }
    }

    fn drop_line(&mut self, line: &Element<'_>, note: Note) {
        self.count_note(note);
        self.release_arguments(line);
    }

    fn release_arguments(&mut self, line: &Element<'_>) {
        self.builder.events.arguments.rewind_to(line.mark);
    }

    fn add_slice(&mut self, line: &Element<'_>, at: i64) {
        let Some(lasted) = line.duration else { return self.drop_line(line, Note::WithoutTime) };
        let end = at.saturating_add(lasted.max(0));
        if line.category == Some(StringId::TRACE) {
            self.builder.recorded.rows.push((line.name, at, end));
            return self.release_arguments(line);
        }
        if lasted < 0 {
            self.count_note(Note::NegativeDuration);
        }
        self.add_event(line, Phase::Slice, at, Some(end));
    }

    fn add_instant(&mut self, line: &Element<'_>, at: i64) {
        let is_in = |group: &str| matches!(&line.process, TrackId::Name(name) if name == group);
        let name = self.builder.events.strings.get(line.name);
        if is_in("") && name == "Record Window End" {
            self.builder.recorded.end = Some(at);
            self.release_arguments(line);
        } else if is_in("Traces") && name.starts_with("Iteration Start") {
            self.builder.recorded.add_start(at);
            self.release_arguments(line);
        } else {
            self.add_event(line, Phase::Instant, at, Some(at));
        }
    }

    /// Handles the begin or end of an asynchronous slice, or an instant on its track, of another tool: Kineto has none, and those of this
    /// crate repeat other slices. Those of one id share a track.
    fn handle_async_line(&mut self, line: &Element<'_>, phase: char, at: Option<i64>) {
        let Some(at) = at else { return self.drop_line(line, Note::WithoutTime) };
        let Some(id) = line.async_id() else { return self.drop_line(line, Note::AsyncTrack) };
        let track = self.builder.async_track(line.process.clone(), &id);
        match phase {
            'b' => self.add_event_on(track, line, Phase::Slice, at, None),
            'e' => {
                let pairing = (line.name, self.line_category(line));
                self.builder.end_slice(track, pairing, at, line.arguments);
            }
            _ => self.add_event_on(track, line, Phase::Instant, at, Some(at)),
        }
    }

    fn add_event(&mut self, line: &Element<'_>, phase: Phase, start: i64, end: Option<i64>) {
        let track = self.line_track_number(line);
        self.add_event_on(track, line, phase, start, end);
    }

    fn add_event_on(&mut self, track: u32, line: &Element<'_>, phase: Phase, start: i64, end: Option<i64>) {
        let category = self.line_category(line);
        let (name, arguments) = (line.name, line.arguments);
        self.builder.push(&EventDraft { phase, track, start, end, category, name, arguments, external: None });
    }

    fn line_category(&mut self, line: &Element<'_>) -> StringId {
        line.category.map_or(StringId::EMPTY, |category| self.current_category(category))
    }

    fn line_track_number(&mut self, line: &Element<'_>) -> u32 {
        match (&line.process, &line.thread) {
            (TrackId::Id(process), TrackId::Id(thread)) => self.builder.track_of_ids(*process, *thread),
            (process, thread) => self.builder.track_number(process.clone(), thread.clone()),
        }
    }

    /// Returns the current name of a category.
    fn current_category(&mut self, category: StringId) -> StringId {
        let strings = &mut self.builder.events.strings;
        renamed_category(strings.get(category)).map_or(category, |current| strings.intern(current))
    }

    /// Handles a metadata row, which only names others.
    fn apply_metadata(&mut self, line: &Element<'_>) {
        self.release_arguments(line);
        let Some(text) = line.display_name() else { return };
        let builder = &mut self.builder;
        let of = match builder.events.strings.get(line.name) {
            "thread_name" => NamedPart::Track(builder.track_number(line.process.clone(), line.thread.clone())),
            "process_name" => NamedPart::Process(builder.process_number(line.process.clone())),
            "process_labels" => NamedPart::ProcessLabel(builder.process_number(line.process.clone())),
            _ => return,
        };
        self.names.insert(of, text.into_owned());
    }

    fn add_arrow(&mut self, line: &Element<'_>, phase: char, at: i64) {
        let kind = line.category.and_then(|category| arrow_kind(self.builder.events.strings.get(category)));
        let (Some(kind), Some(id)) = (kind, line.arrow_id()) else { return self.drop_line(line, Note::LooseArrow) };
        self.release_arguments(line);
        let track = self.line_track_number(line);
        let end = if phase == 's' { FlowEnd::Start } else { FlowEnd::Finish };
        self.builder.add_flow(track, at, crate::activity::Flow { kind, id, end });
    }
}

/// Returns the kind of arrow of a category; older versions of Kineto had other names for those of launches.
fn arrow_kind(category: &str) -> Option<FlowKind> {
    const KINDS: [FlowKind; 3] = [FlowKind::ForwardBackward, FlowKind::AsyncCpuToGpu, FlowKind::FollowsFrom];
    match category {
        "async" | "async_cpu_to_gpu" | "async_gpu" => Some(FlowKind::AsyncCpuToGpu),
        category => KINDS.into_iter().find(|kind| kind.as_str() == category),
    }
}

/// Returns the current name of a category if this one is old.
fn renamed_category(category: &str) -> Option<&'static str> {
    match category {
        "Operator" => Some("cpu_op"),
        "Runtime" => Some("cuda_runtime"),
        "Kernel" => Some("kernel"),
        "Memcpy" => Some("gpu_memcpy"),
        "Memset" => Some("gpu_memset"),
        _ => None,
    }
}
