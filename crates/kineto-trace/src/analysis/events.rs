//! The events of a trace in memory, in the order of their start.

use super::arguments::{Arguments, Span};
use super::event::Event;
use super::notes::{Note, Notes};
use super::strings::{Strings, Text};
use crate::activity::{Accelerator, ActivityType, DeviceType, Flow};
use crate::time::Timestamp;
use std::fmt;

/// The events of a trace, for those who look into it: slices, instants and counters, in the order of their start.
///
/// Of a file by [`Events::read`], of a recording by `tracing_kineto::Trace::events`. Everything is a column in
/// one piece of memory, about 70 bytes an event and its arguments; an [`Event`] is a view on it. torch's `events()` is a
/// list of objects.
#[derive(Clone, Default)]
pub struct Events {
    pub(super) rows: Vec<EventRow>,
    pub(super) strings: Strings,
    pub(super) arguments: Arguments,
    pub(super) tracks: Vec<EventTrack>,
    pub(super) processes: Vec<EventProcess>,
    /// By event.
    pub(super) flows: Vec<(u32, Flow)>,
    /// The spans that have an async track, in order of their ids.
    pub(super) async_spans: Vec<u64>,
    /// Whose devices the types are that vendors share.
    pub(super) accelerator: Accelerator,
    /// What the backend of PrivateUse1 calls itself.
    pub(super) private_use1: Option<String>,
    /// The keys of the trace's header, with their values as JSON.
    pub(super) header: Vec<(String, String)>,
    pub(super) window: Option<(Timestamp, Timestamp)>,
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

/// What the file that was read is; all 0 of a recording.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FileFigures {
    /// The length of its JSON.
    pub(super) bytes: u64,
    /// The elements of its list of events.
    pub(super) elements: u64,
    /// What its times are relative to.
    pub(super) base_ns: i64,
}

/// What each event has.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventRow {
    pub(super) start: Timestamp,
    /// The start again where there is no duration.
    pub(super) end: Timestamp,
    /// Its own id: a host slice's, of the trace; 0 for none.
    pub(super) id: u64,
    /// The host slice that launched it; 0 for none.
    pub(super) linked: u64,
    pub(super) arguments: Span,
    pub(super) name: Text,
    pub(super) category: Text,
    pub(super) track: u32,
    pub(super) kind: Option<ActivityType>,
    pub(super) phase: Phase,
}

/// What of time an event takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Slice,
    Instant,
    Counter,
}

/// A row of the viewer: a thread of the host, or a stream of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventTrack {
    /// The process or device, or the name of a group of rows that is neither.
    pub process: TrackId,
    /// The thread or stream, or a name.
    pub thread: TrackId,
    /// What the viewer calls it; empty if it has no name.
    pub name: String,
}

/// A group of rows: a process of the host, or a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventProcess {
    /// The process or device, or the name of a group that is neither.
    pub id: TrackId,
    /// The heading, such as the program's name.
    pub name: String,
    /// What stands beside it, such as "CPU" or "GPU 0"; empty for none.
    pub label: String,
}

/// One half of a row's identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TrackId {
    /// A process, thread, device or stream.
    Id(i64),
    /// A row that stands for no such thing, such as Kineto's "Spans".
    Name(String),
}

impl Events {
    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns all events in the order of their start; those of one start, the longest first, of one length calls last.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Event<'_>> + ExactSizeIterator {
        (0..self.rows.len()).map(|index| Event { events: self, index })
    }

    /// Returns the event with that place in the order.
    pub fn get(&self, index: usize) -> Option<Event<'_>> {
        (index < self.rows.len()).then_some(Event { events: self, index })
    }

    /// Returns the rows of the viewer.
    pub fn tracks(&self) -> &[EventTrack] {
        &self.tracks
    }

    /// Returns the groups of those rows that have a name.
    pub fn processes(&self) -> &[EventProcess] {
        &self.processes
    }

    /// Returns whose devices stand behind the types that vendors share: what was called tells.
    pub fn accelerator(&self) -> Accelerator {
        self.accelerator
    }

    /// Returns what the trace calls that kind of device: [`DeviceType::as_str`], but for the backend outside of PyTorch's tree
    /// that has named itself in the header (`privateuse1_backend_name`).
    pub fn device_name(&self, device: DeviceType) -> &str {
        let own = self.private_use1.as_deref().filter(|_| device == DeviceType::PrivateUse1);
        own.unwrap_or(device.as_str())
    }

    /// Returns what was left out or repaired when a file was read, by cause; of a recording, at most loose arrows and the
    /// time limit.
    pub fn notes(&self) -> impl Iterator<Item = (Note, u64)> {
        self.notes.iter()
    }

    /// Returns the keys of the trace's header with their values as JSON.
    ///
    /// Those that only say how the file is to be read (`schemaVersion`, `displayTimeUnit`, `baseTimeNanoseconds`,
    /// `traceName`) are left out.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &str)> {
        self.header.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Returns when the recording began and ended; of a file that does not say so, from the first start to the last end.
    pub fn window(&self) -> (Timestamp, Timestamp) {
        self.window.unwrap_or_else(|| {
            let start = self.rows.first().map_or(Timestamp::default(), |row| row.start);
            (start, self.rows.iter().map(|row| row.end).max().unwrap_or(start))
        })
    }
}
