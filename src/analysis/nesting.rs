//! Which slice of a host thread lies in which, by the rule of torch's tables.

use super::event::Event;
use super::events::Events;
use std::cmp::Reverse;

/// The slices of host threads within one another: operations, annotations, and calls of runtimes and drivers.
///
/// Functions of an interpreter are left out, and so are operations that torch hides. Whatever begins when a slice has
/// ended, or ends after it, closes it, so a slice is in no other that it does not fit into.
#[derive(Clone, Debug)]
pub(super) struct Nesting {
    /// For each event the one around it.
    parents: Vec<Option<u32>>,
    order: Vec<u32>,
}

/// Operations that say nothing of the program.
const HIDDEN: [&str; 8] = [
    "[memory]",
    "[OutOfMemory]",
    "profiler::_record_function_enter",
    "profiler::_record_function_enter_new",
    "profiler::_record_function_exit",
    "aten::is_leaf",
    "aten::output_nr",
    "aten::_version",
];

impl Nesting {
    pub(super) fn new(events: &Events) -> Nesting {
        let nests = |event: &Event<'_>| (event.is_op() || event.is_call()) && !HIDDEN.contains(&event.name());
        Nesting::of(events, nests)
    }

    /// Nests other slices by the same rule.
    pub(super) fn of(events: &Events, nests: impl Fn(&Event<'_>) -> bool) -> Nesting {
        let mut order: Vec<Event<'_>> = events.iter().filter(|event| event.is_slice() && nests(event)).collect();
        order.sort_by_key(|event| (event.start(), Reverse(event.end()), event.is_call()));
        let mut parents = vec![None; events.len()];
        let mut open: Vec<Vec<Event<'_>>> = vec![Vec::new(); events.tracks().len()];
        for event in &order {
            let Some(open) = open.get_mut(event.track_index()) else { continue };
            while open.pop_if(|around| event.start() >= around.end() || event.end() > around.end()).is_some() {}
            if let (Some(around), Some(parent)) = (open.last(), parents.get_mut(event.index())) {
                *parent = u32::try_from(around.index()).ok();
            }
            open.push(*event);
        }
        let order = order.iter().filter_map(|event| u32::try_from(event.index()).ok()).collect();
        Nesting { parents, order }
    }

    /// Returns the slice around an event.
    pub(super) fn parent<'e>(&self, event: Event<'e>) -> Option<Event<'e>> {
        let parent = self.parents.get(event.index()).copied().flatten()?;
        event.events.get(parent as usize)
    }

    /// Returns all slices that nest, in order of their start; of what begins together, the outer ones first.
    pub(super) fn iter<'e>(&self, events: &'e Events) -> impl Iterator<Item = Event<'e>> {
        self.order.iter().filter_map(|index| events.get(*index as usize))
    }
}
