//! When a request begins and ends, once it is known when it came.

use super::machine::Moment;
use super::request::When;
use std::time::{Duration, Instant, UNIX_EPOCH};

/// When collectors begin, and when the recording does.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    warm: Point,
    start: Point,
    length: Length,
    /// When an iteration is no longer waited for.
    expires: Instant,
    /// How late it was already when it came.
    pub(super) late: Duration,
    /// It was to be for iterations, and the program counts none.
    pub(super) is_by_time_instead: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    Time(Instant),
    Iteration(u64),
}

#[derive(Clone, Copy, Debug)]
enum Length {
    Time(Duration),
    Iterations(u64),
}

/// When a recording that goes on ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Until {
    point: Point,
    /// In any case.
    longest: Instant,
}

/// A start that has passed by more is not made up for.
const LATE: Duration = Duration::from_secs(10);
/// Collectors begin so many iterations before the start, so that loading their libraries holds nobody up.
const LEAD: u64 = 10;

impl Plan {
    /// Plans a request that has come at `moment`.
    ///
    /// # Errors
    /// Why it comes too late.
    pub(super) fn new(when: &When, moment: &Moment, longest: Duration) -> Result<Plan, String> {
        match (*when, moment.iteration) {
            (When::Iterations { or: Some(or), .. }, None) => {
                let plan = Plan::by_time(None, Duration::ZERO, or, moment)?;
                Ok(Plan { is_by_time_instead: true, ..plan })
            }
            (When::Iterations { start, roundup, warmup, count, .. }, current) => {
                let start = first(current.unwrap_or(0), start, roundup, warmup);
                Ok(Plan {
                    warm: Point::Iteration(start.saturating_sub(warmup.max(LEAD))),
                    start: Point::Iteration(start),
                    length: Length::Iterations(count),
                    expires: moment.now + longest,
                    late: Duration::ZERO,
                    is_by_time_instead: false,
                })
            }
            (When::Time { start, warmup, length }, _) => Plan::by_time(start, warmup, length, moment),
        }
    }

    fn by_time(start: Option<Duration>, warmup: Duration, length: Duration, moment: &Moment) -> Result<Plan, String> {
        let wall = moment.wall.duration_since(UNIX_EPOCH).unwrap_or_default();
        let ahead = start.map_or(warmup, |start| start.saturating_sub(wall));
        let late = start.map_or(Duration::ZERO, |start| wall.saturating_sub(start));
        if late > LATE {
            return Err(format!("its start time passed {:.1} s ago", late.as_secs_f64()));
        }
        let start = moment.now + ahead;
        // As much of the warm-up as is left.
        let warm = moment.now + ahead.saturating_sub(warmup);
        let (warm, start) = (Point::Time(warm), Point::Time(start));
        let expires = moment.now + ahead + LATE;
        Ok(Plan { warm, start, length: Length::Time(length), expires, late, is_by_time_instead: false })
    }

    pub(super) fn is_warm(&self, moment: &Moment) -> bool {
        self.warm.is_reached(moment)
    }

    /// Whether the recording is to begin: of iterations, with a whole one.
    pub(super) fn is_due(&self, moment: &Moment) -> bool {
        self.start.is_reached(moment) && (moment.begins || self.start_iteration().is_none())
    }

    /// Whether the iteration has been waited for long enough.
    pub(super) fn is_expired(&self, moment: &Moment) -> bool {
        matches!(self.start, Point::Iteration(_)) && !self.is_due(moment) && moment.now >= self.expires
    }

    pub(super) fn why_expired(&self) -> String {
        match self.start {
            Point::Iteration(number) => format!("the program has not come to iteration {number} in an hour"),
            Point::Time(_) => "its time has passed".to_owned(),
        }
    }

    /// Returns when a recording ends that begins now.
    pub(super) fn until(&self, moment: &Moment, longest: Duration) -> Until {
        let longest = moment.now + longest;
        let point = match self.length {
            Length::Time(length) => Point::Time(moment.now + length),
            Length::Iterations(count) => {
                let planned = match self.start {
                    Point::Iteration(start) => start,
                    Point::Time(_) => 0,
                };
                Point::Iteration(moment.iteration.unwrap_or(0).max(planned) + count)
            }
        };
        Until { point, longest }
    }

    /// The same, of a recording that has begun only now.
    pub(super) fn until_from(&self, now: Instant, until: Until) -> Until {
        match self.length {
            Length::Time(length) => Until { point: Point::Time(now + length), ..until },
            Length::Iterations(_) => until,
        }
    }

    pub(super) fn warm_at(&self) -> Instant {
        self.warm.at(self.expires)
    }

    pub(super) fn start_at(&self) -> Instant {
        self.start.at(self.expires)
    }

    pub(super) fn warm_iteration(&self) -> Option<u64> {
        self.warm.iteration()
    }

    pub(super) fn start_iteration(&self) -> Option<u64> {
        self.start.iteration()
    }

    /// How long ago it should have begun.
    pub(super) fn lateness(&self, now: Instant) -> Duration {
        match self.start {
            Point::Time(start) => self.late + now.saturating_duration_since(start),
            Point::Iteration(_) => Duration::ZERO,
        }
    }
}

impl Until {
    pub(super) fn is_over(&self, moment: &Moment) -> bool {
        self.point.is_reached(moment)
    }

    /// Iterations that do not come are not waited for beyond that.
    pub(super) fn is_too_long(&self, moment: &Moment) -> bool {
        moment.now >= self.longest
    }

    pub(super) fn at(&self) -> Instant {
        self.point.at(self.longest)
    }

    pub(super) fn iteration(&self) -> Option<u64> {
        self.point.iteration()
    }
}

impl Point {
    fn is_reached(self, moment: &Moment) -> bool {
        match self {
            Point::Time(at) => moment.now >= at,
            Point::Iteration(number) => moment.iteration.unwrap_or(0) >= number,
        }
    }

    fn at(self, otherwise: Instant) -> Instant {
        if let Point::Time(at) = self { at } else { otherwise }
    }

    fn iteration(self) -> Option<u64> {
        if let Point::Iteration(number) = self { Some(number) } else { None }
    }
}

/// The iteration with which a recording begins: the one that was named, if that is far enough ahead, else the next
/// multiple.
///
/// The one that the program is in has begun already.
fn first(current: u64, named: u64, roundup: u64, warmup: u64) -> u64 {
    let earliest = current + 1 + warmup;
    if named >= earliest { named } else { earliest.next_multiple_of(roundup.max(1)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_recording_begins_with_a_whole_iteration() {
        for (current, named, roundup, warmup, expected) in [
            (157, 0, 10, 0, 160),
            (159, 0, 10, 0, 160),
            (160, 0, 10, 0, 170),
            (157, 0, 10, 5, 170),
            (0, 0, 1, 0, 1),
            (7, 0, 1, 0, 8),
            (7, 9, 1, 0, 9),
            (7, 9, 100, 0, 9),
            (7, 9, 100, 3, 100),
            (7, 0, 1000, 0, 1000),
        ] {
            assert_eq!(first(current, named, roundup, warmup), expected, "{current} {named} {roundup} {warmup}");
        }
    }

    proptest! {
        #[test]
        fn processes_in_step_begin_together(
            current in 0u64..5000, behind in 0u64..3, roundup in 1u64..2000, warmup in 0u64..50
        ) {
            let one = first(current, 0, roundup, warmup);
            prop_assert!(one > current + warmup && one.is_multiple_of(roundup));
            let other = first(current.saturating_sub(behind), 0, roundup, warmup);
            prop_assert!(other == one || other + roundup == one || behind >= roundup);
        }
    }
}
