//! How spans that are polled are drawn.

/// How a span is drawn that is entered more than once, as an async block is at each poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AsyncSpans {
    /// `Both` for spans that are polled more than once, `PerPoll` for all others.
    ///
    /// What is made once and entered again and again, as a layer of a model is, is not polled. A callsite's spans count as
    /// polled if one of them ended as that of a future does: it was entered once more to drop the future, as a rule right
    /// after its last poll, and nothing was recorded inside.
    ///
    /// If all spans of a callsite are still open, a span counts as polled if several threads entered it, or if a span inside
    /// it lasts from one enter to another. It must never have been entered twice at once, nor inside a span that is not its
    /// ancestor.
    #[default]
    Auto,
    /// One slice for each poll, on the thread that polled.
    PerPoll,
    /// For spans polled more than once: one track, and no slices.
    ///
    /// The track begins with the first poll and ends when the span is left last: when the future is dropped, even if a clone
    /// keeps the span open. The track of an open span ends with the recording.
    Track,
    /// The slices, and for spans polled more than once the track.
    Both,
}

impl AsyncSpans {
    /// All of them.
    pub const ALL: [AsyncSpans; 4] = [AsyncSpans::Auto, AsyncSpans::PerPoll, AsyncSpans::Track, AsyncSpans::Both];

    /// Returns the name that `KINETO_ASYNC_SPANS` has for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            AsyncSpans::Auto => "auto",
            AsyncSpans::PerPoll => "per_poll",
            AsyncSpans::Track => "track",
            AsyncSpans::Both => "both",
        }
    }
}
