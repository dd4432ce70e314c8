//! Finds the slices in which futures are dropped.
//!
//! `tracing`'s `Instrumented` enters its span once more to drop the future, then closes the span. As a future is dropped
//! right after its last poll, as a rule, such a slice follows another one of its span, is empty and short, and its thread
//! closes the span next. A sync span looks the same if its last two enters follow each other like that.

use crate::buffer::{Record, Tag, flag};
use crate::clock::Converter;
use crate::time::Ticks;
use std::collections::{HashMap, HashSet};

/// Reads the records of each thread in order.
#[derive(Debug, Default)]
pub(super) struct Drops {
    lane: u64,
    /// Slices of the lane at hand, each inside the one before; the last ones may have ended.
    open: Vec<Entered>,
    /// When something else was recorded last on the lane.
    other: Ticks,
    /// The slices of other lanes.
    others: HashMap<u64, Vec<Entered>>,
    found: Vec<u64>,
    /// The same where no poll came right before, and their callsites: futures that were cancelled, as it seems.
    cancelled: Vec<(u32, u64)>,
    /// Callsites of which a future was dropped right after its last poll.
    sites: HashSet<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Entered {
    slice: u64,
    span: u64,
    site: u32,
    start: Ticks,
    /// 0 if its own record does not say it.
    end: Ticks,
    /// How many records lie in it.
    records: usize,
    /// It is its span's first, or inside another one of its span.
    is_call: bool,
    /// It comes right after another slice of its span.
    follows: bool,
}

/// A slice that lasted longer is work that is worth seeing.
const LONGEST_NS: u64 = 100_000;

impl Drops {
    /// Takes note of a record; `ends` has the ends of slices whose own record does not say it.
    pub(super) fn meet(&mut self, record: &Record<'_>, ends: &HashMap<u64, Ticks>, converter: &Converter) {
        match record.head.tag {
            Tag::Slice if record.head.flags & flag::CLIPPED == 0 => self.enter(record, ends),
            Tag::Lane => {
                let lane = record.words[0];
                let open = self.others.remove(&lane).unwrap_or_default();
                let before = std::mem::replace(&mut self.open, open);
                self.others.insert(std::mem::replace(&mut self.lane, lane), before);
                self.other = Ticks(0);
            }
            Tag::Close if record.head.flags & flag::AFTER_EXIT != 0 => self.close(record.words[0], ends, converter),
            // These belong to a slice, or are not drawn in it.
            Tag::Slice | Tag::Close | Tag::End | Tag::Stack | Tag::Counts | Tag::Memory => {}
            _ => {
                match record.head.tag {
                    Tag::Instant | Tag::Counter => self.other = Ticks(record.words[0]),
                    Tag::Values => self.other = Ticks(record.words[1]),
                    _ => {}
                }
                self.open.iter_mut().next_back().into_iter().for_each(|entered| entered.records += 1);
            }
        }
    }

    fn enter(&mut self, slice: &Record<'_>, ends: &HashMap<u64, Ticks>) {
        let ([start, end, _], span) = (slice.words, slice.span());
        let has_ended = |entered: &mut Entered| entered.end(ends).is_some_and(|end| end.0 <= start);
        let ended = std::iter::from_fn(|| self.open.pop_if(has_ended)).last();
        let is_call = slice.head.flags & flag::FIRST != 0 || self.open.iter().any(|around| around.span == span);
        self.open.iter_mut().next_back().into_iter().for_each(|around| around.records += 1);
        self.open.push(Entered {
            slice: slice.id(),
            span,
            site: slice.head.site,
            start: Ticks(start),
            end: Ticks(end),
            records: 0,
            is_call,
            follows: ended.is_some_and(|last| last.span == span && last.end(ends) > Some(self.other)),
        });
    }

    /// The span closes that the thread left last.
    fn close(&mut self, span: u64, ends: &HashMap<u64, Ticks>, converter: &Converter) {
        let is_its = |last: &mut Entered| last.span == span && !last.is_call && last.records == 0;
        let Some(dropped) = self.open.pop_if(is_its) else { return };
        let Some(end) = dropped.end(ends) else { return };
        if converter.timestamp(end).since(converter.timestamp(dropped.start)) >= LONGEST_NS {
            return;
        }
        self.open.iter_mut().next_back().into_iter().for_each(|around| around.records -= 1);
        if dropped.follows {
            self.sites.insert(dropped.site);
            self.found.push(dropped.slice);
        } else {
            self.cancelled.push((dropped.site, dropped.slice));
        }
    }

    /// Returns the slices in which futures are dropped, in order, and the callsites of the spans of futures.
    pub(super) fn finish(mut self) -> (Vec<u64>, HashSet<u32>) {
        // A sync span may be entered elsewhere and end so, too: its last call is not passed over.
        let cancelled = self.cancelled.iter().filter(|(site, _)| self.sites.contains(site));
        self.found.extend(cancelled.map(|(_, slice)| *slice));
        self.found.sort_unstable();
        self.sites.extend(self.cancelled.iter().map(|(site, _)| *site));
        (self.found, self.sites)
    }
}

impl Entered {
    fn end(&self, ends: &HashMap<u64, Ticks>) -> Option<Ticks> {
        if self.end.0 != 0 { Some(self.end) } else { ends.get(&self.slice).copied() }
    }
}
