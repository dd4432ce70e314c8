//! torch.profiler for Rust programs.

pub mod activity;
mod buffer;
mod builder;
mod callsite;
mod clock;
mod config;
mod diag;
mod error;
mod fields;
mod guard;
mod layer;
mod macros;
mod os;
mod profiler;
mod recorder;
mod session;
mod time;
mod trace;
mod write;

pub use activity::{Activity, ActivityGroup, ActivityType, ActivityTypes, ArgValue, Args};
pub use buffer::Loss;
pub use builder::KinetoLayerBuilder;
pub use config::{AsyncSpans, Config, DistributedInfo, Origin, Output, Overflow};
pub use diag::{LogSink, Message, Severity};
pub use error::{Error, ErrorKind};
pub use guard::KinetoGuard;
pub use layer::KinetoLayer;
#[doc(hidden)]
pub use macros::__private;
pub use profiler::Profiler;
pub use session::{Status, flush_all};
pub use time::Timestamp;
pub use trace::{Trace, TraceStats, TraceTrack};
pub use write::TraceSink;
