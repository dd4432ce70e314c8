//! The interface between a trace and its writers: rows, one by one, in the order of the file.

use std::borrow::Cow;
use std::io;

use crate::activity::{Activity, ActivityType, ArgValue, Args, Body, CorrelationId, Flow, Lane, RecordScope, Track};
use crate::fields::{Word, decode_values};
pub use crate::keys::{Keys, WrittenFields};
use kineto_base::time::Timestamp;

/// Receives the rows of a trace one by one, in the order of the file.
///
/// By default a row is forwarded to the [next](Rows::next_receiver) receiver, if any. Otherwise a slice is converted to its
/// activity, and other rows are ignored. A receiver keeps no references to rows. The walk stops at the first error; the
/// file is then incomplete. Errors are those of the receiver.
#[expect(clippy::missing_errors_doc, reason = "the trait says it once")]
pub trait Rows {
    /// Returns the receiver of forwarded rows.
    fn next_receiver(&mut self) -> Option<&mut dyn Rows> {
        None
    }

    /// Receives the name, label and position of a group of rows.
    fn write_process(&mut self, row: &ProcessRow<'_>) -> io::Result<()> {
        self.next_receiver().map_or(Ok(()), |next| next.write_process(row))
    }

    /// Receives the name and position of one row of the viewer.
    fn write_thread(&mut self, row: &ThreadRow<'_>) -> io::Result<()> {
        self.next_receiver().map_or(Ok(()), |next| next.write_thread(row))
    }

    /// Receives a slice of a span, in parts; equivalent to its [`to_activity`](SliceRow::to_activity).
    fn write_slice(&mut self, slice: &SliceRow<'_>) -> io::Result<()> {
        match self.next_receiver() {
            Some(next) => next.write_slice(slice),
            None => self.write_activity(&slice.to_activity()),
        }
    }

    /// Receives a slice, an instant or a set of counter values, with its end of an arrow if any.
    fn write_activity(&mut self, activity: &Activity<'_>) -> io::Result<()> {
        self.next_receiver().map_or(Ok(()), |next| next.write_activity(activity))
    }

    /// Receives an end of an arrow that belongs to no activity row.
    fn write_flow(&mut self, at: Timestamp, track: Track<'_>, flow: Flow) -> io::Result<()> {
        self.next_receiver().map_or(Ok(()), |next| next.write_flow(at, track, flow))
    }

    /// Receives a span on an async track, from its first enter to its close.
    fn write_async_track(&mut self, row: &AsyncRow<'_>) -> io::Result<()> {
        self.next_receiver().map_or(Ok(()), |next| next.write_async_track(row))
    }

    /// Receives the row of a whole recording.
    fn write_span(&mut self, row: &SpanRow<'_>) -> io::Result<()> {
        self.next_receiver().map_or(Ok(()), |next| next.write_span(row))
    }
}

/// A group of rows: a process or a device.
#[derive(Clone, Copy, Debug)]
pub struct ProcessRow<'t> {
    /// The group.
    pub process: Lane<'t>,
    /// The heading.
    pub name: &'t str,
    /// The label next to the heading, such as "CPU" or "GPU 0"; may be empty.
    pub label: &'t str,
    /// Groups are sorted by this number.
    pub sort_index: i64,
    /// The start of the recording.
    pub at: Timestamp,
}

/// One row: a thread or a stream.
#[derive(Clone, Copy, Debug)]
pub struct ThreadRow<'t> {
    /// The row.
    pub track: Track<'t>,
    /// The heading.
    pub name: &'t str,
    /// Rows of a group are sorted by this number.
    pub sort_index: i64,
    /// The first row of the same thread or stream, if overlapping slices take several.
    pub continues: Option<Track<'t>>,
    /// The start of the recording.
    pub at: Timestamp,
}

/// A slice of a span; most rows of a trace are slices.
///
/// It comes in parts, so that a writer renders the parts shared by slices of a callsite only once.
#[derive(Clone, Copy, Debug)]
pub struct SliceRow<'t> {
    /// The name from the span's fields, replacing the callsite's.
    pub name: Option<&'t str>,
    /// The process, a number.
    pub process: i64,
    /// The thread, a number.
    pub thread: i64,
    /// The first nanosecond.
    pub start: Timestamp,
    /// The nanosecond after the last.
    pub end: Timestamp,
    /// Its own id, never 0.
    pub id: CorrelationId,
    /// The arguments.
    pub args: SpanArgs<'t>,
}

/// The arguments of a slice or of an async track, in parts and in order.
#[derive(Clone, Copy, Debug)]
pub struct SpanArgs<'t> {
    /// "span id".
    pub span: u64,
    /// "parent id"; 0 for none.
    pub parent: u64,
    /// The encoded fields with which the span was created.
    pub creation_fields: &'t [Word],
    /// Further arguments from the program; each key occurs once.
    pub more: Option<&'t dyn Args>,
    /// The arguments shared by all spans of the callsite.
    pub site: &'t SiteRow,
    /// Arguments added by the recording.
    pub marks: Option<&'t dyn Args>,
}

/// The parts shared by all slices of a callsite.
#[derive(Debug)]
pub struct SiteRow {
    /// The index among the trace's callsites.
    pub number: usize,
    /// The type; its name is the row's `cat`.
    pub kind: ActivityType,
    /// The name of the callsite.
    pub name: Cow<'static, str>,
    /// "target", if it is written.
    pub target: Option<Cow<'static, str>>,
    /// "location", if it is written.
    pub location: Option<String>,
    /// The scope derived from its target.
    pub scope: Option<RecordScope>,
    /// The keys of the fields.
    pub keys: Keys,
}

impl SliceRow<'_> {
    /// Returns the slice as a public activity.
    pub fn to_activity(&self) -> Activity<'_> {
        Activity {
            kind: self.args.site.kind,
            name: self.name.unwrap_or(&self.args.site.name),
            track: Track::new(self.process, self.thread),
            body: Body::Slice { start: self.start, end: self.end },
            id: self.id,
            linked: CorrelationId(0),
            flow: None,
            args: &self.args,
        }
    }
}

impl Args for SpanArgs<'_> {
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        each("span id", ArgValue::U64(self.span));
        if self.parent != 0 {
            each("parent id", ArgValue::U64(self.parent));
        }
        let mut shown = WrittenFields::default();
        let values = decode_values(self.creation_fields).filter(|value| shown.is_first(value.field));
        values.for_each(|value| self.site.keys.visit_value(value, each));
        self.more.iter().for_each(|more| more.visit(each));
        self.site.visit(each);
        self.marks.iter().for_each(|marks| marks.visit(each));
    }
}

impl Args for SiteRow {
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        let own = [("target", self.target.as_deref()), ("location", self.location.as_deref())];
        own.iter().for_each(|(key, text)| {
            if let Some(text) = text {
                each(key, ArgValue::Str(text));
            }
        });
        if let Some(scope) = self.scope {
            each("Record function scope", ArgValue::U64(scope.number().into()));
        }
    }
}

/// A span on an async track, apart from the threads that ran it.
#[derive(Clone, Copy, Debug)]
pub struct AsyncRow<'t> {
    /// The span's name.
    pub name: &'t str,
    /// The span's id.
    pub span: u64,
    /// The number of the async track; spans may share one.
    pub track: u64,
    /// The row on which it is drawn.
    pub on: Track<'t>,
    /// The time of its first enter.
    pub start: Timestamp,
    /// The time of its close.
    pub end: Timestamp,
    /// All other arguments.
    pub args: &'t dyn Args,
}

/// A whole recording (libkineto's `TraceSpan`).
#[derive(Clone, Copy, Debug)]
pub struct SpanRow<'t> {
    /// The recording's name, including the prefix.
    pub name: &'t str,
    /// The index of the recording among those of its name.
    pub iteration: i64,
    /// When it began.
    pub start: Timestamp,
    /// When it ended; 0 if it did not.
    pub end: Timestamp,
    /// The number of host operations.
    pub op_count: u64,
}
