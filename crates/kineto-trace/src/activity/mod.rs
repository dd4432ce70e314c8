//! What happened: one activity is one row of the trace, as in libkineto's `ITraceActivity`.
//!
//! An [`Activity`] is a view, made on demand from wherever its record lies; no activity is a heap object.

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
mod unknown;
mod value_kind;

pub use args::{ArgValue, Args, NO_ARGS};
pub use cpu_counters::CPU_COUNTERS;
pub use device::{Accelerator, DeviceType};
pub use group::ActivityGroup;
pub use ids::{CorrelationId, SpanId};
pub use kind::ActivityType;
pub use scope::RecordScope;
pub use set::ActivityTypes;
pub use unknown::UnknownActivity;

/// The group of rows of what collectors cost, below those of devices. In libkineto it is -1, which Perfetto takes for 0, the
/// first device.
#[doc(hidden)]
pub const OVERHEAD_GROUP: i64 = 0x1FFF_FFFF;

use crate::time::Timestamp;

/// One row of the trace, seen where its record lies.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Activity<'t> {
    /// What kind of thing happened; its name is the row's `cat`.
    pub kind: ActivityType,
    /// The name shown on the slice.
    pub name: &'t str,
    /// Where it is drawn.
    pub track: Track<'t>,
    /// When it happened.
    pub body: Body,
    /// Its own id; 0 for rows that have none.
    pub id: CorrelationId,
    /// The host activity that launched this one, if it was launched; 0 if not known.
    pub linked: CorrelationId,
    /// Its end of an arrow, if it has one.
    pub flow: Option<Flow>,
    /// Everything else.
    pub args: &'t dyn Args,
}

impl<'t> Activity<'t> {
    /// Makes one without ids, arrows and arguments, which can be set.
    pub const fn new(kind: ActivityType, name: &'t str, track: Track<'t>, body: Body) -> Activity<'t> {
        const NONE: CorrelationId = CorrelationId(0);
        Activity { kind, name, track, body, id: NONE, linked: NONE, flow: None, args: NO_ARGS }
    }
}

/// When an activity happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// It lasted from `start` to `end` (ph "X").
    Slice {
        /// The first nanosecond.
        start: Timestamp,
        /// The nanosecond after the last.
        end: Timestamp,
    },
    /// It is a point in time (ph "i").
    Instant {
        /// That point.
        at: Timestamp,
    },
    /// It is a set of values read at one time (ph "C"); the activity's args are the series.
    Counter {
        /// When they were read.
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

/// One half of a [`Track`]: a number, or a name as Kineto's "Spans" rows have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane<'t> {
    /// A process, thread, device or stream.
    Id(i64),
    /// A row that stands for no such thing.
    Name(&'t str),
}

impl Track<'_> {
    /// The row `thread` of the group `process`.
    pub const fn new(process: i64, thread: i64) -> Self {
        Track { process: Lane::Id(process), thread: Lane::Id(thread) }
    }
}

/// One end of an arrow between two slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// What the arrow means.
    pub kind: FlowKind,
    /// The arrow's name among those of its kind.
    pub id: u64,
    /// Which end this is.
    pub end: FlowEnd,
}

/// What an arrow means; the value is libkineto's flow type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlowKind {
    /// From a forward operation to its backward operation ("fwdbwd").
    ForwardBackward,
    /// From a launch on the host to what it launched on a device ("ac2g").
    AsyncCpuToGpu,
    /// From a span to one that follows from it ("follows_from"); not in libkineto.
    FollowsFrom,
}

impl FlowKind {
    /// Returns the arrow's category and name in the trace file.
    pub const fn as_str(self) -> &'static str {
        match self {
            FlowKind::ForwardBackward => "fwdbwd",
            FlowKind::AsyncCpuToGpu => "ac2g",
            FlowKind::FollowsFrom => "follows_from",
        }
    }
}

/// Which end of an arrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowEnd {
    /// Where it starts (ph "s").
    Start,
    /// Where it points (ph "f", bound to the enclosing slice).
    Finish,
}
