//! The rows of devices, each in use by one nest alone.

use crate::time::Timestamp;
use crate::trace::nest::{Nest, Place};
use crate::trace::walk::{NEXT_ROW, Walk};
use kineto_trace::fallible::{self, List};
use std::collections::BTreeSet;

/// The rows that slices of one stream, or of what is like one, lie in: as many as it takes to have them nest.
pub(super) struct Lanes {
    nest: Nest,
    group: i64,
    first: i64,
    step: i64,
    used: List<Lane>,
}

/// A row: its id, and the how manieth it is of those that could have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lane {
    pub(super) id: i64,
    pub(super) nth: usize,
}

/// All rows that are in use, as group and id: two collectors may report one device, a stream may have the number of
/// another's second row, and a device that of this process, as the first in a container is.
pub(super) struct Taken {
    rows: BTreeSet<(i64, i64)>,
    process: i64,
    threads: BTreeSet<i64>,
}

impl Taken {
    pub(super) fn new(walk: &Walk<'_>) -> Taken {
        Taken { rows: BTreeSet::new(), process: walk.process, threads: walk.threads().into_keys().collect() }
    }

    /// Takes a row; `false` if somebody has it.
    fn take(&mut self, group: i64, id: i64) -> bool {
        let is_cpu_row = group == self.process && self.threads.contains(&id.rem_euclid(NEXT_ROW));
        !is_cpu_row && self.rows.insert((group, id))
    }
}

impl Lanes {
    /// Rows of that group: the first has the id `first`, each next one `step` more, but for those that others have.
    pub(super) fn new(group: i64, first: i64, step: i64, resolution_ns: u64) -> Lanes {
        Lanes { nest: Nest::new(0, resolution_ns), group, first, step, used: List::new() }
    }

    /// Finds a row for a slice; returns its id, and where the slice lies.
    pub(super) fn place(&mut self, start: Timestamp, end: Timestamp, taken: &mut Taken) -> (i64, Place) {
        let place = self.nest.place(start, end);
        // Without memory for a row, it would have no end.
        while self.used.len() <= place.row && fallible::check().is_ok() {
            let (group, first, step) = (self.group, self.first, self.step);
            let id = |nth: usize| first.saturating_add(i64::try_from(nth).unwrap_or(0).saturating_mul(step));
            let mut nth = self.used.last().map_or(0, |last| last.nth + 1);
            while !taken.take(group, id(nth)) {
                nth += 1;
            }
            self.used.push(Lane { id: id(nth), nth });
        }
        (self.used.get(place.row).map_or(self.first, |lane| lane.id), place)
    }

    /// Returns the rows in use.
    pub(super) fn used(&self) -> &[Lane] {
        &self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_row_is_taken_twice() {
        let mut taken = Taken { rows: BTreeSet::new(), process: 1, threads: BTreeSet::from([1, 7]) };
        let at = Timestamp::from_nanos;
        let mut of = |group, first, slices: &[(u64, u64)]| {
            let mut lanes = Lanes::new(group, first, NEXT_ROW, 0);
            for (start, end) in slices {
                let _ = lanes.place(at(*start), at(*end), &mut taken);
            }
            lanes.used().iter().map(|lane| (lane.id, lane.nth)).collect::<Vec<_>>()
        };
        assert_eq!(of(0, 7, &[(0, 10), (5, 15), (20, 30)]), [(7, 0), (10_000_007, 1)]);
        assert_eq!(of(0, 7, &[(0, 10), (5, 15)]), [(20_000_007, 2), (30_000_007, 3)], "another collector's");
        assert_eq!(of(0, 10_000_007, &[(0, 10)]), [(40_000_007, 3)], "a stream with the number of a second row");
        assert_eq!(of(2, 7, &[(0, 10)]), [(7, 0)]);
        assert_eq!(of(1, 8, &[(0, 10)]), [(8, 0)]);
        assert_eq!(of(0, -1, &[(0, 10), (5, 15)]), [(-1, 0), (9_999_999, 1)]);
    }
}
