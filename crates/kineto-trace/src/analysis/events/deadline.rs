//! A time limit that is cheap to check.

use std::time::{Duration, Instant};

/// A deadline; the default never expires.
#[derive(Debug, Default)]
pub(crate) struct Deadline {
    at: Option<Instant>,
    checks: u32,
    is_over: bool,
}

impl Deadline {
    /// The clock is read once in this many checks.
    const STEP: u32 = 256;

    /// Returns a deadline that lies `limit` from now; it never expires if that is out of range.
    pub(super) fn from_limit(limit: Option<Duration>) -> Deadline {
        // WebAssembly has no clock.
        let limit = limit.filter(|_| !cfg!(target_family = "wasm"));
        Deadline { at: limit.and_then(|limit| Instant::now().checked_add(limit)), ..Deadline::default() }
    }

    /// Returns whether the deadline has passed; once true, it stays true.
    pub(crate) fn is_over(&mut self) -> bool {
        let Some(at) = self.at else { return false };
        if self.checks.is_multiple_of(Deadline::STEP) {
            self.is_over |= Instant::now() >= at;
        }
        self.checks = self.checks.wrapping_add(1);
        self.is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passed_deadline_stays_passed() {
        let (mut never, mut now) = (Deadline::default(), Deadline::from_limit(Some(Duration::ZERO)));
        let mut far = Deadline::from_limit(Some(Duration::MAX));
        assert!((0..1000).all(|_| now.is_over() && !never.is_over() && !far.is_over()));
    }
}
