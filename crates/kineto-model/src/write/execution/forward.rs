//! Finds the operation that the forward thread was in when a backward operation began.
//!
//! Rows come thread by thread, so the forward thread may come later. Two passes precede the one that writes: the first
//! collects lookups, the second resolves them. They store data for backward operations only.

use std::fmt;

use super::nodes::{NodeId, Nodes, as_operation};
use super::operation::forward_thread;
use crate::activity::Activity;
use kineto_base::fallible::{List, Map};
use kineto_base::time::Timestamp;

/// A process id and a thread id.
type Thread = (i64, i64);

/// The threads and times to look up.
#[derive(Default)]
pub struct ForwardQueries(Map<Thread, List<Timestamp>>);

impl fmt::Debug for ForwardQueries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForwardQueries").finish_non_exhaustive()
    }
}

/// The resolved lookups.
#[derive(Default)]
pub struct ForwardParents {
    nodes: Nodes,
    /// By thread: unresolved times, the earliest last.
    open: Map<Thread, List<Timestamp>>,
    found: Map<(Thread, Timestamp), NodeId>,
}

impl fmt::Debug for ForwardParents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForwardParents").finish_non_exhaustive()
    }
}

impl ForwardQueries {
    /// Collects the lookup of an activity; activities come in the order of the file.
    pub fn add_activity(&mut self, activity: &Activity<'_>) {
        let Some((process, _, start, _)) = as_operation(activity) else { return };
        if let Some(forward) = forward_thread(activity) {
            self.0.get_or_insert_with((process, forward), List::new).push(start);
        }
    }

    /// Returns whether no forward operation is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Starts the second pass, which gets all activities again.
    pub fn into_second_pass(mut self, with_groups: bool) -> ForwardParents {
        self.0.values_mut().for_each(|times| times.sort_unstable_by_key(|at| std::cmp::Reverse(*at)));
        ForwardParents { open: self.0, nodes: Nodes::new(with_groups), ..ForwardParents::default() }
    }
}

impl ForwardParents {
    /// Resolves the lookups that precede an activity.
    pub fn add_activity(&mut self, activity: &Activity<'_>) {
        let Some((process, thread, start, _)) = as_operation(activity) else { return };
        self.resolve_lookups((process, thread), Some(start));
        self.nodes.place_activity(activity);
    }

    /// Resolves the lookups after the last activity.
    pub fn finish(mut self) -> ForwardParents {
        let threads: List<Thread> = self.open.keys().copied().collect();
        threads.into_iter().for_each(|thread| self.resolve_lookups(thread, None));
        self
    }

    /// Returns the node that a thread was in at that time.
    pub(super) fn node_at(&self, thread: Thread, at: Timestamp) -> NodeId {
        self.found.get(&(thread, at)).copied().unwrap_or(NodeId::NONE)
    }

    fn resolve_lookups(&mut self, thread: Thread, before: Option<Timestamp>) {
        let Some(open) = self.open.get_mut(&thread) else { return };
        while let Some(at) = open.pop_if(|at| before.is_none_or(|before| *at < before)) {
            if let Some(node) = self.nodes.innermost_node(thread, at) {
                self.found.insert((thread, at), node);
            }
        }
    }
}
