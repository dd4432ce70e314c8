//! The metrics that the simulated devices have, made up from how long a kernel took.

use std::ffi::CStr;

/// Types of values, by PTI's numbers.
const UINT32: u32 = 0;
const UINT64: u32 = 1;
const FLOAT32: u32 = 2;
const FLOAT64: u32 = 3;
const BOOL8: u32 = 4;

/// Groups of metrics that are collected together.
const COMPUTE_BASIC: usize = 0;
const MEMORY_PROFILE: usize = 1;

/// A metric.
#[derive(Debug)]
pub(crate) struct Metric {
    pub(crate) group: usize,
    pub(crate) name: &'static CStr,
    pub(crate) value_type: u32,
    pub(crate) unit: &'static CStr,
    /// The bits of its value for a kernel that took that many nanoseconds.
    pub(crate) of: fn(u64) -> u64,
}

macro_rules! metrics {
    ($($group:ident: $name:literal, $value_type:ident in $unit:literal, $of:expr;)+) => {
        const METRICS: &[Metric] =
            &[$(Metric { group: $group, name: $name, value_type: $value_type, unit: $unit, of: $of }),+];
    };
}

metrics! {
    COMPUTE_BASIC: c"GpuTime", UINT64 in c"ns", |ns| ns;
    COMPUTE_BASIC: c"GpuCoreClocks", UINT64 in c"cycles", |ns| ns * 16 / 10;
    // How much of the time the vector engines work, and the device.
    COMPUTE_BASIC: c"XVE_ACTIVE", FLOAT32 in c"percent", |ns| (50.0 + (ns / 1_000 % 50) as f32 / 2.0).to_bits().into();
    COMPUTE_BASIC: c"GPU_BUSY", FLOAT64 in c"percent", |_| 99.5_f64.to_bits();
    // Whether the counters ran over.
    COMPUTE_BASIC: c"OverrunOccurred", BOOL8 in c"", |_| 0;
    MEMORY_PROFILE: c"GPU_MEMORY_BYTE_READ", UINT64 in c"bytes", |ns| ns * 8;
    // Accesses that the cache does not serve.
    MEMORY_PROFILE: c"L3_MISS", UINT32 in c"events", |ns| ns / 1_000;
}

/// Returns a metric by its name.
pub(crate) fn find(name: &CStr) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_from_durations() {
        let value = |name: &CStr, ns: u64| (find(name).unwrap().of)(ns);
        assert_eq!((value(c"GpuTime", 5_000), value(c"GpuCoreClocks", 5_000)), (5_000, 8_000));
        assert_eq!(f32::from_bits(value(c"XVE_ACTIVE", 500_000) as u32), 50.0);
        assert_eq!(f64::from_bits(value(c"GPU_BUSY", 1)), 99.5);
        assert!(find(c"L4_MISS").is_none());
    }
}
