//! Gives events their rows once the whole file was read.

use super::{CounterPoint, LocalTrack, PerfettoReader};
use crate::activity::{ActivityType, Flow, FlowEnd};
use crate::analysis::events::{EventDraft, Events, FileFigures, Note, Phase, StringId, TrackId};
use crate::hash::HashMap;
use crate::write::perfetto::flow_kind_of_name;
use std::collections::BTreeSet;

/// A counter's row, and the strings of its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CounterSet {
    track: u32,
    name: StringId,
    category: StringId,
}

impl PerfettoReader {
    /// Returns the sorted events of a file of so many bytes.
    pub(in super::super) fn finish(mut self, bytes: u64) -> Events {
        let base_ns = self.clocks.base.unwrap_or(0);
        self.builder.events.file = FileFigures { bytes, elements: self.elements, base_ns, is_perfetto: true };
        self.builder.close_slices();
        self.name_processes();
        let rows = self.add_tracks();
        self.builder.renumber_tracks(&rows);
        self.categorize_overhead();
        self.add_loose_ends(&rows);
        self.add_counters();
        for row in self.descriptions.named_rows() {
            self.builder.name_known_track(row);
        }
        let PerfettoReader { mut builder, flows, .. } = self;
        flows.finish(&mut builder.events);
        builder.finish(0)
    }

    fn name_processes(&mut self) {
        for process in self.descriptions.processes() {
            let entry = self.builder.process_entry(process.id);
            (entry.name, entry.label) = (process.name, process.label);
        }
        for track in &self.tracks {
            if let Some(TrackId::Id(device)) = track.row.as_ref().map(|row| &row.process) {
                let entry = self.builder.process_entry(TrackId::Id(*device));
                if entry.name.is_empty() && entry.label.is_empty() {
                    entry.label = format!("GPU {device}");
                }
            }
        }
    }

    /// Adds the rows of all tracks in the order in which the file sorts them; returns the row of each.
    fn add_tracks(&mut self) -> Vec<u32> {
        let mut order: Vec<(usize, &LocalTrack)> = self.tracks.iter().enumerate().collect();
        order.sort_by_cached_key(|(_, track)| self.descriptions.sort_key(track.uuid));
        let with_events = self.builder.events.rows.iter().map(|row| row.track);
        let used: BTreeSet<u32> = with_events.chain(self.loose.iter().map(|loose| loose.track)).collect();
        let mut rows = vec![0; self.tracks.len()];
        for (number, track) in order {
            let id = u32::try_from(number).unwrap_or(u32::MAX);
            if !used.contains(&id) {
                continue;
            }
            let row = track.row.clone().unwrap_or_else(|| self.descriptions.row(track.uuid, id));
            if let Some(slot) = rows.get_mut(number) {
                *slot = self.builder.track_number(row.process.clone(), row.thread.clone());
            }
            if !row.name.is_empty() {
                self.builder.name_track(row.process, row.thread, &row.name);
            }
        }
        rows
    }

    /// Gives PyTorch's events without a category in the process "Overhead" theirs.
    fn categorize_overhead(&mut self) {
        let events = &mut self.builder.events;
        let processes: BTreeSet<_> =
            events.processes.iter().filter(|process| process.name == "Overhead").map(|process| &process.id).collect();
        if processes.is_empty() {
            return;
        }
        let category = events.strings.intern(ActivityType::Overhead.as_str());
        for row in events.rows.iter_mut().filter(|row| row.category == StringId::EMPTY && row.phase == Phase::Slice) {
            let track = events.tracks.get(row.track as usize);
            if track.is_some_and(|track| processes.contains(&track.process)) {
                (row.category, row.kind) = (category, Some(ActivityType::Overhead));
            }
        }
    }

    /// Adds the ends of arrows that belong to no event, which the builder binds to the slices around them.
    fn add_loose_ends(&mut self, rows: &[u32]) {
        for loose in &self.loose {
            let kind = flow_kind_of_name(self.builder.events.strings.get(loose.name));
            match (rows.get(loose.track as usize), kind) {
                (Some(track), Some(kind)) => {
                    let end = if loose.is_last { FlowEnd::Finish } else { FlowEnd::Start };
                    self.builder.add_flow(*track, loose.at, Flow { kind, id: loose.id, end });
                }
                _ => self.builder.events.notes.add(Note::LooseArrow, 1),
            }
        }
    }

    /// Adds the values of counters: those of one set and time together, as Kineto writes them.
    fn add_counters(&mut self) {
        let mut sets: HashMap<_, Option<(CounterSet, StringId)>> = HashMap::default();
        let mut last: Option<(CounterSet, i64)> = None;
        let mut first = self.builder.events.arguments.current_mark().entry;
        for point in std::mem::take(&mut self.counters) {
            let set = sets.entry((point.track, point.thread)).or_insert_with(|| self.counter_set(&point));
            let Some((set, series)) = *set else {
                let uuid = self.tracks.get(point.track as usize).map(|track| track.uuid);
                let is_lost = uuid.is_some_and(|uuid| !self.descriptions.has_track(uuid));
                self.builder.events.notes.add(Note::LostState, is_lost.into());
                continue;
            };
            let arguments = &mut self.builder.events.arguments;
            let is_same = last == Some((set, point.at)) && arguments.get(arguments.range_from(first), series).is_none();
            if !is_same {
                self.add_counter(last, first);
                last = Some((set, point.at));
                first = self.builder.events.arguments.current_mark().entry;
            }
            self.builder.events.arguments.store_arg(first, series, point.value);
        }
        self.add_counter(last, first);
    }

    fn add_counter(&mut self, set: Option<(CounterSet, i64)>, first: u32) {
        let Some((CounterSet { track, name, category }, at)) = set else { return };
        let arguments = self.builder.events.arguments.range_from(first);
        let (phase, start, end) = (Phase::Counter, at, Some(at));
        self.builder.push(&EventDraft { phase, track, start, end, category, name, arguments, external: None });
    }

    /// Returns the set that a value belongs to, and its name in that.
    fn counter_set(&mut self, point: &CounterPoint) -> Option<(CounterSet, StringId)> {
        let uuid = self.tracks.get(point.track as usize)?.uuid;
        let counter = self.descriptions.counter(uuid, point.track)?;
        let thread = point.thread.map_or(counter.thread, TrackId::Id);
        let track = self.builder.track_number(counter.process, thread);
        let strings = &mut self.builder.events.strings;
        let (name, category) = (strings.intern(&counter.name), strings.intern(&counter.category));
        Some((CounterSet { track, name, category }, strings.intern(&counter.series)))
    }
}
