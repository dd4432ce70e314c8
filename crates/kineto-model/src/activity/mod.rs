//! Activities: the rows of a trace, as in libkineto's `ITraceActivity`.
//!
//! An [`Activity`] is a view that is created on demand from a record; it is never stored on the heap.

mod args;
pub mod catalogue;
mod cpu_counters;
mod device;
#[doc(hidden)]
pub mod field_names;
mod group;
mod ids;
mod kind;
mod scope;
mod set;
mod value_kind;

pub use args::{ArgValue, Args, NO_ARGS};
pub use cpu_counters::CPU_COUNTERS;
pub use device::{Accelerator, DeviceType};
pub use group::ActivityGroup;
pub use ids::{CorrelationId, SpanId};
pub use kind::ActivityType;
pub use scope::RecordScope;
pub use set::ActivityTypes;

/// The process id under which overhead of collectors is drawn, below the devices. libkineto uses -1, which Perfetto
/// takes for 0, the first device.
#[doc(hidden)]
pub const OVERHEAD_GROUP: i64 = 0x1FFF_FFFF;

use crate::named_values;
use kineto_base::time::Timestamp;

/// A view of one row of the trace.
///
/// ```
/// use kineto_trace::Timestamp;
/// use kineto_trace::activity::{Activity, ActivityType, ArgValue, Body, Track};
///
/// let body = Body::Slice { start: Timestamp::from_nanos(1000), end: Timestamp::from_nanos(3000) };
/// let mut slice = Activity::new(ActivityType::CpuOp, "parse", Track::new(1, 7), body);
/// let args = [("bytes", ArgValue::U64(512))];
/// slice.args = &args;
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Activity<'t> {
    /// The type; its name is the row's `cat`.
    pub kind: ActivityType,
    /// The name of the slice.
    pub name: &'t str,
    /// The track on which it is drawn.
    pub track: Track<'t>,
    /// The time of the activity.
    pub body: Body,
    /// Its own id; 0 if none.
    pub id: CorrelationId,
    /// The id of the host activity that launched it; 0 if none or unknown.
    pub linked: CorrelationId,
    /// An end of an arrow.
    pub flow: Option<Flow>,
    /// All other arguments.
    pub args: &'t dyn Args,
}

impl<'t> Activity<'t> {
    /// Returns an activity without ids, arrows and arguments.
    pub const fn new(kind: ActivityType, name: &'t str, track: Track<'t>, body: Body) -> Activity<'t> {
        const NONE: CorrelationId = CorrelationId(0);
        Activity { kind, name, track, body, id: NONE, linked: NONE, flow: None, args: NO_ARGS }
    }
}

/// The time of an activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// A slice from `start` to `end` (ph "X").
    Slice {
        /// The first nanosecond.
        start: Timestamp,
        /// The nanosecond after the last.
        end: Timestamp,
    },
    /// A point in time (ph "i").
    Instant {
        /// The point in time.
        at: Timestamp,
    },
    /// A set of values read at one time (ph "C"); the arguments are the series.
    Counter {
        /// When the values were read.
        at: Timestamp,
    },
}

/// A row of the viewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Track<'t> {
    /// The group of rows: a process, a device, or a name.
    pub process: Lane<'t>,
    /// The row: a thread, a stream, or a name.
    pub thread: Lane<'t>,
}

/// One half of a [`Track`]: a number, or a name such as Kineto's "Spans".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane<'t> {
    /// A process, thread, device or stream.
    Id(i64),
    /// A named row, such as Kineto's "Spans".
    Name(&'t str),
}

impl Track<'_> {
    /// Returns the row `thread` of the group `process`.
    pub const fn new(process: i64, thread: i64) -> Self {
        Track { process: Lane::Id(process), thread: Lane::Id(thread) }
    }
}

/// One end of an arrow between two slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// What the arrow means.
    pub kind: FlowKind,
    /// The arrow's id, unique among arrows of its kind.
    pub id: u64,
    /// The end of the arrow.
    pub end: FlowEnd,
}

named_values! {
    /// The meaning of an arrow; the value is libkineto's flow type.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum FlowKind {
        /// From a forward operation to its backward operation ("fwdbwd").
        ForwardBackward => "fwdbwd",
        /// From a launch on the host to the device work ("ac2g").
        AsyncCpuToGpu => "ac2g",
        /// From a span to a span that follows from it ("follows_from"); not in libkineto.
        FollowsFrom => "follows_from",
    }

    /// All meanings.
    pub const ALL;

    /// Returns the arrow's category and name in the trace file.
    pub const fn as_str;
}

/// An end of an arrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowEnd {
    /// The start (ph "s").
    Start,
    /// The target (ph "f", bound to the enclosing slice).
    Finish,
}
