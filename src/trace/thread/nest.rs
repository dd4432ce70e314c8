//! Keeps slices of a row nested or disjoint: Perfetto before v57 deletes others.

use crate::time::Timestamp;
use kineto_base::fallible::List;
use kineto_model::first_fit::FreeRows;

/// The open slices of a thread's rows; slices come in order of their start.
#[derive(Debug, Default)]
pub(crate) struct Nest {
    /// The thread's own row, and its further rows.
    own: Row,
    others: List<Row>,
    /// Slices on the others end here when they are drawn to end.
    free: FreeRows,
    /// A slice that sticks out of the one around it by no more than this clock error is cut.
    slack_ns: u64,
    /// The smallest difference of times that readers can tell apart.
    resolution_ns: u64,
}

#[derive(Debug, Default)]
struct Row {
    /// The open slices, the innermost last.
    open: List<OpenSlice>,
    /// The drawn end of the slice that was closed last.
    closed: Timestamp,
}

/// An open slice; slices that end by its `end` nest in it, though it may be drawn to end a little earlier.
#[derive(Clone, Copy, Debug)]
struct OpenSlice {
    end: Timestamp,
    drawn: Timestamp,
}

/// The row and times with which a slice is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowSlot {
    /// 0 is the thread's own row.
    pub(crate) row: usize,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
}

impl Nest {
    pub(crate) fn new(slack_ns: u64, resolution_ns: u64) -> Nest {
        Nest { slack_ns, resolution_ns, ..Nest::default() }
    }

    /// Finds the first row in which a slice fits, and cuts what readers could take for an overlap.
    pub(crate) fn place_slice(&mut self, start: Timestamp, end: Timestamp) -> RowSlot {
        self.own.close_until(start);
        if end.since(self.own.free_until()) <= self.slack_ns {
            let place = RowSlot { row: 0, start, end };
            return self.own.open_slice(place, self.resolution_ns);
        }
        self.place_apart(start, end)
    }

    /// Does the same without the thread's own row, so that later slices are not displaced from it.
    pub(crate) fn place_apart(&mut self, start: Timestamp, end: Timestamp) -> RowSlot {
        while let Some(row) = self.free.pop_ended(start) {
            if let Some(ended) = self.others.get_mut(row) {
                ended.close_until(start);
                self.free.set_free_until(row, ended.free_until());
            }
        }
        let until = Timestamp::from_nanos(end.as_nanos().saturating_sub(self.slack_ns));
        let free = self.free.first_free(until).unwrap_or(self.others.len());
        if free >= self.others.len() {
            self.others.push(Row::default());
        }
        // Without memory, there is no new row.
        let row = free.min(self.others.len().saturating_sub(1));
        let mut place = RowSlot { row: row + 1, start, end };
        if let Some(other) = self.others.get_mut(row) {
            place = other.open_slice(place, self.resolution_ns);
            self.free.push_end(place.end, row);
            self.free.set_free_until(row, other.free_until());
        }
        place
    }

    /// Returns the number of rows in use.
    pub(crate) fn row_count(&self) -> usize {
        1 + self.others.len()
    }
}

impl Row {
    /// Closes the slices whose drawn end is reached.
    fn close_until(&mut self, by: Timestamp) {
        while let Some(closed) = self.open.pop_if(|open| open.drawn <= by) {
            self.closed = closed.drawn;
        }
    }

    /// Returns the latest end of a slice that begins now.
    fn free_until(&self) -> Timestamp {
        self.open.last().map_or(Timestamp::from_nanos(u64::MAX), |around| around.end)
    }

    /// Opens a slice, and returns its drawn times.
    fn open_slice(&mut self, mut place: RowSlot, resolution_ns: u64) -> RowSlot {
        place.end = place.end.min(self.free_until());
        let end = place.end;
        if resolution_ns > 0 {
            self.keep_apart(&mut place, resolution_ns);
        }
        self.open.push(OpenSlice { end, drawn: place.end });
        place
    }

    /// Cuts a slice so that readers see it begin after the previous one and end within the one around it.
    fn keep_apart(&self, place: &mut RowSlot, resolution_ns: u64) {
        let later = |at: Timestamp| Timestamp::from_nanos(at.as_nanos().saturating_add(resolution_ns));
        if later(self.closed) > place.start {
            place.start = later(self.closed).min(place.end);
        }
        if let Some(around) = self.open.last()
            && later(place.end) > around.drawn
        {
            place.end = Timestamp::from_nanos(around.drawn.as_nanos().saturating_sub(resolution_ns)).max(place.start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ns(ns: u64) -> Timestamp {
        Timestamp::from_nanos(ns)
    }

    fn place(nest: &mut Nest, start: u64, end: u64) -> (usize, u64) {
        let place = nest.place_slice(ns(start), ns(end));
        (place.row, place.end.as_nanos())
    }

    #[test]
    fn nested_and_touching_slices_stay_on_the_row() {
        let mut nest = Nest::new(0, 0);
        for (start, end) in [(0, 100), (0, 50), (50, 100), (100, 101)] {
            assert_eq!(place(&mut nest, start, end), (0, end));
        }
        assert_eq!(nest.row_count(), 1);
    }

    #[test]
    fn small_overhang_is_cut_and_a_large_one_gets_a_row() {
        let mut nest = Nest::new(5, 0);
        assert_eq!(place(&mut nest, 0, 100), (0, 100));
        assert_eq!(place(&mut nest, 10, 105), (0, 100));
        assert_eq!(place(&mut nest, 20, 130), (1, 130));
        assert_eq!(place(&mut nest, 110, 120), (0, 120), "the first row is free again");
    }

    #[test]
    fn place_apart_never_uses_the_first_row() {
        let mut nest = Nest::new(0, 0);
        assert_eq!(nest.place_apart(ns(0), ns(50)).row, 1);
        assert_eq!(place(&mut nest, 10, 100), (0, 100));
        assert_eq!(nest.place_apart(ns(20), ns(40)).row, 1);
        assert_eq!(nest.place_apart(ns(30), ns(60)).row, 2);
        assert_eq!((place(&mut nest, 40, 90), nest.row_count()), ((0, 90), 3));
    }

    #[test]
    fn apparent_overlaps_are_cut_off() {
        let mut nest = Nest::new(0, 2);
        let mut place = |start, end| {
            let place = nest.place_slice(ns(start), ns(end));
            (place.row, place.start.as_nanos(), place.end.as_nanos())
        };
        assert_eq!(place(10, 100), (0, 10, 100));
        assert_eq!(place(20, 30), (0, 20, 30));
        assert_eq!(place(30, 40), (0, 32, 40), "behind the one before");
        assert_eq!(place(42, 43), (0, 42, 43));
        assert_eq!(place(50, 100), (0, 50, 98), "within the one around");
        assert_eq!(place(100, 101), (0, 101, 101), "no shorter than nothing");
        // All slices that end at once stay on the row, however deep.
        for (depth, start) in (200..210).enumerate() {
            assert_eq!(place(start, 300), (0, start, 300 - 2 * depth as u64));
        }
    }

    /// Returns the first row in which nothing that is open ends before the slice does, found by trying each.
    fn first_fit(slices: &[(u64, u64)], slack: u64) -> Vec<usize> {
        let mut rows: Vec<Vec<u64>> = Vec::new();
        let place = |(start, length): &(u64, u64)| {
            let end = start + length;
            rows.iter_mut().for_each(|open| open.retain(|end| end > start));
            let fits = |open: &Vec<u64>| open.last().is_none_or(|around| end <= around + slack);
            let row = rows.iter().position(fits).unwrap_or(rows.len());
            rows.resize_with(rows.len().max(row + 1), Vec::new);
            let around = rows[row].last().copied();
            rows[row].push(around.map_or(end, |around| end.min(around)));
            row
        };
        slices.iter().map(place).collect()
    }

    proptest! {
        #[test]
        fn each_slice_is_in_the_first_row_that_fits(mut slices in prop::collection::vec((0u64..200, 0u64..90), 0..80), slack in 0u64..4) {
            slices.sort_unstable();
            let mut nest = Nest::new(slack, 0);
            let rows: Vec<_> = slices.iter().map(|(start, length)| nest.place_slice(ns(*start), ns(start + length)).row).collect();
            prop_assert_eq!(rows, first_fit(&slices, slack));
        }

        #[test]
        fn rows_never_hold_overlapping_slices(mut slices in prop::collection::vec((0u64..200, 0u64..60), 0..80), slack in 0u64..4, resolution in 0u64..3) {
            slices.sort_unstable();
            let mut nest = Nest::new(slack, resolution);
            let placed: Vec<_> = slices.iter().map(|(start, length)| {
                let place = nest.place_slice(ns(*start), ns(start + length));
                (place.row, place.start.as_nanos(), place.end.as_nanos())
            }).collect();
            for (i, (row, start, end)) in placed.iter().enumerate() {
                for (other_row, other_start, other_end) in &placed[..i] {
                    // The earlier one in the list starts first, or at the same time.
                    prop_assert!(row != other_row || start >= other_end || end <= other_end || start == other_start,
                        "{other_start}..{other_end} and {start}..{end}");
                }
            }
        }
    }
}
