//! The views that PTI records, which are disabled while a recording is paused.

use super::error::PtiError;
use super::ffi::Api;
use super::records::view;
use kineto_trace::activity::{ActivityType, ActivityTypes};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// The activity types, with their PTI views.
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

/// The views of device work.
const OF_DEVICES: [u32; 4] = [view::KERNEL, view::COPY, view::PEER_COPY, view::FILL];

/// Enables and disables views.
pub(super) trait ViewSwitch: std::fmt::Debug + Send + Sync {
    fn enable(&self, view: u32) -> Result<(), PtiError>;
    fn disable(&self, view: u32) -> Result<(), PtiError>;
}

impl ViewSwitch for &'static Api {
    fn enable(&self, view: u32) -> Result<(), PtiError> {
        Api::enable(self, view)?;
        // Enabling the view enables all calls.
        if view == view::RUNTIME { self.record_launches() } else { Ok(()) }
    }

    fn disable(&self, view: u32) -> Result<(), PtiError> {
        Api::disable(self, view)
    }
}

/// The views of a recording.
///
/// A flush also returns buffers that PTI is writing into, without a lock against their writers. So views of API calls
/// are disabled around a flush, and a pause or an end first disables them. Views of device work stay enabled until
/// earlier launches have their records.
#[derive(Debug)]
pub(super) struct Views {
    view_switch: Box<dyn ViewSwitch>,
    views: Vec<u32>,
    /// When the current pause began, on the clock of the records; 0 for none.
    paused: AtomicU64,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Enabled,
    /// In a pause: only device work is recorded.
    HostSuspended,
    Suspended,
    /// At the end: only device work is recorded.
    Closing,
    /// The recording has ended.
    Over,
}

impl Views {
    /// Enables the views of these types; returns them, the types enabled, and the failures.
    pub(super) fn enable(
        view_switch: Box<dyn ViewSwitch>,
        types: ActivityTypes,
    ) -> (Views, ActivityTypes, Vec<Refused>) {
        let (mut views, mut enabled, mut refused) = (Vec::new(), ActivityTypes::EMPTY, Vec::new());
        for (kind, its) in VIEWS.iter().filter(|(kind, _)| types.contains(*kind)) {
            for view in *its {
                match view_switch.enable(*view) {
                    Ok(()) => {
                        views.push(*view);
                        enabled |= ActivityTypes::from_type(*kind);
                    }
                    Err(error) => {
                        let _ = view_switch.disable(*view);
                        refused.push(Refused { kind: *kind, is_partial: *view == view::PEER_COPY, error });
                    }
                }
            }
        }
        let state = Mutex::new(State::Enabled);
        (Views { view_switch, views, paused: AtomicU64::new(0), state }, enabled, refused)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a pause at that time.
    pub(super) fn pause(&self, at: u64) {
        self.paused.store(at.max(1), Ordering::SeqCst);
    }

    fn is_paused(&self) -> bool {
        self.paused.load(Ordering::SeqCst) != 0
    }

    /// Returns whether the recording is paused while some views are still enabled.
    pub(super) fn has_pending_pause(&self) -> bool {
        self.is_paused() && matches!(*self.state(), State::Enabled | State::HostSuspended)
    }

    /// Returns whether all views are enabled.
    pub(super) fn is_enabled(&self) -> bool {
        *self.state() == State::Enabled
    }

    /// Calls `flush` with the views of API calls disabled.
    pub(super) fn with_host_views_off(&self, flush: impl FnOnce()) {
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
        self.retry_resume();
    }

    /// Disables the views of API calls and then calls `flush`, unless the pause has ended.
    pub(super) fn suspend_host(&self, flush: impl FnOnce()) {
        let mut state = self.state();
        // Checked under the lock: a thread that resumed since, and found the lock free, relies on the enabled views.
        if !self.is_paused() {
            return;
        }
        if *state == State::Enabled {
            self.switch(false, |view| !OF_DEVICES.contains(&view));
            *state = State::HostSuspended;
        }
        if *state == State::HostSuspended {
            flush();
        }
    }

    /// Disables all views after `suspend_host`, unless the pause has ended.
    pub(super) fn suspend(&self) {
        let mut state = self.state();
        if *state == State::HostSuspended && self.is_paused() {
            self.switch(false, |view| OF_DEVICES.contains(&view));
            *state = State::Suspended;
        }
        drop(state);
        self.retry_resume();
    }

    /// Ends the pause.
    ///
    /// This may run in a callback of PTI, for which the thread that switches views may be waiting. So it waits only
    /// briefly; that thread then enables the views again itself.
    pub(super) fn resume(&self) {
        self.paused.store(0, Ordering::SeqCst);
        self.retry_resume();
    }

    /// Enables the views after a pause, if it has ended: the thread that resumed may have given up waiting.
    pub(super) fn retry_resume(&self) {
        /// Longer than a flush takes: until the views are enabled, launches have no call in the trace.
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
            State::HostSuspended => self.switch(true, |view| !OF_DEVICES.contains(&view)),
            State::Suspended => self.switch(true, |_| true),
            State::Enabled | State::Closing | State::Over => return,
        }
        *state = State::Enabled;
    }

    /// Disables the views of API calls for good: the recording ends.
    pub(super) fn close(&self) {
        let mut state = self.state();
        match *state {
            State::Enabled => self.switch(false, |view| !OF_DEVICES.contains(&view)),
            State::HostSuspended => {}
            State::Suspended | State::Closing | State::Over => return,
        }
        *state = State::Closing;
    }

    /// Disables all views for good: the recording has ended.
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
            let _ = if on { self.view_switch.enable(view) } else { self.view_switch.disable(view) };
        }
    }
}

/// A view that could not be enabled, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) kind: ActivityType,
    /// Whether most of the type is recorded anyway.
    pub(super) is_partial: bool,
    pub(super) error: PtiError,
}

/// Returns the types that views can record at best.
pub(super) fn types() -> ActivityTypes {
    VIEWS.iter().fold(ActivityTypes::EMPTY, |types, (kind, _)| types.with(*kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    /// Tracks which views are enabled; rejects communication.
    #[derive(Clone, Debug, Default)]
    struct EnabledViews(Arc<Mutex<BTreeSet<u32>>>);

    impl ViewSwitch for EnabledViews {
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

    fn on(enabled: &EnabledViews) -> Vec<u32> {
        enabled.0.lock().unwrap().iter().copied().collect()
    }

    #[test]
    fn each_type_has_its_views_and_failures_are_reported() {
        let switch = EnabledViews::default();
        let (_, enabled, refused) = Views::enable(Box::new(switch.clone()), types());
        assert_eq!(on(&switch), [1, 3, 5, 6, 7, 8, 9, 10, 11]);
        let kind = ActivityType::CollectiveComm;
        assert_eq!(refused, [Refused { kind, is_partial: false, error: PtiError(3) }]);
        assert_eq!(enabled.iter().count(), 8);
    }

    #[test]
    fn pauses_and_ends_disable_host_views_first() {
        let enabled = EnabledViews::default();
        let wanted = ActivityTypes::from(ActivityType::ConcurrentKernel).with(ActivityType::XpuRuntime);
        let (views, ..) = Views::enable(Box::new(enabled.clone()), wanted);
        views.with_host_views_off(|| assert_eq!(on(&enabled), [1]));
        assert_eq!((on(&enabled), views.is_enabled()), (vec![1, 6], true));
        views.pause(5);
        views.suspend_host(|| assert_eq!(on(&enabled), [1]));
        assert_eq!((on(&enabled), views.has_pending_pause()), (vec![1], true));
        views.with_host_views_off(|| assert_eq!(on(&enabled), [1]));
        views.suspend();
        assert_eq!((on(&enabled), views.has_pending_pause(), views.is_enabled()), (vec![], false, false));
        views.retry_resume();
        assert!(on(&enabled).is_empty(), "the pause continues");
        views.resume();
        assert_eq!((on(&enabled), views.is_enabled()), (vec![1, 6], true));
        views.suspend_host(|| panic!("there is no pause"));
        views.suspend();
        assert_eq!(on(&enabled), [1, 6], "there is no pause");
        views.close();
        views.with_host_views_off(|| assert_eq!(on(&enabled), [1]));
        assert_eq!(on(&enabled), [1], "the recording ends, so views stay disabled");
        views.end();
        assert!(on(&enabled).is_empty());
        views.resume();
        assert!(on(&enabled).is_empty(), "it has ended");
    }

    #[test]
    fn resume_does_not_wait_for_a_running_switch() {
        let enabled = EnabledViews::default();
        let (views, ..) = Views::enable(Box::new(enabled.clone()), ActivityTypes::from(ActivityType::XpuRuntime));
        views.pause(5);
        views.suspend_host(|| ());
        views.suspend();
        views.with_host_views_off(|| {
            std::thread::scope(|scope| scope.spawn(|| views.resume()).join().unwrap());
            assert!(on(&enabled).is_empty());
        });
        assert_eq!(on(&enabled), [6], "the switching thread retried");
    }
}
