//! Allocates rows of devices, each to one nest of slices.

use crate::time::Timestamp;
use crate::trace::thread::nest::{Nest, RowSlot};
use crate::trace::walk::{NEXT_ROW, Walk};
use kineto_base::fallible::{self, List};
use kineto_base::hash::HashSet;

/// The rows of one stream: as many as its slices need to nest.
pub(super) struct StreamLanes {
    nest: Nest,
    group: i64,
    first: i64,
    step: i64,
    /// The rows in use.
    pub(super) used: List<DeviceRow>,
}

/// A row: its id, and its index among the candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeviceRow {
    pub(super) id: i64,
    pub(super) nth: usize,
}

/// All rows in use, by group and id. Ids may collide: two collectors may report one device, a stream may have the number of
/// another's second row, and a device that of this process in a container.
pub(super) struct UsedRows {
    rows: HashSet<(i64, i64)>,
    process: i64,
    threads: HashSet<i64>,
}

impl UsedRows {
    pub(super) fn new(walk: &Walk<'_>) -> UsedRows {
        UsedRows {
            rows: HashSet::default(),
            process: walk.info.process,
            threads: walk.lanes_by_thread().keys().copied().collect(),
        }
    }

    /// Takes a row; `false` if it is in use.
    fn try_take_row(&mut self, group: i64, id: i64) -> bool {
        let is_cpu_row = group == self.process && self.threads.contains(&id.rem_euclid(NEXT_ROW));
        !is_cpu_row && self.rows.insert((group, id))
    }
}

impl StreamLanes {
    /// Creates rows of a group. The first has the id `first`, each next one `step` more; ids in use are skipped.
    pub(super) fn new(group: i64, first: i64, step: i64, resolution_ns: u64) -> StreamLanes {
        StreamLanes { nest: Nest::new(0, resolution_ns), group, first, step, used: List::new() }
    }

    /// Returns the id of the first row in use.
    pub(super) fn first_row_id(&self) -> i64 {
        self.used.first().map_or(self.first, |lane| lane.id)
    }

    /// Finds a row for a slice; returns its id and the drawn times.
    pub(super) fn place_slice(&mut self, start: Timestamp, end: Timestamp, used_rows: &mut UsedRows) -> (i64, RowSlot) {
        let place = self.nest.place_slice(start, end);
        // Without memory for a row, this would never end.
        while self.used.len() <= place.row && fallible::check_memory().is_ok() {
            let (group, first, step) = (self.group, self.first, self.step);
            let id = |nth: usize| first.saturating_add(i64::try_from(nth).unwrap_or(0).saturating_mul(step));
            let mut nth = self.used.last().map_or(0, |last| last.nth + 1);
            while !used_rows.try_take_row(group, id(nth)) {
                nth += 1;
            }
            self.used.push(DeviceRow { id: id(nth), nth });
        }
        (self.used.get(place.row).map_or(self.first, |lane| lane.id), place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_unique() {
        let mut used_rows = UsedRows { rows: HashSet::default(), process: 1, threads: HashSet::from_iter([1, 7]) };
        let at = Timestamp::from_nanos;
        let mut of = |group, first, slices: &[(u64, u64)]| {
            let mut lanes = StreamLanes::new(group, first, NEXT_ROW, 0);
            for (start, end) in slices {
                let _ = lanes.place_slice(at(*start), at(*end), &mut used_rows);
            }
            lanes.used.iter().map(|lane| (lane.id, lane.nth)).collect::<Vec<_>>()
        };
        assert_eq!(of(0, 7, &[(0, 10), (5, 15), (20, 30)]), [(7, 0), (10_000_007, 1)]);
        assert_eq!(of(0, 7, &[(0, 10), (5, 15)]), [(20_000_007, 2), (30_000_007, 3)], "another collector's");
        assert_eq!(of(0, 10_000_007, &[(0, 10)]), [(40_000_007, 3)], "a stream with the number of a second row");
        assert_eq!(of(2, 7, &[(0, 10)]), [(7, 0)]);
        assert_eq!(of(1, 8, &[(0, 10)]), [(8, 0)]);
        assert_eq!(of(0, -1, &[(0, 10), (5, 15)]), [(-1, 0), (9_999_999, 1)]);
    }
}
