//! Formats times, sizes and shares as torch's table does.

/// The unit of all times of a table; torch's `time_unit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TimeUnit {
    /// "s"
    Seconds,
    /// "ms"
    Millis,
    /// "us"
    Micros,
}

/// Formats a time with three decimals, in `unit` or else the largest unit in which it is at least 1.
pub(crate) fn format_time(ns: f64, unit: Option<TimeUnit>) -> String {
    let micros = ns / 1e3;
    let unit = unit.unwrap_or(match micros {
        us if us >= 1e6 => TimeUnit::Seconds,
        us if us >= 1e3 => TimeUnit::Millis,
        _ => TimeUnit::Micros,
    });
    match unit {
        TimeUnit::Seconds => format!("{:.3}s", micros / 1e6),
        TimeUnit::Millis => format!("{:.3}ms", micros / 1e3),
        TimeUnit::Micros => format!("{micros:.3}us"),
    }
}

/// Formats a time in the largest unit in which it is at least 1, in at most 12 characters: whole seconds from 10^7 seconds on.
pub(crate) fn format_short_time(ns: f64) -> String {
    /// The first time that three decimals would round to 10^7 seconds.
    const WHOLE_FROM_NS: f64 = 9_999_999_999_500_000.0;
    if ns.abs() < WHOLE_FROM_NS { format_time(ns, None) } else { format!("{:.0}s", ns / 1e9) }
}

/// Formats a share of a base in percent; "NaN" if the base is 0.
pub(super) fn format_percentage(ns: f64, base: f64) -> String {
    if base == 0.0 { "NaN".to_owned() } else { format!("{:.2}%", ns * 100.0 / base) }
}

/// Formats bytes in units of 1024.
pub(in crate::analysis) fn format_bytes(bytes: i64) -> String {
    const KB: u64 = 1024;
    let scaled = |unit: u64, name: &str| format!("{:.2} {name}", bytes as f64 / unit as f64);
    match bytes.unsigned_abs() {
        n if n >= KB * KB * KB => scaled(KB * KB * KB, "GB"),
        n if n >= KB * KB => scaled(KB * KB, "MB"),
        n if n >= KB => scaled(KB, "KB"),
        _ => format!("{bytes} B"),
    }
}

/// Returns the size and name of the largest unit, up to "PFLOPs", in which a number of FLOPs is at least 1.
pub(super) fn flop_unit(flops: u64) -> (f64, &'static str) {
    const UNITS: [&str; 6] = ["FLOPs", "KFLOPs", "MFLOPs", "GFLOPs", "TFLOPs", "PFLOPs"];
    let mut unit = (1.0, "FLOPs");
    for name in UNITS {
        if flops as f64 >= unit.0 {
            unit = (unit.0 * 1e3, name);
        }
    }
    (unit.0 / 1e3, unit.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_the_largest_unit_that_fits() {
        let shown = [0.0, 1.0, 999_999.0, 1e6, 1.5e9, -2000.0].map(|ns| format_time(ns, None));
        assert_eq!(shown, ["0.000us", "0.001us", "999.999us", "1.000ms", "1.500s", "-2.000us"]);
        let units = [TimeUnit::Seconds, TimeUnit::Millis, TimeUnit::Micros];
        assert_eq!(units.map(|unit| format_time(2e6, Some(unit))), ["0.002s", "2.000ms", "2000.000us"]);
    }

    #[test]
    fn short_times_fit_a_column() {
        let shown = [1e6, 9_999_999_999_400_000.0, 9_999_999_999_500_000.0, u64::MAX as f64].map(format_short_time);
        assert_eq!(shown, ["1.000ms", "9999999.999s", "10000000s", "18446744074s"]);
    }

    #[test]
    fn bytes_are_in_units_of_1024_and_may_be_negative() {
        let shown = [0, -1023, 1024, -1_572_864, 5_368_709_120].map(format_bytes);
        assert_eq!(shown, ["0 B", "-1023 B", "1.00 KB", "-1.50 MB", "5.00 GB"]);
    }

    #[test]
    fn shares_and_flops_scale() {
        assert_eq!([format_percentage(1.0, 3.0), format_percentage(0.0, 0.0)], ["33.33%", "NaN"]);
        let names = [1, 999, 1000, 2_000_000, u64::MAX].map(flop_unit);
        assert_eq!(names, [(1.0, "FLOPs"), (1.0, "FLOPs"), (1e3, "KFLOPs"), (1e6, "MFLOPs"), (1e15, "PFLOPs")]);
    }
}
