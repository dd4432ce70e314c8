//! What collectors, their users and the session share, in builds with the feature `devices`.

pub use super::clock::ClockMap;
pub use super::collection::NEVER;
pub use super::collector::{Collector, Recording};
#[cfg(feature = "cuda")]
pub use super::cuda::CudaEvents;
#[cfg(feature = "cuda")]
pub use super::cupti::Cupti;
#[cfg(feature = "metrics")]
pub use super::cupti::{GpuMetrics, MetricDescription, PmSampling};
pub use super::deferred::{AlignedBy, Alignment, DeferredEvents, DeviceClock, Submission};
pub use super::device::{DeviceDescription, Stream};
pub use super::library::contained::Contained;
pub(crate) use super::library::text;
#[cfg(feature = "plugins")]
pub use super::plugin::EventType;
#[cfg(feature = "plugins")]
pub use super::plugin::abi;
pub use super::plugin::load_plugins;
pub use super::records::by_value::RecordsPart;
pub use super::records::collected::{Entry, Role};
pub use super::records::layout::{RecordLayout, RecordView, Wait};
pub use super::records::names::{Name, NameTable};
pub use super::records::pending::DELIVERY_WAIT;
pub use super::records::record::{
    ApiCall, CounterSample, DeviceMemory, DeviceWork, EventRecord, External, Overhead, Synchronization, Thread,
};
pub use super::records::store::{Batch, RecordSink};
#[cfg(feature = "rocm")]
pub use super::rocm::Rocm;
pub use super::set::{Collection, CollectorSet};
pub use super::switch::Switch;
pub use super::timers::{DeviceTimer, EventTimers, NotTimed, Token};
pub use super::vendor::DriverDiagnosis;
pub use super::vendor::{Examination, ExamineContext, VENDORS, Vendor, make_fallback_timers};
#[cfg(feature = "xpu")]
pub use super::xpu::Xpu;
