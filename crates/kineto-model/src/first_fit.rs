//! Finds the first of many rows in which a slice fits, in logarithmic time.

use kineto_base::fallible::{self, List};
use kineto_base::time::Timestamp;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Rows with the time until which each is free. There may be as many as slices overlap at once.
#[derive(Debug, Default)]
pub struct FreeRows {
    rows: usize,
    /// A binary tree over the rows, the root at 1: the latest possible end of a slice that begins now, in any row below.
    free_until: List<Timestamp>,
    /// The ends of open slices, with their rows.
    ends: BinaryHeap<Reverse<(Timestamp, usize)>>,
}

impl FreeRows {
    /// Returns the first row that is free until that time.
    pub fn first_free(&self, until: Timestamp) -> Option<usize> {
        let free = |node: usize| self.free_until.get(node).is_some_and(|free| *free >= until);
        let leaves = self.free_until.len() / 2;
        let mut node = 1;
        while free(node) && node < leaves {
            node = if free(2 * node) { 2 * node } else { 2 * node + 1 };
        }
        node.checked_sub(leaves).filter(|row| free(node) && *row < self.rows)
    }

    /// Sets the latest end of a slice that begins in a row now; adds the row if it is the next one.
    pub fn set_free_until(&mut self, row: usize, until: Timestamp) {
        self.rows = self.rows.max(row + 1);
        if self.free_until.len() < 2 * self.rows && !self.grow_tree() {
            return;
        }
        let mut node = self.free_until.len() / 2 + row;
        if let Some(at) = self.free_until.get_mut(node) {
            *at = until;
        }
        while node > 1 {
            node /= 2;
            self.update_node(node);
        }
    }

    /// Adds the end of a slice that is open in a row, for [`pop_ended`](FreeRows::pop_ended).
    pub fn push_end(&mut self, end: Timestamp, row: usize) {
        if fallible::may_grow(self.ends.try_reserve(1)) {
            self.ends.push(Reverse((end, row)));
        }
    }

    /// Returns the row of a slice that has ended by that time, once for each end.
    pub fn pop_ended(&mut self, by: Timestamp) -> Option<usize> {
        self.ends.peek().filter(|Reverse((end, _))| *end <= by)?;
        self.ends.pop().map(|Reverse((_, row))| row)
    }

    /// Doubles the leaves; returns whether there was memory for it.
    fn grow_tree(&mut self) -> bool {
        let before = self.free_until.len() / 2;
        let leaves = self.rows.next_power_of_two();
        self.free_until.resize(2 * leaves, Timestamp::default());
        if fallible::check_memory().is_err() {
            return false;
        }
        for row in (0..before).rev() {
            self.free_until.swap(before + row, leaves + row);
        }
        (1..leaves).rev().for_each(|node| self.update_node(node));
        true
    }

    fn update_node(&mut self, node: usize) {
        let below = self.free_until.get(2 * node).max(self.free_until.get(2 * node + 1)).copied();
        if let Some((at, below)) = self.free_until.get_mut(node).zip(below) {
            *at = below;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn first_free_row_is_that_of_a_search(steps in prop::collection::vec((0usize..40, 0u64..50, 0u64..50), 0..100)) {
            let (mut free, mut rows) = (FreeRows::default(), Vec::new());
            for (row, until, wanted) in steps {
                let row = row.min(rows.len());
                free.set_free_until(row, Timestamp::from_nanos(until));
                rows.resize(rows.len().max(row + 1), 0);
                rows[row] = until;
                let expected = rows.iter().position(|until| *until >= wanted);
                prop_assert_eq!(free.first_free(Timestamp::from_nanos(wanted)), expected);
            }
        }
    }

    #[test]
    fn ended_slices_come_in_order() {
        let mut free = FreeRows::default();
        [(30, 1), (10, 0), (20, 1)].iter().for_each(|(end, row)| free.push_end(Timestamp::from_nanos(*end), *row));
        let ended = |free: &mut FreeRows, by| {
            std::iter::from_fn(|| free.pop_ended(Timestamp::from_nanos(by))).collect::<Vec<_>>()
        };
        assert_eq!((ended(&mut free, 9), ended(&mut free, 20), ended(&mut free, 99)), (vec![], vec![0, 1], vec![1]));
    }
}
