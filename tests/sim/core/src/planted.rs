//! Values of devices that are planted: each grows with each reading, so that a test knows every sample.

use crate::clock::sleep;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The most devices.
const DEVICES: usize = 8;

/// A value: its name, that of the first device at its first reading, what each further device adds, and each reading.
pub type PlantedValue = (&'static str, u64, u64, u64);

/// The values of all devices, and how often each was read.
#[derive(Debug)]
pub struct Planted<const N: usize> {
    values: [PlantedValue; N],
    readings: [[AtomicU64; N]; DEVICES],
    hangs: AtomicU64,
}

impl<const N: usize> Planted<N> {
    pub const fn new(values: [PlantedValue; N]) -> Planted<N> {
        Planted { values, readings: [const { [const { AtomicU64::new(0) }; N] }; DEVICES], hangs: AtomicU64::new(0) }
    }

    fn place(&self, device: usize, name: &str) -> Option<(PlantedValue, &AtomicU64)> {
        let at = self.values.iter().position(|(known, ..)| *known == name)?;
        Some((self.values[at], self.readings.get(device)?.get(at)?))
    }

    /// Reads a value.
    ///
    /// # Panics
    /// There is no such value or device.
    pub fn read(&self, device: usize, name: &str) -> u64 {
        let ((_, first, of_device, step), readings) = self.place(device, name).expect("a planted value");
        first + of_device * device as u64 + step * readings.fetch_add(1, Ordering::Relaxed)
    }

    /// Reads a counter whose growth in each `period` of its time is the value; returns both.
    ///
    /// # Panics
    /// There is no such value or device.
    pub fn read_counter(&self, device: usize, name: &str, period: u64) -> [u64; 2] {
        let ((_, first, of_device, step), readings) = self.place(device, name).expect("a planted value");
        let nth = readings.fetch_add(1, Ordering::Relaxed);
        let steps = nth * nth.saturating_sub(1) / 2;
        [nth * (first + of_device * device as u64) + step * steps, period * (nth + 1)]
    }

    /// Does not return while `hangs`, which is counted.
    pub fn hang_while(&self, hangs: impl Fn() -> bool) {
        if hangs() {
            self.hangs.fetch_add(1, Ordering::Relaxed);
        }
        while hangs() {
            sleep(Duration::from_millis(5));
        }
    }

    /// Returns how often a value was read, such as "0:power", or a call hung, "hangs".
    pub fn count(&self, what: &str) -> Option<u64> {
        if what == "hangs" {
            return Some(self.hangs.load(Ordering::Relaxed));
        }
        let (device, name) = what.split_once(':')?;
        let (_, readings) = self.place(device.parse().ok()?, name)?;
        Some(readings.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_counters_grow_with_each_reading() {
        static PLANTED: Planted<2> = Planted::new([("clock", 1_000, 500, 5), ("energy", 100, 0, 10)]);
        assert_eq!([0, 1, 1].map(|device| PLANTED.read(device, "clock")), [1_000, 1_500, 1_505]);
        assert_eq!(["0:clock", "1:clock", "2:clock"].map(|what| PLANTED.count(what)), [Some(1), Some(2), Some(0)]);
        let counters: Vec<_> = (0..4).map(|_| PLANTED.read_counter(0, "energy", 7)).collect();
        assert_eq!(counters, [[0, 7], [100, 14], [210, 21], [330, 28]]);
        assert_eq!((PLANTED.count("0:power"), PLANTED.count("9:clock")), (None, None));
    }
}
