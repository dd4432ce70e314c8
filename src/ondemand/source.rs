//! Sources of requests.

use crate::config::OnDemandConfig;
use crate::trace::TraceStats;
use std::fmt;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A source of requests, such as the daemon's socket.
///
/// It is called on the one thread that waits for all sources, so it must not block.
pub(crate) trait RequestSource: fmt::Debug + Send {
    /// Returns the descriptor that is readable when a request may have arrived; the thread polls it.
    fn descriptor(&self) -> Option<RawFd>;

    /// Handles due work at `now`, and returns the requests that have arrived.
    ///
    /// While the process is `busy`, a source leaves a request in its place if it can, and returns it otherwise.
    fn poll_requests(&mut self, now: Instant, busy: bool) -> Vec<Incoming>;

    /// Publishes the state of the process, a JSON object. The default does nothing.
    fn publish_status(&mut self, _status: &str) {}

    /// Applies reloaded settings. The default does nothing.
    fn apply_settings(&mut self, _settings: &OnDemandConfig) {}

    /// Returns when it must be polled, if nothing arrives before.
    fn next_poll_time(&self) -> Instant;

    /// Closes the source, by `deadline` at the latest.
    fn close(&mut self, deadline: Instant);
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Incoming {
    /// Its text, in libkineto's keys.
    pub(crate) text: String,
    /// The requester, for messages.
    pub(crate) by: String,
    /// The file, if the program's own configuration is the source: then it may be anywhere, and no number is bounded.
    pub(crate) output: Option<PathBuf>,
    /// Where to report the progress, if the requester waits for it.
    pub(crate) answer: Option<Arc<dyn AnswerChannel>>,
}

/// Returns the id in a request's text, even if other lines are malformed.
pub(super) fn id_of(text: &str) -> Option<&str> {
    text.lines().rev().find_map(|line| line.trim().strip_prefix("REQUEST_TRACE_ID="))
}

/// Reports the progress of a request to its requester.
pub(crate) trait AnswerChannel: fmt::Debug + Send + Sync {
    /// Sends a line of the log that is about the request.
    fn send_line(&self, line: &str, progress: RequestProgress);
}

/// The progress of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestProgress {
    Ongoing,
    /// The request has ended and its file is written.
    Done,
    /// The request has ended without a file.
    Failed,
}

/// Returns the outcome of a request as a JSON object in one line; `file` is what was written, and how late its recording began.
pub(super) fn outcome_json(
    id: &str,
    outcome: &str,
    reason: &str,
    file: Option<(&Path, &TraceStats, Duration)>,
) -> String {
    let stats = file.map(|(_, stats, _)| stats);
    let losses = stats.into_iter().flat_map(|stats| &stats.losses).filter(|(loss, _)| loss.is_loss());
    let losses = losses.map(|(loss, count)| (loss.as_str().to_owned(), (*count).into()));
    let object = serde_json::json!({
        "request": id,
        "outcome": outcome,
        "reason": Some(reason).filter(|reason| !reason.is_empty()),
        "path": file.map(|(path, ..)| path.to_string_lossy()),
        "slices": stats.map(|stats| stats.slices),
        "losses": serde_json::Value::Object(losses.collect()),
        "late_ms": file.map_or(Duration::ZERO, |(_, _, late)| late).as_secs_f64() * 1e3,
    });
    object.to_string()
}

/// Reports how a request ended, to the log and to its answer channel: one line that begins with `request ended: `, and one
/// JSON object, which it returns.
macro_rules! report_outcome {
    ($severity:ident, $progress:ident, $answer:expr, $outcome:expr, $($text:tt)+) => {{
        let (line, object) = (format!("request ended: {}", format_args!($($text)+)), $outcome);
        $crate::diag::diag!(data = &object, $severity, "ondemand", "{line}");
        if let Some(answer) = &$answer {
            answer.send_line(&format!("{}\n{object}", line.trim_end()), $crate::ondemand::source::RequestProgress::$progress);
        }
        object
    }};
}
pub(crate) use report_outcome;

/// Reports a request's progress, to the log and to its answer channel, if any.
macro_rules! report_progress {
    ($severity:ident, $progress:ident, $answer:expr, $($text:tt)+) => {{
        let line = format!($($text)+);
        $crate::diag::diag!($severity, "ondemand", "{line}");
        if let Some(answer) = &$answer {
            answer.send_line(&line, $crate::ondemand::source::RequestProgress::$progress);
        }
    }};
}
pub(crate) use report_progress;
