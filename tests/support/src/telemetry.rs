//! Telemetry in a trace, compared with what simulated management libraries have planted.

use crate::wait::{sleep, wall};
use crate::{File, gpu};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, UNIX_EPOCH};

/// A planted value: its row, the value of the first device at its first reading, what each further device adds, and each
/// reading.
pub type PlantedRow = (&'static str, f64, f64, f64);

/// Returns the nanoseconds since the Unix epoch.
pub fn now() -> u64 {
    u64::try_from(wall().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

/// Waits until a counter has reached a value.
#[track_caller]
pub fn wait_until(what: &str, value: u64, count: impl Fn(&str) -> u64) {
    let _watch = gpu::watch(Duration::from_secs(60));
    while count(what) < value {
        sleep(Duration::from_millis(2));
    }
}

/// Returns the telemetry of a trace: by group and name, the times in nanoseconds since the Unix epoch, and the values.
pub fn telemetry(file: &File) -> BTreeMap<(String, String), Vec<(u64, f64)>> {
    let mut rows: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let base = file.json["baseTimeNanoseconds"].as_u64().unwrap();
    for row in gpu::events(file, "C", "hardware_counters") {
        let key = (row["pid"].as_str().unwrap().to_owned(), row["name"].as_str().unwrap().to_owned());
        let value = row["args"][""].as_f64().unwrap();
        rows.entry(key).or_default().push((base + crate::nanos(&row["ts"]), value));
    }
    rows
}

/// Checks that each device has at least `least` samples between two times, whose values are the planted ones. `place` returns
/// the place of a device in the machine, by its number in the trace.
#[track_caller]
pub fn check_samples(
    file: &File,
    [from, to]: [u64; 2],
    planted: &[PlantedRow],
    devices: u32,
    place: impl Fn(u32) -> u32,
    least: usize,
) {
    let rows = telemetry(file);
    assert_eq!(rows.len(), devices as usize * planted.len(), "{:?}", rows.keys());
    for gpu in 0..devices {
        let mut times = BTreeSet::new();
        for (name, base, of_device, step) in planted {
            let samples = &rows[&(format!("GPU {gpu} Counters"), (*name).to_owned())];
            assert!(samples.len() >= least, "{name}: {samples:?}");
            let first = samples[0].1;
            let steps = (first - base - of_device * f64::from(place(gpu))) / step.max(f64::MIN_POSITIVE);
            assert!(steps >= 0.0 && steps.fract() == 0.0, "{name} of GPU {gpu}: {first}");
            for (at, (_, value)) in samples.iter().enumerate() {
                assert_eq!(*value, first + step * at as f64, "{name} of GPU {gpu}");
            }
            assert!(samples.is_sorted_by(|(one, _), (next, _)| one < next), "{name}");
            assert!(samples.iter().all(|(at, _)| (from..=to).contains(at)), "{name}");
            // Values that are differences lack the first sample.
            times.extend(samples.iter().map(|(at, _)| *at));
        }
        let most = planted.iter().map(|row| rows[&(format!("GPU {gpu} Counters"), row.0.to_owned())].len()).max();
        assert_eq!(Some(times.len()), most, "the values of a sample have one time");
    }
}
