//! Finds the slice that made each call.

use std::slice;

use super::bits::Bits;
use super::launches::Launches;
use super::{Call, LinkCounts, LinkedExternal, RecordHandle, RecordSource, Spans};
use crate::time::Timestamp;
use kineto_base::fallible::{List, Map};

/// The slices that made the calls.
///
/// It is nearly always the id that the call carries, so only exceptions are stored.
#[derive(Debug, Default)]
pub(super) struct Origins {
    /// Calls that were not made in the slice that they name, each with its slice or 0; ordered.
    exceptions: List<(RecordHandle, u64)>,
}

impl Origins {
    /// Returns the slice that made a call which names `named`; 0 for none.
    #[inline]
    pub(super) fn slice_of(&self, at: RecordHandle, named: u64) -> u64 {
        let other = self.exceptions.binary_search_by_key(&at, |(at, _)| *at);
        other.ok().and_then(|nth| self.exceptions.get(nth)).map_or(named, |(_, slice)| *slice)
    }

    fn add_exceptions(&mut self, others: impl IntoIterator<Item = (RecordHandle, u64)>) {
        self.exceptions.extend(others);
        self.exceptions.sort_unstable();
    }

    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        self.exceptions.capacity() * size_of::<(RecordHandle, u64)>()
    }
}

/// Searches for the slices that made the calls.
pub(super) struct SliceSearch<'a, S> {
    spans: &'a S,
    /// Calls without an external id.
    unnamed: List<RecordHandle>,
    /// Ids that arrived apart from their calls, by correlation.
    separate_ids: Map<u64, u64>,
    others: List<(RecordHandle, u64)>,
    /// Launches to be linked by time.
    questions: List<Question>,
    /// Calls to be linked by time only if they turn out to have work, with their index in the table of launches.
    undecided: List<(usize, Question)>,
    /// The calls of both, with the ids that they name.
    question_calls: List<(RecordHandle, u64)>,
}

struct Question {
    thread: u32,
    time: Timestamp,
    /// The index of its first call in `question_calls`, and their number.
    from: usize,
    calls: usize,
    /// Whether an id of its calls names a slice that newer records have replaced, or that was moved to disk.
    names_evicted_slice: bool,
}

impl<'a, S: Spans> SliceSearch<'a, S> {
    pub(super) fn new(spans: &'a S) -> SliceSearch<'a, S> {
        let (unnamed, separate_ids, others, questions, undecided, question_calls) = Default::default();
        SliceSearch { spans, unnamed, separate_ids, others, questions, undecided, question_calls }
    }

    /// Adds a call as it arrives.
    #[inline]
    pub(super) fn add_call(&mut self, call: &Call, counts: &mut LinkCounts) {
        if !self.names_its_slice(call) {
            self.unnamed.push(call.at);
            counts.ids_unknown += u64::from(call.external != 0 && !self.spans.is_evicted(call.external));
        }
    }

    /// Adds ids that arrived apart from their calls.
    pub(super) fn add_separate_ids(
        &mut self,
        externals: impl Iterator<Item = LinkedExternal>,
        counts: &mut LinkCounts,
    ) {
        for external in externals.filter(|external| external.id != 0) {
            if self.spans.span_of(external.id).is_none() && !self.spans.is_evicted(external.id) {
                counts.ids_unknown += 1;
            } else if external.correlation != 0 {
                // Of several ids for a call the last counts.
                self.separate_ids.insert(external.correlation, external.id);
            }
        }
    }

    /// Finds the slices of calls that carry no id and share no launch.
    pub(super) fn resolve_single(&mut self, records: &impl RecordSource, launches: &Launches) {
        for at in std::mem::take(&mut self.unnamed) {
            let call = records.call_at(at);
            if !launches.is_shared(call.correlation) {
                self.resolve_nest(slice::from_ref(&call), launches);
            }
        }
    }

    /// Finds the slice of the calls of a launch, the outermost first, or of a single call.
    pub(super) fn resolve_nest(&mut self, nest: &[Call], launches: &Launches) {
        let Some(outermost) = nest.first() else { return };
        let named = nest.iter().find(|call| self.names_its_slice(call)).map(|call| call.external);
        let stray = self.separate_ids.get(&outermost.correlation).copied();
        if let Some(slice) = named.or_else(|| stray.filter(|id| self.spans.may_be_open(*id, outermost.start))) {
            return self.link_nest(nest, slice);
        }
        let mut ids = nest.iter().map(|call| call.external).chain(stray);
        let question = Question {
            names_evicted_slice: ids.any(|id| id != 0 && self.spans.is_evicted(id)),
            thread: outermost.thread,
            time: outermost.start,
            from: self.question_calls.len(),
            calls: nest.len(),
        };
        if nest.iter().any(|call| call.launches) {
            self.questions.push(question);
        } else if let Some(place) = launches.launch_index(outermost).filter(|_| outermost.correlation != 0) {
            self.undecided.push((place, question));
        } else {
            return self.link_nest(nest, 0);
        }
        self.question_calls.extend(nest.iter().map(|call| (call.at, call.external)));
    }

    /// Returns whether the slice that a call names may have been open at that time.
    #[inline]
    fn names_its_slice(&self, call: &Call) -> bool {
        call.external != 0 && self.spans.may_be_open(call.external, call.start)
    }

    /// Sets the slice for the calls that do not name it themselves.
    fn link_nest(&mut self, nest: &[Call], slice: u64) {
        for call in nest {
            if call.external != slice && !self.names_its_slice(call) {
                self.others.push((call.at, slice));
            }
        }
    }

    /// Returns the slices of all calls except undecided ones, and the indices of those.
    pub(super) fn link_certain(&mut self, counts: &mut LinkCounts) -> (Origins, Bits) {
        let questions = std::mem::take(&mut self.questions);
        self.link_by_time(questions, counts);
        let mut origins = Origins::default();
        origins.add_exceptions(std::mem::take(&mut self.others));
        let mut undecided = Bits::default();
        self.undecided.iter().for_each(|(place, _)| undecided.set_bit(*place));
        (origins, undecided)
    }

    /// Adds the slices of undecided calls, after the last work.
    pub(super) fn link_undecided(mut self, launches: &Launches, origins: &mut Origins, counts: &mut LinkCounts) {
        let (mut questions, mut none) = (List::new(), List::new());
        for (place, question) in std::mem::take(&mut self.undecided) {
            if launches.has_worked(place) { questions.push(question) } else { none.push(question) }
        }
        none.iter().for_each(|question| self.answer_question(question, 0));
        self.link_by_time(questions, counts);
        origins.add_exceptions(self.others);
        origins.exceptions.shrink_to_fit();
    }

    /// Links the remaining calls by time.
    fn link_by_time(&mut self, mut questions: List<Question>, counts: &mut LinkCounts) {
        questions.sort_unstable_by_key(|question| (question.thread, question.time));
        let asked: List<_> = questions.iter().map(|question| (question.thread, question.time)).collect();
        let answers = if asked.is_empty() { List::new() } else { self.spans.innermost_slices(&asked) };
        for (nth, question) in questions.iter().enumerate() {
            let slice = answers.get(nth).copied().unwrap_or(0);
            if slice != 0 {
                counts.linked_by_time += 1;
            } else if !question.names_evicted_slice {
                counts.unlinked += 1;
            }
            self.answer_question(question, slice);
        }
    }

    fn answer_question(&mut self, question: &Question, slice: u64) {
        let calls = self.question_calls.iter().skip(question.from).take(question.calls);
        self.others.extend(calls.filter(|(_, named)| *named != slice).map(|(at, _)| (*at, slice)));
    }
}
