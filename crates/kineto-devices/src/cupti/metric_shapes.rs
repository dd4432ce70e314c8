//! The layouts of metrics.

use crate::registry::layouts;
use crate::{Name, RecordLayout, RecordView};
use kineto_model::activity::ArgValue;

layouts! {
    /// The layouts of metrics: their number, then for each one its name and its value.
    MetricShape
    /// Those of a sample, or of an annotation.
    /// Those of a sample, or of an annotation.
    METRIC_VALUES = Sample: 1, "cupti.pm_sample";
    /// Those of a kernel, with the id of its launch.
    /// Those of a kernel, with the id of its launch.
    KERNEL_RANGE = Range: 2, "cupti.kernel_range";
}

/// The most metrics of a record, as many as it can hold.
pub(crate) const MAX_METRICS: usize = 127;

/// Packs the values of metrics.
pub(crate) fn metric_words(values: &[(Name, f64)]) -> Vec<u64> {
    let mut words = vec![values.len() as u64];
    words.extend(values.iter().flat_map(|(name, value)| [u64::from(name.0), value.to_bits()]));
    words
}

impl RecordLayout for MetricShape {
    fn visit(&self, record: &RecordView<'_>, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        if matches!(self, MetricShape::Range) {
            each("correlation", ArgValue::U64(record.correlation));
        }
        let count = usize::try_from(record.word(0)).unwrap_or(0).min(MAX_METRICS);
        for metric in 0..count {
            each(record.text(1 + 2 * metric), ArgValue::F64(f64::from_bits(record.word(2 + 2 * metric))));
        }
    }
}
