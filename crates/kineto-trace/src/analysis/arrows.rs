//! Arrows: which event each end of one belongs to.

use super::builder::absolute;
use super::events::{EventRow, Events, Phase};
use super::notes::Note;
use crate::activity::Flow;
use crate::time::Timestamp;

/// The ends of arrows that stand beside their events.
#[derive(Debug, Default)]
pub(super) struct Arrows(Vec<Loose>);

/// One end of an arrow, known by its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loose {
    pub(super) track: u32,
    pub(super) at: Timestamp,
    /// The event that was taken before it, in the order of the file.
    pub(super) before: Option<usize>,
    pub(super) flow: Flow,
}

impl Arrows {
    pub(super) fn push(&mut self, loose: Loose) {
        self.0.push(loose);
    }

    /// Makes all times absolute.
    pub(super) fn rebase(&mut self, base: i64) {
        self.0.iter_mut().for_each(|loose| loose.at = absolute(loose.at, base).0);
    }

    /// Gives each end to its event: the one that stands before it in the file, as Kineto writes them, if it lies there;
    /// else the innermost slice around it. `places` is where each event went.
    pub(super) fn bind(mut self, events: &mut Events, places: &[u32]) {
        self.0.retain(|loose| {
            let place = loose.before.and_then(|before| places.get(before));
            let row = place.and_then(|place| events.rows.get(*place as usize));
            let is_there = |row: &&EventRow| {
                row.track == loose.track && row.phase != Phase::Counter && (row.start..=row.end).contains(&loose.at)
            };
            let (Some(place), Some(_)) = (place, row.filter(is_there)) else { return true };
            events.flows.push((*place, loose.flow));
            false
        });
        self.bind_by_time(events);
        events.flows.sort_by_key(|(index, _)| *index);
    }

    fn bind_by_time(mut self, events: &mut Events) {
        self.0.sort_by_key(|loose| loose.at);
        let mut open: Vec<Vec<(u32, Timestamp)>> =
            vec![Vec::new(); if self.0.is_empty() { 0 } else { events.tracks.len() }];
        let mut rows = (0..).zip(&events.rows).filter(|(_, row)| row.phase == Phase::Slice).peekable();
        for loose in &self.0 {
            while let Some((index, row)) = rows.next_if(|(_, row)| row.start <= loose.at) {
                if let Some(open) = open.get_mut(row.track as usize) {
                    while open.pop_if(|(_, end)| *end < row.start).is_some() {}
                    open.push((index, row.end));
                }
            }
            let around = open.get_mut(loose.track as usize).and_then(|open| {
                while open.pop_if(|(_, end)| *end < loose.at).is_some() {}
                open.last()
            });
            match around {
                Some((index, _)) => events.flows.push((*index, loose.flow)),
                None => events.notes.add(Note::LooseArrow, 1),
            }
        }
    }
}
