//! The devices of PTI's records, and the queues that are their streams.

use super::level_zero::LevelZeroGpu;
use crate::collector::{DeviceDescription, Stream};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Which device and stream a record belongs to, and which streams a recording has met.
#[derive(Debug)]
pub(super) struct Streams {
    gpus: Vec<LevelZeroGpu>,
    met: Mutex<Met>,
}

#[derive(Debug, Default)]
struct Met {
    named: BTreeMap<(i32, u32), String>,
    /// Queues of Level Zero's that SYCL does not know.
    queues: Vec<u64>,
    /// How many records name a device that is none of those.
    strangers: u64,
}

/// The numbers of queues that SYCL does not know begin here.
const WITHOUT_SYCL: u32 = 1 << 30;
/// More queues share the last number.
const MOST: usize = 1 << 16;

impl Streams {
    pub(super) fn new(gpus: Vec<LevelZeroGpu>) -> Streams {
        Streams { gpus, met: Mutex::default() }
    }

    fn met(&self) -> MutexGuard<'_, Met> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what another recording has met.
    pub(super) fn clear(&self) {
        *self.met() = Met::default();
    }

    /// Returns the number of the device with that id: its place among Level Zero's GPUs, 0 for one that is none of
    /// them.
    pub(super) fn device(&self, uuid: [u8; 16]) -> i32 {
        let place = self.gpus.iter().position(|gpu| gpu.uuid == uuid);
        if place.is_none() {
            self.met().strangers += 1;
        }
        place.and_then(|place| i32::try_from(place).ok()).unwrap_or(0)
    }

    /// Returns how many records named a device that is none of Level Zero's GPUs.
    pub(super) fn strangers(&self) -> u64 {
        self.met().strangers
    }

    /// Returns the number of a stream: SYCL's of the queue, or where it has none, one for each queue of Level Zero's.
    pub(super) fn stream(&self, device: i32, sycl_queue: u64, queue: u64) -> u32 {
        let mut met = self.met();
        let known = u32::try_from(sycl_queue).ok().filter(|number| *number < WITHOUT_SYCL);
        let number = known.unwrap_or_else(|| WITHOUT_SYCL + met.queue(queue));
        if met.named.len() < MOST {
            met.named.entry((device, number)).or_insert_with(|| match number.checked_sub(WITHOUT_SYCL) {
                None => format!("Stream {number}"),
                Some(place) => format!("Level Zero queue {place}"),
            });
        }
        number
    }

    /// Returns the devices, with the streams that were met.
    pub(super) fn devices(&self) -> Vec<DeviceDescription> {
        let met = self.met();
        let device = |(id, gpu): (i32, &LevelZeroGpu)| {
            let mut device = DeviceDescription::new(id, gpu.name.as_str());
            let streams = met.named.range((id, 0)..=(id, u32::MAX));
            let stream =
                |(at, name): (&(i32, u32), &String)| Stream { id: at.1, name: name.clone(), order: at.1.into() };
            device.streams = streams.map(stream).collect();
            device
        };
        (0..).zip(&self.gpus).map(device).collect()
    }
}

impl Met {
    /// Returns the place of a queue that SYCL does not know.
    fn queue(&mut self, queue: u64) -> u32 {
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

    /// Two GPUs, whose ids are all ones and all twos.
    pub(in super::super) fn two() -> Streams {
        let gpu = |byte| LevelZeroGpu::of([byte; 16], "Data Center GPU Max");
        Streams::new(vec![gpu(1), gpu(2)])
    }

    #[test]
    fn devices_are_known_by_their_ids_and_streams_by_their_queues() {
        let streams = two();
        assert_eq!([[1; 16], [2; 16], [9; 16], [0; 16]].map(|uuid| streams.device(uuid)), [0, 1, 0, 0]);
        assert_eq!(streams.strangers(), 2);
        assert_eq!((streams.stream(0, 3, 0xA), streams.stream(1, 3, 0xB)), (3, 3));
        let without = u64::MAX - 1;
        let numbers = [0xA, 0xB, 0xA].map(|queue| streams.stream(1, without, queue) - WITHOUT_SYCL);
        assert_eq!(numbers, [0, 1, 0]);
        let devices = streams.devices();
        let names =
            |device: &DeviceDescription| device.streams.iter().map(|stream| stream.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&devices[0]), ["Stream 3"]);
        assert_eq!(names(&devices[1]), ["Stream 3", "Level Zero queue 0", "Level Zero queue 1"]);
        streams.clear();
        assert!(streams.devices()[1].streams.is_empty() && streams.strangers() == 0);
    }
}
