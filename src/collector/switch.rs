//! Pauses a collector that runs, and has it go on.

use super::clock::now;
use super::{Collector, RecordSink};
use kineto_trace::activity::{ActivityGroup, ActivityTypes};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Whether a collector that runs is to record now.
///
/// Two threads may want different things at a time, one of them in the middle of a vendor's callback, so nobody waits for
/// anybody: who finds another at it leaves the work to that one, which looks again at what is wanted when it is done.
pub(crate) struct Switch {
    collector: Arc<dyn Collector>,
    sink: RecordSink,
    records: bool,
    wanted: AtomicBool,
    /// What the collector was told last; `None` when its recording is over.
    told: Mutex<Option<bool>>,
}

impl Switch {
    /// A switch for a collector that records, or that could not be started.
    pub(super) fn new(collector: Arc<dyn Collector>, sink: RecordSink, records: bool) -> Switch {
        Switch { collector, sink, records, wanted: AtomicBool::new(true), told: Mutex::new(records.then_some(true)) }
    }

    /// Whether it records, and these types are what it is there for: calls of an API, which the host's group has too, are
    /// not, unless it has nothing else.
    pub(crate) fn is_among(&self, types: ActivityTypes) -> bool {
        if !self.records {
            return false;
        }
        let all = self.collector.types();
        let own = all.difference(ActivityGroup::Cpu.types());
        !types.intersection(if own.is_empty() { all } else { own }).is_empty()
    }

    /// Says what is wanted; [`settle`](Switch::settle) tells the collector.
    pub(crate) fn want(&self, on: bool) {
        self.wanted.store(on, Ordering::SeqCst);
    }

    /// Tells the collector what is wanted, but for what another thread is telling it just then.
    pub(crate) fn settle(&self) {
        loop {
            let mut told = match self.told.try_lock() {
                Ok(told) => told,
                Err(TryLockError::Poisoned(told)) => told.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            let wanted = self.wanted.load(Ordering::SeqCst);
            match *told {
                Some(on) if on != wanted => {
                    let tell = if wanted { <dyn Collector>::resume } else { <dyn Collector>::pause };
                    tell(&*self.collector);
                    *told = Some(wanted);
                }
                _ => {}
            }
            let is_over = told.is_none();
            drop(told);
            if is_over || self.wanted.load(Ordering::SeqCst) == wanted {
                return;
            }
        }
    }

    /// Reads the clock of the collector's records.
    pub(crate) fn now(&self) -> u64 {
        self.collector.clock().unwrap_or_else(now)
    }

    /// Has records kept that begin from then on, or not.
    pub(crate) fn cut(&self, keep: bool, at: u64) {
        if keep { self.sink.pauses().end(at) } else { self.sink.pauses().begin(at) }
    }

    /// The recording ends: the collector is told nothing more. Waits for who is at it, but not for ever.
    pub(crate) fn end(&self) {
        const PATIENCE: Duration = Duration::from_millis(100);
        let begun = Instant::now();
        loop {
            match self.told.try_lock() {
                Ok(mut told) => return *told = None,
                Err(TryLockError::Poisoned(told)) => return *told.into_inner() = None,
                Err(TryLockError::WouldBlock) if begun.elapsed() > PATIENCE => return,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_micros(50)),
            }
        }
    }
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = *self.told.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("Switch").field("collector", &self.collector.name()).field("told", &told).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::{Capabilities, Selection, Unavailable, trial};
    use crate::time::Timestamp;
    use kineto_trace::activity::ActivityType;
    use std::sync::OnceLock;

    /// Notes what it is told; in its first pause, another thread wants it to go on.
    #[derive(Debug, Default)]
    struct Told {
        told: Mutex<Vec<&'static str>>,
        switch: OnceLock<Arc<Switch>>,
    }

    impl Collector for Told {
        fn name(&self) -> &'static str {
            "told"
        }
        fn types(&self) -> ActivityTypes {
            ActivityTypes::from(ActivityType::ConcurrentKernel).with(ActivityType::CudaDriver)
        }
        fn probe(&self) -> Result<Capabilities, Unavailable> {
            Ok(Capabilities::default())
        }
        fn start(&self, _: &Selection, _: RecordSink) -> Result<Capabilities, Unavailable> {
            self.probe()
        }
        fn stop(&self, _: Timestamp, _: Instant) {}
        fn pause(&self) {
            self.told.lock().unwrap().push("pause");
            if let Some(switch) = self.switch.get() {
                switch.want(true);
                // Who is at it already is this thread, so it must not wait for itself.
                switch.settle();
            }
        }
        fn resume(&self) {
            self.told.lock().unwrap().push("resume");
        }
    }

    #[test]
    fn who_finds_another_at_it_leaves_and_that_one_looks_again() {
        let told = Arc::new(Told::default());
        let switch = Arc::new(Switch::new(told.clone(), trial::sink(), true));
        switch.settle();
        assert!(told.told.lock().unwrap().is_empty(), "it records already");
        told.switch.set(switch.clone()).unwrap();
        switch.want(false);
        switch.settle();
        assert_eq!(*told.told.lock().unwrap(), ["pause", "resume"]);
        switch.end();
        switch.want(false);
        switch.settle();
        assert_eq!(told.told.lock().unwrap().len(), 2, "its recording is over");
    }

    #[test]
    fn a_group_is_its_devices() {
        let switch = Switch::new(Arc::new(Told::default()), trial::sink(), true);
        let groups = [ActivityGroup::Cuda, ActivityGroup::Cpu, ActivityGroup::Hpu];
        assert_eq!(groups.map(|group| switch.is_among(group.types())), [true, false, false]);
        assert!(!Switch::new(Arc::new(Told::default()), trial::sink(), false).is_among(ActivityTypes::ALL));
    }
}
