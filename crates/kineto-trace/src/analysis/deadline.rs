//! Until when events are put together.

use std::time::{Duration, Instant};

/// Says when the time for something is over; by default never.
#[derive(Debug, Default)]
pub(super) struct Deadline {
    at: Option<Instant>,
    asked: u32,
    is_over: bool,
}

impl Deadline {
    /// The clock is read once in so many questions.
    const STEP: u32 = 256;

    /// In so much time from now, if that is not too far to say.
    pub(super) fn after(limit: Option<Duration>) -> Deadline {
        // WebAssembly has no clock.
        let limit = limit.filter(|_| !cfg!(target_family = "wasm"));
        Deadline { at: limit.and_then(|limit| Instant::now().checked_add(limit)), ..Deadline::default() }
    }

    /// Returns whether it is over, and stays so.
    pub(super) fn is_over(&mut self) -> bool {
        let Some(at) = self.at else { return false };
        if self.asked.is_multiple_of(Deadline::STEP) {
            self.is_over |= Instant::now() >= at;
        }
        self.asked = self.asked.wrapping_add(1);
        self.is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_stays_over() {
        let (mut never, mut now) = (Deadline::default(), Deadline::after(Some(Duration::ZERO)));
        let mut far = Deadline::after(Some(Duration::MAX));
        assert!((0..1000).all(|_| now.is_over() && !never.is_over() && !far.is_over()));
    }
}
