//! Sorts that share their code for all types: for lists that are short or sorted once.

use std::cmp::Ordering;

/// Sorts stably, like `sort_by`. That is faster for many elements, but adds some 9 KB of code per call.
pub fn sort_few_by<T>(items: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    let mut order: Vec<usize> = (0..items.len()).collect();
    sort_places(&mut order, &|a, b| match (items.get(a), items.get(b)) {
        (Some(a), Some(b)) => compare(a, b),
        _ => Ordering::Equal,
    });
    // Each place takes its element from another one, in cycles; a place that is done takes its own.
    for first in 0..items.len() {
        let mut at = first;
        while let Some(slot) = order.get_mut(at) {
            let from = std::mem::replace(slot, at);
            if from == first {
                break;
            }
            items.swap(at, from);
            at = from;
        }
    }
}

/// Sorts like `sort`.
pub fn sort_few<T: Ord>(items: &mut [T]) {
    sort_few_by(items, T::cmp);
}

/// Sorts stably by a key, like `sort_by_key`.
pub fn sort_few_by_key<T, K: Ord>(items: &mut [T], key: impl Fn(&T) -> K) {
    sort_few_by(items, |a, b| key(a).cmp(&key(b)));
}

fn sort_places(places: &mut [usize], compare: &dyn Fn(usize, usize) -> Ordering) {
    places.sort_by(|a, b| compare(*a, *b));
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
    }
}
