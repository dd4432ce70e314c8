//! Memory and its kinds.

use crate::attributes;
use crate::error::{Error, Outcome, give};
use crate::shared::tracer::{Memory, Report};
use crate::state::{self, State};
use crate::trace::{self, Caller};

/// Kinds of memory, by CUPTI's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Pageable = 1,
    Pinned = 2,
    Device = 3,
    Managed = 5,
}

/// The location of an allocation: the kind of memory, and the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Location {
    place: Place,
    device: i32,
}

fn allocate(state: &mut State, bytes: usize, place: Place) -> Outcome<u64> {
    if bytes == 0 {
        return Err(Error::INVALID_VALUE);
    }
    let device = state.context()?.1.device;
    if place == Place::Device && bytes as u64 > state.free_bytes(device) {
        return Err(Error::OUT_OF_MEMORY);
    }
    state.objects.allocations.allocate(bytes, Location { place, device }).ok_or(Error::OUT_OF_MEMORY)
}

impl State {
    /// Returns the location of an address; unknown addresses are pageable host memory.
    pub(crate) fn place(&self, address: u64) -> Place {
        self.objects.allocations.location(address).map_or(Place::Pageable, |location| location.place)
    }

    /// The bytes of device memory that are free.
    fn free_bytes(&self, device: i32) -> u64 {
        let is_counted = |location: Location| location.device == device && location.place == Place::Device;
        attributes::MEMORY - self.objects.allocations.used_bytes(is_counted)
    }
}

/// Allocates device memory; returns its address.
pub(crate) fn allocate_device(caller: Caller, address: *mut u64, bytes: usize) -> Outcome {
    state::ready()?.objects.forbid_while_capturing()?;
    allocate_to(caller, address, bytes, Place::Device, false)
}

/// Frees memory of any kind.
pub(crate) fn release(caller: Caller, address: u64, is_async: bool) -> Outcome {
    let mut state = state::ready()?;
    let known = state.objects.allocations.starting_at(address).map(|memory| (memory.bytes, memory.location));
    let context = state.context().map_or(0, |(_, context)| context.id);
    drop(state);
    if let Some((bytes, Location { place, device })) = known {
        // Before the address can be reused.
        tell(caller, (true, is_async), place, [device as u32, context], (address, bytes));
    }
    let is_freed = address == 0 || state::ready()?.objects.allocations.free(address);
    if is_freed { Ok(()) } else { Err(Error::INVALID_VALUE) }
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
    let memory = Memory { is_release, is_async, place, correlation, device, context, address, bytes };
    trace::report(Report::MemoryChanged(memory));
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
        give(free, state.free_bytes(device) as usize)?;
        give(total, attributes::MEMORY as usize)
    }
}
