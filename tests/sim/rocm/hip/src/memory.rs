//! Memory of the devices.

use crate::argument::Stream;
use crate::device;
use crate::error::{Error, Outcome, give};
use crate::shared::tracer::HOST;
use crate::state::{self, State};
use std::ffi::c_void;

impl State {
    /// Returns the device of an address; unknown addresses are host memory.
    pub(crate) fn device_of(&self, address: u64) -> i32 {
        self.objects.allocations.location(address).map_or(HOST, |device| device as i32)
    }
}

fn allocate(place: *mut *mut c_void, bytes: usize) -> Outcome {
    let mut state = state::ready()?;
    let device = device::current();
    if bytes == 0 {
        return give(place, std::ptr::null_mut());
    }
    if bytes as u64 > device::MEMORY - state.objects.allocations.used_bytes(|its| its == device) {
        return Err(Error::OUT_OF_MEMORY);
    }
    give(place, state.objects.allocations.allocate(bytes, device).ok_or(Error::OUT_OF_MEMORY)? as *mut c_void)
}

fn free(address: *mut c_void) -> Outcome {
    let is_freed = address.is_null() || state::ready()?.objects.allocations.free(address as u64);
    if is_freed { Ok(()) } else { Err(Error::INVALID_VALUE) }
}

api! {
    fn hipMalloc(ptr: *mut *mut c_void, size: usize) |_| {
        allocate(ptr, size)
    }

    fn hipMallocAsync(dev_ptr: *mut *mut c_void, size: usize, stream: Stream) |_| {
        state::ready()?.stream(stream)?;
        allocate(dev_ptr, size)
    }

    fn hipFree(ptr: *mut c_void) |_| {
        free(ptr)
    }

    fn hipFreeAsync(dev_ptr: *mut c_void, stream: Stream) |_| {
        state::ready()?.stream(stream)?;
        free(dev_ptr)
    }
}
