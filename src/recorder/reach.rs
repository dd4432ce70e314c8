//! Which threads a recording reaches.

use std::sync::atomic::{AtomicU64, Ordering};

/// Which threads are recorded; given to [`KinetoLayerBuilder::threads`](crate::KinetoLayerBuilder::threads).
///
/// A thread is judged once in a recording, when it first does something. What it says of itself by
/// [`Profiler::enable_in_this_thread`](crate::Profiler::enable_in_this_thread) and
/// [`disable_in_this_thread`](crate::Profiler::disable_in_this_thread) goes before the filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ThreadFilter {
    /// All threads: torch's `profile_all_threads`.
    #[default]
    All,
    /// The thread that starts the recording: torch's default, but for the threads to which torch's own pools hand it on.
    Current,
    /// Threads whose name is one of these, in which `*` stands for any text: `["main", "tokio-*"]`. It is the name that Rust
    /// knows when the thread is first met; threads that Rust has not named have the empty one.
    Named(Vec<String>),
    /// Those that say so themselves.
    Registered,
}

impl ThreadFilter {
    /// Returns [`ThreadFilter::Named`] of these names.
    pub fn named(names: impl IntoIterator<Item = impl Into<String>>) -> ThreadFilter {
        ThreadFilter::Named(names.into_iter().map(Into::into).collect())
    }

    /// Whether a thread is among them that has not started the recording; `None` if that takes its `name`, which is not to
    /// be had.
    pub(crate) fn takes(&self, name: Option<impl FnOnce() -> String>) -> Option<bool> {
        match self {
            ThreadFilter::All => Some(true),
            ThreadFilter::Current | ThreadFilter::Registered => Some(false),
            ThreadFilter::Named(patterns) => {
                let name = name?();
                Some(patterns.iter().any(|pattern| is_like(&name, pattern)))
            }
        }
    }
}

/// Whether a text is like a pattern, in which `*` stands for any text.
fn is_like(text: &str, pattern: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return text == pattern };
    let Some(mut text) = text.strip_prefix(start) else { return false };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    // The first place that fits leaves the most for the rest.
    for part in middle.split('*') {
        let Some((_, after)) = text.split_once(part) else { return false };
        text = after;
    }
    text.ends_with(end)
}

/// How far a layer's recordings reach.
#[derive(Debug)]
pub(crate) struct Reach {
    pub(crate) filter: ThreadFilter,
    /// The layer, unique in the process.
    pub(crate) layer: u64,
    /// The recording that goes on or went on last, unique in the process.
    recording: AtomicU64,
    /// The same, but 0 as long as it reaches all threads.
    selective: AtomicU64,
    /// Buckets of the spans that a recorded thread has met without having seen them made.
    met: AtomicU64,
}

/// Process-wide: layers and recordings.
static NEXT: AtomicU64 = AtomicU64::new(1);

impl Reach {
    pub(crate) fn new(filter: ThreadFilter) -> Reach {
        let (layer, zero) = (NEXT.fetch_add(1, Ordering::Relaxed), || AtomicU64::new(0));
        Reach { filter, layer, recording: zero(), selective: zero(), met: zero() }
    }

    /// A recording begins; returns its number.
    pub(crate) fn begin(&self) -> u64 {
        let recording = NEXT.fetch_add(1, Ordering::Relaxed);
        let selective = if self.filter == ThreadFilter::All { 0 } else { recording };
        self.met.store(0, Ordering::Relaxed);
        self.recording.store(recording, Ordering::Relaxed);
        self.selective.store(selective, Ordering::Relaxed);
        recording
    }

    /// Returns the recording that goes on or went on last.
    pub(crate) fn recording(&self) -> u64 {
        self.recording.load(Ordering::Relaxed)
    }

    /// Returns the same, 0 if it reaches all threads.
    #[inline(always)]
    pub(crate) fn selective(&self) -> u64 {
        // Relaxed: a thread that reads the old value is recorded for some nanoseconds more, or less.
        self.selective.load(Ordering::Relaxed)
    }

    /// It no longer reaches all threads.
    pub(crate) fn restrict(&self) {
        self.selective.store(self.recording(), Ordering::Relaxed);
    }

    /// A recorded thread meets a span that no recorded thread has made.
    pub(crate) fn meet(&self, key: u64) {
        if self.selective() != 0 {
            // Relaxed: whoever closes the span does so after this thread has let go of it.
            self.met.fetch_or(1 << super::bucket(key), Ordering::Relaxed);
        }
    }

    /// Returns whether a recorded thread may have met that span.
    pub(crate) fn has_met(&self, key: u64) -> bool {
        self.met.load(Ordering::Relaxed) >> super::bucket(key) & 1 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, like, unlike) in [
            ("main", &["main"][..], &["", "main2", "mai"][..]),
            ("tokio-*", &["tokio-", "tokio-7"], &["tokio", "a tokio-7"]),
            ("*-gc", &["a-gc", "-gc", "-gc-gc"], &["-gc ", "gc"]),
            ("*", &["", "any"], &[]),
            ("", &[""], &["a"]),
            ("a*b*c", &["abc", "a-b-b-c"], &["ac", "acb", "ab"]),
            ("a*a", &["aa", "aba"], &["a"]),
            ("a**ä", &["aä", "a-ä"], &["a"]),
        ] {
            assert!(like.iter().all(|text| is_like(text, pattern)), "{pattern}");
            assert!(!unlike.iter().any(|text| is_like(text, pattern)), "{pattern}");
        }
        let named = ThreadFilter::named(["a", "b*"]);
        assert_eq!(named.takes(Some(|| "bc".to_owned())), Some(true));
        assert_eq!(named.takes(None::<fn() -> String>), None);
    }

    #[test]
    fn a_recording_of_all_threads_asks_nobody() {
        let reach = Reach::new(ThreadFilter::All);
        let recording = reach.begin();
        reach.meet(7);
        assert_eq!((reach.selective(), reach.has_met(7)), (0, false));
        reach.restrict();
        reach.meet(7);
        assert_eq!((reach.selective(), reach.has_met(7)), (recording, true));
        assert!(reach.begin() > recording && reach.selective() == 0 && !reach.has_met(7));
        assert_ne!(Reach::new(ThreadFilter::Registered).begin(), 0);
    }
}
