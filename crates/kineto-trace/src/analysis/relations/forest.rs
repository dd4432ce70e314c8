//! The host's operations as a forest by time; an only child of its parent's name is merged with the parent.

use super::nesting::{Nesting, OpenSlices};
use crate::analysis::events::{Event, Events};

/// Slices of the host; parents come before their children.
#[derive(Debug, Default)]
pub(crate) struct Forest {
    pub(crate) nodes: Vec<ForestNode>,
    /// By event: its node, or [`NONE`] if it is not in the forest.
    of_event: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ForestNode {
    pub(super) event: u32,
    /// The node of the enclosing slice.
    parent: u32,
    /// Its own number, or that of the node that it is merged into.
    merged_into: u32,
    children: u32,
    /// How long its thread is in it, in nanoseconds.
    inside_ns: u64,
}

/// The number that means "no node".
const NONE: u32 = u32::MAX;

impl Forest {
    /// Adds all slices of `nesting`.
    pub(crate) fn new(events: &Events, nesting: &Nesting) -> Forest {
        let mut forest = Forest { nodes: Vec::new(), of_event: vec![NONE; events.len()] };
        for event in nesting.iter(events) {
            let parent = nesting.parent(event).and_then(|around| forest.of_event.get(around.index()).copied());
            forest.push_node(event.index(), parent.unwrap_or(NONE), nesting.active_ns(event));
        }
        forest
    }

    fn push_node(&mut self, event: usize, parent: u32, inside_ns: u64) {
        let number = u32::try_from(self.nodes.len()).unwrap_or(NONE);
        if let Some(slot) = self.of_event.get_mut(event) {
            *slot = number;
        }
        let event = u32::try_from(event).unwrap_or(NONE);
        self.nodes.push(ForestNode { event, parent, merged_into: number, children: 0, inside_ns });
        if let Some(parent) = self.nodes.get_mut(parent as usize) {
            parent.children += 1;
        }
    }

    /// Merges an only child into a parent of the same name; torch's `_remove_dup_nodes`.
    ///
    /// Work that either of them launched counts for the parent; torch drops the parent's own.
    pub(crate) fn merge_same_named_only_children(mut self, events: &Events) -> Forest {
        let name = |node: &ForestNode| events.rows.get(node.event as usize).map(|row| row.name);
        // A parent comes before its children, so its `merged_into` is final.
        for number in 0..self.nodes.len() {
            let Some(&node) = self.nodes.get(number) else { continue };
            let Some(parent) = self.nodes.get(node.parent as usize).map(|parent| parent.merged_into) else { continue };
            let Some(around) = self.nodes.get_mut(parent as usize) else { continue };
            // The arguments of spans already tell which enters are calls.
            let is_same = around.children == 1
                && name(around) == name(&node)
                && events.get(node.event as usize).is_some_and(|event| event.span().is_none());
            if is_same {
                around.children = node.children;
            }
            if let Some(node) = self.nodes.get_mut(number) {
                node.parent = parent;
                node.merged_into = if is_same { parent } else { node.merged_into };
            }
        }
        self
    }

    /// Returns the node that an event counts as, if it is in the forest.
    pub(crate) fn node_of(&self, event: usize) -> Option<usize> {
        let node = *self.of_event.get(event)?;
        self.nodes.get(node as usize).map(|node| node.merged_into as usize)
    }

    pub(crate) fn node_event<'e>(&self, events: &'e Events, node: usize) -> Option<Event<'e>> {
        events.get(self.nodes.get(node)?.event as usize)
    }

    /// Returns the nodes that are not merged into another, parents before children.
    pub(crate) fn unmerged_nodes(&self) -> impl DoubleEndedIterator<Item = usize> {
        let counts = |(number, node): (usize, &ForestNode)| (node.merged_into as usize == number).then_some(number);
        self.nodes.iter().enumerate().filter_map(counts)
    }

    /// Returns the parent of a node.
    pub(crate) fn parent(&self, node: usize) -> Option<usize> {
        self.nodes.get(node).filter(|node| node.parent != NONE).map(|node| node.parent as usize)
    }

    /// Returns the time of each node without its children's, in nanoseconds; 0 for merged nodes.
    pub(crate) fn self_ns(&self) -> Vec<i64> {
        let mut own = vec![0i64; self.nodes.len()];
        for number in self.unmerged_nodes() {
            let ns = self.nodes.get(number).map_or(0, |node| i64::try_from(node.inside_ns).unwrap_or(i64::MAX));
            let mut add = |node: usize, ns: i64| own.get_mut(node).map(|own| *own = own.saturating_add(ns));
            add(number, ns);
            self.parent(number).and_then(|parent| add(parent, -ns));
        }
        own
    }

    /// Returns for each node itself, or its ancestor at the depth `most` if it is deeper.
    pub(crate) fn outer_nodes(&self, most: u32) -> Vec<u32> {
        let mut outer: Vec<(u32, u32)> = Vec::with_capacity(self.nodes.len());
        for (number, node) in (0..).zip(&self.nodes) {
            let around = outer.get(node.parent as usize).copied();
            outer.push(match around {
                Some((shown, depth)) if depth >= most => (shown, depth),
                Some((_, depth)) => (number, depth + 1),
                None => (number, 1),
            });
        }
        outer.into_iter().map(|(shown, _)| shown).collect()
    }

    /// Returns the events of a node and of its ancestors, innermost first.
    pub(crate) fn self_and_ancestors<'a>(
        &'a self,
        events: &'a Events,
        node: Option<usize>,
    ) -> impl Iterator<Item = Event<'a>> {
        std::iter::successors(node, |node| self.parent(*node)).filter_map(|node| self.node_event(events, node))
    }

    /// Returns a cursor that tracks open slices over time.
    pub(crate) fn sweep<'a>(&'a self, events: &'a Events) -> Sweep<'a> {
        Sweep { forest: self, events, next: 0, open: OpenSlices::new(events) }
    }
}

/// Tracks the open slices of each thread, in order of time.
#[derive(Debug)]
pub(crate) struct Sweep<'a> {
    forest: &'a Forest,
    events: &'a Events,
    next: usize,
    open: OpenSlices<'a>,
}

impl Sweep<'_> {
    /// Returns the node of the innermost slice that is open on the thread of `event` at its start.
    ///
    /// Events must come in order of their start.
    pub(crate) fn innermost_node(&mut self, event: &Event<'_>) -> Option<usize> {
        while let Some(next) =
            self.forest.node_event(self.events, self.next).filter(|next| next.start() <= event.start())
        {
            self.open.innermost_slice(&next);
            self.open.push(&next, self.next);
            self.next += 1;
        }
        let node = self.open.innermost_slice(event)?;
        self.forest.nodes.get(node).map(|node| node.merged_into as usize)
    }
}
