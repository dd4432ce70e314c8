//! Where requests come from.

use crate::config::OnDemand;
use std::fmt;
use std::os::fd::RawFd;
use std::path::PathBuf;
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

    /// Goes by these settings from now on, if they say anything to it.
    fn follow(&mut self, _settings: &OnDemand) {}

    /// Returns when it has something to do, if nothing comes before.
    fn due(&self) -> Instant;

    /// Ends it, by `deadline` at the latest.
    fn close(&mut self, deadline: Instant);
}

/// A request as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Incoming {
    /// Its text, in libkineto's keys.
    pub(crate) text: String,
    /// Who has sent it, for people.
    pub(crate) by: String,
    /// Where its file goes if that is not for the text to say, but the program's own: then it may be anywhere, and no
    /// number is bounded.
    pub(crate) output: Option<PathBuf>,
}
