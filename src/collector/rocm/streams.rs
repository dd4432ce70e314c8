//! The streams of devices, as small numbers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Numbers for streams: on each device 1, 2 … in the order in which work of them is seen.
///
/// HIP's stream is known from the call that launched. Of work whose call is not known there is the hardware's queue, which
/// stands for a stream if it was seen with exactly that one; else it has a number of its own.
#[derive(Debug, Default)]
pub(super) struct Streams {
    numbers: HashMap<(i32, StreamKey), u32>,
    /// How many there are on each device.
    counts: HashMap<i32, u32>,
    /// What streams each device's queues were seen with.
    queues: HashMap<(i32, u64), Users>,
}

/// What has a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum StreamKey {
    Stream(u64),
    Queue(u64),
}

/// The streams of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Users {
    One(u64),
    Many,
}

/// So many streams and queues are told apart: more can only be garbage, or streams made anew for every request.
const MOST: usize = 4096;

/// The number of all streams beyond.
const OTHERS: u32 = 0;

/// HIP's handles that stand for default streams; those of other streams are addresses.
const LEGACY: u64 = 1;
pub(super) const PER_THREAD: u64 = 2;

impl Streams {
    /// Returns the number of the stream that work ran on: HIP's stream if its call is known (0 is the default stream), and
    /// the queue, 0 if that is not known.
    pub(super) fn number(&mut self, device: i32, stream: Option<u64>, queue: u64) -> u32 {
        let lane = match (stream, self.queues.get(&(device, queue))) {
            (Some(stream), _) => {
                self.met(device, stream, queue);
                StreamKey::Stream(stream)
            }
            (None, Some(Users::One(stream))) => StreamKey::Stream(*stream),
            (None, _) => StreamKey::Queue(queue),
        };
        let is_full = self.numbers.len() >= MOST;
        match self.numbers.entry((device, lane)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(_) if is_full => OTHERS,
            Entry::Vacant(new) => {
                let count = self.counts.entry(device).or_default();
                *count += 1;
                *new.insert(*count)
            }
        }
    }

    /// Notes that a queue served a stream.
    fn met(&mut self, device: i32, stream: u64, queue: u64) {
        let is_full = self.queues.len() >= MOST;
        match self.queues.entry((device, queue)) {
            // What is not known is no queue.
            _ if queue == 0 => {}
            Entry::Occupied(mut known) if *known.get() != Users::One(stream) => *known.get_mut() = Users::Many,
            Entry::Occupied(_) => {}
            Entry::Vacant(new) if !is_full => _ = new.insert(Users::One(stream)),
            Entry::Vacant(_) => {}
        }
    }
}

/// Returns what tells a stream from others, 0 for the default one, by HIP's handle and the calling thread.
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
    fn default_streams_are_one_or_each_threads_own() {
        assert_eq!([of_handle(0, 7), of_handle(LEGACY, 7), of_handle(0xA0, 7)], [0, 0, 0xA0]);
        assert_ne!(of_handle(PER_THREAD, 7), of_handle(PER_THREAD, 8));
    }

    #[test]
    fn streams_are_numbered_on_each_device_as_they_come() {
        let mut streams = Streams::default();
        let mut number = |device, stream: u64| streams.number(device, Some(stream), 0);
        assert_eq!([number(0, 0xA0), number(0, 0), number(0, 0xA0), number(1, 0)], [1, 2, 1, 1]);
    }

    #[test]
    fn a_queue_stands_for_the_one_stream_that_it_was_seen_with() {
        let mut streams = Streams::default();
        assert_eq!(streams.number(0, None, 5), 1, "nothing is known of it");
        assert_eq!(streams.number(0, Some(0xA0), 6), 2);
        assert_eq!(streams.number(0, None, 6), 2);
        assert_eq!(streams.number(0, Some(0xB0), 6), 3);
        assert_eq!(streams.number(0, None, 6), 4, "it serves two");
        assert_eq!([streams.number(0, None, 5), streams.number(0, None, 6)], [1, 4]);
        assert_eq!(streams.number(1, None, 6), 1, "another device's queue");
        assert_eq!([streams.number(0, Some(0xC0), 0), streams.number(0, None, 0)], [5, 6], "queue 0 is none");
    }

    #[test]
    fn memory_is_bounded_whatever_the_streams() {
        let mut streams = Streams::default();
        for (device, stream) in (0..).zip(0..2 * MOST as u64) {
            streams.number(0, Some(stream), stream + 1);
            streams.number(device, None, stream);
        }
        assert!(streams.numbers.len() <= MOST && streams.queues.len() <= MOST);
        assert_eq!(streams.number(0, Some(u64::MAX), 0), OTHERS);
        assert_eq!(streams.number(0, Some(0), 0), 1, "those that have one keep it");
    }
}
