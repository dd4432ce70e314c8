//! The functions of the loader that find drivers and devices.

use crate::control;
use crate::properties;
use crate::shared::counters::count;
use crate::shared::devices;
use sim_core::record::Record;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

/// Results.
pub(crate) const SUCCESS: u32 = 0;
const UNINITIALIZED: u32 = 0x7800_0001;
const INVALID_NULL_HANDLE: u32 = 0x7800_0005;
const INVALID_NULL_POINTER: u32 = 0x7800_0007;

static INITIALIZED: AtomicBool = AtomicBool::new(false);

const DRIVER: usize = 0x5e00_0000_1000;
/// The index of a device.
fn index(device: usize) -> Option<u32> {
    devices::index(control::options(), device)
}

/// Initialises the drivers; without one, it says what the real loader says.
#[unsafe(no_mangle)]
pub extern "C" fn zeInit(_flags: u32) -> u32 {
    count(&control::counters().inits);
    if !control::options().driver {
        return UNINITIALIZED;
    }
    INITIALIZED.store(true, Ordering::Relaxed);
    SUCCESS
}

/// As `zeInit`, and gives the drivers of all kinds.
#[unsafe(no_mangle)]
pub extern "C" fn zeInitDrivers(number: *mut u32, drivers: *mut usize, descriptor: *const c_void) -> u32 {
    if descriptor.is_null() {
        return INVALID_NULL_POINTER;
    }
    match zeInit(0) {
        SUCCESS => give(number, drivers, &[DRIVER]),
        result => result,
    }
}

/// Gives handles in the manner of the API: with room for none, how many there are.
pub(crate) fn give(number: *mut u32, places: *mut usize, handles: &[usize]) -> u32 {
    if number.is_null() {
        return INVALID_NULL_POINTER;
    }
    // SAFETY: the caller promises a number.
    let room = unsafe { number.read() } as usize;
    let given = if room == 0 { handles.len() } else { room.min(handles.len()) };
    // SAFETY: the same promise of the caller covers this place.
    unsafe { number.write(given as u32) };
    if room != 0 && !places.is_null() {
        // SAFETY: the caller promises room for that many.
        unsafe { std::ptr::copy_nonoverlapping(handles.as_ptr(), places, given) };
    }
    SUCCESS
}

/// Gives the drivers.
#[unsafe(no_mangle)]
pub extern "C" fn zeDriverGet(number: *mut u32, drivers: *mut usize) -> u32 {
    if !INITIALIZED.load(Ordering::Relaxed) {
        return UNINITIALIZED;
    }
    give(number, drivers, &[DRIVER])
}

/// Gives the devices of the driver.
#[unsafe(no_mangle)]
pub extern "C" fn zeDeviceGet(driver: usize, number: *mut u32, devices: *mut usize) -> u32 {
    if driver != DRIVER {
        return INVALID_NULL_HANDLE;
    }
    let handles: Vec<usize> = (0..control::options().devices).map(devices::handle).collect();
    give(number, devices, &handles)
}

/// Writes a sheet of properties, but for its type and the pointer to the next.
pub(crate) fn write(place: *mut u8, sheet: Option<Record>) -> u32 {
    let Some(sheet) = sheet else { return INVALID_NULL_HANDLE };
    if place.is_null() {
        return INVALID_NULL_POINTER;
    }
    let bytes = &sheet.bytes()[properties::HEAD..];
    // SAFETY: the caller promises a place for the struct.
    let place = unsafe { place.add(properties::HEAD) };
    // SAFETY: the same promise of the caller covers this place.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
    SUCCESS
}

/// Gives the version of Level Zero that the driver speaks: the major one in the upper half.
#[unsafe(no_mangle)]
pub extern "C" fn zeDriverGetApiVersion(driver: usize, place: *mut u32) -> u32 {
    if driver != DRIVER || place.is_null() {
        return INVALID_NULL_HANDLE;
    }
    // SAFETY: the caller promises a valid place for the result.
    unsafe { place.write(1 << 16 | control::options().driver_api.minor) };
    SUCCESS
}

/// Gives the version of the driver.
#[unsafe(no_mangle)]
pub extern "C" fn zeDriverGetProperties(driver: usize, place: *mut u8) -> u32 {
    write(place, (driver == DRIVER).then(properties::driver))
}

/// Gives the place of a device on the PCI bus.
#[unsafe(no_mangle)]
pub extern "C" fn zeDevicePciGetPropertiesExt(device: usize, place: *mut u8) -> u32 {
    write(place, index(device).map(properties::pci))
}

/// Gives what a device is.
#[unsafe(no_mangle)]
pub extern "C" fn zeDeviceGetProperties(device: usize, place: *mut u8) -> u32 {
    write(place, index(device).map(|index| properties::device(control::options(), index)))
}

/// Gives the limits of what runs on a device.
#[unsafe(no_mangle)]
pub extern "C" fn zeDeviceGetComputeProperties(device: usize, place: *mut u8) -> u32 {
    write(place, index(device).map(|_| properties::compute()))
}

/// Gives the memories of a device, of which there is one.
#[unsafe(no_mangle)]
pub extern "C" fn zeDeviceGetMemoryProperties(device: usize, number: *mut u32, places: *mut u8) -> u32 {
    if number.is_null() {
        return INVALID_NULL_POINTER;
    }
    // SAFETY: the caller promises a number.
    let room = unsafe { number.read() };
    // SAFETY: the same promise of the caller covers this place.
    unsafe { number.write(1) };
    if room == 0 || places.is_null() { SUCCESS } else { write(places, index(device).map(|_| properties::memory())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_come_in_two_calls() {
        assert_eq!(zeInit(0), SUCCESS);
        let (mut number, mut driver) = (0, 0);
        assert_eq!(zeDriverGet(&raw mut number, std::ptr::null_mut()), SUCCESS);
        assert_eq!(number, 1);
        assert_eq!(zeDriverGet(&raw mut number, &raw mut driver), SUCCESS);
        assert_eq!(driver, DRIVER);
        let (mut devices, mut found) = ([0; 4], 4);
        assert_eq!(zeDeviceGet(driver, &raw mut found, devices.as_mut_ptr()), SUCCESS);
        assert_eq!((found, index(devices[0]), index(devices[0] + 1)), (1, Some(0), None));
        assert_eq!(zeDeviceGet(1, &raw mut found, devices.as_mut_ptr()), INVALID_NULL_HANDLE);
    }
}
