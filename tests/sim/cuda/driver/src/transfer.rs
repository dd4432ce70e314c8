//! Copies and fills.

use crate::control;
use crate::engine::{self, Job};
use crate::error::{Error, Outcome};
use crate::memory::Place;
use crate::shared::clock::now;
use crate::shared::counters::count;
use crate::shared::tracer::{MEMCPY, MEMCPY_PEER, MEMSET, Work};
use crate::state::State;
use sim_core::engine::{COPY_SPEED, FILL_SPEED, Timing};
use sim_core::memory::Movement;

/// The direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
    /// Determined by the addresses.
    Any,
}

use Direction::{Any, DeviceToDevice, DeviceToHost, HostToDevice};

/// CUPTI's numbers of copies.
const HTOD: u32 = 1;
const DTOH: u32 = 2;
const DTOD: u32 = 8;
const HTOH: u32 = 9;
const PTOP: u32 = 10;

/// Makes a copy; checks addresses that must be of a device.
pub(crate) fn copy(state: &State, direction: Direction, target: u64, source: u64, bytes: usize) -> Outcome<Job> {
    let (to, from) = (state.place(target), state.place(source));
    let on_device = |place: Place| matches!(place, Place::Device | Place::Managed);
    let needed = match direction {
        HostToDevice => on_device(to),
        DeviceToHost => on_device(from),
        DeviceToDevice => on_device(to) && on_device(from),
        Any => true,
    };
    if !needed {
        return Err(Error::INVALID_VALUE);
    }
    let mut work = Work { kind: MEMCPY, ..Work::default() };
    work.bytes = bytes as u64;
    (work.source_kind, work.target_kind) = (from as u32, to as u32);
    work.copy_kind = match (direction, on_device(from), on_device(to)) {
        (HostToDevice, ..) | (Any, false, true) => HTOD,
        (DeviceToHost, ..) | (Any, true, false) => DTOH,
        (DeviceToDevice, ..) | (Any, true, true) => DTOD,
        (Any, false, false) => HTOH,
    };
    let movement = Some(Movement::Copy { target, source, bytes });
    Ok(Job { work, timing: Timing::transfer(work.bytes, COPY_SPEED), movement })
}

/// A copy between contexts; one between devices has a kind of record of its own.
fn copy_peer(state: &State, target: (u64, u64), source: (u64, u64), bytes: usize) -> Outcome<Job> {
    let mut job = copy(state, DeviceToDevice, target.0, source.0, bytes)?;
    let to = state.contexts.get(&target.1).ok_or(Error::INVALID_CONTEXT)?;
    let from = state.contexts.get(&source.1).ok_or(Error::INVALID_CONTEXT)?;
    if to.device != from.device {
        (job.work.kind, job.work.copy_kind) = (MEMCPY_PEER, PTOP);
        (job.work.source_device, job.work.source_context) = (from.device as u32, from.id);
        (job.work.target_device, job.work.target_context) = (to.device as u32, to.id);
    }
    Ok(job)
}

/// A fill with `count` values of `width` bytes.
pub(crate) fn fill(state: &State, target: u64, value: u32, width: usize, count: usize) -> Outcome<Job> {
    let place = state.place(target);
    if place == Place::Pageable {
        return Err(Error::INVALID_VALUE);
    }
    let mut work = Work { kind: MEMSET, ..Work::default() };
    work.bytes = (width * count) as u64;
    work.value = value;
    work.target_kind = place as u32;
    let movement = Some(Movement::Fill { target, value, width, count });
    Ok(Job { work, timing: Timing::transfer(work.bytes, FILL_SPEED), movement })
}

/// Appends a transfer to a stream, and returns at once.
pub(crate) fn begin(stream: u64, correlation: u32, job: impl FnOnce(&State) -> Outcome<Job>) -> Outcome {
    let submitted = engine::submit(stream, correlation, |state| {
        let mut job = job(state)?;
        job.work.is_async = 1;
        Ok((0, vec![job]))
    });
    submitted.map(drop)
}

/// Appends a transfer to the default stream, and waits for its end.
fn complete(correlation: u32, job: impl FnOnce(&State) -> Outcome<Job>) -> Outcome {
    count(&control::counters().synchronizes);
    let end = engine::submit(0, correlation, |state| {
        state.objects.forbid_while_capturing()?;
        Ok((0, vec![job(state)?]))
    });
    end?.wait(now);
    Ok(())
}

/// The functions that copy in a direction, each for the default stream and for any.
macro_rules! copies {
    ($($blocking:ident, $async:ident: $direction:ident;)+) => {
        api! {$(
            fn $blocking(target: u64, source: u64, bytes: usize) |caller| {
                complete(caller.correlation, |state| copy(state, $direction, target, source, bytes))
            }

            fn $async(target: u64, source: u64, bytes: usize, stream: u64) |caller| {
                begin(stream, caller.correlation, |state| copy(state, $direction, target, source, bytes))
            }
        )+}
    };
}

copies! {
    cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2: HostToDevice;
    cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2: DeviceToHost;
    cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2: DeviceToDevice;
    cuMemcpy, cuMemcpyAsync: Any;
}

/// The functions that fill with values of a type, each for the default stream and for any.
macro_rules! fills {
    ($($blocking:ident, $async:ident: $value:ty;)+) => {
        api! {$(
            fn $blocking(target: u64, value: $value, count: usize) |caller| {
                complete(caller.correlation, |state| fill(state, target, value.into(), size_of::<$value>(), count))
            }

            fn $async(target: u64, value: $value, count: usize, stream: u64) |caller| {
                begin(stream, caller.correlation, |state| fill(state, target, value.into(), size_of::<$value>(), count))
            }
        )+}
    };
}

fills! {
    cuMemsetD8_v2, cuMemsetD8Async: u8;
    cuMemsetD16_v2, cuMemsetD16Async: u16;
    cuMemsetD32_v2, cuMemsetD32Async: u32;
}

api! {
    fn cuMemcpyPeerAsync(target: u64, to: u64, source: u64, from: u64, bytes: usize, stream: u64) |caller| {
        begin(stream, caller.correlation, |state| copy_peer(state, (target, to), (source, from), bytes))
    }
}
