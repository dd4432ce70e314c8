//! The clock of a collector's records against CLOCK_REALTIME.

use crate::os::platform;
use crate::time::Timestamp;

/// A reading of a collector's clock between two of CLOCK_REALTIME, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BracketedReading {
    before: u64,
    theirs: u64,
    after: u64,
}

/// Turns the times of a collector's records into nanoseconds since the Unix epoch.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClockMap {
    /// Times on their clock, with what is to be added; empty if their clock is CLOCK_REALTIME.
    points: Vec<(u64, i64)>,
    error_ns: u64,
}

impl BracketedReading {
    /// Reads a clock a few times and keeps the tightest bracket; `None` if it cannot be read.
    pub(crate) fn take(clock: impl Fn() -> Option<u64>) -> Option<BracketedReading> {
        const TRIES: usize = 5;
        let reading = |_| {
            let before = now();
            let theirs = clock()?;
            Some(BracketedReading { before, theirs, after: now() })
        };
        (0..TRIES).filter_map(reading).min_by_key(BracketedReading::width)
    }

    /// A reading that somebody else has taken: when `theirs` was on the host's clock, to within that many nanoseconds.
    pub(super) fn new(theirs: u64, host: u64, deviation_ns: u64) -> BracketedReading {
        BracketedReading { before: host.saturating_sub(deviation_ns), theirs, after: host.saturating_add(deviation_ns) }
    }

    fn width(&self) -> u64 {
        self.after.saturating_sub(self.before)
    }

    /// Whether their clock may be CLOCK_REALTIME.
    fn agrees(&self) -> bool {
        self.before <= self.theirs && self.theirs <= self.after
    }
}

/// Reads CLOCK_REALTIME.
pub(super) fn now() -> u64 {
    let now = platform::unix_time();
    now.as_secs() * 1_000_000_000 + u64::from(now.subsec_nanos())
}

/// Returns a time on a clock that says `theirs` now; the same if that cannot be read.
pub(super) fn on_their_clock(time: Timestamp, theirs: Option<u64>) -> u64 {
    time.as_nanos().wrapping_add(theirs.map_or(0, |theirs| theirs.wrapping_sub(now())))
}

impl ClockMap {
    /// Makes the map of a recording's readings: none at all if each lies within its bracket, else straight lines from
    /// each to the next.
    pub(crate) fn new(readings: &[BracketedReading]) -> ClockMap {
        let error_ns = readings.iter().map(BracketedReading::width).max().unwrap_or(0);
        if readings.iter().all(BracketedReading::agrees) {
            return ClockMap { points: Vec::new(), error_ns };
        }
        let point = |reading: &BracketedReading| {
            let middle = reading.before + reading.width() / 2;
            (reading.theirs, middle.cast_signed().wrapping_sub(reading.theirs.cast_signed()))
        };
        let mut points: Vec<_> = readings.iter().map(point).collect();
        points.sort_unstable();
        points.dedup_by_key(|point| point.0);
        ClockMap { points, error_ns: error_ns / 2 + 1 }
    }

    /// Returns how far a time may be from CLOCK_REALTIME while their clock runs evenly, in nanoseconds.
    pub(crate) fn error_ns(&self) -> u64 {
        self.error_ns
    }

    /// Returns how far a time may be from CLOCK_REALTIME, in nanoseconds: where between two readings their clock has
    /// changed its distance is not known.
    pub(crate) fn error_at_most_ns(&self) -> u64 {
        let changes = self.points.windows(2).filter_map(|pair| Some(pair.last()?.1.abs_diff(pair.first()?.1)));
        self.error_ns.saturating_add(changes.max().unwrap_or(0))
    }

    /// Returns the largest difference that was found, in nanoseconds.
    pub(crate) fn offset_ns(&self) -> i64 {
        self.points.iter().map(|point| point.1).max_by_key(|offset| offset.unsigned_abs()).unwrap_or(0)
    }

    /// Returns when that was.
    #[inline]
    pub(crate) fn timestamp(&self, theirs: u64) -> Timestamp {
        if self.points.is_empty() { Timestamp::from_nanos(theirs) } else { self.converted(theirs) }
    }

    fn converted(&self, theirs: u64) -> Timestamp {
        let after = self.points.partition_point(|point| point.0 <= theirs);
        let before = after.checked_sub(1).and_then(|before| self.points.get(before));
        let offset = match (before, self.points.get(after)) {
            (Some((from, low)), Some((to, high))) => {
                let (passed, length) = (i128::from(theirs - from), i128::from(to - from));
                // Times of a broken clock may be further apart than the product has bits.
                let change = (i128::from(*high) - i128::from(*low)).saturating_mul(passed) / length;
                low.saturating_add(i64::try_from(change).unwrap_or(0))
            }
            (Some((_, offset)), None) | (None, Some((_, offset))) => *offset,
            (None, None) => 0,
        };
        Timestamp::from_nanos(theirs.saturating_add_signed(offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(before: u64, theirs: u64, after: u64) -> BracketedReading {
        BracketedReading { before, theirs, after }
    }

    fn at(map: &ClockMap, theirs: u64) -> u64 {
        map.timestamp(theirs).as_nanos()
    }

    #[test]
    fn a_clock_within_its_brackets_is_left_alone() {
        let map = ClockMap::new(&[reading(100, 105, 110), reading(1000, 1000, 1040)]);
        assert_eq!((at(&map, 7), map.error_ns(), map.offset_ns()), (7, 40, 0));
        assert_eq!(at(&ClockMap::new(&[]), 7), 7);
    }

    #[test]
    fn another_clock_is_followed_from_reading_to_reading() {
        let map = ClockMap::new(&[reading(10_000, 0, 10_000), reading(20_000, 10_100, 20_000)]);
        assert_eq!((at(&map, 0), at(&map, 5050), at(&map, 10_100), at(&map, 20_100)), (10_000, 15_000, 20_000, 30_000));
        assert_eq!((map.error_ns(), map.error_at_most_ns()), (1, 101), "it lost 100 ns somewhere");
        let ahead = ClockMap::new(&[reading(1000, 5000, 1010)]);
        assert_eq!((at(&ahead, 5000), at(&ahead, 100), ahead.offset_ns()), (1005, 0, -3995));
    }

    #[test]
    fn a_broken_clock_does_no_harm() {
        let map = ClockMap::new(&[reading(u64::MAX, 0, u64::MAX), reading(0, u64::MAX, 0)]);
        for theirs in [0, 1, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
            let _ = at(&map, theirs);
        }
        assert!(map.error_at_most_ns() > 0);
    }

    #[test]
    fn the_real_clock_is_found_to_be_the_real_clock() {
        let readings =
            [BracketedReading::take(|| Some(now())).unwrap(), BracketedReading::take(|| Some(now())).unwrap()];
        assert_eq!(ClockMap::new(&readings).offset_ns(), 0);
        assert!(BracketedReading::take(|| None).is_none());
    }
}
