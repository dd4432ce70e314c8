//! Decides which spans are one call, and finds the enters in which their futures are dropped.
//!
//! The records do not mark the spans of futures, and a span may also be entered for each call, as a layer of a model is. A
//! span that was entered more than once is one call if one of these holds:
//!
//! - Its first enter directly followed its creation ([`flag::DIRECT`]), as in an `async fn` with `#[instrument]`.
//! - The thread that exited it last then closed it ([`flag::AFTER_EXIT`]). In between, the thread created, entered, exited
//!   and closed no other span. No two threads were ever inside the span at once. `tracing`'s `Instrumented` closes spans
//!   this way: it enters the span once more to drop the future. A span also counts if it closes directly after its child,
//!   because a task may end before the tasks that it spawned, depending on load.
//!
//! The field `kineto.call` overrides both. Otherwise each outermost enter is a call. The rules read neither durations nor
//! events. Spans that are not recorded count as others, so that a filter changes no call.
//!
//! The enter that a close directly follows is the *closing* one. If its span is one call, it is not drawn when it lasts for
//! less than a microsecond and holds nothing but other closing enters. See
//! `docs/decisions/008-enters-are-exact.md`.

use super::{Index, Omissible, Track};
use crate::buffer::{CommittedRecord, Tag, flag};
use crate::callsite::CALL_FIELD;
use crate::clock::Converter;
use crate::fields::{Datum, decode_values};
use crate::time::Ticks;
use crate::trace::recorded::Recorded;
use kineto_base::fallible::{List, Map, Set};
use kineto_base::sorting::{sort_in_place_by, sort_in_place_by_key};

/// A closing enter lasts less than this, or is drawn.
const LONGEST_NS: u64 = 1000;

/// Follows the enters, exits and closes of each thread.
#[derive(Debug, Default)]
pub(super) struct CloseFinder {
    lane: u64,
    current: LaneSlices,
    /// Those of other lanes.
    others: Map<u64, LaneSlices>,
    /// Spans that a thread closed directly after an exit, and the time of that.
    exits: Map<u64, Ticks>,
    /// Closing enters that contain only others of their kind, with their lanes; inner ones first.
    empty: List<(u64, EnteredSlice)>,
    /// Slices inside another slice of their span, in order of their threads.
    pub(super) reentered: List<u64>,
}

/// The slices of a lane, as far as they were read.
#[derive(Debug, Default)]
struct LaneSlices {
    /// Slices, each inside the previous one; the last ones may have ended.
    open: List<EnteredSlice>,
    /// The slice that was exited last, if that was the last thing the thread did with spans.
    exited: Option<EnteredSlice>,
    /// The span that was closed directly after such an exit, if that was the last thing; else 0.
    closed: u64,
}

#[derive(Debug, Default)]
struct EnteredSlice {
    slice: u64,
    span: u64,
    start: Ticks,
    /// The end; 0 if the slice's own record does not hold it.
    end: Ticks,
    /// Whether it is its span's first, or began before the recording.
    is_first: bool,
    /// The number of records inside, other than closing enters.
    contents: usize,
    /// The closing enters directly inside.
    inside: List<u64>,
}

impl CloseFinder {
    /// Processes a record; `ends` holds the ends of slices that their own records lack.
    pub(super) fn add_record(&mut self, record: &CommittedRecord<'_>, ends: &Map<u64, Ticks>, recorded: &Recorded) {
        let [a, b, _] = record.words;
        match record.head.tag {
            Tag::Slice => {
                if self.current.enter(record, ends) {
                    self.reentered.push(record.id());
                }
            }
            Tag::Lane => self.enter_lane(a),
            Tag::Close => self.close(record, ends, recorded),
            Tag::Instant | Tag::Counter | Tag::Memory => self.current.count_record(Ticks(a), ends),
            Tag::Values => self.current.count_record(Ticks(b), ends),
            // A span without fields may have been created long before its record.
            Tag::Span if record.head.payload != 0 => self.current.count_in(|around| around.span == a),
            Tag::Error => self.current.count_in(|around| around.slice == a),
            // These belong to a slice, or are not drawn in it.
            Tag::Span | Tag::End | Tag::Follows | Tag::Stack | Tag::Counts => {}
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

    /// Counts the records that may have been inside the slice entered last, before the trace's window.
    pub(super) fn count_unknown(&mut self) {
        self.current.count_in(|_| true);
    }

    fn close(&mut self, close: &CommittedRecord<'_>, ends: &Map<u64, Ticks>, recorded: &Recorded) {
        let [span, at, _] = close.words;
        self.current.exit_until(Ticks(at), ends);
        let (exited, closed) = (self.current.exited.take(), std::mem::take(&mut self.current.closed));
        let last = exited.as_ref().map_or(closed, |exited| exited.span);
        let is_parent = || recorded.find_record(last).and_then(|made| made.parent_id()) == Some(span);
        if close.head.flags & flag::AFTER_EXIT == 0 || last == 0 || !(last == span || is_parent()) {
            return;
        }
        self.current.closed = span;
        if exited.as_ref().is_some_and(|exited| exited.span == span && exited.is_first) {
            return;
        }
        let exited = exited.filter(|exited| exited.span == span);
        // Without an own exit, a child exited last: its exit counts as later than all of the span.
        self.exits.insert(span, exited.as_ref().map_or(Ticks(u64::MAX), |exited| exited.end));
        let Some(closing) = exited else { return };
        if closing.contents == 0 && closing.start.0 != 0 {
            if let Some(around) = self.current.open.last_mut() {
                around.contents -= 1;
                around.inside.push(closing.slice);
            }
            self.empty.push((self.lane, closing));
        }
    }

    /// Decides for each span that was entered more than once whether it is one call.
    pub(super) fn decide_calls(&self, recorded: &Recorded, index: &mut Index) {
        let mut tracks = std::mem::take(&mut index.tracks);
        let (mut of_one_call, mut shared): (List<u64>, Set<u64>) = Default::default();
        for (span, track) in tracks.iter() {
            let field = call_field(recorded, *span, track);
            // Another thread may have exited it later.
            let is_closing = self.exits.get(span).is_some_and(|exit| *exit >= track.last);
            if field.unwrap_or(track.is_direct || is_closing) {
                of_one_call.push(*span);
            }
            if field.is_none() && !track.is_direct && is_closing && track.is_on_several_threads {
                shared.insert(*span);
            }
        }
        let shared = entered_by_two_at_once(recorded, index, &shared);
        for span in of_one_call.iter().filter(|span| !shared.contains(span)) {
            if let Some(track) = tracks.get_mut(span) {
                track.is_one_call = true;
            }
        }
        index.tracks = tracks;
    }

    /// Returns the closing enters that are not drawn unless a call was made in them, in order.
    pub(super) fn find_omissible(self, recorded: &Recorded, index: &Index, converter: &Converter) -> List<Omissible> {
        let (mut slices, mut found): (Set<u64>, List<Omissible>) = Default::default();
        for (lane, closing) in self.empty {
            let (start, end) = converter.slice_times(closing.start, closing.end);
            let is_short = end.since(start) < LONGEST_NS && closing.inside.iter().all(|slice| slices.contains(slice));
            let is_omissible = |track: &&Track| is_short && track.is_one_call && closing.end >= track.last;
            let Some(track) = index.tracks.get(&closing.span).filter(is_omissible) else { continue };
            slices.insert(closing.slice);
            let lane = recorded.lanes.binary_search_by_key(&lane, |lane| lane.number).ok();
            let thread = lane.and_then(|lane| recorded.lanes.get(lane)).map_or(0, |lane| lane.thread);
            found.push(Omissible { slice: closing.slice, site: track.site, thread, start, end });
        }
        sort_in_place_by_key(&mut found, |omissible| omissible.slice);
        found
    }
}

impl LaneSlices {
    /// Processes a slice; returns whether it is inside another one of its span.
    fn enter(&mut self, slice: &CommittedRecord<'_>, ends: &Map<u64, Ticks>) -> bool {
        let [start, end, _] = slice.words;
        let is_clipped = slice.head.flags & flag::CLIPPED != 0;
        // A slice that began before the recording is recorded when it ends.
        self.exit_until(Ticks(if is_clipped { end } else { start }), ends);
        let opened = EnteredSlice {
            slice: slice.id(),
            span: slice.span_id(),
            start: Ticks(start),
            end: Ticks(end),
            is_first: slice.head.flags & flag::FIRST != 0,
            contents: usize::from(is_clipped),
            inside: List::new(),
        };
        self.closed = 0;
        if is_clipped {
            self.exited = Some(opened);
            return false;
        }
        self.exited = None;
        // Slices that do not nest may have ended before those inside them.
        let is_around = |around: &EnteredSlice| {
            around.span == opened.span && around.end_ticks(ends).is_none_or(|end| end > opened.start)
        };
        let is_inside_itself = !opened.is_first && self.open.iter().any(is_around);
        self.open.push(opened);
        is_inside_itself
    }

    /// Removes the slices that had ended by that time.
    fn exit_until(&mut self, at: Ticks, ends: &Map<u64, Ticks>) {
        while let Some(mut exited) = self.open.pop_if(|open| open.end_ticks(ends).is_some_and(|end| end <= at)) {
            exited.end = exited.end_ticks(ends).unwrap_or(at);
            // `close` subtracts it again for a closing enter without contents.
            if let Some(around) = self.open.last_mut() {
                around.contents += 1;
            }
            if self.exited.as_ref().is_none_or(|last| last.end <= exited.end) {
                self.exited = Some(exited);
            }
        }
    }

    fn count_record(&mut self, at: Ticks, ends: &Map<u64, Ticks>) {
        self.count_in(|around| around.end_ticks(ends).is_none_or(|end| at <= end));
    }

    /// Counts a record for the slice entered last, if the record is inside it.
    fn count_in(&mut self, is_in: impl Fn(&EnteredSlice) -> bool) {
        if let Some(around) = self.open.last_mut().filter(|around| is_in(around)) {
            around.contents += 1;
        }
    }
}

impl EnteredSlice {
    fn end_ticks(&self, ends: &Map<u64, Ticks>) -> Option<Ticks> {
        if self.end.0 != 0 { Some(self.end) } else { ends.get(&self.slice).copied() }
    }
}

/// Returns those of `spans` that two threads were inside at once: futures are polled by one thread at a time, while clones of a
/// span are entered by several.
fn entered_by_two_at_once(recorded: &Recorded, index: &Index, spans: &Set<u64>) -> Set<u64> {
    let mut found = Set::default();
    if spans.is_empty() {
        return found;
    }
    let mut slices: List<(u64, Ticks, Ticks, i64)> = List::new();
    index.for_each_slice(recorded, &mut |thread, record, start, end| {
        let span = record.span_id();
        if spans.contains(&span) {
            slices.push((span, start, end, thread));
        }
    });
    sort_in_place_by(&mut slices, Ord::cmp);
    for of_span in slices.chunk_by(|one, next| one.0 == next.0) {
        let mut latest = (Ticks(0), 0);
        for (span, start, end, thread) in of_span {
            if *start < latest.0 && *thread != latest.1 {
                found.insert(*span);
            }
            latest = latest.max((*end, *thread));
        }
    }
    found
}

/// Returns whether the span's field `kineto.call` makes it one call; `None` if it does not decide.
fn call_field(recorded: &Recorded, span: u64, track: &Track) -> Option<bool> {
    let field = recorded.sites.get(track.site as usize)?.field_index(CALL_FIELD)?;
    let mut words = List::new();
    recorded.read_payload(&recorded.find_record(span)?, &mut words);
    match decode_values(&words).find(|value| value.field == field)?.datum {
        Datum::Text(b"span") => Some(true),
        Datum::Text(b"enter") => Some(false),
        _ => None,
    }
}
