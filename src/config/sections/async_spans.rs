//! The presentation of polled spans.

use crate::encoding::encoded_as;

/// How to draw a span that is entered more than once, such as an async block at each poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AsyncSpans {
    /// `Both` for spans that are polled more than once, `PerPoll` for all others.
    ///
    /// A span that is created once and entered for each call, such as a layer of a model, is not polled. A callsite's spans
    /// count as polled if one of them ended like a future's: it was entered once more to drop the future, usually right after
    /// the last poll, and nothing was recorded inside for 0.1 ms. That last slice is not drawn: it is the end of the track. A
    /// sync span that is entered twice in a row, and does nothing, looks the same.
    ///
    /// If all spans of a callsite are still open, a span counts as polled if several threads entered it, or if a span inside
    /// it lasts from one enter to another. It must never have been entered twice at once, nor inside a span that is not its
    /// ancestor.
    #[default]
    Auto,
    /// One slice for each enter, on the polling thread, also for the last one that drops a future.
    PerPoll,
    /// For spans polled more than once: one track, and no slices.
    ///
    /// The track begins with the first poll and ends at the span's last exit: when the future is dropped, even if a clone
    /// keeps the span open. The track of an open span ends with the recording.
    Track,
    /// The slices, and the track of spans polled more than once.
    Both,
}

encoded_as! {
    AsyncSpans as String: |how| how.as_str().to_owned(), |name| AsyncSpans::ALL.into_iter().find(|how| how.as_str() == name);
}

impl AsyncSpans {
    /// All variants.
    pub const ALL: [AsyncSpans; 4] = [AsyncSpans::Auto, AsyncSpans::PerPoll, AsyncSpans::Track, AsyncSpans::Both];

    /// Returns its name in `KINETO_ASYNC_SPANS`.
    pub const fn as_str(self) -> &'static str {
        match self {
            AsyncSpans::Auto => "auto",
            AsyncSpans::PerPoll => "per_poll",
            AsyncSpans::Track => "track",
            AsyncSpans::Both => "both",
        }
    }
}
