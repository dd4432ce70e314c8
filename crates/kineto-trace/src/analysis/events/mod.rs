//! The events of a trace in memory, in order of their start.

mod append;
mod arguments;
mod arrows;
mod builder;
mod by_id;
mod deadline;
mod event;
mod foreign;
mod metadata;
mod notes;
mod op;
mod recorded;
mod shape;
mod strings;
pub(super) mod values;

pub use builder::Builder;
pub use event::Event;
pub use metadata::{EventMetadata, OccupancyMetadata};
pub use notes::Note;
pub use shape::Shape;

pub(super) use arguments::{ArgumentMark, ArgumentRange, Arguments};
pub(super) use builder::{EventDraft, Pairing};
pub(super) use by_id::EventsById;
pub(super) use event::id_number;
pub(super) use notes::Notes;
pub(super) use strings::{StringId, Strings};

use crate::activity::{Accelerator, ActivityType, DeviceType, Flow};
use crate::hash::HashMap;
use crate::time::Timestamp;
use std::fmt;

/// The events of a trace in memory: slices, instants and counters, in order of their start.
///
/// [`Events::read`] reads them from a file, `tracing_kineto::Trace::events` from a recording. They are stored in
/// columns, about 70 bytes for an event plus its arguments; an [`Event`] is a view. torch's `events()` returns a list
/// of objects.
#[derive(Clone, Default)]
pub struct Events {
    pub(super) rows: Vec<EventRow>,
    pub(super) strings: Strings,
    pub(super) arguments: Arguments,
    pub(super) tracks: Vec<EventTrack>,
    pub(super) processes: Vec<EventProcess>,
    /// Pairs of an event's index and an arrow's end.
    pub(super) flows: Vec<(u32, Flow)>,
    /// Ids of the spans that have an async track, in ascending order.
    pub(super) async_spans: Vec<u64>,
    /// The vendor of the devices, for types that several vendors share.
    pub(super) accelerator: Accelerator,
    /// The name that the backend of PrivateUse1 has given itself.
    pub(super) private_use1: Option<String>,
    /// The keys of the trace's header, with their values as JSON.
    pub(super) header: Vec<(String, String)>,
    pub(super) window: Option<(Timestamp, Timestamp)>,
    /// The rows of whole recordings in a file.
    pub(super) recordings: Vec<RecordingRow>,
    pub(super) notes: Notes,
    pub(super) file: FileFigures,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events")
            .field("events", &self.rows.len())
            .field("tracks", &self.tracks.len())
            .finish_non_exhaustive()
    }
}

/// The row of a whole recording in a file.
#[derive(Clone, Debug)]
pub(super) struct RecordingRow {
    /// Its name and number, such as "PyTorch Profiler (0)".
    pub(super) name: String,
    pub(super) start: Timestamp,
    pub(super) end: Timestamp,
}

/// Figures of the file that was read; all 0 for a recording.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FileFigures {
    /// The length of its JSON or its packets.
    pub(super) bytes: u64,
    /// The elements of its list of events, or its packets with events.
    pub(super) elements: u64,
    /// The origin of its times.
    pub(super) base_ns: i64,
    /// Whether it was in Perfetto's format.
    pub(super) is_perfetto: bool,
}

/// The fields of each event.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventRow {
    pub(super) start: Timestamp,
    /// Equal to `start` if there is no duration.
    pub(super) end: Timestamp,
    /// Its own id; 0 if none.
    pub(super) id: u64,
    /// The id of the host slice that launched it; 0 if none.
    pub(super) linked: u64,
    pub(super) arguments: ArgumentRange,
    pub(super) name: StringId,
    pub(super) category: StringId,
    pub(super) track: u32,
    pub(super) kind: Option<ActivityType>,
    pub(super) phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Slice,
    Instant,
    Counter,
}

/// A track of a viewer: a host thread or a device's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventTrack {
    /// The process or device, or the name of another group.
    pub process: TrackId,
    /// The thread or stream, or a name.
    pub thread: TrackId,
    /// The name that a viewer shows; may be empty.
    pub name: String,
    /// Whether it has the asynchronous slices of one id, by another tool than this crate. They may overlap.
    pub is_async: bool,
}

/// A group of tracks: a host process or a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventProcess {
    /// The process or device, or the name of another group.
    pub id: TrackId,
    /// The heading, such as the program's name.
    pub name: String,
    /// The label that viewers show next to the name, such as "CPU" or "GPU 0"; may be empty.
    pub label: String,
}

/// The headings of groups of tracks.
pub(super) struct ProcessTitles<'e>(HashMap<&'e TrackId, &'e EventProcess>);

impl ProcessTitles<'_> {
    /// Returns a heading: name and label of the process, such as "app GPU 0", else its id.
    pub(super) fn title(&self, id: &TrackId) -> String {
        let texts = self.0.get(id).map(|process| [process.name.as_str(), process.label.as_str()]).into_iter().flatten();
        let title = texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ");
        if title.is_empty() { id.to_string() } else { title }
    }
}

/// One half of a track's identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TrackId {
    /// The id of a process, thread, device or stream.
    Id(i64),
    /// The name of another group, such as Kineto's "Spans".
    Name(String),
}

impl fmt::Display for TrackId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrackId::Id(id) => id.fmt(f),
            TrackId::Name(name) => name.fmt(f),
        }
    }
}

/// The name of memory events.
pub(super) const MEMORY_EVENT: &str = "[memory]";

impl Events {
    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether there are no events.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns all events in order of their start; at equal starts longer ones first, at equal times calls last.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Event<'_>> + ExactSizeIterator {
        (0..self.rows.len()).map(|index| Event { events: self, index })
    }

    /// Returns the event at `index`.
    pub fn get(&self, index: usize) -> Option<Event<'_>> {
        (index < self.rows.len()).then_some(Event { events: self, index })
    }

    /// Returns the tracks.
    pub fn tracks(&self) -> &[EventTrack] {
        &self.tracks
    }

    /// Returns the groups of tracks that have a name.
    pub fn processes(&self) -> &[EventProcess] {
        &self.processes
    }

    /// Returns the vendor of the devices, for types that several vendors share. It is inferred from the API calls.
    pub fn accelerator(&self) -> Accelerator {
        self.accelerator
    }

    /// Returns the name of a kind of device: [`DeviceType::as_str`], except for an out-of-tree backend of PyTorch that
    /// has named itself in the header (`privateuse1_backend_name`).
    pub fn device_name(&self, device: DeviceType) -> &str {
        let own = self.private_use1.as_deref().filter(|_| device == DeviceType::PrivateUse1);
        own.unwrap_or(device.as_str())
    }

    /// Returns the headings of groups of tracks.
    pub(super) fn process_titles(&self) -> ProcessTitles<'_> {
        ProcessTitles(self.processes.iter().map(|process| (&process.id, process)).collect())
    }

    /// Returns how much was left out or repaired while reading a file, by cause.
    ///
    /// For a recording, only loose arrows and the time limit occur.
    pub fn notes(&self) -> impl Iterator<Item = (Note, u64)> {
        self.notes.iter()
    }

    /// Returns the keys of the trace's header with their values as JSON.
    ///
    /// Entries about the file's format (`schemaVersion`, `displayTimeUnit`, `baseTimeNanoseconds`, `traceName`) are
    /// left out.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &str)> {
        self.header.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Returns the begin and end of the recording; if the file lacks them, the first start and the last end.
    pub fn window(&self) -> (Timestamp, Timestamp) {
        self.window.unwrap_or_else(|| {
            let start = self.rows.first().map_or(Timestamp::default(), |row| row.start);
            (start, self.rows.iter().map(|row| row.end).max().unwrap_or(start))
        })
    }
}
