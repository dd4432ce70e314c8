//! The kinds of entries in the journal of a file of records.

/// The kinds of the journal's entries, with their keys; the numbers are in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum JournalKind {
    /// The facts about the trace, and its metadata.
    Info = 1,
    /// An anchor of the clocks: its monotonic time.
    Anchor = 2,
    /// A callsite: its index.
    Site = 3,
    /// A lane: its number.
    Lane = 4,
    /// A window of the host: its epoch.
    Window = 5,
    /// A window of a collector: the collector, the number.
    DeviceWindow = 6,
    /// What was evicted, and stretches of time before the horizon whose records are still in the file.
    Evicted = 7,
    /// A record that outlived its chunk: what it is about, and what it says.
    Retained = 8,
    /// A payload that no chunk could hold: its id.
    LargePayload = 9,
    /// A collector, without its records: its number.
    Collection = 10,
    /// The tables of a collector's records: its number.
    Tables = 11,
    /// Names of a collector's records: its number, the number of the first name.
    Names = 12,
    /// The folder of the segments, to which older records were moved.
    Segments = 13,
    /// The highest id of the calls in dropped blocks of a collector, and how much work these had: its number.
    Dropped = 14,
    /// The losses of a part that waits for the disk: when it ends, the id of its last records.
    PartLosses = 15,
    /// The clock of a segment, its windows, and what was evicted, as its trace has them.
    Sealed = 16,
    /// Records that the program pushed, without these: their number in the file.
    Pushed = 17,
    /// A piece of pushed records: the number of these, the number of the piece.
    PushedPiece = 18,
}

impl JournalKind {
    /// Returns whether that is the number of a kind. Later versions may have more.
    pub fn is_known(number: u32) -> bool {
        (JournalKind::Info as u32..=JournalKind::PushedPiece as u32).contains(&number)
    }
}
