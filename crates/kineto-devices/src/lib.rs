//! Accelerator recording: the traits that every vendor module implements, and the records it delivers.
//!
//! The session probes a `Collector` (`probe`), and starts it with each recording. The start returns a `Recording`, which learns the
//! slice that each thread enters (`push`, `pop`) and writes its records to a `RecordSink` until it is stopped. Several collectors may
//! record at once. A collector that fails leaves a reason in the trace, never an error: the host is recorded all the same. All of
//! this needs the feature `devices`.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(all(
        target_os = "linux",
        feature = "metrics",
        feature = "roctracer",
        feature = "xpu",
        feature = "plugins",
        feature = "segments"
    )),
    allow(
        dead_code,
        unused_imports,
        unused_macros,
        reason = "the collectors share tools, and each uses a part of them"
    )
)]

#[cfg(feature = "devices")]
mod buffered;
#[cfg(feature = "devices")]
mod clock;
#[cfg(feature = "devices")]
mod collection;
#[cfg(feature = "devices")]
mod collector;
pub mod correlation;
#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "no_cuda.rs"]
pub mod cuda;
#[cfg(feature = "cuda")]
mod cupti;
#[cfg(feature = "devices")]
mod deferred;
#[cfg(feature = "devices")]
mod device;
#[cfg(feature = "devices")]
mod devices;
#[cfg(not(feature = "devices"))]
#[path = "no_devices.rs"]
mod devices;
mod library;
#[cfg(feature = "cuda")]
mod occupancy;
mod options;
#[cfg(feature = "plugins")]
mod plugin;
#[cfg(all(feature = "devices", not(feature = "plugins")))]
#[path = "no_plugin.rs"]
mod plugin;
mod range;
#[cfg(feature = "devices")]
mod records;
#[cfg(feature = "devices")]
mod registry;
mod report;
#[cfg(feature = "rocm")]
mod rocm;
mod selection;
#[cfg(feature = "devices")]
mod set;
#[cfg(feature = "devices")]
mod switch;
#[cfg(any(feature = "cuda", feature = "rocm", feature = "xpu"))]
mod telemetry;
#[cfg(feature = "devices")]
mod threads;
#[cfg(feature = "devices")]
mod timers;
mod tool;
#[cfg(feature = "devices")]
pub mod trial;
mod unavailable;
#[cfg(feature = "devices")]
mod vendor;
#[cfg(feature = "xpu")]
mod xpu;

#[cfg(all(fuzzing, feature = "cuda"))]
pub use cupti::read_cupti_buffer;
pub use devices::*;
pub use library::panic::catch_panic;
pub use library::{Attempt, Library};
pub use options::{OptionValue, Options};
pub use range::{CaptureRange, Marks};
pub use report::CollectorReport;
pub use selection::{Capabilities, Selection};
pub use tool::check_tool;
pub(crate) use unavailable::Rejected;
pub use unavailable::{Unavailable, Why};

/// The NVTX domain of the ranges that this crate emits for spans. A collector that receives NVTX ranges drops them.
pub const OWN_NVTX_DOMAIN: &str = "tracing-kineto";
