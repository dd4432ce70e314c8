//! The spans of a name, and what lies in them.

use super::context::CheckContext;
use super::nearest::{nearest_names, printable};
use super::pattern::NamePattern;
use crate::activity::ActivityType;
use crate::analysis::events::{Event, Events, StringId, TrackId};
use crate::analysis::summary::Intervals;
use crate::hash::HashMap;
use crate::sorting::sort_few;
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
    /// The index of the track on the host where it began or was launched; `None` if that is unknown.
    pub(super) host_track: Option<usize>,
    pub(super) weight: u64,
}

impl CountedItem {
    /// Returns the process of its track on the host.
    fn process<'e>(&self, events: &'e Events) -> Option<&'e TrackId> {
        self.host_track.and_then(|track| events.tracks().get(track)).map(|track| &track.process)
    }

    pub(super) fn of(event: &Event<'_>) -> CountedItem {
        let host_track = (!event.is_on_device()).then(|| event.track_index());
        CountedItem { spot: Spot::of(event), index: event.index(), at: event.start(), host_track, weight: 1 }
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
        let mut async_spans: HashMap<(StringId, &TrackId, u64), usize> = HashMap::default();
        for slice in events.iter().filter(|event| is_span(event) && matcher.matches(event)) {
            let next = found.spans.len();
            let number = match slice.span().filter(|_| slice.is_async()) {
                Some(span) => *async_spans.entry((slice.name_id(), &slice.track().process, span)).or_insert(next),
                None => next,
            };
            match found.spans.get_mut(number) {
                Some(span) => span.end = span.end.max(slice.end()),
                None => found.spans.push(Spot::of(&slice)),
            }
            found.slices.push((slice.index(), number));
        }
        if found.spans.is_empty() {
            let names: Vec<_> = events.iter().filter(is_span).map(|event| event.name()).collect();
            if names.is_empty() {
                return Err("the trace has no span at all; record some, or set `optional`".to_owned());
            }
            let nearest = nearest_names(pattern.as_str(), names);
            return Err(format!("no span named `{}`; nearest: {nearest}", printable(pattern.as_str())));
        }
        Ok(found)
    }

    /// Returns the spans as items to count.
    pub(super) fn items(&self, events: &Events) -> Vec<CountedItem> {
        let item = |spot: &Spot| Some(CountedItem { spot: *spot, ..CountedItem::of(&events.get(spot.event?)?) });
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
    /// The indexes of the steps, in which everything lies that begins meanwhile in their process.
    steps: Vec<usize>,
    /// `None` if all spans are steps.
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
    /// By slice: the index of its span.
    spans: Vec<usize>,
}

impl SpanMembers {
    pub(super) fn new(context: &CheckContext<'_>, pattern: &NamePattern) -> Result<SpanMembers, String> {
        let found = FoundSpans::new(context.events, pattern)?;
        let event = |span: usize| context.events.get(found.spans.get(span)?.event?);
        let is_step = |span: &usize| event(*span).is_some_and(|event| event.step_number().is_some());
        let steps: Vec<_> = (0..found.spans.len()).filter(is_step).collect();
        let others = found.slices.iter().filter(|(_, span)| steps.binary_search(span).is_err());
        let others: Vec<_> = others.copied().collect();
        let tree = (!others.is_empty()).then(|| EnclosingSlices::new(context, others));
        Ok(SpanMembers { found, steps, tree })
    }

    /// Returns whether the trace tells in which span an item lies. Steps are matched by time, which is always known.
    pub(super) fn knows_span(&self, context: &CheckContext<'_>, item: &CountedItem) -> bool {
        !self.steps.is_empty()
            || context.events.get(item.index).is_some_and(|event| context.tree().parent(event).is_some())
    }

    /// Keeps the items that lie in any of the spans.
    pub(super) fn retain_members(&self, context: &CheckContext<'_>, items: &mut Vec<CountedItem>) {
        let mut step_times: HashMap<&TrackId, Vec<(Timestamp, Timestamp)>> = HashMap::default();
        for (process, step) in self.steps(context) {
            step_times.entry(process).or_default().push((step.start, step.end));
        }
        let step_times: HashMap<_, _> =
            step_times.into_iter().map(|(process, times)| (process, Intervals::union(times))).collect();
        let is_in_step = |item: &CountedItem| match item.process(context.events) {
            Some(process) => step_times.get(process).is_some_and(|times| times.contains(item.at)),
            None => step_times.values().any(|times| times.contains(item.at)),
        };
        let is_in_tree =
            |item: &CountedItem| self.tree.as_ref().is_some_and(|tree| tree.slice_around(context, item).is_some());
        items.retain(|item| is_in_step(item) || is_in_tree(item));
    }

    /// Returns the steps, with their processes.
    fn steps<'m, 'e: 'm>(&'m self, context: &'m CheckContext<'e>) -> impl Iterator<Item = (&'e TrackId, Spot)> {
        let spots = self.steps.iter().filter_map(|step| self.found.spans.get(*step));
        spots.filter_map(|spot| Some((&context.events.get(spot.event?)?.track().process, *spot)))
    }

    /// Returns the sum of the weights of the items in each span.
    pub(super) fn totals(&self, context: &CheckContext<'_>, items: &[CountedItem]) -> Vec<u64> {
        let mut totals = vec![0; self.found.spans.len()];
        if let Some(tree) = &self.tree {
            tree.add_totals(context, items, &mut totals);
        }
        let mut by_process: HashMap<Option<&TrackId>, Vec<(Timestamp, u64)>> = HashMap::default();
        let timed_items = if self.steps.is_empty() { &[] } else { items };
        for item in timed_items {
            by_process.entry(item.process(context.events)).or_default().push((item.at, item.weight));
        }
        let by_process: HashMap<_, _> =
            by_process.into_iter().map(|(process, times)| (process, TimedWeights::new(times))).collect();
        for (step, (process, spot)) in self.steps.iter().zip(self.steps(context)) {
            // What has no known process may belong to any.
            let within =
                [Some(process), None].map(|process| by_process.get(&process).map_or(0, |all| all.within(&spot)));
            totals.get_mut(*step).into_iter().for_each(|total| *total = within.iter().sum());
        }
        totals
    }
}

/// Weights by time, whose sum in a span is found without a walk.
struct TimedWeights {
    times: Vec<(Timestamp, u64)>,
    /// By item: the sum of all before it; one more for the sum of all.
    sums: Vec<u64>,
}

impl TimedWeights {
    fn new(mut times: Vec<(Timestamp, u64)>) -> TimedWeights {
        sort_few(&mut times);
        let mut sum = 0u64;
        let sums = times.iter().map(|(_, weight)| {
            sum = sum.saturating_add(*weight);
            sum
        });
        let sums = std::iter::once(0).chain(sums).collect();
        TimedWeights { times, sums }
    }

    /// Returns the sum of the weights that begin in a span.
    fn within(&self, span: &Spot) -> u64 {
        let before = |at| self.sums.get(self.times.partition_point(|(time, _)| *time < at)).copied().unwrap_or(0);
        before(span.end.max(span.start)) - before(span.start)
    }
}

impl EnclosingSlices {
    /// Takes slices: event and index of the span.
    fn new(context: &CheckContext<'_>, slices: Vec<(usize, usize)>) -> EnclosingSlices {
        let mut around_children = vec![NONE; context.events.len()];
        for (number, (event, _)) in (0..).zip(&slices) {
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
        let spans = slices.into_iter().map(|(_, span)| span).collect();
        EnclosingSlices { around_children, around, order, spans }
    }

    /// Returns the innermost slice around an item, which is not in itself.
    fn slice_around(&self, context: &CheckContext<'_>, item: &CountedItem) -> Option<u32> {
        let parent = context.events.get(item.index).and_then(|event| context.tree().parent(event))?;
        self.around_children.get(parent.index()).copied().filter(|slice| *slice != NONE)
    }

    /// Adds the sum of the weights of the items in each span.
    fn add_totals(&self, context: &CheckContext<'_>, items: &[CountedItem], totals: &mut [u64]) {
        let mut by_slice = vec![0u64; self.around.len()];
        for item in items {
            let slot = self.slice_around(context, item).and_then(|slice| by_slice.get_mut(slice as usize));
            slot.into_iter().for_each(|sum| *sum = sum.saturating_add(item.weight));
        }
        let span_of = |slice: u32| self.spans.get(slice as usize).copied();
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
    }
}
