//! Requests of the program's own configuration, whose time comes without anybody asking.

use super::request::WARMUP;
use super::source::{Incoming, RequestSource};
use crate::config::Timetable;
use crate::diag::diag;
use crate::handler::numbered;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Hands over the windows of a timetable, each so long ahead that collectors are prepared when it begins.
#[derive(Debug)]
pub(super) struct Alarm {
    timetable: Timetable,
    /// Where they go; several have numbers besides.
    output: PathBuf,
    made: Instant,
    /// Which window comes next, from 0.
    next: u64,
    due: Instant,
}

/// More than the warm-up, so that all of it is left.
const AHEAD: Duration = Duration::from_secs(1);
/// When something is due that never is.
const NEVER: Duration = Duration::from_secs(3600);

impl Alarm {
    /// The delay begins with `now`.
    pub(super) fn new(timetable: Timetable, output: PathBuf, now: Instant) -> Alarm {
        Alarm { timetable, output, made: now, next: 0, due: now }
    }

    /// Returns when a window begins.
    fn start(&self, window: u64) -> Option<Instant> {
        self.timetable.start(window).and_then(|start| self.made.checked_add(start))
    }

    /// Passes over windows that are over before they could be handed over, since the process did not run.
    fn pass_over(&mut self, now: Instant) {
        let first = self.next;
        while self.start(self.next + 1).is_some_and(|start| start <= now) {
            self.next += 1;
        }
        if self.next > first {
            diag!(Warning, "ondemand", "windows {} to {} have passed and are not recorded", first + 1, self.next);
        }
    }

    /// Returns the request for the next window, which begins `ahead` from now.
    fn request(&self, ahead: Duration) -> Incoming {
        let (number, is_numbered) = (self.next + 1, self.timetable.is_numbered());
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Incoming {
            text: self.timetable.request(wall + ahead),
            by: if is_numbered { format!("the configuration (window {number})") } else { "the configuration".into() },
            output: Some(if is_numbered { numbered(&self.output, number) } else { self.output.clone() }),
            answer: None,
        }
    }
}

impl RequestSource for Alarm {
    fn descriptor(&self) -> Option<RawFd> {
        None
    }

    fn turn(&mut self, now: Instant, busy: bool) -> Vec<Incoming> {
        self.pass_over(now);
        let Some(start) = self.start(self.next) else {
            self.due = now + NEVER;
            return Vec::new();
        };
        let ahead = self.timetable.warmup.unwrap_or(WARMUP) + AHEAD;
        // What is busy may be free at the start.
        self.due = if busy { start } else { start.checked_sub(ahead).unwrap_or(now) };
        if now < self.due {
            return Vec::new();
        }
        let request = self.request(start.saturating_duration_since(now));
        self.next += 1;
        vec![request]
    }

    fn due(&self) -> Instant {
        self.due
    }

    fn close(&mut self, _deadline: Instant) {
        if self.next == 0 {
            let delay = self.timetable.delay;
            diag!(Warning, "ondemand", "nothing was recorded: the program ends within the {delay:?} of START_DELAY_MS");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Asked;

    fn alarm(text: &str) -> Alarm {
        Alarm::new(Timetable::of(text), "/x/a.pt.trace.json".into(), Instant::now())
    }

    impl Alarm {
        /// Hands over the next request as soon as it does; returns after how many milliseconds, and what.
        fn wait(&mut self, now: &mut Instant, busy: bool) -> Option<(u128, Incoming)> {
            for _ in 0..3 {
                if let Some(request) = self.turn(*now, busy).pop() {
                    return Some((now.saturating_duration_since(self.made).as_millis(), request));
                }
                *now = (*now).max(self.due());
            }
            None
        }

        fn times(&mut self, busy: bool) -> Vec<u128> {
            let mut now = self.made;
            std::iter::from_fn(|| self.wait(&mut now, busy)).take(4).map(|(time, _)| time).collect()
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn windows_are_handed_over_ahead_of_their_starts() {
        assert_eq!(alarm("START_DELAY_MS=10000").times(false), [4000]);
        assert_eq!(alarm("START_DELAY_MS=3000").times(false), [0]);
        assert_eq!(alarm("START_DELAY_MS=3000 ACTIVITIES_WARMUP_PERIOD_SECS=0").times(false), [2000]);
        assert_eq!(alarm("ACTIVITIES_DURATION_MSECS=7").times(false), [0]);
        assert_eq!(alarm("ACTIVITIES_ITERATIONS=7 PROFILE_START_ITERATION=0").times(false), [0]);
        let often = "START_DELAY_MS=10000 START_PERIOD_MS=20000 ACTIVITIES_DURATION_MSECS=7";
        assert_eq!(alarm(often).times(false), [4000, 24_000, 44_000, 64_000]);
        assert_eq!(alarm(&format!("{often} START_WINDOWS=2")).times(false), [4000, 24_000]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn what_is_busy_is_left_alone_until_the_start() {
        let often = "START_DELAY_MS=10000 START_PERIOD_MS=20000 ACTIVITIES_DURATION_MSECS=7 START_WINDOWS=2";
        assert_eq!(alarm(often).times(true), [10_000, 30_000]);
        assert_eq!(alarm("ACTIVITIES_DURATION_MSECS=7").times(true), [0]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn windows_that_have_passed_are_not_made_up_for() {
        let mut alarm = alarm("START_PERIOD_MS=1000 ACTIVITIES_DURATION_MSECS=7 START_WINDOWS=9");
        let mut now = alarm.made;
        let mut number = |now: &mut Instant| alarm.wait(now, true).map(|(time, request)| (time, request.by));
        assert_eq!(number(&mut now), Some((0, "the configuration (window 1)".to_owned())));
        now += Duration::from_millis(5300);
        assert_eq!(number(&mut now), Some((5300, "the configuration (window 6)".to_owned())));
        assert_eq!(number(&mut now), Some((6000, "the configuration (window 7)".to_owned())));
        now += Duration::from_secs(1_000_000);
        // The last one is no older than any that has yet to come.
        assert_eq!(number(&mut now).map(|(_, by)| by), Some("the configuration (window 9)".to_owned()));
        assert_eq!(number(&mut now), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn a_request_says_when_the_window_begins_and_where_its_file_goes() {
        let wall = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let often = "START_DELAY_MS=10000 START_PERIOD_MS=20000 ACTIVITIES_DURATION_MSECS=7 START_WINDOWS=2";
        for (text, file) in [(often, "/x/a.1.pt.trace.json"), ("START_DELAY_MS=10000", "/x/a.pt.trace.json")] {
            let mut alarm = alarm(text);
            let (before, mut now) = (wall(), alarm.made);
            let (_, request) = alarm.wait(&mut now, false).unwrap();
            let start = Asked::parse(&request.text).unwrap().start.unwrap();
            // 4 s after the layer is made, 6 s before the start; in whole milliseconds.
            let range = before + Duration::from_millis(5999)..=wall() + Duration::from_secs(6);
            assert!(range.contains(&start), "{start:?} not in {range:?}");
            assert_eq!(request.output, Some(file.into()));
        }
    }
}
