//! From a recording to its events.

use super::builder::{Builder, New};
use super::events::{Events, Phase, TrackId};
use crate::activity::{Activity, ActivityType, ArgValue, Args, Body, Flow, Lane, Track};
use crate::time::Timestamp;
use crate::trace::Trace;
use crate::trace::rows::{AsyncRow, ProcessRow, Rows, SliceRow, SpanRow, ThreadRow};
use crate::write::{chrome, counter_value};
use std::io;

impl Trace {
    /// Returns all events in memory, in the order of their start; torch's `events()`.
    ///
    /// They are made anew by each call, and are those that [`Events::read`] finds in the file that
    /// [`save`](Trace::save) writes. Async tracks are no events: their slices are.
    pub fn events(&self) -> Events {
        let mut builder = Builder::default();
        // `Builder` has no errors.
        let _ = self.rows(&mut builder);
        let (start, end) = self.window();
        builder.events.header = self.about_recording();
        builder.finish(0, (Some(signed(start)), Some(signed(end))))
    }
}

impl Builder {
    fn take(&mut self, activity: &Activity<'_>) {
        let (phase, start, end) = match activity.body {
            Body::Slice { start, end } => {
                let (start, end) = chrome::drawn(activity.kind, start, end);
                (Phase::Slice, start, end)
            }
            Body::Instant { at } => (Phase::Instant, at, at),
            Body::Counter { at } => return self.counter(activity, at),
        };
        let is_slice = phase == Phase::Slice;
        let arguments = self.events.arguments.push(activity.args, &mut self.events.strings);
        let new = New {
            phase,
            track: self.track_of(if is_slice { chrome::drawn_on(activity) } else { activity.track }),
            start: signed(start),
            end: Some(signed(end)),
            category: activity.kind.as_str(),
            name: if is_slice { chrome::shown_name(activity.name) } else { activity.name },
            arguments,
            external: chrome::external_id(activity).filter(|_| is_slice).map(|id| id.0),
        };
        self.push(&new);
        activity.flow.into_iter().for_each(|flow| self.arrow_of_last(flow));
    }

    /// Takes what a file has of a set of counter values: numbers, and of hardware counters each on its own.
    fn counter(&mut self, activity: &Activity<'_>, at: Timestamp) {
        let kind = activity.kind;
        let mut sets: Vec<(&str, Vec<(String, ArgValue<'static>)>)> = Vec::new();
        let mut names = Vec::new();
        activity.args.visit(&mut |key, value| {
            names.extend(counter_value(value).map(|value| (key.to_owned(), value)));
        });
        let hardware = kind == ActivityType::HardwareCounters;
        let group = match activity.track.process {
            Lane::Id(device) if hardware => format!("GPU {device} Counters"),
            _ => String::new(),
        };
        if hardware {
            sets.extend(names.iter().map(|(name, value)| (name.as_str(), vec![(String::new(), *value)])));
        } else if !names.is_empty() {
            sets.push((activity.name, names));
        }
        let process = if group.is_empty() { activity.track.process } else { Lane::Name(&group) };
        let track = self.track_of(Track { process, thread: activity.track.thread });
        for (name, values) in sets {
            let arguments = self.events.arguments.push(&Values(&values), &mut self.events.strings);
            let (start, category) = (signed(at), kind.as_str());
            let new = New {
                phase: Phase::Counter,
                track,
                start,
                end: Some(start),
                category,
                name,
                arguments,
                external: None,
            };
            self.push(&new);
        }
        activity.flow.into_iter().for_each(|flow| self.arrow(track, signed(at), flow));
    }

    fn track_of(&mut self, track: Track<'_>) -> u32 {
        let (process, thread) = ids(track);
        self.track(process, thread)
    }
}

/// The values of a counter.
struct Values<'v>(&'v [(String, ArgValue<'static>)]);

impl Args for Values<'_> {
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        self.0.iter().for_each(|(name, value)| each(name, *value));
    }
}

impl Rows for Builder {
    fn process(&mut self, row: &ProcessRow<'_>) -> io::Result<()> {
        let process = self.process(id(row.process));
        row.name.clone_into(&mut process.name);
        row.label.clone_into(&mut process.label);
        Ok(())
    }
    fn thread(&mut self, row: &ThreadRow<'_>) -> io::Result<()> {
        let (process, thread) = ids(row.track);
        self.name(process, thread, row.name);
        Ok(())
    }
    fn slice(&mut self, slice: &SliceRow<'_>) -> io::Result<()> {
        self.take(&slice.activity());
        Ok(())
    }
    fn activity(&mut self, activity: &Activity<'_>) -> io::Result<()> {
        self.take(activity);
        Ok(())
    }
    fn flow(&mut self, at: Timestamp, track: Track<'_>, flow: Flow) -> io::Result<()> {
        let track = self.track_of(track);
        self.arrow(track, signed(at), flow);
        Ok(())
    }
    fn async_track(&mut self, row: &AsyncRow<'_>) -> io::Result<()> {
        self.async_span(row.id);
        Ok(())
    }
    fn span(&mut self, _: &SpanRow<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// The row of the viewer: of threads the absolute value, as in a file.
fn ids(track: Track<'_>) -> (TrackId, TrackId) {
    let thread = match track.thread {
        Lane::Id(id) => TrackId::Id(id.checked_abs().unwrap_or(0)),
        Lane::Name(name) => TrackId::Name(name.to_owned()),
    };
    (id(track.process), thread)
}

fn id(lane: Lane<'_>) -> TrackId {
    match lane {
        Lane::Id(id) => TrackId::Id(id),
        Lane::Name(name) => TrackId::Name(name.to_owned()),
    }
}

/// Nanoseconds as libkineto counts them: enough until the year 2262.
fn signed(at: Timestamp) -> i64 {
    i64::try_from(at.as_nanos()).unwrap_or(i64::MAX)
}
