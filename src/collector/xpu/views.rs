//! The views that PTI records, which rest while a recording is paused.

use super::error::PtiError;
use super::ffi::Api;
use super::records::view;
use kineto_trace::activity::{ActivityType, ActivityTypes};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// The activity types, with the views that PTI has of them.
const VIEWS: [(ActivityType, &[u32]); 9] = [
    (ActivityType::ConcurrentKernel, &[view::KERNEL]),
    (ActivityType::GpuMemcpy, &[view::COPY, view::PEER_COPY]),
    (ActivityType::GpuMemset, &[view::FILL]),
    (ActivityType::XpuRuntime, &[view::RUNTIME]),
    (ActivityType::XpuDriver, &[view::DRIVER]),
    (ActivityType::ExternalCorrelation, &[view::EXTERNAL_CORRELATION]),
    (ActivityType::XpuSync, &[view::SYNCHRONIZATION]),
    (ActivityType::CollectiveComm, &[view::COMMUNICATION]),
    (ActivityType::Overhead, &[view::OVERHEAD]),
];

/// The views whose records come when a device has done something.
const OF_DEVICES: [u32; 4] = [view::KERNEL, view::COPY, view::PEER_COPY, view::FILL];

/// What switches views.
pub(super) trait Switches: std::fmt::Debug + Send + Sync {
    fn enable(&self, view: u32) -> Result<(), PtiError>;
    fn disable(&self, view: u32) -> Result<(), PtiError>;
}

impl Switches for &'static Api {
    fn enable(&self, view: u32) -> Result<(), PtiError> {
        Api::enable(self, view)?;
        // Enabling it enables all calls.
        if view == view::RUNTIME { self.record_launches() } else { Ok(()) }
    }

    fn disable(&self, view: u32) -> Result<(), PtiError> {
        Api::disable(self, view)
    }
}

/// The views of a recording.
///
/// PTI hands over buffers that it is writing into when it is told to flush, without a lock against those that write. So
/// what the program's calls write is switched off around a flush, and a pause or an end begins with that; views of
/// devices go on until what was launched before has its records.
#[derive(Debug)]
pub(super) struct Views {
    switches: Box<dyn Switches>,
    views: Vec<u32>,
    /// When the pause began that goes on, by the clock of the records; 0 for none.
    paused: AtomicU64,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Enabled,
    /// Only what devices do is recorded: there is a pause.
    Quiet,
    Resting,
    /// Only what devices do is recorded: the recording ends.
    Closing,
    /// The recording has ended.
    Over,
}

impl Views {
    /// Enables the views of these types; returns them with the types that they are of, and of all others why not.
    pub(super) fn enable(switches: Box<dyn Switches>, types: ActivityTypes) -> (Views, ActivityTypes, Vec<Refused>) {
        let (mut views, mut enabled, mut refused) = (Vec::new(), ActivityTypes::EMPTY, Vec::new());
        for (kind, its) in VIEWS.iter().filter(|(kind, _)| types.contains(*kind)) {
            for view in *its {
                match switches.enable(*view) {
                    Ok(()) => {
                        views.push(*view);
                        enabled |= ActivityTypes::from_type(*kind);
                    }
                    Err(error) => {
                        let _ = switches.disable(*view);
                        refused.push(Refused { kind: *kind, is_beside: *view == view::PEER_COPY, error });
                    }
                }
            }
        }
        let state = Mutex::new(State::Enabled);
        (Views { switches, views, paused: AtomicU64::new(0), state }, enabled, refused)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A pause begins at that time.
    pub(super) fn pause(&self, at: u64) {
        self.paused.store(at.max(1), Ordering::SeqCst);
    }

    fn is_paused(&self) -> bool {
        self.paused.load(Ordering::SeqCst) != 0
    }

    /// Whether there is a pause in which something is recorded still.
    pub(super) fn is_to_rest(&self) -> bool {
        self.is_paused() && matches!(*self.state(), State::Enabled | State::Quiet)
    }

    /// Whether all of them record.
    pub(super) fn is_enabled(&self) -> bool {
        *self.state() == State::Enabled
    }

    /// Calls `flush` while the program's calls are not recorded.
    pub(super) fn hushed(&self, flush: impl FnOnce()) {
        let state = self.state();
        let is_enabled = *state == State::Enabled;
        if is_enabled {
            self.switch(false, |view| !OF_DEVICES.contains(&view));
        }
        flush();
        if is_enabled {
            self.switch(true, |view| !OF_DEVICES.contains(&view));
        }
        drop(state);
        self.look_again();
    }

    /// Records no more of the program's calls, and then calls `flush`, unless the pause is over.
    pub(super) fn quiet(&self, flush: impl FnOnce()) {
        let mut state = self.state();
        // Looked at under the lock: who has resumed since, and met it free, counts on what is enabled.
        if !self.is_paused() {
            return;
        }
        if *state == State::Enabled {
            self.switch(false, |view| !OF_DEVICES.contains(&view));
            *state = State::Quiet;
        }
        if *state == State::Quiet {
            flush();
        }
    }

    /// Records nothing any more once it is quiet, unless the pause is over.
    pub(super) fn rest(&self) {
        let mut state = self.state();
        if *state == State::Quiet && self.is_paused() {
            self.switch(false, |view| OF_DEVICES.contains(&view));
            *state = State::Resting;
        }
        drop(state);
        self.look_again();
    }

    /// The pause is over.
    ///
    /// This may be in the middle of a callback of PTI's, for which whoever switches views just then may be waiting; so
    /// that one is not waited for but a moment, and enables them again itself.
    pub(super) fn resume(&self) {
        self.paused.store(0, Ordering::SeqCst);
        self.look_again();
    }

    /// Enables what a pause has switched off, if that is over: who resumed may not have waited.
    pub(super) fn look_again(&self) {
        /// Longer than a flush takes: what is launched until the views are enabled has no call in the trace.
        const PATIENCE: Duration = Duration::from_millis(100);
        let begun = Instant::now();
        let mut state = loop {
            match self.state.try_lock() {
                Ok(state) => break state,
                Err(TryLockError::Poisoned(state)) => break state.into_inner(),
                Err(TryLockError::WouldBlock) if begun.elapsed() > PATIENCE => return,
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        };
        match *state {
            _ if self.is_paused() => return,
            State::Quiet => self.switch(true, |view| !OF_DEVICES.contains(&view)),
            State::Resting => self.switch(true, |_| true),
            State::Enabled | State::Closing | State::Over => return,
        }
        *state = State::Enabled;
    }

    /// Records no more of the program's calls, for good: the recording ends.
    pub(super) fn close(&self) {
        let mut state = self.state();
        match *state {
            State::Enabled => self.switch(false, |view| !OF_DEVICES.contains(&view)),
            State::Quiet => {}
            State::Resting | State::Closing | State::Over => return,
        }
        *state = State::Closing;
    }

    /// The recording is over: disables the views for good.
    pub(super) fn end(&self) {
        self.close();
        let mut state = self.state();
        if *state == State::Closing {
            self.switch(false, |view| OF_DEVICES.contains(&view));
        }
        *state = State::Over;
    }

    fn switch(&self, on: bool, which: impl Fn(u32) -> bool) {
        for view in self.views.iter().copied().filter(|view| which(*view)) {
            let _ = if on { self.switches.enable(view) } else { self.switches.disable(view) };
        }
    }
}

/// What is not recorded of a type, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) kind: ActivityType,
    /// Most of the type is recorded all the same.
    pub(super) is_beside: bool,
    pub(super) error: PtiError,
}

/// What can be recorded at best by views.
pub(super) fn types() -> ActivityTypes {
    VIEWS.iter().fold(ActivityTypes::EMPTY, |types, (kind, _)| types.with(*kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    /// Remembers which views are on; has no communication.
    #[derive(Clone, Debug, Default)]
    struct Board(Arc<Mutex<BTreeSet<u32>>>);

    impl Switches for Board {
        fn enable(&self, view: u32) -> Result<(), PtiError> {
            if view == view::COMMUNICATION {
                return Err(PtiError(3));
            }
            self.0.lock().unwrap().insert(view);
            Ok(())
        }

        fn disable(&self, view: u32) -> Result<(), PtiError> {
            self.0.lock().unwrap().remove(&view);
            Ok(())
        }
    }

    fn on(board: &Board) -> Vec<u32> {
        board.0.lock().unwrap().iter().copied().collect()
    }

    #[test]
    fn each_type_has_its_views_and_what_is_refused_is_told() {
        let board = Board::default();
        let (_, enabled, refused) = Views::enable(Box::new(board.clone()), types());
        assert_eq!(on(&board), [1, 3, 5, 6, 7, 8, 9, 10, 11]);
        let kind = ActivityType::CollectiveComm;
        assert_eq!(refused, [Refused { kind, is_beside: false, error: PtiError(3) }]);
        assert_eq!(enabled.iter().count(), 8);
    }

    #[test]
    fn pauses_and_ends_silence_the_host_first() {
        let board = Board::default();
        let wanted = ActivityTypes::from(ActivityType::ConcurrentKernel).with(ActivityType::XpuRuntime);
        let (views, ..) = Views::enable(Box::new(board.clone()), wanted);
        views.hushed(|| assert_eq!(on(&board), [1]));
        assert_eq!((on(&board), views.is_enabled()), (vec![1, 6], true));
        views.pause(5);
        views.quiet(|| assert_eq!(on(&board), [1]));
        assert_eq!((on(&board), views.is_to_rest()), (vec![1], true));
        views.hushed(|| assert_eq!(on(&board), [1]));
        views.rest();
        assert_eq!((on(&board), views.is_to_rest(), views.is_enabled()), (vec![], false, false));
        views.look_again();
        assert!(on(&board).is_empty(), "the pause goes on");
        views.resume();
        assert_eq!((on(&board), views.is_enabled()), (vec![1, 6], true));
        views.quiet(|| panic!("there is no pause"));
        views.rest();
        assert_eq!(on(&board), [1, 6], "there is no pause");
        views.close();
        views.hushed(|| assert_eq!(on(&board), [1]));
        assert_eq!(on(&board), [1], "it ends, so nobody goes on");
        views.end();
        assert!(on(&board).is_empty());
        views.resume();
        assert!(on(&board).is_empty(), "it is over");
    }

    #[test]
    fn who_resumes_while_views_are_switched_does_not_wait_for_it() {
        let board = Board::default();
        let (views, ..) = Views::enable(Box::new(board.clone()), ActivityTypes::from(ActivityType::XpuRuntime));
        views.pause(5);
        views.quiet(|| ());
        views.rest();
        views.hushed(|| {
            std::thread::scope(|scope| scope.spawn(|| views.resume()).join().unwrap());
            assert!(on(&board).is_empty());
        });
        assert_eq!(on(&board), [6], "whoever was at it looked again");
    }
}
