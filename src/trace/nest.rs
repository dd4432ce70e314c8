//! Slices of one row nest or are disjoint, always: Perfetto deletes others.

use crate::time::Timestamp;

/// The open slices of a thread's rows; slices come in order of their start.
#[derive(Debug, Default)]
pub(crate) struct Nest {
    /// The ends of the slices that are open in each row, the innermost last.
    rows: Vec<Vec<Timestamp>>,
    /// A slice that sticks out of the one around it by no more than this is cut: the clock knows no better.
    slack_ns: u64,
}

/// Where a slice goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// 0 is the thread's own row.
    pub(crate) row: usize,
    pub(crate) end: Timestamp,
}

impl Nest {
    pub(crate) fn new(slack_ns: u64) -> Nest {
        Nest { rows: Vec::new(), slack_ns }
    }

    /// Finds the first row in which a slice fits.
    pub(crate) fn place(&mut self, start: Timestamp, end: Timestamp) -> Place {
        for (row, open) in self.rows.iter_mut().enumerate() {
            while open.pop_if(|end| *end <= start).is_some() {}
            let around = open.last().copied().unwrap_or(end);
            if end.since(around) <= self.slack_ns {
                let end = end.min(around);
                open.push(end);
                return Place { row, end };
            }
        }
        self.rows.push(vec![end]);
        Place { row: self.rows.len() - 1, end }
    }

    /// Returns how many rows are in use.
    pub(crate) fn rows(&self) -> usize {
        self.rows.len()
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
        let place = nest.place(ns(start), ns(end));
        (place.row, place.end.as_nanos())
    }

    #[test]
    fn nested_and_touching_slices_stay_on_the_row() {
        let mut nest = Nest::new(0);
        for (start, end) in [(0, 100), (0, 50), (50, 100), (100, 101)] {
            assert_eq!(place(&mut nest, start, end), (0, end));
        }
        assert_eq!(nest.rows(), 1);
    }

    #[test]
    fn what_sticks_out_a_little_is_cut_and_what_sticks_out_more_gets_a_row() {
        let mut nest = Nest::new(5);
        assert_eq!(place(&mut nest, 0, 100), (0, 100));
        assert_eq!(place(&mut nest, 10, 105), (0, 100));
        assert_eq!(place(&mut nest, 20, 130), (1, 130));
        assert_eq!(place(&mut nest, 110, 120), (0, 120), "the first row is free again");
    }

    proptest! {
        #[test]
        fn no_row_ever_holds_two_slices_that_overlap(mut slices in prop::collection::vec((0u64..200, 0u64..60), 0..80), slack in 0u64..4) {
            slices.sort_unstable();
            let mut nest = Nest::new(slack);
            let placed: Vec<_> = slices.iter().map(|(start, length)| {
                let place = nest.place(ns(*start), ns(start + length));
                (place.row, *start, place.end.as_nanos())
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
