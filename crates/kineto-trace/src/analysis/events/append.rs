//! Appends events that another builder collected from a later part of the same file.

use super::builder::{Builder, RecordedTimes, SliceEnd};
use super::strings::StringId;
use super::{EventRow, EventTrack, Events};

/// Maps ids of an appended part to those of the builder.
#[derive(Debug)]
pub(crate) struct AppendedIds {
    strings: Vec<StringId>,
    tracks: Vec<u32>,
    processes: Vec<usize>,
}

impl AppendedIds {
    /// Returns the id of a string of the part.
    pub(crate) fn string(&self, id: StringId) -> StringId {
        self.strings.get(id.index()).copied().unwrap_or(StringId::EMPTY)
    }

    /// Returns the number of a track of the part.
    pub(crate) fn track(&self, number: u32) -> u32 {
        self.tracks.get(number as usize).copied().unwrap_or(u32::MAX)
    }

    /// Returns the index of a process of the part.
    pub(crate) fn process(&self, index: usize) -> usize {
        self.processes.get(index).copied().unwrap_or(usize::MAX)
    }
}

impl Builder {
    /// Appends the events of a part that follows in the file, as if they were added here. All ids are given in the same
    /// order. Returns `None`, and changes nothing, if they do not fit.
    pub(crate) fn append(&mut self, part: Builder) -> Option<AppendedIds> {
        let (rows, new_rows) = (self.events.rows.len(), part.events.rows.len());
        let fits = self.events.arguments.can_append(&part.events.arguments) && rows + new_rows < u32::MAX as usize;
        if !fits {
            return None;
        }
        let Events { strings, tracks, processes, arguments, notes, .. } = part.events;
        let ids = AppendedIds {
            strings: self.events.strings.intern_all(&strings),
            tracks: tracks.into_iter().map(|track| self.append_track(track)).collect(),
            processes: processes.into_iter().map(|process| self.process_number(process.id)).collect(),
        };
        let first = self.events.arguments.append(&arguments, &ids.strings);
        self.events.rows.extend(part.events.rows.into_iter().map(|row| EventRow {
            arguments: row.arguments.moved_by(first),
            name: ids.string(row.name),
            category: ids.string(row.category),
            track: ids.track(row.track),
            ..row
        }));
        self.events.notes.add_all(&notes);
        self.ends.extend(part.ends.into_iter().map(|end| SliceEnd {
            track: ids.track(end.track),
            pairing: (ids.string(end.pairing.0), ids.string(end.pairing.1)),
            place: rows + end.place,
            arguments: end.arguments.moved_by(first),
            ..end
        }));
        self.arrows.append(part.arrows, rows, &ids);
        self.async_spans.extend(part.async_spans);
        let RecordedTimes { rows, start, end } = part.recorded;
        self.recorded.rows.extend(rows.iter().map(|(name, start, end)| (ids.string(*name), *start, *end)));
        start.into_iter().for_each(|start| self.recorded.add_start(start));
        self.recorded.end = end.or(self.recorded.end);
        Some(ids)
    }

    fn append_track(&mut self, track: EventTrack) -> u32 {
        let number = self.track_number(track.process, track.thread);
        if track.is_async {
            self.mark_async(number);
        }
        number
    }
}
