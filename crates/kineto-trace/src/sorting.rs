//! Sorts that are compiled once for all types: for lists that are short, or sorted once.

use std::cmp::Ordering;

/// Sorts stably, as `sort_by`, which is faster with many elements and some 9 KB of code for each place that calls it.
pub fn sort_few_by<T>(items: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    let mut order: Vec<usize> = (0..items.len()).collect();
    sort_places(&mut order, &|a, b| match (items.get(a), items.get(b)) {
        (Some(a), Some(b)) => compare(a, b),
        _ => Ordering::Equal,
    });
    for at in 0..items.len() {
        // What was there may have been swapped to a later place.
        let mut from = order.get(at).copied().unwrap_or(at);
        while from < at {
            from = order.get(from).copied().unwrap_or(at);
        }
        items.swap(at, from);
    }
}

/// The same by a key, as `sort_by_key`.
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
        fn few_are_sorted_as_many_are(mut items: Vec<(u8, String)>) {
            let mut expected = items.clone();
            expected.sort_by_key(|(key, _)| *key);
            sort_few_by_key(&mut items, |(key, _)| *key);
            prop_assert_eq!(items, expected);
        }
    }
}
