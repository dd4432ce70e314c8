//! Binds the ends of arrows to events.

use super::append::AppendedIds;
use super::builder::absolute_timestamp;
use super::notes::Note;
use super::{EventRow, Events, Phase};
use crate::activity::Flow;
use crate::time::Timestamp;

/// Ends of arrows that the file lists apart from their events.
#[derive(Debug, Default)]
pub(super) struct Arrows(Vec<ArrowEnd>);

/// One end of an arrow, known by its track and time.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrowEnd {
    pub(super) track: u32,
    pub(super) at: Timestamp,
    /// The event before it in the order of the file.
    pub(super) before: Option<usize>,
    pub(super) flow: Flow,
}

impl Arrows {
    pub(super) fn push(&mut self, arrow_end: ArrowEnd) {
        self.0.push(arrow_end);
    }

    /// Appends the ends of a part of the same file that begins after `rows` events.
    pub(super) fn append(&mut self, part: Arrows, rows: usize, ids: &AppendedIds) {
        self.0.extend(part.0.into_iter().map(|arrow_end| ArrowEnd {
            track: ids.track(arrow_end.track),
            before: (rows + arrow_end.before.map_or(0, |before| before + 1)).checked_sub(1),
            ..arrow_end
        }));
    }

    pub(super) fn rebase_times(&mut self, base: i64) {
        self.0.iter_mut().for_each(|arrow_end| arrow_end.at = absolute_timestamp(arrow_end.at, base).0);
    }

    /// Binds each end to the event before it in the file, as Kineto writes them, if that event covers its place.
    /// Otherwise binds it to the innermost slice around it. `places` maps old indices to sorted ones.
    pub(super) fn bind_ends(mut self, events: &mut Events, places: &[u32]) {
        self.0.retain(|arrow_end| {
            let place = arrow_end.before.and_then(|before| places.get(before));
            let row = place.and_then(|place| events.rows.get(*place as usize));
            let covers_place = |row: &&EventRow| {
                row.track == arrow_end.track
                    && row.phase != Phase::Counter
                    && (row.start..=row.end).contains(&arrow_end.at)
            };
            let (Some(place), Some(_)) = (place, row.filter(covers_place)) else { return true };
            events.flows.push((*place, arrow_end.flow));
            false
        });
        self.bind_by_time(events);
        events.flows.sort_by_key(|(index, _)| *index);
    }

    fn bind_by_time(mut self, events: &mut Events) {
        self.0.sort_by_key(|arrow_end| arrow_end.at);
        let mut open: Vec<Vec<(u32, Timestamp)>> =
            vec![Vec::new(); if self.0.is_empty() { 0 } else { events.tracks.len() }];
        let mut rows = (0..).zip(&events.rows).filter(|(_, row)| row.phase == Phase::Slice).peekable();
        for arrow_end in &self.0 {
            while let Some((index, row)) = rows.next_if(|(_, row)| row.start <= arrow_end.at) {
                if let Some(open) = open.get_mut(row.track as usize) {
                    while open.pop_if(|(_, end)| *end < row.start).is_some() {}
                    open.push((index, row.end));
                }
            }
            let around = open.get_mut(arrow_end.track as usize).and_then(|open| {
                while open.pop_if(|(_, end)| *end < arrow_end.at).is_some() {}
                open.last()
            });
            match around {
                Some((index, _)) => events.flows.push((*index, arrow_end.flow)),
                None => events.notes.add(Note::LooseArrow, 1),
            }
        }
    }
}
