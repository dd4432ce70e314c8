//! The functions of the loader that find drivers and devices.

use crate::control;
use crate::properties;
use crate::shared::counters::count;
use crate::shared::devices;
use sim_core::record::Record;
use std::sync::atomic::{AtomicBool, Ordering};

sim_core::codes! {
    /// A `ze_result_t` other than success.
    Code(u32), INVALID_NULL_POINTER;
    UNINITIALIZED = 0x7800_0001;
    UNSUPPORTED_FEATURE = 0x7800_0003;
    INVALID_NULL_HANDLE = 0x7800_0005;
    INVALID_NULL_POINTER = 0x7800_0007;
}

static INITIALIZED: AtomicBool = AtomicBool::new(false);

const DRIVER: usize = 0x5e00_0000_1000;

/// The index of a device.
fn index(device: usize) -> Outcome<u32> {
    devices::index(control::options(), device).ok_or(Code::INVALID_NULL_HANDLE)
}

/// Gives handles in the manner of the API: with room for none, how many there are.
pub(crate) fn give_all(number: *mut u32, places: *mut usize, handles: &[usize]) -> Outcome {
    // SAFETY: the caller promises a number, or null.
    let room = unsafe { number.as_ref() }.copied().unwrap_or_default() as usize;
    let given = if room == 0 { handles.len() } else { room.min(handles.len()) };
    give(number, given as u32)?;
    if room != 0 && !places.is_null() {
        // SAFETY: the caller promises room for that many.
        unsafe { std::ptr::copy_nonoverlapping(handles.as_ptr(), places, given) };
    }
    Ok(())
}

/// Writes a sheet of properties, but for its type and the pointer to the next.
pub(crate) fn write(place: *mut u8, sheet: &Record) -> Outcome {
    if place.is_null() {
        return Err(Code::INVALID_NULL_POINTER);
    }
    let bytes = &sheet.bytes()[properties::HEAD..];
    // SAFETY: the caller promises a place for the struct.
    let place = unsafe { place.add(properties::HEAD) };
    // SAFETY: the same promise of the caller covers this place.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
    Ok(())
}

sim_core::exports! {
    code_of as u32;

    /// Initialises the drivers; without one, it says what the real loader says.
    fn zeInit(_flags: u32) {
        count(&control::counters().inits);
        if !control::options().driver {
            return Err(Code::UNINITIALIZED);
        }
        INITIALIZED.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Gives the drivers.
    fn zeDriverGet(number: *mut u32, drivers: *mut usize) {
        if !INITIALIZED.load(Ordering::Relaxed) {
            return Err(Code::UNINITIALIZED);
        }
        give_all(number, drivers, &[DRIVER])
    }

    /// Gives the devices of the driver.
    fn zeDeviceGet(driver: usize, number: *mut u32, devices: *mut usize) {
        if driver != DRIVER {
            return Err(Code::INVALID_NULL_HANDLE);
        }
        let handles: Vec<usize> = (0..control::options().devices).map(devices::handle).collect();
        give_all(number, devices, &handles)
    }

    /// Gives the version of Level Zero that the driver speaks: the major one in the upper half.
    fn zeDriverGetApiVersion(driver: usize, place: *mut u32) {
        if driver != DRIVER {
            return Err(Code::INVALID_NULL_HANDLE);
        }
        give(place, 1 << 16 | control::options().driver_api.minor)
    }

    /// Gives the place of a device on the PCI bus.
    fn zeDevicePciGetPropertiesExt(device: usize, place: *mut u8) {
        write(place, &properties::pci(index(device)?))
    }

    /// Gives what a device is.
    fn zeDeviceGetProperties(device: usize, place: *mut u8) {
        write(place, &properties::device(control::options(), index(device)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_come_in_two_calls() {
        assert_eq!(zeInit(0), 0);
        let (mut number, mut driver) = (0, 0);
        assert_eq!(zeDriverGet(&raw mut number, std::ptr::null_mut()), 0);
        assert_eq!(number, 1);
        assert_eq!(zeDriverGet(&raw mut number, &raw mut driver), 0);
        assert_eq!(driver, DRIVER);
        let (mut devices, mut found) = ([0; 4], 4);
        assert_eq!(zeDeviceGet(driver, &raw mut found, devices.as_mut_ptr()), 0);
        assert_eq!((found, index(devices[0]), index(devices[0] + 1)), (1, Ok(0), Err(Code::INVALID_NULL_HANDLE)));
        assert_eq!(zeDeviceGet(1, &raw mut found, devices.as_mut_ptr()), Code::INVALID_NULL_HANDLE.0);
    }
}
