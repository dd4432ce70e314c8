//! Why a collector records nothing.

use kineto_base::encoding::{encoded, encoded_as};
use kineto_base::os::platform;
use std::fmt;

/// Explains why a collector records nothing, or not everything, and what to do about it.
///
/// ```
/// use tracing_kineto::integration::{Unavailable, Why};
///
/// let reason = Unavailable::new(Why::NoDevice, "no accelerator was found", "load its driver");
/// assert_eq!(reason.why(), Why::NoDevice);
/// assert_eq!(reason.advice(), "load its driver");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    why: Why,
    message: String,
    advice: String,
}

/// The name of an unused collector, and the reason.
pub(crate) type Rejected = (&'static str, Unavailable);

/// The category of a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Why {
    /// It is disabled, or nothing that it records is selected.
    Disabled,
    /// No such device or no driver for it was found.
    NoDevice,
    /// The vendor's library was not found.
    LibraryNotFound,
    /// The library that was found cannot be used: it is too old, too new for the driver, or lacks a function.
    Incompatible,
    /// Another profiler of this process, or of the machine, is using the library.
    Busy,
    /// The process lacks the permission.
    Forbidden,
    /// This platform, device or mode does not support it.
    Unsupported,
    /// The vendor's library reported an error.
    Failed,
}

encoded! {
    Unavailable { why, message, advice }
}

encoded_as! {
    Why as u8: |why| *why as u8, |number| Why::ALL.into_iter().find(|why| *why as u8 == number);
}

impl Why {
    const ALL: [Why; 8] = [
        Why::Disabled,
        Why::NoDevice,
        Why::LibraryNotFound,
        Why::Incompatible,
        Why::Busy,
        Why::Forbidden,
        Why::Unsupported,
        Why::Failed,
    ];
}

impl Unavailable {
    /// Makes a reason: the problem, and what to do about it. Both are lower case, without a full stop.
    pub fn new(why: Why, message: impl Into<String>, advice: impl Into<String>) -> Unavailable {
        Unavailable { why, message: message.into(), advice: advice.into() }
    }

    /// Returns the reason that the collector is not in this build because a Cargo feature is off.
    pub(crate) fn not_built(feature: &str) -> Unavailable {
        let message = format!("this build lacks tracing-kineto's feature `{feature}`");
        Unavailable::new(Why::Disabled, message, "enable it in Cargo.toml")
    }

    /// Returns the reason that the platform is not supported.
    pub fn on_this_platform() -> Unavailable {
        Unavailable::new(Why::Unsupported, platform::LACKING, platform::REMEDY)
    }

    /// Returns the reason that this process is a fork of a process that `did` what fails in a fork, such as "recorded
    /// CUDA".
    pub(super) fn in_fork(did: &str) -> Unavailable {
        let message = format!("this process was forked from one that {did}, which does not work in a fork");
        Unavailable::new(Why::Unsupported, message, "fork before the first recording, or exec")
    }

    /// Returns the reason that another recording uses a library that serves a single recording at a time.
    pub(super) fn library_in_use(library: &str) -> Unavailable {
        let message = format!("another recording of this process is using {library}, or has not released it yet");
        Unavailable::new(Why::Busy, message, "stop that recording first")
    }

    /// Returns the reason that the thread of a recording cannot be started.
    pub(super) fn no_thread(error: &std::io::Error) -> Unavailable {
        Unavailable::new(Why::Failed, format!("no thread can be started: {error}"), "raise `ulimit -u`")
    }

    /// Returns its category.
    pub fn why(&self) -> Why {
        self.why
    }

    /// Returns the problem.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns what to do about it; empty if there is no remedy.
    pub fn advice(&self) -> &str {
        &self.advice
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if self.advice.is_empty() { Ok(()) } else { write!(f, "; {}", self.advice) }
    }
}

impl std::error::Error for Unavailable {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_as_a_sentence() {
        let reason = Unavailable::new(Why::Busy, "another profiler has it", "stop that one");
        assert_eq!(reason.to_string(), "another profiler has it; stop that one");
        assert_eq!(Unavailable::new(Why::Disabled, "off", "").to_string(), "off");
    }
}
