//! What happens when the buffers are full.

/// What a recording does when its records have reached the buffer limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Overflow {
    /// Keeps what it has and counts what comes.
    #[default]
    Stop,
    /// Overwrites the oldest records. Not available yet: `build()` says so.
    KeepNewest,
    /// Moves records to a temporary file. Not available yet: `build()` says so.
    Spill,
}

impl Overflow {
    /// All of them.
    pub const ALL: [Overflow; 3] = [Overflow::Stop, Overflow::KeepNewest, Overflow::Spill];

    /// Returns the name that `KINETO_OVERFLOW` has for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Overflow::Stop => "stop",
            Overflow::KeepNewest => "keep_newest",
            Overflow::Spill => "spill",
        }
    }
}
