//! Writes a trace to the output within a time limit, shows the progress, and reports the file.

use super::deadline_after;
use crate::diag::{self, diag};
use crate::error::{Error, ErrorKind};
use crate::os::{fork, thread};
use crate::text::count_with_noun;
use crate::trace::Trace;
use crate::wait::{since, sleep, steady};
use crate::write::file::{Contents, Destination};
use crate::write::sink::{Sinks, Writers};
use kineto_base::channel::{Receiver, channel};
use kineto_base::sorted::SortedMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::SendError;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long to wait for writers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// As long as they make progress, and at most that long without any.
    WhileAlive(Duration),
    /// Until the process ends; then they close their files with the rows written by then.
    Until(Instant),
}

/// How long a writer may take to close its file after its time limit.
pub(super) const TIME_TO_CLOSE: Duration = Duration::from_secs(1);

impl Patience {
    /// Starts to wait for writers.
    pub(crate) fn start_wait(self) -> WriteWait {
        let end = match self {
            Patience::WhileAlive(limit) => deadline_after(limit),
            Patience::Until(deadline) => deadline + TIME_TO_CLOSE,
        };
        WriteWait { patience: self, end, steps: None }
    }
}

/// A wait for writers.
pub(crate) struct WriteWait {
    patience: Patience,
    end: Instant,
    steps: Option<u64>,
}

impl WriteWait {
    /// Returns how much longer to wait; `steps` is the writers' progress so far.
    pub(crate) fn time_left(&mut self, steps: u64) -> Duration {
        if let Patience::WhileAlive(limit) = self.patience
            && self.steps.replace(steps) != Some(steps)
        {
            self.end = deadline_after(limit);
        }
        self.end.saturating_duration_since(steady())
    }

    /// Returns why the wait is over, and what to do.
    pub(crate) fn why_over(&self) -> String {
        match self.patience {
            Patience::WhileAlive(limit) => format!("no progress for {limit:?}; raise flush_timeout"),
            Patience::Until(_) => "the process ended first; raise flush_timeout".to_owned(),
        }
    }
}

/// The traces that threads are ending or writing now and wait for; a forked child starts with none.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    active: fork::Own<Vec<Weak<ActiveWrite>>>,
    /// The newest trace in each file, by the order in which they were taken.
    newest: fork::Own<SortedMap<PathBuf, u64>>,
}

/// A trace that is being ended or written, until it is dropped.
#[derive(Debug)]
pub(crate) struct ActiveWrite {
    /// The thread that waits for it.
    thread: i64,
    trace: Option<Trace>,
}

impl Writes {
    /// Registers the calling thread as writing a trace, or as ending a recording, so that the end of the process waits for the
    /// file.
    pub(crate) fn register(&self, trace: Option<&Trace>) -> Arc<ActiveWrite> {
        let write = Arc::new(ActiveWrite { thread: thread::id(), trace: trace.cloned() });
        let mut active = self.active.lock();
        active.retain(|write| write.strong_count() > 0);
        active.push(Arc::downgrade(&write));
        write
    }

    /// Returns the writes in progress. The list is not locked where they are dropped, which returns memory.
    fn active(&self) -> Vec<Arc<ActiveWrite>> {
        self.active.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns a number that grows with the progress of all writers, plus the number of their traces.
    pub(crate) fn progress_steps(&self) -> u64 {
        self.active().iter().filter_map(|write| write.trace.as_ref()).map(|trace| trace.progress().steps() + 1).sum()
    }

    /// Makes all writers close their files in time, with the rows written by then, if the process is ending.
    pub(crate) fn limit_writers(&self, patience: Patience) {
        let Patience::Until(deadline) = patience else { return };
        let active = self.active();
        active.iter().filter_map(|write| write.trace.as_ref()).for_each(|trace| trace.progress().close_at(deadline));
    }

    /// Waits until other threads have finished writing; the process ends at `deadline`.
    pub(super) fn wait_for_others(&self, deadline: Instant) {
        const INTERVAL: Duration = Duration::from_millis(5);
        let own = thread::id();
        let is_over = || self.active().iter().all(|write| write.thread == own);
        let patience = Patience::Until(deadline);
        let mut wait = patience.start_wait();
        while !is_over() && !wait.time_left(0).is_zero() {
            self.limit_writers(patience);
            sleep(INTERVAL);
        }
    }

    /// Writes a trace to a file on a new thread, and waits for it. If the thread cannot be started, the calling one writes,
    /// which may take longer than `patience`.
    pub(crate) fn write_in_time(
        self: &Arc<Self>,
        trace: Trace,
        path: PathBuf,
        patience: Patience,
    ) -> Result<(), Error> {
        self.begin_write(trace, path, patience)?.map_or(Ok(()), PendingWrite::wait)
    }

    /// Begins to write a trace to a file on a new thread.
    pub(super) fn begin_write(
        self: &Arc<Self>,
        trace: Trace,
        path: PathBuf,
        patience: Patience,
    ) -> Result<Option<PendingWrite>, Error> {
        let active = self.register(Some(&trace));
        if let Patience::Until(deadline) = patience {
            trace.progress().close_at(deadline);
        }
        let (done, outcome) = channel();
        let (writes, written, target) = (self.clone(), trace.clone(), path.clone());
        let write = move || {
            // After the timeout, the receiver is gone.
            if let Err(SendError(Ok(()))) = done.send(save_trace(&written, &writes.output_of(&written), &target)) {
                report_written_trace(&written, &target);
            }
        };
        if thread::spawn("kineto-write", Box::new(write)).is_err() {
            save_trace(&trace, &self.output_of(&trace), &path)?;
            report_written_trace(&trace, &path);
            return Ok(None);
        }
        Ok(Some(PendingWrite { outcome, trace, path, patience, _active: active }))
    }
}

/// The output of a session for one of its traces, which replaces no newer one: the last that was taken remains, also if an
/// earlier one takes longer to write.
pub(super) struct OrderedOutput<'o> {
    inner: &'o dyn Destination,
    newest: &'o fork::Own<SortedMap<PathBuf, u64>>,
    taken_as: u64,
}

impl Writes {
    /// Returns the output for a trace.
    pub(super) fn output_of<'o>(&'o self, trace: &'o Trace) -> OrderedOutput<'o> {
        let taken_as = trace.contents().info.taken_as;
        OrderedOutput { inner: trace.destination(), newest: &self.newest, taken_as }
    }
}

impl Destination for OrderedOutput<'_> {
    fn write_file(&self, path: &Path, gzip_level: u32, contents: &mut Contents<'_>) -> Result<PathBuf, Error> {
        /// No more files than that are being written at one time.
        const FILES_MAX: usize = 64;
        if !Sinks::is_file(path) {
            return self.inner.write_file(path, gzip_level, contents);
        }
        let (mut newest, mut is_outdated) = (None, false);
        let written = self.inner.write_file(path, gzip_level, &mut |name, out| {
            contents(name, out)?;
            // From here on until the file has its name.
            let known = self.newest.lock();
            is_outdated = known.get(path).is_some_and(|newest| *newest > self.taken_as);
            newest = Some(known);
            if is_outdated { Err(io::Error::other("a newer trace has been written")) } else { Ok(()) }
        });
        match (written, newest) {
            (Err(_), _) if is_outdated => Ok(path.to_owned()),
            (Ok(name), Some(mut known)) => {
                known.insert(path.to_owned(), self.taken_as);
                if known.len() > FILES_MAX {
                    let oldest = known.iter().min_by_key(|(_, taken_as)| **taken_as).map(|(path, _)| path.clone());
                    oldest.and_then(|oldest| known.remove(&oldest));
                }
                Ok(name)
            }
            (written, _) => written,
        }
    }
}

/// Saves a trace that the crate writes by itself; a panic is an error.
pub(super) fn save_trace(trace: &Trace, to: &dyn Destination, path: &Path) -> Result<(), Error> {
    contain_panics(path, || {
        // No caller could handle violations; the file contains them.
        let _ = trace.check_violations();
        trace.save_all(to, path).map(drop)
    })
}

/// Saves to `path` by `save`; a panic is an error.
pub(super) fn contain_panics<R>(path: &Path, save: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
    catch_unwind(AssertUnwindSafe(save)).unwrap_or_else(|_| {
        let is_ours = Sinks::is_file(path);
        let what = if is_ours { "its writer panicked; please report this" } else { "the program's writer panicked" };
        let text = format!("{} was not written: {what}", Writers::output_name(path));
        Err(Error::new(ErrorKind::Handler, text))
    })
}

/// A trace that a thread is writing.
pub(super) struct PendingWrite {
    outcome: Receiver<Result<(), Error>>,
    trace: Trace,
    path: PathBuf,
    patience: Patience,
    _active: Arc<ActiveWrite>,
}

impl PendingWrite {
    /// Returns the trace that is being written.
    pub(super) fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Waits until the file is written.
    pub(super) fn wait(self) -> Result<(), Error> {
        const INTERVAL: Duration = Duration::from_millis(100);
        let PendingWrite { outcome, trace, path, .. } = &self;
        let mut wait = self.patience.start_wait();
        let mut shown = ShownProgress { trace, path, begun: steady(), lines: 0, has_bar: false };
        loop {
            let left = wait.time_left(trace.progress().steps());
            match outcome.recv_timeout(INTERVAL.min(left)) {
                Ok(saved) => {
                    // Erases the progress bar before the next message.
                    drop(shown);
                    return saved.inspect(|()| report_written_trace(trace, path));
                }
                // The thread sends its result in any case, so this is a timeout.
                Err(_) if left.is_zero() => {
                    let text = format!("{} was not written: {}", Writers::output_name(path), wait.why_over());
                    return Err(Error::new(ErrorKind::Timeout, text));
                }
                Err(_) => shown.update_progress(),
            }
        }
    }
}

/// Shows the progress of a long write: a bar on a terminal, else a line now and then.
struct ShownProgress<'t> {
    trace: &'t Trace,
    path: &'t Path,
    begun: Instant,
    lines: u32,
    has_bar: bool,
}

impl ShownProgress<'_> {
    fn update_progress(&mut self) {
        const FIRST: Duration = Duration::from_secs(1);
        /// The interval between further lines.
        const NEXT: Duration = Duration::from_secs(10);
        const WIDTH: usize = 30;
        let elapsed = since(self.begun);
        if elapsed < FIRST {
            return;
        }
        let (rows, path) = (self.trace.progress().written_rows(), Writers::output_name(self.path));
        // A writer counts the rows first.
        let of = if rows == 0 { 0 } else { self.trace.row_count().max(rows) };
        let percent = (rows * 100).checked_div(of).unwrap_or(0);
        if diag::LOGGER.has_terminal() {
            let full = usize::try_from(percent).map_or(WIDTH, |percent| WIDTH * percent.min(100) / 100);
            let bar = "#".repeat(full) + &".".repeat(WIDTH - full);
            diag::show_status(&format!("writing {path} [{bar}] {percent:3} %"));
            self.has_bar = true;
        } else if elapsed >= FIRST + NEXT * self.lines {
            self.lines += 1;
            diag!(Stage, "trace", "writing {path}: {percent} % after {elapsed:.0?}");
        }
    }
}

impl Drop for ShownProgress<'_> {
    fn drop(&mut self) {
        if self.has_bar {
            diag::show_status("");
        }
    }
}

/// Reports in one line a trace's file, how much it contains, and what was lost.
pub(super) fn report_written_trace(trace: &Trace, path: &Path) {
    let stats = trace.stats();
    let mut text = format!("wrote {}: ", Writers::output_name(path));
    if let Some(cut) = trace.progress().file_cut() {
        text += &cut.describe(trace.row_count());
    } else {
        text += &count_with_noun(stats.slices, "slice").to_string();
        if stats.device_activities > 0 {
            text += &format!(", {}", count_with_noun(stats.device_activities, "device record"));
        }
    }
    let lost = stats.losses.iter().filter(|(loss, _)| loss.is_loss());
    let lost: Vec<_> = lost.map(|(loss, count)| format!("{} {count}", loss.as_str())).collect();
    if !lost.is_empty() {
        text += &format!("; lost: {}", lost.join(", "));
    }
    diag!(Stage, "trace", "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "starts a process")]
    fn progress_prolongs_a_wait() {
        let check = || {
            let mut wait = Patience::WhileAlive(Duration::from_secs(60)).start_wait();
            let mut end_after = |steps| {
                sleep(Duration::from_millis(1));
                wait.time_left(steps);
                wait.end
            };
            let ends = [1, 1, 2, 2].map(&mut end_after);
            assert!(ends[0] == ends[1] && ends[1] < ends[2] && ends[2] == ends[3], "{ends:?}");
        };
        test_base::virtual_time(|clock| clock.run(check));
    }
}
