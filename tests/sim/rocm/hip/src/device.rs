//! The devices, GPUs of 304 compute units, and the current device of each thread.

use crate::argument::Properties;
use crate::control;
use crate::error::{Error, Outcome, give};
use crate::state;
use crate::trace;
use sim_core::ffi::give_text;
use std::cell::Cell;
use std::ffi::c_char;

/// Bytes of device memory.
pub(crate) const MEMORY: u64 = 64 << 30;

thread_local! {
    static CURRENT: Cell<u32> = const { Cell::new(0) };
}

/// Returns the calling thread's device.
pub(crate) fn current() -> u32 {
    CURRENT.get()
}

fn check(device: i32) -> Outcome<u32> {
    drop(state::ready()?);
    u32::try_from(device).ok().filter(|device| *device < control::options().devices).ok_or(Error::INVALID_DEVICE)
}

/// An attribute, by HIP's number.
fn attribute(device: u32, attribute: i32) -> Outcome<i32> {
    Ok(match attribute {
        // Clocks of cores and memory in kHz.
        5 => 2_100_000,
        60 => 1_300_000,
        // Versions of the instruction set.
        23 => 9,
        61 => 4,
        // Threads of a block and of a unit, units, threads that go together.
        56 => 1024,
        57 => 2048,
        63 => 304,
        87 => 64,
        // PCI bus, device and domain.
        67 => 0x23 + device as i32,
        68 | 69 => 0,
        // Registers of a block and of a unit.
        71 | 72 => 65_536,
        // Shared memory of a block and of a unit.
        74 | 76 | 10_002 => 64 << 10,
        73 | 75 => 0,
        83 => i32::MAX,
        other if (0..=120).contains(&other) || (10_000..=10_030).contains(&other) => 0,
        _ => return Err(Error::INVALID_VALUE),
    })
}

api! {
    fn hipInit(flags: u32) |_| {
        if flags != 0 {
            return Err(Error::INVALID_VALUE);
        }
        state::ready().map(drop)
    }

    fn hipDriverGetVersion(driverVersion: *mut i32) |_| {
        give(driverVersion, control::options().hip)
    }

    fn hipRuntimeGetVersion(runtimeVersion: *mut i32) |_| {
        give(runtimeVersion, control::options().hip)
    }

    fn hipGetDeviceCount(count: *mut i32) |_| {
        give(count, control::options().devices as i32)?;
        state::ready().map(drop)
    }

    fn hipGetDevice(deviceId: *mut i32) |_| {
        drop(state::ready()?);
        give(deviceId, current() as i32)
    }

    fn hipSetDevice(deviceId: i32) |_| {
        CURRENT.set(check(deviceId)?);
        Ok(())
    }

    fn hipDeviceGetName(name: *mut c_char, len: i32, device: i32) |_| {
        check(device)?;
        give_text(name, len, control::options().name.as_str()).ok_or(Error::INVALID_VALUE)
    }

    fn hipDeviceGetPCIBusId(id: *mut c_char, len: i32, device: i32) |_| {
        let bus = attribute(check(device)?, 67)?;
        give_text(id, len, &format!("0000:{bus:02x}:00.0")).ok_or(Error::INVALID_VALUE)
    }

    fn hipDeviceGetAttribute(pi: *mut i32, attr: i32, deviceId: i32) |_| {
        give(pi, attribute(check(deviceId)?, attr)?)
    }

    fn hipDeviceTotalMem(bytes: *mut usize, device: i32) |_| {
        check(device)?;
        give(bytes, MEMORY as usize)
    }

    fn hipGetDevicePropertiesR0600(prop: *mut Properties, deviceId: i32) |_| {
        check(deviceId)?;
        if prop.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: all bytes of a place that the caller promises; zeros are valid in every field.
        unsafe { prop.write_bytes(0, 1) };
        // SAFETY: the same promise of the caller covers this place.
        let properties = unsafe { &mut *prop };
        let name = control::options().name;
        let name = name.as_str().as_bytes();
        properties.name[..name.len()].copy_from_slice(name);
        properties.memory = MEMORY as usize;
        properties.shared_per_block = 64 << 10;
        (properties.registers_per_block, properties.warp) = (65_536, 64);
        Ok(())
    }

    fn hipGetLastError() |_| {
        trace::take_last_error()
    }
}
