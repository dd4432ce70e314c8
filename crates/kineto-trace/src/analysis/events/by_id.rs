//! Finds events by an id that they have in common with others.

use super::event::Event;
use super::{Events, TrackId};
use crate::hash::HashMap;

/// The first event with each id, in each scope.
///
/// A process counts its ids by itself. A trace of one process has one scope. In a trace merged from several, process ids have
/// prefixes, such as `[TP00] 1000`, and the tracks of one prefix are a scope. If processes of one scope share an id, the
/// first event of each is kept.
#[derive(Clone, Debug)]
pub(crate) struct EventsById {
    /// By track: its scope.
    scopes: Vec<u32>,
    /// By scope.
    firsts: Vec<FirstById>,
    /// By scope and id: the first events of further processes, in order.
    others: HashMap<(u32, u64), Vec<u32>>,
    /// The only scope with ids; `None` if there are several.
    only_scope: Option<usize>,
    /// By id, if there are several scopes: the events of all scopes.
    anywhere: HashMap<u64, Vec<u32>>,
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
        let (scopes, count) = track_scopes(events);
        let mut ids: Vec<Vec<(u64, u32)>> = vec![Vec::new(); count];
        for (id, event) in all {
            let scope = scopes.get(event.track_index()).and_then(|scope| ids.get_mut(*scope as usize));
            scope.into_iter().for_each(|ids| ids.push((id, u32::try_from(event.index()).unwrap_or(NONE))));
        }
        let mut used = (0..count).filter(|scope| ids.get(*scope).is_some_and(|ids| !ids.is_empty()));
        let only_scope = used.next().filter(|_| used.next().is_none());
        let firsts = ids.iter().map(|ids| FirstById::new(ids)).collect();
        let others = HashMap::default();
        let mut by_id = EventsById { scopes, firsts, others, only_scope, anywhere: HashMap::default() };
        for (scope, ids) in (0..).zip(&ids) {
            by_id.add_other_processes(events, scope, ids);
        }
        by_id
    }

    /// Adds the first event of each further process that shares an id.
    fn add_other_processes(&mut self, events: &Events, scope: u32, ids: &[(u64, u32)]) {
        let Some(firsts) = self.firsts.get(scope as usize) else { return };
        let process = |index: u32| events.get(index as usize).map(|event| &event.track().process);
        for (id, event) in ids {
            let is_first = firsts.get(*id) == Some(*event);
            let mut is_kept = is_first;
            if !is_first && firsts.get(*id).is_some_and(|first| process(first) != process(*event)) {
                let others = self.others.entry((scope, *id)).or_default();
                is_kept = others.iter().all(|other| process(*other) != process(*event));
                others.extend(is_kept.then_some(*event));
            }
            if is_kept && self.only_scope.is_none() {
                self.anywhere.entry(*id).or_default().push(*event);
            }
        }
    }

    /// Returns how many events have an id that an event of another process has: those that their scopes tell apart, and the rest.
    pub(crate) fn repeated(&self) -> (u64, u64) {
        let more = |lists: &mut dyn Iterator<Item = usize>| lists.map(|count| count as u64).sum::<u64>();
        let within = more(&mut self.others.values().map(Vec::len));
        let all = more(&mut self.anywhere.values().map(|found| found.len() - 1));
        (all.saturating_sub(within), within)
    }

    /// Returns the event with that id in the scope of `user`, or in any scope if that one has no ids. If several processes have
    /// one, returns that of the user's process, else the last that begins before the user, else the first.
    pub(crate) fn get<'e>(&self, user: Event<'e>, id: u64) -> Option<Event<'e>> {
        let own = self.scopes.get(user.track_index()).map(|scope| *scope as usize);
        let own = own.filter(|scope| self.firsts.get(*scope).is_some_and(|first| !first.is_empty()));
        let others = match own.or(self.only_scope) {
            Some(scope) => {
                let first = user.events.get(self.firsts.get(scope)?.get(id)? as usize);
                let others = u32::try_from(scope).ok().and_then(|scope| self.others.get(&(scope, id)));
                match others {
                    None => return first,
                    Some(others) => first.into_iter().map(|first| first.index()).chain(indices(others)).collect(),
                }
            }
            None => indices(self.anywhere.get(&id)?).collect::<Vec<_>>(),
        };
        let found: Vec<Event<'e>> = others.into_iter().filter_map(|index| user.events.get(index)).collect();
        let own = found.iter().find(|event| event.track().process == user.track().process);
        let earlier = || found.iter().filter(|event| event.start() <= user.start()).max_by_key(|event| event.start());
        own.or_else(earlier).or(found.first()).copied()
    }
}

fn indices(events: &[u32]) -> impl Iterator<Item = usize> {
    events.iter().map(|index| *index as usize)
}

/// Returns the scope of each track, and the number of scopes.
fn track_scopes(events: &Events) -> (Vec<u32>, usize) {
    let mut numbers: HashMap<&str, u32> = HashMap::default();
    numbers.insert("", 0);
    let mut scope = |process| {
        let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        *numbers.entry(id_prefix(process)).or_insert(next)
    };
    let scopes = events.tracks().iter().map(|track| scope(&track.process)).collect();
    (scopes, numbers.len())
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
            assert_eq!(by_id.repeated(), (0, 0));
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
            (found, by_id.repeated())
        };
        let ranks = ["\"[TP00] 1000\"", "\"[TP01] 1001\"", "\"[TP00] 1000\""];
        assert_eq!(find(&ranks, "\"[TP00] 0\""), (Some(0), (1, 0)));
        assert_eq!(find(&ranks, "\"[TP01] GPU 1\""), (Some(1), (1, 0)));
        assert_eq!(find(&ranks[..1], "\"[TP01] 1\""), (Some(0), (0, 0)), "only one prefix has calls");
        assert_eq!(find(&ranks, "\"GPU 0\""), (Some(1), (1, 0)), "the last before the work");
        assert_eq!(find(&["1000", "1001", "1001"], "0"), (Some(1), (0, 1)));
        assert_eq!(find(&["1000", "1001"], "1000"), (Some(0), (0, 1)));
        assert_eq!(find(&["\"rank0 1\"", "\"rank0 2\"", "\"rank1 1\""], "\"rank0 0\""), (Some(1), (1, 1)));
    }
}
