//! torch.profiler for Rust programs: records `tracing` spans and writes them in the trace format of PyTorch's profiler.
//!
//! The file opens in [Perfetto](https://ui.perfetto.dev), chrome://tracing, TensorBoard and HolisticTraceAnalysis (HTA).
//! On a machine with NVIDIA, AMD or Intel GPUs it also contains their kernels, copies and waits, linked to the spans that
//! launched them. The vendors' libraries are found at run time; see [`integration`].
//!
//! ```no_run
//! use tracing_kineto::{KinetoLayer, annotate};
//! use tracing_subscriber::prelude::*;
//!
//! fn main() -> Result<(), tracing_kineto::Error> {
//!     let (layer, _guard) = KinetoLayer::builder().output("app.pt.trace.json.gz").build()?;
//!     tracing_subscriber::registry().with(layer).init();
//!     for n in 0..3 {
//!         let _step = annotate!("ProfilerStep#{}", n).entered();
//!         tracing::info_span!("work", n).in_scope(|| {});
//!     }
//!     Ok(())
//! }
//! ```
//!
//! | To | Use |
//! |---|---|
//! | choose what is recorded | [`KinetoLayer::builder`], or [`KinetoLayer::from_env`] for the environment |
//! | write the trace | [`KinetoGuard`], when it is dropped |
//! | start and stop recordings | [`Profiler`]; a stop returns a [`Trace`] |
//! | record some steps of a loop | [`Schedule`] and [`Profiler::step`] |
//! | name steps and parts, count things | [`annotate!`], [`counter!`] |
//! | keep a recording unformatted | [`Trace::write_segment`], [`Trace::read_segment`] |
//! | print times | [`profile!`] for a block, [`analysis`] for recordings and files |
//! | record allocations | [`memory`] |
//! | move from torch.profiler | [`torch`] |
//! | move from tracing-chrome | [`chrome`] |
//! | record other devices | [`integration::plugin`], [`integration::Collector`], [`integration::DeferredEvents`] |
//! | find out what this machine can record | [`Doctor`] |
//! | find out what a trace lacks | [`Loss`], [`Trace::stats`] |
//!
//! [`KinetoLayerBuilder::reference`] returns the table of all settings.
//!
//! # Words
//!
//! | Word | Meaning |
//! |---|---|
//! | span | a span of `tracing`: a name and fields; a program may enter it any number of times |
//! | slice | one enter to exit of a span, on the thread where it happened |
//! | [activity](Activity) | a row of the trace in Kineto's sense: a slice, an instant or a counter, of some [type](ActivityType) |
//! | annotation | a span that names a part of the program for the trace's reader, such as a training step: [`annotate!`] |
//! | [track](activity::Track) | where a row is drawn: a thread, or a span's own line |
//! | [correlation id](activity::CorrelationId) | names one slice; Kineto's "External id" |
//! | recording | what is between a start and a stop |
//! | chunk | 64 KiB of records of one thread |
//!
#![doc = include_str!("../docs/src/features.md")]
//!
//! # Platforms and compilers
//!
//! Rust 1.88 or newer. Tested on Linux, x86-64. Linux on aarch64, macOS and Windows build without warnings and record spans;
//! no test has run there.
//!
//! In WebAssembly the API is the same and nothing is recorded, so that a program with a native build needs no conditions:
//! [`build`](KinetoLayerBuilder::build) returns a layer that ignores spans and a guard that writes nothing, and
//! [`Profiler::start`] returns [`Unsupported`](ErrorKind::Unsupported). Traces of a program's own records
//! ([`CpuTraceBuilder`](integration::CpuTraceBuilder)) and [`analysis`] work.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(all(target_os = "linux", feature = "ondemand", feature = "segments")),
    allow(
        dead_code,
        unused_imports,
        reason = "requests are served on Linux only, with the feature `ondemand`, and only `segments` asks for some views of records"
    )
)]
#![cfg_attr(
    not(feature = "segments"),
    allow(unreachable_pub, reason = "`Split` is the type of a key, which is known in all builds")
)]

mod buffer;
mod builder;
mod callsite;
pub mod chrome;
mod collective;
mod config;
mod distributed;
#[cfg(feature = "doctor")]
mod doctor;
mod error;
mod fields;
mod guard;
mod handler;
pub mod integration;
mod layer;
#[cfg(feature = "devices")]
mod link;
mod macros;
pub mod memory;
mod observer;
#[cfg(all(target_os = "linux", feature = "ondemand"))]
mod ondemand;
#[cfg(feature = "plugins")]
mod plugin;
#[cfg(feature = "analysis")]
mod profile;
mod profiler;
mod record_while;
mod recorder;
mod schedule;
#[cfg(feature = "segments")]
mod segment;
mod session;
pub mod torch;
mod trace;
mod write;

#[doc(inline)]
pub use activity::{Activity, ActivityGroup, ActivityType, ActivityTypes, ArgValue, Args};
pub use buffer::Loss;
#[cfg(feature = "devices")]
pub use builder::Devices;
#[cfg(feature = "metrics")]
pub use builder::Metrics;
#[cfg(feature = "segments")]
pub use builder::Spill;
pub use builder::{Dumps, Fields, KinetoLayerBuilder, Stacks};
pub use collective::Collective;
#[cfg(feature = "segments")]
pub use config::Split;
pub use config::{AsyncSpans, DumpTrigger, Mode, Modes, Overflow, RecordingFlags};
pub use distributed::{DistributedInfo, ProcessGroup};
#[cfg(feature = "doctor")]
pub use doctor::{
    ClockDiagnosis, CollectorDiagnosis, ConfigurationDiagnosis, Diagnosis, Doctor, DriverDiagnosis, Verdict,
};
pub use error::{Error, ErrorKind};
pub use guard::{KinetoGuard, RecordingGuard};
pub use handler::{Handled, HandlerError, TensorboardTraceHandler, TraceHandler, tensorboard_trace_handler};
#[doc(inline)]
pub use kineto_base::diag::{LogSink, Message, Severity};
#[doc(inline)]
pub use kineto_base::os::{open_entry, thread_id};
#[doc(inline)]
pub use kineto_base::time::Timestamp;
use kineto_base::{clock, diag, encoding, live, os, text, time, wait};
#[doc(inline)]
pub use kineto_devices::CollectorReport;
use kineto_devices::correlation;
#[doc(inline)]
pub use kineto_model::activity;
#[doc(inline)]
pub use kineto_model::memory::{MemoryAction, MemoryRow, MemoryTimeline, TimelineFormat};
#[doc(inline)]
pub use kineto_model::write::file::Format;
#[cfg(feature = "analysis")]
#[doc(inline)]
pub use kineto_trace::analysis;
pub use layer::KinetoLayer;
#[doc(hidden)]
pub use macros::__private;
#[cfg(feature = "itt")]
pub use observer::itt;
pub use observer::{ObservedSpan, ObserverReport, SpanObserver};
#[cfg(feature = "plugins")]
#[doc(hidden)]
pub use plugin::__register;
pub use profiler::{Profiler, profiler};
pub use record_while::RecordWhile;
pub use recorder::{CounterReport, ThreadFilter};
pub use schedule::{ProfilerAction, Schedule};
#[cfg(feature = "segments")]
pub use segment::Segment;
pub use session::{BackgroundSave, Cycle, SessionObserver, Status, StepOutcome, StepState, ThreadRecording, flush_all};
pub use trace::{EventEdit, InvariantViolation, RecordedTime, SaveProgress, Saver, Trace, TraceStats, TraceTrack};
pub use write::TraceSink;

/// Private code that fuzz targets run.
#[cfg(fuzzing)]
pub mod fuzzing {
    pub use crate::config::read_configuration;
    pub use crate::ondemand::read_datagram;
}

/// Compiles the code of README.md and of the book.
#[cfg(doctest)]
mod book {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/src/getting-started.md")]
    struct GettingStarted;
    #[doc = include_str!("../docs/src/gpus.md")]
    struct Gpus;
    #[doc = include_str!("../docs/src/torch-users.md")]
    struct TorchUsers;
    #[doc = include_str!("../docs/src/tables-and-analysis.md")]
    struct TablesAndAnalysis;
    #[doc = include_str!("../docs/src/memory-and-counters.md")]
    struct MemoryAndCounters;
    #[doc = include_str!("../docs/src/production.md")]
    struct Production;
    #[doc = include_str!("../docs/src/on-demand.md")]
    struct OnDemand;
    #[doc = include_str!("../docs/src/configuration.md")]
    struct Configuration;
    #[doc = include_str!("../docs/src/data-loss.md")]
    struct DataLoss;
    #[doc = include_str!("../docs/src/overhead.md")]
    struct OverheadPage;
    #[doc = include_str!("../docs/src/troubleshooting.md")]
    struct Troubleshooting;
    #[doc = include_str!("../docs/src/c-api.md")]
    struct CApi;
    #[doc = include_str!("../docs/src/plugins.md")]
    struct Plugins;
    #[doc = include_str!("../docs/src/from-tracing-chrome.md")]
    struct FromTracingChrome;
    #[doc = include_str!("../docs/src/from-tracing-flame.md")]
    struct FromTracingFlame;
    #[doc = include_str!("../docs/src/from-tracing-tracy.md")]
    struct FromTracingTracy;
    #[doc = include_str!("../docs/src/from-nvtx-layers.md")]
    struct FromNvtxLayers;
}
