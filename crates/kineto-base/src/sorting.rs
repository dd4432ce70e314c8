//! Sorts that share their code for all types: for lists that are short, sorted already, or sorted once.

use std::cmp::Ordering;

/// Sorts stably, like `sort_by`. That is faster for many elements, but adds some 9 KB of code per call.
pub fn sort_few_by<T>(items: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    let length = items.len();
    sort_order(&mut Compared { items, compare }, length);
}

/// Sorts like `sort`.
pub fn sort_few<T: Ord>(items: &mut [T]) {
    sort_few_by(items, T::cmp);
}

/// Sorts stably by a key, like `sort_by_key`.
pub fn sort_few_by_key<T, K: Ord>(items: &mut [T], key: impl Fn(&T) -> K) {
    sort_few_by(items, |a, b| key(a).cmp(&key(b)));
}

/// Sorts like `sort_unstable_by`, without memory of its own; takes linear time if the items are in order already.
pub fn sort_in_place_by<T>(items: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    let length = items.len();
    heap_sort(&mut Compared { items, compare }, length);
}

/// Sorts like `sort_unstable_by_key`, without memory of its own; takes linear time if the items are in order already.
pub fn sort_in_place_by_key<T, K: Ord>(items: &mut [T], key: impl Fn(&T) -> K) {
    sort_in_place_by(items, |a, b| key(a).cmp(&key(b)));
}

/// Items and their order, by index.
trait Places {
    fn compare(&self, a: usize, b: usize) -> Ordering;
    fn swap(&mut self, a: usize, b: usize);
}

struct Compared<'i, T, F> {
    items: &'i mut [T],
    compare: F,
}

impl<T, F: Fn(&T, &T) -> Ordering> Places for Compared<'_, T, F> {
    fn compare(&self, a: usize, b: usize) -> Ordering {
        match (self.items.get(a), self.items.get(b)) {
            (Some(a), Some(b)) => (self.compare)(a, b),
            _ => Ordering::Equal,
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.items.swap(a, b);
    }
}

fn sort_order(places: &mut dyn Places, length: usize) {
    let mut order: Vec<usize> = (0..length).collect();
    order.sort_by(|a, b| places.compare(*a, *b));
    // Each place takes its element from another one, in cycles; a place that is done takes its own.
    for first in 0..length {
        let mut at = first;
        while let Some(slot) = order.get_mut(at) {
            let from = std::mem::replace(slot, at);
            if from == first {
                break;
            }
            places.swap(at, from);
            at = from;
        }
    }
}

fn heap_sort(places: &mut dyn Places, length: usize) {
    if (1..length).all(|at| places.compare(at - 1, at) != Ordering::Greater) {
        return;
    }
    for root in (0..length / 2).rev() {
        sift_down(places, root, length);
    }
    for end in (1..length).rev() {
        places.swap(0, end);
        sift_down(places, 0, end);
    }
}

/// Restores the order of a heap of `length` items, of which the one at `root` may be smaller than those below.
fn sift_down(places: &mut dyn Places, mut root: usize, length: usize) {
    loop {
        let mut child = 2 * root + 1;
        if child >= length {
            return;
        }
        if child + 1 < length && places.compare(child, child + 1) == Ordering::Less {
            child += 1;
        }
        if places.compare(root, child) != Ordering::Less {
            return;
        }
        places.swap(root, child);
        root = child;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sort_few_matches_std_sort(mut items: Vec<(u8, String)>) {
            let mut expected = items.clone();
            expected.sort_by_key(|(key, _)| *key);
            sort_few_by_key(&mut items, |(key, _)| *key);
            prop_assert_eq!(items, expected);
        }

        #[test]
        fn sort_in_place_matches_std_sort(mut items: Vec<(u8, String)>) {
            let mut expected = items.clone();
            expected.sort();
            sort_in_place_by(&mut items, Ord::cmp);
            prop_assert_eq!(items, expected);
        }
    }
}
