//! Accelerator recording: the traits that every vendor module implements, and the records it delivers.
//!
//! The session probes a [`Collector`] ([`probe`](Collector::probe)), and starts it with each recording. The start returns
//! a [`Recording`], which learns the slice that each thread enters ([`push`](Recording::push), [`pop`](Recording::pop)) and
//! writes its records to a [`RecordSink`] until it is stopped. Several collectors may record at once. A collector that
//! fails leaves a reason in the trace, never an error: the host is recorded all the same.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(all(target_os = "linux", feature = "metrics", feature = "roctracer", feature = "xpu", feature = "plugins")),
    allow(
        dead_code,
        unused_imports,
        unused_macros,
        reason = "the collectors share tools, and each uses a part of them"
    )
)]

mod buffered;
mod clock;
mod collection;
mod collector;
pub mod correlation;
#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "no_cuda.rs"]
pub mod cuda;
#[cfg(feature = "cuda")]
mod cupti;
mod deferred;
mod device;
mod library;
#[cfg(feature = "cuda")]
mod occupancy;
mod options;
#[cfg(feature = "plugins")]
mod plugin;
#[cfg(not(feature = "plugins"))]
#[path = "no_plugin.rs"]
mod plugin;
mod range;
mod records;
mod registry;
mod report;
#[cfg(feature = "rocm")]
mod rocm;
mod selection;
mod set;
mod switch;
#[cfg(any(feature = "cuda", feature = "rocm", feature = "xpu"))]
mod telemetry;
mod threads;
mod timers;
mod tool;
pub mod trial;
mod unavailable;
mod vendor;
#[cfg(feature = "xpu")]
mod xpu;

pub use clock::ClockMap;
pub use collection::NEVER;
pub use collector::{Collector, Recording};
#[cfg(feature = "cuda")]
#[cfg_attr(docsrs, doc(cfg(feature = "cuda")))]
pub use cuda::CudaEvents;
#[cfg(feature = "cuda")]
#[cfg_attr(docsrs, doc(cfg(feature = "cuda")))]
pub use cupti::Cupti;
#[cfg(feature = "metrics")]
#[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
pub use cupti::{GpuMetrics, MetricDescription, PmSampling};
pub use deferred::{AlignedBy, Alignment, DeferredEvents, DeviceClock, Submission};
pub use device::{DeviceDescription, Stream};
pub use library::Attempt;
pub use library::Library;
pub use library::contained::Contained;
pub use library::panic::catch_panic;
use library::text;
pub use options::{OptionValue, Options};
#[cfg(feature = "plugins")]
#[cfg_attr(docsrs, doc(cfg(feature = "plugins")))]
pub use plugin::EventType;
#[cfg(feature = "plugins")]
pub use plugin::abi;
pub use plugin::load_plugins;
pub use range::CaptureRange;
pub use range::Marks;
pub use records::by_value::RecordsPart;
pub use records::collected::{Entry, Role};
pub use records::layout::{RecordLayout, RecordView, Wait};
pub use records::names::{Name, NameTable};
pub use records::pending::DELIVERY_WAIT;
pub use records::record::{
    ApiCall, CounterSample, DeviceMemory, DeviceWork, EventRecord, External, Overhead, Synchronization, Thread,
};
pub use records::store::{Batch, RecordSink};
pub use report::CollectorReport;
#[cfg(feature = "rocm")]
#[cfg_attr(docsrs, doc(cfg(feature = "rocm")))]
pub use rocm::Rocm;
pub use selection::{Capabilities, Selection};
pub use set::{Collection, CollectorSet};
pub use switch::Switch;
pub use timers::{DeviceTimer, EventTimers, NotTimed, Token};
pub use tool::check_tool;
pub(crate) use unavailable::Rejected;
pub use unavailable::{Unavailable, Why};
pub use vendor::DriverDiagnosis;
pub use vendor::{Examination, ExamineContext, VENDORS, Vendor, make_fallback_timers};
#[cfg(feature = "xpu")]
#[cfg_attr(docsrs, doc(cfg(feature = "xpu")))]
pub use xpu::Xpu;

/// The NVTX domain of the ranges that this crate emits for spans. A collector that receives NVTX ranges drops them.
pub const OWN_NVTX_DOMAIN: &str = "tracing-kineto";
