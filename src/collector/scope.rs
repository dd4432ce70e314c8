//! What Intel's devices are asked to sample while kernels run.

/// Which metrics, of what, and how many times; libkineto's `XPUPTI_PROFILER_*`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScopeMetrics {
    /// The metrics, by the names that PTI has for them; nothing is sampled without one. `XPUPTI_PROFILER_METRICS`.
    pub metrics: Vec<String>,
    /// They are sampled for each kernel; PTI knows no other way yet. `XPUPTI_PROFILER_ENABLE_PER_KERNEL`; default false.
    pub per_kernel: bool,
    /// The most kernels that are sampled. `XPUPTI_PROFILER_MAX_SCOPES`; default 1500.
    pub most: u64,
    /// The devices that are sampled; the first if none is named. `XPUPTI_PROFILER_DEVICES`.
    pub devices: Vec<i64>,
}

impl ScopeMetrics {
    /// The most kernels that are sampled where nobody says how many.
    pub const MOST: u64 = 1500;
}

impl Default for ScopeMetrics {
    fn default() -> Self {
        ScopeMetrics { metrics: Vec::new(), per_kernel: false, most: ScopeMetrics::MOST, devices: Vec::new() }
    }
}
