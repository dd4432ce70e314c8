//! Where requests come from.

use crate::config::OnDemand;
use std::fmt;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Something that hands over requests, such as the daemon's socket.
///
/// It is called on the one thread that waits for all of them, which nothing here may keep.
pub(crate) trait RequestSource: fmt::Debug + Send {
    /// Returns what is readable when a request may have come; the thread waits for it.
    fn descriptor(&self) -> Option<RawFd>;

    /// Takes what has come, and does what is due by `now`; returns the texts of requests, with who has sent each.
    ///
    /// While it is `busy`, the process could not do more: a source that can leave a request where it is does so. One
    /// that comes all the same is returned.
    fn turn(&mut self, now: Instant, busy: bool) -> Vec<Incoming>;

    /// Publishes what the process is doing, as a JSON object. The default does nothing.
    fn publish(&mut self, _status: &str) {}

    /// Goes by these settings from now on, if they say anything to it.
    fn follow(&mut self, _settings: &OnDemand) {}

    /// Returns when it has something to do, if nothing comes before.
    fn due(&self) -> Instant;

    /// Ends it, by `deadline` at the latest.
    fn close(&mut self, deadline: Instant);
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Incoming {
    /// Its text, in libkineto's keys.
    pub(crate) text: String,
    /// Who has sent it, for people.
    pub(crate) by: String,
    /// Where its file goes if that is not for the text to say, but the program's own: then it may be anywhere, and no
    /// number is bounded.
    pub(crate) output: Option<PathBuf>,
    /// Where to say what becomes of it, if somebody waits to hear.
    pub(crate) answer: Option<Arc<dyn Answer>>,
}

/// Returns the id in a request's text, even if other lines are malformed.
pub(super) fn id_of(text: &str) -> Option<&str> {
    text.lines().rev().find_map(|line| line.trim().strip_prefix("REQUEST_TRACE_ID="))
}

/// Somebody who waits to hear what becomes of a request.
pub(crate) trait Answer: fmt::Debug + Send + Sync {
    /// Passes on a line of the log that is about it.
    fn tell(&self, line: &str, course: Course);
}

/// What such a line means for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Course {
    GoesOn,
    /// Its file is written: that is the end.
    Done,
    /// There will be no file: that is the end too.
    Failed,
}

/// Reports how a request ended, to the log and to its answer: one line that begins with `request ended: `, and one JSON
/// object, which it returns.
macro_rules! tell_end {
    ($severity:ident, $course:ident, $answer:expr, $outcome:expr, $($text:tt)+) => {{
        let (line, object) = (format!("request ended: {}", format_args!($($text)+)), $outcome.to_json());
        $crate::diag::diag!(data = &object, $severity, "ondemand", "{line}");
        if let Some(answer) = &$answer {
            answer.tell(&format!("{}\n{object}", line.trim_end()), $crate::ondemand::source::Course::$course);
        }
        object
    }};
}
pub(crate) use tell_end;

/// Says something about a request, to the log and to who waits for an answer, if anybody does.
macro_rules! tell {
    ($severity:ident, $course:ident, $answer:expr, $($text:tt)+) => {{
        let line = format!($($text)+);
        $crate::diag::diag!($severity, "ondemand", "{line}");
        if let Some(answer) = &$answer {
            answer.tell(&line, $crate::ondemand::source::Course::$course);
        }
    }};
}
pub(crate) use tell;
