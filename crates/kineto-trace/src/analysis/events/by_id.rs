//! Finds events by an id that they have in common with others.

use super::Events;
use super::event::Event;
use crate::hash::HashMap;

/// The first event with each id.
#[derive(Debug)]
pub(crate) enum EventsById {
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
    pub(crate) fn new<'e>(events: impl Iterator<Item = (u64, Event<'e>)>) -> EventsById {
        let index = |event: Event<'_>| u32::try_from(event.index()).unwrap_or(NONE);
        let ids: Vec<(u64, u32)> = events.map(|(id, event)| (id, index(event))).collect();
        let least = ids.iter().map(|(id, _)| *id).min().unwrap_or(0);
        let range = ids.iter().map(|(id, _)| *id - least).max().unwrap_or(0);
        let places = usize::try_from(range).ok().filter(|_| range / PLACES_MAX <= ids.len() as u64);
        let Some(places) = places else {
            let mut by_id = HashMap::default();
            ids.into_iter().for_each(|(id, event)| {
                by_id.entry(id).or_insert(event);
            });
            return EventsById::Sparse(by_id);
        };
        let mut by_id = vec![NONE; places + 1];
        for (id, event) in ids {
            let place = usize::try_from(id - least).ok().and_then(|place| by_id.get_mut(place));
            place.filter(|place| **place == NONE).into_iter().for_each(|place| *place = event);
        }
        EventsById::Dense(least, by_id)
    }

    /// Returns the first event with that id.
    pub(crate) fn get<'e>(&self, events: &'e Events, id: u64) -> Option<Event<'e>> {
        let index = match self {
            EventsById::Dense(least, by_id) => *by_id.get(usize::try_from(id.checked_sub(*least)?).ok()?)?,
            EventsById::Sparse(by_id) => *by_id.get(&id)?,
        };
        events.get(index as usize)
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
        for ids in [[7, 8, 7, 10], [7, u64::MAX, 7, 1 << 40]] {
            let by_id = EventsById::new(ids.into_iter().zip(events.iter()));
            let found = |id| by_id.get(&events, id).map(|event| event.index());
            assert_eq!((found(7), found(ids[1]), found(ids[3])), (Some(0), Some(1), Some(3)));
            assert_eq!((found(0), found(9), found(11)), (None, None, None));
        }
        let none = EventsById::new(std::iter::empty());
        assert!(none.get(&events, 0).is_none());
    }
}
