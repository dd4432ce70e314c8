//! What the forward thread of a backward operation was in when that began.
//!
//! Rows come thread by thread, so what is asked for may come later. Two walks before the one that writes find it: the first
//! takes down what is asked, the second answers. They keep something for backward operations alone.

use std::fmt;

use super::nodes::{NodeId, Nodes, as_operation};
use super::operation::forward_thread;
use crate::activity::Activity;
use crate::fallible::{List, Map};
use crate::time::Timestamp;

/// A process and a thread of it.
type Thread = (i64, i64);

/// What is asked: threads, and when.
#[derive(Default)]
pub struct Questions(Map<Thread, List<Timestamp>>);

impl fmt::Debug for Questions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Questions").finish_non_exhaustive()
    }
}

/// The answers.
#[derive(Default)]
pub struct Answers {
    nodes: Nodes,
    /// Of each thread, what is not answered yet, the first one last.
    open: Map<Thread, List<Timestamp>>,
    found: Map<(Thread, Timestamp), NodeId>,
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers").finish_non_exhaustive()
    }
}

impl Questions {
    /// Takes down what an activity asks; they come in the order of the file.
    pub fn take(&mut self, activity: &Activity<'_>) {
        let Some((process, _, start, _)) = as_operation(activity) else { return };
        if let Some(forward) = forward_thread(activity) {
            self.0.get_or_insert_with((process, forward), List::new).push(start);
        }
    }

    /// Returns whether nothing is asked.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Goes on to the answers, for which all activities come once more.
    pub fn answers(mut self, with_groups: bool) -> Answers {
        self.0.values_mut().for_each(|times| times.sort_unstable_by_key(|at| std::cmp::Reverse(*at)));
        Answers { open: self.0, nodes: Nodes::new(with_groups), ..Answers::default() }
    }
}

impl Answers {
    /// Takes an activity, before which some of the questions lie.
    pub fn take(&mut self, activity: &Activity<'_>) {
        let Some((process, thread, start, _)) = as_operation(activity) else { return };
        self.answer((process, thread), Some(start));
        self.nodes.place(activity);
    }

    /// Answers what lies behind all activities.
    pub fn finish(mut self) -> Answers {
        let threads: List<Thread> = self.open.keys().copied().collect();
        threads.into_iter().for_each(|thread| self.answer(thread, None));
        self
    }

    /// Returns what a thread was in at that time.
    pub(super) fn of(&self, thread: Thread, at: Timestamp) -> NodeId {
        self.found.get(&(thread, at)).copied().unwrap_or(NodeId::NONE)
    }

    fn answer(&mut self, thread: Thread, before: Option<Timestamp>) {
        let Some(open) = self.open.get_mut(&thread) else { return };
        while let Some(at) = open.pop_if(|at| before.is_none_or(|before| *at < before)) {
            if let Some(node) = self.nodes.innermost(thread, at) {
                self.found.insert((thread, at), node);
            }
        }
    }
}
