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

/// Launches in order of id and start, with an index that narrows the search to a few.
#[derive(Debug, Default)]
pub(super) struct Sparse {
    launches: List<SparseLaunch>,
    /// The first launch of each part of the range of ids, all parts being equally wide; then the end.
    parts: List<u32>,
    first: u64,
    /// The width of a part as a power of two.
    width: u32,
}

impl Sparse {
    /// Adds the launches of an id, which is greater than those before; returns their number.
    pub(super) fn add_launches(&mut self, launches: impl Iterator<Item = SparseLaunch>) -> u64 {
        let from = self.launches.len();
        self.launches.extend(launches);
        let added = self.launches.get_mut(from..).unwrap_or_default();
        added.sort_unstable();
        added.len() as u64
    }

    /// Builds the index, after the last launch: about a part for each launch.
    pub(super) fn build_index(&mut self) {
        self.launches.shrink_to_fit();
        let [first, .., last] = &self.launches[..] else { return };
        let range = last.correlation - first.correlation;
        self.first = first.correlation;
        self.width = (0..63).find(|width| range >> width < self.launches.len() as u64).unwrap_or(63);
        let mut parts = List::new();
        for (nth, launch) in (0..).zip(&self.launches) {
            let part = self.part_index(launch.correlation).unwrap_or(0);
            parts.resize(parts.len().max(part + 1), nth);
        }
        parts.push(u32::try_from(self.launches.len()).unwrap_or(u32::MAX));
        parts.shrink_to_fit();
        self.parts = parts;
    }

    fn part_index(&self, correlation: u64) -> Option<usize> {
        usize::try_from(correlation.checked_sub(self.first)? >> self.width).ok()
    }

    /// Returns the range that contains any launches of this id.
    fn candidate_range(&self, correlation: u64) -> (usize, &[SparseLaunch]) {
        let near = || {
            let part = self.part_index(correlation)?;
            let (from, to) = (*self.parts.get(part)? as usize, *self.parts.get(part + 1)? as usize);
            Some((from, self.launches.get(from..to)?))
        };
        near().unwrap_or((0, if self.parts.is_empty() { &self.launches } else { &[] }))
    }

    /// Finds the launch of work: the last that starts no later than the work, otherwise the first.
    pub(super) fn find_launch(&self, correlation: u64, start: Timestamp) -> Option<(usize, RecordHandle)> {
        let (from, near) = self.candidate_range(correlation);
        let behind = near.partition_point(|launch| (launch.correlation, launch.start) <= (correlation, start));
        let of_id = |nth: usize| {
            near.get(nth).filter(|launch| launch.correlation == correlation).map(|launch| (from + nth, launch.at))
        };
        behind.checked_sub(1).and_then(of_id).or_else(|| of_id(behind))
    }

    /// Returns the index of this launch.
    pub(super) fn launch_index(&self, launch: &SparseLaunch) -> Option<usize> {
        let (from, near) = self.candidate_range(launch.correlation);
        near.binary_search(launch).ok().map(|nth| from + nth)
    }

    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        self.launches.capacity() * size_of::<SparseLaunch>() + self.parts.capacity() * size_of::<u32>()
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
        sparse.build_index();
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
