//! The two kinds of time: ticks as the span path reads them, nanoseconds as everybody else does.

use std::fmt;

/// A point in time, in nanoseconds since the Unix epoch.
///
/// The unit of every time behind the recording path, as in libkineto (whose activities carry `int64` nanoseconds of
/// CLOCK_REALTIME).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The time that many nanoseconds after the Unix epoch.
    pub const fn from_nanos(ns: u64) -> Self {
        Timestamp(ns)
    }

    /// Returns the nanoseconds since the Unix epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the nanoseconds from `earlier` to `self`, 0 if `earlier` is the later one.
    pub const fn since(self, earlier: Timestamp) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// A reading of the tick counter; what it means in nanoseconds, only the clock knows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Ticks(pub(crate) u64);
