//! Which threads a recording includes.

use std::sync::atomic::{AtomicU64, Ordering};

/// Which threads are recorded; given to [`KinetoLayerBuilder::threads`](crate::KinetoLayerBuilder::threads).
///
/// The decision is made once for each thread and recording, at the thread's first hook. The thread's own calls of
/// [`Profiler::enable_in_this_thread`](crate::Profiler::enable_in_this_thread) and
/// [`disable_in_this_thread`](crate::Profiler::disable_in_this_thread) override the filter.
///
/// ```
/// use tracing_kineto::{KinetoLayer, ThreadFilter};
///
/// let builder = KinetoLayer::builder().threads(ThreadFilter::named(["main", "io-*"]));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ThreadFilter {
    /// All threads: torch's `profile_all_threads`.
    #[default]
    All,
    /// The thread that starts the recording. This is torch's default, except that torch's own pools pass it on to their threads.
    Current,
    /// Threads whose name matches one of these patterns, in which `*` matches any text: `["main", "tokio-*"]`.
    ///
    /// The name is Rust's at the thread's first hook; a thread without one has the empty name.
    Named(Vec<String>),
    /// Threads that enable themselves.
    Registered,
}

impl ThreadFilter {
    /// Returns [`ThreadFilter::Named`] of these names.
    pub fn named(names: impl IntoIterator<Item = impl Into<String>>) -> ThreadFilter {
        ThreadFilter::Named(names.into_iter().map(Into::into).collect())
    }

    /// Returns whether a thread that has not started the recording is included; `None` if that depends on an unknown `name`.
    pub(crate) fn includes_thread(&self, name: Option<impl FnOnce() -> String>) -> Option<bool> {
        match self {
            ThreadFilter::All => Some(true),
            ThreadFilter::Current | ThreadFilter::Registered => Some(false),
            ThreadFilter::Named(patterns) => {
                let name = name?();
                Some(patterns.iter().any(|pattern| matches_pattern(&name, pattern)))
            }
        }
    }
}

/// Returns whether a text matches a pattern, in which `*` matches any text.
fn matches_pattern(text: &str, pattern: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return text == pattern };
    let Some(mut text) = text.strip_prefix(start) else { return false };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    // The earliest match leaves the most text for the remaining parts.
    for part in middle.split('*') {
        let Some((_, after)) = text.split_once(part) else { return false };
        text = after;
    }
    text.ends_with(end)
}

/// Which threads a layer's recordings include.
#[derive(Debug)]
pub(crate) struct ThreadSelection {
    pub(crate) filter: ThreadFilter,
    /// The layer, unique in the process.
    pub(crate) layer: u64,
    /// The current or latest recording, unique in the process.
    recording: AtomicU64,
    /// The same, but 0 while the recording includes all threads.
    selective: AtomicU64,
    /// A bit for each bucket of span keys: set when a recorded thread uses a span that an excluded thread created.
    seen: AtomicU64,
}

/// Process-wide number of the next layer or recording.
static NEXT: AtomicU64 = AtomicU64::new(1);

impl ThreadSelection {
    pub(crate) fn new(filter: ThreadFilter) -> ThreadSelection {
        let (layer, zero) = (NEXT.fetch_add(1, Ordering::Relaxed), || AtomicU64::new(0));
        ThreadSelection { filter, layer, recording: zero(), selective: zero(), seen: zero() }
    }

    /// Begins a recording; returns its number.
    pub(crate) fn begin_recording(&self) -> u64 {
        let recording = NEXT.fetch_add(1, Ordering::Relaxed);
        let selective = if self.filter == ThreadFilter::All { 0 } else { recording };
        self.seen.store(0, Ordering::Relaxed);
        self.recording.store(recording, Ordering::Relaxed);
        self.selective.store(selective, Ordering::Relaxed);
        recording
    }

    /// Returns the current or latest recording.
    pub(crate) fn recording(&self) -> u64 {
        self.recording.load(Ordering::Relaxed)
    }

    /// Returns the current or latest recording, 0 if it includes all threads.
    #[inline(always)]
    pub(crate) fn selective_recording(&self) -> u64 {
        // Relaxed: a thread that reads the old value is recorded for some nanoseconds more, or less.
        self.selective.load(Ordering::Relaxed)
    }

    /// Notes that the recording no longer includes all threads.
    pub(crate) fn restrict_threads(&self) {
        self.selective.store(self.recording(), Ordering::Relaxed);
    }

    /// Notes that a recorded thread meets a span that no recorded thread has created.
    pub(crate) fn note_seen(&self, key: u64) {
        if self.selective_recording() != 0 {
            // Relaxed: the span closes only after this thread has dropped its handle.
            self.seen.fetch_or(1 << super::span_bucket(key), Ordering::Relaxed);
        }
    }

    /// Returns whether a recorded thread may have met that span.
    pub(crate) fn may_have_seen(&self, key: u64) -> bool {
        self.seen.load(Ordering::Relaxed) >> super::span_bucket(key) & 1 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_star_matches_any_text() {
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
            assert!(like.iter().all(|text| matches_pattern(text, pattern)), "{pattern}");
            assert!(!unlike.iter().any(|text| matches_pattern(text, pattern)), "{pattern}");
        }
        let named = ThreadFilter::named(["a", "b*"]);
        assert_eq!(named.includes_thread(Some(|| "bc".to_owned())), Some(true));
        assert_eq!(named.includes_thread(None::<fn() -> String>), None);
    }

    #[test]
    fn unrestricted_recording_remembers_no_spans() {
        let thread_selection = ThreadSelection::new(ThreadFilter::All);
        let recording = thread_selection.begin_recording();
        thread_selection.note_seen(7);
        assert_eq!((thread_selection.selective_recording(), thread_selection.may_have_seen(7)), (0, false));
        thread_selection.restrict_threads();
        thread_selection.note_seen(7);
        assert_eq!((thread_selection.selective_recording(), thread_selection.may_have_seen(7)), (recording, true));
        assert!(
            thread_selection.begin_recording() > recording
                && thread_selection.selective_recording() == 0
                && !thread_selection.may_have_seen(7)
        );
        assert_ne!(ThreadSelection::new(ThreadFilter::Registered).begin_recording(), 0);
    }
}
