//! Which node an operation is, and below which it hangs.

use crate::activity::{Activity, ActivityType, Body, Lane, Track};
use crate::fallible::{List, Map};
use crate::time::Timestamp;

/// A node's number: 0 for none, 1 for the process, the others in the order of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeId(pub(super) u64);

impl NodeId {
    pub(super) const NONE: NodeId = NodeId(0);
    pub(super) const PROCESS: NodeId = NodeId(1);
}

/// Gives operations their numbers, and knows what each thread is in.
#[derive(Debug)]
pub(super) struct Nodes {
    next: u64,
    threads: Map<(i64, i64), Thread>,
    /// The first thread's first node is that of the process groups.
    with_groups: bool,
}

/// What a thread is in.
#[derive(Debug)]
struct Thread {
    node: NodeId,
    /// The operations that have not ended, the innermost last.
    open: List<(Timestamp, NodeId)>,
}

/// Where an operation stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) id: NodeId,
    pub(super) parent: NodeId,
    pub(super) thread_node: NodeId,
    /// The thread's node is not written yet.
    pub(super) is_first: bool,
    /// The node of the process groups, to be written behind the first thread's.
    pub(super) groups: Option<NodeId>,
    pub(super) process: i64,
    pub(super) thread: i64,
    pub(super) start: Timestamp,
}

impl Default for Nodes {
    fn default() -> Self {
        Nodes::new(false)
    }
}

impl Nodes {
    pub(super) fn new(with_groups: bool) -> Nodes {
        Nodes { next: NodeId::PROCESS.0 + 1, threads: Map::default(), with_groups }
    }

    /// Returns where an activity stands; `None` if it is no operation of a thread.
    ///
    /// Activities of a thread come in order of their start; those of one row nest.
    pub(super) fn place(&mut self, activity: &Activity<'_>) -> Option<Place> {
        let (process, thread, start, end) = as_operation(activity)?;
        let mut new = || {
            self.next += 1;
            NodeId(self.next - 1)
        };
        let (mut is_first, mut groups) = (false, None);
        let its = self.threads.get_or_insert_with((process, thread), || {
            is_first = true;
            let node = new();
            groups = std::mem::take(&mut self.with_groups).then(&mut new);
            Thread { node, open: List::new() }
        });
        let id = new();
        let parent = its.innermost(start);
        its.open.push((end, id));
        Some(Place { id, parent, thread_node: its.node, is_first, groups, process, thread, start })
    }

    /// Returns what a thread is in at that time, which is later than the start of all that came; `None` if none of its
    /// operations has come.
    pub(super) fn innermost(&mut self, thread: (i64, i64), at: Timestamp) -> Option<NodeId> {
        self.threads.get_mut(&thread).map(|thread| thread.innermost(at))
    }
}

impl Thread {
    /// Its own node if it is in nothing.
    fn innermost(&mut self, at: Timestamp) -> NodeId {
        while self.open.pop_if(|(end, _)| *end <= at).is_some() {}
        self.open.last().map_or(self.node, |(_, id)| *id)
    }
}

/// The process, the thread, and the times of an operation.
pub(super) fn as_operation(activity: &Activity<'_>) -> Option<(i64, i64, Timestamp, Timestamp)> {
    use ActivityType as T;

    match (activity.kind, activity.track, activity.body) {
        (
            T::CpuOp | T::UserAnnotation | T::CollectiveComm,
            Track { process: Lane::Id(process), thread: Lane::Id(thread) },
            Body::Slice { start, end },
        ) => Some((process, thread, start, end)),
        _ => None,
    }
}
