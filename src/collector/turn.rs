//! Which recording has a library that serves one at a time in a process.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::LocalKey;

/// Whose turn it is.
#[derive(Debug)]
pub(super) struct Turn {
    taken: AtomicBool,
    /// Counts recordings.
    recording: AtomicU32,
}

impl Turn {
    pub(super) const fn new() -> Turn {
        Turn { taken: AtomicBool::new(false), recording: AtomicU32::new(0) }
    }

    /// Takes the turn for a recording; `false` if another one has it.
    pub(super) fn take(&self) -> bool {
        let taken = self.taken.swap(true, Ordering::AcqRel);
        if !taken {
            self.recording.fetch_add(1, Ordering::Relaxed);
        }
        !taken
    }

    /// Gives it up.
    pub(super) fn release(&self) {
        self.taken.store(false, Ordering::Release);
    }

    /// Takes away what an earlier recording has left on the calling thread: it ended while the thread was inside a slice.
    /// `clean_for` is the thread's note of the recording for which that was done last, `pop` takes one id away.
    #[inline]
    pub(super) fn forget_stale_ids(&self, clean_for: &'static LocalKey<Cell<u32>>, pop: impl Fn() -> bool) {
        let recording = self.recording.load(Ordering::Relaxed);
        let is_clean = clean_for.try_with(|clean_for| clean_for.replace(recording) == recording);
        if !is_clean.unwrap_or(true) {
            // No thread is inside more slices; a library that never ends is wrong.
            const DEEPEST: usize = 1 << 16;
            let _ = (0..DEEPEST).take_while(|_| pop()).count();
        }
    }
}

/// The process that has something for good once it has settled for it: a forked child has a copy that is not its own.
#[derive(Debug, Default)]
pub(crate) struct Home {
    /// 0 while there is none.
    process: AtomicU32,
}

impl Home {
    pub(super) const fn new() -> Home {
        Home { process: AtomicU32::new(0) }
    }

    /// It is this process, unless there is one.
    pub(crate) fn settle(&self) {
        let _ = self.process.compare_exchange(0, std::process::id(), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Whether it is another process, of which this one is a fork.
    pub(crate) fn is_inherited(&self) -> bool {
        let process = self.process.load(Ordering::Relaxed);
        process != 0 && process != std::process::id()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_recording_has_the_turn() {
        let turn = Turn::new();
        assert!(turn.take() && !turn.take());
        turn.release();
        assert!(turn.take());
    }

    #[test]
    fn each_recording_begins_with_no_ids() {
        thread_local! { static CLEAN_FOR: Cell<u32> = const { Cell::new(0) }; }
        let (turn, left) = (Turn::new(), Cell::new(0_u32));
        let forget = |ids| {
            left.set(ids);
            turn.forget_stale_ids(&CLEAN_FOR, || left.replace(left.get().saturating_sub(1)) > 0);
            left.get()
        };
        assert!(turn.take());
        assert_eq!([forget(3), forget(2)], [0, 2], "once");
        turn.release();
        assert_eq!(forget(2), 2);
        assert!(turn.take());
        assert_eq!([forget(2), forget(1)], [0, 1]);
        turn.release();
        assert!(turn.take());
        assert_eq!(forget(u32::MAX), u32::MAX - (1 << 16), "a library that never ends");
    }

    #[test]
    fn a_fork_is_not_at_home() {
        let home = Home::new();
        assert!(!home.is_inherited(), "nobody has it");
        home.settle();
        assert!(!home.is_inherited());
        home.process.fetch_add(1, Ordering::Relaxed);
        home.settle();
        assert!(home.is_inherited());
    }
}
