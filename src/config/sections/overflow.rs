//! The behaviour at the buffer limit.

/// The behaviour of a recording at the buffer limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Overflow {
    /// Keeps the records so far and counts further ones.
    #[default]
    Stop,
    /// Replaces the oldest records by new ones, so that the trace holds the last part of the recording.
    KeepNewest,
    /// Moves records to a temporary file. Not available yet: `build()` returns an error.
    Spill,
}

impl Overflow {
    /// All variants.
    pub const ALL: [Overflow; 3] = [Overflow::Stop, Overflow::KeepNewest, Overflow::Spill];

    /// Returns its name in `KINETO_OVERFLOW`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Overflow::Stop => "stop",
            Overflow::KeepNewest => "keep_newest",
            Overflow::Spill => "spill",
        }
    }
}
