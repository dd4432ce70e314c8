//! The system management: the state of the devices, which changes with each reading.
//!
//! It lists the devices in the reverse order. A part of a device has the device's handle plus the part's number.

use crate::control;
use crate::device::{SUCCESS, give, write};
use crate::properties;
use sim_core::planted::Planted;
use sim_core::record::Record;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const UNSUPPORTED: u32 = 0x7800_0003;
const INVALID_NULL_HANDLE: u32 = 0x7800_0005;
const INVALID_NULL_POINTER: u32 = 0x7800_0007;

const DRIVER: usize = 0x5e10_0000_0000;
const FIRST: usize = 0x5e10_0000_1000;
const NEXT: usize = 0x100;

/// The parts of a device. Of each kind, the first one is not the best.
const POWER: usize = 1;
const MEDIA_FREQUENCY: usize = 2;
const GPU_FREQUENCY: usize = 3;
const MEMORY_FREQUENCY: usize = 4;
const MEMORY_SENSOR: usize = 5;
const GLOBAL_SENSOR: usize = 6;
const COPY_ENGINE: usize = 7;
const ALL_ENGINES: usize = 8;
const SYSTEM_MEMORY: usize = 9;
const DEVICE_MEMORY: usize = 10;

/// Hundreds of microjoules in 0.1 s, which are milliwatts; thousandths of a degree; MHz; percents; bytes.
static PLANTED: Planted<6> = Planted::new([
    ("power", 200_000, 50_000, 250),
    ("temperature", 50_000, 10_000, 500),
    ("clock", 1_500, 100, 1),
    ("memory_clock", 3_000, 100, 1),
    ("engine", 10, 20, 1),
    ("used", 1 << 32, 1 << 33, 4_096),
]);

static HANGS: AtomicU64 = AtomicU64::new(0);

/// How often a value was read, such as "0:clock", or a call hung, "hangs".
pub(crate) fn count(what: &str) -> Option<u64> {
    if what == "hangs" { Some(HANGS.load(Ordering::Relaxed)) } else { PLANTED.count(what) }
}

/// The device and the part of a handle.
fn part(handle: usize) -> Option<(usize, usize)> {
    let offset = handle.checked_sub(FIRST)?;
    Some((offset / NEXT, offset % NEXT)).filter(|(device, _)| *device < control::options().devices as usize)
}

/// The device of a part.
fn device_of(handle: usize, wanted: usize) -> Result<usize, u32> {
    part(handle).filter(|(_, part)| *part == wanted).map(|(device, _)| device).ok_or(INVALID_NULL_HANDLE)
}

/// Reads a planted value.
fn read(handle: usize, wanted: usize, name: &str) -> Result<u64, u32> {
    let device = device_of(handle, wanted)?;
    if control::options().sysman_missing.as_str() == name {
        return Err(UNSUPPORTED);
    }
    Ok(PLANTED.read(device, name))
}

/// Writes a struct, but for its type and the pointer to the next.
fn answer(place: *mut u8, sheet: Result<Record, u32>) -> u32 {
    match sheet {
        Ok(sheet) => write(place, Some(sheet)),
        Err(code) => code,
    }
}

/// Gives the parts of a device.
fn list(device: usize, number: *mut u32, places: *mut usize, parts: &[usize]) -> u32 {
    match part(device) {
        Some((_, 0)) => give(number, places, &parts.iter().map(|part| device + part).collect::<Vec<_>>()),
        _ => INVALID_NULL_HANDLE,
    }
}

/// Initialises the system management.
#[unsafe(no_mangle)]
pub extern "C" fn zesInit(_flags: u32) -> u32 {
    control::options().sysman_init_error
}

#[unsafe(no_mangle)]
pub extern "C" fn zesDriverGet(number: *mut u32, drivers: *mut usize) -> u32 {
    give(number, drivers, &[DRIVER])
}

#[unsafe(no_mangle)]
pub extern "C" fn zesDeviceGet(driver: usize, number: *mut u32, devices: *mut usize) -> u32 {
    if driver != DRIVER {
        return INVALID_NULL_HANDLE;
    }
    let all = (0..control::options().devices as usize).rev();
    give(number, devices, &all.map(|device| FIRST + device * NEXT).collect::<Vec<_>>())
}

#[unsafe(no_mangle)]
pub extern "C" fn zesDevicePciGetProperties(device: usize, place: *mut u8) -> u32 {
    write(place, part(device).map(|(device, _)| properties::pci(device as u32)))
}

#[unsafe(no_mangle)]
pub extern "C" fn zesDeviceEnumPowerDomains(device: usize, number: *mut u32, places: *mut usize) -> u32 {
    list(device, number, places, &[POWER])
}

#[unsafe(no_mangle)]
pub extern "C" fn zesPowerGetEnergyCounter(power: usize, place: *mut [u64; 2]) -> u32 {
    if control::options().sysman_hang {
        HANGS.fetch_add(1, Ordering::Relaxed);
    }
    while control::options().sysman_hang {
        sim_core::clock::sleep(Duration::from_millis(5));
    }
    match device_of(power, POWER) {
        Ok(device) => {
            let [energy, time] = PLANTED.read_counter(device, "power", 100_000);
            give_counter(place, [energy * 100, time])
        }
        Err(code) => code,
    }
}

fn give_counter(place: *mut [u64; 2], counter: [u64; 2]) -> u32 {
    sim_core::ffi::give(place, counter).map_or(INVALID_NULL_POINTER, |()| SUCCESS)
}

#[unsafe(no_mangle)]
pub extern "C" fn zesDeviceEnumFrequencyDomains(device: usize, number: *mut u32, places: *mut usize) -> u32 {
    list(device, number, places, &[MEDIA_FREQUENCY, GPU_FREQUENCY, MEMORY_FREQUENCY])
}

/// `zes_freq_properties_t`
#[unsafe(no_mangle)]
pub extern "C" fn zesFrequencyGetProperties(frequency: usize, place: *mut u8) -> u32 {
    let kind = match part(frequency) {
        Some((_, GPU_FREQUENCY)) => 0,
        Some((_, MEMORY_FREQUENCY)) => 1,
        Some((_, MEDIA_FREQUENCY)) => 2,
        _ => return INVALID_NULL_HANDLE,
    };
    write(place, Some(Record::zeros(56).u32(16, kind)))
}

/// `zes_freq_state_t`
#[unsafe(no_mangle)]
pub extern "C" fn zesFrequencyGetState(frequency: usize, place: *mut u8) -> u32 {
    let value = match part(frequency) {
        Some((_, GPU_FREQUENCY)) => read(frequency, GPU_FREQUENCY, "clock"),
        _ => read(frequency, MEMORY_FREQUENCY, "memory_clock"),
    };
    let state = |mhz: u64| Record::zeros(64).u64(48, (mhz as f64).to_bits()).u32(56, control::options().sysman_reasons);
    answer(place, value.map(state))
}

#[unsafe(no_mangle)]
pub extern "C" fn zesDeviceEnumTemperatureSensors(device: usize, number: *mut u32, places: *mut usize) -> u32 {
    list(device, number, places, &[MEMORY_SENSOR, GLOBAL_SENSOR])
}

/// `zes_temp_properties_t`
#[unsafe(no_mangle)]
pub extern "C" fn zesTemperatureGetProperties(sensor: usize, place: *mut u8) -> u32 {
    let kind = if device_of(sensor, GLOBAL_SENSOR).is_ok() { 0 } else { 2 };
    write(place, Some(Record::zeros(56).u32(16, kind)))
}

#[unsafe(no_mangle)]
pub extern "C" fn zesTemperatureGetState(sensor: usize, place: *mut f64) -> u32 {
    match read(sensor, GLOBAL_SENSOR, "temperature") {
        Ok(thousandths) => {
            sim_core::ffi::give(place, thousandths as f64 / 1000.0).map_or(INVALID_NULL_POINTER, |()| SUCCESS)
        }
        Err(code) => code,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn zesDeviceEnumEngineGroups(device: usize, number: *mut u32, places: *mut usize) -> u32 {
    list(device, number, places, &[COPY_ENGINE, ALL_ENGINES])
}

/// `zes_engine_properties_t`
#[unsafe(no_mangle)]
pub extern "C" fn zesEngineGetProperties(engine: usize, place: *mut u8) -> u32 {
    let kind = if device_of(engine, ALL_ENGINES).is_ok() { 0 } else { 3 };
    write(place, Some(Record::zeros(32).u32(16, kind)))
}

#[unsafe(no_mangle)]
pub extern "C" fn zesEngineGetActivity(engine: usize, place: *mut [u64; 2]) -> u32 {
    match device_of(engine, ALL_ENGINES) {
        Ok(device) => {
            let [active, time] = PLANTED.read_counter(device, "engine", 100_000);
            give_counter(place, [active * 1_000, time])
        }
        Err(code) => code,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn zesDeviceEnumMemoryModules(device: usize, number: *mut u32, places: *mut usize) -> u32 {
    list(device, number, places, &[SYSTEM_MEMORY, DEVICE_MEMORY])
}

/// `zes_mem_properties_t`
#[unsafe(no_mangle)]
pub extern "C" fn zesMemoryGetProperties(memory: usize, place: *mut u8) -> u32 {
    let location = u32::from(device_of(memory, DEVICE_MEMORY).is_ok());
    write(place, Some(Record::zeros(48).u32(28, location)))
}

/// `zes_mem_state_t`
#[unsafe(no_mangle)]
pub extern "C" fn zesMemoryGetState(memory: usize, place: *mut u8) -> u32 {
    let state = |used: u64| Record::zeros(40).u64(24, (48 << 30) - used).u64(32, 48 << 30);
    answer(place, read(memory, DEVICE_MEMORY, "used").map(state))
}
