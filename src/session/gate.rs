//! What is recorded at a time: the host and each collector, which pause together or one by one.

use super::pulse::Pulse;
use super::{FORKED_LOCK, lock_within};
use crate::clock::{Anchor, Converter};
use crate::collector::{Collection, Marks, Switch};
use crate::correlation::CorrelationSink;
use crate::memory;
use crate::recorder::{Recorder, Taken};
use crate::time::Ticks;
use crate::trace::{Recorded, Stretch, Window};
use kineto_trace::activity::{ActivityType, ActivityTypes};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// Opens and closes the recording's windows.
///
/// A thread may come here from within a vendor's callback, so the lock is held for moments, and never while a collector is
/// called. What is to be recorded is decided first; then collectors are told; then, if nobody has decided otherwise
/// meanwhile, windows are opened.
#[derive(Debug)]
pub(super) struct Gate {
    recorder: Arc<Recorder>,
    pulse: Arc<Pulse>,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// A recording goes on, since then.
    since: Option<Anchor>,
    host: Host,
    devices: Vec<Device>,
    street: Option<&'static dyn CorrelationSink>,
}

#[derive(Debug, Default)]
struct Host {
    wanted: bool,
    open: Option<(u64, Ticks)>,
    windows: Vec<Window>,
}

/// A collector.
#[derive(Debug)]
struct Device {
    switch: Arc<Switch>,
    wanted: bool,
    open: Option<Ticks>,
    windows: Vec<Stretch>,
}

/// When things were recorded.
#[derive(Debug)]
pub(super) struct Windows {
    pub(super) host: Vec<Window>,
    /// Of each collector, in the order in which they were given.
    pub(super) devices: Vec<Vec<Stretch>>,
    /// From the first of them to the last.
    pub(super) whole: Stretch,
    /// The same before they were cut.
    beside: Option<Stretch>,
    pub(super) since: Anchor,
}

/// What the host records itself.
pub(super) const OF_HOST: ActivityTypes =
    ActivityTypes::of(&[ActivityType::CpuOp, ActivityType::UserAnnotation, ActivityType::CpuInstantEvent]);

impl Gate {
    pub(super) fn new(recorder: Arc<Recorder>, pulse: Arc<Pulse>) -> Gate {
        Gate { recorder, pulse, held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A recording begins, with nothing open; `false` if a thread that a fork has left behind stands in the way.
    pub(super) fn begin(&self, switches: Vec<Switch>, street: Option<&'static dyn CorrelationSink>) -> bool {
        let Some(mut held) = lock_within(&self.held, FORKED_LOCK) else { return false };
        let device = |switch| Device { switch: Arc::new(switch), wanted: false, open: None, windows: Vec::new() };
        let devices = switches.into_iter().map(device).collect();
        let since = Anchor::take();
        *held = Held { since: Some(since), host: Host::default(), devices, street };
        true
    }

    /// Has nothing kept that was before the recording and comes late; it begins with a pause.
    pub(super) fn begin_paused(&self) {
        self.held().devices.iter().for_each(|device| device.switch.cut(false, 0));
        self.pause(ActivityTypes::ALL);
    }

    /// Has what is among these types recorded from now on; `false` if no recording goes on.
    pub(super) fn resume(&self, types: ActivityTypes) -> bool {
        let mut held = self.held();
        if held.since.is_none() {
            return false;
        }
        let switches = held.want(types, true);
        drop(held);
        for switch in &switches {
            switch.settle();
        }
        let times = times(&switches);
        let mut held = self.held();
        // Who has stopped or paused meanwhile came last.
        if held.since.is_some() && held.is_closed() {
            let now = self.anchor();
            held.open_devices(&times, now);
            if held.host.wanted && held.host.open.is_none() {
                held.host.open = Some((self.recorder.open(held.street), now));
                if self.recorder.listens() {
                    memory::gather();
                }
                self.pulse.wake();
            }
        }
        true
    }

    /// Has what is among these types not recorded from now on; `false` if no recording goes on.
    pub(super) fn pause(&self, types: ActivityTypes) -> bool {
        let switches = self.held().among(types);
        let times = times(&switches);
        let mut held = self.held();
        if held.since.is_none() {
            return false;
        }
        held.want(types, false);
        held.cut(&times);
        self.close(&mut held);
        drop(held);
        for switch in &switches {
            switch.settle();
        }
        true
    }

    /// Closes the windows of what is no longer wanted.
    fn close(&self, held: &mut Held) {
        let Held { host, devices, .. } = held;
        let closing = if host.wanted { None } else { host.open.take() };
        if closing.is_some() {
            self.recorder.close();
        }
        let mut unwanted = devices.iter_mut().filter(|device| !device.wanted && device.open.is_some()).peekable();
        if closing.is_none() && unwanted.peek().is_none() {
            return;
        }
        let end = self.anchor();
        host.windows.extend(closing.map(|(epoch, start)| Window { epoch, start, end, is_cut: false }));
        unwanted.for_each(|device| device.windows.extend(device.open.take().map(|start| (start, end))));
    }

    /// Reads the clocks, for the converter too.
    fn anchor(&self) -> Ticks {
        let now = Anchor::take();
        self.pulse.add(now);
        now.ticks()
    }

    /// The recording ends; returns its windows, `None` if none goes on.
    pub(super) fn end(&self) -> Option<Windows> {
        let mut held = self.held();
        let since = held.since?;
        held.host.wanted = false;
        held.devices.iter_mut().for_each(|device| device.wanted = false);
        self.close(&mut held);
        let Held { host, devices, .. } = std::mem::take(&mut *held);
        drop(held);
        devices.iter().for_each(|device| device.switch.end());
        let devices = devices.into_iter().map(|device| device.windows).collect();
        Some(Windows::new(host.windows, devices, since))
    }

    /// Returns the windows of the recording that goes on, as if it ended now.
    pub(super) fn look(&self, now: Ticks) -> Option<Windows> {
        let held = self.held();
        let since = held.since?;
        let mut host = held.host.windows.clone();
        // Threads still record: slices that begin after `now` are not part of the snapshot.
        host.extend(held.host.open.map(|(epoch, start)| Window { epoch, start, end: now, is_cut: true }));
        let devices = held.devices.iter().map(|device| device.windows_until(now)).collect();
        Some(Windows::new(host, devices, since))
    }

    /// Whether spans are recorded; `None` if no recording goes on.
    pub(super) fn is_open(&self) -> Option<bool> {
        let held = self.held();
        held.since.map(|_| held.host.open.is_some())
    }
}

impl Marks for Gate {
    fn mark(&self, begins: bool) {
        // In a forked child there is no recording of the parent's, and its lock may be nobody's.
        if !self.recorder.is_forked() {
            let _ = if begins { self.resume(ActivityTypes::ALL) } else { self.pause(ActivityTypes::ALL) };
        }
    }
}

impl Held {
    fn among(&self, types: ActivityTypes) -> Vec<Arc<Switch>> {
        self.devices.iter().filter(|device| device.switch.is_among(types)).map(|device| device.switch.clone()).collect()
    }

    /// Decides what is to be recorded; returns the collectors that it is about.
    fn want(&mut self, types: ActivityTypes, on: bool) -> Vec<Arc<Switch>> {
        if !types.intersection(OF_HOST).is_empty() {
            self.host.wanted = on;
        }
        for device in self.devices.iter_mut().filter(|device| device.switch.is_among(types)) {
            device.wanted = on;
            device.switch.want(on);
        }
        self.among(types)
    }

    /// Whether something is wanted and not open.
    fn is_closed(&self) -> bool {
        let device = |device: &Device| device.wanted && device.open.is_none();
        self.host.wanted && self.host.open.is_none() || self.devices.iter().any(device)
    }

    fn open_devices(&mut self, times: &[(Arc<Switch>, u64)], now: Ticks) {
        for (device, at) in self.timed(times).filter(|(device, _)| device.wanted && device.open.is_none()) {
            device.open = Some(now);
            device.switch.cut(true, at);
        }
    }

    /// Has records dropped that begin from those times on.
    fn cut(&mut self, times: &[(Arc<Switch>, u64)]) {
        for (device, at) in self.timed(times).filter(|(device, _)| !device.wanted) {
            device.switch.cut(false, at);
        }
    }

    /// The collectors whose clocks were read, each with its time.
    fn timed(&mut self, times: &[(Arc<Switch>, u64)]) -> impl Iterator<Item = (&mut Device, u64)> {
        let time = |device: &Device| times.iter().find(|(switch, _)| Arc::ptr_eq(switch, &device.switch)).map(|t| t.1);
        self.devices.iter_mut().filter_map(move |device| time(device).map(|at| (device, at)))
    }
}

impl Device {
    fn windows_until(&self, end: Ticks) -> Vec<Stretch> {
        self.windows.iter().copied().chain(self.open.map(|start| (start, end))).collect()
    }
}

impl Windows {
    fn new(host: Vec<Window>, devices: Vec<Vec<Stretch>>, since: Anchor) -> Windows {
        let all = || host.iter().map(|window| (window.start, window.end)).chain(devices.iter().flatten().copied());
        let start = all().map(|stretch| stretch.0).min().unwrap_or(since.ticks());
        let end = all().map(|stretch| stretch.1).max().unwrap_or(start);
        Windows { whole: (start, end), beside: None, host, devices, since }
    }
}

impl Windows {
    /// Cuts them to what lies between two times, unless the recording began behind the first of them.
    pub(super) fn between(mut self, times: Option<(SystemTime, SystemTime)>, converter: &Converter) -> Windows {
        let is_in_time = |from: SystemTime| converter.timestamp(self.whole.0) <= from.into();
        let Some((from, until)) = times.filter(|times| is_in_time(times.0)) else { return self };
        let (from, until) = (converter.ticks(from.into()), converter.ticks(until.into()));
        let cut = |(start, end): Stretch| (start.clamp(from, until), end.clamp(from, until));
        self.beside = Some(self.whole);
        self.whole = cut(self.whole);
        for window in &mut self.host {
            (window.start, window.end) = cut((window.start, window.end));
            window.is_cut = true;
        }
        self.devices.iter_mut().flatten().for_each(|stretch| *stretch = cut(*stretch));
        self
    }

    /// Gives each collector its windows, and the host's to its records.
    pub(super) fn share(
        self,
        collections: &mut [Collection],
        taken: Taken,
        owner: &Arc<Recorder>,
        owned: bool,
    ) -> Recorded {
        for (collection, windows) in collections.iter_mut().zip(self.devices) {
            (collection.windows, collection.beside) = (windows, self.beside);
        }
        Recorded::new(taken, self.host, self.whole, owner, owned)
    }
}

/// Reads the clocks of collectors, which are foreign code.
fn times(switches: &[Arc<Switch>]) -> Vec<(Arc<Switch>, u64)> {
    switches.iter().map(|switch| (switch.clone(), switch.now())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collector::CollectorSet;
    use kineto_trace::activity::ActivityGroup;
    use std::time::Duration;

    fn gate() -> Gate {
        let recorder = Arc::new(Recorder::for_tests());
        let collectors = Arc::new(CollectorSet::new(vec![], vec![]));
        Gate::new(recorder.clone(), Arc::new(Pulse::new(recorder, collectors)))
    }

    #[test]
    fn windows_are_what_lies_between_pauses() {
        let gate = gate();
        assert!(!gate.resume(ActivityTypes::ALL) && !gate.pause(ActivityTypes::ALL) && gate.end().is_none());
        assert!(gate.begin(vec![], None));
        assert_eq!(gate.is_open(), Some(false));
        for _ in 0..2 {
            assert!(gate.resume(ActivityTypes::ALL) && gate.resume(ActivityTypes::ALL));
            assert!(gate.recorder.epoch() != 0);
            assert!(gate.pause(ActivityGroup::Cuda.types()) && gate.is_open() == Some(true), "the host goes on");
            assert!(gate.pause(ActivityGroup::Cpu.types()) && gate.pause(ActivityTypes::ALL));
            assert!(gate.recorder.epoch() == 0);
        }
        let look = gate.look(Ticks(u64::MAX)).unwrap();
        gate.mark(true);
        let windows = gate.end().unwrap();
        assert_eq!((look.host.len(), windows.host.len()), (2, 3));
        assert!(windows.host.is_sorted_by(|one, next| one.end <= next.start && one.epoch < next.epoch));
        assert_eq!(windows.whole, (windows.host[0].start, windows.host[2].end));
        assert_eq!((gate.is_open(), gate.recorder.epoch()), (None, 0));
        gate.mark(true);
        assert_eq!(gate.recorder.epoch(), 0, "no recording goes on");
    }

    #[test]
    fn what_was_never_open_has_no_length() {
        let gate = gate();
        assert!(gate.begin(vec![], None));
        let windows = gate.end().unwrap();
        assert_eq!((windows.host.len(), windows.whole), (0, (windows.since.ticks(), windows.since.ticks())));
    }

    #[test]
    fn devices_are_cut_as_the_host_is_unless_all_began_too_late() {
        let at = |ns: u64| SystemTime::UNIX_EPOCH + Duration::from_nanos(ns);
        let stretch = |start, end| (Ticks(start), Ticks(end));
        let windows = |start| {
            let window = Window { epoch: 1, start: Ticks(start), end: Ticks(900), is_cut: false };
            let devices = vec![vec![stretch(start, 300), stretch(400, 900)], vec![]];
            Windows::new(vec![window], devices, Anchor::take())
        };
        let between = |windows: Windows, from, until| {
            let whole = windows.whole;
            let cut = windows.between(Some((at(from), at(until))), &Converter::of_nanoseconds());
            assert_eq!(cut.beside, (cut.whole != whole).then_some(whole));
            let host: Vec<_> = cut.host.iter().map(|window| (window.start, window.end, window.is_cut)).collect();
            (host, cut.devices, cut.whole)
        };
        let devices = vec![vec![stretch(200, 300), stretch(400, 800)], vec![]];
        let expected = (vec![(Ticks(200), Ticks(800), true)], devices, stretch(200, 800));
        assert_eq!(between(windows(150), 200, 800), expected);
        let untouched = windows(201);
        let devices = untouched.devices.clone();
        let expected = (vec![(Ticks(201), Ticks(900), false)], devices, stretch(201, 900));
        assert_eq!(between(untouched, 200, 800), expected);
        assert_eq!(between(windows(150), 1000, 1100).2, stretch(1000, 1000), "looked at before it began");
    }
}
