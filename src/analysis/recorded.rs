//! From a recording to its events.

use super::events::{Builder, Events, id};
use crate::activity::{Activity, Flow, Track};
use crate::time::Timestamp;
use crate::trace::Trace;
use crate::trace::rows::{AsyncRow, ProcessRow, Rows, SliceRow, SpanRow, ThreadRow};
use std::io;

impl Trace {
    /// Returns all events in memory, in the order of their start; torch's `events()`.
    ///
    /// They are made anew by each call. Async tracks are no events: their slices are.
    pub fn events(&self) -> Events {
        let mut builder = Builder::default();
        // `Builder` has no errors.
        let _ = self.rows(&mut builder);
        builder.finish(Some(self.window()), self.metadata())
    }
}

impl Rows for Builder {
    fn process(&mut self, _: &ProcessRow<'_>) -> io::Result<()> {
        Ok(())
    }
    fn thread(&mut self, row: &ThreadRow<'_>) -> io::Result<()> {
        self.name(&id(row.track.process), &id(row.track.thread), row.name);
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
    fn flow(&mut self, _: Timestamp, _: Track<'_>, _: Flow) -> io::Result<()> {
        Ok(())
    }
    fn async_track(&mut self, _: &AsyncRow<'_>) -> io::Result<()> {
        Ok(())
    }
    fn span(&mut self, _: &SpanRow<'_>) -> io::Result<()> {
        Ok(())
    }
}
