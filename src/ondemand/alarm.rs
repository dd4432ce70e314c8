//! Requests that the program's own configuration schedules.

use super::request::WARMUP;
use super::source::{Incoming, RequestSource};
use crate::config::Timetable;
use crate::diag::diag;
use crate::handler::numbered_path;
use crate::wait::wall;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::time::{Duration, Instant, UNIX_EPOCH};

/// Delivers the windows of a timetable, each early enough to prepare collectors before it begins.
#[derive(Debug)]
pub(super) struct Alarm {
    timetable: Timetable,
    /// The file of the trace; several windows number it.
    output: PathBuf,
    created: Instant,
    /// The index of the next window.
    next: u64,
    due: Instant,
}

/// The margin in addition to the warm-up.
const AHEAD: Duration = Duration::from_secs(1);
/// The wait when no window is left.
const NEVER: Duration = Duration::from_secs(3600);

impl Alarm {
    /// Creates the source; the timetable's delay begins at `now`.
    pub(super) fn new(timetable: Timetable, output: PathBuf, now: Instant) -> Alarm {
        Alarm { timetable, output, created: now, next: 0, due: now }
    }

    /// Returns when a window begins.
    fn window_start(&self, window: u64) -> Option<Instant> {
        self.timetable.window_start(window).and_then(|start| self.created.checked_add(start))
    }

    /// Skips windows that have passed while the process did not run.
    fn skip_missed(&mut self, now: Instant) {
        let first = self.next;
        while self.window_start(self.next + 1).is_some_and(|start| start <= now) {
            self.next += 1;
        }
        if self.next > first {
            diag!(
                Warning,
                "ondemand",
                "windows {} to {} were not recorded: the process did not run at their start; raise START_PERIOD_MS",
                first + 1,
                self.next
            );
        }
    }

    /// Returns the request for the next window, which begins `ahead` from now.
    fn build_request(&self, ahead: Duration) -> Incoming {
        let (number, is_numbered) = (self.next + 1, self.timetable.is_numbered());
        let wall = wall().duration_since(UNIX_EPOCH).unwrap_or_default();
        Incoming {
            text: self.timetable.request_text(wall + ahead),
            by: if is_numbered { format!("the configuration (window {number})") } else { "the configuration".into() },
            output: Some(if is_numbered { numbered_path(&self.output, number) } else { self.output.clone() }),
            answer: None,
        }
    }
}

impl RequestSource for Alarm {
    fn descriptor(&self) -> Option<RawFd> {
        None
    }

    fn poll_requests(&mut self, now: Instant, busy: bool) -> Vec<Incoming> {
        self.skip_missed(now);
        let Some(start) = self.window_start(self.next) else {
            self.due = now + NEVER;
            return Vec::new();
        };
        let ahead = self.timetable.warmup.unwrap_or(WARMUP) + AHEAD;
        // A session that is busy now may be free at the start.
        self.due = if busy { start } else { start.checked_sub(ahead).unwrap_or(now) };
        if now < self.due {
            return Vec::new();
        }
        let request = self.build_request(start.saturating_duration_since(now));
        self.next += 1;
        vec![request]
    }

    fn next_poll_time(&self) -> Instant {
        self.due
    }

    fn close(&mut self, _deadline: Instant) {
        if self.next == 0 {
            let delay = self.timetable.delay;
            diag!(
                Warning,
                "ondemand",
                "nothing was recorded: the program ends within the {delay:?} of START_DELAY_MS; lower it"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ParsedRequest;
    use std::time::SystemTime;

    fn alarm(text: &str) -> Alarm {
        Alarm::new(Timetable::of(text), "/x/a.pt.trace.json".into(), Instant::now())
    }

    impl Alarm {
        /// Waits for the next request; returns it with the milliseconds since the start.
        fn wait(&mut self, now: &mut Instant, busy: bool) -> Option<(u128, Incoming)> {
            for _ in 0..3 {
                if let Some(request) = self.poll_requests(*now, busy).pop() {
                    return Some((now.saturating_duration_since(self.created).as_millis(), request));
                }
                *now = (*now).max(self.next_poll_time());
            }
            None
        }

        fn times(&mut self, busy: bool) -> Vec<u128> {
            let mut now = self.created;
            std::iter::from_fn(|| self.wait(&mut now, busy)).take(4).map(|(time, _)| time).collect()
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn windows_are_delivered_ahead_of_their_starts() {
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
    fn window_waits_until_its_start_while_busy() {
        let often = "START_DELAY_MS=10000 START_PERIOD_MS=20000 ACTIVITIES_DURATION_MSECS=7 START_WINDOWS=2";
        assert_eq!(alarm(often).times(true), [10_000, 30_000]);
        assert_eq!(alarm("ACTIVITIES_DURATION_MSECS=7").times(true), [0]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn missed_windows_are_skipped() {
        let mut alarm = alarm("START_PERIOD_MS=1000 ACTIVITIES_DURATION_MSECS=7 START_WINDOWS=9");
        let mut now = alarm.created;
        let mut number = |now: &mut Instant| alarm.wait(now, true).map(|(time, request)| (time, request.by));
        assert_eq!(number(&mut now), Some((0, "the configuration (window 1)".to_owned())));
        now += Duration::from_millis(5300);
        assert_eq!(number(&mut now), Some((5300, "the configuration (window 6)".to_owned())));
        assert_eq!(number(&mut now), Some((6000, "the configuration (window 7)".to_owned())));
        now += Duration::from_secs(1_000_000);
        // The last window is delivered however late it is.
        assert_eq!(number(&mut now).map(|(_, by)| by), Some("the configuration (window 9)".to_owned()));
        assert_eq!(number(&mut now), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn request_has_the_window_start_and_its_file() {
        let wall = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let often = "START_DELAY_MS=10000 START_PERIOD_MS=20000 ACTIVITIES_DURATION_MSECS=7 START_WINDOWS=2";
        for (text, file) in [(often, "/x/a.1.pt.trace.json"), ("START_DELAY_MS=10000", "/x/a.pt.trace.json")] {
            let mut alarm = alarm(text);
            let (before, mut now) = (wall(), alarm.created);
            let (_, request) = alarm.wait(&mut now, false).unwrap();
            let start = ParsedRequest::parse(&request.text).unwrap().start.unwrap();
            // 4 s after the layer is built, 6 s before the start; in whole milliseconds.
            let range = before + Duration::from_millis(5999)..=wall() + Duration::from_secs(6);
            assert!(range.contains(&start), "{start:?} not in {range:?}");
            assert_eq!(request.output, Some(file.into()));
        }
    }
}
