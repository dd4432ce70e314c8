//! Memory: "device" memory is the host's, and its addresses are the host's.

use crate::argument::Stream;
use crate::device;
use crate::error::{Error, Outcome, give};
use crate::shared::tracer::HOST;
use crate::state::{self, State};
use std::ffi::c_void;

/// Memory of a device.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) bytes: usize,
    pub(crate) device: u32,
}

/// The alignment of all allocations.
const ALIGNMENT: usize = 256;

impl State {
    /// The allocation that contains an address.
    pub(crate) fn allocation(&self, address: u64) -> Option<(u64, &Allocation)> {
        let (first, allocation) = self.allocations.range(..=address).next_back()?;
        (address < first + allocation.bytes as u64).then_some((*first, allocation))
    }

    /// The device that an address is on; what nobody has allocated here is memory of the host.
    pub(crate) fn device_of(&self, address: u64) -> i32 {
        self.allocation(address).map_or(HOST, |(_, allocation)| allocation.device as i32)
    }
}

fn allocate(place: *mut *mut c_void, bytes: usize) -> Outcome {
    let mut state = state::ready()?;
    let device = device::current();
    let used: usize = state.allocations.values().filter(|its| its.device == device).map(|its| its.bytes).sum();
    if bytes == 0 {
        return give(place, std::ptr::null_mut());
    }
    if bytes as u64 > device::MEMORY - used as u64 {
        return Err(Error::OUT_OF_MEMORY);
    }
    let mut address = std::ptr::null_mut();
    // SAFETY: the place is ours, the alignment is a power of two and a multiple of a pointer's size.
    if unsafe { libc::posix_memalign(&raw mut address, ALIGNMENT, bytes) } != 0 {
        return Err(Error::OUT_OF_MEMORY);
    }
    state.allocations.insert(address as u64, Allocation { bytes, device });
    give(place, address)
}

fn free(address: *mut c_void) -> Outcome {
    if address.is_null() {
        return Ok(());
    }
    state::ready()?.allocations.remove(&(address as u64)).ok_or(Error::INVALID_VALUE)?;
    // SAFETY: the address was allocated here, and has just been given up.
    unsafe { libc::free(address) };
    Ok(())
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
