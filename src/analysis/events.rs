//! The events of a trace in memory, in the order of their start.

use super::arguments::{Arguments, Span};
use super::event::Event;
use super::strings::{Strings, Text};
use crate::activity::{Activity, ActivityType, Body, Flow, Lane};
use crate::time::Timestamp;
use std::collections::HashMap;

/// The events of a trace, for those who look into it: slices, instants and counters, in the order of their start.
///
/// Of a recording by [`Trace::events`](crate::Trace::events), of a file by [`Events::read`]. Everything is a column in
/// one piece of memory, about 70 bytes an event and its arguments; an [`Event`] is a view on it. torch's `events()` is a
/// list of objects.
#[derive(Clone, Debug, Default)]
pub struct Events {
    pub(super) rows: Vec<Row>,
    pub(super) strings: Strings,
    pub(super) arguments: Arguments,
    pub(super) tracks: Vec<EventTrack>,
    pub(super) flows: Vec<(u32, Flow)>,
    /// The keys of the trace's header, with their values as JSON.
    pub(super) header: Vec<(String, String)>,
    pub(super) window: Option<(Timestamp, Timestamp)>,
}

/// What each event has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
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

    /// Returns all events in the order of their start; those of one start, the longest first.
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

    /// Returns the keys of the trace's header with their values as JSON.
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

/// Puts events together, in any order.
#[derive(Debug, Default)]
pub(super) struct Builder {
    events: Events,
    tracks: HashMap<(TrackId, TrackId), u32>,
}

impl Builder {
    /// Takes an activity of a recording.
    pub(super) fn take(&mut self, activity: &Activity<'_>) {
        let (phase, start, end) = match activity.body {
            Body::Slice { start, end } => (Phase::Slice, start, end),
            Body::Instant { at } => (Phase::Instant, at, at),
            Body::Counter { at } => (Phase::Counter, at, at),
        };
        let track = self.track(&id(activity.track.process), &id(activity.track.thread));
        let events = &mut self.events;
        let row = Row {
            start,
            end,
            id: activity.id.0,
            linked: activity.linked.0,
            arguments: events.arguments.push(activity.args, &mut events.strings),
            name: events.strings.intern(activity.name),
            category: events.strings.intern(activity.kind.as_str()),
            track,
            kind: Some(activity.kind),
            phase,
        };
        self.push(row, activity.flow);
    }

    pub(super) fn push(&mut self, row: Row, flow: Option<Flow>) {
        let index = u32::try_from(self.events.rows.len()).unwrap_or(u32::MAX);
        self.events.rows.push(row);
        self.events.flows.extend(flow.map(|flow| (index, flow)));
    }

    /// Returns the number of a row of the viewer, which is new if nothing was put onto it before.
    pub(super) fn track(&mut self, process: &TrackId, thread: &TrackId) -> u32 {
        let key = (process.clone(), thread.clone());
        *self.tracks.entry(key).or_insert_with(|| {
            let number = u32::try_from(self.events.tracks.len()).unwrap_or(u32::MAX);
            let track = EventTrack { process: process.clone(), thread: thread.clone(), name: String::new() };
            self.events.tracks.push(track);
            number
        })
    }

    /// Names a row of the viewer.
    pub(super) fn name(&mut self, process: &TrackId, thread: &TrackId, name: &str) {
        let track = self.track(process, thread) as usize;
        if let Some(track) = self.events.tracks.get_mut(track) {
            name.clone_into(&mut track.name);
        }
    }

    /// Returns the events, in order.
    pub(super) fn finish(mut self, window: Option<(Timestamp, Timestamp)>, header: Vec<(String, String)>) -> Events {
        let rows = &self.events.rows;
        let mut order: Vec<u32> = (0..u32::try_from(rows.len()).unwrap_or(u32::MAX)).collect();
        let key = |index: &u32| rows.get(*index as usize).map(|row| (row.start, std::cmp::Reverse(row.end)));
        order.sort_by_key(key);
        let sorted = order.iter().filter_map(|index| rows.get(*index as usize).copied()).collect();
        let mut places = vec![0; order.len()];
        for (place, index) in (0..).zip(&order) {
            if let Some(slot) = places.get_mut(*index as usize) {
                *slot = place;
            }
        }
        for (index, _) in &mut self.events.flows {
            *index = places.get(*index as usize).copied().unwrap_or(u32::MAX);
        }
        self.events.flows.sort_by_key(|(index, _)| *index);
        Events { rows: sorted, window, header, ..self.events }
    }
}

/// A row's identity, owned.
pub(super) fn id(lane: Lane<'_>) -> TrackId {
    match lane {
        Lane::Id(id) => TrackId::Id(id),
        Lane::Name(name) => TrackId::Name(name.to_owned()),
    }
}
