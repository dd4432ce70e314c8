//! ROCm SMI without a GPU: values that are planted, and change with each reading.
//!
//! The GPUs are those of the simulated HIP, in the reverse order. README.md describes the options (`SIM_ROCM_SMI`,
//! `simConfigure`).
#![cfg(target_os = "linux")]
#![allow(non_snake_case, reason = "the exported names are C's")]

use sim_core::ffi::give_text;
use sim_core::options::{OptionsStore, Text};
use sim_core::planted::Planted;
use std::ffi::c_char;

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

sim_core::codes! {
    /// An `rsmi_status_t` other than success.
    Code(u32), INVALID_ARGUMENTS;
    INVALID_ARGUMENTS = 1;
    NOT_SUPPORTED = 2;
    NO_PERMISSION = 4;
}

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

fn options() -> &'static Options {
    OPTIONS.get()
}

/// HIP's number of a GPU.
fn device(index: u32) -> Outcome<usize> {
    let last = options().devices.checked_sub(index + 1).ok_or(Code::INVALID_ARGUMENTS)?;
    Ok(last as usize)
}

/// Reads a planted value.
fn read(index: u32, name: &str) -> Outcome<u64> {
    let (device, options) = (device(index)?, options());
    if options.unsupported.as_str() == name {
        return Err(Code::NOT_SUPPORTED);
    }
    if options.forbidden.as_str() == name {
        return Err(Code::NO_PERMISSION);
    }
    Ok(PLANTED.read(device, name))
}

/// `rsmi_version_t`
#[repr(C)]
pub struct Version {
    numbers: [u32; 3],
    build: *const c_char,
}

/// `rsmi_frequencies_t` since ROCm 6
#[repr(C)]
pub struct Frequencies {
    has_deep_sleep: bool,
    number: u32,
    current: u32,
    hz: [u64; 33],
}

sim_core::controls!(|settings| OPTIONS.configure(settings), |what: &str| PLANTED.count(what));

sim_core::exports! {
    code_of as u32;

    fn rsmi_init(_flags: u64) {
        Code::unless(options().init_error)
    }

    fn rsmi_version_get(place: *mut Version) {
        give(place, Version { numbers: [7, 3, 0], build: c"simulated".as_ptr() })
    }

    fn rsmi_num_monitor_devices(place: *mut u32) {
        give(place, options().devices)
    }

    fn rsmi_dev_name_get(index: u32, name: *mut c_char, room: usize) {
        device(index)?;
        give_text(name, room as i32, "Simulated GPU (no real device)").ok_or(Code::INVALID_ARGUMENTS)
    }

    fn rsmi_dev_pci_id_get(index: u32, place: *mut u64) {
        give(place, (0x23 + device(index)? as u64) << 8)
    }

    fn rsmi_dev_power_get(index: u32, place: *mut u64, kind: *mut u32) {
        const CURRENT_POWER: u32 = 1;
        PLANTED.hang_while(|| options().hang);
        give(kind, CURRENT_POWER)?;
        give(place, read(index, "power")?)
    }

    fn rsmi_dev_temp_metric_get(index: u32, sensor: u32, metric: u32, place: *mut i64) {
        // The edge, and the hottest place.
        let exists = metric == 0 && (sensor == 1 || sensor == 0 && !options().no_edge);
        let value = if exists { read(index, "temperature") } else { Err(Code::NOT_SUPPORTED) };
        give(place, value?.cast_signed())
    }

    fn rsmi_dev_gpu_clk_freq_get(index: u32, clock: u32, place: *mut Frequencies) {
        let current = match clock {
            0 => read(index, "clock")?,
            4 => read(index, "memory_clock")?,
            _ => return Err(Code::NOT_SUPPORTED),
        };
        let mut hz = [0; 33];
        hz[..3].copy_from_slice(&[500_000_000, current, 3_000_000_000]);
        give(place, Frequencies { has_deep_sleep: true, number: 3, current: 1, hz })
    }

    fn rsmi_dev_busy_percent_get(index: u32, place: *mut u32) {
        give(place, read(index, "gpu")? as u32)
    }

    fn rsmi_dev_memory_busy_percent_get(index: u32, place: *mut u32) {
        give(place, read(index, "memory")? as u32)
    }

    fn rsmi_dev_memory_usage_get(index: u32, kind: u32, place: *mut u64) {
        give(place, if kind == 0 { read(index, "used")? } else { return Err(Code::NOT_SUPPORTED) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_in_the_reverse_order_of_hip() {
        let (mut place, mut bytes) = (0, 0);
        assert_eq!((rsmi_dev_pci_id_get(0, &raw mut place), place), (0, 0x2400));
        assert_eq!((rsmi_dev_memory_usage_get(1, 0, &raw mut bytes), bytes), (0, 1 << 31));
        assert_eq!((simCount(c"0:used".as_ptr()), simCount(c"1:used".as_ptr())), (1, 0));
        assert_eq!(rsmi_dev_pci_id_get(2, &raw mut place), 1);
    }
}
