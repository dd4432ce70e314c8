//! The street from a trace to its writers: rows, one by one, in the order of the file.

use std::io;

use crate::activity::{Activity, ActivityType, ArgValue, Args, Body, CorrelationId, Flow, Lane, RecordScope, Track};
use crate::fields::{Word, values};
pub use crate::keys::{Keys, Shown};
use crate::time::Timestamp;

/// Takes the rows of a trace one by one, in file order.
///
/// What one has no use for goes to the [next](Rows::next), if there is one; else a slice is taken as its activity, and the
/// rest is passed over. A writer keeps no row: what it needs of one, it has written when the call returns. After the first
/// error the walk stops; what had been written until then is no whole file.
pub trait Rows {
    /// Returns who takes what this one hands on.
    fn next(&mut self) -> Option<&mut dyn Rows> {
        None
    }

    /// Takes the name, label and place of a group of rows.
    fn process(&mut self, row: &ProcessRow<'_>) -> io::Result<()> {
        self.next().map_or(Ok(()), |next| next.process(row))
    }

    /// Takes the name and place of one row of the viewer.
    fn thread(&mut self, row: &ThreadRow<'_>) -> io::Result<()> {
        self.next().map_or(Ok(()), |next| next.thread(row))
    }

    /// Takes a slice of a span; the same as its [`activity`](SliceRow::activity), in parts.
    fn slice(&mut self, slice: &SliceRow<'_>) -> io::Result<()> {
        match self.next() {
            Some(next) => next.slice(slice),
            None => self.activity(&slice.activity()),
        }
    }

    /// Takes a slice, an instant or a set of counter values, with its end of an arrow if it has one.
    fn activity(&mut self, activity: &Activity<'_>) -> io::Result<()> {
        self.next().map_or(Ok(()), |next| next.activity(activity))
    }

    /// Takes an end of an arrow that no activity row carries.
    fn flow(&mut self, at: Timestamp, track: Track<'_>, flow: Flow) -> io::Result<()> {
        self.next().map_or(Ok(()), |next| next.flow(at, track, flow))
    }

    /// Takes a span that is drawn on an async track, from its first enter to its close.
    fn async_track(&mut self, row: &AsyncRow<'_>) -> io::Result<()> {
        self.next().map_or(Ok(()), |next| next.async_track(row))
    }

    /// Takes the row that stands for a whole recording.
    fn span(&mut self, row: &SpanRow<'_>) -> io::Result<()> {
        self.next().map_or(Ok(()), |next| next.span(row))
    }
}

/// A group of rows: a process or a device.
#[derive(Clone, Copy, Debug)]
pub struct ProcessRow<'t> {
    /// Which group.
    pub process: Lane<'t>,
    /// The heading.
    pub name: &'t str,
    /// What stands beside the heading, such as "CPU" or "GPU 0"; empty for none.
    pub label: &'t str,
    /// Groups are shown in the order of this number.
    pub sort_index: i64,
    /// The start of the recording.
    pub at: Timestamp,
}

/// One row: a thread or a stream.
#[derive(Clone, Copy, Debug)]
pub struct ThreadRow<'t> {
    /// Which row.
    pub track: Track<'t>,
    /// The heading.
    pub name: &'t str,
    /// Rows of a group are shown in the order of this number.
    pub sort_index: i64,
    /// The first row of the same thread or stream, where slices that overlap take several.
    pub continues: Option<Track<'t>>,
    /// The start of the recording.
    pub at: Timestamp,
}

/// A stretch of time that a thread spent in a span: what traces are mostly made of.
///
/// It comes in parts, so that a writer need not put together again what all slices of a callsite share.
#[derive(Clone, Copy, Debug)]
pub struct SliceRow<'t> {
    /// The name that its span's fields give it, in place of the callsite's.
    pub name: Option<&'t str>,
    /// The process and the thread, each a number.
    pub process: i64,
    pub thread: i64,
    pub start: Timestamp,
    pub end: Timestamp,
    /// Its own id, never 0.
    pub id: CorrelationId,
    pub args: SpanArgs<'t>,
}

/// The arguments of a slice or of an async track, in parts and in their order.
#[derive(Clone, Copy, Debug)]
pub struct SpanArgs<'t> {
    /// "span id".
    pub span: u64,
    /// "parent id"; 0 for none.
    pub parent: u64,
    /// The fields that the span was made with, as they were encoded.
    pub made_with: &'t [Word],
    /// What else the program says of the span, no key a second time.
    pub more: Option<&'t dyn Args>,
    /// What all spans of the callsite share.
    pub site: &'t SiteRow,
    /// What the recording says of it.
    pub marks: Option<&'t dyn Args>,
}

/// What all slices of a callsite share.
#[derive(Debug)]
pub struct SiteRow {
    /// Which of the trace's callsites, from 0.
    pub number: usize,
    pub kind: ActivityType,
    pub name: &'static str,
    /// "target", if it is shown.
    pub target: Option<&'static str>,
    /// "location", if it is shown.
    pub location: Option<String>,
    /// The scope that its target stands for.
    pub scope: Option<RecordScope>,
    /// Under which keys the fields are shown.
    pub keys: Keys,
}

impl SliceRow<'_> {
    /// Returns the slice as it is shown to programs.
    pub fn activity(&self) -> Activity<'_> {
        Activity {
            kind: self.args.site.kind,
            name: self.name.unwrap_or(self.args.site.name),
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
        let mut shown = Shown::default();
        let values = values(self.made_with).filter(|value| shown.is_first(value.field));
        values.for_each(|value| self.site.keys.show(value, each));
        self.more.iter().for_each(|more| more.visit(each));
        self.site.visit(each);
        self.marks.iter().for_each(|marks| marks.visit(each));
    }
}

impl Args for SiteRow {
    fn visit(&self, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        let own = [("target", self.target), ("location", self.location.as_deref())];
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

/// A span on a track apart from the threads that ran it.
#[derive(Clone, Copy, Debug)]
pub struct AsyncRow<'t> {
    /// The span's name.
    pub name: &'t str,
    /// The span's id.
    pub span: u64,
    /// Spans that share a track have one number here.
    pub track: u64,
    /// Where it is drawn.
    pub on: Track<'t>,
    /// When it was entered first.
    pub start: Timestamp,
    /// When it was closed.
    pub end: Timestamp,
    /// Everything else.
    pub args: &'t dyn Args,
}

/// A whole recording (libkineto's `TraceSpan`).
#[derive(Clone, Copy, Debug)]
pub struct SpanRow<'t> {
    /// The recording's name, prefix included.
    pub name: &'t str,
    /// Which of the recordings of that name, from 0.
    pub iteration: i64,
    /// When it began.
    pub start: Timestamp,
    /// When it ended; 0 if it did not.
    pub end: Timestamp,
    /// How many host operations it holds.
    pub op_count: u64,
}
