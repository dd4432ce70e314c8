//! Memory: "device" memory is the host's, and its addresses are the host's.

use crate::attributes;
use crate::error::{Error, Outcome, give};
use crate::shared::tracer::Memory;
use crate::state::{self, State};
use crate::trace::{self, Caller};

/// Memory that a program has allocated.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) bytes: usize,
    pub(crate) place: Place,
    pub(crate) device: i32,
}

/// Where memory is, by CUPTI's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Pageable = 1,
    Pinned = 2,
    Device = 3,
    Managed = 5,
}

/// The alignment of all allocations.
const ALIGNMENT: usize = 256;

fn allocate(state: &mut State, bytes: usize, place: Place) -> Outcome<u64> {
    if bytes == 0 {
        return Err(Error::INVALID_VALUE);
    }
    let device = state.context()?.1.device;
    if place == Place::Device && bytes as u64 > attributes::MEMORY - state.used(device) {
        return Err(Error::OUT_OF_MEMORY);
    }
    let mut address = std::ptr::null_mut();
    // SAFETY: the place is ours, the alignment is a power of two and a multiple of a pointer's size.
    if unsafe { libc::posix_memalign(&raw mut address, ALIGNMENT, bytes) } != 0 {
        return Err(Error::OUT_OF_MEMORY);
    }
    let address = address as u64;
    state.allocations.insert(address, Allocation { bytes, place, device });
    Ok(address)
}

fn free(state: &mut State, address: u64) -> Outcome {
    if address == 0 {
        return Ok(());
    }
    state.allocations.remove(&address).ok_or(Error::INVALID_VALUE)?;
    // SAFETY: the address was allocated here, and has just been given up.
    unsafe { libc::free(address as *mut libc::c_void) };
    Ok(())
}

impl State {
    /// The allocation that contains an address.
    pub(crate) fn allocation(&self, address: u64) -> Option<(u64, &Allocation)> {
        let (first, allocation) = self.allocations.range(..=address).next_back()?;
        (address < first + allocation.bytes as u64).then_some((*first, allocation))
    }

    /// Where an address is; what nobody has allocated here is pageable memory of the host.
    pub(crate) fn place(&self, address: u64) -> Place {
        self.allocation(address).map_or(Place::Pageable, |(_, allocation)| allocation.place)
    }

    /// The bytes of device memory in use.
    fn used(&self, device: i32) -> u64 {
        let own = |one: &&Allocation| one.device == device && one.place == Place::Device;
        self.allocations.values().filter(own).map(|allocation| allocation.bytes as u64).sum()
    }
}

/// Allocates device memory, and tells its address.
pub(crate) fn allocate_device(caller: Caller, address: *mut u64, bytes: usize) -> Outcome {
    state::ready()?.forbid_while_capturing()?;
    allocate_to(caller, address, bytes, Place::Device, false)
}

/// Gives memory back, of whatever kind.
pub(crate) fn release(caller: Caller, address: u64, is_async: bool) -> Outcome {
    let mut state = state::ready()?;
    let known = state.allocations.get(&address).map(|memory| (memory.bytes, memory.place, memory.device));
    let context = state.context().map_or(0, |(_, context)| context.id);
    drop(state);
    if let Some((bytes, place, device)) = known {
        // Before somebody else can have it.
        tell(caller, (true, is_async), place, [device as u32, context], (address, bytes));
    }
    free(&mut *state::ready()?, address)
}

fn allocate_to(caller: Caller, place: *mut u64, bytes: usize, kind: Place, is_async: bool) -> Outcome {
    let mut state = state::ready()?;
    let address = allocate(&mut state, bytes, kind)?;
    let (_, context) = state.context()?;
    let on = [context.device as u32, context.id];
    drop(state);
    tell(caller, (false, is_async), kind, on, (address, bytes));
    give(place, address)
}

fn tell(
    caller: Caller,
    (is_release, is_async): (bool, bool),
    place: Place,
    [device, context]: [u32; 2],
    (address, bytes): (u64, usize),
) {
    let (place, correlation, bytes) = (place as u32, caller.correlation, bytes as u64);
    trace::memory_changed(&Memory { is_release, is_async, place, correlation, device, context, address, bytes });
}

api! {
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) |caller| {
        allocate_device(caller, address, bytes)
    }

    fn cuMemAllocAsync(address: *mut u64, bytes: usize, _stream: u64) |caller| {
        allocate_to(caller, address, bytes, Place::Device, true)
    }

    fn cuMemAllocManaged(address: *mut u64, bytes: usize, _flags: u32) |caller| {
        allocate_to(caller, address, bytes, Place::Managed, false)
    }

    fn cuMemAllocHost_v2(address: *mut u64, bytes: usize) |caller| {
        allocate_to(caller, address, bytes, Place::Pinned, false)
    }

    fn cuMemHostAlloc(address: *mut u64, bytes: usize, _flags: u32) |caller| {
        allocate_to(caller, address, bytes, Place::Pinned, false)
    }

    fn cuMemFree_v2(address: u64) |caller| {
        release(caller, address, false)
    }

    fn cuMemFreeAsync(address: u64, _stream: u64) |caller| {
        release(caller, address, true)
    }

    fn cuMemFreeHost(address: u64) |caller| {
        release(caller, address, false)
    }

    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) |_| {
        let mut state = state::ready()?;
        let device = state.context()?.1.device;
        give(free, (attributes::MEMORY - state.used(device)) as usize)?;
        give(total, attributes::MEMORY as usize)
    }
}
