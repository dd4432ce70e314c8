//! The critical path: what the end of a window waited for, traced back to its start.
//!
//! From the last end in the window the walk goes back in time. At each point it continues with the predecessor that ended last. The
//! time from that end to the start of its successor becomes a wait piece, so the pieces tile the window exactly.
//!
//! - Work on a device follows its launch, the work before it in its stream, or the work whose event its stream waited for. Without such
//!   an event, it follows work of another stream that ended while it was ready: streams compete for a device, and traces lack events.
//! - A host thread goes back through its slices. A call that waits for a device follows the work that it waited for.
//! - Outside operations, a thread follows the source of an arrow, or a thread that arrows connect with it. A path never ends at a call that polls.

mod device;
mod ends;
mod export;
mod figures;
mod host;
mod report;
#[cfg(test)]
mod tests;
mod walk;

pub(in crate::analysis) use device::CallRole;
pub(super) use report::{PathText, find_dominated_path, paths_json};

pub use figures::{PathFigures, PathKindFigures, PathNameFigures, PathStretch, StepPath};

use super::steps::StepFigures;
use super::work::Devices;
use crate::Error;
use crate::analysis::events::{Event, Events};
use crate::analysis::relations::{Attribution, Nesting};
use crate::time::Timestamp;
use device::WorkOrder;
use ends::PathEnds;
use host::HostThreads;
use kineto_model::named_values;
use std::cmp::Reverse;
use std::fmt;
use std::ops::Range;
use walk::PathWalk;

/// The critical path of a window; made by [`Events::critical_path`].
///
/// ```
/// use kineto_trace::analysis::{Events, summary::PathKind};
///
/// let trace = br#"{"traceEvents": [
///     {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 0, "dur": 2,
///      "args": {"correlation": 1}},
///     {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 5, "dur": 10,
///      "args": {"correlation": 1, "device": 0, "stream": 7}}
/// ]}"#;
/// let events = Events::from_reader(trace.as_slice())?;
/// let path = events.critical_path(events.slice_range());
/// let pieces: Vec<_> = path.pieces().iter().map(|piece| (piece.kind, piece.duration_ns())).collect();
/// assert_eq!(pieces, [(PathKind::Call, 2_000), (PathKind::LaunchDelay, 3_000), (PathKind::Compute, 10_000)]);
/// # Ok::<(), kineto_trace::Error>(())
/// ```
#[derive(Clone)]
pub struct CriticalPath<'e> {
    window: Range<Timestamp>,
    pieces: Vec<PathPiece<'e>>,
}

/// A piece of a critical path: work, an operation, or a wait.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PathPiece<'e> {
    /// What the time was spent on.
    pub kind: PathKind,
    /// The event that took the time, or that waited. `None` if no slice covers the time: always for `Idle`, sometimes for
    /// `OutsideOperations` and `ThreadWait`.
    pub event: Option<Event<'e>>,
    /// The start.
    pub start: Timestamp,
    /// The end.
    pub end: Timestamp,
}

named_values! {
    /// What a piece of a critical path was spent on.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[non_exhaustive]
    pub enum PathKind {
        /// A kernel computes.
        Compute => "compute",
        /// A kernel communicates.
        Communication => "comm",
        /// A device copies or fills memory.
        Copy => "copy",
        /// A thread is in an operation, without the operations inside it.
        Operation => "operation",
        /// A thread is in a call of the runtime or the driver.
        Call => "call",
        /// A thread is outside operations and calls. The event is the annotation or the interpreter's function around it, if any.
        OutsideOperations => "outside_operations",
        /// Nothing on the path is recorded: before its first or after its last event.
        Idle => "idle",
        /// Launched work has not started: from the end of the launch.
        LaunchDelay => "launch_delay",
        /// Work waits for its turn: from the end of the work before it in its stream.
        KernelGap => "kernel_gap",
        /// Work waits for an event or a resource: from the end of work in another stream. All of a recorded wait if that work is unknown.
        StreamWait => "stream_wait",
        /// A call waits for a device: from the end of the work that it waited for. All of the call if that work is unknown.
        DeviceWait => "device_wait",
        /// A thread waits for another: from the end of the other thread's operation.
        ThreadWait => "thread_wait",
        /// Work without a known launch has not started: from the end of the work before it in its stream, or from the window's start.
        UnknownLaunch => "unknown_launch",
    }

    /// All kinds.
    pub const ALL;

    /// Returns the name in JSON and CSV, such as "`launch_delay`".
    pub const fn as_str;
}

/// Where the time of a [`PathKind`] passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PathPlace {
    /// A device works.
    Device,
    /// A host thread runs.
    Host,
    /// Neither: something waits.
    Wait,
}

impl PathKind {
    /// Returns what it means in a few words, such as "launch delay".
    pub const fn description(self) -> &'static str {
        self.facts().0
    }

    /// Returns where its time passes.
    pub const fn place(self) -> PathPlace {
        self.facts().1
    }

    /// Returns the description and the place.
    const fn facts(self) -> (&'static str, PathPlace) {
        match self {
            PathKind::Compute => ("compute kernels", PathPlace::Device),
            PathKind::Communication => ("communication", PathPlace::Device),
            PathKind::Copy => ("copies and fills", PathPlace::Device),
            PathKind::Operation => ("operations on the host", PathPlace::Host),
            PathKind::Call => ("runtime and driver calls", PathPlace::Host),
            PathKind::OutsideOperations => ("host outside operations", PathPlace::Host),
            PathKind::Idle => ("nothing recorded", PathPlace::Wait),
            PathKind::LaunchDelay => ("launch delay", PathPlace::Wait),
            PathKind::KernelGap => ("gap behind work of the same stream", PathPlace::Wait),
            PathKind::StreamWait => ("wait for another stream", PathPlace::Wait),
            PathKind::DeviceWait => ("wait for the device", PathPlace::Wait),
            PathKind::ThreadWait => ("wait for another thread", PathPlace::Wait),
            PathKind::UnknownLaunch => ("before work whose launch is unknown", PathPlace::Wait),
        }
    }
}

impl fmt::Display for PathKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.description())
    }
}

impl fmt::Debug for CriticalPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CriticalPath").field("window", &self.window).finish_non_exhaustive()
    }
}

impl PathPiece<'_> {
    /// Returns the duration in nanoseconds.
    pub fn duration_ns(&self) -> u64 {
        self.end.since(self.start)
    }
}

impl<'e> CriticalPath<'e> {
    /// Traces the path back from the end of the window.
    pub(in crate::analysis) fn new(
        events: &'e Events,
        devices: &Devices<'e>,
        attribution: &Attribution<'_>,
        window: Range<Timestamp>,
    ) -> CriticalPath<'e> {
        let indexes = PathIndexes::new(events, devices, attribution);
        let mut pieces: Vec<_> = PathContext::new(events, devices, &indexes).walk(window.clone()).collect();
        pieces.reverse();
        CriticalPath { window, pieces }
    }

    /// Returns the window.
    pub fn window(&self) -> Range<Timestamp> {
        self.window.clone()
    }

    /// Returns the pieces in order of time. Each starts where the one before ends; together they fill the window.
    pub fn pieces(&self) -> &[PathPiece<'e>] {
        &self.pieces
    }

    /// Returns the totals by kind and by name.
    pub fn figures(&self) -> PathFigures {
        PathFigures::new(self.window.clone(), self.pieces.iter().copied())
    }
}

impl Events {
    /// Returns the critical path of a window: of the trace ([`slice_range`](Events::slice_range)), of a step
    /// ([`step_range`](Events::step_range)), or from the start of any event to its end.
    ///
    /// An empty window has a path without pieces.
    pub fn critical_path(&self, window: Range<Timestamp>) -> CriticalPath<'_> {
        let attribution = Attribution::new(self, &Nesting::new(self));
        CriticalPath::new(self, &Devices::new(self, &attribution), &attribution, window)
    }

    /// Returns the time from the start of the first slice to the end of the last.
    pub fn slice_range(&self) -> Range<Timestamp> {
        let slices = || self.iter().filter(Event::is_slice);
        let start = slices().next().map_or(Timestamp::default(), |first| first.start());
        start..slices().map(|slice| slice.end()).max().unwrap_or(start)
    }

    /// Returns the time of `ProfilerStep#number`: to its end, or to the end of the last work launched in it if that is later.
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) if the trace has no step of that number.
    pub fn step_range(&self, number: u64) -> Result<Range<Timestamp>, Error> {
        let (start, end) = self.step_window(number)?;
        let attribution = self.attribution();
        let is_inside =
            |event: &Event<'_>| attribution.launch(*event).is_some_and(|launch| (start..end).contains(&launch.start()));
        let work = self.iter().filter(|event| event.is_slice() && event.is_device_work()).filter(is_inside);
        Ok(start..work.map(|work| work.end()).fold(end, Timestamp::max))
    }
}

/// Indexes shared by all walks of a trace.
pub(in crate::analysis) struct PathIndexes<'e> {
    order: WorkOrder,
    host: HostThreads<'e>,
    ends: PathEnds,
}

impl<'e> PathIndexes<'e> {
    pub(in crate::analysis) fn new(
        events: &'e Events,
        devices: &Devices<'e>,
        attribution: &Attribution<'_>,
    ) -> PathIndexes<'e> {
        let (order, host) = (WorkOrder::new(events, devices, attribution), HostThreads::new(events));
        PathIndexes { order, host, ends: PathEnds::new(events) }
    }
}

/// The events of a trace and their indexes.
pub(in crate::analysis) struct PathContext<'c, 'e> {
    events: &'e Events,
    devices: &'c Devices<'e>,
    order: &'c WorkOrder,
    host: &'c HostThreads<'e>,
    ends: &'c PathEnds,
}

impl<'c, 'e> PathContext<'c, 'e> {
    pub(in crate::analysis) fn new(
        events: &'e Events,
        devices: &'c Devices<'e>,
        indexes: &'c PathIndexes<'e>,
    ) -> PathContext<'c, 'e> {
        let PathIndexes { order, host, ends } = indexes;
        PathContext { events, devices, order, host, ends }
    }

    /// Returns the pieces of the path through a window, last first.
    pub(in crate::analysis) fn walk(&self, window: Range<Timestamp>) -> PathWalk<'_, 'e> {
        PathWalk::new(self, window)
    }

    /// Returns the totals of the path through a window.
    fn figures(&self, window: Range<Timestamp>) -> PathFigures {
        PathFigures::new(window.clone(), self.walk(window))
    }
}

/// Returns the paths of the trace, if it has slices, and of its longest step.
pub(super) fn summary_paths(
    events: &Events,
    devices: &Devices<'_>,
    attribution: &Attribution<'_>,
    steps: &[StepFigures],
) -> (Option<PathFigures>, Option<StepPath>) {
    let indexes = PathIndexes::new(events, devices, attribution);
    let paths = PathContext::new(events, devices, &indexes);
    let range = events.slice_range();
    let longest = steps.iter().max_by_key(|step| (step.ns_with_device(), Reverse(step.start)));
    let step_path = longest.map(|step| {
        let end = step.start.as_nanos().saturating_add(step.ns_with_device());
        StepPath { number: step.number, figures: paths.figures(step.start..Timestamp::from_nanos(end)) }
    });
    (events.iter().any(|event| event.is_slice()).then(|| paths.figures(range)), step_path)
}
