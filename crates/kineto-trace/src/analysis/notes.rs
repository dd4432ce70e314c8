//! What of a file was left out or repaired, counted by cause.

use std::fmt;

/// Why something of a file is not among its events as it stands there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Note {
    /// A row of a phase that is no event here, such as an object's or a sample's, was left out.
    OtherPhase,
    /// One end of an async track was left out: the slices of its span are events.
    AsyncTrack,
    /// An element of the list that is no object, or has no phase, was left out.
    NotAnEvent,
    /// An event without a time, or a slice without a duration, was left out.
    WithoutTime,
    /// A duration below 0 counts as 0.
    NegativeDuration,
    /// A time before 1970 counts as 1970.
    BeforeEpoch,
    /// An end without a beginning was left out.
    EndWithoutBegin,
    /// A beginning without an end lasts to the end of the trace.
    BeginWithoutEnd,
    /// An end of an arrow was left out: no slice is there, or its kind or id is unknown.
    LooseArrow,
    /// Text that is no UTF-8 has U+FFFD in its place.
    InvalidText,
    /// A second argument of the same name took the first one's place.
    DuplicateArgument,
    /// Arguments that are no object were left out.
    MalformedArguments,
    /// The file is cut off; what stands before that was read.
    CutOff,
    /// The time for it was over; what had been read until then is there.
    TimeLimit,
    /// `baseTimeNanoseconds` is no number, so times count from 1970.
    UnknownBase,
    /// The writer closed the file before its last row, because its time limit passed (`tracing_kineto_incomplete`).
    Incomplete,
}

impl Note {
    /// Every cause.
    pub const ALL: [Note; 16] = [
        Note::OtherPhase,
        Note::AsyncTrack,
        Note::NotAnEvent,
        Note::WithoutTime,
        Note::NegativeDuration,
        Note::BeforeEpoch,
        Note::EndWithoutBegin,
        Note::BeginWithoutEnd,
        Note::LooseArrow,
        Note::InvalidText,
        Note::DuplicateArgument,
        Note::MalformedArguments,
        Note::CutOff,
        Note::TimeLimit,
        Note::UnknownBase,
        Note::Incomplete,
    ];

    /// Returns whether recorded events are missing from the file.
    pub(super) const fn is_loss(self) -> bool {
        matches!(self, Note::CutOff | Note::TimeLimit | Note::Incomplete)
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
            Note::LooseArrow => "loose_arrow",
            Note::InvalidText => "invalid_text",
            Note::DuplicateArgument => "duplicate_argument",
            Note::MalformedArguments => "malformed_arguments",
            Note::CutOff => "cut_off",
            Note::TimeLimit => "time_limit",
            Note::UnknownBase => "unknown_base",
            Note::Incomplete => "incomplete",
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// How often each was met.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes([u64; Note::ALL.len()]);

impl Notes {
    pub(super) fn add(&mut self, note: Note, count: u64) {
        if let Some(slot) = self.0.get_mut(note as usize) {
            *slot += count;
        }
    }

    /// Those that were met.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Note, u64)> + '_ {
        Note::ALL.into_iter().zip(self.0).filter(|(_, count)| *count > 0)
    }
}
