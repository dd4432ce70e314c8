//! The CUDA collector on the simulated driver and CUPTI.

#[cfg(feature = "metrics")]
mod annotation_metrics;
mod bound;
mod busy;
mod collector;
mod faults;
#[cfg(feature = "itt")]
mod itt;
mod machine;
mod memory;
#[cfg(feature = "metrics")]
mod metric_calls;
mod nvtx;
mod nvtx_cupti;
mod nvtx_ranges;
mod pauses;
#[cfg(feature = "metrics")]
mod pm_sampling;
mod processes;
#[cfg(feature = "metrics")]
mod range_metrics;
mod schedule;
mod sessions;
mod sharing;
mod tables;
mod telemetry;
mod timers;
mod versions;
