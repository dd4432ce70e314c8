//! The activity kinds that CUPTI records, which are disabled while a recording is paused.

use super::ffi::Api;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// The kinds of a recording.
///
/// A pause does not disable them at once, since earlier launches may not have their records yet. The reader thread
/// disables them when all have arrived; until then, records of the pause are dropped as they are read.
#[derive(Debug)]
pub(super) struct Kinds {
    api: &'static Api,
    kinds: Vec<u32>,
    /// When the current pause began, on the clock of the records; 0 for none.
    paused: AtomicU64,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Enabled,
    Suspended,
    /// The recording has ended.
    Over,
}

impl Kinds {
    /// Takes over these kinds, which are enabled.
    pub(super) fn new(api: &'static Api, kinds: Vec<u32>) -> Kinds {
        Kinds { api, kinds, paused: AtomicU64::new(0), state: Mutex::new(State::Enabled) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a pause at that time.
    pub(super) fn pause(&self, at: u64) {
        self.paused.store(at.max(1), Ordering::SeqCst);
    }

    /// Returns when the current pause began, if the kinds are still enabled.
    pub(super) fn pending_pause(&self) -> Option<u64> {
        let at = self.paused.load(Ordering::SeqCst);
        (at != 0 && *self.state() == State::Enabled).then_some(at)
    }

    /// Disables the kinds, unless the pause has ended.
    pub(super) fn suspend(&self) {
        let mut state = self.state();
        if *state == State::Enabled && self.paused.load(Ordering::SeqCst) != 0 {
            self.disable();
            *state = State::Suspended;
        }
        drop(state);
        if self.paused.load(Ordering::SeqCst) == 0 {
            // A thread that resumed meanwhile may have given up waiting.
            self.resume();
        }
    }

    /// Ends the pause.
    ///
    /// This may run in a callback of CUPTI, for which the thread that disables the kinds may be waiting. So it waits
    /// only briefly; that thread then enables them again itself.
    pub(super) fn resume(&self) {
        const PATIENCE: Duration = Duration::from_millis(2);
        self.paused.store(0, Ordering::SeqCst);
        let begun = Instant::now();
        let mut state = loop {
            match self.state.try_lock() {
                Ok(state) => break state,
                Err(TryLockError::Poisoned(state)) => break state.into_inner(),
                Err(TryLockError::WouldBlock) if begun.elapsed() > PATIENCE => return,
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        };
        if *state == State::Suspended {
            for kind in &self.kinds {
                let _ = self.api.enable(*kind);
            }
            *state = State::Enabled;
        }
    }

    /// Ends the recording: disables the kinds for good.
    pub(super) fn end(&self) {
        let mut state = self.state();
        if *state == State::Enabled {
            self.disable();
        }
        *state = State::Over;
    }

    fn disable(&self) {
        for kind in &self.kinds {
            let _ = self.api.disable(*kind);
        }
    }
}
