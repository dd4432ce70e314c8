//! The times at which a request begins and ends.

use super::machine::ClockReading;
use super::request::Request;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// When the collectors and the recording begin.
#[derive(Clone, Debug)]
pub(super) struct RequestPlan {
    warm: Point,
    start: Point,
    /// If the start is an iteration that was missed: the recording begins with the next multiple of this.
    roundup: u64,
    length: Length,
    /// When the request expires if it could not start.
    expires: Instant,
    /// Whether it requests iterations, but the program counts none.
    pub(super) falls_back_to_time: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    Time(Instant),
    /// A start time that the program's own configuration gives.
    Own(Instant),
    /// A wall clock time since the Unix epoch; that clock may be set meanwhile.
    Clock(Duration),
    Iteration(u64),
}

#[derive(Clone, Copy, Debug)]
enum Length {
    Time(Duration),
    Iterations(u64),
}

/// When a running recording ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestEnd {
    point: Point,
    /// The latest end in any case.
    deadline: Instant,
}

/// The most that a request's start time may have passed; later requests are refused.
const LATE: Duration = Duration::from_secs(10);
/// Collectors begin that many iterations before the start, so that loading their libraries delays no step.
const LEAD: u64 = 10;
/// Recording begins that long before a given start time, in case the thread is woken late; the trace is cut.
const AHEAD: Duration = Duration::from_millis(50);

impl RequestPlan {
    /// Plans a request that arrived at `moment`.
    ///
    /// # Errors
    /// If its start time has passed.
    pub(super) fn new(request: &Request, moment: &ClockReading) -> Result<RequestPlan, String> {
        let (asked, expires) = (&request.asked, moment.now + request.longest);
        let roundup = asked.roundup.unwrap_or(1).max(1);
        match (request.start_iteration(), moment.iteration) {
            (Some(_), None) if !request.is_own => {
                let (now, length) = (Point::Time(moment.now), Length::Time(asked.duration));
                Ok(RequestPlan { warm: now, start: now, roundup, length, expires, falls_back_to_time: true })
            }
            (Some(named), current) => {
                let warmup = asked.warmup_iterations;
                let start = first_iteration(current.unwrap_or(0), named, roundup, warmup);
                Ok(RequestPlan {
                    warm: Point::Iteration(warm_iteration(start, warmup)),
                    start: Point::Iteration(start),
                    roundup,
                    length: Length::Iterations(asked.iterations),
                    expires,
                    falls_back_to_time: false,
                })
            }
            (None, _) => {
                let warmup = request.warmup();
                let start = request.start.unwrap_or(Point::Time(moment.now + warmup));
                let warm = match start {
                    Point::Clock(at) => Point::Clock(at.saturating_sub(warmup.max(AHEAD))),
                    Point::Own(at) => Point::Time(at.checked_sub(warmup.max(AHEAD)).unwrap_or(moment.now)),
                    Point::Time(_) | Point::Iteration(_) => Point::Time(moment.now),
                };
                let (length, expires) = (Length::Time(request.length()), expires + LATE);
                let plan = RequestPlan { warm, start, roundup, length, expires, falls_back_to_time: false };
                plan.why_too_late(moment).map_or(Ok(plan), Err)
            }
        }
    }

    /// Returns whether the collectors must begin: the warm-up before the start, or now if less time is left.
    pub(super) fn is_warm(&self, moment: &ClockReading) -> bool {
        self.warm.is_reached(moment)
    }

    /// Returns whether the recording must begin; a recording by iterations begins with a whole iteration, and if it missed the planned
    /// one, with a later round one: the processes of a job record the same.
    pub(super) fn is_due(&self, moment: &ClockReading) -> bool {
        match self.start {
            Point::Clock(at) => moment.since_epoch() + AHEAD >= at,
            Point::Iteration(planned) => {
                let at = moment.iteration.unwrap_or(0);
                moment.begins && (at == planned || at > planned && at.is_multiple_of(self.roundup))
            }
            Point::Time(_) | Point::Own(_) => self.start.is_reached(moment),
        }
    }

    /// Returns why the request has expired, if it has.
    pub(super) fn why_expired(&self, moment: &ClockReading) -> Option<String> {
        let is_over = !self.is_due(moment) && moment.now >= self.expires;
        match self.start {
            Point::Clock(_) => self.why_too_late(moment).or_else(|| {
                is_over.then(|| "the clock was set back, and its start time is too far ahead; send it again".to_owned())
            }),
            Point::Iteration(number) => {
                is_over.then(|| format!("the program did not reach iteration {number} in time; name an earlier one"))
            }
            Point::Own(_) => self.why_too_late(moment),
            Point::Time(_) => None,
        }
    }

    /// Returns the reason to refuse a request whose start time passed too long ago.
    fn why_too_late(&self, moment: &ClockReading) -> Option<String> {
        let late = self.lateness(moment);
        (late > LATE).then(|| format!("its start time passed {:.1} s ago; name a later one", late.as_secs_f64()))
    }

    /// Returns how long it is until the given start time; zero without one.
    pub(super) fn time_until_start(&self, moment: &ClockReading) -> Duration {
        self.start.time_left(moment)
    }

    /// Returns how late it is for the given start time; zero without one.
    pub(super) fn lateness(&self, moment: &ClockReading) -> Duration {
        match self.start {
            Point::Clock(at) => moment.since_epoch().saturating_sub(at),
            Point::Own(at) => moment.now.saturating_duration_since(at),
            Point::Time(_) | Point::Iteration(_) => Duration::ZERO,
        }
    }

    /// Returns the times that the trace is cut to, if the request gives them.
    pub(super) fn cut_times(&self) -> Option<(SystemTime, SystemTime)> {
        match (self.start, self.length) {
            (Point::Clock(at), Length::Time(length)) => Some((UNIX_EPOCH + at, UNIX_EPOCH + at + length)),
            _ => None,
        }
    }

    /// Returns when a recording ends that begins now.
    pub(super) fn end_condition(&self, moment: &ClockReading, longest: Duration) -> RequestEnd {
        let from = moment.now + self.time_until_start(moment);
        let point = match self.length {
            Length::Time(length) => Point::Time(from + length),
            Length::Iterations(count) => {
                let planned = self.start_iteration().unwrap_or(0);
                Point::Iteration(moment.iteration.unwrap_or(0).max(planned) + count)
            }
        };
        RequestEnd { point, deadline: from + longest }
    }

    pub(super) fn warm_at(&self, moment: &ClockReading) -> Instant {
        self.warm.time_or(moment, self.expires)
    }

    pub(super) fn start_at(&self, moment: &ClockReading) -> Instant {
        let begins =
            if let Point::Clock(at) = self.start { Point::Clock(at.saturating_sub(AHEAD)) } else { self.start };
        begins.time_or(moment, self.expires)
    }

    pub(super) fn warm_iteration(&self) -> Option<u64> {
        self.warm.iteration()
    }

    pub(super) fn start_iteration(&self) -> Option<u64> {
        self.start.iteration()
    }
}

impl RequestEnd {
    /// Returns whether the recording must end. The thread that counts iterations ends a recording by iterations, and waits
    /// for it.
    pub(super) fn is_over(&self, moment: &ClockReading) -> bool {
        let is_waited_for = moment.begins || self.end_iteration().is_none();
        is_waited_for && self.point.is_reached(moment)
    }

    /// Returns whether the recording has reached its longest duration.
    pub(super) fn is_too_long(&self, moment: &ClockReading) -> bool {
        moment.now >= self.deadline
    }

    pub(super) fn end_time(&self, moment: &ClockReading) -> Instant {
        self.point.time_or(moment, self.deadline)
    }

    pub(super) fn end_iteration(&self) -> Option<u64> {
        self.point.iteration()
    }
}

impl Point {
    /// Returns how long it is until a given start time; zero for another point.
    pub(super) fn time_left(self, moment: &ClockReading) -> Duration {
        match self {
            Point::Clock(at) => at.saturating_sub(moment.since_epoch()),
            Point::Own(at) => at.saturating_duration_since(moment.now),
            Point::Time(_) | Point::Iteration(_) => Duration::ZERO,
        }
    }

    fn is_reached(self, moment: &ClockReading) -> bool {
        match self {
            Point::Time(at) | Point::Own(at) => moment.now >= at,
            Point::Clock(at) => moment.since_epoch() >= at,
            Point::Iteration(number) => moment.iteration.unwrap_or(0) >= number,
        }
    }

    fn time_or(self, moment: &ClockReading, otherwise: Instant) -> Instant {
        match self {
            Point::Time(at) | Point::Own(at) => at,
            Point::Clock(at) => moment.now + at.saturating_sub(moment.since_epoch()),
            Point::Iteration(_) => otherwise,
        }
    }

    fn iteration(self) -> Option<u64> {
        if let Point::Iteration(number) = self { Some(number) } else { None }
    }
}

/// Returns the iteration from which the collectors of a recording start.
fn warm_iteration(start: u64, warmup: u64) -> u64 {
    start.saturating_sub(warmup.max(LEAD))
}

/// Returns the iteration with which a recording begins: the named one, if it is far enough ahead, else the next multiple.
///
/// The current iteration has begun already.
fn first_iteration(current: u64, named: u64, roundup: u64, warmup: u64) -> u64 {
    let earliest = current + 1 + warmup;
    if named >= earliest { named } else { earliest.next_multiple_of(roundup) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn collectors_start_a_warm_up_ahead() {
        for (warmup, expected) in [(0, 90), (10, 90), (30, 70), (200, 0)] {
            assert_eq!(warm_iteration(100, warmup), expected, "{warmup}");
        }
    }

    #[test]
    fn recording_begins_with_a_whole_iteration() {
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
            assert_eq!(
                first_iteration(current, named, roundup, warmup),
                expected,
                "{current} {named} {roundup} {warmup}"
            );
        }
    }

    proptest! {
        #[test]
        fn processes_in_step_begin_together(
            current in 0u64..5000, behind in 0u64..3, roundup in 1u64..2000, warmup in 0u64..50
        ) {
            let one = first_iteration(current, 0, roundup, warmup);
            prop_assert!(one > current + warmup && one.is_multiple_of(roundup));
            let other = first_iteration(current.saturating_sub(behind), 0, roundup, warmup);
            prop_assert!(other == one || other + roundup == one || behind >= roundup);
        }
    }
}
