//! A client of the simulated NVML: its controls, and the telemetry rows of a trace.

use crate::simulator::{self, open};
use crate::{File, gpu};
use libloading::Library;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

/// Returns NVML, which stays loaded.
pub fn library() -> &'static Library {
    static NVML: OnceLock<Library> = OnceLock::new();
    NVML.get_or_init(|| open("sim_nvml"))
}

/// Sets the simulator's options ("key=value,key=value"), and all others to their defaults.
pub fn configure(settings: &str) {
    assert!(simulator::configure(library(), settings), "{settings}");
}

/// Returns how often a value of a GPU was read, such as "0:sm_clock".
pub fn count(what: &str) -> u64 {
    simulator::count(library(), what)
}

/// Waits until a value was read that many more times.
pub fn wait_for(what: &str, more: u64) {
    wait_until(what, count(what) + more, count);
}

/// Waits until a counter has reached a value.
#[track_caller]
pub fn wait_until(what: &str, value: u64, count: impl Fn(&str) -> u64) {
    let _watch = gpu::watch(Duration::from_secs(60));
    while count(what) < value {
        std::thread::sleep(Duration::from_millis(2));
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
