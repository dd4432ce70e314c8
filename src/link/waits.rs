//! Finds the event record that a wait waited for.

use super::LinkedEventRecord;
use kineto_base::fallible::{List, Map};
use kineto_base::sorting::sort_in_place_by;
use kineto_devices::Wait;

/// The event records, in order of event and correlation.
#[derive(Debug, Default)]
pub(crate) struct Waits(List<(Key, u32)>);

/// Context, event, and the correlation id of the call that recorded it.
type Key = (u32, u64, u64);

impl Waits {
    /// If a call recorded an event twice, the record that arrived last counts; records without a call are ignored.
    pub(super) fn new(records: impl Iterator<Item = LinkedEventRecord>) -> Waits {
        let records = records.filter(|record| record.correlation != 0);
        let streams: Map<Key, u32> = records.map(|record| (record.key(), record.stream)).collect();
        let mut records: List<_> = streams.into_iter().collect();
        sort_in_place_by(&mut records, Ord::cmp);
        Waits(records)
    }

    /// Returns the last record of the event at or before this call; correlation ids give the order, not arrival.
    pub(crate) fn find_target(&self, context: u32, event: u64, correlation: u64) -> Option<Wait> {
        let behind = self.0.partition_point(|(key, _)| *key <= (context, event, correlation));
        let ((of_context, of_event, correlation), stream) = *self.0.get(behind.checked_sub(1)?)?;
        ((of_context, of_event) == (context, event)).then_some(Wait { stream, correlation })
    }

    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        self.0.capacity() * size_of::<(Key, u32)>()
    }
}

impl LinkedEventRecord {
    fn key(&self) -> Key {
        (self.context, self.event, self.correlation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(records: &[(u32, u64, u64, u32)]) -> Waits {
        let record = |&(context, event, correlation, stream)| LinkedEventRecord { context, event, correlation, stream };
        Waits::new(records.iter().map(record))
    }

    #[test]
    fn last_record_before_the_wait_is_found() {
        let waits = waits(&[(1, 5, 30, 3), (1, 5, 10, 1), (1, 5, 20, 2)]);
        let found = |correlation| waits.find_target(1, 5, correlation).map(|wait| (wait.stream, wait.correlation));
        assert_eq!(
            [9, 10, 19, 20, 1000].map(found),
            [None, Some((1, 10)), Some((1, 10)), Some((2, 20)), Some((3, 30))]
        );
    }

    #[test]
    fn other_contexts_and_events_are_ignored() {
        let waits = waits(&[(1, 5, 10, 1), (2, 4, 10, 2)]);
        assert_eq!(waits.find_target(1, 6, 99), None);
        assert_eq!(waits.find_target(2, 5, 99), None);
        assert_eq!(waits.find_target(0, 5, 99), None);
    }

    #[test]
    fn last_record_of_a_call_counts() {
        let waits = waits(&[(1, 5, 10, 1), (1, 5, 10, 2), (1, 5, 0, 3)]);
        assert_eq!(waits.find_target(1, 5, 10), Some(Wait { stream: 2, correlation: 10 }));
        assert_eq!(waits.find_target(1, 5, 9), None);
    }
}
