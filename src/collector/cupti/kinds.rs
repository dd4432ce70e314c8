//! The kinds of activity that CUPTI records, which rest while a recording is paused.

use super::ffi::Api;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// The kinds of a recording.
///
/// A pause does not disable them at once: what was launched before may owe its record still. The recording's thread does,
/// when nothing is owed; what comes until then is dropped as it is read.
#[derive(Debug)]
pub(super) struct Kinds {
    api: &'static Api,
    kinds: Vec<u32>,
    /// When the pause began that goes on, by the clock of the records; 0 for none.
    paused: AtomicU64,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Enabled,
    Resting,
    /// The recording has ended.
    Over,
}

impl Kinds {
    /// These kinds, which are enabled.
    pub(super) fn new(api: &'static Api, kinds: Vec<u32>) -> Kinds {
        Kinds { api, kinds, paused: AtomicU64::new(0), state: Mutex::new(State::Enabled) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A pause begins at that time.
    pub(super) fn pause(&self, at: u64) {
        self.paused.store(at.max(1), Ordering::SeqCst);
    }

    /// When the pause began that goes on, if the kinds are to rest and do not yet.
    pub(super) fn to_rest(&self) -> Option<u64> {
        let at = self.paused.load(Ordering::SeqCst);
        (at != 0 && *self.state() == State::Enabled).then_some(at)
    }

    /// Disables the kinds, unless the pause is over.
    pub(super) fn rest(&self) {
        let mut state = self.state();
        if *state == State::Enabled && self.paused.load(Ordering::SeqCst) != 0 {
            self.disable();
            *state = State::Resting;
        }
        drop(state);
        if self.paused.load(Ordering::SeqCst) == 0 {
            // Who resumed meanwhile may not have waited.
            self.resume();
        }
    }

    /// The pause is over.
    ///
    /// This may be in the middle of a callback of CUPTI's, for which whoever disables the kinds just then may be waiting;
    /// so that one is not waited for but a moment, and enables them again itself.
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
        if *state == State::Resting {
            for kind in &self.kinds {
                let _ = self.api.enable(*kind);
            }
            *state = State::Enabled;
        }
    }

    /// The recording is over: disables the kinds for good.
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
