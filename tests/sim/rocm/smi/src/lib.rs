//! ROCm SMI without a GPU: values that are planted, and change with each reading.
//!
//! The GPUs are those of the simulated HIP, in the reverse order. README.md describes the options (`SIM_ROCM_SMI`,
//! `simConfigure`).
#![cfg(target_os = "linux")]

use sim_core::ffi::{give, give_text, read_text};
use sim_core::options::{OptionsStore, Text};
use sim_core::planted::Planted;
use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

sim_core::options! {
    devices: u32 = 2;
    /// The result of `rsmi_init`.
    init_error: u32 = 0;
    /// The value that the GPUs lack.
    unsupported: Text = Text::new("");
    /// The value that needs a permission.
    forbidden: Text = Text::new("");
    /// Whether the sensor on the edge of the chip is missing.
    no_edge: bool = false;
    /// Whether readings of power do not return before `simConfigure`.
    hang: bool = false;
}

static OPTIONS: OptionsStore<Options> = OptionsStore::new("sim-rocm-smi", "SIM_ROCM_SMI", Options::parse);

const SUCCESS: u32 = 0;
const INVALID_ARGUMENTS: u32 = 1;
const NOT_SUPPORTED: u32 = 2;
const NO_PERMISSION: u32 = 4;

/// Microwatts, thousandths of a degree, Hz, percents, bytes.
static PLANTED: Planted<7> = Planted::new([
    ("power", 300_000_000, 50_000_000, 250_000),
    ("temperature", 45_000, 10_000, 500),
    ("clock", 1_300_000_000, 200_000_000, 1_000_000),
    ("memory_clock", 900_000_000, 100_000_000, 1_000_000),
    ("gpu", 10, 20, 1),
    ("memory", 5, 20, 1),
    ("used", 1 << 31, 1 << 32, 4_096),
]);

static HANGS: AtomicU64 = AtomicU64::new(0);

fn options() -> &'static Options {
    OPTIONS.get()
}

/// HIP's number of a GPU.
fn device(index: u32) -> Result<usize, u32> {
    let last = options().devices.checked_sub(index + 1).ok_or(INVALID_ARGUMENTS)?;
    Ok(last as usize)
}

/// Reads a planted value.
fn read(index: u32, name: &str) -> Result<u64, u32> {
    let (device, options) = (device(index)?, options());
    if options.unsupported.as_str() == name {
        return Err(NOT_SUPPORTED);
    }
    if options.forbidden.as_str() == name {
        return Err(NO_PERMISSION);
    }
    Ok(PLANTED.read(device, name))
}

/// Writes a value to the caller's place.
fn answer<T>(place: *mut T, value: Result<T, u32>) -> u32 {
    match value {
        Ok(value) => give(place, value).map_or(INVALID_ARGUMENTS, |()| SUCCESS),
        Err(code) => code,
    }
}

/// Sets the options in `settings` ("key=value,key=value"), and all others to their defaults.
#[unsafe(no_mangle)]
pub extern "C" fn simConfigure(settings: *const c_char) -> c_int {
    if OPTIONS.configure(settings) { 0 } else { -1 }
}

/// Returns how often a value was read, such as "0:clock", or a call hung, "hangs".
#[unsafe(no_mangle)]
pub extern "C" fn simCount(what: *const c_char) -> u64 {
    match read_text(what).and_then(|what| what.to_str().ok()) {
        Some("hangs") => HANGS.load(Ordering::Relaxed),
        what => what.and_then(|what| PLANTED.count(what)).unwrap_or(u64::MAX),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn rsmi_init(_flags: u64) -> u32 {
    options().init_error
}

/// `rsmi_version_t`
#[repr(C)]
pub struct Version {
    numbers: [u32; 3],
    build: *const c_char,
}

#[unsafe(no_mangle)]
pub extern "C" fn rsmi_version_get(place: *mut Version) -> u32 {
    answer(place, Ok(Version { numbers: [7, 3, 0], build: c"simulated".as_ptr() }))
}

#[unsafe(no_mangle)]
pub extern "C" fn rsmi_num_monitor_devices(place: *mut u32) -> u32 {
    answer(place, Ok(options().devices))
}

#[unsafe(no_mangle)]
pub extern "C" fn rsmi_dev_name_get(index: u32, name: *mut c_char, room: usize) -> u32 {
    match device(index) {
        Ok(_) => give_text(name, room as i32, "Simulated GPU (no real device)").map_or(INVALID_ARGUMENTS, |()| SUCCESS),
        Err(code) => code,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn rsmi_dev_pci_id_get(index: u32, place: *mut u64) -> u32 {
    answer(place, device(index).map(|device| (0x23 + device as u64) << 8))
}

#[unsafe(no_mangle)]
pub extern "C" fn rsmi_dev_power_get(index: u32, place: *mut u64, kind: *mut u32) -> u32 {
    if options().hang {
        HANGS.fetch_add(1, Ordering::Relaxed);
    }
    while options().hang {
        sim_core::clock::sleep(Duration::from_millis(5));
    }
    const CURRENT_POWER: u32 = 1;
    answer(place, give(kind, CURRENT_POWER).ok_or(INVALID_ARGUMENTS).and_then(|()| read(index, "power")))
}

#[unsafe(no_mangle)]
pub extern "C" fn rsmi_dev_temp_metric_get(index: u32, sensor: u32, metric: u32, place: *mut i64) -> u32 {
    // The edge, and the hottest place.
    let exists = metric == 0 && (sensor == 1 || sensor == 0 && !options().no_edge);
    let value = if exists { read(index, "temperature") } else { Err(NOT_SUPPORTED) };
    answer(place, value.map(u64::cast_signed))
}

/// `rsmi_frequencies_t` since ROCm 6
#[repr(C)]
pub struct Frequencies {
    has_deep_sleep: bool,
    number: u32,
    current: u32,
    hz: [u64; 33],
}

#[unsafe(no_mangle)]
pub extern "C" fn rsmi_dev_gpu_clk_freq_get(index: u32, clock: u32, place: *mut Frequencies) -> u32 {
    let value = match clock {
        0 => read(index, "clock"),
        4 => read(index, "memory_clock"),
        _ => Err(NOT_SUPPORTED),
    };
    answer(
        place,
        value.map(|current| {
            let mut hz = [0; 33];
            hz[..3].copy_from_slice(&[500_000_000, current, 3_000_000_000]);
            Frequencies { has_deep_sleep: true, number: 3, current: 1, hz }
        }),
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn rsmi_dev_busy_percent_get(index: u32, place: *mut u32) -> u32 {
    answer(place, read(index, "gpu").map(|percent| percent as u32))
}

#[unsafe(no_mangle)]
pub extern "C" fn rsmi_dev_memory_busy_percent_get(index: u32, place: *mut u32) -> u32 {
    answer(place, read(index, "memory").map(|percent| percent as u32))
}

#[unsafe(no_mangle)]
pub extern "C" fn rsmi_dev_memory_usage_get(index: u32, kind: u32, place: *mut u64) -> u32 {
    answer(place, if kind == 0 { read(index, "used") } else { Err(NOT_SUPPORTED) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_in_the_reverse_order_of_hip() {
        let (mut place, mut bytes) = (0, 0);
        assert_eq!((rsmi_dev_pci_id_get(0, &raw mut place), place), (SUCCESS, 0x2400));
        assert_eq!((rsmi_dev_memory_usage_get(1, 0, &raw mut bytes), bytes), (SUCCESS, 1 << 31));
        assert_eq!((simCount(c"0:used".as_ptr()), simCount(c"1:used".as_ptr())), (1, 0));
        assert_eq!(rsmi_dev_pci_id_get(2, &raw mut place), INVALID_ARGUMENTS);
    }
}
