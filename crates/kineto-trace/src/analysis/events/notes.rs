//! Counts what was left out or repaired while reading a file.

use kineto_model::named_values;
use std::fmt;

named_values! {
    /// Why part of a file was left out of the events or changed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum Note {
        /// A row of an unsupported phase, such as an object's or a sample's, was left out.
        OtherPhase => "other_phase",
        /// One end of an async track was left out; the slices of its span are events. Of other tools, one without an id.
        AsyncTrack => "async_track",
        /// An element of the list that is not an object, or has no phase, was left out.
        NotAnEvent => "not_an_event",
        /// An event without a time, or a slice without a duration, was left out. An event at time 0 has none if all others begin so much
        /// later that a trace cannot hold both (101 days). Nor has device work at time 0 for 0 ns before all other events: the device's
        /// library collected no time.
        WithoutTime => "without_time",
        /// A negative duration counts as 0.
        NegativeDuration => "negative_duration",
        /// An event that begins before 1970 begins in 1970, with its duration. If `baseTimeNanoseconds` is missing or negative, negative
        /// times are kept.
        BeforeEpoch => "before_epoch",
        /// An end without a begin was left out.
        EndWithoutBegin => "end_without_begin",
        /// A begin without an end lasts until the slice around it ends, or the trace.
        BeginWithoutEnd => "begin_without_end",
        /// An end names another slice than the one that began last. It ended the last slice of its name, and those inside that.
        MisplacedEnd => "misplaced_end",
        /// An end of an arrow was left out: no slice covers it, or its kind or id is unknown.
        LooseArrow => "loose_arrow",
        /// A text, word or comma that JSON forbids was read as other readers take it: unescaped backslashes and control characters, `N/A`,
        /// a comma before a bracket.
        InvalidJson => "invalid_json",
        /// The list of events has no end, which Chrome's format allows, and writes that end early cause.
        OpenList => "open_list",
        /// A slice on a row of a device is not known as its work: the names of rows are others than those of XLA and Ascend.
        UnknownDevice => "unknown_device",
        /// Invalid UTF-8 was replaced by U+FFFD.
        InvalidText => "invalid_text",
        /// A second argument of the same name replaced the first.
        DuplicateArgument => "duplicate_argument",
        /// Arguments that are not an object were left out.
        MalformedArguments => "malformed_arguments",
        /// The file is truncated; events before that point were read.
        CutOff => "cut_off",
        /// The time limit passed; events before that point were read.
        TimeLimit => "time_limit",
        /// `baseTimeNanoseconds` is not a number, so times count from 1970.
        UnknownBase => "unknown_base",
        /// An event of a Perfetto trace refers to data that the file has lost; it was left out, or lacks a name or an argument.
        LostState => "lost_state",
        /// The writer closed the file before its last row, at the limit of time or size (`tracing_kineto_incomplete`).
        Incomplete => "closed_early",
        /// A launch's number occurs in several processes, as in a trace merged from several ranks. Work is joined with the launches of
        /// its prefix of process ids. Only in [`Summary::notes`](crate::analysis::Summary::notes).
        RepeatedId => "repeated_id",
        /// The number of a launch of work repeats in its process, or in another one without a different prefix. Work counts for the last
        /// of them before it, one of its own process if there is any, and has no launch delay. Only in
        /// [`Summary::notes`](crate::analysis::Summary::notes).
        AmbiguousId => "ambiguous_id",
        /// A slice outlasts the recording, or device work most of the other work of its stream, so its recorded end is wrong. Only in
        /// [`Summary::notes`](crate::analysis::Summary::notes).
        OverlongWork => "overlong_work",
    }

    /// All causes.
    pub const ALL;

    /// Returns the cause's name.
    pub const fn as_str;
}

impl Note {
    /// Returns whether recorded events are missing from the file.
    pub const fn is_loss(self) -> bool {
        matches!(self, Note::CutOff | Note::TimeLimit | Note::LostState | Note::Incomplete)
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
