//! A message site in the source, with its rate limit.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::Severity;

/// A message site in the source, with its rate limit.
///
/// The counts are approximate if several threads pass at once: a message more or less does not matter, but no thread may
/// wait.
#[derive(Debug)]
pub struct MessageSite {
    /// The severity of its messages.
    pub severity: Severity,
    /// The topic in a word.
    pub topic: &'static str,
    /// The path from the crate's `src` on.
    pub file: &'static str,
    /// The line in the file.
    pub line: u32,
    /// The path of its module.
    pub module: &'static str,
    second: AtomicU64,
    sent: AtomicU32,
    suppressed: AtomicU64,
}

impl MessageSite {
    /// The most messages of a site in a second.
    pub const PER_SECOND: u32 = 10;

    /// Creates the site; `file` is from `file!()`.
    pub const fn new(
        severity: Severity,
        topic: &'static str,
        file: &'static str,
        line: u32,
        module: &'static str,
    ) -> Self {
        MessageSite {
            severity,
            topic,
            file: behind_src(file),
            line,
            module,
            second: AtomicU64::new(0),
            sent: AtomicU32::new(0),
            suppressed: AtomicU64::new(0),
        }
    }

    /// Counts a message in that second; if it may be sent, returns how many were suppressed before it.
    pub(super) fn admit_message(&self, second: u64) -> Option<u64> {
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.sent.store(0, Ordering::Relaxed);
        }
        if self.sent.fetch_add(1, Ordering::Relaxed) < Self::PER_SECOND {
            return Some(self.suppressed.swap(0, Ordering::Relaxed));
        }
        self.count_suppressed();
        None
    }

    /// Counts a message that is not sent.
    pub(super) fn count_suppressed(&self) {
        self.suppressed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Removes everything up to the last `src` folder: builds from a registry contain long paths of the build machine.
const fn behind_src(file: &'static str) -> &'static str {
    let mut rest = file.as_bytes();
    let mut after = 0;
    let mut at = 0;
    while let [s, r, c, slash, ..] = rest {
        if *s == b's' && *r == b'r' && *c == b'c' && (*slash == b'/' || *slash == b'\\') {
            after = at + 4;
        }
        let [_, tail @ ..] = rest else { break };
        rest = tail;
        at += 1;
    }
    // Slashes are ASCII, so this is a character boundary.
    file.split_at(after).1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site() -> MessageSite {
        MessageSite::new(Severity::Warning, "test", file!(), line!(), module_path!())
    }

    #[test]
    fn site_is_limited_per_second_and_counts_the_rest() {
        let site = site();
        for _ in 0..MessageSite::PER_SECOND {
            assert_eq!(site.admit_message(100), Some(0));
        }
        for _ in 0..5 {
            assert_eq!(site.admit_message(100), None);
        }
        assert_eq!(site.admit_message(101), Some(5));
        assert_eq!(site.admit_message(101), Some(0));
    }

    #[test]
    fn clock_that_steps_back_does_not_suppress_messages() {
        let site = site();
        while site.admit_message(100).is_some() {}
        assert_eq!(site.admit_message(40), Some(1));
    }

    #[test]
    fn files_are_named_from_src_on() {
        assert_eq!(behind_src("src/config/sources/env.rs"), "config/sources/env.rs");
        assert_eq!(behind_src("/home/å/src/registry/src/x-0.1.0/src/diag.rs"), "diag.rs");
        assert_eq!(behind_src(r"C:\src\x\src\diag.rs"), "diag.rs");
        assert_eq!(behind_src("lib.rs"), "lib.rs");
        assert_eq!(behind_src(""), "");
        assert_eq!(site().file, "diag/site.rs");
    }
}
