//! The windows in which the host and each collector have recorded, and how they are cut.

use super::device::DeviceRecords;
use super::recorded::{Recorded, Stretch, Window};
use crate::clock::Converter;
use crate::recorder::{EvictionCounts, RecordedBuffers, Recorder};
use crate::time::Ticks;
use std::sync::Arc;
use std::time::SystemTime;

/// All windows of a recording.
#[derive(Debug)]
pub(crate) struct WindowSet {
    pub(crate) host: Vec<Window>,
    /// For each collector, in their order.
    pub(crate) devices: Vec<Vec<Stretch>>,
    /// From the first start to the last end.
    pub(crate) extent: Stretch,
    /// Stretches of time of which records are missing.
    pub(crate) gaps: Vec<Stretch>,
    /// The extent before a cut that concerns collectors.
    pub(super) uncut_window: Option<Stretch>,
}

impl WindowSet {
    /// Creates the windows of a recording that began at `since`.
    pub(crate) fn new(host: Vec<Window>, devices: Vec<Vec<Stretch>>, since: Ticks) -> WindowSet {
        let of_host = host.iter().map(|window| (window.start, window.end));
        let all = of_host.chain(devices.iter().flatten().copied());
        let extent = all.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1))).unwrap_or((since, since));
        WindowSet { extent, gaps: Vec::new(), uncut_window: None, host, devices }
    }

    /// Cuts the windows to two times, unless the recording began after the first of them. The second may be earlier: the clock
    /// may have been set back in between.
    pub(crate) fn cut_to_times(mut self, times: Option<(SystemTime, SystemTime)>, converter: &Converter) -> WindowSet {
        let (begin, _) = converter.time_range(self.extent.0, self.extent.1);
        let is_in_time = |from: SystemTime| begin <= from.into();
        let Some((from, until)) = times.filter(|times| is_in_time(times.0)) else { return self };
        let from = converter.ticks_at(from.into());
        self.cut_between(from, converter.ticks_at(until.into()).max(from));
        self
    }

    /// Cuts off the time after `until`.
    pub(crate) fn cut_until(mut self, until: Ticks) -> WindowSet {
        self.cut_between(self.extent.0.min(until), until);
        self
    }

    /// Cuts the host's windows to what was not moved to disk before, also where records are missing since. Collectors deliver
    /// records late, so their windows stay.
    pub(crate) fn cut_to_segment(mut self, moved_until: Option<Ticks>) -> WindowSet {
        if let Some(since) = moved_until {
            self.cut_host_between(since, self.extent.1.max(since));
        }
        self
    }

    /// Cuts off the time after `until` from the host's windows.
    pub(crate) fn cut_host_until(mut self, until: Ticks) -> WindowSet {
        self.cut_host_between(self.extent.0.min(until), until);
        self
    }

    fn cut_host_between(&mut self, from: Ticks, until: Ticks) {
        let devices = self.devices.clone();
        self.cut_between(from, until);
        (self.devices, self.uncut_window) = (devices, None);
    }

    /// Cuts off the time before the horizon.
    pub(crate) fn cut_to_horizon(mut self, evicted: &EvictionCounts) -> WindowSet {
        if let Some(horizon) = evicted.horizon.filter(|horizon| *horizon > self.extent.0) {
            self.cut_between(horizon, self.extent.1.max(horizon));
        }
        self
    }

    /// Cuts off the time before `complete` stretches, and the gaps between them. These are in order.
    pub(crate) fn cut_to_stretches(mut self, complete: &[Stretch]) -> WindowSet {
        let Some((first, _)) = complete.first().filter(|first| first.0 > self.extent.0 || complete.len() > 1) else {
            return self;
        };
        self.cut_between(*first, self.extent.1.max(*first));
        for pair in complete.windows(2) {
            if let [(_, end), (start, _)] = pair {
                self.leave_out((*end, *start));
            }
        }
        self
    }

    fn leave_out(&mut self, gap: Stretch) {
        self.gaps.push(gap);
        for stretches in &mut self.devices {
            *stretches = without_stretch(stretches, gap);
        }
    }

    fn cut_between(&mut self, from: Ticks, until: Ticks) {
        let cut = |(start, end): Stretch| (start.clamp(from, until), end.clamp(from, until));
        self.uncut_window.get_or_insert(self.extent);
        self.extent = cut(self.extent);
        for window in &mut self.host {
            (window.start, window.end) = cut((window.start, window.end));
            window.is_cut = true;
        }
        for stretches in &mut self.devices {
            for stretch in stretches {
                *stretch = cut(*stretch);
            }
        }
    }

    /// Assigns each collector its windows, and the host's to the recorded chunks.
    pub(crate) fn assign_windows(
        mut self,
        devices: &mut DeviceRecords,
        taken: RecordedBuffers,
        owner: &Arc<Recorder>,
        owned: bool,
    ) -> Recorded {
        devices.assign_windows(&mut self);
        Recorded::new(taken, self.host, self.extent, owner, owned)
    }
}

/// Returns the rest of stretches without the inside of another one.
pub(super) fn without_stretch(stretches: &[Stretch], (from, to): Stretch) -> Vec<Stretch> {
    let mut rest = Vec::with_capacity(stretches.len());
    for (start, end) in stretches {
        if *end <= from || to <= *start {
            rest.push((*start, *end));
            continue;
        }
        if *start < from {
            rest.push((*start, from));
        }
        if to < *end {
            rest.push((to, *end));
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn between_cuts_devices_and_host_unless_begun_late() {
        let at = |ns: u64| SystemTime::UNIX_EPOCH + Duration::from_nanos(ns);
        let stretch = |start, end| (Ticks(start), Ticks(end));
        let windows = |start| {
            let window = Window::new(1, Ticks(start), Ticks(900));
            let devices = vec![vec![stretch(start, 300), stretch(400, 900)], vec![]];
            WindowSet::new(vec![window], devices, Ticks(0))
        };
        let between = |windows: WindowSet, from, until| {
            let extent = windows.extent;
            let cut = windows.cut_to_times(Some((at(from), at(until))), &Converter::of_nanoseconds());
            assert_eq!(cut.uncut_window, (cut.extent != extent).then_some(extent));
            let host: Vec<_> = cut.host.iter().map(|window| (window.start, window.end, window.is_cut)).collect();
            (host, cut.devices, cut.extent)
        };
        let devices = vec![vec![stretch(200, 300), stretch(400, 800)], vec![]];
        let expected = (vec![(Ticks(200), Ticks(800), true)], devices, stretch(200, 800));
        assert_eq!(between(windows(150), 200, 800), expected);
        let untouched = windows(201);
        let devices = untouched.devices.clone();
        let expected = (vec![(Ticks(201), Ticks(900), false)], devices, stretch(201, 900));
        assert_eq!(between(untouched, 200, 800), expected);
        assert_eq!(between(windows(150), 1000, 1100).2, stretch(1000, 1000), "snapshot before it began");
        assert_eq!(between(windows(150), 500, 300).2, stretch(500, 500), "the clock was set back");
    }
}
