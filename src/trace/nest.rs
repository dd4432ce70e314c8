//! Slices of one row nest or are disjoint, always: Perfetto deletes others.

use crate::time::Timestamp;

/// The open slices of a thread's rows; slices come in order of their start.
#[derive(Debug, Default)]
pub(crate) struct Nest {
    rows: Vec<Vec<Open>>,
    /// A slice that sticks out of the one around it by no more than this is cut: the clock knows no better.
    slack_ns: u64,
}

#[derive(Debug)]
struct Open {
    end: Timestamp,
    span: u64,
}

/// Where a slice goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// 0 is the thread's own row.
    pub(crate) row: usize,
    pub(crate) end: Timestamp,
    /// The span of the slice around it on that row, 0 if there is none.
    pub(crate) around: u64,
}

impl Nest {
    pub(crate) fn new(slack_ns: u64) -> Nest {
        Nest { rows: Vec::new(), slack_ns }
    }

    /// Finds the first row in which a slice fits.
    pub(crate) fn place(&mut self, start: Timestamp, end: Timestamp, span: u64) -> Place {
        let slack_ns = self.slack_ns;
        let fit = self.rows.iter_mut().enumerate().find_map(|(row, open)| {
            while open.pop_if(|open| open.end <= start).is_some() {}
            let Some(around) = open.last() else { return Some((row, end, 0)) };
            let sticks_out = end.since(around.end);
            (sticks_out <= slack_ns).then_some((row, end.min(around.end), around.span))
        });
        let (row, end, around) = fit.unwrap_or((self.rows.len(), end, 0));
        if row == self.rows.len() {
            self.rows.push(Vec::new());
        }
        if let Some(open) = self.rows.get_mut(row) {
            open.push(Open { end, span });
        }
        Place { row, end, around }
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
        assert_eq!(nest.place(ns(20), ns(130), 3), Place { row: 1, end: ns(130), around: 0 });
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
