//! NVML without a GPU: values that are planted, and change with each reading.
//!
//! GPUs are numbered by their places in the machine, as in the simulated driver, whose UUIDs and bus ids they have. README.md
//! describes the options (`SIM_NVML`, `simConfigure`).
#![cfg(target_os = "linux")]
#![allow(non_snake_case, reason = "the exported names are C's")]

use sim_core::ffi::{give_text, read_text};
use sim_core::options::{OptionsStore, Text};
use sim_core::planted::Planted;
use std::ffi::c_char;
use std::sync::atomic::{AtomicU64, Ordering};

sim_core::options! {
    devices: u32 = 2;
    /// The result of `nvmlInit_v2`.
    init_error: i32 = 0;
    /// The value that the GPUs lack.
    unsupported: Text = Text::new("");
    /// The value that needs a permission.
    forbidden: Text = Text::new("");
    /// The result of reading the used memory.
    memory_error: i32 = 0;
    /// Whether the driver knows no fields: no instant power.
    no_fields: bool = false;
    /// The result of each second reading of the instant power.
    flaky_power: i32 = 0;
    /// Whether GPUs are found by their places on the bus alone.
    no_uuid: bool = false;
    /// Whether readings of power do not return before `simConfigure`.
    hang: bool = false;
    /// Whether `nvmlInit_v2` does not return before `simConfigure`.
    hang_init: bool = false;
    /// Bits of the reasons for lower clocks.
    reasons: u64 = 1;
}

static OPTIONS: OptionsStore<Options> = OptionsStore::new("sim-nvml", "SIM_NVML", Options::parse);

sim_core::codes! {
    /// An `nvmlReturn_t` other than success.
    Code(i32), INVALID_ARGUMENT;
    INVALID_ARGUMENT = 2;
    NOT_SUPPORTED = 3;
    NO_PERMISSION = 4;
    NOT_FOUND = 6;
    VERSION_MISMATCH = 25;
}

static PLANTED: Planted<9> = Planted::new([
    ("instant_power", 100_000, 50_000, 250),
    ("power", 700_000, 50_000, 250),
    ("temperature", 40, 10, 1),
    ("sm_clock", 1_000, 500, 5),
    ("memory_clock", 2_000, 100, 1),
    ("gpu", 10, 20, 1),
    ("memory", 5, 20, 1),
    ("used", 1 << 30, 1 << 32, 4_096),
    ("reasons", 0, 0, 0),
]);

static FIELD_READINGS: AtomicU64 = AtomicU64::new(0);
static INITS: AtomicU64 = AtomicU64::new(0);

/// The handle of the first GPU; NVML's are addresses.
const FIRST: usize = 0x7000_1000;
const NEXT: usize = 0x100;

fn options() -> &'static Options {
    OPTIONS.get()
}

/// The GPU of a handle.
fn device(handle: usize) -> Option<usize> {
    let offset = handle.checked_sub(FIRST).filter(|offset| offset.is_multiple_of(NEXT))?;
    Some(offset / NEXT).filter(|device| *device < options().devices as usize)
}

/// Reads a planted value.
fn read(handle: usize, name: &str) -> Outcome<u64> {
    let (device, options) = (device(handle).ok_or(Code::INVALID_ARGUMENT)?, options());
    if options.unsupported.as_str() == name {
        return Err(Code::NOT_SUPPORTED);
    }
    if options.forbidden.as_str() == name {
        return Err(Code::NO_PERMISSION);
    }
    Ok(PLANTED.read(device, name) + if name == "reasons" { options.reasons } else { 0 })
}

/// Gives the handle of the GPU for which `is_its` holds.
fn find(handle: *mut usize, id: *const c_char, is_its: impl Fn(&str, usize) -> bool) -> Outcome {
    let id = read_text(id).and_then(|id| id.to_str().ok()).unwrap_or_default();
    let device = (0..options().devices as usize).find(|device| is_its(id, *device));
    give(handle, FIRST + device.ok_or(Code::NOT_FOUND)? * NEXT)
}

fn used(handle: usize) -> Outcome<u64> {
    Code::unless(options().memory_error)?;
    read(handle, "used")
}

/// `nvmlFieldValue_t`
#[repr(C)]
pub struct Field {
    id: u32,
    scope: u32,
    timestamp: i64,
    latency: i64,
    kind: u32,
    code: i32,
    value: u64,
}

/// `nvmlMemory_v2_t`
#[repr(C)]
pub struct MemoryV2 {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

sim_core::controls!(|settings| OPTIONS.configure(settings), |what: &str| if what == "inits" {
    Some(INITS.load(Ordering::Relaxed))
} else {
    PLANTED.count(what)
});

sim_core::exports! {
    code_of as i32;

    fn nvmlInit_v2() {
        INITS.fetch_add(1, Ordering::Relaxed);
        PLANTED.hang_while(|| options().hang_init);
        Code::unless(options().init_error)
    }

    fn nvmlSystemGetNVMLVersion(text: *mut c_char, length: u32) {
        give_text(text, length as i32, "13.580.00").ok_or(Code::INVALID_ARGUMENT)
    }

    fn nvmlDeviceGetHandleByUUID(id: *const c_char, handle: *mut usize) {
        find(handle, id, |id, device| {
            let digits: String = format!("SIMULATED-GPU-0{device}").bytes().map(|byte| format!("{byte:02x}")).collect();
            let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| digits[part].to_owned());
            !options().no_uuid && id == format!("GPU-{}", parts.join("-"))
        })
    }

    fn nvmlDeviceGetHandleByPciBusId_v2(id: *const c_char, handle: *mut usize) {
        find(handle, id, |id, device| id.eq_ignore_ascii_case(&format!("0000:{:02X}:00.0", 0x17 + device)))
    }

    fn nvmlDeviceGetPowerUsage(handle: usize, place: *mut u32) {
        PLANTED.hang_while(|| options().hang);
        give(place, read(handle, "power")? as u32)
    }

    fn nvmlDeviceGetFieldValues(handle: usize, count: i32, fields: *mut Field) {
        PLANTED.hang_while(|| options().hang);
        // SAFETY: the caller passes one field, or null.
        let field = unsafe { fields.as_mut() }.filter(|_| count == 1).ok_or(Code::INVALID_ARGUMENT)?;
        let is_second = FIELD_READINGS.fetch_add(1, Ordering::Relaxed) % 2 == 1;
        if is_second && options().flaky_power != 0 {
            field.code = options().flaky_power;
            return Ok(());
        }
        let is_known = !options().no_fields && field.id == 186;
        let value = if is_known { read(handle, "instant_power") } else { Err(Code::NOT_SUPPORTED) };
        (field.kind, field.code, field.value) = (1, code_of(value.map(drop)), value.unwrap_or(0));
        Ok(())
    }

    fn nvmlDeviceGetTemperature(handle: usize, sensor: u32, place: *mut u32) {
        let name = if sensor == 0 { Ok("temperature") } else { Err(Code::INVALID_ARGUMENT) };
        give(place, read(handle, name?)? as u32)
    }

    fn nvmlDeviceGetClockInfo(handle: usize, clock: u32, place: *mut u32) {
        let name = match clock {
            1 => "sm_clock",
            2 => "memory_clock",
            _ => return Err(Code::INVALID_ARGUMENT),
        };
        give(place, read(handle, name)? as u32)
    }

    fn nvmlDeviceGetUtilizationRates(handle: usize, place: *mut [u32; 2]) {
        give(place, [read(handle, "gpu")? as u32, read(handle, "memory")? as u32])
    }

    /// Total, free and used bytes. What the driver reserves counts as used here.
    fn nvmlDeviceGetMemoryInfo(handle: usize, place: *mut [u64; 3]) {
        let used = used(handle)?;
        give(place, [80 << 30, (80 << 30) - used, used + (600 << 20)])
    }

    fn nvmlDeviceGetMemoryInfo_v2(handle: usize, place: *mut MemoryV2) {
        // SAFETY: the caller passes a record that begins with its version, or null.
        if unsafe { place.as_ref() }.is_none_or(|record| record.version != 0x0200_0028) {
            return Err(Code::VERSION_MISMATCH);
        }
        give(place, MemoryV2 { version: 0x0200_0028, total: 80 << 30, reserved: 600 << 20, free: 0, used: used(handle)? })
    }

    fn nvmlDeviceGetCurrentClocksEventReasons(handle: usize, place: *mut u64) {
        give(place, read(handle, "reasons")?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_change_with_each_reading() {
        let mut handle = 0;
        assert_eq!(nvmlDeviceGetHandleByPciBusId_v2(c"0000:18:00.0".as_ptr(), &raw mut handle), 0);
        let mut mhz = [0; 2];
        mhz.iter_mut().for_each(|mhz| assert_eq!(nvmlDeviceGetClockInfo(handle, 1, mhz), 0));
        assert_eq!((mhz, simCount(c"1:sm_clock".as_ptr())), ([1_500, 1_505], 2));
        assert_eq!(nvmlDeviceGetClockInfo(handle + 1, 1, &raw mut mhz[0]), 2);
    }
}
