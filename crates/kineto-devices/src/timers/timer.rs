//! The interface of a device that can time spans.

use crate::{Capabilities, DeviceDescription, Unavailable};
use std::fmt;
use std::time::Duration;

/// Measures times on a device by events among its work; torch's `ProfilerStubs`.
///
/// [`EventTimers`](super::EventTimers) records an event when a thread enters a span, and one when it leaves. When the
/// recording stops, it queries the time between them, on the stopping thread. Several threads may call the methods at
/// a time. Only [`elapsed`](DeviceTimer::elapsed) may block, and no method may open recorded spans.
pub trait DeviceTimer: fmt::Debug + Send + Sync {
    /// Returns the name that the trace uses: a single word in lower case. Default: "timers".
    fn name(&self) -> &'static str {
        "timers"
    }

    /// Returns whether it can measure here; called before each recording. The returned `types` are ignored.
    ///
    /// # Errors
    /// What is missing, and what to do about it.
    fn probe(&self) -> Result<Capabilities, Unavailable> {
        Ok(Capabilities::default())
    }

    /// Records an event on the stream that the calling thread works on.
    ///
    /// # Errors
    /// Why there is no event: the span then has no row, and is counted.
    fn record(&self) -> Result<Token, NotTimed>;

    /// Returns whether the device has reached that event; does not wait. By default it returns true, so that
    /// [`elapsed`](DeviceTimer::elapsed) waits for the event, however long that takes.
    fn has_passed(&self, _token: Token) -> bool {
        true
    }

    /// Returns the time between two events of a stream; `None` if `to` precedes `from`, or if the time is not
    /// available.
    ///
    /// Waits for the device to reach both. The events may be any two of a stream, not only those of a span; the time
    /// from an event to itself is [`Duration::ZERO`].
    fn elapsed(&self, from: Token, to: Token) -> Option<Duration>;

    /// Releases an event that is not needed any more.
    fn release(&self, _token: Token) {}

    /// Returns the devices of this machine, ordered by number.
    fn devices(&self) -> Vec<DeviceDescription> {
        Vec::new()
    }
}

/// An event that was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    /// The timer's identifier of the event.
    pub id: u64,
    /// The number of its device.
    pub device: i32,
    /// The number of its stream on that device.
    pub stream: u32,
}

/// Why an event was not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NotTimed {
    /// No device is current on the thread.
    NoContext,
    /// The thread's stream is being captured into a graph, and the event would become part of it.
    Capturing,
    /// The device's library returned this error.
    Error(i64),
}

impl fmt::Display for NotTimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotTimed::NoContext => f.write_str("no device was current on the thread"),
            NotTimed::Capturing => f.write_str("the stream was being captured"),
            NotTimed::Error(code) => write!(f, "recording an event gave error {code}"),
        }
    }
}
