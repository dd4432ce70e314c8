//! The system management: the state of the devices, which changes with each reading.
//!
//! It lists the devices in the reverse order. A part of a device has the device's handle plus the part's number.

use crate::control;
use crate::device::{Code, Outcome, code_of, give, give_all, write};
use crate::properties;
use sim_core::planted::Planted;
use sim_core::record::Record;

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

/// How often a value was read, such as "0:clock", or a call hung, "hangs".
pub(crate) fn count(what: &str) -> Option<u64> {
    PLANTED.count(what)
}

/// The device and the part of a handle.
fn part(handle: usize) -> Outcome<(usize, usize)> {
    let offset = handle.checked_sub(FIRST).ok_or(Code::INVALID_NULL_HANDLE)?;
    let (device, part) = (offset / NEXT, offset % NEXT);
    if device < control::options().devices as usize { Ok((device, part)) } else { Err(Code::INVALID_NULL_HANDLE) }
}

/// The device of a part.
fn device_of(handle: usize, wanted: usize) -> Outcome<usize> {
    let (device, part) = part(handle)?;
    if part == wanted { Ok(device) } else { Err(Code::INVALID_NULL_HANDLE) }
}

/// Reads a planted value.
fn read(handle: usize, wanted: usize, name: &str) -> Outcome<u64> {
    let device = device_of(handle, wanted)?;
    if control::options().sysman_missing.as_str() == name {
        return Err(Code::UNSUPPORTED_FEATURE);
    }
    Ok(PLANTED.read(device, name))
}

/// Reads a counter whose growth in each 0.1 s is a planted value, in these units, and its time.
fn read_counter(handle: usize, wanted: usize, name: &str, unit: u64) -> Outcome<[u64; 2]> {
    let [counter, time] = PLANTED.read_counter(device_of(handle, wanted)?, name, 100_000);
    Ok([counter * unit, time])
}

/// Gives the parts of a device.
fn list(device: usize, number: *mut u32, places: *mut usize, parts: &[usize]) -> Outcome {
    device_of(device, 0)?;
    give_all(number, places, &parts.iter().map(|part| device + part).collect::<Vec<_>>())
}

/// Writes the properties of a part, of that length, with a number in its place.
fn write_number(place: *mut u8, length: usize, at: usize, number: u32) -> Outcome {
    write(place, &Record::zeros(length).u32(at, number))
}

sim_core::exports! {
    code_of as u32;

    /// Initialises the system management.
    fn zesInit(_flags: u32) {
        Code::unless(control::options().sysman_init_error)
    }

    fn zesDriverGet(number: *mut u32, drivers: *mut usize) {
        give_all(number, drivers, &[DRIVER])
    }

    fn zesDeviceGet(driver: usize, number: *mut u32, devices: *mut usize) {
        if driver != DRIVER {
            return Err(Code::INVALID_NULL_HANDLE);
        }
        let all = (0..control::options().devices as usize).rev();
        give_all(number, devices, &all.map(|device| FIRST + device * NEXT).collect::<Vec<_>>())
    }

    fn zesDevicePciGetProperties(device: usize, place: *mut u8) {
        write(place, &properties::pci(part(device)?.0 as u32))
    }

    fn zesDeviceEnumPowerDomains(device: usize, number: *mut u32, places: *mut usize) {
        list(device, number, places, &[POWER])
    }

    fn zesPowerGetEnergyCounter(power: usize, place: *mut [u64; 2]) {
        PLANTED.hang_while(|| control::options().sysman_hang);
        give(place, read_counter(power, POWER, "power", 100)?)
    }

    fn zesDeviceEnumFrequencyDomains(device: usize, number: *mut u32, places: *mut usize) {
        list(device, number, places, &[MEDIA_FREQUENCY, GPU_FREQUENCY, MEMORY_FREQUENCY])
    }

    /// `zes_freq_properties_t`
    fn zesFrequencyGetProperties(frequency: usize, place: *mut u8) {
        let kind = match part(frequency)?.1 {
            GPU_FREQUENCY => 0,
            MEMORY_FREQUENCY => 1,
            MEDIA_FREQUENCY => 2,
            _ => return Err(Code::INVALID_NULL_HANDLE),
        };
        write_number(place, 56, 16, kind)
    }

    /// `zes_freq_state_t`
    fn zesFrequencyGetState(frequency: usize, place: *mut u8) {
        let mhz = match part(frequency)?.1 {
            GPU_FREQUENCY => read(frequency, GPU_FREQUENCY, "clock")?,
            _ => read(frequency, MEMORY_FREQUENCY, "memory_clock")?,
        };
        write(place, &Record::zeros(64).u64(48, (mhz as f64).to_bits()).u32(56, control::options().sysman_reasons))
    }

    fn zesDeviceEnumTemperatureSensors(device: usize, number: *mut u32, places: *mut usize) {
        list(device, number, places, &[MEMORY_SENSOR, GLOBAL_SENSOR])
    }

    /// `zes_temp_properties_t`
    fn zesTemperatureGetProperties(sensor: usize, place: *mut u8) {
        write_number(place, 56, 16, if device_of(sensor, GLOBAL_SENSOR).is_ok() { 0 } else { 2 })
    }

    fn zesTemperatureGetState(sensor: usize, place: *mut f64) {
        give(place, read(sensor, GLOBAL_SENSOR, "temperature")? as f64 / 1000.0)
    }

    fn zesDeviceEnumEngineGroups(device: usize, number: *mut u32, places: *mut usize) {
        list(device, number, places, &[COPY_ENGINE, ALL_ENGINES])
    }

    /// `zes_engine_properties_t`
    fn zesEngineGetProperties(engine: usize, place: *mut u8) {
        write_number(place, 32, 16, if device_of(engine, ALL_ENGINES).is_ok() { 0 } else { 3 })
    }

    fn zesEngineGetActivity(engine: usize, place: *mut [u64; 2]) {
        give(place, read_counter(engine, ALL_ENGINES, "engine", 1_000)?)
    }

    fn zesDeviceEnumMemoryModules(device: usize, number: *mut u32, places: *mut usize) {
        list(device, number, places, &[SYSTEM_MEMORY, DEVICE_MEMORY])
    }

    /// `zes_mem_properties_t`
    fn zesMemoryGetProperties(memory: usize, place: *mut u8) {
        write_number(place, 48, 28, u32::from(device_of(memory, DEVICE_MEMORY).is_ok()))
    }

    /// `zes_mem_state_t`
    fn zesMemoryGetState(memory: usize, place: *mut u8) {
        let used = read(memory, DEVICE_MEMORY, "used")?;
        write(place, &Record::zeros(40).u64(24, (48 << 30) - used).u64(32, 48 << 30))
    }
}
