//! Numbers the nodes of an execution trace, and finds their parents.

use crate::activity::{Activity, ActivityType, Body, Lane, Track};
use kineto_base::fallible::{List, Map};
use kineto_base::time::Timestamp;

/// The number of a node: 0 for none, 1 for the process, then in the order of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeId(pub(super) u64);

impl NodeId {
    pub(super) const NONE: NodeId = NodeId(0);
    pub(super) const PROCESS: NodeId = NodeId(1);
}

/// Assigns numbers to operations, and tracks the open operations of each thread.
#[derive(Debug)]
pub(super) struct Nodes {
    next: u64,
    threads: Map<(i64, i64), ThreadState>,
    /// Whether the first thread's first child is the node of the process groups.
    with_groups: bool,
}

/// The open operations of a thread.
#[derive(Debug)]
struct ThreadState {
    node: NodeId,
    /// Operations that have not ended, innermost last.
    open: List<(Timestamp, NodeId)>,
}

/// The numbers of an operation and of its parents.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodePlace {
    pub(super) id: NodeId,
    pub(super) parent: NodeId,
    pub(super) thread_node: NodeId,
    /// Whether the thread's node must be written first.
    pub(super) is_first: bool,
    /// The node of the process groups, written after the first thread's node.
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

    /// Returns the numbers of an activity; `None` if it is not an operation of a thread.
    ///
    /// Activities of a thread come in order of their start; those of one row nest.
    pub(super) fn place_activity(&mut self, activity: &Activity<'_>) -> Option<NodePlace> {
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
            ThreadState { node, open: List::new() }
        });
        let id = new();
        let parent = its.innermost_node(start);
        its.open.push((end, id));
        Some(NodePlace { id, parent, thread_node: its.node, is_first, groups, process, thread, start })
    }

    /// Returns the innermost open operation of a thread at a time after all starts so far; `None` if the thread has no
    /// operations yet.
    pub(super) fn innermost_node(&mut self, thread: (i64, i64), at: Timestamp) -> Option<NodeId> {
        self.threads.get_mut(&thread).map(|thread| thread.innermost_node(at))
    }
}

impl ThreadState {
    /// Returns the thread's node if no operation is open.
    fn innermost_node(&mut self, at: Timestamp) -> NodeId {
        while self.open.pop_if(|(end, _)| *end <= at).is_some() {}
        self.open.last().map_or(self.node, |(_, id)| *id)
    }
}

/// Returns the process, the thread, and the times of an operation.
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
