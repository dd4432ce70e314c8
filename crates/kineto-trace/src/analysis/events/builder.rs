//! Builds [`Events`] from events in any order, and sorts them by start.

use super::arguments::{ArgumentRange, Arguments};
use super::arrows::{ArrowEnd, Arrows};
use super::deadline::Deadline;
use super::notes::Note;
use super::strings::StringId;
use super::{EventProcess, EventRow, EventTrack, Events, Phase, RecordingRow, TrackId};
use crate::activity::{Accelerator, ActivityType, ArgValue, Flow};
use crate::hash::{HashMap, HashSet};
use crate::time::{EXACT_NS, Timestamp};
use crate::write::chrome::PRIVATE_USE1_KEY;
use std::cmp::Reverse;
use std::fmt;
use std::time::Duration;

/// Collects events in any order.
///
/// Times are nanoseconds from a base that need not be known before the end.
#[derive(Default)]
pub struct Builder {
    pub(crate) events: Events,
    tracks: HashMap<(TrackId, TrackId), u32>,
    processes: HashMap<TrackId, usize>,
    pub(super) arrows: Arrows,
    pub(super) ends: Vec<SliceEnd>,
    pub(super) async_spans: HashSet<u64>,
    /// Whether the file has a header of Kineto's format.
    pub(crate) is_kinetos: bool,
    /// The kinds of the categories met so far.
    kinds: HashMap<StringId, Option<ActivityType>>,
    /// The tracks of host threads and streams met last: process, thread, and the number of the track plus 1.
    recent_tracks: [(i64, i64, u32); RECENT],
    next_recent: usize,
    /// The time limit for collecting events.
    pub(crate) deadline: Deadline,
    pub(crate) recorded: RecordedTimes,
}

/// When a recording began and ended, in nanoseconds from the base.
#[derive(Debug, Default)]
pub(crate) struct RecordedTimes {
    /// The names, starts and ends of the rows of whole recordings.
    pub(crate) rows: Vec<(StringId, i64, i64)>,
    pub(crate) start: Option<i64>,
    pub(crate) end: Option<i64>,
}

impl RecordedTimes {
    pub(crate) fn add_start(&mut self, at: i64) {
        self.start = Some(self.start.map_or(at, |start| start.min(at)));
    }

    /// Returns the start by the rows, else the one recorded apart.
    fn start(&self) -> Option<i64> {
        self.rows.iter().map(|(_, start, _)| *start).min().or(self.start)
    }

    /// Returns the end recorded apart, else the one by the rows.
    fn end(&self) -> Option<i64> {
        self.end.or(self.rows.iter().map(|(.., end)| *end).max())
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").finish_non_exhaustive()
    }
}

/// An event to be added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventDraft {
    pub(crate) phase: Phase,
    pub(crate) track: u32,
    pub(crate) start: i64,
    /// `None` for a slice whose end arrives separately.
    pub(crate) end: Option<i64>,
    pub(crate) category: StringId,
    pub(crate) name: StringId,
    pub(crate) arguments: ArgumentRange,
    /// The "External id", if it is not among the arguments.
    pub(crate) external: Option<u64>,
}

/// The end of a slice that began earlier.
#[derive(Clone, Copy, Debug)]
pub(super) struct SliceEnd {
    pub(super) track: u32,
    pub(super) pairing: Pairing,
    pub(super) at: Timestamp,
    /// The number of events before it.
    pub(super) place: usize,
    pub(super) arguments: ArgumentRange,
}

/// The name and category that the begin of an asynchronous slice shares with its end. Other ends may have a name, and no category.
pub(crate) type Pairing = (StringId, StringId);

/// The number of tracks that are found without a search.
const RECENT: usize = 8;

/// The value of [`EventRow::end`] until the end is known.
const OPEN: Timestamp = Timestamp::from_nanos(u64::MAX);

impl Builder {
    /// Returns a builder that stops after `limit`.
    pub fn with_time_limit(limit: Option<Duration>) -> Builder {
        Builder { deadline: Deadline::from_limit(limit), ..Builder::default() }
    }

    pub(crate) fn push(&mut self, new: &EventDraft) {
        let events = &mut self.events;
        let kind = *self
            .kinds
            .entry(new.category)
            .or_insert_with(|| ActivityType::from_name(events.strings.get(new.category)));
        let mut arguments = new.arguments;
        let (id, linked) = self.take_ids(kind, new.phase, &mut arguments, new.external);
        let start = relative_timestamp(new.start);
        let end = new.end.map_or(OPEN, |end| relative_timestamp(end.max(new.start)));
        self.events.rows.push(EventRow {
            start,
            end,
            id,
            linked,
            arguments,
            name: new.name,
            category: new.category,
            track: new.track,
            kind,
            phase: new.phase,
        });
    }

    /// Removes the "External id" from an event's arguments, and returns it as (own id, id of the launching slice).
    /// Which of the two it is depends on the event's type.
    fn take_ids(
        &mut self,
        kind: Option<ActivityType>,
        phase: Phase,
        arguments: &mut ArgumentRange,
        external: Option<u64>,
    ) -> (u64, u64) {
        let columns = &mut self.events.arguments;
        let (found, key) = match external.or_else(|| id_argument(columns, *arguments, StringId::EXTERNAL)) {
            Some(id) => (Some(id), StringId::EXTERNAL),
            None => (id_argument(columns, *arguments, StringId::OLD_EXTERNAL), StringId::OLD_EXTERNAL),
        };
        let Some(id) = found else { return (0, 0) };
        columns.remove(arguments, key);
        let number = |key| id_argument(columns, *arguments, key);
        // An instant has no own id: the id names the slice around it.
        let own = phase == Phase::Slice && owns_external_id(kind);
        if own || number(StringId::SPAN).is_some() || is_wait(kind) && number(StringId::CORRELATION) == Some(id) {
            (id, 0)
        } else {
            (0, id)
        }
    }

    /// Ends the open slice of this name that began last on a track; without a name, the one that began last. On the track of an
    /// asynchronous id, only one of this name and category.
    pub(crate) fn end_slice(&mut self, track: u32, pairing: Pairing, at: i64, arguments: ArgumentRange) {
        let (at, place) = (relative_timestamp(at), self.events.rows.len());
        self.ends.push(SliceEnd { track, pairing, at, place, arguments });
    }

    /// Adds one end of an arrow; it belongs to the last event if that covers its place.
    pub(crate) fn add_flow(&mut self, track: u32, at: i64, flow: Flow) {
        let before = self.events.rows.len().checked_sub(1);
        self.arrows.push(ArrowEnd { track, at: relative_timestamp(at), before, flow });
    }

    /// Adds one end of an arrow to the last event.
    pub(super) fn flow_of_last(&mut self, flow: Flow) {
        let last = u32::try_from(self.events.rows.len()).unwrap_or(0).saturating_sub(1);
        self.events.flows.push((last, flow));
    }

    /// Records that a span has an async track.
    pub(super) fn async_span(&mut self, id: u64) {
        self.async_spans.insert(id);
    }

    /// Records that the span of an async track has one: the span named by the arguments, else the first on the track.
    pub(crate) fn async_span_of(&mut self, arguments: ArgumentRange, track: Option<u64>) {
        let span = id_argument(&self.events.arguments, arguments, StringId::SPAN);
        self.async_spans.extend(span.or(track));
    }

    /// Returns the number of the track of a host thread or a stream, and adds it if it is missing.
    pub(crate) fn track_of_ids(&mut self, process: i64, thread: i64) -> u32 {
        let known = self.recent_tracks.iter().find(|(p, t, number)| (*p, *t) == (process, thread) && *number != 0);
        if let Some((.., number)) = known {
            return number - 1;
        }
        let track = self.track_number(TrackId::Id(process), TrackId::Id(thread));
        if let Some(place) = self.recent_tracks.get_mut(self.next_recent % RECENT) {
            *place = (process, thread, track.saturating_add(1));
        }
        self.next_recent += 1;
        track
    }

    /// Returns the number of the track of the slices that share an asynchronous id, and adds it if it is missing.
    pub(crate) fn async_track(&mut self, process: TrackId, id: &str) -> u32 {
        let track = self.track_number(process, TrackId::Name(format!("async {id}")));
        self.mark_async(track);
        track
    }

    pub(super) fn mark_async(&mut self, track: u32) {
        if let Some(track) = self.events.tracks.get_mut(track as usize) {
            track.is_async = true;
        }
    }

    /// Returns the number of a track, and adds it if it is missing.
    pub(crate) fn track_number(&mut self, process: TrackId, thread: TrackId) -> u32 {
        let tracks = &mut self.events.tracks;
        *self.tracks.entry((process, thread)).or_insert_with_key(|(process, thread)| {
            let number = u32::try_from(tracks.len()).unwrap_or(u32::MAX);
            let (process, thread) = (process.clone(), thread.clone());
            tracks.push(EventTrack { process, thread, name: String::new(), is_async: false });
            number
        })
    }

    /// Gives each event the track that `numbers` has in the place of its old one.
    pub(crate) fn renumber_tracks(&mut self, numbers: &[u32]) {
        for row in &mut self.events.rows {
            row.track = numbers.get(row.track as usize).copied().unwrap_or(0);
        }
    }

    /// Names a track.
    pub(crate) fn name_track(&mut self, process: TrackId, thread: TrackId, name: &str) {
        let track = self.track_number(process, thread) as usize;
        if let Some(track) = self.events.tracks.get_mut(track) {
            name.clone_into(&mut track.name);
        }
    }

    /// Names a track, unless it is missing.
    pub(crate) fn name_known_track(&mut self, (process, thread, name): (TrackId, TrackId, &str)) {
        let number = self.tracks.get(&(process, thread));
        if let Some(track) = number.and_then(|number| self.events.tracks.get_mut(*number as usize)) {
            name.clone_into(&mut track.name);
        }
    }

    /// Returns a process, and adds it if it is missing.
    pub(crate) fn process_entry(&mut self, id: TrackId) -> &mut EventProcess {
        let at = self.process_number(id);
        #[expect(clippy::indexing_slicing, reason = "found or pushed just now")]
        &mut self.events.processes[at]
    }

    /// Returns the index of a process, and adds it if it is missing.
    pub(crate) fn process_number(&mut self, id: TrackId) -> usize {
        let processes = &mut self.events.processes;
        *self.processes.entry(id).or_insert_with_key(|id| {
            processes.push(EventProcess { id: id.clone(), name: String::new(), label: String::new() });
            processes.len() - 1
        })
    }

    /// Returns whether no further event fits.
    pub(crate) fn is_full(&self) -> bool {
        self.events.arguments.is_full() || self.events.rows.len() >= u32::MAX as usize
    }

    /// Returns the sorted events. `base` is the origin of all times, in nanoseconds since the Unix epoch; 0 if it is unknown.
    pub(crate) fn finish(mut self, base: i64) -> Events {
        self.close_slices();
        self.take_foreign_slices();
        let base = self.base_of_early_times(base);
        let early = self.events.rows.iter_mut().map(|row| row.rebase_times(base)).filter(|early| *early).count();
        self.events.notes.add(Note::BeforeEpoch, early as u64);
        self.arrows.rebase_times(base);
        let untimed = self.find_untimed_rows(base);
        self.events.notes.add(Note::WithoutTime, untimed.len() as u64);
        let places = self.sort_rows(&untimed);
        self.arrows.bind_ends(&mut self.events, &places);
        let absolute = |at| absolute_timestamp(relative_timestamp(at), base).0;
        let events = &mut self.events;
        events.window = self.recorded.start().map(absolute).zip(self.recorded.end().map(absolute));
        let row = |(name, start, end)| {
            let name = events.strings.get(name).to_owned();
            RecordingRow { name, start: absolute(start), end: absolute(end) }
        };
        events.recordings = self.recorded.rows.into_iter().map(row).collect();
        events.async_spans = self.async_spans.into_iter().collect();
        events.async_spans.sort_unstable();
        keep_last_entries(&mut events.header);
        events.private_use1 = private_use1(&events.header);
        events.accelerator =
            if events.private_use1.is_some() { Accelerator::PrivateUse1 } else { infer_accelerator(&events.rows) };
        self.events
    }

    /// Returns a base at which the earliest event is not before the epoch, if the file has none after the epoch: its times count from
    /// any origin.
    fn base_of_early_times(&mut self, base: i64) -> i64 {
        let first = self.events.rows.iter().map(|row| row.start).min().unwrap_or(OPEN);
        let first = (first.as_nanos() ^ (1 << 63)).cast_signed();
        if base > 0 || first.saturating_add(base) >= 0 {
            return base;
        }
        self.events.file.base_ns = first.saturating_neg();
        self.events.file.base_ns
    }

    /// Adds an entry to the header; `json` is its value. Of several with one key, the last counts.
    pub(crate) fn add_header_entry(&mut self, key: String, json: String) {
        self.events.header.push((key, json));
    }

    /// Matches separate begins and ends: each end closes the slice of its name on its track that began last, as in Perfetto, and
    /// those inside it. On an asynchronous track, it closes only the slice of its name and category that began last.
    pub(crate) fn close_slices(&mut self) {
        let (rows, ends) = (&mut self.events.rows, std::mem::take(&mut self.ends));
        let begins = rows.iter().enumerate().filter(|(_, row)| row.end == OPEN);
        let tracks = &self.events.tracks;
        let is_async = |row: &EventRow| tracks.get(row.track as usize).is_some_and(|track| track.is_async);
        let pairing = |row: &EventRow| if is_async(row) { (row.name, row.category) } else { Pairing::default() };
        let of_end = |end: &SliceEnd| {
            let is_async = tracks.get(end.track as usize).is_some_and(|track| track.is_async);
            (end.track, if is_async { end.pairing } else { Pairing::default() })
        };
        // Sort by track and time; at equal times, keep the order of the file.
        let mut all: Vec<_> = begins.map(|(place, row)| ((row.track, pairing(row)), row.start, place, None)).collect();
        all.extend(ends.iter().map(|end| (of_end(end), end.at, end.place, Some((end.pairing.0, end.arguments)))));
        all.sort_by_key(|(group, at, place, end)| (*group, *at, *place, end.is_none()));
        let (mut open, mut current) = (OpenBegins::default(), (0, Pairing::default()));
        for (group, at, place, end) in all {
            if group != current {
                (current, open) = (group, OpenBegins::default());
            }
            let Some((name, arguments)) = end else {
                open.push(place, rows.get(place).map_or(StringId::EMPTY, |row| row.name));
                continue;
            };
            let Some(inner) = open.close(name) else {
                self.events.notes.add(Note::EndWithoutBegin, 1);
                continue;
            };
            self.events.notes.add(Note::MisplacedEnd, u64::from(inner.len() > 1));
            self.events.notes.add(Note::BeginWithoutEnd, inner.len() as u64 - 1);
            for place in &inner {
                rows.get_mut(*place).into_iter().for_each(|row| row.end = at);
            }
            let row = inner.first().and_then(|place| rows.get_mut(*place)).filter(|_| !arguments.is_empty());
            if let Some(row) = row {
                row.arguments = self.events.arguments.merge_args(row.arguments, arguments);
            }
        }
        // The start of a slice counts whose end is missing, or so late that it is wrong.
        let last_start = rows.iter().map(|row| row.start).max();
        let is_late = |end: Timestamp| last_start.is_some_and(|start| end.since(start) > EXACT_NS);
        let known = rows.iter().map(|row| if row.end == OPEN || is_late(row.end) { row.start } else { row.end });
        let last =
            self.recorded.end().map(relative_timestamp).or_else(|| known.chain(ends.iter().map(|end| end.at)).max());
        for row in rows.iter_mut().filter(|row| row.end == OPEN) {
            row.end = last.unwrap_or(row.start).max(row.start);
            self.events.notes.add(Note::BeginWithoutEnd, 1);
        }
    }

    /// Returns the indexes of events of which no time was collected. They are at 0, and no trace holds both them and the first event
    /// after 0. Or they are device work that CUPTI collected no time of: it begins and ends at 0, and all other events are later.
    fn find_untimed_rows(&self, base: i64) -> HashSet<u32> {
        let rows = &self.events.rows;
        let (origin, _) = absolute_timestamp(relative_timestamp(0), base);
        // libkineto writes times before the base as the base.
        let is_at_zero = |row: &EventRow| row.start == origin || row.start.as_nanos() == 0;
        let is_mark = |row: &EventRow| {
            let is_work = row.phase == Phase::Slice && row.kind.is_some_and(ActivityType::is_device_work);
            is_work && is_at_zero(row) && row.start == row.end
        };
        let first =
            |is_other: &dyn Fn(&EventRow) -> bool| rows.iter().filter(|row| is_other(row)).map(|row| row.start).min();
        let (timed, unmarked) = (first(&|row| !is_at_zero(row)), first(&|row| !is_mark(row)));
        let is_untimed = |row: &EventRow| {
            is_at_zero(row) && timed.is_some_and(|timed| timed.since(row.start) > EXACT_NS)
                || is_mark(row) && unmarked.is_some_and(|unmarked| row.start < unmarked)
        };
        (0..).zip(rows).filter(|(_, row)| is_untimed(row)).map(|(index, _)| index).collect()
    }

    /// Sorts the rows but those left out, and returns the new index of each; `u32::MAX` for those left out.
    fn sort_rows(&mut self, left_out: &HashSet<u32>) -> Vec<u32> {
        let Events { rows, strings, .. } = &self.events;
        let is_call = |row: &EventRow| is_call(strings.get(row.category));
        let kept = (0..).zip(rows).filter(|(index, _)| !left_out.contains(index));
        let keys = kept.map(|(index, row)| (row.start, Reverse(row.end), index));
        let mut order: Vec<(Timestamp, Reverse<Timestamp>, u32)> = keys.collect();
        let calls_last = |index: &u32| (rows.get(*index as usize).is_some_and(is_call), *index);
        // A stable sort is faster here: files consist of sorted runs.
        order.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)).then_with(|| calls_last(&a.2).cmp(&calls_last(&b.2))));
        let sorted = order.iter().filter_map(|(.., index)| rows.get(*index as usize).copied()).collect();
        let mut places = vec![u32::MAX; rows.len()];
        for (place, (.., index)) in (0..).zip(&order) {
            if let Some(slot) = places.get_mut(*index as usize) {
                *slot = place;
            }
        }
        for (index, _) in &mut self.events.flows {
            *index = places.get(*index as usize).copied().unwrap_or(u32::MAX);
        }
        self.events.flows.retain(|(index, _)| *index != u32::MAX);
        self.events.rows = sorted;
        places
    }
}

/// The begins of a track whose ends have not come, outermost first.
#[derive(Default)]
struct OpenBegins {
    begins: Vec<(usize, StringId)>,
    /// By name: the positions in the list.
    by_name: HashMap<StringId, Vec<usize>>,
}

impl OpenBegins {
    fn push(&mut self, place: usize, name: StringId) {
        self.by_name.entry(name).or_default().push(self.begins.len());
        self.begins.push((place, name));
    }

    /// Removes the begin that an end of this name closes, and those inside it; returns their places, outermost first.
    fn close(&mut self, name: StringId) -> Option<Vec<usize>> {
        let (_, top) = self.begins.last()?;
        let is_top = name == StringId::EMPTY || *top == StringId::EMPTY || *top == name;
        let at = if is_top { self.begins.len() - 1 } else { *self.by_name.get(&name)?.last()? };
        let closed = self.begins.split_off(at);
        for (_, name) in closed.iter().rev() {
            self.by_name.get_mut(name).and_then(Vec::pop);
        }
        Some(closed.into_iter().map(|(place, _)| place).collect())
    }
}

impl EventRow {
    /// Makes its times absolute. Returns whether it began before the epoch; it then begins there, with its duration.
    fn rebase_times(&mut self, base: i64) -> bool {
        let ((start, early), (end, _)) = (absolute_timestamp(self.start, base), absolute_timestamp(self.end, base));
        let duration = self.end.since(self.start);
        (self.start, self.end) = (start, if early { Timestamp::from_nanos(duration) } else { end });
        early
    }
}

/// Maps signed nanoseconds to unsigned ones, keeping their order.
pub(crate) fn relative_timestamp(ns: i64) -> Timestamp {
    Timestamp::from_nanos(ns.cast_unsigned() ^ (1 << 63))
}

/// Returns the time that [`relative_timestamp`] encoded, and whether it is before the epoch and was clamped to it.
pub(crate) fn absolute_timestamp(at: Timestamp, base: i64) -> (Timestamp, bool) {
    let ns = (at.as_nanos() ^ (1 << 63)).cast_signed();
    let ns = i128::from(ns) + i128::from(base);
    (Timestamp::from_nanos(u64::try_from(ns.max(0)).unwrap_or(u64::MAX)), ns < 0)
}

/// Returns whether events of a category are calls of a runtime or a driver.
pub(super) fn is_call(category: &str) -> bool {
    category.ends_with("_runtime") || category.ends_with("_driver")
}

/// Returns whether the "External id" of events of this type is their own id, not that of the launching slice.
fn owns_external_id(kind: Option<ActivityType>) -> bool {
    use ActivityType as T;
    match kind {
        None => true,
        Some(kind) => matches!(
            kind,
            T::CpuOp | T::UserAnnotation | T::PythonFunction | T::CpuInstantEvent | T::Overhead | T::CollectiveComm
        ),
    }
}

/// Returns whether Kineto writes the correlation id of events of this type as their "External id" when they have no other id.
fn is_wait(kind: Option<ActivityType>) -> bool {
    use ActivityType as T;
    matches!(kind, Some(T::CudaSync | T::CudaEvent | T::XpuSync))
}

/// Returns an argument as an id, given as a number or as text; 0 means no id.
fn id_argument(arguments: &Arguments, span: ArgumentRange, key: StringId) -> Option<u64> {
    let id = match arguments.get(span, key)? {
        ArgValue::I64(id) => u64::try_from(id).ok()?,
        ArgValue::U64(id) => id,
        ArgValue::Str(text) => text.parse().ok()?,
        _ => return None,
    };
    Some(id).filter(|id| *id != 0)
}

/// Removes the entries whose key comes again later.
fn keep_last_entries(header: &mut Vec<(String, String)>) {
    let mut later = HashSet::default();
    header.reverse();
    header.retain(|(key, _)| later.insert(key.clone()));
    header.reverse();
}

/// Returns the name that the backend of PrivateUse1 has given itself.
fn private_use1(header: &[(String, String)]) -> Option<String> {
    let (_, json) = header.iter().find(|(key, _)| key == PRIVATE_USE1_KEY)?;
    // It is a word, so it has no escapes.
    let name = json.strip_prefix('"')?.strip_suffix('"')?;
    let is_word = !name.is_empty() && name.chars().all(|each| each.is_ascii_alphanumeric() || each == '_');
    is_word.then(|| name.to_owned())
}

/// Returns which vendor's devices the trace is about.
fn infer_accelerator(rows: &[EventRow]) -> Accelerator {
    use ActivityType as T;
    let has = |kinds: [T; 2]| rows.iter().any(|row| row.kind.is_some_and(|kind| kinds.contains(&kind)));
    if has([T::PrivateUse1Runtime, T::PrivateUse1Driver]) {
        Accelerator::PrivateUse1
    } else if has([T::XpuRuntime, T::XpuDriver]) {
        Accelerator::Xpu
    } else {
        Accelerator::Cuda
    }
}
