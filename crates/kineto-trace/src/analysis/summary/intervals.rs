//! Sets of times, as disjoint intervals, and the gaps between intervals.

use crate::time::Timestamp;

/// A set of times: sorted intervals that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::analysis) struct Intervals(Vec<(Timestamp, Timestamp)>);

impl Intervals {
    /// Returns the union of intervals in any order.
    pub(in crate::analysis) fn union(parts: impl IntoIterator<Item = (Timestamp, Timestamp)>) -> Intervals {
        let mut parts: Vec<_> = parts.into_iter().collect();
        parts.sort_unstable();
        let mut merged: Vec<(Timestamp, Timestamp)> = Vec::new();
        for (start, end) in parts {
            match merged.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => merged.push((start, end)),
            }
        }
        Intervals(merged)
    }

    /// Returns the intersection of two sets.
    pub(in crate::analysis) fn intersection(&self, other: &Intervals) -> Intervals {
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut shared = Vec::new();
        while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
            let (start, end) = (a.0.max(b.0), a.1.min(b.1));
            if start < end {
                shared.push((start, end));
            }
            if a.1 < b.1 {
                left.next()
            } else {
                right.next()
            };
        }
        Intervals(shared)
    }

    /// Returns the total length between two times, in nanoseconds.
    pub(in crate::analysis) fn ns_within(&self, start: Timestamp, end: Timestamp) -> u64 {
        let first = self.0.partition_point(|part| part.1 <= start);
        let parts = self.0.get(first..).unwrap_or_default().iter().take_while(|part| part.0 < end);
        parts.map(|part| part.1.min(end).since(part.0.max(start))).sum()
    }

    /// Returns the intervals in order.
    pub(in crate::analysis) fn parts(&self) -> &[(Timestamp, Timestamp)] {
        &self.0
    }

    /// Returns whether a time lies in the set; the end of an interval does not.
    pub(in crate::analysis) fn contains(&self, at: Timestamp) -> bool {
        let first = self.0.partition_point(|part| part.1 <= at);
        self.0.get(first).is_some_and(|part| part.0 <= at)
    }

    /// Returns the total length in nanoseconds.
    pub(in crate::analysis) fn total_ns(&self) -> u64 {
        self.0.iter().map(|(start, end)| end.since(*start)).sum()
    }
}

/// Returns the gaps between items in order of their start: the item that ends last before each, and the item that ends it.
pub(super) fn find_gaps<T: Copy>(
    sorted: impl IntoIterator<Item = T>,
    interval: impl Fn(&T) -> (Timestamp, Timestamp),
) -> impl Iterator<Item = (T, T)> {
    let mut last: Option<T> = None;
    sorted.into_iter().filter_map(move |next| {
        let (start, end) = interval(&next);
        let before = last.filter(|last| interval(last).1 < start);
        last = last.filter(|last| interval(last).1 >= end).or(Some(next));
        before.map(|before| (before, next))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(parts: &[(u64, u64)]) -> Intervals {
        Intervals::union(parts.iter().map(|part| (Timestamp::from_nanos(part.0), Timestamp::from_nanos(part.1))))
    }

    proptest! {
        /// Compares with a set of single nanoseconds.
        #[test]
        fn sets_agree_with_single_nanoseconds(
            a in prop::collection::vec((0u64..60, 0u64..9), 0..12),
            b in prop::collection::vec((0u64..60, 0u64..9), 0..12),
            window in (0u64..70, 0u64..70),
        ) {
            let ends = |parts: &[(u64, u64)]| parts.iter().map(|part| (part.0, part.0 + part.1)).collect::<Vec<_>>();
            let (a, b) = (ends(&a), ends(&b));
            let has = |parts: &[(u64, u64)], at: u64| parts.iter().any(|part| (part.0..part.1).contains(&at));
            let count = |test: &dyn Fn(u64) -> bool| (0..100).filter(|at| test(*at)).count() as u64;
            prop_assert_eq!(set(&a).total_ns(), count(&|at| has(&a, at)));
            prop_assert_eq!(set(&a).intersection(&set(&b)).total_ns(), count(&|at| has(&a, at) && has(&b, at)));
            let within = set(&a).ns_within(Timestamp::from_nanos(window.0), Timestamp::from_nanos(window.1));
            prop_assert_eq!(within, count(&|at| has(&a, at) && (window.0..window.1).contains(&at)));
            let mut sorted: Vec<_> = a.iter().map(|part| (Timestamp::from_nanos(part.0), Timestamp::from_nanos(part.1))).collect();
            sorted.sort_unstable();
            let idle: u64 = find_gaps(sorted, |part| *part).map(|(before, after)| after.0.since(before.1)).sum();
            let all = a.iter().map(|part| part.0).min().unwrap_or(0)..a.iter().map(|part| part.1).max().unwrap_or(0);
            prop_assert_eq!(idle, count(&|at| all.contains(&at) && !has(&a, at)));
        }
    }
}
