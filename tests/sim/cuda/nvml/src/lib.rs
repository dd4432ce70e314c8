//! NVML without a GPU: values that are planted, and change with each reading.
//!
//! GPUs are numbered by their places in the machine, as in the simulated driver, whose UUIDs and bus ids they have. README.md
//! describes the options (`SIM_NVML`, `simConfigure`).
#![cfg(target_os = "linux")]
#![allow(non_snake_case, reason = "the exported names are C's")]

use sim_core::ffi::{give_text, read_text};
use sim_core::options::{OptionsStore, Text};
use sim_core::planted::Planted;
use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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
    /// Microseconds that a reading of the used memory takes.
    slow_us: u64 = 0;
    /// Bits of the reasons for lower clocks.
    reasons: u64 = 1;
}

static OPTIONS: OptionsStore<Options> = OptionsStore::new("sim-nvml", "SIM_NVML", Options::parse);

const SUCCESS: i32 = 0;
const INVALID_ARGUMENT: i32 = 2;
const NOT_SUPPORTED: i32 = 3;
const NO_PERMISSION: i32 = 4;
const NOT_FOUND: i32 = 6;
const VERSION_MISMATCH: i32 = 25;

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
static HANGS: AtomicU64 = AtomicU64::new(0);

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
fn read(handle: usize, name: &str) -> Result<u64, i32> {
    let device = device(handle).ok_or(INVALID_ARGUMENT)?;
    let options = options();
    if options.unsupported.as_str() == name {
        return Err(NOT_SUPPORTED);
    }
    if options.forbidden.as_str() == name {
        return Err(NO_PERMISSION);
    }
    Ok(PLANTED.read(device, name) + if name == "reasons" { options.reasons } else { 0 })
}

/// Writes what `value` yields to a place.
fn give<T>(place: *mut T, value: Result<T, i32>) -> i32 {
    if place.is_null() {
        return INVALID_ARGUMENT;
    }
    match value {
        Ok(value) => {
            // SAFETY: the caller passes a place for a value of this type.
            unsafe { place.write(value) };
            SUCCESS
        }
        Err(code) => code,
    }
}

fn hang(hangs: fn(&Options) -> bool) {
    if hangs(options()) {
        HANGS.fetch_add(1, Ordering::Relaxed);
    }
    while hangs(options()) {
        sim_core::clock::sleep(Duration::from_millis(5));
    }
}

/// Sets the options in `settings` ("key=value,key=value"), and all others to their defaults.
#[unsafe(no_mangle)]
pub extern "C" fn simConfigure(settings: *const c_char) -> c_int {
    if OPTIONS.configure(settings) { 0 } else { -1 }
}

/// Returns how often a value was read, such as "0:temperature", `nvmlInit_v2` was called, "inits", or a call hung, "hangs".
#[unsafe(no_mangle)]
pub extern "C" fn simCount(what: *const c_char) -> u64 {
    let what = read_text(what).and_then(|what| what.to_str().ok()).unwrap_or_default();
    for (name, count) in [("inits", &INITS), ("hangs", &HANGS)] {
        if what == name {
            return count.load(Ordering::Relaxed);
        }
    }
    PLANTED.count(what).unwrap_or(u64::MAX)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> i32 {
    INITS.fetch_add(1, Ordering::Relaxed);
    hang(|options| options.hang_init);
    options().init_error
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlSystemGetNVMLVersion(text: *mut c_char, length: u32) -> i32 {
    give_text(text, length as i32, "13.580.00").map_or(INVALID_ARGUMENT, |()| SUCCESS)
}

/// The handle of the GPU for which `is_its` holds.
fn find(handle: *mut usize, id: *const c_char, is_its: impl Fn(&str, usize) -> bool) -> i32 {
    let id = read_text(id).and_then(|id| id.to_str().ok()).unwrap_or_default();
    let device = (0..options().devices as usize).find(|device| is_its(id, *device));
    give(handle, device.map(|device| FIRST + device * NEXT).ok_or(NOT_FOUND))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetHandleByUUID(id: *const c_char, handle: *mut usize) -> i32 {
    find(handle, id, |id, device| {
        let digits: String = format!("SIMULATED-GPU-0{device}").bytes().map(|byte| format!("{byte:02x}")).collect();
        let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| digits[part].to_owned());
        !options().no_uuid && id == format!("GPU-{}", parts.join("-"))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(id: *const c_char, handle: *mut usize) -> i32 {
    find(handle, id, |id, device| id.eq_ignore_ascii_case(&format!("0000:{:02X}:00.0", 0x17 + device)))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetPowerUsage(handle: usize, place: *mut u32) -> i32 {
    hang(|options| options.hang);
    give(place, read(handle, "power").map(|power| power as u32))
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

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetFieldValues(handle: usize, count: i32, fields: *mut Field) -> i32 {
    hang(|options| options.hang);
    if count != 1 || fields.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: the caller passes one field.
    let field = unsafe { &mut *fields };
    let is_second = FIELD_READINGS.fetch_add(1, Ordering::Relaxed) % 2 == 1;
    if is_second && options().flaky_power != SUCCESS {
        field.code = options().flaky_power;
        return SUCCESS;
    }
    let value = if options().no_fields || field.id != 186 { Err(NOT_SUPPORTED) } else { read(handle, "instant_power") };
    (field.kind, field.code, field.value) = (1, value.err().unwrap_or(SUCCESS), value.unwrap_or(0));
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetTemperature(handle: usize, sensor: u32, place: *mut u32) -> i32 {
    if sensor != 0 {
        return INVALID_ARGUMENT;
    }
    give(place, read(handle, "temperature").map(|celsius| celsius as u32))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetClockInfo(handle: usize, clock: u32, place: *mut u32) -> i32 {
    let value = match clock {
        1 => read(handle, "sm_clock"),
        2 => read(handle, "memory_clock"),
        _ => Err(INVALID_ARGUMENT),
    };
    give(place, value.map(|mhz| mhz as u32))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetUtilizationRates(handle: usize, place: *mut [u32; 2]) -> i32 {
    let both = read(handle, "gpu").and_then(|gpu| Ok([gpu as u32, read(handle, "memory")? as u32]));
    give(place, both)
}

fn used(handle: usize) -> Result<u64, i32> {
    sim_core::clock::sleep(Duration::from_micros(options().slow_us));
    match options().memory_error {
        0 => read(handle, "used"),
        code => Err(code),
    }
}

/// Total, free and used bytes.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMemoryInfo(handle: usize, place: *mut [u64; 3]) -> i32 {
    // What the driver reserves counts as used here.
    give(place, used(handle).map(|used| [80 << 30, (80 << 30) - used, used + (600 << 20)]))
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

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMemoryInfo_v2(handle: usize, place: *mut MemoryV2) -> i32 {
    // SAFETY: the caller passes a record that begins with its version.
    if place.is_null() || unsafe { (*place).version } != 0x0200_0028 {
        return VERSION_MISMATCH;
    }
    let record = |used| MemoryV2 { version: 0x0200_0028, total: 80 << 30, reserved: 600 << 20, free: 0, used };
    give(place, used(handle).map(record))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetCurrentClocksEventReasons(handle: usize, place: *mut u64) -> i32 {
    give(place, read(handle, "reasons"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_change_with_each_reading() {
        let mut handle = 0;
        assert_eq!(nvmlDeviceGetHandleByPciBusId_v2(c"0000:18:00.0".as_ptr(), &raw mut handle), SUCCESS);
        let mut mhz = [0; 2];
        mhz.iter_mut().for_each(|mhz| assert_eq!(nvmlDeviceGetClockInfo(handle, 1, mhz), SUCCESS));
        assert_eq!((mhz, simCount(c"1:sm_clock".as_ptr())), ([1_500, 1_505], 2));
        assert_eq!(nvmlDeviceGetClockInfo(handle + 1, 1, &raw mut mhz[0]), INVALID_ARGUMENT);
    }
}
