//! The two representations of time: ticks on the span path, nanoseconds elsewhere; and the display of dates.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// A reading of the tick counter, which only the clock can convert to nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Ticks(pub u64);

/// The longest time that a trace can hold, in nanoseconds: 2^43 microseconds, or 101 days. Viewers represent times as doubles of
/// microseconds, which cannot hold the nanoseconds of longer ones.
pub const EXACT_NS: u64 = 1000 << 43;

/// A point in time, in nanoseconds since the Unix epoch.
///
/// All times after recording have this unit, as in libkineto, whose activities have `int64` nanoseconds of
/// CLOCK_REALTIME.
///
/// ```
/// use std::time::SystemTime;
/// use tracing_kineto::Timestamp;
///
/// let begun = Timestamp::from(SystemTime::now());
/// let ended = Timestamp::from_nanos(begun.as_nanos() + 1500);
/// assert_eq!(ended.since(begun), 1500);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Returns the time `ns` nanoseconds after the Unix epoch.
    pub const fn from_nanos(ns: u64) -> Self {
        Timestamp(ns)
    }

    /// Returns the nanoseconds since the Unix epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the nanoseconds from `earlier` to `self`; 0 if `earlier` is later.
    pub const fn since(self, earlier: Timestamp) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl From<SystemTime> for Timestamp {
    /// Times before 1970 become 1970.
    fn from(time: SystemTime) -> Timestamp {
        let nanos = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        Timestamp(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// Returns the base of times in a trace written at `now`: the last whole multiple of 7,889,238 s (a quarter of a year)
/// since the epoch.
///
/// The grid is libkineto's. Processes share the base, and a double holds nanoseconds exactly.
pub fn base_time(now: Timestamp) -> Timestamp {
    const QUARTER: u64 = 7_889_238 * 1_000_000_000;
    Timestamp::from_nanos(now.as_nanos() / QUARTER * QUARTER)
}

/// Seconds since the Unix epoch, displayed as `YYYY-MM-DD HH:MM:SS` in UTC.
///
/// libkineto prints local time; the time zone is only available from foreign code that reads the environment.
#[derive(Clone, Copy, Debug)]
pub struct UtcTime(pub u64);

impl fmt::Display for UtcTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil_from_days(self.0 / 86_400);
        let second = self.0 % 86_400;
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        let (between, zone) = if f.alternate() { ('T', "Z") } else { (' ', "") };
        write!(f, "{year:04}-{month:02}-{day:02}{between}{hour:02}:{minute:02}:{second:02}{zone}")
    }
}

/// Converts days since 1970-01-01 to year, month and day (Gregorian).
///
/// Years begin in March, so that the leap day is the last of its year; an era has 400 years.
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    const DAYS_TO_1970_FROM_MARCH_0000: u64 = 719_468;
    const DAYS_OF_ERA: u64 = 146_097;
    let days = days + DAYS_TO_1970_FROM_MARCH_0000;
    let (era, day) = (days / DAYS_OF_ERA, days % DAYS_OF_ERA);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Five months from March on have 153 days, as have the next five.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (400 * era + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_709_164_800, "2024-02-29 00:00:00"),
            (1_735_689_599, "2024-12-31 23:59:59"),
            (1_735_689_600, "2025-01-01 00:00:00"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(UtcTime(seconds).to_string(), text);
        }
        // Every day of 800 years follows the one before.
        let mut last = civil_from_days(0);
        for days in 1..292_194 {
            let next = civil_from_days(days);
            let (year, month, day) = last;
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let of_month = [31, 28 + u64::from(leap), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
            let expected = match (month, day) {
                (12, 31) => (year + 1, 1, 1),
                _ if day == of_month[usize::try_from(month).unwrap() - 1] => (year, month + 1, 1),
                _ => (year, month, day + 1),
            };
            assert_eq!(next, expected);
            last = next;
        }
    }

    #[test]
    fn base_is_a_multiple_of_a_quarter_year() {
        let now = Timestamp::from_nanos(1_790_857_026_000_000_001);
        assert_eq!(base_time(now).as_nanos(), 1_790_857_026_000_000_000);
        assert_eq!(base_time(Timestamp::from_nanos(1_790_857_025_999_999_999)).as_nanos(), 1_782_967_788_000_000_000);
        assert_eq!(base_time(Timestamp::from_nanos(5)).as_nanos(), 0);
    }
}
