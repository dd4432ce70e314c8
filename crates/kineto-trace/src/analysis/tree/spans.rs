//! The tree by spans: a span lies in its parent span, whatever the thread and time.

use super::{EventTree, Violation, intervals};
use crate::analysis::events::{Event, Events};
use crate::hash::HashMap;

impl Events {
    /// Returns the events as a tree by the ancestry of `tracing`'s spans.
    ///
    /// A slice of a span lies in the slice of its parent span that began last before it, on any thread, even if that
    /// slice had ended. So tasks that a span spawned are its children. An instant lies in the slice of its span. Other
    /// events lie where [`tree`](Events::tree) puts them.
    pub fn span_tree(&self) -> EventTree<'_> {
        let (mut parents, mut violations) = intervals::find_parents(self);
        let mut slices: HashMap<u64, Vec<Event<'_>>> = HashMap::default();
        for slice in self.iter().filter(Event::is_slice) {
            slice.span().into_iter().for_each(|span| slices.entry(span).or_default().push(slice));
        }
        violations.retain(|violation| !matches!(violation, Violation::OutlivesParent { .. }));
        for event in self.iter() {
            let (Some(span), Some(slot)) = (event.span(), parents.get_mut(event.index())) else { continue };
            let around = if event.is_slice() { event.parent_span() } else { Some(span) };
            let found = around.and_then(|span| slices.get(&span)).and_then(|slices| last_slice_before(slices, event));
            if around.is_some() && found.is_none() {
                violations.push(Violation::UnknownParentSpan { event: event.index() });
            }
            *slot = found.and_then(|found| u32::try_from(found.index()).ok());
        }
        EventTree::new(self, parents, violations)
    }
}

/// Returns the slice that began last before the event, else the first one; slices are in order of their start.
fn last_slice_before<'e>(slices: &[Event<'e>], event: Event<'_>) -> Option<Event<'e>> {
    let until = slices.partition_point(|slice| (slice.start(), slice.index()) <= (event.start(), event.index()));
    slices.get(until.saturating_sub(1)).copied().filter(|slice| slice.index() != event.index())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{events, shown};
    use super::*;

    #[test]
    fn slice_lies_in_its_parent_on_any_thread() {
        let events = events(
            "a 0 4 1 span_id=1\nb 10 12 2 span_id=2 parent_id=1\na2 20 30 1 span_id=1\nb2 21 22 2 span_id=2 parent_id=1\n\
             call 23 24 1 cat=cuda_runtime correlation=5\nk 25 26 7 cat=kernel pid=0 correlation=5\n\
             lost 27 28 3 span_id=3 parent_id=99\nearly 29 30 3 span_id=4 parent_id=5\np 31 32 1 span_id=5",
        );
        let tree = events.span_tree();
        assert_eq!(shown(&tree), "a(b) a2(b2 call(k)) lost p(early)");
        let lost = events.iter().find(|event| event.name() == "lost").unwrap().index();
        assert_eq!(tree.violations(), [Violation::UnknownParentSpan { event: lost }]);
    }

    #[test]
    fn cyclic_parents_are_cut() {
        let events =
            events("a 0 4 1 span_id=1 parent_id=2\nb 1 3 1 span_id=2 parent_id=1\nc 2 3 1 span_id=3 parent_id=3");
        let tree = events.span_tree();
        assert_eq!(tree.depth_first().count(), 3);
        assert!(tree.violations().iter().any(|violation| matches!(violation, Violation::Cycle { .. })));
    }
}
