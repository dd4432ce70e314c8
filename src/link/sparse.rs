//! Launches that need a search: those with shared or sparse ids.

use super::RecordHandle;
use crate::time::Timestamp;
use kineto_base::fallible::List;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct SparseLaunch {
    pub(super) correlation: u64,
    pub(super) start: Timestamp,
    pub(super) at: RecordHandle,
}

/// Launches in order of id and start.
#[derive(Debug, Default)]
pub(super) struct Sparse(List<SparseLaunch>);

impl Sparse {
    /// Adds the launches of an id, which is greater than those before; returns their number.
    pub(super) fn add_launches(&mut self, launches: impl Iterator<Item = SparseLaunch>) -> u64 {
        let from = self.0.len();
        self.0.extend(launches);
        let added = self.0.get_mut(from..).unwrap_or_default();
        added.sort_unstable();
        added.len() as u64
    }

    /// Finds the launch of work: the last that starts no later than the work, otherwise the first.
    pub(super) fn find_launch(&self, correlation: u64, start: Timestamp) -> Option<(usize, RecordHandle)> {
        let behind = self.0.partition_point(|launch| (launch.correlation, launch.start) <= (correlation, start));
        let of_id = |nth: usize| {
            self.0.get(nth).filter(|launch| launch.correlation == correlation).map(|launch| (nth, launch.at))
        };
        behind.checked_sub(1).and_then(of_id).or_else(|| of_id(behind))
    }

    /// Returns the index of this launch.
    pub(super) fn launch_index(&self, launch: &SparseLaunch) -> Option<usize> {
        self.0.binary_search(launch).ok()
    }

    pub(super) fn shrink_to_fit(&mut self) {
        self.0.shrink_to_fit();
    }

    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        self.0.capacity() * size_of::<SparseLaunch>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(correlation: u64, start: u64) -> SparseLaunch {
        let at = RecordHandle(u32::try_from(start).unwrap());
        SparseLaunch { correlation, start: Timestamp::from_nanos(start), at }
    }

    fn sparse(ids: &[u64]) -> Sparse {
        let mut sparse = Sparse::default();
        ids.iter().for_each(|id| assert_eq!(sparse.add_launches([launch(*id, 20), launch(*id, 10)].into_iter()), 2));
        sparse
    }

    #[test]
    fn ids_are_found_in_any_distribution() {
        let even: Vec<_> = (1..=100).map(|n| n * 1000).collect();
        let clustered: Vec<_> = (1..=50).chain(u64::MAX - 50..=u64::MAX).collect();
        for ids in [vec![], vec![5], vec![1, u64::MAX], even, clustered] {
            let sparse = sparse(&ids);
            for (nth, id) in ids.iter().enumerate() {
                let found = [5, 10, 19, 20].map(|start| sparse.find_launch(*id, Timestamp::from_nanos(start)));
                let (first, last) = (Some((2 * nth, RecordHandle(10))), Some((2 * nth + 1, RecordHandle(20))));
                assert_eq!(found, [first, first, first, last], "{id}");
                assert_eq!(
                    [10, 20, 30].map(|start| sparse.launch_index(&launch(*id, start))),
                    [Some(2 * nth), Some(2 * nth + 1), None]
                );
            }
            for other in [0, 2_500, u64::MAX / 2] {
                assert_eq!(sparse.find_launch(other, Timestamp::from_nanos(15)), None, "{other}");
                assert_eq!(sparse.launch_index(&launch(other, 10)), None, "{other}");
            }
        }
    }
}
