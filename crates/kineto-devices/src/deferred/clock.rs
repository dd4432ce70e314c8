//! Aligns a device's clock with the host's, and bounds the error.

use super::brackets::{Brackets, drift_over};
use crate::clock::{BracketedReading, ClockMap};
use kineto_base::text::count_with_noun;
use std::fmt;

/// What is stated about a device's clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceClock {
    ns_per_tick: f64,
    is_cpu_clock: bool,
    drift_ppm: u32,
}

/// How a device's timestamps were converted to the host's clock, and their error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Alignment {
    /// The basis of the alignment.
    pub source: AlignedBy,
    /// The number of calibrations or brackets.
    pub observations: u64,
    /// The largest error of a converted timestamp, in nanoseconds, if the device's clock drifts by at most
    /// `drift_ppm`.
    pub error_ns: u64,
    /// The assumed bound of the device clock's drift, in ppm: the stated bound, or as much more as makes the brackets
    /// consistent.
    pub drift_ppm: u32,
    /// The stated bound of the drift. If it is less than `drift_ppm`, brackets contradict each other and durations
    /// are unreliable.
    pub(crate) stated_drift_ppm: u32,
    /// Timestamps that contradict the brackets.
    pub contradicted: u64,
}

/// The basis of an alignment, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AlignedBy {
    /// Simultaneous readings of both clocks.
    Calibrations,
    /// The program's statement that the clock is the host's.
    Statement,
    /// When the host submitted work, and when it saw its end.
    Brackets,
}

/// The observations of a device's clock so far.
#[derive(Debug, Default)]
pub(super) struct ClockObservations {
    clock: DeviceClock,
    calibrations: Vec<BracketedReading>,
    /// The first and last device time with a calibration.
    calibrated: Option<(u64, u64)>,
    seen: u64,
    brackets: Brackets,
}

/// A conversion of timestamps based on the observations.
#[derive(Debug)]
pub(super) struct ClockAlignment<'k> {
    known: &'k ClockObservations,
    map: ClockMap,
    pub(super) report: Alignment,
}

/// The most calibrations that are kept: the last hour's at least, at a rate of one a second.
const KEPT: usize = 8192;

impl DeviceClock {
    /// Makes a clock with that many nanoseconds a tick, and any epoch.
    pub const fn ticking(ns_per_tick: f64) -> DeviceClock {
        DeviceClock { ns_per_tick, is_cpu_clock: false, drift_ppm: 100 }
    }

    /// Makes a clock that is the host's: ticks are its nanoseconds.
    pub const fn of_cpu() -> DeviceClock {
        DeviceClock { is_cpu_clock: true, ..DeviceClock::ticking(1.0) }
    }

    /// Bounds how much faster or slower than the host's clock it runs, in ppm. Default: 100; a quartz keeps within
    /// 50.
    #[must_use]
    pub const fn drift_ppm(self, drift_ppm: u32) -> DeviceClock {
        DeviceClock { drift_ppm, ..self }
    }

    /// Returns whether the parameters are valid.
    pub(super) fn is_possible(&self) -> bool {
        self.ns_per_tick.is_finite() && self.ns_per_tick > 0.0 && self.ns_per_tick < 1e9
    }

    /// Converts ticks into nanoseconds, at most 2^63.
    fn ticks_to_nanos(&self, ticks: u64) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "within 0 and 2^62, or it saturates"
        )]
        let ns_per_tick = (self.ns_per_tick * 2f64.powi(32)) as u64;
        let nanos = (u128::from(ticks) * u128::from(ns_per_tick)) >> 32;
        u64::try_from(nanos).unwrap_or(u64::MAX).min(i64::MAX.cast_unsigned())
    }

    /// Returns the error due to whole ticks and whole nanoseconds.
    fn resolution_ns(&self) -> u64 {
        self.ticks_to_nanos(1) + 2
    }
}

impl Default for DeviceClock {
    fn default() -> DeviceClock {
        DeviceClock::ticking(1.0)
    }
}

impl ClockObservations {
    /// Replaces the clock, and drops all observations.
    pub(super) fn replace_clock(&mut self, clock: DeviceClock) {
        *self = ClockObservations { clock, ..ClockObservations::default() };
    }

    /// Drops observations from before a recording: the clock may have been set or stopped since.
    pub(super) fn forget_brackets(&mut self) {
        self.brackets = Brackets::default();
    }

    pub(super) fn clock(&self) -> &DeviceClock {
        &self.clock
    }

    /// Adds a simultaneous reading of both clocks.
    pub(super) fn add_calibration(&mut self, ticks: u64, host: u64, deviation_ns: u64) {
        let device = self.clock.ticks_to_nanos(ticks);
        self.calibrations.push(BracketedReading::new(device, host, deviation_ns));
        let (first, last) = self.calibrated.unwrap_or((device, device));
        self.calibrated = Some((first.min(device), last.max(device)));
        self.seen += 1;
        if self.calibrations.len() > KEPT {
            let old: Vec<_> = self.calibrations.drain(..KEPT / 2).step_by(2).collect();
            self.calibrations.splice(..0, old);
        }
    }

    /// Adds a bracket, if it is possible.
    pub(super) fn add_bracket(&mut self, host: [u64; 2], ticks: [u64; 2]) {
        if host.is_sorted() && ticks.is_sorted() {
            // A tick shows when it began, but the event may have been at its end.
            let resolution = self.clock.resolution_ns();
            let host = [host[0].saturating_sub(resolution), host[1].saturating_add(resolution)];
            self.brackets.add(host, ticks.map(|at| self.clock.ticks_to_nanos(at)), self.clock.drift_ppm);
        }
    }

    /// Computes the conversion.
    pub(super) fn compute_alignment(&self) -> ClockAlignment<'_> {
        let fitting = self.brackets.fitting_drift(self.clock.drift_ppm);
        let (source, observations, drift_ppm) = if !self.calibrations.is_empty() {
            (AlignedBy::Calibrations, self.seen, self.clock.drift_ppm)
        } else if self.clock.is_cpu_clock {
            (AlignedBy::Statement, 1, self.clock.drift_ppm)
        } else {
            (AlignedBy::Brackets, self.brackets.bracket_count(), fitting.unwrap_or(1_000_000))
        };
        let stated_drift_ppm = self.clock.drift_ppm;
        let report = Alignment { source, observations, error_ns: 0, drift_ppm, stated_drift_ppm, contradicted: 0 };
        ClockAlignment { known: self, map: ClockMap::new(&self.calibrations), report }
    }
}

impl ClockAlignment<'_> {
    /// Converts a tick to the host's clock, and returns the possible error in nanoseconds; `None` without
    /// observations. The result is monotonic.
    pub(super) fn convert_ticks(&mut self, ticks: u64) -> Option<(u64, u64)> {
        let clock = &self.known.clock;
        let device = clock.ticks_to_nanos(ticks);
        let limits = self.known.brackets.offset_limits(device, self.report.drift_ppm);
        let (host, error) = match self.report.source {
            AlignedBy::Calibrations => (self.map.timestamp_of(device).as_nanos(), self.calibration_error(device)),
            AlignedBy::Statement => (device, 0),
            AlignedBy::Brackets => {
                let (least, most) = limits?;
                let (least, most) = (i128::from(least), i128::from(most));
                let host = u64::try_from(i128::from(device) + (least + most).div_euclid(2)).unwrap_or(0);
                (host, u64::try_from((most - least).abs() / 2 + 1).unwrap_or(u64::MAX))
            }
        };
        let error = error.saturating_add(clock.resolution_ns());
        let ahead = i128::from(host) - i128::from(device);
        let is_possible = |(least, most): (i64, i64)| {
            (i128::from(least) - i128::from(error)..=i128::from(most) + i128::from(error)).contains(&ahead)
                && least <= most
        };
        self.report.contradicted += u64::from(!limits.is_none_or(is_possible));
        self.report.error_ns = self.report.error_ns.max(error);
        Some((host, error))
    }

    /// Returns the error between two calibrations, since the offset may jump at any time, and beyond them, by drift.
    fn calibration_error(&self, device: u64) -> u64 {
        let beyond = self.known.calibrated.map_or(0, |(first, last)| device.abs_diff(device.clamp(first, last)));
        self.map.error_at_most_ns().saturating_add(drift_over(beyond, self.report.drift_ppm))
    }
}

impl fmt::Display for Alignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Alignment { source, observations, error_ns, drift_ppm, stated_drift_ppm, contradicted } = self;
        match source {
            AlignedBy::Calibrations => {
                write!(f, "the device's clock was aligned by {}", count_with_noun(*observations, "calibration"))?
            }
            AlignedBy::Statement => f.write_str("the device's clock is stated to be the host's")?,
            AlignedBy::Brackets => {
                write!(f, "the device's clock was aligned by {}", count_with_noun(*observations, "bracket"))?
            }
        }
        write!(f, ", to within {error_ns} ns if it drifts by no more than {drift_ppm} ppm")?;
        if drift_ppm > stated_drift_ppm {
            write!(f, "; brackets contradict the stated drift of {stated_drift_ppm} ppm")?;
        }
        match contradicted {
            0 => Ok(()),
            _ => write!(f, "; {contradicted} timestamps contradict the host's times of submission or end"),
        }
    }
}

impl AlignedBy {
    /// Returns its name, as rows show it under `timing_source`.
    pub const fn as_str(self) -> &'static str {
        match self {
            AlignedBy::Calibrations => "calibrations",
            AlignedBy::Statement => "statement",
            AlignedBy::Brackets => "brackets",
        }
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the test's numbers are small")]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn calibrated_error_contains_the_truth(
            period in 0.5..90.0_f64,
            ahead in 0..1_700_000_000_000_000_000_u64,
            drifts in vec(-90..=90_i32, 2..8),
            deviations in vec((0..2000_u64, -1.0..1.0_f64), 2..8),
            asked in vec(0.0..1.0_f64, 1..30),
        ) {
            const SECOND: f64 = 1e9;
            let stretches = drifts.len().min(deviations.len()) - 1;
            // In seconds of the device since the first calibration.
            let truth = |at: f64| {
                let before = |nth: usize| (at - nth as f64).clamp(0.0, if nth + 1 < stretches { 1.0 } else { 1e9 });
                let first = at.min(0.0) * f64::from(drifts[0]);
                let drifted: f64 = (0..stretches).map(|nth| before(nth) * f64::from(drifts[nth])).sum::<f64>() + first;
                let ns = at * SECOND + drifted * 1000.0;
                (ahead + 10_000_000_000).checked_add_signed(ns.round() as i64).unwrap()
            };
            let ticks = |at: f64| ((at + 5.0) * SECOND / period).round() as u64;
            let mut known = ClockObservations::default();
            known.replace_clock(DeviceClock::ticking(period));
            for (nth, (deviation, of)) in deviations.iter().take(stretches + 1).enumerate() {
                let off = (*deviation as f64 * of) as i64;
                known.add_calibration(ticks(nth as f64), truth(nth as f64).checked_add_signed(off).unwrap(), *deviation);
            }
            let mut aligned = known.compute_alignment();
            for at in asked.into_iter().map(|at| at * (stretches as f64 + 2.0) - 1.0) {
                let (host, error) = aligned.convert_ticks(ticks(at)).unwrap();
                prop_assert!(host.abs_diff(truth(at)) <= error, "{host} for {} +- {error}", truth(at));
            }
            prop_assert_eq!((aligned.report.source, aligned.report.contradicted), (AlignedBy::Calibrations, 0));
        }

        #[test]
        fn bracketed_times_are_ordered_and_in_their_brackets(
            period in 0.5..90.0_f64,
            work in vec((1..9_000_000_u64, 1..900_000_u64, 1..300_000_u64, 1..300_000_u64), 1..50),
        ) {
            let mut known = ClockObservations::default();
            known.replace_clock(DeviceClock::ticking(period));
            let (mut now, mut seen) = (7_000_000, Vec::new());
            for (gap, length, delay, late) in work {
                let ticks = [now + gap, now + gap + length];
                now = ticks[1];
                let host = ticks.map(|at| 1_000_000_000_000 + known.clock.ticks_to_nanos(at));
                let host = [host[0] - delay, host[1] + late];
                known.add_bracket(host, ticks);
                seen.push((host, ticks));
            }
            let mut aligned = known.compute_alignment();
            let mut last = 0;
            for (host, ticks) in seen {
                let [start, end] = ticks.map(|at| aligned.convert_ticks(at).unwrap());
                let resolution = known.clock.resolution_ns();
                prop_assert!(host[0] <= start.0 + resolution && end.0 <= host[1] + resolution);
                prop_assert!(last <= start.0 && start.0 <= end.0);
                let truth = 1_000_000_000_000 + known.clock.ticks_to_nanos(ticks[0]);
                prop_assert!(start.0.abs_diff(truth) <= start.1, "{start:?} for {truth}");
                last = end.0;
            }
            prop_assert_eq!((aligned.report.drift_ppm, aligned.report.contradicted), (100, 0));
        }
    }

    #[test]
    fn stated_host_clock_is_checked_against_brackets() {
        let mut known = ClockObservations::default();
        known.replace_clock(DeviceClock::of_cpu());
        known.add_bracket([1000, 5000], [2000, 3000]);
        let mut aligned = known.compute_alignment();
        assert_eq!((aligned.convert_ticks(2000), aligned.report.contradicted), (Some((2000, 3)), 0));
        known.add_bracket([1_000_000, 1_005_000], [2000, 3000]);
        let mut aligned = known.compute_alignment();
        aligned.convert_ticks(2000);
        assert_eq!(aligned.report.contradicted, 1);
        assert!(
            aligned.report.to_string().ends_with("; 1 timestamps contradict the host's times of submission or end")
        );
    }

    #[test]
    fn contradicting_brackets_are_reported() {
        let mut known = ClockObservations::default();
        known.replace_clock(DeviceClock::ticking(1.0));
        // A millisecond of the device in a microsecond of the host.
        known.add_bracket([9_000_000, 9_001_000], [0, 1_000_000]);
        let mut aligned = known.compute_alignment();
        let [start, end] = [0, 1_000_000].map(|at| aligned.convert_ticks(at).unwrap().0);
        assert!(9_000_000 <= start && start <= end && end <= 9_001_000, "{start} {end}");
        assert_eq!((aligned.report.drift_ppm, aligned.report.contradicted), (1_000_000, 0));
        let text = aligned.report.to_string();
        assert!(text.ends_with("brackets contradict the stated drift of 100 ppm"), "{text}");
        // The same ticks at another time.
        known.add_bracket([1_000, 2_000], [500, 600]);
        let mut aligned = known.compute_alignment();
        aligned.convert_ticks(500);
        assert_eq!(aligned.report.contradicted, 1);
    }

    #[test]
    fn calibrations_override_statement_and_brackets() {
        let mut known = ClockObservations::default();
        known.replace_clock(DeviceClock::of_cpu());
        known.add_calibration(2000, 5000, 10);
        assert_eq!(known.compute_alignment().convert_ticks(2000), Some((5000, 14)));
        known.replace_clock(DeviceClock::ticking(1.0));
        assert_eq!(
            known.compute_alignment().convert_ticks(2000),
            None,
            "observations of the previous clock are dropped"
        );
    }

    #[test]
    fn oldest_calibrations_are_thinned() {
        let mut known = ClockObservations::default();
        for nth in 0..3 * KEPT as u64 {
            known.add_calibration(nth * 1_000_000_000, nth * 1_000_000_000 + 77, 1);
        }
        assert!(known.calibrations.len() <= KEPT);
        let mut aligned = known.compute_alignment();
        assert_eq!(aligned.convert_ticks(5_500_000_000).unwrap().0, 5_500_000_077);
        assert_eq!(aligned.report.observations, 3 * KEPT as u64);
    }

    #[test]
    fn impossible_clocks_are_rejected() {
        let possible =
            [0.5, 1.0, 52.083, 0.0, -1.0, f64::NAN, f64::INFINITY].map(|ns| DeviceClock::ticking(ns).is_possible());
        assert_eq!(possible, [true, true, true, false, false, false, false]);
        assert_eq!(DeviceClock::ticking(1.0).ticks_to_nanos(u64::MAX), i64::MAX.cast_unsigned());
    }
}
