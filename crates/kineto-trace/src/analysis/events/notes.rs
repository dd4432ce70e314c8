//! Counts what was left out or repaired while reading a file.

use std::fmt;

/// Why part of a file was left out of the events or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Note {
    /// A row of an unsupported phase, such as an object's or a sample's, was left out.
    OtherPhase,
    /// One end of an async track was left out; the slices of its span are events. Of other tools, one without an id.
    AsyncTrack,
    /// An element of the list that is not an object, or has no phase, was left out.
    NotAnEvent,
    /// An event without a time, or a slice without a duration, was left out. An event at time 0 has none if all others begin so much
    /// later that a trace cannot hold both (101 days). Nor has device work at time 0 for 0 ns before all other events: the device's
    /// library collected no time.
    WithoutTime,
    /// A negative duration counts as 0.
    NegativeDuration,
    /// An event that begins before 1970 begins in 1970, with its duration. If `baseTimeNanoseconds` is missing or negative, negative
    /// times are kept.
    BeforeEpoch,
    /// An end without a begin was left out.
    EndWithoutBegin,
    /// A begin without an end lasts until the slice around it ends, or the trace.
    BeginWithoutEnd,
    /// An end names another slice than the one that began last. It ended the last slice of its name, and those inside that.
    MisplacedEnd,
    /// An end of an arrow was left out: no slice covers it, or its kind or id is unknown.
    LooseArrow,
    /// A text, word or comma that JSON forbids was read as other readers take it: unescaped backslashes and control characters, `N/A`,
    /// a comma before a bracket.
    InvalidJson,
    /// The list of events has no end, which Chrome's format allows, and writes that end early cause.
    OpenList,
    /// A slice on a row of a device is not known as its work: the names of rows are others than those of XLA and Ascend.
    UnknownDevice,
    /// Invalid UTF-8 was replaced by U+FFFD.
    InvalidText,
    /// A second argument of the same name replaced the first.
    DuplicateArgument,
    /// Arguments that are not an object were left out.
    MalformedArguments,
    /// The file is truncated; events before that point were read.
    CutOff,
    /// The time limit passed; events before that point were read.
    TimeLimit,
    /// `baseTimeNanoseconds` is not a number, so times count from 1970.
    UnknownBase,
    /// An event of a Perfetto trace refers to data that the file has lost; it was left out, or lacks a name or an argument.
    LostState,
    /// The writer closed the file before its last row, at the limit of time or size (`tracing_kineto_incomplete`).
    Incomplete,
    /// A launch's number occurs in several processes, as in a trace merged from several ranks. Work is joined with the launches of
    /// its prefix of process ids. Only in [`Summary::notes`](crate::analysis::Summary::notes).
    RepeatedId,
    /// The number of a launch of work repeats in its process, or in another one without a different prefix. Work counts for the last
    /// of them before it, one of its own process if there is any, and has no launch delay. Only in
    /// [`Summary::notes`](crate::analysis::Summary::notes).
    AmbiguousId,
    /// A slice outlasts the recording, or device work most of the other work of its stream, so its recorded end is wrong. Only in
    /// [`Summary::notes`](crate::analysis::Summary::notes).
    OverlongWork,
}

impl Note {
    /// All causes.
    pub const ALL: &'static [Note] = &[
        Note::OtherPhase,
        Note::AsyncTrack,
        Note::NotAnEvent,
        Note::WithoutTime,
        Note::NegativeDuration,
        Note::BeforeEpoch,
        Note::EndWithoutBegin,
        Note::BeginWithoutEnd,
        Note::MisplacedEnd,
        Note::LooseArrow,
        Note::InvalidJson,
        Note::OpenList,
        Note::UnknownDevice,
        Note::InvalidText,
        Note::DuplicateArgument,
        Note::MalformedArguments,
        Note::CutOff,
        Note::TimeLimit,
        Note::UnknownBase,
        Note::LostState,
        Note::Incomplete,
        Note::RepeatedId,
        Note::AmbiguousId,
        Note::OverlongWork,
    ];

    /// Returns whether recorded events are missing from the file.
    pub const fn is_loss(self) -> bool {
        matches!(self, Note::CutOff | Note::TimeLimit | Note::LostState | Note::Incomplete)
    }

    /// Returns the cause's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Note::OtherPhase => "other_phase",
            Note::AsyncTrack => "async_track",
            Note::NotAnEvent => "not_an_event",
            Note::WithoutTime => "without_time",
            Note::NegativeDuration => "negative_duration",
            Note::BeforeEpoch => "before_epoch",
            Note::EndWithoutBegin => "end_without_begin",
            Note::BeginWithoutEnd => "begin_without_end",
            Note::MisplacedEnd => "misplaced_end",
            Note::LooseArrow => "loose_arrow",
            Note::InvalidJson => "invalid_json",
            Note::OpenList => "open_list",
            Note::UnknownDevice => "unknown_device",
            Note::InvalidText => "invalid_text",
            Note::DuplicateArgument => "duplicate_argument",
            Note::MalformedArguments => "malformed_arguments",
            Note::CutOff => "cut_off",
            Note::TimeLimit => "time_limit",
            Note::UnknownBase => "unknown_base",
            Note::LostState => "lost_state",
            Note::Incomplete => "closed_early",
            Note::RepeatedId => "repeated_id",
            Note::AmbiguousId => "ambiguous_id",
            Note::OverlongWork => "overlong_work",
        }
    }

    /// Returns how the figures of a trace treat it, in a few words. `None` for rows that are left out of any whole trace, and for
    /// [losses](Note::is_loss), which the figures lack.
    pub const fn treatment(self) -> Option<&'static str> {
        Some(match self {
            Note::NotAnEvent | Note::WithoutTime | Note::EndWithoutBegin | Note::MalformedArguments => "left out",
            Note::NegativeDuration => "counted as 0",
            Note::BeforeEpoch | Note::UnknownBase => "counted from 1970",
            Note::BeginWithoutEnd => "ended with the slice around it, or the trace",
            Note::MisplacedEnd => "paired by name",
            Note::InvalidJson => "other readers read it too; `kineto repair` fixes it",
            Note::UnknownDevice => "slices on rows of devices are not recognized as work",
            Note::OpenList => "the file may lack its end",
            Note::InvalidText => "replaced by U+FFFD",
            Note::DuplicateArgument => "the last value counts",
            Note::RepeatedId => "launches are joined within each prefix of process ids",
            Note::OverlongWork => "outlasts its stream or recording; counted as recorded",
            Note::AmbiguousId => "joined with the last launch before it; no delay",
            Note::OtherPhase | Note::AsyncTrack | Note::LooseArrow => return None,
            Note::CutOff | Note::TimeLimit | Note::LostState | Note::Incomplete => return None,
        })
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The number of occurrences of each cause.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes([u64; Note::ALL.len()]);

impl Notes {
    pub(crate) fn add(&mut self, note: Note, count: u64) {
        if let Some(slot) = self.0.get_mut(note as usize) {
            *slot += count;
        }
    }

    pub(super) fn add_all(&mut self, other: &Notes) {
        self.0.iter_mut().zip(other.0).for_each(|(count, more)| *count += more);
    }

    /// Returns the causes that occurred, with their counts.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Note, u64)> + '_ {
        Note::ALL.iter().copied().zip(self.0).filter(|(_, count)| *count > 0)
    }
}
