//! The spans of a name, and what lies in them.

use super::context::CheckContext;
use super::nearest::{nearest_names, printable};
use super::pattern::NamePattern;
use crate::activity::ActivityType;
use crate::analysis::events::{Event, Events, StringId};
use crate::analysis::summary::{Intervals, step_number};
use crate::hash::HashMap;
use crate::time::Timestamp;

/// The number that means "no slice".
const NONE: u32 = u32::MAX;

/// A period with the event that a report names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    /// The index of the event; `None` if no event covers the period.
    pub(super) event: Option<usize>,
    pub(super) start: Timestamp,
    pub(super) end: Timestamp,
}

impl Spot {
    pub(super) fn of(event: &Event<'_>) -> Spot {
        Spot { event: Some(event.index()), start: event.start(), end: event.end() }
    }

    pub(super) fn duration_ns(&self) -> u64 {
        self.end.since(self.start)
    }
}

/// Something that a rule counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountedItem {
    pub(super) spot: Spot,
    pub(super) index: usize,
    /// When it began or was launched.
    pub(super) at: Timestamp,
    pub(super) weight: u64,
}

impl CountedItem {
    pub(super) fn of(event: &Event<'_>) -> CountedItem {
        CountedItem { spot: Spot::of(event), index: event.index(), at: event.start(), weight: 1 }
    }
}

/// Matches names of events, each different name once.
pub(super) struct NameMatcher<'p> {
    pattern: &'p NamePattern,
    known: HashMap<StringId, bool>,
}

impl<'p> NameMatcher<'p> {
    pub(super) fn new(pattern: &'p NamePattern) -> NameMatcher<'p> {
        NameMatcher { pattern, known: HashMap::default() }
    }

    pub(super) fn matches(&mut self, event: &Event<'_>) -> bool {
        *self.known.entry(event.name_id()).or_insert_with(|| self.pattern.matches(event.name()))
    }
}

/// Returns whether a slice is a span: a slice of the host that is neither a call nor overhead.
fn is_span(event: &Event<'_>) -> bool {
    event.is_slice() && !event.is_on_device() && !event.is_call() && event.kind() != Some(ActivityType::Overhead)
}

/// The spans of a name, in order of their start. An async span is one, from its first enter to its last exit.
#[derive(Debug)]
pub(super) struct FoundSpans {
    pub(super) spans: Vec<Spot>,
    /// The slices: event and index of the span.
    slices: Vec<(usize, usize)>,
}

impl FoundSpans {
    /// Returns an error that names the nearest spans if there are none.
    pub(super) fn new(events: &Events, pattern: &NamePattern) -> Result<FoundSpans, String> {
        let mut matcher = NameMatcher::new(pattern);
        let mut found = FoundSpans { spans: Vec::new(), slices: Vec::new() };
        let mut async_spans: HashMap<(StringId, u64), usize> = HashMap::default();
        for slice in events.iter().filter(|event| is_span(event) && matcher.matches(event)) {
            let next = found.spans.len();
            let number = match slice.span().filter(|_| slice.is_async()) {
                Some(span) => *async_spans.entry((slice.name_id(), span)).or_insert(next),
                None => next,
            };
            match found.spans.get_mut(number) {
                Some(span) => span.end = span.end.max(slice.end()),
                None => found.spans.push(Spot::of(&slice)),
            }
            found.slices.push((slice.index(), number));
        }
        if found.spans.is_empty() {
            let names = events.iter().filter(is_span).map(|event| event.name());
            let nearest = nearest_names(pattern.as_str(), names);
            return Err(format!("no span named `{}`; nearest: {nearest}", printable(pattern.as_str())));
        }
        Ok(found)
    }

    /// Returns the spans as items to count.
    pub(super) fn items(&self) -> Vec<CountedItem> {
        let item = |spot: &Spot| Some(CountedItem { spot: *spot, index: spot.event?, at: spot.start, weight: 1 });
        self.spans.iter().filter_map(item).collect()
    }

    /// Returns the times of all spans.
    pub(super) fn union(&self) -> Intervals {
        Intervals::union(self.spans.iter().map(|span| (span.start, span.end)))
    }
}

/// Spans, and the way to find what lies in them.
pub(super) struct SpanMembers {
    pub(super) found: FoundSpans,
    /// `None` for steps, in which everything lies that begins meanwhile.
    tree: Option<EnclosingSlices>,
}

/// The slices around each event, by the spans' own parents.
struct EnclosingSlices {
    /// By event: the innermost slice around its children, or [`NONE`]; the slice itself is around its own.
    around_children: Vec<u32>,
    /// By slice: the slice around it, or [`NONE`].
    around: Vec<u32>,
    /// The slices, parents before children.
    order: Vec<u32>,
}

impl SpanMembers {
    pub(super) fn new(context: &CheckContext<'_>, pattern: &NamePattern) -> Result<SpanMembers, String> {
        let found = FoundSpans::new(context.events, pattern)?;
        let name = |span: &Spot| span.event.and_then(|event| context.events.get(event)).map(|event| event.name());
        let are_steps = found.spans.iter().all(|span| name(span).and_then(step_number).is_some());
        let tree = (!are_steps).then(|| EnclosingSlices::new(context, &found.slices));
        Ok(SpanMembers { found, tree })
    }

    /// Returns whether the trace tells in which span an item lies. Steps are matched by time, which is always known.
    pub(super) fn knows_span(&self, context: &CheckContext<'_>, item: &CountedItem) -> bool {
        self.tree.is_none()
            || context.events.get(item.index).is_some_and(|event| context.tree().parent(event).is_some())
    }

    /// Keeps the items that lie in any of the spans.
    pub(super) fn retain_members(&self, context: &CheckContext<'_>, items: &mut Vec<CountedItem>) {
        match &self.tree {
            Some(tree) => items.retain(|item| tree.slice_around(context, item).is_some()),
            None => {
                let times = self.found.union();
                items.retain(|item| times.contains(item.at));
            }
        }
    }

    /// Returns the sum of the weights of the items in each span.
    pub(super) fn totals(&self, context: &CheckContext<'_>, items: &[CountedItem]) -> Vec<u64> {
        match &self.tree {
            Some(tree) => tree.totals(context, &self.found, items),
            None => totals_by_time(&self.found.spans, items),
        }
    }
}

/// Returns the sum of the weights of the items that begin in each span.
fn totals_by_time(spans: &[Spot], items: &[CountedItem]) -> Vec<u64> {
    let mut times: Vec<_> = items.iter().map(|item| (item.at, item.weight)).collect();
    times.sort_unstable();
    let mut sum = 0u64;
    let sums = times.iter().map(|(_, weight)| {
        sum = sum.saturating_add(*weight);
        sum
    });
    let sums: Vec<u64> = std::iter::once(0).chain(sums).collect();
    let before = |at: Timestamp| sums.get(times.partition_point(|(time, _)| *time < at)).copied().unwrap_or(0);
    spans.iter().map(|span| before(span.end.max(span.start)) - before(span.start)).collect()
}

impl EnclosingSlices {
    fn new(context: &CheckContext<'_>, slices: &[(usize, usize)]) -> EnclosingSlices {
        let mut around_children = vec![NONE; context.events.len()];
        for (number, (event, _)) in (0..).zip(slices) {
            if let Some(slot) = around_children.get_mut(*event) {
                *slot = number;
            }
        }
        let (mut around, mut order) = (vec![NONE; slices.len()], Vec::new());
        let tree = context.tree();
        for event in tree.depth_first() {
            let parent = tree.parent(event).and_then(|parent| around_children.get(parent.index())).copied();
            let Some(slot) = around_children.get_mut(event.index()) else { continue };
            if *slot == NONE {
                *slot = parent.unwrap_or(NONE);
            } else if let Some(outer) = around.get_mut(*slot as usize) {
                *outer = parent.unwrap_or(NONE);
                order.push(*slot);
            }
        }
        EnclosingSlices { around_children, around, order }
    }

    /// Returns the innermost slice around an item, which is not in itself.
    fn slice_around(&self, context: &CheckContext<'_>, item: &CountedItem) -> Option<u32> {
        let parent = context.events.get(item.index).and_then(|event| context.tree().parent(event))?;
        self.around_children.get(parent.index()).copied().filter(|slice| *slice != NONE)
    }

    fn totals(&self, context: &CheckContext<'_>, found: &FoundSpans, items: &[CountedItem]) -> Vec<u64> {
        let mut by_slice = vec![0u64; self.around.len()];
        for item in items {
            let slot = self.slice_around(context, item).and_then(|slice| by_slice.get_mut(slice as usize));
            slot.into_iter().for_each(|sum| *sum = sum.saturating_add(item.weight));
        }
        let mut totals = vec![0u64; found.spans.len()];
        let span_of = |slice: u32| found.slices.get(slice as usize).map(|(_, span)| *span);
        for slice in self.order.iter().rev() {
            let sum = by_slice.get(*slice as usize).copied().unwrap_or(0);
            let outer = self.around.get(*slice as usize).copied().filter(|outer| *outer != NONE);
            if let Some(slot) = outer.and_then(|outer| by_slice.get_mut(outer as usize)) {
                *slot = slot.saturating_add(sum);
            }
            // A slice inside another of the same span is counted there.
            let own = span_of(*slice).filter(|own| outer.and_then(span_of) != Some(*own));
            let total = own.and_then(|own| totals.get_mut(own));
            total.into_iter().for_each(|total| *total = total.saturating_add(sum));
        }
        totals
    }
}
