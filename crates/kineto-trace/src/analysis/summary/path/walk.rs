//! The walk from the end of a window back to its start.

use super::device::{CallRole, shares_device};
use super::host::{Segment, is_container};
use super::{PathContext, PathKind, PathPiece};
use crate::analysis::events::Event;
use crate::analysis::summary::work::{Work, WorkClass};
use crate::time::Timestamp;
use std::ops::Range;

/// The pieces of a path, last first.
///
/// It ends: each edge lowers `at`, or keeps it and lowers `visited`, or is the only change of thread at that time.
pub(in crate::analysis) struct PathWalk<'w, 'e> {
    context: &'w PathContext<'w, 'e>,
    start: Timestamp,
    /// The time up to which the walk has come; later pieces are already returned.
    at: Timestamp,
    node: PathNode,
    /// By thread: how many of its segments can begin before `at`.
    segments: Vec<usize>,
    /// An upper bound of the pieces of work that ended by `at`.
    ended: usize,
    /// The index of the work visited last; the walk only visits work with a lower one from there.
    visited: usize,
    /// When the walk last went to another thread: at one time, annotations of two threads could lead to each other forever.
    changed_thread: Option<Timestamp>,
}

/// Where the walk continues.
#[derive(Clone, Copy, Debug)]
enum PathNode {
    /// A host thread.
    Thread(usize),
    /// Device work that runs.
    Work(usize),
    /// The start of device work.
    WorkStart(usize),
    /// No known predecessor.
    Unknown,
}

/// A piece without its end, and what comes before it.
struct PathEdge<'e> {
    kind: PathKind,
    event: Option<Event<'e>>,
    start: Timestamp,
    next: PathNode,
}

impl<'w, 'e> PathWalk<'w, 'e> {
    pub(super) fn new(context: &'w PathContext<'w, 'e>, window: Range<Timestamp>) -> PathWalk<'w, 'e> {
        let node = find_end(context, &window);
        let (segments, visited) = (context.host.segment_counts(window.end), usize::MAX);
        let ended = context.order.count_ended(window.end);
        PathWalk { context, start: window.start, at: window.end, node, segments, ended, visited, changed_thread: None }
    }

    fn work(&self, number: usize) -> Option<&'w Work<'e>> {
        self.context.devices.work.get(number)
    }

    fn edge(&mut self) -> PathEdge<'e> {
        let edge = match self.node {
            PathNode::Thread(thread) => Some(self.edge_on_thread(thread)),
            PathNode::Work(number) => self.work(number).map(|work| self.edge_through_work(number, work)),
            PathNode::WorkStart(number) => self.work(number).map(|work| self.edge_before_work(number, work)),
            PathNode::Unknown => None,
        };
        edge.unwrap_or(PathEdge { kind: PathKind::Idle, event: None, start: self.start, next: PathNode::Unknown })
    }

    fn edge_on_thread(&mut self, thread: usize) -> PathEdge<'e> {
        let segment =
            self.segments.get_mut(thread).and_then(|count| self.context.host.segment_before(thread, count, self.at));
        let Some(segment) = segment else { return self.edge_outside_operations(PathKind::Idle, None, thread, None) };
        if segment.end < self.at {
            // Without a later slice, nothing shows that the thread still ran.
            let has_next =
                self.segments.get(thread).is_some_and(|before| *before < self.context.host.segment_count(thread));
            let kind = if has_next { PathKind::OutsideOperations } else { PathKind::Idle };
            return self.edge_outside_operations(kind, None, thread, Some(segment.end));
        }
        match segment.slice(self.context.events) {
            Some(slice) if is_container(&slice) => {
                self.edge_outside_operations(PathKind::OutsideOperations, Some(slice), thread, Some(segment.start))
            }
            Some(slice) if slice.is_call() => self.edge_through_call(slice, segment, thread),
            slice => PathEdge {
                kind: PathKind::Operation,
                event: slice,
                start: segment.start,
                next: PathNode::Thread(thread),
            },
        }
    }

    /// Goes back on a thread outside operations, or to the thread that woke it.
    fn edge_outside_operations(
        &mut self,
        kind: PathKind,
        event: Option<Event<'e>>,
        thread: usize,
        since: Option<Timestamp>,
    ) -> PathEdge<'e> {
        let may_change = self.changed_thread != Some(self.at);
        match may_change.then(|| self.context.host.find_waker(thread, since, self.at)).flatten() {
            Some((end, waker)) => {
                self.changed_thread = Some(end);
                PathEdge { kind: PathKind::ThreadWait, event, start: end, next: PathNode::Thread(waker) }
            }
            None => PathEdge {
                kind,
                event,
                start: since.unwrap_or(self.start),
                next: since.map_or(PathNode::Unknown, |_| PathNode::Thread(thread)),
            },
        }
    }

    fn edge_through_call(&mut self, call: Event<'e>, segment: Segment, thread: usize) -> PathEdge<'e> {
        let role = CallRole::of(call.name());
        let (order, devices, visited) = (self.context.order, self.context.devices, self.visited);
        let is_awaited = |work: &Work<'e>| match role {
            CallRole::Synchronizes => order.is_awaited(&call, work),
            _ => work.launch.is_some_and(|launch| launch.index() == call.index()),
        };
        let waits = matches!(role, CallRole::Synchronizes | CallRole::Copies);
        let times = (segment.start, self.at);
        let awaited = waits.then(|| order.last_ended(devices, &mut self.ended, visited, times, is_awaited)).flatten();
        let event = Some(call);
        match awaited {
            Some((number, work)) => {
                PathEdge { kind: PathKind::DeviceWait, event, start: work.end(), next: PathNode::Work(number) }
            }
            None => {
                let kind = if role == CallRole::Synchronizes { PathKind::DeviceWait } else { PathKind::Call };
                PathEdge { kind, event, start: segment.start, next: PathNode::Thread(thread) }
            }
        }
    }

    fn edge_through_work(&mut self, number: usize, work: &'w Work<'e>) -> PathEdge<'e> {
        if work.end() < self.at {
            return PathEdge { kind: PathKind::Idle, event: None, start: work.end(), next: self.node };
        }
        self.visited = number;
        let kind = match work.class {
            WorkClass::Compute => PathKind::Compute,
            WorkClass::Communication => PathKind::Communication,
            WorkClass::Memory => PathKind::Copy,
            WorkClass::Wait => match self.find_other_stream(work, work.start()) {
                Some(edge) => return edge,
                None => PathKind::StreamWait,
            },
        };
        PathEdge { kind, event: Some(work.event), start: work.start(), next: PathNode::WorkStart(number) }
    }

    /// Goes back from the start of work to the last of its launch, the work before it, and the work that it waited for.
    fn edge_before_work(&mut self, number: usize, work: &'w Work<'e>) -> PathEdge<'e> {
        let context = self.context;
        let launch = work.sure_launch().map(|launch| {
            (launch.end().min(self.at), PathKind::LaunchDelay, PathNode::Thread(context.host.thread_of(&launch)))
        });
        let after = |found: Option<usize>, kind| {
            let number = found.filter(|found| *found < self.visited)?;
            Some((self.work(number)?.end().min(self.at), kind, PathNode::Work(number)))
        };
        let gap_kind = if work.sure_launch().is_some() { PathKind::KernelGap } else { PathKind::UnknownLaunch };
        let source = after(context.order.event_source(context.devices, number), PathKind::StreamWait);
        // At equal times the first counts.
        let before = [launch, source, after(context.order.previous(number), gap_kind)];
        let last = before.into_iter().flatten().rev().max_by_key(|(end, ..)| *end);
        let ready = last.map_or(self.start, |(end, ..)| end);
        // What the trace says outweighs a guess.
        let other = if source.is_none() { self.find_other_stream(work, ready) } else { None };
        if let Some(edge) = other {
            return edge;
        }
        let (start, kind, next) = last.unwrap_or((self.start, PathKind::UnknownLaunch, PathNode::Unknown));
        PathEdge { kind, event: Some(work.event), start, next }
    }

    /// Goes back to the work of another stream that ended last while `work` was ready.
    fn find_other_stream(&mut self, work: &Work<'e>, ready: Timestamp) -> Option<PathEdge<'e>> {
        let (devices, visited) = (self.context.devices, self.visited);
        let is_candidate = |other: &Work<'e>| shares_device(devices, work, other);
        let times = (ready, self.at);
        let (number, other) = self.context.order.last_ended(devices, &mut self.ended, visited, times, is_candidate)?;
        let (kind, event) = (PathKind::StreamWait, Some(work.event));
        Some(PathEdge { kind, event, start: other.end(), next: PathNode::Work(number) })
    }
}

impl<'e> Iterator for PathWalk<'_, 'e> {
    type Item = PathPiece<'e>;

    fn next(&mut self) -> Option<PathPiece<'e>> {
        while self.at > self.start {
            let edge = self.edge();
            self.node = edge.next;
            let (start, end) = (edge.start.clamp(self.start, self.at), self.at);
            self.at = start;
            if start < end {
                return Some(PathPiece { kind: edge.kind, event: edge.event, start, end });
            }
        }
        None
    }
}

/// Returns where the path of a window ends.
fn find_end(context: &PathContext<'_, '_>, window: &Range<Timestamp>) -> PathNode {
    let Some(event) = context.ends.find_last(context.events, window) else { return PathNode::Unknown };
    if !event.is_device_work() {
        return PathNode::Thread(context.host.thread_of(&event));
    }
    // Work is in the order of the events.
    let number = context.devices.work.binary_search_by_key(&event.index(), |work| work.event.index());
    number.map_or(PathNode::Unknown, PathNode::Work)
}
