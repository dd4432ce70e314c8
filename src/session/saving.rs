//! Writes a trace to the output in time, shows how far it has come, and says where it is.

use super::{Session, YEAR, later};
use crate::diag::{self, diag};
use crate::error::{Error, ErrorKind};
use crate::os::{fork, thread};
use crate::text::counted;
use crate::trace::Trace;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SendError};
use std::time::{Duration, Instant};

/// How long writers are waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// As long as they make progress, and that long without any.
    WhileAlive(Duration),
    /// Until then: the process ends. Then they close their files with the rows that they have.
    Until(Instant),
}

/// How long a writer whose time is up may take to close its file.
const TIME_TO_CLOSE: Duration = Duration::from_secs(1);

/// A shorter `flush_timeout` counts as this: a writer that is at work may make no progress for some milliseconds.
const LEAST: Duration = Duration::from_secs(1);

impl Patience {
    /// Returns how long writers are waited for from now on, if they make no progress.
    pub(crate) fn wait(self) -> Wait {
        let end = match self {
            Patience::WhileAlive(limit) => later(limit),
            Patience::Until(deadline) => deadline + TIME_TO_CLOSE,
        };
        Wait { patience: self, end, steps: None }
    }
}

/// A wait for writers.
pub(crate) struct Wait {
    patience: Patience,
    end: Instant,
    steps: Option<u64>,
}

impl Wait {
    /// Returns how much longer they are waited for, whose progress is `steps` by now.
    pub(crate) fn left(&mut self, steps: u64) -> Duration {
        if let Patience::WhileAlive(limit) = self.patience
            && self.steps.replace(steps) != Some(steps)
        {
            self.end = later(limit);
        }
        self.end.saturating_duration_since(Instant::now())
    }

    /// Returns why they are waited for no longer.
    pub(crate) fn why_over(&self) -> String {
        match self.patience {
            Patience::WhileAlive(limit) => format!("no progress for {limit:?}; raise flush_timeout"),
            Patience::Until(_) => "the process ended before; raise flush_timeout".to_owned(),
        }
    }
}

/// The traces that threads of the program are ending and writing now; a forked child has none of its parent's.
#[derive(Debug, Default)]
pub(super) struct Writes {
    active: fork::Own<Vec<(i64, Option<Trace>)>>,
}

/// A trace that the calling thread ends or writes.
#[derive(Debug)]
pub(crate) struct ActiveWrite<'w> {
    writes: &'w Writes,
    thread: i64,
}

impl Writes {
    /// Announces that the calling thread ends a recording, or writes a trace.
    pub(super) fn enter(&self, trace: Option<&Trace>) -> ActiveWrite<'_> {
        let thread = thread::id();
        self.active.lock().push((thread, trace.cloned()));
        ActiveWrite { writes: self, thread }
    }

    /// Makes all writers close their files at that time, with the rows that they have then.
    fn close_at(&self, deadline: Instant) {
        let active = self.active.lock();
        active.iter().filter_map(|(_, trace)| trace.as_ref()).for_each(|trace| trace.progress().close_at(deadline));
    }

    /// Waits until other threads have written what they are writing: the process ends at `deadline`.
    pub(super) fn wait_for_others(&self, deadline: Instant) {
        const INTERVAL: Duration = Duration::from_millis(5);
        let own = thread::id();
        let is_over = || self.active.lock().iter().all(|(thread, _)| *thread == own);
        let mut wait = Patience::Until(deadline).wait();
        while !is_over() && !wait.left(0).is_zero() {
            self.close_at(deadline);
            std::thread::sleep(INTERVAL);
        }
    }
}

impl Drop for ActiveWrite<'_> {
    fn drop(&mut self) {
        let mut active = self.writes.active.lock();
        // Of those of one thread, the last one ends first.
        if let Some(at) = active.iter().rposition(|(thread, _)| *thread == self.thread) {
            active.remove(at);
        }
    }
}

impl Session {
    /// Announces that the calling thread ends a recording: who ends the process waits for its file.
    pub(crate) fn begin_ending(&self) -> ActiveWrite<'_> {
        self.writes.enter(None)
    }

    /// Announces that the calling thread writes a trace: who ends the process waits for it.
    pub(crate) fn begin_writing(&self, trace: &Trace) -> ActiveWrite<'_> {
        self.writes.enter(Some(trace))
    }

    /// Returns a number that grows as long as some trace that is being written does, and the number of traces.
    pub(crate) fn write_steps(&self) -> u64 {
        let active = self.writes.active.lock();
        active.iter().filter_map(|(_, trace)| trace.as_ref()).map(|trace| trace.progress().steps() + 1).sum()
    }

    /// Makes all writers close their files in time, if the process ends.
    pub(crate) fn limit_writes(&self, patience: Patience) {
        if let Patience::Until(deadline) = patience {
            self.writes.close_at(deadline);
        }
    }

    /// Returns how long the program waits for a file.
    pub(crate) fn patience(&self) -> Patience {
        Patience::WhileAlive(self.flush_timeout().max(LEAST))
    }

    /// Returns when a process that ends at `now` waits for nothing more.
    pub(super) fn deadline(&self, now: Instant) -> Instant {
        now + self.flush_timeout().clamp(LEAST, YEAR)
    }

    /// Writes a trace to the output, if there is one, on a thread of its own, and waits for it. Without such a thread, the
    /// calling one writes, which may take longer than `patience`.
    pub(crate) fn write_in_time(&self, trace: Trace, patience: Patience) -> Result<(), Error> {
        self.begin_write(trace, patience)?.map_or(Ok(()), PendingWrite::wait)
    }

    /// Begins to write a trace to the output, if there is one, on a thread of its own.
    pub(super) fn begin_write(&self, trace: Trace, patience: Patience) -> Result<Option<PendingWrite<'_>>, Error> {
        let Some(path) = self.output() else { return Ok(None) };
        let active = self.writes.enter(Some(&trace));
        if let Patience::Until(deadline) = patience {
            trace.progress().close_at(deadline);
        }
        let (done, outcome) = mpsc::channel();
        let (written, target) = (trace.clone(), path.clone());
        let write = move || {
            // After the time-out, the other end is gone.
            if let Err(SendError(Ok(()))) = done.send(save(&written, &target)) {
                report(&written, &target);
            }
        };
        if std::thread::Builder::new().name("kineto-write".into()).spawn(write).is_err() {
            save(&trace, &path)?;
            report(&trace, &path);
            return Ok(None);
        }
        Ok(Some(PendingWrite { outcome, trace, path, patience, _active: active }))
    }
}

fn save(trace: &Trace, path: &Path) -> Result<(), Error> {
    // No caller could handle them; they are in the file.
    let _ = trace.check_violations();
    trace.save_all(path)
}

/// A trace that a thread is writing.
pub(super) struct PendingWrite<'w> {
    outcome: Receiver<Result<(), Error>>,
    trace: Trace,
    path: PathBuf,
    patience: Patience,
    _active: ActiveWrite<'w>,
}

impl PendingWrite<'_> {
    /// Waits until the file is written.
    pub(super) fn wait(self) -> Result<(), Error> {
        const INTERVAL: Duration = Duration::from_millis(100);
        let PendingWrite { outcome, trace, path, .. } = &self;
        let mut wait = self.patience.wait();
        let mut shown = ShownProgress { trace, path, begun: Instant::now(), lines: 0, has_bar: false };
        loop {
            let left = wait.left(trace.progress().steps());
            match outcome.recv_timeout(INTERVAL.min(left)) {
                Ok(saved) => {
                    // No message goes behind the bar.
                    drop(shown);
                    return saved.inspect(|()| report(trace, path));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let text = format!("{} was not written: the thread that writes it panicked", path.display());
                    return Err(Error::new(ErrorKind::Handler, text));
                }
                Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                    let text = format!("{} was not written: {}", path.display(), wait.why_over());
                    return Err(Error::new(ErrorKind::Timeout, text));
                }
                Err(RecvTimeoutError::Timeout) => shown.update(),
            }
        }
    }
}

/// What people see of a write that takes its time: a bar on a terminal, else a line now and then.
struct ShownProgress<'t> {
    trace: &'t Trace,
    path: &'t Path,
    begun: Instant,
    lines: u32,
    has_bar: bool,
}

impl ShownProgress<'_> {
    fn update(&mut self) {
        const FIRST: Duration = Duration::from_secs(1);
        /// The second line comes after that, the third after twice that, and so on.
        const NEXT: Duration = Duration::from_secs(10);
        const WIDTH: usize = 30;
        let elapsed = self.begun.elapsed();
        if elapsed < FIRST {
            return;
        }
        let (rows, path) = (self.trace.progress().rows(), self.path.display());
        // Counting them is what a writer begins with.
        let of = if rows == 0 { 0 } else { self.trace.row_count().max(rows) };
        let percent = (rows * 100).checked_div(of).unwrap_or(0);
        if diag::DOOR.has_terminal() {
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

/// Says in one line where a trace is, how much is in it, and what is not.
pub(super) fn report(trace: &Trace, path: &Path) {
    let stats = trace.stats();
    let mut text = format!("wrote {}: ", path.display());
    if let Some(rows) = trace.progress().cut() {
        text += &format!("closed at the time limit with {rows} of {} rows: raise flush_timeout", trace.row_count());
    } else {
        text += &counted(stats.slices, "slice").to_string();
        if stats.device_activities > 0 {
            text += &format!(", {}", counted(stats.device_activities, "device record"));
        }
    }
    let lost = stats.losses.iter().filter(|(loss, _)| loss.is_loss());
    let lost: Vec<_> = lost.map(|(loss, count)| format!("{} {count}", loss.as_str())).collect();
    if !lost.is_empty() {
        text += &format!("; lost: {}", lost.join(", "));
    }
    diag!(Stage, "trace", "{text}");
}
