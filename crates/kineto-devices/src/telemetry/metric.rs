//! The values that are sampled, under the same names for all vendors, and their rows.

use crate::registry::layouts;
use crate::{RecordLayout, RecordView};
use kineto_model::activity::ArgValue;

/// A value of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceMetric {
    /// Milliwatts.
    Power,
    /// Thousandths of a degree Celsius.
    Temperature,
    /// MHz, of the multiprocessors or their counterparts.
    SmClock,
    /// MHz.
    MemoryClock,
    /// Percent of the time in which the device worked.
    GpuUtilization,
    /// Percent of the time in which the device's memory was accessed.
    MemoryUtilization,
    /// Bytes, of all processes.
    MemoryUsed,
    /// Bits of the vendor's.
    ThrottleReasons,
}

/// Why a value was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadError {
    /// The device or the driver lacks it.
    Unsupported,
    /// The process lacks the permission.
    Forbidden,
    /// The library does not know it now, or it is a difference that lacks an earlier reading.
    Pending,
    /// The result of the library's function.
    Failed(i64),
}

/// Reads a value into a place, by a function that returns a code.
pub(crate) fn read_into<T: Default, C>(
    check: impl FnOnce(C) -> Result<(), ReadError>,
    read: impl FnOnce(*mut T) -> C,
) -> Result<T, ReadError> {
    let mut value = T::default();
    check(read(&raw mut value))?;
    Ok(value)
}

impl DeviceMetric {
    pub(crate) const ALL: [DeviceMetric; 8] = [
        DeviceMetric::Power,
        DeviceMetric::Temperature,
        DeviceMetric::SmClock,
        DeviceMetric::MemoryClock,
        DeviceMetric::GpuUtilization,
        DeviceMetric::MemoryUtilization,
        DeviceMetric::MemoryUsed,
        DeviceMetric::ThrottleReasons,
    ];

    /// Returns the name of its rows.
    pub(crate) fn row_name(self) -> &'static str {
        match self {
            DeviceMetric::Power => "Power (W)",
            DeviceMetric::Temperature => "Temperature (C)",
            DeviceMetric::SmClock => "SM Clock (MHz)",
            DeviceMetric::MemoryClock => "Memory Clock (MHz)",
            DeviceMetric::GpuUtilization => "GPU Utilization (%)",
            DeviceMetric::MemoryUtilization => "Memory Utilization (%)",
            DeviceMetric::MemoryUsed => "Memory Used (MiB)",
            DeviceMetric::ThrottleReasons => "Throttle Reasons",
        }
    }

    /// Converts a value to the unit of its row.
    #[expect(clippy::cast_precision_loss, reason = "no device has 8 PiB, nor a power of 9 TW")]
    fn to_arg(self, value: i64) -> ArgValue<'static> {
        match self {
            DeviceMetric::Power | DeviceMetric::Temperature => ArgValue::F64(value as f64 / 1000.0),
            // Exact: the divisor is a power of two.
            DeviceMetric::MemoryUsed => ArgValue::F64(value as f64 / f64::from(1 << 20)),
            _ => ArgValue::I64(value),
        }
    }
}

/// The values of a device at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TelemetrySample([Option<i64>; DeviceMetric::ALL.len()]);

impl TelemetrySample {
    pub(super) fn set(&mut self, metric: DeviceMetric, value: i64) {
        if let Some(place) = self.0.get_mut(metric as usize) {
            *place = Some(value);
        }
    }

    pub(super) fn get(&self, metric: DeviceMetric) -> Option<i64> {
        self.0.get(metric as usize).copied().flatten()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// Packs it: a word whose bits say which values there are, then all values.
    pub(super) fn to_words(self) -> [u64; DeviceMetric::ALL.len() + 1] {
        let mut words = [0; DeviceMetric::ALL.len() + 1];
        for (at, value) in self.0.into_iter().enumerate() {
            if let (Some(value), Some(word)) = (value, words.get_mut(at + 1)) {
                *word = value.cast_unsigned();
                words[0] |= 1 << at;
            }
        }
        words
    }
}

layouts! {
    /// The layout of samples.
    TelemetryLayout
    SAMPLE = Sample: 1, "telemetry.sample";
}

impl RecordLayout for TelemetryLayout {
    fn visit(&self, record: &RecordView<'_>, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        for (at, metric) in DeviceMetric::ALL.into_iter().enumerate() {
            if record.word(0) >> at & 1 != 0 {
                each(metric.row_name(), metric.to_arg(record.word(at + 1).cast_signed()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_tell_zero_from_missing() {
        let mut sample = TelemetrySample::default();
        assert!(sample.is_empty());
        sample.set(DeviceMetric::Temperature, -5_500);
        sample.set(DeviceMetric::ThrottleReasons, 0);
        let words = sample.to_words();
        assert_eq!((words[0], words[2].cast_signed(), words[8]), (0b1000_0010, -5_500, 0));
        assert!(!sample.is_empty());
    }

    #[test]
    fn values_have_the_units_of_their_rows() {
        let shown = |metric: DeviceMetric, value| match metric.to_arg(value) {
            ArgValue::F64(value) => value,
            ArgValue::I64(value) => value as f64,
            other => panic!("{other:?}"),
        };
        assert_eq!(shown(DeviceMetric::Power, 123_456), 123.456);
        assert_eq!(shown(DeviceMetric::Temperature, -5_500), -5.5);
        assert_eq!(shown(DeviceMetric::MemoryUsed, (1 << 40) + 4096), 1_048_576.003_906_25);
        assert_eq!((shown(DeviceMetric::SmClock, 1980), shown(DeviceMetric::ThrottleReasons, 5)), (1980.0, 5.0));
        DeviceMetric::ALL.iter().enumerate().for_each(|(at, metric)| assert_eq!(*metric as usize, at));
    }
}
