//! The street from a trace to its writers: rows, one by one, in the order of the file.

use std::io;

use crate::activity::{Activity, Args, Flow, Lane, Track};
use crate::time::Timestamp;

/// Takes the rows of a trace one by one, in file order.
///
/// A writer keeps no row: what it needs of one, it has written when the call returns. After the first error the walk
/// stops; what had been written until then is no whole file.
pub(crate) trait Rows {
    /// Takes the name, label and place of a group of rows.
    fn process(&mut self, row: &ProcessRow<'_>) -> io::Result<()>;

    /// Takes the name and place of one row of the viewer.
    fn thread(&mut self, row: &ThreadRow<'_>) -> io::Result<()>;

    /// Takes a slice, an instant or a set of counter values, with its end of an arrow if it has one.
    fn activity(&mut self, activity: &Activity<'_>) -> io::Result<()>;

    /// Takes an end of an arrow that no activity row carries.
    fn flow(&mut self, at: Timestamp, track: Track<'_>, flow: Flow) -> io::Result<()>;

    /// Takes a span that is drawn on an async track, from its first enter to its close.
    fn async_track(&mut self, row: &AsyncRow<'_>) -> io::Result<()>;

    /// Takes the row that stands for a whole recording.
    fn span(&mut self, row: &SpanRow<'_>) -> io::Result<()>;
}

/// A group of rows: a process or a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessRow<'t> {
    /// Which group.
    pub(crate) process: Lane<'t>,
    /// The heading.
    pub(crate) name: &'t str,
    /// What stands beside the heading, such as "CPU" or "GPU 0"; empty for none.
    pub(crate) label: &'t str,
    /// Groups are shown in the order of this number.
    pub(crate) sort_index: i64,
    /// The start of the recording.
    pub(crate) at: Timestamp,
}

/// One row: a thread or a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadRow<'t> {
    /// Which row.
    pub(crate) track: Track<'t>,
    /// The heading.
    pub(crate) name: &'t str,
    /// Rows of a group are shown in the order of this number.
    pub(crate) sort_index: i64,
    /// The start of the recording.
    pub(crate) at: Timestamp,
}

/// A span on a track of its own, apart from the threads that ran it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AsyncRow<'t> {
    /// The span's name.
    pub(crate) name: &'t str,
    /// The span's id; spans of one id share a track.
    pub(crate) id: u64,
    /// Where it was entered first.
    pub(crate) begin: Track<'t>,
    /// When it was entered first.
    pub(crate) start: Timestamp,
    /// Where it was closed.
    pub(crate) finish: Track<'t>,
    /// When it was closed.
    pub(crate) end: Timestamp,
    /// Everything else.
    pub(crate) args: &'t dyn Args,
}

/// A whole recording (libkineto's `TraceSpan`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpanRow<'t> {
    /// The recording's name, prefix included.
    pub(crate) name: &'t str,
    /// Which of the recordings of that name, from 0.
    pub(crate) iteration: i64,
    /// When it began.
    pub(crate) start: Timestamp,
    /// When it ended; 0 if it did not.
    pub(crate) end: Timestamp,
    /// How many host operations it holds.
    pub(crate) op_count: u64,
}
