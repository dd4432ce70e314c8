//! The kinds of records that a library has enabled for a recording, which are disabled while the recording is paused.

use kineto_base::wait::{since, steady};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// Enables and disables kinds of records: CUPTI's activity kinds, PTI's views.
pub(crate) trait KindSwitch: fmt::Debug + Send + Sync + 'static {
    type Error;

    fn enable_kind(&self, kind: u32) -> Result<(), Self::Error>;
    fn disable_kind(&self, kind: u32);
}

/// The switch of a library that records without kinds.
#[derive(Debug)]
struct NoKinds;

impl KindSwitch for NoKinds {
    type Error = ();

    fn enable_kind(&self, _kind: u32) -> Result<(), ()> {
        Ok(())
    }

    fn disable_kind(&self, _kind: u32) {}
}

/// A [`KindSwitch`] without its errors, which are not read.
trait QuietSwitch: Send + Sync {
    fn set_kind(&self, kind: u32, is_on: bool);
}

impl<S: KindSwitch> QuietSwitch for S {
    fn set_kind(&self, kind: u32, is_on: bool) {
        if is_on {
            let _ = self.enable_kind(kind);
        } else {
            self.disable_kind(kind);
        }
    }
}

/// The enabled kinds of a recording.
///
/// A pause does not disable them at once, since earlier launches may not have their records yet. The reader thread
/// disables them when all have arrived; until then, records of the pause are dropped as they are read. A library may need
/// its kinds of API calls disabled during a flush; a pause or an end disables those first.
pub(crate) struct PausableKinds {
    switch: Box<dyn QuietSwitch>,
    /// The kinds that must be disabled during a flush.
    call_kinds: Vec<u32>,
    others: Vec<u32>,
    /// How long a resume waits for the thread that switches kinds.
    patience: Duration,
    /// When the current pause began, on the clock of the records; 0 for none.
    paused: AtomicU64,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Enabled,
    /// In a pause: the kinds of calls are disabled.
    CallsSuspended,
    Suspended,
    /// At the end: the kinds of calls are disabled for good.
    Closing,
    /// The recording has ended.
    Ended,
}

impl fmt::Debug for PausableKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PausableKinds")
            .field("calls", &self.call_kinds)
            .field("others", &self.others)
            .finish_non_exhaustive()
    }
}

impl PausableKinds {
    /// Takes over these kinds, which are enabled; `calls` are those that must be disabled during a flush.
    pub(crate) fn new(switch: impl KindSwitch, calls: Vec<u32>, others: Vec<u32>, patience: Duration) -> PausableKinds {
        let (paused, state) = (AtomicU64::new(0), Mutex::new(State::Enabled));
        PausableKinds { switch: Box::new(switch), call_kinds: calls, others, patience, paused, state }
    }

    /// Makes the kinds of a library that has none.
    pub(crate) fn none() -> PausableKinds {
        PausableKinds::new(NoKinds, Vec::new(), Vec::new(), Duration::ZERO)
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a pause at that time.
    pub(crate) fn pause(&self, at: u64) {
        self.paused.store(at.max(1), Ordering::SeqCst);
    }

    fn is_paused(&self) -> bool {
        self.paused.load(Ordering::SeqCst) != 0
    }

    /// Returns when the current pause began, if some kinds are still enabled.
    pub(crate) fn pending_pause(&self) -> Option<u64> {
        let at = self.paused.load(Ordering::SeqCst);
        (at != 0 && matches!(*self.lock_state(), State::Enabled | State::CallsSuspended)).then_some(at)
    }

    /// Returns whether all kinds are enabled.
    pub(crate) fn are_enabled(&self) -> bool {
        *self.lock_state() == State::Enabled
    }

    /// Calls `flush` with the kinds of calls disabled.
    pub(crate) fn with_calls_disabled(&self, flush: impl FnOnce()) {
        if self.call_kinds.is_empty() {
            return flush();
        }
        let state = self.lock_state();
        let is_enabled = *state == State::Enabled;
        if is_enabled {
            self.disable_kinds(&self.call_kinds);
        }
        flush();
        if is_enabled {
            self.enable_kinds(&self.call_kinds);
        }
        drop(state);
        self.retry_resume();
    }

    /// Disables the kinds of calls, unless the pause has ended, and then calls `flush`.
    pub(crate) fn suspend_calls(&self, flush: impl FnOnce()) {
        let mut state = self.lock_state();
        // Checked under the lock: if the pause has ended, the resuming thread expects the kinds to stay enabled.
        if !self.is_paused() {
            return;
        }
        if *state == State::Enabled {
            self.disable_kinds(&self.call_kinds);
            *state = State::CallsSuspended;
        }
        if *state == State::CallsSuspended {
            // Otherwise a resume would wait for the flush.
            let held = (!self.call_kinds.is_empty()).then_some(state);
            flush();
            drop(held);
        }
    }

    /// Disables all kinds after `suspend_calls`, unless the pause has ended.
    pub(crate) fn suspend_all(&self) {
        let mut state = self.lock_state();
        if *state == State::CallsSuspended && self.is_paused() {
            self.disable_kinds(&self.others);
            *state = State::Suspended;
        }
        drop(state);
        self.retry_resume();
    }

    /// Ends the pause.
    ///
    /// This may run in a callback of the library, for which the thread that switches kinds may be waiting. So it waits
    /// only briefly; that thread then enables the kinds again itself.
    pub(crate) fn resume(&self) {
        self.paused.store(0, Ordering::SeqCst);
        self.retry_resume();
    }

    /// Enables the kinds if a pause has ended but its resume gave up waiting for the lock.
    pub(crate) fn retry_resume(&self) {
        let begun = steady();
        let mut state = loop {
            match self.state.try_lock() {
                Ok(state) => break state,
                Err(TryLockError::Poisoned(state)) => break state.into_inner(),
                Err(TryLockError::WouldBlock) if since(begun) > self.patience => return,
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        };
        match *state {
            _ if self.is_paused() => return,
            State::CallsSuspended => self.enable_kinds(&self.call_kinds),
            State::Suspended => {
                self.enable_kinds(&self.others);
                self.enable_kinds(&self.call_kinds);
            }
            State::Enabled | State::Closing | State::Ended => return,
        }
        *state = State::Enabled;
    }

    /// Disables the kinds of calls for good: the recording ends.
    pub(crate) fn disable_calls(&self) {
        let mut state = self.lock_state();
        match *state {
            State::Enabled => self.disable_kinds(&self.call_kinds),
            State::CallsSuspended => {}
            State::Suspended | State::Closing | State::Ended => return,
        }
        *state = State::Closing;
    }

    /// Disables all kinds for good: the recording has ended.
    pub(crate) fn disable_all(&self) {
        self.disable_calls();
        let mut state = self.lock_state();
        if *state == State::Closing {
            self.disable_kinds(&self.others);
        }
        *state = State::Ended;
    }

    fn enable_kinds(&self, kinds: &[u32]) {
        kinds.iter().for_each(|kind| self.switch.set_kind(*kind, true));
    }

    fn disable_kinds(&self, kinds: &[u32]) {
        kinds.iter().for_each(|kind| self.switch.set_kind(*kind, false));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    /// The kinds that are enabled.
    #[derive(Clone, Debug, Default)]
    struct EnabledKinds(Arc<Mutex<BTreeSet<u32>>>);

    impl KindSwitch for EnabledKinds {
        type Error = ();

        fn enable_kind(&self, kind: u32) -> Result<(), ()> {
            self.0.lock().unwrap().insert(kind);
            Ok(())
        }

        fn disable_kind(&self, kind: u32) {
            self.0.lock().unwrap().remove(&kind);
        }
    }

    impl EnabledKinds {
        fn list(&self) -> Vec<u32> {
            self.0.lock().unwrap().iter().copied().collect()
        }
    }

    /// Returns the enabled kinds of a recording: calls of kind 6, others of kind 1.
    fn enabled(calls: &[u32]) -> (EnabledKinds, PausableKinds) {
        let enabled = EnabledKinds(Arc::new(Mutex::new(calls.iter().copied().chain([1]).collect())));
        let kinds = PausableKinds::new(enabled.clone(), calls.to_vec(), vec![1], Duration::from_millis(100));
        (enabled, kinds)
    }

    #[test]
    fn pauses_and_ends_disable_calls_first() {
        let (enabled, kinds) = enabled(&[6]);
        kinds.with_calls_disabled(|| assert_eq!(enabled.list(), [1]));
        assert_eq!((enabled.list(), kinds.are_enabled()), (vec![1, 6], true));
        kinds.pause(5);
        kinds.suspend_calls(|| assert_eq!(enabled.list(), [1]));
        assert_eq!((enabled.list(), kinds.pending_pause()), (vec![1], Some(5)));
        kinds.with_calls_disabled(|| assert_eq!(enabled.list(), [1]));
        kinds.suspend_all();
        assert_eq!((enabled.list(), kinds.pending_pause(), kinds.are_enabled()), (vec![], None, false));
        kinds.retry_resume();
        assert!(enabled.list().is_empty(), "the pause continues");
        kinds.resume();
        assert_eq!((enabled.list(), kinds.are_enabled()), (vec![1, 6], true));
        kinds.suspend_calls(|| panic!("there is no pause"));
        kinds.suspend_all();
        assert_eq!(enabled.list(), [1, 6], "there is no pause");
        kinds.disable_calls();
        kinds.with_calls_disabled(|| assert_eq!(enabled.list(), [1]));
        assert_eq!(enabled.list(), [1], "the recording ends, so kinds stay disabled");
        kinds.disable_all();
        assert!(enabled.list().is_empty());
        kinds.resume();
        assert!(enabled.list().is_empty(), "it has ended");
    }

    #[test]
    fn resume_does_not_wait_for_a_running_switch() {
        let (enabled, kinds) = enabled(&[6]);
        kinds.pause(5);
        kinds.suspend_calls(|| ());
        kinds.suspend_all();
        kinds.with_calls_disabled(|| {
            std::thread::scope(|scope| scope.spawn(|| kinds.resume()).join().unwrap());
            assert!(enabled.list().is_empty());
        });
        assert_eq!(enabled.list(), [1, 6], "the switching thread retried");
    }

    #[test]
    fn flush_does_not_delay_a_resume_unless_calls_are_disabled() {
        let (enabled, kinds) = enabled(&[]);
        kinds.pause(5);
        kinds.suspend_calls(|| {
            std::thread::scope(|scope| scope.spawn(|| kinds.resume()).join().unwrap());
            assert!(kinds.are_enabled());
        });
        kinds.suspend_all();
        assert_eq!(enabled.list(), [1]);
    }
}
