//! Devices, and the driver itself.

use crate::attributes;
use crate::control;
use crate::error::{Error, Outcome, give, texts};
use crate::injection;
use crate::state;
use sim_core::ffi::give_text;
use std::ffi::c_char;

/// Fails for a device that does not exist.
fn check(device: i32) -> Outcome {
    drop(state::ready()?);
    if device >= 0 && (device as u32) < control::options().devices { Ok(()) } else { Err(Error::INVALID_DEVICE) }
}

/// The place of a device in the machine, which `CUDA_VISIBLE_DEVICES` of a real driver makes another than its number.
fn place(device: i32) -> i32 {
    let mut places = control::options().visible.as_str().split(':');
    places.nth(device as usize).and_then(|place| place.parse().ok()).unwrap_or(device)
}

/// Sixteen bytes that identify a device.
fn uuid(device: i32) -> [u8; 16] {
    let mut uuid = *b"SIMULATED-GPU-00";
    uuid[15] = b'0' + (place(device) % 10) as u8;
    uuid
}

/// Writes a text of a result code, or null.
fn give_text_of(code: i32, place: *mut *const c_char, which: usize) -> Outcome {
    let text = texts(code).map(|texts| texts[which]);
    give(place, text.map_or(std::ptr::null(), |text| text.as_ptr()))?;
    text.map(drop).ok_or(Error::INVALID_VALUE)
}

api! {
    fn cuInit(flags: u32) |_| {
        if control::options().driver == 0 {
            return Err(Error::STUB_LIBRARY);
        }
        if flags != 0 {
            return Err(Error::INVALID_VALUE);
        }
        if control::options().devices == 0 {
            return Err(Error::NO_DEVICE);
        }
        injection::init(|| state::lock().initialized = true)
    }

    fn cuDriverGetVersion(version: *mut i32) |_| {
        match control::options().driver {
            0 => Err(Error::STUB_LIBRARY),
            number => give(version, number),
        }
    }

    fn cuDeviceGetCount(count: *mut i32) |_| {
        drop(state::ready()?);
        give(count, control::options().devices as i32)
    }

    fn cuDeviceGet(device: *mut i32, ordinal: i32) |_| {
        check(ordinal)?;
        give(device, ordinal)
    }

    fn cuDeviceGetName(name: *mut c_char, room: i32, device: i32) |_| {
        check(device)?;
        give_text(name, room, control::options().name.as_str()).ok_or(Error::INVALID_VALUE)
    }

    fn cuDeviceGetUuid(place: *mut [u8; 16], device: i32) |_| {
        check(device)?;
        give(place, uuid(device))
    }

    fn cuDeviceGetUuid_v2(place: *mut [u8; 16], device: i32) |_| {
        check(device)?;
        give(place, uuid(device))
    }

    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: i32) |_| {
        check(device)?;
        give(bytes, attributes::MEMORY as usize)
    }

    fn cuDeviceGetAttribute(value: *mut i32, attribute: i32, device: i32) |_| {
        check(device)?;
        give(value, attributes::attribute(place(device), attribute)?)
    }

    fn cuDeviceGetPCIBusId(id: *mut c_char, room: i32, device: i32) |_| {
        check(device)?;
        give_text(id, room, &format!("0000:{:02X}:00.0", attributes::attribute(place(device), 33)?)).ok_or(Error::INVALID_VALUE)
    }

    fn cuGetErrorName(code: i32, name: *mut *const c_char) |_| {
        give_text_of(code, name, 0)
    }

    fn cuGetErrorString(code: i32, text: *mut *const c_char) |_| {
        give_text_of(code, text, 1)
    }

    fn cuProfilerStart() |_| {
        state::ready().map(drop)
    }

    fn cuProfilerStop() |_| {
        state::ready().map(drop)
    }
}
