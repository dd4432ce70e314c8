//! The progress of writing a trace, and its deadline.

use crate::diag::diag;
use crate::os::platform;
use crate::text::count_with_noun;
use crate::wait::{since, steady};
use crate::write::file::FileContent;
use kineto_base::fallible;
use kineto_model::activity::Activity;
use kineto_model::rows::{Rows, SliceRow};
use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Shared by the thread that writes a trace and the threads that wait for it.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Grows whenever a chunk was read or some rows were written.
    steps: AtomicU64,
    rows: AtomicU64,
    /// The time at which the file is closed, complete or not.
    deadline: OnceLock<Instant>,
    /// Where the last file was closed early.
    cut: Mutex<Option<FileCut>>,
}

/// The end of a file that was closed early.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileCut {
    /// The number of rows in the file.
    pub(crate) rows: u64,
    /// The limit on the file's size that was reached; `None` at the deadline.
    size_limit: Option<u64>,
}

impl FileCut {
    /// Returns whether the file is as large as wanted.
    pub(crate) fn is_at_size_limit(&self) -> bool {
        self.size_limit.is_some()
    }

    /// Returns what was reached, and what to do, of a trace with so many rows in all.
    pub(crate) fn describe(&self, of: u64) -> String {
        let (rows, of) = (self.rows, count_with_noun(of, "row"));
        match self.size_limit {
            None => format!("closed at the time limit with {rows} of {of}: raise flush_timeout"),
            Some(limit) => format!(
                "closed at the file limit of {} MiB with {rows} of {of}: raise FILE_LIMIT_MB, or record less with a filter",
                limit.div_ceil(1 << 20)
            ),
        }
    }
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

    /// Returns where the last file was closed early, if it was.
    pub(crate) fn file_cut(&self) -> Option<FileCut> {
        *self.lock_cut()
    }

    fn lock_cut(&self) -> MutexGuard<'_, Option<FileCut>> {
        self.cut.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the rows of a file, of which there are some `all`, and ends the walk at the deadline and at the file's limit.
    pub(super) fn of_file<'r, 'f>(
        &'r self,
        rows: &'r mut dyn Rows,
        report: &'r ProgressReport<'f>,
        all: u64,
    ) -> CountedRows<'r, 'f> {
        self.rows.store(0, Ordering::Relaxed);
        *self.lock_cut() = None;
        CountedRows { progress: self, rows, count: 0, file: Some((report, all)) }
    }

    /// Counts each row as progress, and does nothing else.
    pub(super) fn of_walk<'r>(&'r self, rows: &'r mut dyn Rows) -> CountedRows<'r, 'r> {
        CountedRows { progress: self, rows, count: 0, file: None }
    }
}

/// Counts the rows that it forwards.
pub(super) struct CountedRows<'r, 'f> {
    progress: &'r Progress,
    rows: &'r mut dyn Rows,
    count: u64,
    /// The report of a file, and the approximate number of its rows.
    file: Option<(&'r ProgressReport<'f>, u64)>,
}

impl CountedRows<'_, '_> {
    /// Reports that all rows are written.
    pub(super) fn report_end(&self) {
        if let Some((report, _)) = self.file {
            report.call(self.count, self.count);
        }
    }

    #[inline]
    fn count_row(&mut self) -> io::Result<()> {
        self.count += 1;
        if self.count % INTERVAL == 1 { self.publish_progress() } else { Ok(()) }
    }

    fn publish_progress(&mut self) -> io::Result<()> {
        let written = self.count - 1;
        self.progress.count_step();
        fallible::check_memory()?;
        let Some((report, all)) = self.file else { return Ok(()) };
        self.progress.rows.store(written, Ordering::Relaxed);
        if report.is_due() {
            report.call(written, all.max(written));
        }
        let size_limit = report.file_limit.filter(|limit| report.file_bytes.get() >= *limit);
        if size_limit.is_none() && self.progress.deadline.get().is_none_or(|deadline| steady() < *deadline) {
            return Ok(());
        }
        *self.progress.lock_cut() = Some(FileCut { rows: written, size_limit });
        Err(io::ErrorKind::TimedOut.into())
    }
}

impl Rows for CountedRows<'_, '_> {
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

/// How much of a file is written; see [`Saver::on_progress`](crate::Saver::on_progress).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SaveProgress {
    /// The slices, instants and counters written so far.
    pub rows: u64,
    /// Approximately how many there are; exact when all are written.
    pub all_rows: u64,
    /// The bytes written so far, before compression.
    pub bytes: u64,
}

type ProgressCallback<'f> = Box<dyn FnMut(SaveProgress) + Send + 'f>;

/// The progress of one save: the bytes written, and the program's callback, if there is one.
#[derive(Default)]
pub(crate) struct ProgressReport<'f> {
    /// The size at which the file is closed.
    file_limit: Option<u64>,
    callback: RefCell<Option<ProgressCallback<'f>>>,
    called: Cell<Option<Instant>>,
    /// The bytes written so far, before compression.
    pub(super) content_bytes: Cell<u64>,
    /// The bytes in the file.
    file_bytes: Cell<u64>,
}

impl<'f> ProgressReport<'f> {
    pub(super) fn new(callback: impl FnMut(SaveProgress) + Send + 'f) -> ProgressReport<'f> {
        ProgressReport { callback: RefCell::new(Some(Box::new(callback))), ..ProgressReport::default() }
    }

    /// Closes the file at that size, without a callback.
    pub(super) fn with_limit(file_limit: Option<u64>) -> ProgressReport<'f> {
        ProgressReport { file_limit, ..ProgressReport::default() }
    }

    /// Returns whether there is a callback, and the last call was long enough ago.
    fn is_due(&self) -> bool {
        const LEAST: Duration = Duration::from_millis(100);
        self.callback.borrow().is_some() && self.called.get().is_none_or(|called| since(called) >= LEAST)
    }

    fn call(&self, rows: u64, all_rows: u64) {
        let mut callback = self.callback.borrow_mut();
        let Some(report) = &mut *callback else { return };
        let progress = SaveProgress { rows, all_rows, bytes: self.content_bytes.get() };
        // There is no clock in WebAssembly.
        self.called.set(platform::CAN_RECORD.then(steady));
        if catch_unwind(AssertUnwindSafe(|| report(progress))).is_err() {
            diag!(Error, "trace", "the progress callback panicked and is not called again; fix its code");
            *callback = None;
        }
    }
}

/// A writer that is no file of the crate's.
pub(super) struct PlainContent<'w>(pub(super) &'w mut dyn Write);

impl Write for PlainContent<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl FileContent for PlainContent<'_> {
    fn file_bytes(&self) -> u64 {
        0
    }
}

/// Counts the bytes that it forwards.
pub(super) struct CountedBytes<'w, 'f> {
    pub(super) out: &'w mut dyn FileContent,
    pub(super) report: &'w ProgressReport<'f>,
}

impl Write for CountedBytes<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.report.content_bytes.update(|bytes| bytes + written as u64);
        self.report.file_bytes.set(self.out.file_bytes());
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;
    use kineto_model::activity::{ActivityType, Body, Track};

    struct NoFile;

    impl Rows for NoFile {}

    #[test]
    fn steps_grow_while_rows_are_written() {
        let (progress, mut file) = (Progress::default(), NoFile);
        let body = Body::Instant { at: Timestamp::default() };
        let row = Activity::new(ActivityType::CpuInstantEvent, "row", Track::new(1, 1), body);
        let report = ProgressReport::default();
        let mut rows = progress.of_file(&mut file, &report, 0);
        let mut write_and_count = |count| {
            (0..count).for_each(|_| rows.write_activity(&row).unwrap());
            progress.steps()
        };
        let steps = [1, INTERVAL, INTERVAL].map(&mut write_and_count);
        assert!(steps.is_sorted_by(|before, after| before < after), "{steps:?}");
        assert_eq!(progress.written_rows(), INTERVAL * 2);
    }
}
