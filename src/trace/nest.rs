//! Slices of one row nest or are disjoint, always: Perfetto deletes others.

use crate::time::Timestamp;

/// The open slices of a thread's rows; slices come in order of their start.
#[derive(Debug, Default)]
pub(crate) struct Nest {
    rows: Vec<Vec<Open>>,
    /// A slice that sticks out of the one around it by no more than this is cut: the clock knows no better.
    slack_ns: u64,
    placed: u64,
}

#[derive(Debug)]
struct Open {
    /// Which of the slices placed, from 1.
    number: u64,
    end: Timestamp,
    span: u64,
}

/// Where a slice goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// 0 is the thread's own row.
    pub(crate) row: usize,
    pub(crate) end: Timestamp,
    /// The span of the innermost slice that is open at its start, on whatever row; 0 if there is none.
    pub(crate) around: u64,
}

impl Nest {
    pub(crate) fn new(slack_ns: u64) -> Nest {
        Nest { rows: Vec::new(), slack_ns, placed: 0 }
    }

    /// Finds the first row in which a slice fits.
    pub(crate) fn place(&mut self, start: Timestamp, end: Timestamp, span: u64) -> Place {
        let slack_ns = self.slack_ns;
        let around = self.around(start);
        let fit = self.rows.iter().enumerate().find_map(|(row, open)| match open.last() {
            None => Some((row, end)),
            Some(around) => (end.since(around.end) <= slack_ns).then_some((row, end.min(around.end))),
        });
        let (row, end) = fit.unwrap_or((self.rows.len(), end));
        if row == self.rows.len() {
            self.rows.push(Vec::new());
        }
        self.placed += 1;
        if let Some(open) = self.rows.get_mut(row) {
            open.push(Open { number: self.placed, end, span });
        }
        Place { row, end, around }
    }

    /// Closes what has ended; returns the span of the slice opened last of those still open.
    fn around(&mut self, start: Timestamp) -> u64 {
        let (mut number, mut span) = (0, 0);
        for open in &mut self.rows {
            while open.pop_if(|open| open.end <= start).is_some() {}
            if let Some(last) = open.last()
                && last.number > number
            {
                (number, span) = (last.number, last.span);
            }
        }
        span
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

    #[test]
    fn nested_and_touching_slices_stay_on_the_row() {
        let mut nest = Nest::new(0);
        assert_eq!(nest.place(ns(0), ns(100), 1), Place { row: 0, end: ns(100), around: 0 });
        assert_eq!(nest.place(ns(0), ns(50), 2), Place { row: 0, end: ns(50), around: 1 });
        assert_eq!(nest.place(ns(50), ns(100), 3), Place { row: 0, end: ns(100), around: 1 });
        assert_eq!(nest.place(ns(100), ns(101), 4), Place { row: 0, end: ns(101), around: 0 });
        assert_eq!(nest.rows(), 1);
    }

    #[test]
    fn what_sticks_out_a_little_is_cut_and_what_sticks_out_more_gets_a_row() {
        let mut nest = Nest::new(5);
        nest.place(ns(0), ns(100), 1);
        assert_eq!(nest.place(ns(10), ns(105), 2), Place { row: 0, end: ns(100), around: 1 });
        assert_eq!(nest.place(ns(20), ns(130), 3), Place { row: 1, end: ns(130), around: 2 });
    }

    #[test]
    fn the_slice_around_is_the_one_opened_last_whatever_its_row() {
        let mut nest = Nest::new(0);
        nest.place(ns(0), ns(100), 1);
        nest.place(ns(10), ns(30), 2);
        assert_eq!(nest.place(ns(20), ns(60), 3), Place { row: 1, end: ns(60), around: 2 });
        assert_eq!(nest.place(ns(40), ns(50), 4), Place { row: 0, end: ns(50), around: 3 });
        assert_eq!(nest.place(ns(60), ns(70), 5), Place { row: 0, end: ns(70), around: 1 });
    }

    proptest! {
        #[test]
        fn no_row_ever_holds_two_slices_that_overlap(mut slices in prop::collection::vec((0u64..200, 0u64..60), 0..80), slack in 0u64..4) {
            slices.sort_unstable();
            let mut nest = Nest::new(slack);
            let placed: Vec<_> = slices.iter().map(|(start, length)| {
                let place = nest.place(ns(*start), ns(start + length), 0);
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
