//! The presentation of polled spans.

use crate::encoding::encoded_as;

/// How to draw a span that is entered more than once, such as an async block at each poll.
///
/// ```
/// use tracing_kineto::{AsyncSpans, KinetoLayer};
///
/// let (_layer, guard) = KinetoLayer::builder().no_output().async_spans(AsyncSpans::Track).build()?;
/// # drop(guard.finish()?);
/// # Ok::<(), tracing_kineto::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AsyncSpans {
    /// `Both` for spans that are one call with more than two enters (more than one if they are still open), `PerPoll` for
    /// all others. In addition, enters are not drawn in which a future is dropped within a microsecond and without a record.
    ///
    /// A span is one call if its first enter directly followed its creation, or its close directly followed its last exit,
    /// on the same thread. The field `kineto.call` (`"span"` or `"enter"`) overrides both.
    #[default]
    Auto,
    /// One slice for each enter, on the polling thread, also for the last one that drops a future.
    PerPoll,
    /// For spans entered more than once: one track, and no slices.
    ///
    /// The track begins with the first enter and ends at the span's last exit: when the future is dropped, even if a clone
    /// keeps the span open. The track of an open span ends with the recording.
    Track,
    /// The slices, and the track of spans entered more than once.
    Both,
}

encoded_as! {
    AsyncSpans as String: |how| how.as_str().to_owned(), |name| AsyncSpans::ALL.iter().copied().find(|how| how.as_str() == name);
}

impl AsyncSpans {
    /// All variants.
    pub const ALL: &'static [AsyncSpans] =
        &[AsyncSpans::Auto, AsyncSpans::PerPoll, AsyncSpans::Track, AsyncSpans::Both];

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
