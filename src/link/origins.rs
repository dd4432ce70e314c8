//! Which slice made a call.

use std::slice;

use super::launches::{Launches, Shared, nests};
use super::{Call, Counts, External, Handle, Records, Spans};
use crate::time::Timestamp;

/// The slices that calls were made in.
///
/// Nearly always that is the id that the call carries, so only the others are kept.
#[derive(Debug)]
pub(super) struct Origins {
    /// Calls that were not made in the slice that they name, with the one that it was or 0; in order.
    others: Vec<(Handle, u64)>,
}

impl Origins {
    pub(super) fn new(
        records: &impl Records,
        spans: &impl Spans,
        launches: &Launches,
        shared: &Shared,
        counts: &mut Counts,
    ) -> Origins {
        let mut search = Search::new(spans, launches, counts, records.externals());
        for call in records.calls() {
            if !shared.contains(call.correlation) {
                search.take(slice::from_ref(&call));
            }
        }
        shared.for_each(records, |calls| nests(calls).for_each(|nest| search.take(nest)));
        search.ask();
        let mut others = search.others;
        others.sort_unstable();
        others.shrink_to_fit();
        Origins { others }
    }

    /// The slice that made the call; 0 for none.
    pub(super) fn slice_of(&self, call: &Call) -> u64 {
        let other = self.others.binary_search_by_key(&call.at, |(at, _)| *at);
        other.ok().and_then(|nth| self.others.get(nth)).map_or(call.external, |(_, slice)| *slice)
    }

    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        self.others.capacity() * size_of::<(Handle, u64)>()
    }
}

struct Search<'a, S> {
    spans: &'a S,
    launches: &'a Launches,
    counts: &'a mut Counts,
    /// Ids that came apart from their calls, by correlation.
    strays: Vec<(u64, u64)>,
    others: Vec<(Handle, u64)>,
    /// Launches to be linked by time.
    questions: Vec<Question>,
    /// Their calls, with the ids that they name.
    asking: Vec<(Handle, u64)>,
}

struct Question {
    thread: u32,
    time: Timestamp,
    /// Where in `asking` its calls begin, and how many they are.
    from: usize,
    calls: usize,
}

impl<'a, S: Spans> Search<'a, S> {
    fn new(
        spans: &'a S,
        launches: &'a Launches,
        counts: &'a mut Counts,
        externals: impl Iterator<Item = External>,
    ) -> Search<'a, S> {
        let mut strays = Vec::new();
        for external in externals.filter(|external| external.id != 0) {
            if spans.span_of(external.id).is_none() {
                counts.ids_unknown += 1;
            } else if external.correlation != 0 {
                strays.push((external.correlation, external.id));
            }
        }
        strays.sort_by_key(|(correlation, _)| *correlation);
        Search { spans, launches, counts, strays, others: Vec::new(), questions: Vec::new(), asking: Vec::new() }
    }

    /// Whether the slice that a call names is one that it can have been made in.
    fn names_its_slice(&self, call: &Call) -> bool {
        call.external != 0 && self.spans.may_be_open(call.external, call.start)
    }

    /// Of several ids that came for one call the last counts.
    fn stray(&self, correlation: u64) -> Option<u64> {
        let behind = self.strays.partition_point(|(of, _)| *of <= correlation);
        let (of, id) = self.strays.get(behind.checked_sub(1)?)?;
        (*of == correlation).then_some(*id)
    }

    /// Takes the calls that are one launch, the outermost first, or a single call.
    fn take(&mut self, nest: &[Call]) {
        let Some(outermost) = nest.first() else { return };
        let mut named = None;
        for call in nest.iter().filter(|call| call.external != 0) {
            if self.names_its_slice(call) {
                named = named.or(Some(call.external));
            } else {
                self.counts.ids_unknown += 1;
            }
        }
        let stray = || self.stray(outermost.correlation).filter(|id| self.spans.may_be_open(*id, outermost.start));
        let named = named.or_else(stray);
        let launches = nest.iter().any(|call| call.launches);
        let has_work = (launches || named.is_none()) && self.launches.has_work(outermost);
        self.counts.launches_without_work += u64::from(launches && !has_work);
        match named {
            Some(slice) => self.link(nest, slice),
            None if launches || has_work => {
                let from = self.asking.len();
                self.asking.extend(nest.iter().map(|call| (call.at, call.external)));
                let (thread, time) = (outermost.thread, outermost.start);
                self.questions.push(Question { thread, time, from, calls: nest.len() });
            }
            None => self.link(nest, 0),
        }
    }

    /// Notes the slice for the calls that do not name one themselves.
    fn link(&mut self, nest: &[Call], slice: u64) {
        for call in nest {
            if call.external != slice && !self.names_its_slice(call) {
                self.others.push((call.at, slice));
            }
        }
    }

    /// Links by time what nothing else could link.
    fn ask(&mut self) {
        self.questions.sort_unstable_by_key(|question| (question.thread, question.time));
        let asked: Vec<_> = self.questions.iter().map(|question| (question.thread, question.time)).collect();
        let answers = if asked.is_empty() { Vec::new() } else { self.spans.innermost(&asked) };
        for (nth, question) in self.questions.iter().enumerate() {
            let slice = answers.get(nth).copied().unwrap_or(0);
            let count = if slice == 0 { &mut self.counts.unlinked } else { &mut self.counts.linked_by_time };
            *count += 1;
            let calls = self.asking.iter().skip(question.from).take(question.calls);
            self.others.extend(calls.filter(|(_, named)| *named != slice).map(|(at, _)| (*at, slice)));
        }
    }
}
