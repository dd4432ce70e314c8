//! Numbers the streams of devices.

use kineto_base::sorted::SortedMap;

/// Assigns stream numbers: on each device 1, 2 … in order of first use.
///
/// The launching call names HIP's stream. Work of an unknown call only has the hardware's queue. If the queue was
/// used by exactly one stream, it identifies that stream; otherwise it gets its own number.
#[derive(Debug, Default)]
pub(super) struct Streams {
    numbers: SortedMap<(i32, StreamKey), u32>,
    /// The number of streams on each device.
    counts: SortedMap<i32, u32>,
    /// The streams that used each device's queues.
    queues: SortedMap<(i32, u64), QueueStreams>,
}

/// The identity of a numbered stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum StreamKey {
    Stream(u64),
    Queue(u64),
}

/// The streams of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueueStreams {
    One(u64),
    Many,
}

/// The most streams and queues that are distinguished. More come from corrupt records, or from programs that make a
/// stream for each request.
const MOST: usize = 4096;

/// The number of all further streams.
const OTHERS: u32 = 0;

/// HIP's handles of default streams; handles of other streams are addresses.
const LEGACY: u64 = 1;
pub(super) const PER_THREAD: u64 = 2;

impl Streams {
    /// Returns the number of the stream that work ran on. `stream` is HIP's stream if its call is known (0 is the
    /// default stream); `queue` is 0 if not known.
    pub(super) fn stream_number(&mut self, device: i32, stream: Option<u64>, queue: u64) -> u32 {
        let lane = match (stream, self.queues.get(&(device, queue))) {
            (Some(stream), _) => {
                self.note_queue(device, stream, queue);
                StreamKey::Stream(stream)
            }
            (None, Some(QueueStreams::One(stream))) => StreamKey::Stream(*stream),
            (None, _) => StreamKey::Queue(queue),
        };
        if let Some(known) = self.numbers.get(&(device, lane)) {
            return *known;
        }
        if self.numbers.len() >= MOST {
            return OTHERS;
        }
        let count = self.counts.get_or_insert_with(device, || 0);
        *count += 1;
        self.numbers.insert((device, lane), *count);
        *count
    }

    /// Notes that a queue was used by a stream.
    fn note_queue(&mut self, device: i32, stream: u64, queue: u64) {
        // 0 means that the queue is not known.
        if queue == 0 {
            return;
        }
        let is_full = self.queues.len() >= MOST;
        match self.queues.get_mut(&(device, queue)) {
            Some(known) if *known != QueueStreams::One(stream) => *known = QueueStreams::Many,
            Some(_) => {}
            None if !is_full => _ = self.queues.insert((device, queue), QueueStreams::One(stream)),
            None => {}
        }
    }
}

/// Returns the identity of a stream from HIP's handle and the calling thread; 0 for the default stream.
pub(super) fn of_handle(handle: u64, thread: i64) -> u64 {
    match handle {
        LEGACY => 0,
        PER_THREAD => thread.cast_unsigned() << 8 | PER_THREAD,
        handle => handle,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_streams_are_shared_or_per_thread() {
        assert_eq!([of_handle(0, 7), of_handle(LEGACY, 7), of_handle(0xA0, 7)], [0, 0, 0xA0]);
        assert_ne!(of_handle(PER_THREAD, 7), of_handle(PER_THREAD, 8));
    }

    #[test]
    fn streams_are_numbered_per_device() {
        let mut streams = Streams::default();
        let mut number = |device, stream: u64| streams.stream_number(device, Some(stream), 0);
        assert_eq!([number(0, 0xA0), number(0, 0), number(0, 0xA0), number(1, 0)], [1, 2, 1, 1]);
    }

    #[test]
    fn queue_stands_for_its_only_stream() {
        let mut streams = Streams::default();
        assert_eq!(streams.stream_number(0, None, 5), 1, "nothing is known of it");
        assert_eq!(streams.stream_number(0, Some(0xA0), 6), 2);
        assert_eq!(streams.stream_number(0, None, 6), 2);
        assert_eq!(streams.stream_number(0, Some(0xB0), 6), 3);
        assert_eq!(streams.stream_number(0, None, 6), 4, "it serves two");
        assert_eq!([streams.stream_number(0, None, 5), streams.stream_number(0, None, 6)], [1, 4]);
        assert_eq!(streams.stream_number(1, None, 6), 1, "another device's queue");
        assert_eq!(
            [streams.stream_number(0, Some(0xC0), 0), streams.stream_number(0, None, 0)],
            [5, 6],
            "queue 0 is none"
        );
    }

    #[test]
    fn number_of_streams_is_bounded() {
        let mut streams = Streams::default();
        for (device, stream) in (0..).zip(0..2 * MOST as u64) {
            streams.stream_number(0, Some(stream), stream + 1);
            streams.stream_number(device, None, stream);
        }
        assert!(streams.numbers.len() <= MOST && streams.queues.len() <= MOST);
        assert_eq!(streams.stream_number(0, Some(u64::MAX), 0), OTHERS);
        assert_eq!(streams.stream_number(0, Some(0), 0), 1, "those that have one keep it");
    }
}
