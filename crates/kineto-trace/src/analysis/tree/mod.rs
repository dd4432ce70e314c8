//! The events as a tree.

mod intervals;
mod spans;

use super::events::{Event, Events};
use std::collections::VecDeque;
use std::fmt;

/// The events of a trace as a tree; an event without a parent is a root.
///
/// [`Events::tree`] nests by time, as torch's tables do; [`Events::span_tree`] nests by the spans' own parents. Both
/// put device work below its launch. Construction takes linear time, however deep the tree. For an event of another trace, all
/// answers are empty.
#[derive(Clone)]
pub struct EventTree<'e> {
    events: &'e Events,
    parents: Vec<Option<u32>>,
    depths: Vec<u32>,
    roots: Vec<u32>,
    /// By event: where its children begin in `children`; one more entry marks the end.
    first: Vec<u32>,
    children: Vec<u32>,
    violations: Vec<Violation>,
}

impl fmt::Debug for EventTree<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventTree")
            .field("events", &self.parents.len())
            .field("roots", &self.roots.len())
            .field("violations", &self.violations.len())
            .finish_non_exhaustive()
    }
}

/// An inconsistency in a trace, where torch logs an error or stops. Numbers are indices of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// The event ends after the slice that it began in, so it is a sibling of that slice.
    OutlivesParent {
        /// The event.
        event: usize,
        /// The slice that it began in.
        parent: usize,
    },
    /// The work began before the call that launched it, due to an imprecise clock.
    BeginsBeforeLaunch {
        /// The work.
        event: usize,
        /// The call.
        launch: usize,
    },
    /// A backward operation's forward thread could not be resolved, so it is a root.
    UnknownForwardThread {
        /// The backward operation.
        event: usize,
    },
    /// The trace has no slice of the span's parent, so the slice is a root.
    UnknownParentSpan {
        /// The slice.
        event: usize,
    },
    /// The span is its own ancestor, so the slice is a root.
    Cycle {
        /// The slice.
        event: usize,
    },
}

impl<'e> EventTree<'e> {
    /// Returns the event that this one lies in, or that launched it; `None` for a root.
    pub fn parent(&self, event: Event<'_>) -> Option<Event<'e>> {
        self.event_at(self.parents.get(event.index_in(self.events)?).copied().flatten()?)
    }

    /// Returns the children of an event, in order of their start.
    pub fn children(&self, event: Event<'_>) -> impl DoubleEndedIterator<Item = Event<'e>> + ExactSizeIterator {
        let events = self.events;
        let own = event.index_in(events).map_or(&[][..], |index| self.children_of(index));
        own.iter().map(move |index| Event { events, index: *index as usize })
    }

    /// Returns the events without a parent, in order of their start.
    pub fn roots(&self) -> impl DoubleEndedIterator<Item = Event<'e>> + ExactSizeIterator {
        let events = self.events;
        self.roots.iter().map(move |index| Event { events, index: *index as usize })
    }

    /// Returns the number of ancestors of an event; 0 for a root.
    pub fn depth(&self, event: Event<'_>) -> usize {
        event.index_in(self.events).and_then(|index| self.depths.get(index)).map_or(0, |depth| *depth as usize)
    }

    /// Returns the ancestors of an event, innermost first.
    pub fn ancestors(&self, event: Event<'_>) -> impl Iterator<Item = Event<'e>> {
        std::iter::successors(self.parent(event), |event| self.parent(*event))
    }

    /// Returns all events in depth-first order, parents before children.
    pub fn depth_first(&self) -> impl Iterator<Item = Event<'e>> {
        let mut open: Vec<u32> = self.roots.iter().rev().copied().collect();
        std::iter::from_fn(move || {
            let next = open.pop()?;
            open.extend(self.children_of(next as usize).iter().rev());
            self.event_at(next)
        })
    }

    /// Returns all events in breadth-first order.
    pub fn breadth_first(&self) -> impl Iterator<Item = Event<'e>> {
        let mut open: VecDeque<u32> = self.roots.iter().copied().collect();
        std::iter::from_fn(move || {
            let next = open.pop_front()?;
            open.extend(self.children_of(next as usize));
            self.event_at(next)
        })
    }

    /// Returns the inconsistencies found.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    fn event_at(&self, index: u32) -> Option<Event<'e>> {
        self.events.get(index as usize)
    }

    fn children_of(&self, index: usize) -> &[u32] {
        let edge = |at: usize| self.first.get(at).map_or(0, |at| *at as usize);
        self.children.get(edge(index)..edge(index + 1)).unwrap_or_default()
    }

    /// Builds the tree from parents; children keep the order of events.
    fn new(events: &'e Events, mut parents: Vec<Option<u32>>, mut violations: Vec<Violation>) -> EventTree<'e> {
        for event in cut_cycles(&mut parents) {
            violations.push(Violation::Cycle { event });
        }
        // Counting sort: a list for each event would need an allocation for each.
        let mut first = vec![0_u32; parents.len() + 1];
        let mut roots = Vec::new();
        for (index, parent) in (0..).zip(&parents) {
            match parent.and_then(|parent| first.get_mut(parent as usize + 1)) {
                Some(count) => *count += 1,
                None => roots.push(index),
            }
        }
        let mut sum = 0;
        first.iter_mut().for_each(|count| {
            sum += *count;
            *count = sum;
        });
        let mut next = first.clone();
        let mut children = vec![0; sum as usize];
        for (index, parent) in (0..).zip(&parents) {
            let Some(next) = parent.and_then(|parent| next.get_mut(parent as usize)) else { continue };
            if let Some(place) = children.get_mut(*next as usize) {
                *place = index;
                *next += 1;
            }
        }
        let depths = vec![0; parents.len()];
        let mut tree = EventTree { events, parents, depths, roots, first, children, violations };
        tree.compute_depths();
        tree
    }

    fn compute_depths(&mut self) {
        let order: Vec<usize> = self.breadth_first().map(|event| event.index()).collect();
        for index in order {
            let around = self.parents.get(index).copied().flatten().and_then(|parent| self.depths.get(parent as usize));
            let depth = around.map_or(0, |depth| depth + 1);
            if let Some(slot) = self.depths.get_mut(index) {
                *slot = depth;
            }
        }
    }
}

/// Turns one event of each cycle into a root, and returns those events.
fn cut_cycles(parents: &mut [Option<u32>]) -> Vec<usize> {
    // The walk that reached each event; events reached by an earlier walk lead to a root.
    let mut reached_by = vec![0_u32; parents.len()];
    let mut cut = Vec::new();
    for start in 0..parents.len() {
        let walk = u32::try_from(start).unwrap_or(u32::MAX).saturating_add(1);
        let mut at = Some(start);
        while let Some(index) = at {
            let Some(slot) = reached_by.get_mut(index) else { break };
            if *slot == walk {
                cut.push(index);
                if let Some(parent) = parents.get_mut(index) {
                    *parent = None;
                }
                break;
            }
            if *slot != 0 {
                break;
            }
            *slot = walk;
            at = parents.get(index).copied().flatten().map(|parent| parent as usize);
        }
    }
    cut
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Parses events from lines of "name start end row [key=value…]".
    pub(crate) fn events(lines: &str) -> Events {
        let mut list = Vec::new();
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let mut words = line.split_whitespace();
            let mut next = || words.next().unwrap();
            let (name, start, end, tid) = (next(), next(), next(), next());
            let (start, end): (u64, u64) = (start.parse().unwrap(), end.parse().unwrap());
            let (mut category, mut pid, mut args) = ("cpu_op", "1", Vec::new());
            for word in words {
                match word.split_once('=').unwrap() {
                    ("cat", value) => category = value,
                    ("pid", value) => pid = value,
                    (key, value) => args.push(format!("\"{}\":{value}", key.replace('_', " "))),
                }
            }
            list.push(format!(
                "{{\"ph\":\"X\",\"cat\":\"{category}\",\"name\":\"{name}\",\"pid\":{pid},\"tid\":{tid},\"ts\":{start},\"dur\":{},\"args\":{{{}}}}}",
                end - start,
                args.join(",")
            ));
        }
        Events::from_reader(format!("[{}]", list.join(",\n")).as_bytes()).unwrap()
    }

    /// Formats the tree as "name(children)", with roots and children in order.
    pub(crate) fn shown(tree: &EventTree<'_>) -> String {
        fn show(tree: &EventTree<'_>, event: Event<'_>) -> String {
            let inner: Vec<_> = tree.children(event).map(|child| show(tree, child)).collect();
            if inner.is_empty() { event.name().to_owned() } else { format!("{}({})", event.name(), inner.join(" ")) }
        }
        tree.roots().map(|root| show(tree, root)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn traversals_are_depth_first_or_breadth_first() {
        let events = events("a 0 9 1\nb 1 5 1\nc 2 3 1\nd 6 8 1\ne 20 21 1");
        let tree = events.tree();
        let names = |walk: &mut dyn Iterator<Item = Event<'_>>| walk.map(|event| event.name()).collect::<String>();
        assert_eq!(names(&mut tree.depth_first()), "abcde");
        assert_eq!(names(&mut tree.breadth_first()), "aebdc");
        let c = events.iter().find(|event| event.name() == "c").unwrap();
        assert_eq!((tree.depth(c), names(&mut tree.ancestors(c))), (2, "ba".to_owned()));
        assert_eq!(tree.children(events.get(0).unwrap()).len(), 2);
    }

    #[test]
    fn tree_of_a_million_levels_is_traversed() {
        const DEEP: usize = 1_000_000;
        let events = events("a 0 9 1");
        let row = events.rows[0];
        let events = Events { rows: vec![row; DEEP], ..events };
        let tree = events.tree();
        assert_eq!(tree.depth_first().count(), DEEP);
        assert_eq!(tree.breadth_first().last().map(|event| tree.depth(event)), Some(DEEP - 1));
    }

    proptest! {
        #[test]
        fn arbitrary_parents_make_a_tree(parents in proptest::collection::vec(proptest::option::of(0..30_u32), 30)) {
            let events = events("a 0 9 1");
            let events = Events { rows: vec![events.rows[0]; parents.len()], ..events };
            let tree = EventTree::new(&events, parents.clone(), Vec::new());
            let mut walked: Vec<usize> = tree.depth_first().map(|event| event.index()).collect();
            for event in events.iter() {
                let kept = tree.parents[event.index()] == parents[event.index()];
                let cut = tree.violations().contains(&Violation::Cycle { event: event.index() });
                prop_assert!(kept != cut);
                prop_assert_eq!(tree.depth(event), tree.ancestors(event).count());
            }
            walked.sort_unstable();
            prop_assert_eq!(walked, (0..parents.len()).collect::<Vec<_>>());
        }
    }
}
