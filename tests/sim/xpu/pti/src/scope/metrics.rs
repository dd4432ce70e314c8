//! The metrics that the simulated devices have, made up from how long a kernel took.

use std::ffi::CStr;

/// Types of values, by PTI's numbers.
pub(crate) const UINT32: u32 = 0;
pub(crate) const UINT64: u32 = 1;
pub(crate) const FLOAT32: u32 = 2;
pub(crate) const FLOAT64: u32 = 3;
pub(crate) const BOOL8: u32 = 4;

/// Kinds of metrics, by PTI's numbers.
const DURATION: u32 = 0;
const EVENT: u32 = 1;
const THROUGHPUT: u32 = 3;
const FLAG: u32 = 5;
const RATIO: u32 = 6;

/// A metric.
#[derive(Debug)]
pub(crate) struct Metric {
    pub(crate) name: &'static CStr,
    pub(crate) description: &'static CStr,
    pub(crate) kind: u32,
    pub(crate) value_type: u32,
    pub(crate) unit: &'static CStr,
    /// The bits of its value for a kernel that took that many nanoseconds.
    pub(crate) of: fn(u64) -> u64,
}

/// Metrics that are collected together.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) name: &'static CStr,
    pub(crate) description: &'static CStr,
    pub(crate) metrics: &'static [Metric],
}

pub(crate) const GROUPS: &[Group] = &[
    Group {
        name: c"ComputeBasic",
        description: c"What computes",
        metrics: &[
            Metric {
                name: c"GpuTime",
                description: c"Time on the device",
                kind: DURATION,
                value_type: UINT64,
                unit: c"ns",
                of: |ns| ns,
            },
            Metric {
                name: c"GpuCoreClocks",
                description: c"Clocks of the cores",
                kind: EVENT,
                value_type: UINT64,
                unit: c"cycles",
                of: |ns| ns * 16 / 10,
            },
            Metric {
                name: c"XVE_ACTIVE",
                description: c"How much of the time the vector engines work",
                kind: RATIO,
                value_type: FLOAT32,
                unit: c"percent",
                of: |ns| (50.0 + (ns / 1_000 % 50) as f32 / 2.0).to_bits().into(),
            },
            Metric {
                name: c"GPU_BUSY",
                description: c"How much of the time the device works",
                kind: RATIO,
                value_type: FLOAT64,
                unit: c"percent",
                of: |_| 99.5_f64.to_bits(),
            },
            Metric {
                name: c"OverrunOccurred",
                description: c"Whether the counters ran over",
                kind: FLAG,
                value_type: BOOL8,
                unit: c"",
                of: |_| 0,
            },
        ],
    },
    Group {
        name: c"MemoryProfile",
        description: c"What moves",
        metrics: &[
            Metric {
                name: c"GPU_MEMORY_BYTE_READ",
                description: c"Bytes read from the device's memory",
                kind: THROUGHPUT,
                value_type: UINT64,
                unit: c"bytes",
                of: |ns| ns * 8,
            },
            Metric {
                name: c"L3_MISS",
                description: c"Accesses that the cache does not serve",
                kind: EVENT,
                value_type: UINT32,
                unit: c"events",
                of: |ns| ns / 1_000,
            },
        ],
    },
];

/// Where a metric is: its group and its place there.
pub(crate) fn find(name: &CStr) -> Option<(usize, usize)> {
    let place = |group: &Group| group.metrics.iter().position(|metric| metric.name == name);
    GROUPS.iter().enumerate().find_map(|(index, group)| Some((index, place(group)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_from_durations() {
        let value = |name: &CStr, ns: u64| {
            let (group, metric) = find(name).unwrap();
            (GROUPS[group].metrics[metric].of)(ns)
        };
        assert_eq!((value(c"GpuTime", 5_000), value(c"GpuCoreClocks", 5_000)), (5_000, 8_000));
        assert_eq!(f32::from_bits(value(c"XVE_ACTIVE", 500_000) as u32), 50.0);
        assert_eq!(f64::from_bits(value(c"GPU_BUSY", 1)), 99.5);
        assert_eq!(find(c"L3_MISS"), Some((1, 1)));
        assert_eq!(find(c"L4_MISS"), None);
    }
}
