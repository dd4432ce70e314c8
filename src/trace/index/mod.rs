//! One pass over all records that finds related records far apart.
//!
//! Its size depends on rare records (late ends, late values, errors, spans entered more than once), not on the number of
//! slices, which are read in place.

mod calls;
pub(super) mod omitted;
pub(super) mod requests;

use super::progress::Progress;
use super::recorded::{Recorded, Window};
use crate::buffer::{CommittedRecord, Head, Tag, flag};
use crate::callsite::NAME_FIELD;
use crate::clock::Converter;
use crate::config::AsyncSpans;
use crate::fields::{Datum, Value, decode_values};
use crate::memory::Category;
use crate::time::{Ticks, Timestamp};
use calls::CloseFinder;
use kineto_base::fallible::{List, Map, Set};
use kineto_base::sorting::{sort_in_place_by, sort_in_place_by_key};

/// Locates the data of a trace's rows.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Stretches of chunks, by thread, in the order in which the thread wrote them; without those outside a cut window.
    pub(crate) runs: List<Run>,
    /// Ends of slices that their own records lack, by slice.
    pub(crate) ends: Map<u64, Ticks>,
    /// Records of late values, by span and in order of time; without those that later ones replace.
    pub(crate) values: Pairs,
    /// Error events, by slice and in order of time.
    pub(crate) errors: Pairs,
    /// Records of the counters at exits, by slice.
    pub(crate) counts: Pairs,
    /// The number of slices of threads whose counters had been multiplexed by then.
    pub(crate) scaled: u64,
    /// Spans entered more than once.
    pub(crate) tracks: Map<u64, Track>,
    /// The enters that are not drawn unless a call was made in them, in order.
    omissible: List<Omissible>,
    /// Slices inside another slice of their span, in order.
    reentered: List<u64>,
    /// Arrows between slices: the slice, the arrow's number, and whether it starts there.
    pub(crate) arrows: List<(u64, u64, bool)>,
    /// The number of `follows_from` pairs that no arrow can show.
    pub(crate) unlinked: u64,
    /// The number of enters.
    pub(crate) slices: u64,
    /// The number of slices that began before the recording.
    pub(crate) clipped: u64,
    /// The number of slices that began before a cut window.
    pub(crate) cut_slices: u64,
    /// The number of slices and events before a cut window.
    pub(crate) before_window: u64,
    /// Slices that had not ended in their window when they were read, ordered by id. Their threads may store ends later,
    /// which do not change the trace.
    pub(crate) unfinished: List<u64>,
    pub(crate) events: u64,
    /// The number of allocators' reports.
    pub(crate) memory: u64,
    /// The number of chunks that are partly unreadable, and of records of unknown threads or callsites.
    pub(crate) damaged: u64,
    pub(crate) strange: u64,
    /// The number of counter values that cannot be shown.
    pub(crate) counter_values: u64,
}

/// A stretch of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The kernel's id of the thread, which may have several lanes.
    thread: i64,
    /// The thread's row, an index into the lanes.
    pub(crate) lane: usize,
    /// Index of the part.
    pub(crate) part: usize,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

/// A span that was entered more than once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Track {
    pub(crate) site: u32,
    pub(crate) first: Ticks,
    pub(crate) last: Ticks,
    pub(crate) busy_ticks: u64,
    pub(crate) enters: u64,
    pub(crate) is_closed: bool,
    /// Whether all enters are one call, as the polls of a future are: see [`calls`].
    pub(crate) is_one_call: bool,
    /// Whether its first enter directly followed its creation.
    is_direct: bool,
    /// The thread of the first slice that was read.
    thread: i64,
    /// Whether other threads entered the span, too.
    is_on_several_threads: bool,
}

/// An enter that is not drawn unless a call was made in it.
#[derive(Clone, Copy, Debug)]
struct Omissible {
    slice: u64,
    site: u32,
    thread: i64,
    start: Timestamp,
    end: Timestamp,
}

/// A sorted list of pairs: it is short, so smaller than a map.
#[derive(Debug, Default)]
pub(crate) struct Pairs(List<(u64, u64)>);

impl Pairs {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the second halves of the pairs with that first half, in order.
    pub(crate) fn paired_with(&self, first: u64) -> impl DoubleEndedIterator<Item = u64> + '_ {
        let from = self.0.partition_point(|pair| pair.0 < first);
        let to = self.0.partition_point(|pair| pair.0 <= first);
        self.0.get(from..to).unwrap_or_default().iter().map(|pair| pair.1)
    }
}

impl Index {
    /// Reads all records of a session; `how` selects how spans with several enters are drawn.
    pub(crate) fn new(recorded: &Recorded, converter: &Converter, how: AsyncSpans, progress: &Progress) -> Index {
        let mut index = Index::default();
        let (mut again, mut follows, mut closes, mut open) = (Set::default(), List::new(), List::new(), List::new());
        let (mut values, mut early, mut finder) = (List::new(), Set::default(), CloseFinder::default());
        index.ends = late_ends(recorded);
        for (number, part) in recorded.parts.iter().inspect(|_| progress.count_step()).enumerate() {
            let mut run = Run::new(recorded, number, part.lane().unwrap_or(0), 0);
            part.lane().into_iter().for_each(|lane| finder.enter_lane(lane));
            let (records, window, mut at) = (part.records(), recorded.window_with(part), 0);
            let cut = window.filter(|window| window.is_cut);
            while let Some(record) = records.read_record(at) {
                let [a, b, _] = record.words;
                if let Some(window) = cut.filter(|window| index.is_left_out(recorded, window, &record)) {
                    index.before_window += u64::from(index.is_in_gap(recorded, &record) || is_before(window, &record));
                    if is_early(window, &record) {
                        early.insert(record.span_id());
                    }
                    index.add_run(run);
                    at = record.next_slot();
                    run = Run { from: at, to: at, ..run };
                    continue;
                }
                let has_site = !matches!(record.head.tag, Tag::Memory | Tag::Lane);
                finder.add_record(&record, &index.ends, recorded);
                if part.lane().is_some() || cut.is_some_and(|window| is_early(window, &record)) {
                    finder.count_unknown();
                }
                index.strange += u64::from(has_site && record.head.site as usize >= recorded.sites.len());
                match record.head.tag {
                    Tag::Slice => {
                        index.count_slice(window, &record, &mut open);
                        if record.head.flags & flag::FIRST == 0 {
                            again.insert(record.span_id());
                        }
                    }
                    Tag::Lane => {
                        index.add_run(run);
                        run = Run::new(recorded, number, a, record.next_slot());
                    }
                    Tag::End => drop(index.ends.insert(a, Ticks(b))),
                    // Records of different threads are not in order, so sort by time.
                    Tag::Values => values.push((a, b, record.id())),
                    Tag::Error => index.errors.0.push((a, record.id())),
                    Tag::Close => closes.push(a),
                    Tag::Follows => follows.push((a, b)),
                    Tag::Instant => index.events += 1,
                    Tag::Counter => {
                        index.events += 1;
                        index.counter_values += unshown_values(recorded, &record);
                    }
                    Tag::Memory => index.memory += 1,
                    Tag::Counts if a != 0 => index.add_counts(a, &record),
                    Tag::Span | Tag::Stack | Tag::Counts => {}
                }
                at = record.next_slot();
                run.to = at;
            }
            index.damaged += u64::from(at < records.len());
            index.add_run(run);
        }
        index.sort_runs(recorded);
        index.find_unfinished(open);
        values.sort_unstable();
        index.values = Pairs(last_values(recorded, &values));
        sort_in_place_by(&mut index.errors.0, Ord::cmp);
        sort_in_place_by(&mut index.counts.0, Ord::cmp);
        index.find_tracks(recorded, &again, &closes);
        index.find_calls(finder, recorded, converter, how);
        // The follower was first entered before the trace, where no arrow can lead.
        follows.retain(|(span, _)| !early.contains(span));
        index.find_arrows(recorded, converter, &follows);
        index
    }

    /// Finds which spans are one call, and the enters that are not drawn.
    fn find_calls(&mut self, mut found: CloseFinder, recorded: &Recorded, converter: &Converter, how: AsyncSpans) {
        self.reentered = std::mem::take(&mut found.reentered);
        self.reentered.sort_unstable();
        found.decide_calls(recorded, self);
        if how != AsyncSpans::PerPoll {
            self.omissible = found.find_omissible(recorded, self, converter);
        }
    }

    /// Adds a run unless it is empty.
    fn add_run(&mut self, run: Run) {
        if run.to > run.from {
            self.runs.push(run);
        }
    }

    fn sort_runs(&mut self, recorded: &Recorded) {
        // By lane before chunk: a thread with a reused id may continue in a chunk that is older than its predecessor's
        // last.
        sort_in_place_by_key(&mut self.runs, |run| (run.thread, run.lane, run.part, run.from));
        let strangers = self.runs.iter().filter(|run| run.lane >= recorded.lanes.len());
        self.strange += strangers.map(|run| (run.to - run.from) as u64).sum::<u64>();
    }

    /// Keeps the record of the counters' values at the end of a slice.
    fn add_counts(&mut self, slice: u64, counts: &CommittedRecord<'_>) {
        let mut times = counts.payload_words();
        self.scaled += u64::from(times.next() > times.next());
        self.counts.0.push((slice, counts.id()));
    }

    /// Stores the slices of `open` that had not ended by the end of their window, which `open` contains too.
    fn find_unfinished(&mut self, open: List<(u64, Ticks)>) {
        for (slice, by) in &open {
            if self.ends.get(slice).is_none_or(|end| end > by) {
                self.unfinished.push(*slice);
            }
        }
        sort_in_place_by(&mut self.unfinished, Ord::cmp);
    }

    /// Returns the runs of the thread with that id.
    pub(crate) fn runs_of(&self, thread: i64) -> &[Run] {
        let from = self.runs.partition_point(|run| run.thread < thread);
        let to = self.runs.partition_point(|run| run.thread <= thread);
        self.runs.get(from..to).unwrap_or_default()
    }

    /// Counts a slice; adds its id and the end of its window to `open` unless its record holds an end by then.
    fn count_slice(&mut self, window: Option<&Window>, slice: &CommittedRecord<'_>, open: &mut List<(u64, Ticks)>) {
        let [_, end, _] = slice.words;
        self.slices += 1;
        let is_marked = slice.head.flags & flag::CLIPPED != 0;
        self.clipped += u64::from(is_marked);
        self.cut_slices += u64::from(!is_marked && is_clipped(window, slice));
        let by = window.map_or(Ticks(u64::MAX), |window| window.end);
        if end == 0 || Ticks(end) > by {
            open.push((slice.id(), by));
        }
    }

    /// Returns whether the slice is drawn only if a call was made in it.
    fn is_omissible(&self, slice: u64) -> bool {
        self.omissible.binary_search_by_key(&slice, |omissible| omissible.slice).is_ok()
    }

    /// Returns whether the slice is inside another one of its span.
    #[inline]
    pub(crate) fn is_inside_itself(&self, slice: &CommittedRecord<'_>) -> bool {
        slice.head.flags & flag::FIRST == 0 && self.reentered.binary_search(&slice.id()).is_ok()
    }

    /// Returns how often a span was entered, if it is one call with several enters.
    pub(crate) fn enters_of_call(&self, span: u64) -> Option<u64> {
        self.tracks.get(&span).filter(|track| track.is_one_call).map(|track| track.enters)
    }

    /// Calls `each` with every slice: the kernel's id of the thread, its record, its start and its end.
    fn for_each_slice(&self, recorded: &Recorded, each: &mut dyn FnMut(i64, &CommittedRecord<'_>, Ticks, Ticks)) {
        for run in &self.runs {
            let window = recorded.window_of(*run);
            for record in recorded.records_of_run(*run).filter(|record| record.head.tag == Tag::Slice) {
                let (start, end, _) = self.slice_times(window, &record);
                each(run.thread, &record, start, end);
            }
        }
    }

    /// Returns the end of a slice, in its own record or in another one.
    fn end_of(&self, slice: &CommittedRecord<'_>) -> Option<Ticks> {
        let end = slice.words[1];
        if end != 0 { Some(Ticks(end)) } else { self.ends.get(&slice.id()).copied() }
    }

    /// Returns a slice's start and end, and whether it ended in its window.
    #[inline]
    pub(crate) fn slice_times(&self, window: &Window, slice: &CommittedRecord<'_>) -> (Ticks, Ticks, bool) {
        let start = Ticks(slice.words[0]);
        let start = match () {
            () if is_clipped(Some(window), slice) => window.start,
            // It nests in those that are clipped.
            () if slice.is_new() => start.max(window.start),
            () => start,
        };
        if self.unfinished.binary_search(&slice.id()).is_ok() {
            return (start, window.end.max(start), false);
        }
        (start, self.end_of(slice).unwrap_or(window.end).max(start), true)
    }

    /// Returns whether a part of a record lies in the window; a record without a time always does. Data that became known
    /// after the window's end is ignored. A record that was committed too late for an earlier part of the recording is in this.
    fn is_in_window(&self, window: &Window, record: &CommittedRecord<'_>) -> bool {
        let [from, until, _] = record.words;
        let begins_before = |at| at < window.start && !record.is_new();
        match record.head.tag {
            Tag::Slice => Ticks(from) <= window.end && !begins_before(self.end_of(record).unwrap_or(window.uncut_end)),
            Tag::Instant | Tag::Counter | Tag::Memory => Ticks(from) <= window.end && !begins_before(Ticks(from)),
            Tag::End | Tag::Values | Tag::Close => Ticks(until) <= window.end,
            _ => true,
        }
    }

    /// Returns whether a record does not belong to a trace whose window is cut.
    fn is_left_out(&self, recorded: &Recorded, window: &Window, record: &CommittedRecord<'_>) -> bool {
        !self.is_in_window(window, record) || self.is_in_gap(recorded, record)
    }

    /// Returns whether a slice or an event lies where others are missing.
    fn is_in_gap(&self, recorded: &Recorded, record: &CommittedRecord<'_>) -> bool {
        let start = Ticks(record.words[0]);
        match record.head.tag {
            _ if recorded.gaps.is_empty() => false,
            Tag::Slice => self.end_of(record).is_some_and(|end| recorded.is_in_gap(start, end)),
            Tag::Instant | Tag::Counter | Tag::Memory => recorded.is_in_gap(start, start),
            _ => false,
        }
    }

    fn find_tracks(&mut self, recorded: &Recorded, again: &Set<u64>, closes: &[u64]) {
        // Two threads may each have recorded the span's first slice; the close of such a span is recorded.
        let mut tracks: Map<u64, Track> = Map::default();
        for span in again.iter() {
            tracks.insert(*span, Track::default());
        }
        for span in closes {
            tracks.insert(*span, Track::default());
        }
        if tracks.is_empty() {
            return;
        }
        self.for_each_slice(recorded, &mut |thread, record, start, end| {
            if let Some(track) = tracks.get_mut(&record.span_id()) {
                track.add_enter(thread, record.head, start, end);
            }
        });
        // A single slice that is not its span's first: the earlier ones were not recorded.
        tracks.retain(|_, track| track.enters > 1);
        for span in closes {
            if let Some(track) = tracks.get_mut(span) {
                track.is_closed = true;
            }
        }
        self.tracks = tracks;
    }

    /// Finds an arrow for each pair, from the followed span's latest slice that had begun to the follower's first slice.
    ///
    /// A slice of a microsecond or more takes precedence over shorter ones: Catapult attributes an event to the slice that
    /// ends in the same microsecond, and then finds no end of the arrow.
    fn find_arrows(&mut self, recorded: &Recorded, converter: &Converter, follows: &[(u64, u64)]) {
        if follows.is_empty() {
            return;
        }
        let is_short = |start, end| {
            let (start, end) = converter.slice_times(start, end);
            end.since(start) < 1000
        };
        let mut firsts: Map<u64, Option<(bool, Ticks, u64)>> = Map::default();
        for (span, _) in follows {
            firsts.insert(*span, None);
        }
        self.for_each_slice(recorded, &mut |_, record, start, end| {
            if let Some(first) = firsts.get_mut(&record.span_id()) {
                let this = (is_short(start, end), start, record.id());
                *first = Some(first.map_or(this, |first| first.min(this)));
            }
        });
        let mut sources: Map<u64, List<usize>> = Map::default();
        for (pair, (_, followed)) in follows.iter().enumerate() {
            sources.get_or_insert_with(*followed, List::new).push(pair);
        }
        let mut latest: List<Option<(bool, Ticks, u64)>> = List::new();
        latest.resize(follows.len(), None);
        self.for_each_slice(recorded, &mut |_, record, start, end| {
            if self.is_omissible(record.id()) {
                return;
            }
            for pair in sources.get(&record.span_id()).map_or(&[][..], |pairs| pairs) {
                let first = follows.get(*pair).and_then(|(span, _)| firsts.get(span).copied().flatten());
                if let (Some((_, to, _)), Some(latest)) = (first, latest.get_mut(*pair))
                    && start <= to
                {
                    *latest = (*latest).max(Some((!is_short(start, end), start, record.id())));
                }
            }
        });
        let mut number = 0;
        for ((span, _), latest) in follows.iter().zip(&latest) {
            match (latest, firsts.get(span).copied().flatten()) {
                (Some((.., from)), Some((.., to))) => {
                    number += 1;
                    self.arrows.push((*from, number, true));
                    self.arrows.push((to, number, false));
                }
                _ => self.unlinked += 1,
            }
        }
        sort_in_place_by(&mut self.arrows, Ord::cmp);
    }

    /// Returns the arrows that start or end at a slice.
    pub(crate) fn arrows_at(&self, slice: u64) -> &[(u64, u64, bool)] {
        let from = self.arrows.partition_point(|arrow| arrow.0 < slice);
        let to = self.arrows.partition_point(|arrow| arrow.0 <= slice);
        self.arrows.get(from..to).unwrap_or_default()
    }
}

/// Returns whether a slice began before the recording, or before a cut window.
pub(super) fn is_clipped(window: Option<&Window>, slice: &CommittedRecord<'_>) -> bool {
    slice.head.flags & flag::CLIPPED != 0 || window.is_some_and(|window| window.is_cut && is_early(window, slice))
}

/// Returns whether a slice or an event began before its window.
fn is_before(window: &Window, record: &CommittedRecord<'_>) -> bool {
    matches!(record.head.tag, Tag::Slice | Tag::Instant | Tag::Counter)
        && Ticks(record.words[0]) < window.start
        && !record.is_new()
}

/// Returns whether a record belongs to a slice that began before its window.
fn is_early(window: &Window, record: &CommittedRecord<'_>) -> bool {
    record.head.tag == Tag::Slice && is_before(window, record)
}

/// Reads the ends of slices that their own records lack, for cut windows: they determine which slices lie in those.
fn late_ends(recorded: &Recorded) -> Map<u64, Ticks> {
    let mut ends = Map::default();
    for part in &recorded.parts {
        let Some(window) = recorded.window_with(part).filter(|window| window.is_cut) else { continue };
        let is_end = |record: &CommittedRecord<'_>| record.head.tag == Tag::End && Ticks(record.words[1]) <= window.end;
        for record in part.records().records_from(0).filter(is_end) {
            ends.insert(record.words[0], Ticks(record.words[1]));
        }
    }
    ends
}

/// Returns the span and the record of late values, which are sorted by span and time, without records whose values are all
/// replaced by later ones of their span. Otherwise each slice of a span would read all values of the span. The last text of a
/// field is kept too, because it may be the span's name, and so is the last memory category, which no other text replaces.
fn last_values(recorded: &Recorded, sorted: &[(u64, u64, u64)]) -> List<(u64, u64)> {
    let (mut kept, mut words, mut seen) = (List::new(), List::new(), Set::default());
    for of_span in sorted.chunk_by(|one, next| one.0 == next.0) {
        let first = kept.len();
        for (span, _, id) in of_span.iter().rev() {
            let is_last = of_span.len() == 1
                || recorded.find_record(*id).is_some_and(|record| {
                    recorded.read_payload(&record, &mut words);
                    let key = |value: Value<'_>| (record.head.site, value.field, category_text(value.datum));
                    // Each value is noted, so this does not stop at the first new one.
                    decode_values(&words).fold(false, |is_new, value| seen.insert(key(value)) | is_new)
                });
            if is_last {
                kept.push((*span, *id));
            }
        }
        kept.get_mut(first..).into_iter().for_each(<[_]>::reverse);
        seen.clear();
    }
    kept
}

/// Returns whether a text is a memory category; `None` for other values. Only a later value of the same kind replaces one.
fn category_text(datum: Datum<'_>) -> Option<bool> {
    let Datum::Text(text) = datum else { return None };
    Some(str::from_utf8(text).is_ok_and(|text| Category::from_name(text).is_some()))
}

/// Returns how many values of a counter are not finite numbers.
fn unshown_values(recorded: &Recorded, counter: &CommittedRecord<'_>) -> u64 {
    let mut words = List::new();
    recorded.read_payload(counter, &mut words);
    let site = recorded.sites.get(counter.head.site as usize);
    let names = [NAME_FIELD, "message"].map(|name| site.and_then(|site| site.field_index(name)));
    let is_name = |field| names.contains(&Some(field));
    let unshown = decode_values(&words).filter(|value| match value.datum {
        Datum::F64(number) => !number.is_finite(),
        Datum::Text(_) => !is_name(value.field),
        _ => false,
    });
    unshown.count() as u64
}

impl Run {
    /// Begins a run of a lane.
    fn new(recorded: &Recorded, part: usize, lane: u64, from: usize) -> Run {
        let lane = recorded.lanes.binary_search_by_key(&lane, |lane| lane.number).unwrap_or(usize::MAX);
        let thread = recorded.lanes.get(lane).map_or(0, |lane| lane.thread);
        Run { thread, lane, part, from, to: from }
    }
}

impl Track {
    fn add_enter(&mut self, thread: i64, head: Head, start: Ticks, end: Ticks) {
        if self.enters == 0 {
            *self = Track { site: head.site, first: start, last: end, thread, ..Track::default() };
        }
        self.enters += 1;
        self.busy_ticks += end.0.saturating_sub(start.0);
        self.first = self.first.min(start);
        self.last = self.last.max(end);
        self.is_direct |= head.flags & flag::DIRECT != 0;
        self.is_on_several_threads |= thread != self.thread;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::buffer::Chunk;
    use crate::clock;
    use crate::recorder::{RecordedBuffers, RecordedPart, Recorder, TakenChunk};
    use kineto_model::fields::encode_values;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    /// Returns a recording of 50 ticks with that chunk, of which `committed` slots are committed.
    fn recorded(chunk: Chunk, committed: usize) -> (Recorded, Window) {
        let taken = TakenChunk { chunk, committed_len: committed, new_from: None };
        let taken = RecordedBuffers { parts: vec![RecordedPart::Chunk(taken)], ..RecordedBuffers::default() };
        let whole = (Ticks(0), Ticks(50));
        let window = Window::new(1, whole.0, whole.1);
        let recorder = Arc::new(Recorder::for_tests());
        (Recorded::new(taken, vec![window], whole, &recorder, false), window)
    }

    fn index_of(recorded: &Recorded) -> Index {
        Index::new(recorded, &Converter::of_nanoseconds(), AsyncSpans::Auto, &Progress::default())
    }

    #[test]
    fn replaced_late_values_are_not_kept() {
        // The span, the callsite, the field and the value of each record; a record takes two slots.
        let replaced = (0..1000).map(|number| (7, 0, 0, Datum::I64(number)));
        let texts = [b"a", b"b"].map(|text| (7, 0, 1, Datum::Text(text)));
        let last = [(7, 0, 1, Datum::I64(3)), (7, 5, 0, Datum::I64(4)), (8, 0, 0, Datum::I64(5))];
        let chunk = Chunk::new().unwrap();
        chunk.open(1 << 20, 1);
        let (slots, mut at) = (chunk.slots(), 1);
        for (time, (span, site, field, datum)) in (0..).zip(replaced.chain(texts).chain(last)) {
            let payload = encode_values(&[(field, datum)]);
            let head = Head { payload: u16::try_from(payload.len()).unwrap(), ..Head::new(Tag::Values, 0, site) };
            CommittedRecord::write_head(slots, at, head, [span, time, 0]);
            for (place, word) in slots.all_words().iter().skip(at * 4 + 3).zip(payload) {
                place.store(u64::from_le_bytes(word), Ordering::Relaxed);
            }
            at += 2;
        }
        let (recorded, _) = recorded(chunk, at);
        let index = index_of(&recorded);
        let ids = |span| index.values.paired_with(span).map(|id| (id - (1 << 20) - 1) / 2).collect::<Vec<_>>();
        // The last number of field 0, the last text and the last number of field 1, and that of another callsite.
        assert_eq!((ids(7), ids(8)), (vec![999, 1001, 1002, 1003], vec![1004]));
    }

    #[test]
    fn late_commit_is_in_the_next_part_once() {
        let recorder = Arc::new(Recorder::with_limit(16 * Chunk::BYTES, true));
        recorder.begin_recording(true);
        let epoch = recorder.open_epoch(None);
        let chunk = recorder.open_chunk(epoch).unwrap();
        let (slots, first) = (chunk.slots(), chunk.first_id());
        let write = |at: usize, tag, time: Ticks, end| {
            CommittedRecord::write_head(slots, at, Head::new(tag, flag::FIRST, 0), [time.0, end, 0]);
        };
        let start = clock::now();
        write(1, Tag::Instant, start, 0);
        slots.commit_below(first + 2);
        // The clock is read when the part is taken, but these records are not committed.
        let late = clock::now();
        write(2, Tag::Instant, late, 0);
        write(3, Tag::Slice, late, clock::now().0);
        let parts = [(); 2].map(|()| {
            let taken = recorder.snapshot(Some(clock::now()));
            slots.commit_below(first + 4);
            taken
        });
        let [edge, end] = [0, 1].map(|number| parts[number].at);
        let [first_part, second_part] = parts;
        let in_part = |taken, from, until| {
            let window = Window { is_cut: true, ..Window::new(epoch, from, until) };
            let index = index_of(&Recorded::new(taken, vec![window], (from, until), &recorder, false));
            (index.events, index.slices, index.cut_slices)
        };
        assert_eq!(in_part(first_part, start, edge), (1, 0, 0));
        assert_eq!(in_part(second_part, edge, end), (1, 1, 0));
        // What is evicted now is in a part.
        recorder.retire_chunk(chunk);
        recorder.evict_saved(clock::now());
        assert_eq!(recorder.snapshot(Some(clock::now())).evicted.unsaved, 0);
    }

    #[test]
    fn chunk_that_begins_late_is_new_in_the_next_part() {
        let recorder = Arc::new(Recorder::with_limit(16 * Chunk::BYTES, true));
        recorder.begin_recording(true);
        let epoch = recorder.open_epoch(None);
        let chunk = recorder.open_chunk(epoch).unwrap();
        let (slots, first) = (chunk.slots(), chunk.first_id());
        let write = |at: usize, flags, time: Ticks, payload| {
            let head = Head { payload: 1, ..Head::new(Tag::Instant, flags, 0) };
            CommittedRecord::write_head(slots, at, head, [time.0, 0, 0]);
            slots.all_words()[at * 4 + 3].store(payload, Ordering::Relaxed);
            slots.commit_below(first + at as u64 + 1);
        };
        // An event reads its time, and another is recorded while its fields are formatted.
        let [start, early, edge, late] = [(); 4].map(|()| {
            let now = clock::now();
            while clock::now() <= now {}
            now
        });
        write(1, flag::LARGE, late, recorder.keep_large_payload(&[1; 3000]).unwrap());
        write(2, 0, early, 0);
        write(3, 0, late, 0);
        let take = |until| {
            let mut taken = recorder.snapshot(Some(until));
            taken.drop_unnamed_payloads();
            taken
        };
        let first_part = take(edge);
        assert!(first_part.parts.is_empty() && first_part.large_payloads.is_empty());
        let second_part = take(clock::now());
        assert_eq!(second_part.large_payloads.len(), 1);
        let (from, until) = (Ticks(edge.0 + 1), second_part.at);
        let window = Window { is_cut: true, ..Window::new(epoch, from, until) };
        let index = index_of(&Recorded::new(second_part, vec![window], (from, until), &recorder, false));
        assert!(start < early && index.events == 3, "{}", index.events);
    }

    #[test]
    fn end_stored_after_the_stop_changes_nothing() {
        let chunk = Chunk::new().unwrap();
        chunk.open(1 << 20, 1);
        let slots = chunk.slots();
        for (at, end) in [(1, 0), (2, 20), (3, 70), (4, 0)] {
            CommittedRecord::write_head(slots, at, Head::new(Tag::Slice, flag::FIRST, 0), [10 + at as u64, end, 0]);
        }
        slots.commit_below((1 << 20) + 5);
        let (recorded, window) = recorded(chunk.clone(), 5);
        let index = index_of(&recorded);
        // Threads store these ends after the records were read, though the first thread had read its clock in time.
        slots.store_end(1, 40);
        slots.store_end(4, 60);
        let ends = |at| index.slice_times(&window, &chunk.committed_slots(5).read_record(at).unwrap());
        let shown: Vec<_> = (0..4).map(ends).map(|(_, end, finished)| (end.0, finished)).collect();
        assert_eq!(shown, [(50, false), (20, true), (50, false), (50, false)]);
        assert_eq!(index.unfinished.len(), 3);
    }
}
