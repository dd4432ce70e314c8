//! The layouts of metrics.

use crate::registry::NamedLayout;
use crate::{RecordLayout, RecordView};
use kineto_model::activity::ArgValue;

/// The layout of metrics: their number, then for each one its name and its value.
#[derive(Debug)]
#[repr(u8)]
pub(crate) enum MetricShape {
    /// Those of a sample, or of an annotation.
    Sample = 1,
    /// Those of a kernel, with the id of its launch.
    Range = 2,
}

pub(crate) static METRIC_VALUES: MetricShape = MetricShape::Sample;
pub(crate) static KERNEL_RANGE: MetricShape = MetricShape::Range;

pub(crate) static LAYOUTS: [NamedLayout; 2] =
    [("cupti.pm_sample", &METRIC_VALUES), ("cupti.kernel_range", &KERNEL_RANGE)];

/// The most metrics of a record, as many as it can hold.
pub(crate) const MAX_METRICS: usize = 127;

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
