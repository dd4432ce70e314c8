//! Slices of one row nest or are disjoint, always: Perfetto deletes others.

use crate::time::Timestamp;

/// The open slices of a thread's rows; slices come in order of their start.
#[derive(Debug, Default)]
pub(crate) struct Nest {
    rows: Vec<Row>,
    /// A slice that sticks out of the one around it by no more than this is cut: the clock knows no better.
    slack_ns: u64,
    /// Readers tell times apart that differ by this.
    resolution_ns: u64,
}

#[derive(Debug, Default)]
struct Row {
    /// The slices that are open, the innermost last.
    open: Vec<Open>,
    /// Where the slice that was closed last is drawn to end.
    closed: Timestamp,
}

/// An open slice: what ends by its end lies within it, though it may be drawn to end a little earlier.
#[derive(Clone, Copy, Debug)]
struct Open {
    end: Timestamp,
    drawn: Timestamp,
}

/// Where a slice goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// 0 is the thread's own row.
    pub(crate) row: usize,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
}

impl Nest {
    pub(crate) fn new(slack_ns: u64, resolution_ns: u64) -> Nest {
        Nest { rows: Vec::new(), slack_ns, resolution_ns }
    }

    /// Finds the first row in which a slice fits; what readers could take for an overlap is cut off.
    pub(crate) fn place(&mut self, start: Timestamp, end: Timestamp) -> Place {
        self.place_from(0, start, end)
    }

    /// Does the same for what slices that come later are not to give way to: the thread's own row is not for it.
    pub(crate) fn place_beside(&mut self, start: Timestamp, end: Timestamp) -> Place {
        if self.rows.is_empty() {
            self.rows.push(Row::default());
        }
        self.place_from(1, start, end)
    }

    fn place_from(&mut self, first: usize, start: Timestamp, end: Timestamp) -> Place {
        for (number, row) in self.rows.iter_mut().enumerate().skip(first) {
            while let Some(closed) = row.open.pop_if(|open| open.drawn <= start) {
                row.closed = closed.drawn;
            }
            let around = row.open.last().map_or(end, |around| around.end);
            if end.since(around) <= self.slack_ns {
                let end = end.min(around);
                let mut place = Place { row: number, start, end };
                if self.resolution_ns > 0 {
                    place.keep_apart(row, self.resolution_ns);
                }
                row.open.push(Open { end, drawn: place.end });
                return place;
            }
        }
        self.rows.push(Row { open: vec![Open { end, drawn: end }], closed: Timestamp::default() });
        Place { row: self.rows.len() - 1, start, end }
    }

    /// Returns how many rows are in use.
    pub(crate) fn rows(&self) -> usize {
        self.rows.len()
    }
}

impl Place {
    /// Cuts off so much that a reader sees the slice begin behind the one before and end within the one around.
    fn keep_apart(&mut self, row: &Row, resolution_ns: u64) {
        let later = |at: Timestamp| Timestamp::from_nanos(at.as_nanos().saturating_add(resolution_ns));
        if later(row.closed) > self.start {
            self.start = later(row.closed).min(self.end);
        }
        if let Some(around) = row.open.last()
            && later(self.end) > around.drawn
        {
            self.end = Timestamp::from_nanos(around.drawn.as_nanos().saturating_sub(resolution_ns)).max(self.start);
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
        let place = nest.place(ns(start), ns(end));
        (place.row, place.end.as_nanos())
    }

    #[test]
    fn nested_and_touching_slices_stay_on_the_row() {
        let mut nest = Nest::new(0, 0);
        for (start, end) in [(0, 100), (0, 50), (50, 100), (100, 101)] {
            assert_eq!(place(&mut nest, start, end), (0, end));
        }
        assert_eq!(nest.rows(), 1);
    }

    #[test]
    fn what_sticks_out_a_little_is_cut_and_what_sticks_out_more_gets_a_row() {
        let mut nest = Nest::new(5, 0);
        assert_eq!(place(&mut nest, 0, 100), (0, 100));
        assert_eq!(place(&mut nest, 10, 105), (0, 100));
        assert_eq!(place(&mut nest, 20, 130), (1, 130));
        assert_eq!(place(&mut nest, 110, 120), (0, 120), "the first row is free again");
    }

    #[test]
    fn what_is_placed_beside_leaves_the_first_row_alone() {
        let mut nest = Nest::new(0, 0);
        assert_eq!(nest.place_beside(ns(0), ns(50)).row, 1);
        assert_eq!(place(&mut nest, 10, 100), (0, 100));
        assert_eq!(nest.place_beside(ns(20), ns(40)).row, 1);
        assert_eq!(nest.place_beside(ns(30), ns(60)).row, 2);
        assert_eq!((place(&mut nest, 40, 90), nest.rows()), ((0, 90), 3));
    }

    #[test]
    fn what_a_reader_could_take_for_an_overlap_is_cut_off() {
        let mut nest = Nest::new(0, 2);
        let mut place = |start, end| {
            let place = nest.place(ns(start), ns(end));
            (place.row, place.start.as_nanos(), place.end.as_nanos())
        };
        assert_eq!(place(10, 100), (0, 10, 100));
        assert_eq!(place(20, 30), (0, 20, 30));
        assert_eq!(place(30, 40), (0, 32, 40), "behind the one before");
        assert_eq!(place(42, 43), (0, 42, 43));
        assert_eq!(place(50, 100), (0, 50, 98), "within the one around");
        assert_eq!(place(100, 101), (0, 101, 101), "no shorter than nothing");
        // All that ends at once stays on the row, however deep.
        for (depth, start) in (200..210).enumerate() {
            assert_eq!(place(start, 300), (0, start, 300 - 2 * depth as u64));
        }
    }

    proptest! {
        #[test]
        fn no_row_ever_holds_two_slices_that_overlap(mut slices in prop::collection::vec((0u64..200, 0u64..60), 0..80), slack in 0u64..4, resolution in 0u64..3) {
            slices.sort_unstable();
            let mut nest = Nest::new(slack, resolution);
            let placed: Vec<_> = slices.iter().map(|(start, length)| {
                let place = nest.place(ns(*start), ns(start + length));
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
