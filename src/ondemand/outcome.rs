//! The outcome of a request: one line of the log, and one JSON object.

use crate::trace::TraceStats;
use std::path::Path;
use std::time::Duration;

/// The outcome of a request.
#[derive(Debug)]
pub(super) struct Outcome<'r> {
    /// The request's id; empty if it has none.
    id: &'r str,
    outcome: &'static str,
    reason: Option<&'r str>,
    path: Option<&'r Path>,
    stats: Option<&'r TraceStats>,
    late: Duration,
}

impl<'r> Outcome<'r> {
    pub(super) const WRITTEN: &'static str = "written";
    pub(super) const FAILED: &'static str = "failed";
    pub(super) const REFUSED: &'static str = "refused";
    pub(super) const CANCELLED: &'static str = "cancelled";
    /// The request needed no file.
    pub(super) const DONE: &'static str = "done";

    pub(super) fn new(id: &'r str, outcome: &'static str) -> Outcome<'r> {
        Outcome { id, outcome, reason: None, path: None, stats: None, late: Duration::ZERO }
    }

    /// Adds the reason, unless it is empty.
    pub(super) fn with_reason(self, reason: &'r str) -> Outcome<'r> {
        Outcome { reason: Some(reason).filter(|reason| !reason.is_empty()), ..self }
    }

    /// Adds the file, its contents, and the delay of its recording.
    pub(super) fn with_file(self, path: &'r Path, stats: &'r TraceStats, late: Duration) -> Outcome<'r> {
        Outcome { path: Some(path), stats: Some(stats), late, ..self }
    }

    /// Returns the outcome as a JSON object in one line.
    pub(super) fn to_json(&self) -> String {
        let losses = self.stats.iter().flat_map(|stats| &stats.losses).filter(|(loss, _)| loss.is_loss());
        let losses = losses.map(|(loss, count)| (loss.as_str().to_owned(), (*count).into()));
        let object = serde_json::json!({
            "request": self.id,
            "outcome": self.outcome,
            "reason": self.reason,
            "path": self.path.map(Path::to_string_lossy),
            "slices": self.stats.map(|stats| stats.slices),
            "losses": serde_json::Value::Object(losses.collect()),
            "late_ms": self.late.as_secs_f64() * 1e3,
        });
        object.to_string()
    }
}
