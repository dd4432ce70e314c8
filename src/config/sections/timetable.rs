//! Recordings that the configuration schedules: after a delay, for a time, periodically, or by iterations.

use super::super::keys::Key;
use super::super::value::Value;
use std::fmt::Write as _;
use std::time::Duration;

/// The recordings, called windows, that the environment and the file schedule.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timetable {
    /// The time from the layer's creation to the first window.
    pub(crate) delay: Duration,
    /// The duration of each window; without one, the only window lasts to the program's end.
    length: Option<Duration>,
    /// From the start of one window to the start of the next.
    period: Option<Duration>,
    count: Option<u64>,
    /// How long collectors run before each window.
    pub(crate) warmup: Option<Duration>,
    /// The number of iterations of a window, with a start iteration.
    iterations: u64,
    has_start_iteration: bool,
    /// The lines of the request for a window, without its start.
    lines: String,
}

impl Timetable {
    /// Parses configuration lines, separated by white space.
    #[cfg(test)]
    pub(crate) fn of(text: &str) -> Timetable {
        let mut timetable = Timetable::default();
        let reading = super::super::sources::parse::parse_settings(&text.replace(' ', "\n"));
        assert!(reading.errors.is_empty());
        reading.settings.iter().for_each(|(key, value)| timetable.apply_setting(key, value));
        timetable
    }

    /// Longer than any program runs; in seconds, the largest number that a key accepts.
    pub(crate) const FOREVER: Duration = Duration::from_secs(i32::MAX as u64);

    /// Applies a key's value.
    pub(in crate::config) fn apply_setting(&mut self, key: Key, value: &Value) {
        let number = value.as_number();
        match (key, value) {
            (Key::StartDelay, Value::Time(delay)) => return self.delay = *delay,
            (Key::StartPeriod, Value::Time(period)) => return self.period = Some(*period),
            (Key::StartWindows, _) => return self.count = Some(number),
            // The request for a window may contain the others, too.
            (Key::DurationSecs, _) => self.length = Some(Duration::from_secs(number)),
            (Key::DurationMsecs, _) => self.length = Some(Duration::from_millis(number)),
            (Key::WarmupSecs, _) => self.warmup = Some(Duration::from_secs(number)),
            (Key::Iterations, _) => self.iterations = number,
            (Key::StartIteration, _) => self.has_start_iteration = true,
            (Key::StartRoundup | Key::WarmupIterations, _) => {}
            _ => return,
        }
        // Writing to a string does not fail.
        let _ = writeln!(self.lines, "{}={number}", key.spec().name);
    }

    /// Returns whether it schedules any recording.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.delay.is_zero() || self.length.is_some() || self.is_by_iterations()
    }

    /// Returns whether windows are counted in iterations: as in a request, both their number and the first one are set.
    pub(crate) fn is_by_iterations(&self) -> bool {
        self.iterations > 0 && self.has_start_iteration
    }

    /// Checks that its settings are consistent.
    ///
    /// # Errors
    /// A clause with the conflict and its remedy.
    pub(in crate::config) fn check_consistency(&self) -> Result<(), String> {
        let is_by_time = !self.delay.is_zero() || self.period.is_some() || self.count.is_some();
        if self.is_by_iterations() {
            let why = "ACTIVITIES_ITERATIONS with PROFILE_START_ITERATION records by iterations, START_DELAY_MS, \
                       START_PERIOD_MS and START_WINDOWS by time; remove one of the two groups";
            return if is_by_time { Err(why.to_owned()) } else { Ok(()) };
        }
        match (self.length, self.period, self.count) {
            (Some(Duration::ZERO), _, _) => {
                Err("a duration of 0 (ACTIVITIES_DURATION_MSECS) records nothing; set a longer one, or none".to_owned())
            }
            (None, Some(_), _) => {
                Err("START_PERIOD_MS needs ACTIVITIES_DURATION_MSECS, the duration of each window".to_owned())
            }
            (Some(length), Some(period), _) if period < length => Err(format!(
                "START_PERIOD_MS, {period:?} from start to start, is shorter than a window of {length:?} \
                 (ACTIVITIES_DURATION_MSECS); set a longer one"
            )),
            (_, None, Some(2..)) => Err("START_WINDOWS needs START_PERIOD_MS, the time between starts".to_owned()),
            _ => Ok(()),
        }
    }

    /// Returns a warning about a setting without effect.
    pub(in crate::config) fn unused_setting_warning(&self) -> Option<&'static str> {
        match (self.iterations > 0, self.has_start_iteration) {
            (true, false) => Some("ACTIVITIES_ITERATIONS changes nothing without PROFILE_START_ITERATION"),
            (false, true) => Some("PROFILE_START_ITERATION changes nothing without ACTIVITIES_ITERATIONS"),
            _ => None,
        }
    }

    /// Returns the time from the layer's creation to the start of a window, counted from 0; `None` if there is no such
    /// window.
    pub(crate) fn window_start(&self, window: u64) -> Option<Duration> {
        let count = self.count.unwrap_or(if self.period.is_some() { u64::MAX } else { 1 });
        let period = u64::try_from(self.period.unwrap_or_default().as_millis()).unwrap_or(u64::MAX);
        (window < count).then(|| self.delay + Duration::from_millis(period.saturating_mul(window)))
    }

    /// Returns whether files are numbered, because there are several windows.
    pub(crate) fn is_numbered(&self) -> bool {
        self.window_start(1).is_some()
    }

    /// Returns the request for a window that begins at `start` after 1970, or, with iterations, at the configured one.
    pub(crate) fn request_text(&self, start: Duration) -> String {
        let mut text = self.lines.clone();
        if !self.is_by_iterations() {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{}={}", Key::StartTime.spec().name, start.as_millis());
            if self.length.is_none() {
                let _ = writeln!(text, "{}={}", Key::DurationSecs.spec().name, Timetable::FOREVER.as_secs());
            }
        }
        text
    }
}

#[cfg(test)]
#[cfg(feature = "ondemand")]
mod tests {
    use super::*;
    use crate::config::ParsedRequest;
    use std::time::{SystemTime, UNIX_EPOCH};

    fn starts(text: &str) -> Vec<u64> {
        let timetable = Timetable::of(text);
        let millis = |start: Duration| u64::try_from(start.as_millis()).unwrap();
        (0..4).map_while(|window| timetable.window_start(window).map(millis)).collect()
    }

    #[test]
    fn windows_begin_after_the_delay_then_by_period() {
        assert_eq!(starts("START_DELAY_MS=5"), [5]);
        assert_eq!(starts("ACTIVITIES_DURATION_MSECS=5"), [0]);
        assert_eq!(starts("ACTIVITIES_DURATION_SECS=1 START_PERIOD_MS=1000"), [0, 1000, 2000, 3000]);
        assert_eq!(starts("START_DELAY_MS=7 START_PERIOD_MS=10 ACTIVITIES_DURATION_MSECS=1 START_WINDOWS=2"), [7, 17]);
        assert!(Timetable::of("START_PERIOD_MS=10").is_numbered());
        assert!(!Timetable::of("START_PERIOD_MS=10 START_WINDOWS=1").is_numbered());
        assert!(!Timetable::of("START_DELAY_MS=10").is_numbered());
        let last = Timetable::of("START_PERIOD_MS=2147483647").window_start(u64::MAX - 1);
        assert_eq!(last, Some(Duration::from_millis(u64::MAX)));
    }

    #[test]
    fn keys_about_times_make_a_timetable() {
        for (text, is_wanted) in [
            ("START_DELAY_MS=1", true),
            ("ACTIVITIES_DURATION_SECS=1", true),
            ("ACTIVITIES_ITERATIONS=1 PROFILE_START_ITERATION=0", true),
            ("START_DELAY_MS=0 START_WINDOWS=1", false),
            ("ACTIVITIES_ITERATIONS=1 PROFILE_START_ITERATION_ROUNDUP=8", false),
            ("PROFILE_START_ITERATION=1", false),
            ("ACTIVITIES_WARMUP_PERIOD_SECS=1 ACTIVITIES_WARMUP_ITERATIONS=1", false),
        ] {
            assert_eq!(Timetable::of(text).is_wanted(), is_wanted, "{text}");
        }
    }

    #[test]
    fn conflicting_keys_are_errors_with_a_remedy() {
        for (text, message) in [
            ("START_PERIOD_MS=999 ACTIVITIES_DURATION_SECS=1", Some("999ms from start to start, is shorter")),
            ("START_PERIOD_MS=1000 ACTIVITIES_DURATION_SECS=1", None),
            ("START_PERIOD_MS=9", Some("START_PERIOD_MS needs ACTIVITIES_DURATION_MSECS")),
            ("START_WINDOWS=2 ACTIVITIES_DURATION_SECS=1", Some("START_WINDOWS needs START_PERIOD_MS")),
            ("START_WINDOWS=1 ACTIVITIES_DURATION_SECS=1", None),
            ("ACTIVITIES_DURATION_MSECS=0", Some("records nothing")),
            (
                "ACTIVITIES_ITERATIONS=1 PROFILE_START_ITERATION=0 START_DELAY_MS=1",
                Some("remove one of the two groups"),
            ),
            ("ACTIVITIES_ITERATIONS=1 PROFILE_START_ITERATION=0 ACTIVITIES_DURATION_MSECS=0", None),
        ] {
            match (Timetable::of(text).check_consistency(), message) {
                (Ok(()), None) => {}
                (Err(why), Some(message)) => assert!(why.contains(message), "{text}: {why}"),
                (other, _) => panic!("{text}: {other:?}"),
            }
        }
        assert!(
            Timetable::of("ACTIVITIES_ITERATIONS=1")
                .unused_setting_warning()
                .is_some_and(|text| text.contains("PROFILE_START"))
        );
        assert!(
            Timetable::of("PROFILE_START_ITERATION=1")
                .unused_setting_warning()
                .is_some_and(|text| text.contains("_ITERATIONS"))
        );
        assert!(Timetable::of("PROFILE_START_ITERATION=1 ACTIVITIES_ITERATIONS=1").unused_setting_warning().is_none());
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn window_request_can_be_parsed() {
        let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let asked = |text: &str| ParsedRequest::parse(&Timetable::of(text).request_text(start)).unwrap();
        let window = asked("ACTIVITIES_DURATION_MSECS=70 ACTIVITIES_WARMUP_PERIOD_SECS=2 START_DELAY_MS=9");
        let start = Duration::from_millis(u64::try_from(start.as_millis()).unwrap());
        assert_eq!((window.start, window.duration), (Some(start), Duration::from_millis(70)));
        assert_eq!((window.warmup, window.warnings.len()), (Some(Duration::from_secs(2)), 0));
        assert_eq!(asked("START_DELAY_MS=9").duration, Timetable::FOREVER);
        let iterations = asked("ACTIVITIES_ITERATIONS=3 PROFILE_START_ITERATION=8 PROFILE_START_ITERATION_ROUNDUP=4");
        assert_eq!((iterations.iterations, iterations.start_iteration, iterations.roundup), (3, Some(8), Some(4)));
        assert_eq!(iterations.start, None);
    }
}
