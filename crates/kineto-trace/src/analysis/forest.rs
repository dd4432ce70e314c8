//! The host's operations as averages count them: a forest by time, in which only children of one name are their parents.

use super::event::Event;
use super::events::Events;
use super::nesting::{Nesting, OpenSlices};

/// Slices of the host, each behind the one around it.
#[derive(Debug, Default)]
pub(super) struct Forest {
    pub(super) nodes: Vec<ForestNode>,
    /// The node of each event, [`NONE`] for those that are not in the forest.
    of_event: Vec<u32>,
}

/// One slice of the host.
#[derive(Clone, Copy, Debug)]
pub(super) struct ForestNode {
    pub(super) event: u32,
    /// The slice around it.
    parent: u32,
    /// Itself, or the slice of the same name that it is counted with.
    counts_as: u32,
    children: u32,
    /// How long its thread is in it.
    inside_ns: u64,
}

/// No node.
const NONE: u32 = u32::MAX;

impl Forest {
    /// Takes all slices that nest.
    pub(super) fn new(events: &Events, nesting: &Nesting) -> Forest {
        let mut forest = Forest { nodes: Vec::new(), of_event: vec![NONE; events.len()] };
        for event in nesting.iter(events) {
            let parent = nesting.parent(event).and_then(|around| forest.of_event.get(around.index()).copied());
            forest.push(event.index(), parent.unwrap_or(NONE), nesting.inside_ns(event));
        }
        forest
    }

    fn push(&mut self, event: usize, parent: u32, inside_ns: u64) {
        let number = u32::try_from(self.nodes.len()).unwrap_or(NONE);
        if let Some(slot) = self.of_event.get_mut(event) {
            *slot = number;
        }
        let event = u32::try_from(event).unwrap_or(NONE);
        self.nodes.push(ForestNode { event, parent, counts_as: number, children: 0, inside_ns });
        if let Some(parent) = self.nodes.get_mut(parent as usize) {
            parent.children += 1;
        }
    }

    /// Counts only children with their parents where they have one name; torch's `_remove_dup_nodes`.
    ///
    /// What either launched counts for the parent; torch forgets what the parent itself did.
    pub(super) fn merge_namesakes(mut self, events: &Events) -> Forest {
        let name = |node: &ForestNode| events.rows.get(node.event as usize).map(|row| row.name);
        // A parent comes before its children, so what it counts as is known.
        for number in 0..self.nodes.len() {
            let Some(&node) = self.nodes.get(number) else { continue };
            let Some(parent) = self.nodes.get(node.parent as usize).map(|parent| parent.counts_as) else { continue };
            let Some(around) = self.nodes.get_mut(parent as usize) else { continue };
            let is_same = around.children == 1 && name(around) == name(&node);
            if is_same {
                around.children = node.children;
            }
            if let Some(node) = self.nodes.get_mut(number) {
                node.parent = parent;
                node.counts_as = if is_same { parent } else { node.counts_as };
            }
        }
        self
    }

    /// Returns the node as which that event counts, if it is in the forest.
    pub(super) fn of(&self, event: usize) -> Option<usize> {
        let node = *self.of_event.get(event)?;
        self.nodes.get(node as usize).map(|node| node.counts_as as usize)
    }

    /// Returns the event of a node.
    pub(super) fn event<'e>(&self, events: &'e Events, node: usize) -> Option<Event<'e>> {
        events.get(self.nodes.get(node)?.event as usize)
    }

    /// Returns the nodes that stand for themselves, parents before children.
    pub(super) fn counted(&self) -> impl DoubleEndedIterator<Item = usize> {
        let counts = |(number, node): (usize, &ForestNode)| (node.counts_as as usize == number).then_some(number);
        self.nodes.iter().enumerate().filter_map(counts)
    }

    /// Returns the node around another, if there is one.
    pub(super) fn parent(&self, node: usize) -> Option<usize> {
        self.nodes.get(node).filter(|node| node.parent != NONE).map(|node| node.parent as usize)
    }

    /// Returns the time of each node without its children's, in nanoseconds; 0 for those that count as another.
    pub(super) fn self_ns(&self) -> Vec<i64> {
        let mut own = vec![0i64; self.nodes.len()];
        for number in self.counted() {
            let ns = self.nodes.get(number).map_or(0, |node| i64::try_from(node.inside_ns).unwrap_or(i64::MAX));
            let mut add = |node: usize, ns: i64| own.get_mut(node).map(|own| *own = own.saturating_add(ns));
            add(number, ns);
            self.parent(number).and_then(|parent| add(parent, -ns));
        }
        own
    }

    /// Returns a node's event and those around it, from the innermost.
    pub(super) fn ancestry<'a>(&'a self, events: &'a Events, node: Option<usize>) -> impl Iterator<Item = Event<'a>> {
        std::iter::successors(node, |node| self.parent(*node)).filter_map(|node| self.event(events, node))
    }

    /// Follows the time.
    pub(super) fn sweep<'a>(&'a self, events: &'a Events) -> Sweep<'a> {
        Sweep { forest: self, events, next: 0, open: OpenSlices::new(events) }
    }
}

/// The slices that are open on each thread, followed in the order of time.
#[derive(Debug)]
pub(super) struct Sweep<'a> {
    forest: &'a Forest,
    events: &'a Events,
    next: usize,
    open: OpenSlices<'a>,
}

impl Sweep<'_> {
    /// Returns what the slice that the thread of `event` is in when that begins counts as.
    ///
    /// `event` starts no earlier than that of the call before.
    pub(super) fn innermost(&mut self, event: &Event<'_>) -> Option<usize> {
        while let Some(next) = self.forest.event(self.events, self.next).filter(|next| next.start() <= event.start()) {
            self.open.innermost(&next);
            self.open.push(&next, self.next);
            self.next += 1;
        }
        let node = self.open.innermost(event)?;
        self.forest.nodes.get(node).map(|node| node.counts_as as usize)
    }
}
