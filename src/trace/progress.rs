//! The progress of writing a trace, and its deadline.

use kineto_trace::activity::Activity;
use kineto_trace::fallible;
use kineto_trace::rows::{Rows, SliceRow};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Shared by the thread that writes a trace and the threads that wait for it.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Grows whenever a chunk was read or some rows were written.
    steps: AtomicU64,
    rows: AtomicU64,
    /// The time at which the file is closed, complete or not.
    deadline: OnceLock<Instant>,
    /// The number of rows written at the deadline.
    cut: OnceLock<u64>,
}

/// The number of rows between two clock reads.
const INTERVAL: u64 = 256;

impl Progress {
    pub(crate) fn count_step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns a number that grows as long as the writer makes progress.
    pub(crate) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// Returns how many rows of the file were written so far.
    pub(crate) fn written_rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Makes the writer close the file at that time, with the rows written by then; only the first call has an effect.
    pub(crate) fn close_at(&self, deadline: Instant) {
        let _ = self.deadline.set(deadline);
    }

    /// Returns the number of rows in the file, if it was closed early.
    pub(crate) fn rows_at_cut(&self) -> Option<u64> {
        self.cut.get().copied()
    }

    /// Counts the rows of a file, and ends the walk when the deadline comes.
    pub(super) fn of_file<'r>(&'r self, rows: &'r mut dyn Rows) -> CountedRows<'r> {
        self.rows.store(0, Ordering::Relaxed);
        CountedRows { progress: self, rows, count: 0, is_file: true }
    }

    /// Counts each row as progress, and does nothing else.
    pub(super) fn of_walk<'r>(&'r self, rows: &'r mut dyn Rows) -> CountedRows<'r> {
        CountedRows { progress: self, rows, count: 0, is_file: false }
    }
}

/// Counts the rows that it forwards.
pub(super) struct CountedRows<'r> {
    progress: &'r Progress,
    rows: &'r mut dyn Rows,
    count: u64,
    is_file: bool,
}

impl CountedRows<'_> {
    #[inline]
    fn count_row(&mut self) -> io::Result<()> {
        self.count += 1;
        if self.count % INTERVAL == 1 { self.publish_progress() } else { Ok(()) }
    }

    fn publish_progress(&self) -> io::Result<()> {
        let written = self.count - 1;
        self.progress.count_step();
        fallible::check_memory()?;
        if !self.is_file {
            return Ok(());
        }
        self.progress.rows.store(written, Ordering::Relaxed);
        if self.progress.deadline.get().is_none_or(|deadline| Instant::now() < *deadline) {
            return Ok(());
        }
        let _ = self.progress.cut.set(written);
        Err(io::ErrorKind::TimedOut.into())
    }
}

impl Rows for CountedRows<'_> {
    fn next_receiver(&mut self) -> Option<&mut dyn Rows> {
        Some(self.rows)
    }

    fn write_slice(&mut self, slice: &SliceRow<'_>) -> io::Result<()> {
        self.count_row()?;
        self.rows.write_slice(slice)
    }

    fn write_activity(&mut self, activity: &Activity<'_>) -> io::Result<()> {
        self.count_row()?;
        self.rows.write_activity(activity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;
    use kineto_trace::activity::{ActivityType, Body, Track};

    struct NoFile;

    impl Rows for NoFile {}

    #[test]
    fn steps_grow_while_rows_are_written() {
        let (progress, mut file) = (Progress::default(), NoFile);
        let body = Body::Instant { at: Timestamp::default() };
        let row = Activity::new(ActivityType::CpuInstantEvent, "row", Track::new(1, 1), body);
        let mut rows = progress.of_file(&mut file);
        let mut write_and_count = |count| {
            (0..count).for_each(|_| rows.write_activity(&row).unwrap());
            progress.steps()
        };
        let steps = [1, INTERVAL, INTERVAL].map(&mut write_and_count);
        assert!(steps.is_sorted_by(|before, after| before < after), "{steps:?}");
        assert_eq!(progress.written_rows(), INTERVAL * 2);
    }
}
