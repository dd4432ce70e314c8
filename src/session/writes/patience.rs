//! Waits for a file as long as its writer makes progress, shows that progress, and reports the file.

use super::active::ActiveWrite;
use crate::diag::{self, diag};
use crate::error::{Error, ErrorKind};
use crate::session::deadline_after;
use crate::text::count_with_noun;
use crate::trace::Trace;
use crate::wait::{since, steady};
use crate::write::sink::Writers;
use std::path::{Path, PathBuf};
use std::sync::Arc;
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
pub(in crate::session) const TIME_TO_CLOSE: Duration = Duration::from_secs(1);

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

/// A trace that a thread is writing, for the caller.
pub(in crate::session) struct PendingWrite {
    pub(super) write: Arc<ActiveWrite>,
    pub(super) trace: Trace,
    pub(super) path: PathBuf,
    pub(super) patience: Patience,
}

impl PendingWrite {
    /// Returns the trace that is being written.
    pub(in crate::session) fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Waits until the file is written.
    pub(in crate::session) fn wait(self) -> Result<(), Error> {
        const INTERVAL: Duration = Duration::from_millis(100);
        let PendingWrite { write, trace, path, .. } = &self;
        let mut wait = self.patience.start_wait();
        let mut shown = ShownProgress { trace, path, begun: steady(), lines: 0, has_bar: false };
        let saved = loop {
            let left = wait.time_left(trace.progress().steps());
            if let Some(saved) = write.wait_until(steady() + INTERVAL.min(left)) {
                break saved;
            }
            if !left.is_zero() {
                shown.update_progress();
            } else if let Some(saved) = write.give_up() {
                break saved;
            } else {
                let text = format!("{} was not written: {}", Writers::output_name(path), wait.why_over());
                return Err(Error::new(ErrorKind::Timeout, text));
            }
        };
        // Erases the progress bar before the next message.
        drop(shown);
        saved.inspect(|()| report_written_trace(trace, path))
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
pub(in crate::session) fn report_written_trace(trace: &Trace, path: &Path) {
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
    use crate::wait::sleep;

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
