//! Finds the spans of futures, and the slices in which futures are dropped.
//!
//! The records do not mark the spans of futures. But `tracing`'s `Instrumented` enters its span once more to drop the future,
//! usually right after the last poll. So a span counts as a future's if all of these hold: it has closed, it was entered more
//! than once, and its last slice is shorter than 0.1 ms and empty. In addition, one of these must hold:
//!
//! - The last enter directly follows another one, or is on a different thread, and no enter lies in a span that is not an
//!   ancestor. Then the thread and time of the close do not matter: a child may close the span late.
//! - The thread that exited the span last closed it before it entered another one.
//!
//! A span that is created once and entered for each call (a layer of a model) is entered inside other spans, which its thread
//! exits before it closes the span. A sync span whose last two enters follow each other looks like a future.
//!
//! [`open_futures`](super::open_futures) decides about spans that have not closed.

use crate::buffer::{CommittedRecord, Tag, flag};
use crate::clock::Converter;
use crate::config::AsyncSpans;
use crate::time::Ticks;
use crate::trace::recorded::Recorded;
use kineto_trace::fallible::{List, Map, Set};
use std::cmp::Reverse;

/// Reads the records of each thread in order.
#[derive(Debug)]
pub(super) struct Drops<'r> {
    recorded: &'r Recorded,
    lane: u64,
    current: LaneSlices,
    /// Those of other lanes.
    others: Map<u64, LaneSlices>,
    spans: Map<u64, Span>,
    /// Closed spans, and whether their thread exited them last and entered nothing since.
    closed: List<(u64, bool)>,
}

/// The last records of a lane.
#[derive(Debug, Default)]
struct LaneSlices {
    /// Slices, each inside the previous one; the last ones may have ended.
    open: List<Entered>,
    /// The time of the last other record.
    last_event_at: Ticks,
}

/// A slice that may have records inside.
#[derive(Debug, Default)]
struct Entered {
    slice: u64,
    span: u64,
    site: u32,
    start: Ticks,
    /// The end; 0 if the slice's own record does not hold it.
    end: Ticks,
    /// The number of records inside.
    records: usize,
    /// Slices directly inside that may drop futures owned by this span's future.
    inside: List<u64>,
    is_first: bool,
    /// Whether it is its span's first slice, or inside another slice of the span.
    is_function_call: bool,
    /// Whether it is inside a span that is not its ancestor.
    is_foreign: bool,
    /// Whether it directly follows another slice of its span.
    follows: bool,
}

/// A span that was entered more than once.
#[derive(Debug, Default)]
struct Span {
    last: Entered,
    lane: u64,
    is_on_several_threads: bool,
    /// Whether it was entered in a span that is not its ancestor.
    is_inside_others: bool,
    is_closed: bool,
    is_closed_at_once: bool,
}

/// The futures found in the records.
#[derive(Debug, Default)]
pub(super) struct FoundDrops {
    /// The slices in which futures are dropped, in order, unless all are drawn.
    pub(super) slices: List<u64>,
    /// The callsites of the spans of futures.
    pub(super) sites: Set<u32>,
    /// Spans that have not closed and were entered again, of callsites whose spans are only entered inside their ancestors.
    pub(super) undecided: Set<u64>,
}

/// A longer slice is real work, which is shown.
const LONGEST_NS: u64 = 100_000;

/// The most futures dropped in one slice, and the most ancestors that are compared.
const MOST: usize = 64;

impl<'r> Drops<'r> {
    pub(super) fn new(recorded: &'r Recorded) -> Drops<'r> {
        let (lane, current, others, spans, closed) = Default::default();
        Drops { recorded, lane, current, others, spans, closed }
    }

    /// Processes a record; `ends` holds the ends of slices that their own records lack.
    pub(super) fn add_record(&mut self, record: &CommittedRecord<'_>, ends: &Map<u64, Ticks>) {
        match record.head.tag {
            Tag::Slice if record.head.flags & flag::CLIPPED == 0 => self.enter_slice(record, ends),
            Tag::Lane => self.enter_lane(record.words[0]),
            Tag::Close => {
                let [span, ..] = record.words;
                // A slice that another one follows was removed.
                let is_entered_last = || self.current.open.iter().rev().take(MOST).any(|entered| entered.span == span);
                self.closed.push((span, record.head.flags & flag::AFTER_EXIT != 0 && is_entered_last()));
            }
            Tag::Instant | Tag::Counter => self.count_event(Ticks(record.words[0]), ends),
            Tag::Values => self.count_event(Ticks(record.words[1]), ends),
            // A span without fields may have been created long before its record.
            Tag::Span if record.head.payload != 0 => self.count_in(|around| around.span == record.words[0]),
            Tag::Error => self.count_in(|around| around.slice == record.words[0]),
            // These belong to a slice, or are not drawn in it.
            Tag::Slice | Tag::Span | Tag::End | Tag::Follows | Tag::Stack | Tag::Counts | Tag::Memory => {}
        }
    }

    /// Begins to process records of that lane.
    pub(super) fn enter_lane(&mut self, lane: u64) {
        // Each chunk of a thread names its lane.
        if lane != self.lane {
            let current = self.others.remove(&lane).unwrap_or_default();
            let before = std::mem::replace(&mut self.current, current);
            self.others.insert(std::mem::replace(&mut self.lane, lane), before);
        }
    }

    fn count_event(&mut self, at: Ticks, ends: &Map<u64, Ticks>) {
        self.current.last_event_at = at;
        self.count_in(|around| around.end_ticks(ends).is_none_or(|end| at <= end));
    }

    /// Counts the records that may have been inside the slice entered last, before the trace's window.
    pub(super) fn count_unknown(&mut self) {
        self.count_in(|_| true);
    }

    /// Counts a record for the slice entered last, if the record is inside it.
    fn count_in(&mut self, is_in: impl Fn(&Entered) -> bool) {
        if let Some(around) = self.current.open.last_mut().filter(|around| is_in(around)) {
            around.records += 1;
        }
    }

    fn enter_slice(&mut self, slice: &CommittedRecord<'_>, ends: &Map<u64, Ticks>) {
        let ([start, end, _], span) = (slice.words, slice.span_id());
        let is_first = slice.head.flags & flag::FIRST != 0;
        let mut follows = false;
        while let Some(ended) =
            self.current.open.pop_if(|entered| entered.end_ticks(ends).is_some_and(|end| end.0 <= start))
        {
            follows = ended.span == span && ended.end_ticks(ends) > Some(self.current.last_event_at);
            self.complete_slice(ended, self.lane);
        }
        let is_call = is_first || self.current.open.iter().any(|around| around.span == span);
        let is_known = || self.spans.get(&span).is_some_and(|known| known.is_inside_others);
        let is_foreign = |around: &Entered| !is_known() && !self.is_ancestor(around.span, slice);
        let is_foreign = !is_call && self.current.open.last().is_some_and(is_foreign);
        if let Some(around) = self.current.open.last_mut() {
            if is_call || around.is_function_call || around.inside.len() >= MOST {
                around.records += 1;
            } else {
                around.inside.push(slice.id());
            }
        }
        self.current.open.push(Entered {
            slice: slice.id(),
            span,
            site: slice.head.site,
            start: Ticks(start),
            end: Ticks(end),
            records: 0,
            inside: List::new(),
            is_first,
            is_function_call: is_call,
            is_foreign,
            follows,
        });
    }

    /// Returns whether the span of a slice was created in that span, or in a span inside it.
    fn is_ancestor(&self, span: u64, slice: &CommittedRecord<'_>) -> bool {
        let first = self.recorded.definition_of(slice);
        let up = |made: &CommittedRecord<'_>| self.recorded.find_record(made.parent_id()?);
        std::iter::successors(first, up).take(MOST).any(|made| made.parent_id() == Some(span))
    }

    /// Processes a completed slice.
    fn complete_slice(&mut self, entered: Entered, lane: u64) {
        if entered.is_first {
            return;
        }
        let Some(known) = self.spans.get_mut(&entered.span) else {
            let (span, is_inside_others) = (entered.span, entered.is_foreign);
            self.spans.insert(span, Span { is_inside_others, last: entered, lane, ..Span::default() });
            return;
        };
        known.is_inside_others |= entered.is_foreign;
        known.is_on_several_threads |= known.lane != lane;
        if entered.start >= known.last.start {
            (known.last, known.lane) = (entered, lane);
        }
    }

    pub(super) fn finish(mut self, ends: &Map<u64, Ticks>, converter: &Converter, how: AsyncSpans) -> FoundDrops {
        self.others.insert(self.lane, std::mem::take(&mut self.current));
        for (lane, slices) in std::mem::take(&mut self.others) {
            slices.open.into_iter().for_each(|entered| self.complete_slice(entered, lane));
        }
        for (span, at_once) in &self.closed {
            if let Some(span) = self.spans.get_mut(span) {
                (span.is_closed, span.is_closed_at_once) = (true, *at_once);
            }
        }
        let is_short = |last: &Entered| {
            let times = last.end_ticks(ends).map(|end| converter.slice_times(last.start, end));
            times.is_some_and(|(start, end)| end.since(start) < LONGEST_NS)
        };
        let ends_empty = |span: &&Span| span.is_closed && !span.last.is_function_call && span.last.records == 0;
        let mut spans: List<&Span> =
            self.spans.values().filter(ends_empty).filter(|span| is_short(&span.last)).collect();
        // Inner slices come first.
        spans.sort_unstable_by_key(|span| Reverse((span.last.start, span.last.slice)));
        let (mut found, mut cancelled, mut sites) = (Set::default(), List::new(), Set::default());
        for span in spans {
            let last = &span.last;
            if !last.inside.iter().all(|slice| found.contains(slice)) {
                continue;
            }
            if last.follows && (span.is_closed_at_once || !span.is_inside_others) {
                sites.insert(last.site);
                found.insert(last.slice);
            } else if span.is_closed_at_once || span.is_on_several_threads && !span.is_inside_others {
                found.insert(last.slice);
                cancelled.push((last.site, last.slice));
            }
        }
        // A sync span may be entered elsewhere and end the same way: its last call is not omitted.
        for (site, slice) in &cancelled {
            if !sites.contains(site) {
                found.remove(slice);
            }
        }
        sites.extend(cancelled.iter().map(|(site, _)| *site));
        // Without tracks, only the slice shows when a future was dropped, or the last call of a span that looks like one's.
        let mut slices: List<u64> = found.into_iter().filter(|_| how != AsyncSpans::PerPoll).collect();
        slices.sort_unstable();
        let inside_others = self.spans.values().filter(|span| span.is_inside_others);
        let sync_sites: Set<u32> = inside_others.map(|span| span.last.site).collect();
        let is_undecided = |span: &Span| !span.is_closed && !sync_sites.contains(&span.last.site);
        let undecided = self.spans.iter().filter(|(_, span)| is_undecided(span)).map(|(id, _)| *id).collect();
        FoundDrops { slices, sites, undecided }
    }
}

impl Entered {
    fn end_ticks(&self, ends: &Map<u64, Ticks>) -> Option<Ticks> {
        if self.end.0 != 0 { Some(self.end) } else { ends.get(&self.slice).copied() }
    }
}
