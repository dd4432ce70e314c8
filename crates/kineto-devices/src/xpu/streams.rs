//! Maps PTI's devices and queues to devices and streams.

use super::level_zero::LevelZeroGpu;
use crate::{DeviceDescription, Stream};
use kineto_base::sorted::SortedMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Assigns devices and streams to records, and collects the streams of a recording.
#[derive(Debug)]
pub(super) struct Streams {
    gpus: Vec<LevelZeroGpu>,
    seen: Mutex<SeenStreams>,
}

#[derive(Debug, Default)]
struct SeenStreams {
    named: SortedMap<(i32, u32), String>,
    /// Level Zero queues without a SYCL queue.
    queues: Vec<u64>,
    /// The number of records of unknown devices.
    unknown_devices: u64,
}

/// The first number of queues without a SYCL queue.
const WITHOUT_SYCL: u32 = 1 << 30;
/// The most queues; further ones share the last number.
const MOST: usize = 1 << 16;

impl Streams {
    pub(super) fn new(gpus: Vec<LevelZeroGpu>) -> Streams {
        Streams { gpus, seen: Mutex::default() }
    }

    fn lock_seen(&self) -> MutexGuard<'_, SeenStreams> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Clears the streams of an earlier recording.
    pub(super) fn clear(&self) {
        *self.lock_seen() = SeenStreams::default();
    }

    /// Returns the number of a device: its index among Level Zero's GPUs, 0 for an unknown device.
    pub(super) fn device_number(&self, uuid: [u8; 16]) -> i32 {
        let place = self.gpus.iter().position(|gpu| gpu.uuid == uuid);
        if place.is_none() {
            self.lock_seen().unknown_devices += 1;
        }
        place.and_then(|place| i32::try_from(place).ok()).unwrap_or(0)
    }

    /// Returns how many records named an unknown device.
    pub(super) fn unknown_devices(&self) -> u64 {
        self.lock_seen().unknown_devices
    }

    /// Returns the number of a stream: the SYCL queue's, or if there is none, a number for the Level Zero queue.
    pub(super) fn stream_number(&self, device: i32, sycl_queue: u64, queue: u64) -> u32 {
        let mut seen = self.lock_seen();
        let known = u32::try_from(sycl_queue).ok().filter(|number| *number < WITHOUT_SYCL);
        let number = known.unwrap_or_else(|| WITHOUT_SYCL + seen.queue_index(queue));
        if seen.named.len() < MOST {
            seen.named.get_or_insert_with((device, number), || match number.checked_sub(WITHOUT_SYCL) {
                None => format!("Stream {number}"),
                Some(place) => format!("Level Zero queue {place}"),
            });
        }
        number
    }

    /// Returns the devices, with the streams seen so far.
    pub(super) fn devices(&self) -> Vec<DeviceDescription> {
        let seen = self.lock_seen();
        let device = |(id, gpu): (i32, &LevelZeroGpu)| {
            let mut device = DeviceDescription::new(id, gpu.name.as_str());
            let streams = seen.named.iter().filter(|((device, _), _)| *device == id);
            device.streams = streams.map(|((_, id), name)| Stream::new(*id, name.as_str())).collect();
            device
        };
        (0..).zip(&self.gpus).map(device).collect()
    }
}

impl SeenStreams {
    /// Returns the index of a Level Zero queue without a SYCL queue.
    fn queue_index(&mut self, queue: u64) -> u32 {
        let place = self.queues.iter().position(|known| *known == queue).unwrap_or_else(|| {
            if self.queues.len() < MOST {
                self.queues.push(queue);
            }
            self.queues.len() - 1
        });
        u32::try_from(place).unwrap_or(0)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Two GPUs, whose uuids are all ones and all twos.
    pub(in super::super) fn two() -> Streams {
        let gpu = |byte| LevelZeroGpu::of([byte; 16], "Data Center GPU Max");
        Streams::new(vec![gpu(1), gpu(2)])
    }

    #[test]
    fn devices_have_uuids_and_streams_have_queues() {
        let streams = two();
        assert_eq!([[1; 16], [2; 16], [9; 16], [0; 16]].map(|uuid| streams.device_number(uuid)), [0, 1, 0, 0]);
        assert_eq!(streams.unknown_devices(), 2);
        assert_eq!((streams.stream_number(0, 3, 0xA), streams.stream_number(1, 3, 0xB)), (3, 3));
        let without = u64::MAX - 1;
        let numbers = [0xA, 0xB, 0xA].map(|queue| streams.stream_number(1, without, queue) - WITHOUT_SYCL);
        assert_eq!(numbers, [0, 1, 0]);
        let devices = streams.devices();
        let names =
            |device: &DeviceDescription| device.streams.iter().map(|stream| stream.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&devices[0]), ["Stream 3"]);
        assert_eq!(names(&devices[1]), ["Stream 3", "Level Zero queue 0", "Level Zero queue 1"]);
        streams.clear();
        assert!(streams.devices()[1].streams.is_empty() && streams.unknown_devices() == 0);
    }
}
