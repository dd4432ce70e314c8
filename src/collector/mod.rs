//! What records the work of accelerators: the trait that every vendor's library is behind, and what it hands over.
//!
//! A [`Collector`] is asked what it can do here ([`probe`](Collector::probe)), started and stopped with a recording, and
//! told which slice each thread is in ([`push`](Collector::push), [`pop`](Collector::pop)). What it records it gives to
//! a [`RecordSink`], at any time between its start and the end of its stop. Several may run at once. One that fails
//! leaves a reason in the trace, never an error: the recording of the host goes on.
#![cfg_attr(
    not(all(feature = "cuda", feature = "rocm", feature = "xpu", feature = "plugins")),
    allow(
        dead_code,
        unused_imports,
        unused_macros,
        reason = "the collectors share tools, and each uses a part of them"
    )
)]

mod apart;
mod clock;
mod collected;
mod contained;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "no_cuda.rs"]
pub(crate) mod cuda;
#[cfg(feature = "cuda")]
mod cupti;
mod deferred;
mod demangle;
mod device;
mod lazy_library;
mod library;
mod names;
mod options;
mod orders;
mod pauses;
#[cfg(feature = "plugins")]
mod plugin;
#[cfg(not(feature = "plugins"))]
#[path = "no_plugin.rs"]
mod plugin;
mod pool;
mod range;
mod record;
mod report;
#[cfg(feature = "rocm")]
mod rocm;
mod set;
mod shape;
mod store;
mod switch;
mod text;
mod threads;
mod timers;
pub mod trial;
mod turn;
mod unavailable;
mod vendor;
mod walk;
#[cfg(feature = "xpu")]
mod xpu;

pub(crate) use collected::{Entry, Role};
pub(crate) use contained::{Contained, attempt};
#[cfg(feature = "cuda")]
#[cfg_attr(docsrs, doc(cfg(feature = "cuda")))]
pub use cuda::CudaEvents;
#[cfg(feature = "cuda")]
#[cfg_attr(docsrs, doc(cfg(feature = "cuda")))]
pub use cupti::Cupti;
pub use deferred::{AlignedBy, Alignment, DeferredEvents, DeviceClock, Submission};
pub use device::{DeviceDescription, Stream};
pub use library::Attempt;
pub(crate) use library::Library;
pub use names::Name;
pub use options::{OptionValue, Options};
#[cfg(feature = "plugins")]
#[cfg_attr(docsrs, doc(cfg(feature = "plugins")))]
pub use plugin::EventType;
#[cfg(feature = "plugins")]
pub(crate) use plugin::abi;
pub(crate) use plugin::plugins;
pub use range::CaptureRange;
pub(crate) use range::Marks;
pub use record::{
    ApiCall, CounterSample, DeviceMemory, DeviceWork, EventRecord, External, Overhead, Synchronization, Thread,
};
pub use report::CollectorReport;
#[cfg(feature = "rocm")]
#[cfg_attr(docsrs, doc(cfg(feature = "rocm")))]
pub use rocm::Rocm;
pub(crate) use set::{Collection, CollectorSet};
pub use shape::{RecordLayout, RecordView, Wait};
pub(crate) use store::Budget;
pub use store::{Batch, RecordSink};
pub(crate) use switch::Switch;
pub use timers::{DeviceTimer, EventTimers, NotTimed, Token};
pub(crate) use unavailable::Rejected;
pub use unavailable::{Unavailable, Why};
pub use vendor::DriverDiagnosis;
pub(crate) use vendor::{Examination, Surroundings, VENDORS, Vendor, timers};
#[cfg(feature = "xpu")]
#[cfg_attr(docsrs, doc(cfg(feature = "xpu")))]
pub use xpu::Xpu;

use crate::time::Timestamp;
use kineto_trace::activity::{ActivityTypes, CorrelationId, DeviceType};
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Records what accelerators do, and the calls that had them do it.
///
/// Methods are called by one thread at a time, but for [`push`](Collector::push), [`pop`](Collector::pop), their like for
/// annotations, [`pause`](Collector::pause) and [`resume`](Collector::resume), which every thread of the program may call. None may
/// call the [`Profiler`](crate::Profiler), which waits for them. One that panics harms nobody else: the
/// [report](CollectorReport) says where, and the collector is asked for nothing more but to stop.
pub trait Collector: fmt::Debug + Send + Sync {
    /// Returns its name, one word in lower case, such as "cupti".
    fn name(&self) -> &'static str;

    /// Returns what it could record at best; it is not asked for anything if none of it is selected.
    fn types(&self) -> ActivityTypes;

    /// Returns whether a recording with this selection needs it; by default, if one of its [types](Collector::types) is
    /// selected.
    fn is_selected(&self, selection: &Selection) -> bool {
        !self.types().intersection(selection.types).is_empty()
    }

    /// Says what it can record here, or why nothing. Loads the libraries that it needs; starts nothing.
    ///
    /// # Errors
    /// What is missing, and what to do about it.
    fn probe(&self) -> Result<Capabilities, Unavailable>;

    /// Begins to record what `selection` asks for, and shows that it does if that can be shown.
    ///
    /// # Errors
    /// Why it records nothing.
    fn start(&self, selection: &Selection, sink: RecordSink) -> Result<Capabilities, Unavailable>;

    /// The calling thread enters a slice: calls that it makes from now on belong to it. Returns whether it was taken; if
    /// not, there is no matching [`pop`](Collector::pop).
    ///
    /// Called only if the selection has external correlation, and while it runs; a thread that is at it just then may come
    /// a moment after the stop. Spans that it opens itself are not recorded.
    fn push(&self, _id: CorrelationId) -> bool {
        false
    }

    /// The calling thread leaves the slice that it pushed last. Slices that it was in when a recording ended or paused it
    /// leaves at its first hook of the next one.
    fn pop(&self) {}

    /// As [`push`](Collector::push), of a slice that is a user annotation's; kineto's `pushUserCorrelationId`. By default
    /// the same: which annotation work is in, the trace knows in any case.
    fn push_annotation(&self, id: CorrelationId) -> bool {
        self.push(id)
    }

    /// As [`pop`](Collector::pop), of a slice that was pushed by [`push_annotation`](Collector::push_annotation).
    fn pop_annotation(&self) {
        self.pop();
    }

    /// The recording pauses: what begins from now on is not wanted until [`resume`](Collector::resume). What was launched
    /// before is still handed over when it has ended. By default nothing is done, and what comes of the pause is dropped.
    ///
    /// This and [`resume`](Collector::resume) are called in turn, by any thread of the program, while others may be in
    /// other methods, and perhaps in the middle of one of the vendor's callbacks: they do not wait.
    fn pause(&self) {}

    /// The recording goes on: what begins after the return is wanted.
    fn resume(&self) {}

    /// Whether it sees the marks by which a program opens and closes a [range](CaptureRange) of its own.
    fn sees_ranges(&self) -> bool {
        false
    }

    /// Hands over what has ended, without waiting for what has not.
    fn drain(&self) {}

    /// Ends recording: hands over what began until `end`, and waits for it no longer than until `deadline`.
    fn stop(&self, end: Timestamp, deadline: Instant);

    /// Says why it has stopped recording before its [`stop`](Collector::stop), if it has: what it needs is gone. A schedule
    /// leaves the rest of the cycle out then.
    fn stopped(&self) -> Option<String> {
        None
    }

    /// Returns where its libraries were looked for the last time, and what came of it.
    fn attempts(&self) -> Vec<Attempt> {
        Vec::new()
    }

    /// Returns the devices that are there, in the order of their numbers.
    fn devices(&self) -> Vec<DeviceDescription> {
        Vec::new()
    }

    /// Reads the clock of its records, in nanoseconds; `None` if that is CLOCK_REALTIME itself, or cannot be read.
    ///
    /// Read at both ends of a recording and each second in which spans are recorded, between two readings of
    /// CLOCK_REALTIME; if it does not lie between them, times are converted. Read when the recording pauses or goes on, too.
    fn clock(&self) -> Option<u64> {
        None
    }
}

/// The domain of the NVTX ranges that this crate makes of spans; a collector that receives NVTX ranges drops them.
pub(crate) const OWN_NVTX_DOMAIN: &str = "tracing-kineto";

/// What is asked of a collector.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Selection {
    /// The activity types to record.
    pub types: ActivityTypes,
    /// The most bytes that the vendor's records may take, in use and complete, until they are read.
    /// `ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB`; default 128 MiB.
    pub buffer_bytes: u64,
    /// How long a start may take to show that records arrive.
    pub proof: Duration,
    /// To be told where the program begins and ends a range: outside of it nothing is recorded. `CUDA_PROFILER_RANGE`.
    pub range: Option<CaptureRange>,
    /// What the user has written for collectors. `CUSTOM_CONFIG`, torch's `custom_profiler_config`.
    pub custom_config: String,
    /// What is allocated on devices is recorded too, and what is given back. `PROFILE_DEVICE_MEMORY`.
    pub device_memory: bool,
    /// Settings that only some collectors know.
    pub options: Options,
}

/// What a collector can do, or does.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Capabilities {
    /// The activity types that it records here.
    pub types: ActivityTypes,
    /// Versions and the like, as they stand in the header of a trace: keys with JSON values, such as `cupti_version`.
    pub metadata: Vec<(String, String)>,
    /// The library that it uses.
    pub library: Option<PathBuf>,
    /// Whether records were seen to arrive; `None` where that cannot be shown.
    pub proven: Option<bool>,
    /// The kind of devices whose memory it records: what allocators of the program report of those is left out, since it is
    /// the same memory.
    pub memory_of: Option<DeviceType>,
    /// Whether something that was selected is not recorded, or only in part; `notes` state what.
    pub is_incomplete: bool,
    /// What is not as it could be, in sentences.
    pub notes: Vec<String>,
}
