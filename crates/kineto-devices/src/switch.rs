//! Pauses and resumes a running collector.

use super::clock::realtime_now;
use super::{RecordSink, Recording};
use kineto_base::wait::{since, sleep, steady};
use kineto_model::activity::{ActivityGroup, ActivityTypes};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Duration;

/// The pause state of a collector.
///
/// Two threads may request different states at the same time, perhaps inside a vendor's callback, so no thread waits.
/// If another thread is already switching, that thread applies the latest request when it is done.
pub struct Switch {
    /// The types that the collector can record.
    types: ActivityTypes,
    /// The recording; `None` if the collector failed to start.
    recording: Option<Arc<dyn Recording>>,
    sink: RecordSink,
    wanted: AtomicBool,
    /// The state that the collector was switched to last; `None` when its recording has ended.
    applied: Mutex<Option<bool>>,
}

impl Switch {
    /// Makes a switch for a collector that runs, or that failed to start.
    pub(super) fn new(types: ActivityTypes, recording: Option<Arc<dyn Recording>>, sink: RecordSink) -> Switch {
        let applied = Mutex::new(recording.as_ref().map(|_| true));
        Switch { types, recording, sink, wanted: AtomicBool::new(true), applied }
    }

    /// Returns whether it runs, and records some of these types. API calls also belong to the host's group; they
    /// count only if the collector records nothing else.
    pub fn is_among(&self, types: ActivityTypes) -> bool {
        if self.recording.is_none() {
            return false;
        }
        let all = self.types;
        let own = all.difference(ActivityGroup::Cpu.types());
        !types.intersection(if own.is_empty() { all } else { own }).is_empty()
    }

    /// Requests a state; [`apply_request`](Switch::apply_request) switches the collector.
    pub fn request_state(&self, on: bool) {
        self.wanted.store(on, Ordering::SeqCst);
    }

    /// Switches the collector to the requested state, unless another thread is switching it already.
    pub fn apply_request(&self) {
        loop {
            let mut applied = match self.applied.try_lock() {
                Ok(applied) => applied,
                Err(TryLockError::Poisoned(applied)) => applied.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            let wanted = self.wanted.load(Ordering::SeqCst);
            if let (Some(recording), Some(on)) = (&self.recording, &mut *applied)
                && *on != wanted
            {
                if wanted {
                    recording.resume()
                } else {
                    recording.pause()
                }
                *on = wanted;
            }
            let is_over = applied.is_none();
            drop(applied);
            if is_over || self.wanted.load(Ordering::SeqCst) == wanted {
                return;
            }
        }
    }

    /// Reads the clock of the collector's records.
    pub fn read_clock(&self) -> u64 {
        self.recording.as_ref().and_then(|recording| recording.clock()).unwrap_or_else(realtime_now)
    }

    /// Keeps or drops records that begin from then on.
    pub fn set_window_open(&self, keep: bool, at: u64) {
        if keep { self.sink.pauses().end_pause(at) } else { self.sink.pauses().begin_pause(at) }
    }

    /// Forgets the pauses that ended before then: their records have been delivered.
    pub fn forget_pauses(&self, before: u64) {
        self.sink.pauses().forget_before(before);
    }

    /// Ends the recording: the collector is not switched any more. Waits briefly for a thread that is switching it.
    pub fn end_switching(&self) {
        const PATIENCE: Duration = Duration::from_millis(100);
        let begun = steady();
        loop {
            match self.applied.try_lock() {
                Ok(mut applied) => return *applied = None,
                Err(TryLockError::Poisoned(applied)) => return *applied.into_inner() = None,
                Err(TryLockError::WouldBlock) if since(begun) > PATIENCE => return,
                Err(TryLockError::WouldBlock) => sleep(Duration::from_micros(50)),
            }
        }
    }
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let applied = *self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("Switch").field("recording", &self.recording).field("applied", &applied).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial;
    use kineto_base::time::Timestamp;
    use kineto_model::activity::ActivityType;
    use std::sync::OnceLock;
    use std::time::Instant;

    /// Logs its calls; during its first pause, a resume is requested.
    #[derive(Debug, Default)]
    struct SwitchLog {
        applied: Mutex<Vec<&'static str>>,
        switch: OnceLock<Arc<Switch>>,
    }

    impl Recording for SwitchLog {
        fn stop(&self, _: Timestamp, _: Instant) {}
        fn pause(&self) {
            self.applied.lock().unwrap().push("pause");
            if let Some(switch) = self.switch.get() {
                switch.request_state(true);
                // This thread is already switching, so it must not wait for itself.
                switch.apply_request();
            }
        }
        fn resume(&self) {
            self.applied.lock().unwrap().push("resume");
        }
    }

    /// The types of a collector whose recording is the log.
    const TYPES: ActivityTypes = ActivityTypes::of(&[ActivityType::ConcurrentKernel, ActivityType::CudaDriver]);

    #[test]
    fn resume_during_a_pause_is_applied_after_it() {
        let applied = Arc::new(SwitchLog::default());
        let switch = Arc::new(Switch::new(TYPES, Some(applied.clone()), trial::unbounded_sink()));
        switch.apply_request();
        assert!(applied.applied.lock().unwrap().is_empty(), "it is already recording");
        applied.switch.set(switch.clone()).unwrap();
        switch.request_state(false);
        switch.apply_request();
        assert_eq!(*applied.applied.lock().unwrap(), ["pause", "resume"]);
        switch.end_switching();
        switch.request_state(false);
        switch.apply_request();
        assert_eq!(applied.applied.lock().unwrap().len(), 2, "its recording has ended");
    }

    #[test]
    fn group_selects_its_devices_collectors() {
        let switch = Switch::new(TYPES, Some(Arc::new(SwitchLog::default())), trial::unbounded_sink());
        let groups = [ActivityGroup::Cuda, ActivityGroup::Cpu, ActivityGroup::Hpu];
        assert_eq!(groups.map(|group| switch.is_among(group.types())), [true, false, false]);
        assert!(!Switch::new(TYPES, None, trial::unbounded_sink()).is_among(ActivityTypes::ALL));
    }
}
