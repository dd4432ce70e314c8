//! When a request begins and ends, once it is known when it came.

use super::machine::Moment;
use super::request::When;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// When collectors begin, and when the recording does.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    warm: Point,
    start: Point,
    length: Length,
    /// When the start is no longer waited for.
    expires: Instant,
    /// It was to be for iterations, and the program counts none.
    pub(super) is_by_time_instead: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    Time(Instant),
    /// Since the Unix epoch: a clock that may be set meanwhile.
    Clock(Duration),
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
/// Records are made so long before a time that was said. They are cut off; so a thread that is woken late begins in time.
const AHEAD: Duration = Duration::from_millis(50);

impl Plan {
    /// Plans a request that has come at `moment`; nothing is waited for longer than `longest`.
    ///
    /// # Errors
    /// Why it comes too late.
    pub(super) fn new(when: &When, moment: &Moment, longest: Duration) -> Result<Plan, String> {
        let expires = moment.now + longest;
        match (*when, moment.iteration) {
            (When::Iterations { or: Some(or), .. }, None) => {
                let (warm, start) = (Point::Time(moment.now), Point::Time(moment.now));
                Ok(Plan { warm, start, length: Length::Time(or), expires, is_by_time_instead: true })
            }
            (When::Iterations { start, roundup, warmup, count, .. }, current) => {
                let start = first(current.unwrap_or(0), start, roundup, warmup);
                Ok(Plan {
                    warm: Point::Iteration(start.saturating_sub(warmup.max(LEAD))),
                    start: Point::Iteration(start),
                    length: Length::Iterations(count),
                    expires,
                    is_by_time_instead: false,
                })
            }
            (When::Time { start, warmup, length }, _) => {
                let (warm, start) = match start {
                    Some(at) => {
                        too_late(at, moment).map_or(Ok(()), Err)?;
                        (Point::Clock(at.saturating_sub(warmup.max(AHEAD))), Point::Clock(at))
                    }
                    None => (Point::Time(moment.now), Point::Time(moment.now + warmup)),
                };
                let (length, expires) = (Length::Time(length), expires + LATE);
                Ok(Plan { warm, start, length, expires, is_by_time_instead: false })
            }
        }
    }

    /// Whether collectors are to begin: so long before the start, or now if less is left.
    pub(super) fn is_warm(&self, moment: &Moment) -> bool {
        self.warm.is_reached(moment)
    }

    /// Whether the recording is to begin: of iterations, with a whole one.
    pub(super) fn is_due(&self, moment: &Moment) -> bool {
        match self.start {
            Point::Clock(at) => moment.since_epoch() + AHEAD >= at,
            Point::Iteration(_) => moment.begins && self.start.is_reached(moment),
            Point::Time(_) => self.start.is_reached(moment),
        }
    }

    /// Says why the start is no longer waited for, if it is not.
    pub(super) fn why_expired(&self, moment: &Moment) -> Option<String> {
        let is_over = !self.is_due(moment) && moment.now >= self.expires;
        match self.start {
            Point::Clock(at) => too_late(at, moment)
                .or_else(|| is_over.then(|| "the clock was set back, and its start time is too far ahead".to_owned())),
            Point::Iteration(number) => {
                is_over.then(|| format!("the program has not come to iteration {number} in time"))
            }
            Point::Time(_) => None,
        }
    }

    /// How long it is until the time that was said, if one was.
    pub(super) fn ahead(&self, moment: &Moment) -> Duration {
        if let Point::Clock(at) = self.start { at.saturating_sub(moment.since_epoch()) } else { Duration::ZERO }
    }

    /// How long ago it should have begun by the time that was said.
    pub(super) fn lateness(&self, moment: &Moment) -> Duration {
        if let Point::Clock(at) = self.start { moment.since_epoch().saturating_sub(at) } else { Duration::ZERO }
    }

    /// Returns the times between which the recording is to lie, if they were said.
    pub(super) fn between(&self) -> Option<(SystemTime, SystemTime)> {
        match (self.start, self.length) {
            (Point::Clock(at), Length::Time(length)) => Some((UNIX_EPOCH + at, UNIX_EPOCH + at + length)),
            _ => None,
        }
    }

    /// Returns when a recording ends that begins now.
    pub(super) fn until(&self, moment: &Moment, longest: Duration) -> Until {
        let from = moment.now + self.ahead(moment);
        let point = match self.length {
            Length::Time(length) => Point::Time(from + length),
            Length::Iterations(count) => {
                let planned = self.start_iteration().unwrap_or(0);
                Point::Iteration(moment.iteration.unwrap_or(0).max(planned) + count)
            }
        };
        Until { point, longest: from + longest }
    }

    pub(super) fn warm_at(&self, moment: &Moment) -> Instant {
        self.warm.at(moment, self.expires)
    }

    pub(super) fn start_at(&self, moment: &Moment) -> Instant {
        let begins =
            if let Point::Clock(at) = self.start { Point::Clock(at.saturating_sub(AHEAD)) } else { self.start };
        begins.at(moment, self.expires)
    }

    pub(super) fn warm_iteration(&self) -> Option<u64> {
        self.warm.iteration()
    }

    pub(super) fn start_iteration(&self) -> Option<u64> {
        self.start.iteration()
    }
}

impl Until {
    /// Whether the recording is to end: of iterations, by the thread that counts them, which waits for that.
    pub(super) fn is_over(&self, moment: &Moment) -> bool {
        let is_waited_for = moment.begins || self.iteration().is_none();
        is_waited_for && self.point.is_reached(moment)
    }

    /// Iterations that do not come are not waited for beyond that.
    pub(super) fn is_too_long(&self, moment: &Moment) -> bool {
        moment.now >= self.longest
    }

    pub(super) fn at(&self, moment: &Moment) -> Instant {
        self.point.at(moment, self.longest)
    }

    pub(super) fn iteration(&self) -> Option<u64> {
        self.point.iteration()
    }
}

impl Point {
    fn is_reached(self, moment: &Moment) -> bool {
        match self {
            Point::Time(at) => moment.now >= at,
            Point::Clock(at) => moment.since_epoch() >= at,
            Point::Iteration(number) => moment.iteration.unwrap_or(0) >= number,
        }
    }

    fn at(self, moment: &Moment, otherwise: Instant) -> Instant {
        match self {
            Point::Time(at) => at,
            Point::Clock(at) => moment.now + at.saturating_sub(moment.since_epoch()),
            Point::Iteration(_) => otherwise,
        }
    }

    fn iteration(self) -> Option<u64> {
        if let Point::Iteration(number) = self { Some(number) } else { None }
    }
}

/// Says that a start has passed by so much that it is not made up for, if it has.
fn too_late(at: Duration, moment: &Moment) -> Option<String> {
    let late = moment.since_epoch().saturating_sub(at);
    (late > LATE).then(|| format!("its start time passed {:.1} s ago", late.as_secs_f64()))
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
