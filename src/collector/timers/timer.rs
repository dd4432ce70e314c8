//! What a device can do that measures times around spans.

use crate::collector::{Capabilities, DeviceDescription, Unavailable};
use std::fmt;
use std::time::Duration;

/// Takes times on a device by events that are put among its work; torch's `ProfilerStubs`.
///
/// [`EventTimers`](super::EventTimers) has one recorded when a span is entered and one when it is left, on the thread that
/// does so, and asks for the time between them when the recording stops, on whichever thread stops it. Methods may be called
/// by several threads at a time. None may wait but [`elapsed`](DeviceTimer::elapsed), and none may open spans that are to be
/// recorded.
pub trait DeviceTimer: fmt::Debug + Send + Sync {
    /// Returns the name under which the trace speaks of it, one word in lower case. Default: "timers".
    fn name(&self) -> &'static str {
        "timers"
    }

    /// Says whether it can measure here; called before each recording. Its `types` are not looked at.
    ///
    /// # Errors
    /// What is missing, and what to do about it.
    fn probe(&self) -> Result<Capabilities, Unavailable> {
        Ok(Capabilities::default())
    }

    /// Puts an event on the stream that the calling thread works on.
    ///
    /// # Errors
    /// Why there is none: the span has no row then, and is counted.
    fn record(&self) -> Result<Token, NotTimed>;

    /// Whether the device has come to that event; does not wait. Default: true, so that
    /// [`elapsed`](DeviceTimer::elapsed) waits, however long that takes.
    fn has_passed(&self, _token: Token) -> bool {
        true
    }

    /// Returns the time between two events of one stream; `None` if `to` came before `from`, or if it cannot be had.
    ///
    /// Waits for the device to come to both. It is asked for any two events of a stream, not only for those of one span, and
    /// for an event and itself, which is [`Duration::ZERO`].
    fn elapsed(&self, from: Token, to: Token) -> Option<Duration>;

    /// An event is not needed any more.
    fn release(&self, _token: Token) {}

    /// Returns the devices that are there, in the order of their numbers.
    fn devices(&self) -> Vec<DeviceDescription> {
        Vec::new()
    }
}

/// An event that was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    /// What its timer knows it by.
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
    /// The thread works on no device.
    NoContext,
    /// The thread's stream is being captured into a graph, which an event would become a part of.
    Capturing,
    /// The device's library says so, by that number.
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
