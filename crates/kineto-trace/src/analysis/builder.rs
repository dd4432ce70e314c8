//! Puts events together: takes them in any order, and hands them out in the order of their start.

use super::arguments::{Arguments, Span};
use super::arrows::{Arrows, Loose};
use super::deadline::Deadline;
use super::events::{EventProcess, EventRow, EventTrack, Events, Phase, TrackId};
use super::notes::Note;
use super::strings::Text;
use crate::activity::{Accelerator, ActivityType, ArgValue, Flow};
use crate::time::Timestamp;
use crate::write::chrome::PRIVATE_USE1_KEY;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::time::Duration;

/// Puts events together, in any order.
///
/// Times are nanoseconds from a base that need not be known before the end.
pub struct Builder {
    pub(super) events: Events,
    tracks: HashMap<(TrackId, TrackId), u32>,
    processes: HashMap<TrackId, usize>,
    arrows: Arrows,
    ends: Vec<End>,
    async_spans: BTreeSet<u64>,
    keys: IdKeys,
    /// Until when events are taken.
    pub(super) deadline: Deadline,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").finish_non_exhaustive()
    }
}

/// An event on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct New<'n> {
    pub(super) phase: Phase,
    pub(super) track: u32,
    pub(super) start: i64,
    /// `None` for a slice whose end comes on its own.
    pub(super) end: Option<i64>,
    pub(super) category: &'n str,
    pub(super) name: &'n str,
    pub(super) arguments: Span,
    /// The "External id", if it is none of the arguments.
    pub(super) external: Option<u64>,
}

/// The end of a slice that has begun before.
#[derive(Clone, Copy, Debug)]
struct End {
    track: u32,
    at: Timestamp,
    /// How many events there were before.
    place: usize,
    arguments: Span,
}

/// The arguments that say where an event belongs.
#[derive(Clone, Copy, Debug)]
struct IdKeys {
    external: Text,
    old_external: Text,
    span: Text,
    correlation: Text,
}

/// What [`EventRow::end`] is until the end is known.
const OPEN: Timestamp = Timestamp::from_nanos(u64::MAX);

impl Default for Builder {
    fn default() -> Builder {
        let mut events = Events::default();
        let mut key = |name| events.strings.intern(name);
        let keys = IdKeys {
            external: key("External id"),
            old_external: key("external id"),
            span: key("span id"),
            correlation: key("correlation"),
        };
        let (tracks, processes, arrows, ends, async_spans, deadline) = Default::default();
        Builder { events, tracks, processes, arrows, ends, async_spans, keys, deadline }
    }
}

impl Builder {
    /// Takes events for no longer than that.
    pub fn within(limit: Option<Duration>) -> Builder {
        Builder { deadline: Deadline::after(limit), ..Builder::default() }
    }

    /// Takes an event.
    pub(super) fn push(&mut self, new: &New<'_>) {
        let kind = ActivityType::from_name(new.category);
        let mut arguments = new.arguments;
        let (id, linked) = self.ids(kind, new.phase, &mut arguments, new.external);
        let start = relative(new.start);
        let events = &mut self.events;
        let (name, category) = (events.strings.intern(new.name), events.strings.intern(new.category));
        let end = new.end.map_or(OPEN, |end| relative(end.max(new.start)));
        events.rows.push(EventRow {
            start,
            end,
            id,
            linked,
            arguments,
            name,
            category,
            track: new.track,
            kind,
            phase: new.phase,
        });
    }

    /// Takes the "External id" out of an event's arguments, and says whether it is its own id or that of what launched
    /// it: the writer puts one or the other there, by the event's type.
    fn ids(
        &mut self,
        kind: Option<ActivityType>,
        phase: Phase,
        arguments: &mut Span,
        external: Option<u64>,
    ) -> (u64, u64) {
        let IdKeys { external: key, old_external, span, correlation } = self.keys;
        let columns = &mut self.events.arguments;
        let (found, key) = match (external, number(columns, *arguments, key)) {
            (Some(id), _) => (Some(id), key),
            (None, Some(id)) => (Some(id), key),
            (None, None) => (number(columns, *arguments, old_external), old_external),
        };
        let Some(id) = found else { return (0, 0) };
        columns.remove(arguments, key);
        let number = |key| number(columns, *arguments, key);
        // An instant has none of its own: it is in that slice.
        let own = phase == Phase::Slice && owns(kind);
        if own || number(span).is_some() || is_wait(kind) && number(correlation) == Some(id) {
            (id, 0)
        } else {
            (0, id)
        }
    }

    /// Takes the end of the slice that began last on that row and goes on.
    pub(super) fn end(&mut self, track: u32, at: i64, arguments: Span) {
        self.ends.push(End { track, at: relative(at), place: self.events.rows.len(), arguments });
    }

    /// Takes one end of an arrow at that place; it belongs to the event just taken, if that is there.
    pub(super) fn arrow(&mut self, track: u32, at: i64, flow: Flow) {
        let before = self.events.rows.len().checked_sub(1);
        self.arrows.push(Loose { track, at: relative(at), before, flow });
    }

    /// Takes one end of an arrow of the event just taken.
    pub(super) fn arrow_of_last(&mut self, flow: Flow) {
        let last = u32::try_from(self.events.rows.len()).unwrap_or(0).saturating_sub(1);
        self.events.flows.push((last, flow));
    }

    /// Takes note of a span with an async track.
    pub(super) fn async_span(&mut self, id: u64) {
        self.async_spans.insert(id);
    }

    /// Takes note of the span of an async track: the one that the arguments name, else the first on that track.
    pub(super) fn async_span_of(&mut self, arguments: Span, track: Option<u64>) {
        let span = number(&self.events.arguments, arguments, self.keys.span);
        self.async_spans.extend(span.or(track));
    }

    /// Returns the number of a row of the viewer, which is new if nothing was put onto it before.
    pub(super) fn track(&mut self, process: TrackId, thread: TrackId) -> u32 {
        let tracks = &mut self.events.tracks;
        *self.tracks.entry((process, thread)).or_insert_with_key(|(process, thread)| {
            let number = u32::try_from(tracks.len()).unwrap_or(u32::MAX);
            tracks.push(EventTrack { process: process.clone(), thread: thread.clone(), name: String::new() });
            number
        })
    }

    /// Names a row of the viewer.
    pub(super) fn name(&mut self, process: TrackId, thread: TrackId, name: &str) {
        let track = self.track(process, thread) as usize;
        if let Some(track) = self.events.tracks.get_mut(track) {
            name.clone_into(&mut track.name);
        }
    }

    /// Returns a group of rows, to be named.
    pub(super) fn process(&mut self, id: TrackId) -> &mut EventProcess {
        let processes = &mut self.events.processes;
        let at = *self.processes.entry(id).or_insert_with_key(|id| {
            processes.push(EventProcess { id: id.clone(), name: String::new(), label: String::new() });
            processes.len() - 1
        });
        #[expect(clippy::indexing_slicing, reason = "found or pushed just now")]
        &mut processes[at]
    }

    /// Returns the events, in order. `base` is what times are relative to, in nanoseconds since the Unix epoch; so is the
    /// window.
    pub(super) fn finish(mut self, base: i64, window: (Option<i64>, Option<i64>)) -> Events {
        let last = self.events.rows.iter().filter(|row| row.end != OPEN).map(|row| row.end).max();
        let last = window.1.map(relative).or(last);
        self.close(last);
        let early = self.events.rows.iter_mut().map(|row| row.rebase(base)).filter(|early| *early).count();
        self.events.notes.add(Note::BeforeEpoch, early as u64);
        self.arrows.rebase(base);
        let places = self.sort();
        self.arrows.bind(&mut self.events, &places);
        let edge = |at: Option<i64>| at.map(|at| absolute(relative(at), base).0);
        let events = &mut self.events;
        events.window = edge(window.0).zip(edge(window.1));
        events.async_spans = self.async_spans.into_iter().collect();
        events.private_use1 = private_use1(&events.header);
        events.accelerator =
            if events.private_use1.is_some() { Accelerator::PrivateUse1 } else { accelerator(&events.rows) };
        self.events
    }

    /// Ends the slices whose ends came on their own, each the one on its row that began last.
    fn close(&mut self, last: Option<Timestamp>) {
        let rows = &mut self.events.rows;
        let begins = rows.iter().enumerate().filter(|(_, row)| row.end == OPEN);
        // By row and time; of one time, in the order of the file.
        let mut all: Vec<(u32, Timestamp, usize, Option<Span>)> =
            begins.map(|(place, row)| (row.track, row.start, place, None)).collect();
        all.extend(self.ends.iter().map(|end| (end.track, end.at, end.place, Some(end.arguments))));
        all.sort_by_key(|(track, at, place, end)| (*track, *at, *place, end.is_none()));
        let (mut open, mut on): (Vec<usize>, u32) = (Vec::new(), 0);
        for (track, at, place, end) in all {
            if track != on {
                (on, open) = (track, Vec::new());
            }
            match end {
                None => open.push(place),
                Some(arguments) => match open.pop().and_then(|place| rows.get_mut(place)) {
                    Some(row) => {
                        row.end = at;
                        if !arguments.is_empty() {
                            row.arguments = self.events.arguments.join(row.arguments, arguments);
                        }
                    }
                    None => self.events.notes.add(Note::EndWithoutBegin, 1),
                },
            }
        }
        for row in rows.iter_mut().filter(|row| row.end == OPEN) {
            row.end = last.unwrap_or(row.start).max(row.start);
            self.events.notes.add(Note::BeginWithoutEnd, 1);
        }
    }

    /// Puts the rows in order, and returns where each of them went.
    fn sort(&mut self) -> Vec<u32> {
        let rows = &self.events.rows;
        let mut order: Vec<u32> = (0..u32::try_from(rows.len()).unwrap_or(u32::MAX)).collect();
        let row = |index: &u32| rows.get(*index as usize);
        let times = |index: &u32| row(index).map(|row| (row.start, Reverse(row.end)));
        let is_call = |index: &u32| row(index).is_some_and(|row| is_call(self.events.strings.get(row.category)));
        order.sort_by(|a, b| times(a).cmp(&times(b)).then_with(|| is_call(a).cmp(&is_call(b))));
        let sorted = order.iter().filter_map(|index| rows.get(*index as usize).copied()).collect();
        let mut places = vec![0; order.len()];
        for (place, index) in (0..).zip(&order) {
            if let Some(slot) = places.get_mut(*index as usize) {
                *slot = place;
            }
        }
        for (index, _) in &mut self.events.flows {
            *index = places.get(*index as usize).copied().unwrap_or(u32::MAX);
        }
        self.events.rows = sorted;
        places
    }
}

impl EventRow {
    /// Makes its times absolute, and says whether they were before the epoch.
    fn rebase(&mut self, base: i64) -> bool {
        let ((start, early), (end, _)) = (absolute(self.start, base), absolute(self.end, base));
        (self.start, self.end) = (start, end);
        early
    }
}

/// Nanoseconds from the base, so that they keep their order.
pub(super) fn relative(ns: i64) -> Timestamp {
    Timestamp::from_nanos(ns.cast_unsigned() ^ (1 << 63))
}

/// The time that this means, and whether it is before the epoch, which counts as its start.
pub(super) fn absolute(at: Timestamp, base: i64) -> (Timestamp, bool) {
    let ns = (at.as_nanos() ^ (1 << 63)).cast_signed();
    let ns = i128::from(ns) + i128::from(base);
    (Timestamp::from_nanos(u64::try_from(ns.max(0)).unwrap_or(u64::MAX)), ns < 0)
}

/// Whether events of a category are calls of a runtime or a driver.
pub(super) fn is_call(category: &str) -> bool {
    category.ends_with("_runtime") || category.ends_with("_driver")
}

/// Whether such an event's "External id" is its own.
fn owns(kind: Option<ActivityType>) -> bool {
    use ActivityType as T;
    match kind {
        None => true,
        Some(kind) => matches!(
            kind,
            T::CpuOp | T::UserAnnotation | T::PythonFunction | T::CpuInstantEvent | T::Overhead | T::CollectiveComm
        ),
    }
}

/// Whether such an event has its own correlation id there if nothing else names it.
fn is_wait(kind: Option<ActivityType>) -> bool {
    use ActivityType as T;
    matches!(kind, Some(T::CudaSync | T::CudaEvent | T::XpuSync))
}

/// An argument as an id: a number, or the text of one; 0 is none.
fn number(arguments: &Arguments, span: Span, key: Text) -> Option<u64> {
    let id = match arguments.get(span, key)? {
        ArgValue::I64(id) => u64::try_from(id).ok()?,
        ArgValue::U64(id) => id,
        ArgValue::Str(text) => text.parse().ok()?,
        _ => return None,
    };
    Some(id).filter(|id| *id != 0)
}

/// What the backend of PrivateUse1 calls itself, if it does.
fn private_use1(header: &[(String, String)]) -> Option<String> {
    let (_, json) = header.iter().find(|(key, _)| key == PRIVATE_USE1_KEY)?;
    // It is a word, so nothing is escaped in it.
    let name = json.strip_prefix('"')?.strip_suffix('"')?;
    let is_word = !name.is_empty() && name.chars().all(|each| each.is_ascii_alphanumeric() || each == '_');
    is_word.then(|| name.to_owned())
}

/// Whose devices a trace is about.
fn accelerator(rows: &[EventRow]) -> Accelerator {
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
