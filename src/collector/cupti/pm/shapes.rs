//! The layout of a sample.

use crate::collector::registry::NamedLayout;
use crate::collector::{RecordLayout, RecordView};
use kineto_trace::activity::ArgValue;

/// The layout of a sample: the number of metrics, then for each one its name and its value.
#[derive(Debug)]
#[repr(u8)]
pub(in crate::collector::cupti) enum PmShape {
    Sample = 1,
}

/// The layout of the metrics of a kernel, too.
pub(in crate::collector::cupti) static METRIC_VALUES: PmShape = PmShape::Sample;

pub(in crate::collector) static LAYOUTS: [NamedLayout; 1] = [("cupti.pm_sample", &METRIC_VALUES)];

/// The most metrics of a sample, as many as a record can hold.
pub(in crate::collector::cupti) const MAX_METRICS: usize = 127;

impl RecordLayout for PmShape {
    fn visit(&self, record: &RecordView<'_>, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        let count = usize::try_from(record.word(0)).unwrap_or(0).min(MAX_METRICS);
        for metric in 0..count {
            each(record.text(1 + 2 * metric), ArgValue::F64(f64::from_bits(record.word(2 + 2 * metric))));
        }
    }
}
