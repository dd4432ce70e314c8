//! The windows in which the host and each collector record. They pause together or one by one.

use super::clock_thread::ClockThread;
use crate::clock::Anchor;
use crate::correlation::CorrelationSink;
use crate::live::JournalKind;
use crate::memory;
use crate::recorder::Recorder;
use crate::session::{FORKED_LOCK, lock_within};
use crate::time::Ticks;
use crate::trace::{Stretch, Window, WindowSet};
use kineto_base::hash::HashSet;
use kineto_devices::{Marks, Switch};
use kineto_model::activity::{ActivityType, ActivityTypes};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Opens and closes the recording's windows.
///
/// A vendor's callback may call this, so the lock is held briefly, and never while a collector is called. A change is
/// decided under the lock, applied to the collectors without it, and then opens windows, unless another thread changed the
/// decision meanwhile.
#[derive(Debug)]
pub(super) struct RecordingWindows {
    recorder: Arc<Recorder>,
    clock_thread: Arc<ClockThread>,
    state: Mutex<WindowState>,
}

#[derive(Debug, Default)]
struct WindowState {
    /// When the running recording began.
    since: Option<Anchor>,
    /// When the first window opened, which may have been dropped.
    first_start: Option<Ticks>,
    host: HostWindows,
    devices: Vec<DeviceWindows>,
    correlation_sink: Option<Arc<dyn CorrelationSink>>,
}

#[derive(Debug, Default)]
struct HostWindows {
    wanted: bool,
    open: Option<(u64, Ticks)>,
    windows: Vec<Window>,
}

/// The windows of a collector.
#[derive(Debug)]
struct DeviceWindows {
    switch: Arc<Switch>,
    wanted: bool,
    open: Option<DeviceStart>,
    windows: Vec<DeviceWindow>,
    /// How many windows before these were dropped.
    dropped: u64,
}

/// When a window of a collector opened.
#[derive(Clone, Copy, Debug)]
struct DeviceStart {
    at: Ticks,
    /// The same on the clock of the collector's records.
    vendor: u64,
}

/// A window of a collector that has ended.
#[derive(Clone, Copy, Debug)]
struct DeviceWindow {
    start: DeviceStart,
    end: Ticks,
}

/// The types that the host records itself.
pub(super) const HOST_TYPES: ActivityTypes =
    ActivityTypes::of(&[ActivityType::CpuOp, ActivityType::UserAnnotation, ActivityType::CpuInstantEvent]);

impl RecordingWindows {
    pub(super) fn new(recorder: Arc<Recorder>, clock_thread: Arc<ClockThread>) -> RecordingWindows {
        RecordingWindows { recorder, clock_thread, state: Mutex::default() }
    }

    fn lock_state(&self) -> MutexGuard<'_, WindowState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a recording with no window open. Returns `false` if a thread that did not survive a fork holds the lock.
    pub(super) fn begin(&self, switches: Vec<Switch>, correlation_sink: Option<Arc<dyn CorrelationSink>>) -> bool {
        let Some(mut state) = lock_within(&self.state, FORKED_LOCK) else { return false };
        let device = |switch| DeviceWindows {
            switch: Arc::new(switch),
            wanted: false,
            open: None,
            windows: Vec::new(),
            dropped: 0,
        };
        let devices = switches.into_iter().map(device).collect();
        let since = Anchor::read_clocks();
        *state = WindowState { since: Some(since), devices, correlation_sink, ..WindowState::default() };
        true
    }

    /// Starts paused, and drops records from before the recording that arrive late.
    pub(super) fn begin_paused(&self) {
        self.lock_state().devices.iter().for_each(|device| device.switch.set_window_open(false, 0));
        self.pause(ActivityTypes::ALL);
    }

    /// Records these types from now on; returns `false` if no recording is running.
    pub(super) fn resume(&self, types: ActivityTypes) -> bool {
        let mut state = self.lock_state();
        if state.since.is_none() {
            return false;
        }
        let switches = state.set_wanted(types, true);
        drop(state);
        for switch in &switches {
            switch.apply_request();
        }
        let times = read_switch_clocks(&switches);
        let mut state = self.lock_state();
        // A stop or pause in the meantime wins.
        if state.since.is_some() && state.is_closed() {
            let now = self.record_anchor();
            state.first_start.get_or_insert(now);
            state.open_devices(&times, now);
            self.note_devices(&state);
            if state.host.wanted && state.host.open.is_none() {
                state.host.open = Some((self.recorder.open_epoch(state.correlation_sink.clone()), now));
                if self.recorder.records_memory() {
                    memory::gather_counts();
                }
                // It sleeps while no epoch is open.
                self.recorder.pool().wake_helper();
            }
        }
        true
    }

    /// Stops recording these types; returns `false` if no recording is running.
    pub(super) fn pause(&self, types: ActivityTypes) -> bool {
        // A processor's counter that begins anew after a suspend may be earlier than the windows for long.
        let mut passes = 3;
        let (switches, times, mut state) = loop {
            passes -= 1;
            let (switches, begun) = (self.lock_state().switches_for(types), crate::clock::now());
            let times = read_switch_clocks(&switches);
            let state = self.lock_state();
            // Another thread may have opened a window meanwhile: the times lie before it, and would drop its records.
            if passes == 0 || state.devices.iter().all(|device| device.open.is_none_or(|open| open.at <= begun)) {
                break (switches, times, state);
            }
        };
        if state.since.is_none() {
            return false;
        }
        state.set_wanted(types, false);
        state.cut_unwanted(&times);
        self.close_unwanted(&mut state);
        drop(state);
        for switch in &switches {
            switch.apply_request();
        }
        true
    }

    /// Closes the windows that are no longer wanted.
    fn close_unwanted(&self, state: &mut WindowState) {
        let WindowState { host, devices, .. } = state;
        let closing = if host.wanted { None } else { host.open.take() };
        if closing.is_some() {
            self.recorder.close_epoch();
        }
        let mut unwanted = devices.iter_mut().filter(|device| !device.wanted && device.open.is_some()).peekable();
        if closing.is_none() && unwanted.peek().is_none() {
            return;
        }
        let end = self.record_anchor();
        if let Some((epoch, start)) = &closing {
            self.recorder.note_window(*epoch, *start, Some(end));
        }
        host.windows.extend(closing.map(|(epoch, start)| Window::new(epoch, start, end)));
        unwanted.for_each(|device| device.windows.extend(device.open.take().map(|start| DeviceWindow { start, end })));
        self.note_devices(state);
    }

    /// Notes all windows in the live file again, unless a thread opens or closes one.
    pub(super) fn note_all(&self) {
        let (Some(live), Ok(state)) = (self.recorder.live().current(), self.state.try_lock()) else { return };
        for window in &state.host.windows {
            self.recorder.note_window(window.epoch, window.start, Some(window.end));
        }
        if let Some((epoch, start)) = &state.host.open {
            self.recorder.note_window(*epoch, *start, None);
        }
        for (collector, device) in (0..).zip(&state.devices) {
            for (number, DeviceWindow { start, end }) in (device.dropped..).zip(&device.windows) {
                live.put_value(JournalKind::DeviceWindow, (collector, number), &(start.at, Some(*end)));
            }
        }
        self.note_devices(&state);
    }

    /// Notes the last window of each collector in the live file.
    fn note_devices(&self, state: &WindowState) {
        let Some(live) = self.recorder.live().current() else { return };
        for (collector, device) in (0..).zip(&state.devices) {
            let ended = device.windows.last().map(|window| (window.start.at, Some(window.end)));
            let open = device.open.map(|start| (start.at, None));
            let number = device.dropped + device.windows.len() as u64;
            let windows = ended.into_iter().map(|ended| (number - 1, ended)).chain(open.map(|open| (number, open)));
            for (number, window) in windows {
                live.put_value(JournalKind::DeviceWindow, (collector, number), &window);
            }
        }
    }

    /// Reads the clocks, and keeps the anchor for the converter.
    fn record_anchor(&self) -> Ticks {
        let now = Anchor::read_clocks();
        self.clock_thread.add_anchor(now);
        now.ticks()
    }

    /// Ends the recording and returns its windows, and when it began; `None` if no recording is running.
    pub(super) fn end(&self) -> Option<(WindowSet, Anchor)> {
        let mut state = self.lock_state();
        let since = state.since?;
        state.host.wanted = false;
        state.devices.iter_mut().for_each(|device| device.wanted = false);
        self.close_unwanted(&mut state);
        let mut ended = std::mem::take(&mut *state);
        drop(state);
        ended.devices.iter().for_each(|device| device.switch.end_switching());
        let host = std::mem::take(&mut ended.host.windows);
        Some((ended.window_set(host, Ticks(u64::MAX), since.ticks()), since))
    }

    /// Returns how many windows there are that have ended.
    pub(super) fn count(&self) -> usize {
        let state = self.lock_state();
        state.host.windows.len() + state.devices.iter().map(|device| device.windows.len()).sum::<usize>()
    }

    /// Drops the windows of the host that ended before `until`, unless records of their epochs are kept, and those of collectors that ended
    /// before `devices_until`. The last of each stays.
    pub(super) fn drop_ended(&self, until: Ticks, devices_until: Ticks, used_epochs: &HashSet<u64>) {
        let mut state = self.lock_state();
        let WindowState { first_start, host, devices, .. } = &mut *state;
        // A killed process has that start only in its journal.
        let is_removable = |start: Ticks| Some(start) != *first_start;
        let mut removed = Vec::new();
        let last = host.windows.last().map(|window| window.epoch);
        host.windows.retain(|window| {
            let stays = window.end >= until || Some(window.epoch) == last || used_epochs.contains(&window.epoch);
            removed.extend((!stays && is_removable(window.start)).then_some((JournalKind::Window, (window.epoch, 0))));
            stays
        });
        for (collector, device) in (0..).zip(devices) {
            let ended = device.windows.partition_point(|window| window.end < devices_until);
            let dropped = device.windows.drain(..ended.min(device.windows.len().saturating_sub(1)));
            for DeviceWindow { start, .. } in dropped {
                let key = (JournalKind::DeviceWindow, (collector, device.dropped));
                removed.extend(is_removable(start.at).then_some(key));
                device.dropped += 1;
            }
            device.windows.first().inspect(|first| device.switch.forget_pauses(first.start.vendor));
        }
        drop(state);
        let live = self.recorder.live().current();
        live.iter().for_each(|live| removed.iter().for_each(|(kind, key)| live.remove(*kind, *key)));
    }

    /// Returns the windows of the running recording, as if it ended now, and when it began.
    pub(super) fn snapshot(&self, now: Ticks) -> Option<(WindowSet, Anchor)> {
        let state = self.lock_state();
        let since = state.since?;
        let mut host = state.host.windows.clone();
        // Threads still record: slices that begin after `now` are not part of the snapshot, and a window that does is empty.
        let until_now = |(epoch, start)| Window { is_cut: true, ..Window::new(epoch, start, now.max(start)) };
        host.extend(state.host.open.map(until_now));
        // A callback of a collector may close one meanwhile.
        let later = host.iter_mut().filter(|window| window.end > now);
        later.for_each(|window| (window.end, window.is_cut) = (now.max(window.start), true));
        Some((state.window_set(host, now, since.ticks()), since))
    }

    /// Returns whether spans are recorded; `None` if no recording is running.
    pub(super) fn is_open(&self) -> Option<bool> {
        let state = self.lock_state();
        state.since.map(|_| state.host.open.is_some())
    }
}

impl Marks for RecordingWindows {
    fn mark_range(&self, begins: bool) {
        // A forked child has no recording, and its copy of the lock may be held by a thread of the parent.
        if !self.recorder.is_forked() {
            let _ = if begins { self.resume(ActivityTypes::ALL) } else { self.pause(ActivityTypes::ALL) };
        }
    }
}

impl WindowState {
    /// Returns the windows of a recording that began at `since`; those of collectors end at `end` at the latest.
    fn window_set(&self, host: Vec<Window>, end: Ticks, since: Ticks) -> WindowSet {
        let devices = self.devices.iter().map(|device| device.windows_until(end)).collect();
        let mut windows = WindowSet::new(host, devices, since);
        windows.extent.0 = self.first_start.unwrap_or(windows.extent.0).min(windows.extent.0);
        windows
    }

    fn switches_for(&self, types: ActivityTypes) -> Vec<Arc<Switch>> {
        self.devices.iter().filter(|device| device.switch.is_among(types)).map(|device| device.switch.clone()).collect()
    }

    /// Decides whether these types are recorded; returns the collectors concerned.
    fn set_wanted(&mut self, types: ActivityTypes, on: bool) -> Vec<Arc<Switch>> {
        if !types.intersection(HOST_TYPES).is_empty() {
            self.host.wanted = on;
        }
        for device in self.devices.iter_mut().filter(|device| device.switch.is_among(types)) {
            device.wanted = on;
            device.switch.request_state(on);
        }
        self.switches_for(types)
    }

    /// Returns whether a wanted window is not open.
    fn is_closed(&self) -> bool {
        let device = |device: &DeviceWindows| device.wanted && device.open.is_none();
        self.host.wanted && self.host.open.is_none() || self.devices.iter().any(device)
    }

    fn open_devices(&mut self, times: &[(Arc<Switch>, u64)], now: Ticks) {
        for (device, at) in self.devices_with_times(times).filter(|(device, _)| device.wanted && device.open.is_none())
        {
            device.open = Some(DeviceStart { at: now, vendor: at });
            device.switch.set_window_open(true, at);
        }
    }

    /// Drops records that begin at those times or later.
    fn cut_unwanted(&mut self, times: &[(Arc<Switch>, u64)]) {
        for (device, at) in self.devices_with_times(times).filter(|(device, _)| !device.wanted) {
            device.switch.set_window_open(false, at);
        }
    }

    /// Returns the collectors whose clocks were read, each with its time.
    fn devices_with_times(&mut self, times: &[(Arc<Switch>, u64)]) -> impl Iterator<Item = (&mut DeviceWindows, u64)> {
        let time =
            |device: &DeviceWindows| times.iter().find(|(switch, _)| Arc::ptr_eq(switch, &device.switch)).map(|t| t.1);
        self.devices.iter_mut().filter_map(move |device| time(device).map(|at| (device, at)))
    }
}

impl DeviceWindows {
    fn windows_until(&self, end: Ticks) -> Vec<Stretch> {
        let open = self.open.map(|start| (start.at, end));
        let all = self.windows.iter().map(|window| (window.start.at, window.end)).chain(open);
        all.map(|(start, last)| (start, last.min(end).max(start))).collect()
    }
}

/// Reads the clocks of collectors by calling foreign code.
fn read_switch_clocks(switches: &[Arc<Switch>]) -> Vec<(Arc<Switch>, u64)> {
    switches.iter().map(|switch| (switch.clone(), switch.read_clock())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::budget::PoolBudget;
    use super::*;
    use crate::time::Timestamp;
    use kineto_base::budget::Budget;
    use kineto_devices::{Capabilities, Collector, CollectorSet, RecordSink, Recording, Selection, Unavailable};
    use kineto_model::activity::ActivityGroup;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{OnceLock, Weak};
    use std::time::Instant;

    fn recording_windows() -> RecordingWindows {
        let recorder = Arc::new(Recorder::for_tests());
        let collectors = Arc::new(CollectorSet::new(vec![], vec![]));
        RecordingWindows::new(recorder.clone(), Arc::new(ClockThread::new(recorder, collectors, None, Weak::new())))
    }

    #[test]
    fn windows_lie_between_pauses() {
        let recording_windows = recording_windows();
        assert!(
            !recording_windows.resume(ActivityTypes::ALL)
                && !recording_windows.pause(ActivityTypes::ALL)
                && recording_windows.end().is_none()
        );
        assert!(recording_windows.begin(vec![], None));
        assert_eq!(recording_windows.is_open(), Some(false));
        for _ in 0..2 {
            assert!(recording_windows.resume(ActivityTypes::ALL) && recording_windows.resume(ActivityTypes::ALL));
            assert!(recording_windows.recorder.epoch() != 0);
            assert!(
                recording_windows.pause(ActivityGroup::Cuda.types()) && recording_windows.is_open() == Some(true),
                "the host still records"
            );
            assert!(recording_windows.pause(ActivityGroup::Cpu.types()) && recording_windows.pause(ActivityTypes::ALL));
            assert!(recording_windows.recorder.epoch() == 0);
        }
        let (snapshot, _) = recording_windows.snapshot(Ticks(u64::MAX)).unwrap();
        let before = crate::clock::now();
        recording_windows.mark_range(true);
        let (early, _) = recording_windows.snapshot(before).unwrap();
        let open = crate::clock::now();
        recording_windows.mark_range(false);
        let (closed, _) = recording_windows.snapshot(open).unwrap();
        let (windows, _) = recording_windows.end().unwrap();
        assert_eq!([&snapshot, &early, &windows].map(|windows| windows.host.len()), [2, 3, 3]);
        let begun_later = early.host[2];
        assert_eq!((begun_later.start, begun_later.end), (windows.host[2].start, windows.host[2].start));
        assert!(closed.host.iter().all(|window| window.end <= open) && closed.host[2].is_cut, "{:?}", closed.host);
        assert!(windows.host.is_sorted_by(|one, next| one.end <= next.start && one.epoch < next.epoch));
        assert_eq!(windows.extent, (windows.host[0].start, windows.host[2].end));
        assert_eq!((recording_windows.is_open(), recording_windows.recorder.epoch()), (None, 0));
        recording_windows.mark_range(true);
        assert_eq!(recording_windows.recorder.epoch(), 0, "no recording is running");
    }

    /// A device whose clock advances by 10 with each reading.
    #[derive(Clone, Debug, Default)]
    struct SteppingDevice {
        clock: Arc<AtomicU64>,
        sink: Arc<OnceLock<RecordSink>>,
    }

    impl Collector for SteppingDevice {
        fn name(&self) -> &'static str {
            "stepping"
        }

        fn types(&self) -> ActivityTypes {
            ActivityGroup::Cuda.types()
        }

        fn probe(&self) -> Result<Capabilities, Unavailable> {
            Ok(Capabilities::default())
        }

        fn start(&self, _: &Selection, sink: RecordSink) -> Result<(Capabilities, Box<dyn Recording>), Unavailable> {
            let _ = self.sink.set(sink);
            Ok((Capabilities::default(), Box::new(self.clone())))
        }
    }

    impl Recording for SteppingDevice {
        fn stop(&self, _: Timestamp, _: Instant) {}

        fn clock(&self) -> Option<u64> {
            Some(self.clock.fetch_add(10, Ordering::Relaxed))
        }
    }

    #[test]
    fn ended_windows_are_dropped_unless_needed() {
        let (windows, device) = (recording_windows(), SteppingDevice::default());
        let collectors = CollectorSet::new(vec![Arc::new(device.clone())], vec![]);
        let budget: Arc<dyn Budget> = Arc::new(PoolBudget::new(windows.recorder.clone()));
        collectors.start(&Selection::of(ActivityTypes::ALL), &budget);
        assert!(windows.begin(collectors.create_switches(), None));
        for _ in 0..5 {
            assert!(windows.resume(ActivityTypes::ALL) && windows.pause(ActivityTypes::ALL));
        }
        let all = windows.snapshot(Ticks(u64::MAX)).unwrap().0;
        let is_paused = |at| device.sink.get().unwrap().record(|batch| batch.is_paused(at, at));
        let known_pauses = || [15, 35, 55, 75, 95].map(is_paused);
        assert_eq!((all.host.len(), all.devices[0].len(), known_pauses()), (5, 5, [true; 5]));
        let left = |until: Ticks, devices_until: Ticks| {
            windows.drop_ended(until, devices_until, &HashSet::from_iter([all.host[1].epoch]));
            let left = windows.snapshot(Ticks(u64::MAX)).unwrap().0;
            assert_eq!(left.extent, all.extent);
            let is_left = |each: &Window| left.host.iter().any(|window| window.epoch == each.epoch);
            (all.host.iter().map(is_left).collect::<Vec<_>>(), left.devices[0].len())
        };
        assert_eq!(left(all.host[2].end, all.devices[0][1].1), (vec![false, true, true, true, true], 4));
        assert_eq!(known_pauses(), [true; 5], "the first one reaches to a window");
        assert_eq!(left(Ticks(u64::MAX), Ticks(u64::MAX)), (vec![false, true, false, false, true], 1));
        assert_eq!(known_pauses(), [false, false, false, true, true]);
        assert!(windows.resume(ActivityTypes::ALL));
        let (ended, _) = windows.end().unwrap();
        assert_eq!((ended.host.len(), ended.devices[0].len(), ended.extent.0), (3, 2, all.extent.0));
        collectors.stop(Timestamp::default(), Instant::now());
    }

    #[test]
    fn windows_that_never_opened_are_empty() {
        let recording_windows = recording_windows();
        assert!(recording_windows.begin(vec![], None));
        let (windows, since) = recording_windows.end().unwrap();
        assert_eq!((windows.host.len(), windows.extent), (0, (since.ticks(), since.ticks())));
    }
}
