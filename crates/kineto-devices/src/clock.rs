//! The clock of a collector's records, compared with CLOCK_REALTIME.

use kineto_base::encoding::encoded_as;
use kineto_base::os::platform;
use kineto_base::sorting::sort_in_place_by;
use kineto_base::time::Timestamp;

/// A reading of a collector's clock between two of CLOCK_REALTIME, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BracketedReading {
    before: u64,
    vendor: u64,
    after: u64,
}

/// Converts timestamps of a collector's records into nanoseconds since the Unix epoch.
#[derive(Clone, Debug, Default)]
pub struct ClockMap {
    /// Timestamps on the vendor's clock, each with its offset; empty if that clock is CLOCK_REALTIME.
    points: Vec<(u64, i64)>,
    error_ns: u64,
}

encoded_as! {
    ClockMap as (Vec<(u64, i64)>, u64): |map| (map.points.clone(), map.error_ns), |(points, error_ns)| {
        points.is_sorted_by(|one, next| one.0 < next.0).then_some(ClockMap { points, error_ns })
    };
}

impl BracketedReading {
    /// Reads a clock a few times and keeps the tightest bracket; `None` if it cannot be read.
    pub(crate) fn read_clock(clock: impl Fn() -> Option<u64>) -> Option<BracketedReading> {
        const TRIES: usize = 5;
        let reading = |_| {
            let before = realtime_now();
            let vendor = clock()?;
            Some(BracketedReading { before, vendor, after: realtime_now() })
        };
        (0..TRIES).filter_map(reading).min_by_key(BracketedReading::bracket_width)
    }

    /// Makes a reading from a pair of timestamps that were taken together to within that many nanoseconds.
    pub(super) fn new(vendor: u64, host: u64, deviation_ns: u64) -> BracketedReading {
        BracketedReading { before: host.saturating_sub(deviation_ns), vendor, after: host.saturating_add(deviation_ns) }
    }

    fn bracket_width(&self) -> u64 {
        self.after.saturating_sub(self.before)
    }

    /// Returns whether the vendor's clock may be CLOCK_REALTIME.
    fn is_in_bracket(&self) -> bool {
        self.before <= self.vendor && self.vendor <= self.after
    }
}

/// Reads CLOCK_REALTIME.
pub(super) fn realtime_now() -> u64 {
    let now = platform::unix_time();
    now.as_secs() * 1_000_000_000 + u64::from(now.subsec_nanos())
}

/// Converts a time to a clock that reads `vendor` now; returns it unchanged if that clock cannot be read.
pub(super) fn to_vendor_clock(time: Timestamp, vendor: Option<u64>) -> u64 {
    time.as_nanos().wrapping_add(vendor.map_or(0, |vendor| vendor.wrapping_sub(realtime_now())))
}

impl ClockMap {
    /// Makes the map of a recording's readings. It is empty if each reading lies within its bracket; otherwise it
    /// interpolates between readings.
    pub(crate) fn new(readings: &[BracketedReading]) -> ClockMap {
        let error_ns = readings.iter().map(BracketedReading::bracket_width).max().unwrap_or(0);
        if readings.iter().all(BracketedReading::is_in_bracket) {
            return ClockMap { points: Vec::new(), error_ns };
        }
        let point = |reading: &BracketedReading| {
            let middle = reading.before + reading.bracket_width() / 2;
            (reading.vendor, middle.cast_signed().wrapping_sub(reading.vendor.cast_signed()))
        };
        let mut points: Vec<_> = readings.iter().map(point).collect();
        sort_in_place_by(&mut points, Ord::cmp);
        points.dedup_by_key(|point| point.0);
        ClockMap { points, error_ns: error_ns / 2 + 1 }
    }

    /// Returns the error of a converted timestamp while the vendor's clock runs evenly, in nanoseconds.
    pub fn error_ns(&self) -> u64 {
        self.error_ns
    }

    /// Returns the largest possible error of a timestamp, in nanoseconds: the offset may jump between two readings.
    pub fn error_at_most_ns(&self) -> u64 {
        let changes = self.points.windows(2).filter_map(|pair| Some(pair.last()?.1.abs_diff(pair.first()?.1)));
        self.error_ns.saturating_add(changes.max().unwrap_or(0))
    }

    /// Returns the largest offset found, in nanoseconds.
    pub fn offset_ns(&self) -> i64 {
        self.points.iter().map(|point| point.1).max_by_key(|offset| offset.unsigned_abs()).unwrap_or(0)
    }

    /// Returns the time on the host's clock.
    #[inline]
    pub fn timestamp_of(&self, vendor: u64) -> Timestamp {
        if self.points.is_empty() { Timestamp::from_nanos(vendor) } else { self.interpolate_timestamp(vendor) }
    }

    fn interpolate_timestamp(&self, vendor: u64) -> Timestamp {
        let after = self.points.partition_point(|point| point.0 <= vendor);
        let before = after.checked_sub(1).and_then(|before| self.points.get(before));
        let offset = match (before, self.points.get(after)) {
            (Some((from, low)), Some((to, high))) => {
                let (passed, length) = (i128::from(vendor - from), i128::from(to - from));
                // Timestamps of a broken clock may differ by more than the product can hold.
                let change = (i128::from(*high) - i128::from(*low)).saturating_mul(passed) / length;
                low.saturating_add(i64::try_from(change).unwrap_or(0))
            }
            (Some((_, offset)), None) | (None, Some((_, offset))) => *offset,
            (None, None) => 0,
        };
        Timestamp::from_nanos(vendor.saturating_add_signed(offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(before: u64, vendor: u64, after: u64) -> BracketedReading {
        BracketedReading { before, vendor, after }
    }

    fn at(map: &ClockMap, vendor: u64) -> u64 {
        map.timestamp_of(vendor).as_nanos()
    }

    #[test]
    fn clock_within_brackets_needs_no_conversion() {
        let map = ClockMap::new(&[reading(100, 105, 110), reading(1000, 1000, 1040)]);
        assert_eq!((at(&map, 7), map.error_ns(), map.offset_ns()), (7, 40, 0));
        assert_eq!(at(&ClockMap::new(&[]), 7), 7);
    }

    #[test]
    fn offset_is_interpolated_between_readings() {
        let map = ClockMap::new(&[reading(10_000, 0, 10_000), reading(20_000, 10_100, 20_000)]);
        assert_eq!((at(&map, 0), at(&map, 5050), at(&map, 10_100), at(&map, 20_100)), (10_000, 15_000, 20_000, 30_000));
        assert_eq!((map.error_ns(), map.error_at_most_ns()), (1, 101), "it lost 100 ns somewhere");
        let ahead = ClockMap::new(&[reading(1000, 5000, 1010)]);
        assert_eq!((at(&ahead, 5000), at(&ahead, 100), ahead.offset_ns()), (1005, 0, -3995));
    }

    #[test]
    fn broken_clock_does_not_overflow() {
        let map = ClockMap::new(&[reading(u64::MAX, 0, u64::MAX), reading(0, u64::MAX, 0)]);
        for vendor in [0, 1, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
            let _ = at(&map, vendor);
        }
        assert!(map.error_at_most_ns() > 0);
    }

    #[test]
    fn realtime_clock_is_recognised() {
        let readings = [
            BracketedReading::read_clock(|| Some(realtime_now())).unwrap(),
            BracketedReading::read_clock(|| Some(realtime_now())).unwrap(),
        ];
        assert_eq!(ClockMap::new(&readings).offset_ns(), 0);
        assert!(BracketedReading::read_clock(|| None).is_none());
    }
}
