//! Finds events by an id that they have in common with others.

use super::event::Event;
use super::{Events, TrackId};
use crate::hash::{HashMap, HashSet};

/// The events with each id, in each scope.
///
/// A process counts its ids by itself. A trace of one process has one scope. In a trace merged from several, process ids have
/// prefixes, such as `[TP00] 1000`, and the tracks of one prefix are a scope. An id may still repeat in a scope: in another
/// process, or later in the same one. A call inside another of its id is not a repetition, such as the driver's inside the runtime's.
#[derive(Clone, Debug)]
pub(crate) struct EventsById {
    /// By track: its scope and its process.
    tracks: Vec<(u32, u32)>,
    /// By scope.
    firsts: Vec<FirstById>,
    /// By group and id, if the id repeats in its scope: the group's events, in order.
    repeated: HashMap<(Group, u64), Vec<u32>>,
    /// The only scope with ids; `None` if there are several.
    only_scope: Option<u32>,
    /// By id, if there are several scopes: the events of all scopes, in order.
    anywhere: HashMap<u64, Vec<u32>>,
    /// Whether processes of one scope have an id in common.
    are_ids_shared: bool,
}

/// The events of a scope or a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Group {
    Scope(u32),
    Process(u32),
}

/// The first event with each id.
#[derive(Clone, Debug)]
enum FirstById {
    /// The indexes of the events by id, from the least one on; [`NONE`] for an id that no event has. Ids mostly ascend with
    /// time, so neighbors in the trace are neighbors here.
    Dense(u64, Vec<u32>),
    Sparse(HashMap<u64, u32>),
}

const NONE: u32 = u32::MAX;

/// The dense list is used if it has at most this many slots per id.
const PLACES_MAX: u64 = 4;

impl EventsById {
    /// Takes the events in order, each with its id.
    pub(crate) fn new<'e>(events: &'e Events, all: impl Iterator<Item = (u64, Event<'e>)>) -> EventsById {
        let (tracks, count) = track_groups(events);
        let mut ids: Vec<Vec<(u64, u32)>> = vec![Vec::new(); count];
        for (id, event) in all {
            let scope = tracks.get(event.track_index()).and_then(|(scope, _)| ids.get_mut(*scope as usize));
            scope.into_iter().for_each(|ids| ids.push((id, u32::try_from(event.index()).unwrap_or(NONE))));
        }
        let mut used = (0..).zip(&ids).filter(|(_, ids)| !ids.is_empty()).map(|(scope, _)| scope);
        let only_scope = used.next().filter(|_| used.next().is_none());
        let firsts = ids.iter().map(|ids| FirstById::new(ids)).collect();
        let (repeated, anywhere) = (HashMap::default(), HashMap::default());
        let mut by_id = EventsById { tracks, firsts, repeated, only_scope, anywhere, are_ids_shared: false };
        for (scope, ids) in (0..).zip(&ids) {
            by_id.add_scope(events, scope, ids);
        }
        by_id.anywhere.values_mut().for_each(|found| found.sort_unstable());
        by_id
    }

    /// Adds the events of a scope whose id repeats.
    fn add_scope(&mut self, events: &Events, scope: u32, ids: &[(u64, u32)]) {
        let EventsById { tracks, firsts, repeated, anywhere, .. } = self;
        let Some(firsts) = firsts.get(scope as usize) else { return };
        let get = |index: u32| events.get(index as usize);
        let process = |event: Event<'_>| Group::Process(tracks.get(event.track_index()).map_or(0, |track| track.1));
        for (id, index) in ids {
            let Some((first, event)) = firsts.get(*id).and_then(get).zip(get(*index)) else { continue };
            if first.index() != event.index() {
                let (own, of_first) = (process(event), process(first));
                let last = || repeated.get(&(own, *id)).and_then(|own| get(*own.last()?));
                if is_inside(event, first) || last().is_some_and(|last| is_inside(event, last)) {
                    continue;
                }
                self.are_ids_shared |= own != of_first;
                let scope = Group::Scope(scope);
                for group in [scope, of_first] {
                    repeated.entry((group, *id)).or_insert_with(|| firsts.get(*id).into_iter().collect());
                }
                for group in [scope, own] {
                    repeated.entry((group, *id)).or_default().push(*index);
                }
            }
            if self.only_scope.is_none() {
                anywhere.entry(*id).or_default().push(*index);
            }
        }
    }

    /// Returns how many events have an id of another scope, and how many repeat one of the ids that `used` returns in their scope.
    pub(crate) fn count_repeated(&self, used: impl FnOnce() -> HashSet<u64>) -> (u64, u64) {
        let of_scopes = || self.repeated.iter().filter(|((group, _), _)| matches!(group, Group::Scope(_)));
        let within: u64 = of_scopes().map(|(_, found)| found.len() as u64 - 1).sum();
        let all: u64 = self.anywhere.values().map(|found| found.len() as u64 - 1).sum();
        let used = if within > 0 { used() } else { HashSet::default() };
        let of_used = of_scopes().filter(|((_, id), _)| used.contains(id));
        (all.saturating_sub(within), of_used.map(|(_, found)| found.len() as u64 - 1).sum())
    }

    /// Returns the event with that id in the scope of `user`, or in any scope if that one has no ids, and whether no other can be
    /// meant. Of several, returns one of the user's process, if there is one: the last that begins before the user, else the first.
    pub(crate) fn find<'e>(&self, user: Event<'e>, id: u64) -> Option<(Event<'e>, bool)> {
        let (scope, process) = self.tracks.get(user.track_index()).copied()?;
        let has_ids = |scope: &u32| self.firsts.get(*scope as usize).is_some_and(|first| !first.is_empty());
        let several = |group| self.repeated.get(&(group, id)).map(Vec::as_slice);
        let (first, several) = match Some(scope).filter(has_ids).or(self.only_scope) {
            Some(scope) => {
                let first = self.firsts.get(scope as usize)?.get(id)?;
                (first, several(Group::Process(process)).or_else(|| several(Group::Scope(scope))).unwrap_or_default())
            }
            None => self.anywhere.get(&id).and_then(|found| Some((*found.first()?, found.as_slice())))?,
        };
        let is_before =
            |index: &u32| user.events.get(*index as usize).is_some_and(|event| event.start() <= user.start());
        let last = several.partition_point(is_before).saturating_sub(1);
        let found = user.events.get(several.get(last).copied().unwrap_or(first) as usize)?;
        // An event that begins later may be of another process, if its own one's is missing.
        let is_own = found.track().process == user.track().process;
        let is_sure = several.len() < 2 && (is_own || !self.are_ids_shared || found.start() <= user.start());
        Some((found, is_sure))
    }

    /// Returns the event that [`find`](EventsById::find) finds.
    pub(crate) fn get<'e>(&self, user: Event<'e>, id: u64) -> Option<Event<'e>> {
        self.find(user, id).map(|(event, _)| event)
    }
}

/// Returns whether a later event begins within `outer`, on its thread.
fn is_inside(event: Event<'_>, outer: Event<'_>) -> bool {
    (event.start() < outer.end() || event.start() == outer.start()) && event.is_on_thread_of(&outer)
}

/// Returns the scope and the process of each track, and the number of scopes.
fn track_groups(events: &Events) -> (Vec<(u32, u32)>, usize) {
    let (mut prefixes, mut processes) = (HashMap::<&str, u32>::default(), HashMap::<&TrackId, u32>::default());
    prefixes.insert("", 0);
    let mut groups = |process| {
        let (next, number) = (prefixes.len(), processes.len());
        let scope = *prefixes.entry(id_prefix(process)).or_insert(u32::try_from(next).unwrap_or(u32::MAX));
        (scope, *processes.entry(process).or_insert(u32::try_from(number).unwrap_or(u32::MAX)))
    };
    let tracks = events.tracks().iter().map(|track| groups(&track.process)).collect();
    (tracks, prefixes.len())
}

/// Returns the prefix of a process id in a merged trace: the first word if it has a number, such as `[TP00]`, else all before the
/// last number. A plain number has none.
fn id_prefix(process: &TrackId) -> &str {
    let TrackId::Name(name) = process else { return "" };
    match name.split_once(char::is_whitespace) {
        Some((word, _)) if word.contains(|letter: char| letter.is_ascii_digit()) => word,
        _ => name.trim_end_matches(|letter: char| letter.is_ascii_digit()),
    }
}

impl FirstById {
    fn new(ids: &[(u64, u32)]) -> FirstById {
        let least = ids.iter().map(|(id, _)| *id).min().unwrap_or(0);
        let range = ids.iter().map(|(id, _)| *id - least).max().unwrap_or(0);
        let places = usize::try_from(range).ok().filter(|_| range / PLACES_MAX <= ids.len() as u64);
        let Some(places) = places else {
            let mut by_id = HashMap::default();
            ids.iter().for_each(|(id, event)| {
                by_id.entry(*id).or_insert(*event);
            });
            return FirstById::Sparse(by_id);
        };
        let mut by_id = vec![NONE; if ids.is_empty() { 0 } else { places + 1 }];
        for (id, event) in ids {
            let place = usize::try_from(id - least).ok().and_then(|place| by_id.get_mut(place));
            place.filter(|place| **place == NONE).into_iter().for_each(|place| *place = *event);
        }
        FirstById::Dense(least, by_id)
    }

    fn is_empty(&self) -> bool {
        match self {
            FirstById::Dense(_, by_id) => by_id.is_empty(),
            FirstById::Sparse(by_id) => by_id.is_empty(),
        }
    }

    /// Returns the index of the first event with that id.
    fn get(&self, id: u64) -> Option<u32> {
        let index = match self {
            FirstById::Dense(least, by_id) => *by_id.get(usize::try_from(id.checked_sub(*least)?).ok()?)?,
            FirstById::Sparse(by_id) => *by_id.get(&id)?,
        };
        (index != NONE).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::{ActivityType, NO_ARGS};
    use crate::analysis::sample::SampleTrace;

    #[test]
    fn first_event_of_an_id_is_found_in_dense_and_sparse_lists() {
        let sample = (0..4).fold(SampleTrace::default(), |sample, at| {
            sample.host_slice(ActivityType::CpuOp, "op", 1, (at * 10, at * 10 + 5), NO_ARGS)
        });
        let events = sample.into_events();
        let user = events.get(0).unwrap();
        for ids in [[7, 8, 7, 10], [7, u64::MAX, 7, 1 << 40]] {
            let by_id = EventsById::new(&events, ids.into_iter().zip(events.iter()));
            let found = |id| by_id.get(user, id).map(|event| event.index());
            assert_eq!((found(7), found(ids[1]), found(ids[3])), (Some(0), Some(1), Some(3)));
            assert_eq!((found(0), found(9), found(11)), (None, None, None));
            assert_eq!(by_id.count_repeated(|| HashSet::from_iter([7])), (0, 1));
        }
        let none = EventsById::new(&events, std::iter::empty());
        assert!(none.get(user, 0).is_none());
    }

    #[test]
    fn ids_are_found_in_the_scope_of_their_user() {
        let row = |pid: &str, ts: u32| {
            format!(r#"{{"ph":"X","cat":"cpu_op","name":"{ts}","pid":{pid},"tid":1,"ts":{ts},"dur":1}}"#)
        };
        let find = |calls: &[&str], user: &str| {
            let rows: Vec<_> = (0..).zip(calls).map(|(ts, pid)| row(pid, ts)).chain([row(user, 90)]).collect();
            let events = Events::from_reader(format!("[{}]", rows.join(",")).as_bytes()).unwrap();
            let by_id = EventsById::new(&events, events.iter().take(calls.len()).map(|event| (5, event)));
            let found = by_id.get(events.iter().last().unwrap(), 5).map(|event| event.index());
            (found, by_id.count_repeated(|| HashSet::from_iter([5])))
        };
        let ranks = ["\"[TP00] 1000\"", "\"[TP01] 1001\"", "\"[TP00] 1000\""];
        assert_eq!(find(&ranks[..2], "\"[TP00] 0\""), (Some(0), (1, 0)));
        assert_eq!(find(&ranks, "\"[TP00] 0\""), (Some(2), (1, 1)), "the last before the work");
        assert_eq!(find(&ranks, "\"[TP01] GPU 1\""), (Some(1), (1, 1)));
        assert_eq!(find(&ranks[..1], "\"[TP01] 1\""), (Some(0), (0, 0)), "only one prefix has calls");
        assert_eq!(find(&ranks, "\"GPU 0\""), (Some(2), (1, 1)), "the last before the work");
        assert_eq!(find(&["1000", "1001", "1001"], "0"), (Some(2), (0, 2)));
        assert_eq!(find(&["1000", "1001"], "1000"), (Some(0), (0, 1)));
        assert_eq!(find(&["\"rank0 1\"", "\"rank0 2\"", "\"rank1 1\""], "\"rank0 0\""), (Some(1), (1, 1)));
    }
}
