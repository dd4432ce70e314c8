//! Extension points: collectors and their records, plugins, and activities from other sources.
//!
//! Programs that record spans and known GPUs need none of this: the builder selects the collectors.
//!
//! - A [`Collector`] records a device's work. [`DeferredEvents`] and [`EventTimers`] are collectors for devices that report
//!   times late or through events; [`trial`] tests one.
//! - [`plugin`] builds shared libraries that record an accelerator in programs without support for it.
//! - [`CpuTraceBuilder`] creates a [`Trace`](crate::Trace) of activities that another program measured.

pub use crate::trace::CpuTraceBuilder;
#[cfg(feature = "plugins")]
#[doc(inline)]
pub use kineto_devices::EventType;
#[cfg(feature = "rocm")]
#[doc(inline)]
pub use kineto_devices::Rocm;
#[cfg(feature = "xpu")]
#[doc(inline)]
pub use kineto_devices::Xpu;
#[cfg(feature = "devices")]
#[doc(inline)]
pub use kineto_devices::{
    AlignedBy, Alignment, ApiCall, Attempt, Batch, CaptureRange, Collector, CounterSample, DeferredEvents, DeviceClock,
    DeviceDescription, DeviceMemory, DeviceTimer, DeviceWork, DriverDiagnosis, EventRecord, EventTimers, External,
    Name, NotTimed, OptionValue, Options, Overhead, RecordLayout, RecordSink, RecordView, Recording, Selection, Stream,
    Submission, Synchronization, Thread, Token, Wait, trial,
};
#[doc(inline)]
pub use kineto_devices::{Capabilities, CollectorReport, Unavailable, Why};
#[cfg(feature = "cuda")]
#[doc(inline)]
pub use kineto_devices::{CudaEvents, Cupti};
#[cfg(feature = "metrics")]
#[doc(inline)]
pub use kineto_devices::{GpuMetrics, MetricDescription, PmSampling};

/// Plugins in Rust, for programs without support for the accelerator.
#[cfg(feature = "plugins")]
pub mod plugin {
    pub use crate::plugin::{EventType, NotStarted, Plugin, PluginEvent, TraceBuilder};
}
