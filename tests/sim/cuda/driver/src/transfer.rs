//! Copies and fills.

use crate::control;
use crate::engine::{self, Job, Launch};
use crate::error::{Error, Outcome};
use crate::memory::Place;
use crate::shared::clock::now;
use crate::shared::counters::count;
use crate::shared::tracer::{MEMCPY, MEMCPY_PEER, MEMSET, Work};
use crate::state::{self, State};
use crate::trace;
use sim_core::engine::{COPY_SPEED, FILL_SPEED, Moment, Timing};
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
    start(stream, correlation, true, job).map(drop)
}

/// Appends a transfer to the default stream, and waits for its end.
fn complete(correlation: u32, job: impl FnOnce(&State) -> Outcome<Job>) -> Outcome {
    count(&control::counters().synchronizes);
    let end = start(0, correlation, false, job)?;
    end.wait(now);
    Ok(())
}

fn start(stream: u64, correlation: u32, is_async: bool, job: impl FnOnce(&State) -> Outcome<Job>) -> Outcome<Moment> {
    let (work, end) = {
        let mut state = state::ready()?;
        if !is_async {
            state.forbid_while_capturing()?;
        }
        let stream = state.stream(stream)?;
        let mut job = job(&state)?;
        job.work.is_async = u32::from(is_async);
        if let Some(capture) = state.capture_of(stream)? {
            capture.jobs.push(job);
            return Ok(Moment::default());
        }
        let work = engine::submit(&mut state, stream, &[job], Launch { correlation, graph: 0 })?;
        (work, state.stream_and_context(stream)?.0.queue.tail.clone())
    };
    trace::queued(&work);
    Ok(end)
}

api! {
    fn cuMemcpyHtoD_v2(target: u64, source: u64, bytes: usize) |caller| {
        complete(caller.correlation, |state| copy(state, HostToDevice, target, source, bytes))
    }

    fn cuMemcpyHtoDAsync_v2(target: u64, source: u64, bytes: usize, stream: u64) |caller| {
        begin(stream, caller.correlation, |state| copy(state, HostToDevice, target, source, bytes))
    }

    fn cuMemcpyDtoH_v2(target: u64, source: u64, bytes: usize) |caller| {
        complete(caller.correlation, |state| copy(state, DeviceToHost, target, source, bytes))
    }

    fn cuMemcpyDtoHAsync_v2(target: u64, source: u64, bytes: usize, stream: u64) |caller| {
        begin(stream, caller.correlation, |state| copy(state, DeviceToHost, target, source, bytes))
    }

    fn cuMemcpyDtoD_v2(target: u64, source: u64, bytes: usize) |caller| {
        complete(caller.correlation, |state| copy(state, DeviceToDevice, target, source, bytes))
    }

    fn cuMemcpyDtoDAsync_v2(target: u64, source: u64, bytes: usize, stream: u64) |caller| {
        begin(stream, caller.correlation, |state| copy(state, DeviceToDevice, target, source, bytes))
    }

    fn cuMemcpy(target: u64, source: u64, bytes: usize) |caller| {
        complete(caller.correlation, |state| copy(state, Any, target, source, bytes))
    }

    fn cuMemcpyAsync(target: u64, source: u64, bytes: usize, stream: u64) |caller| {
        begin(stream, caller.correlation, |state| copy(state, Any, target, source, bytes))
    }

    fn cuMemcpyPeer(target: u64, to: u64, source: u64, from: u64, bytes: usize) |caller| {
        complete(caller.correlation, |state| copy_peer(state, (target, to), (source, from), bytes))
    }

    fn cuMemcpyPeerAsync(target: u64, to: u64, source: u64, from: u64, bytes: usize, stream: u64) |caller| {
        begin(stream, caller.correlation, |state| copy_peer(state, (target, to), (source, from), bytes))
    }

    fn cuMemsetD8_v2(target: u64, value: u8, count: usize) |caller| {
        complete(caller.correlation, |state| fill(state, target, u32::from(value), 1, count))
    }

    fn cuMemsetD16_v2(target: u64, value: u16, count: usize) |caller| {
        complete(caller.correlation, |state| fill(state, target, u32::from(value), 2, count))
    }

    fn cuMemsetD32_v2(target: u64, value: u32, count: usize) |caller| {
        complete(caller.correlation, |state| fill(state, target, value, 4, count))
    }

    fn cuMemsetD8Async(target: u64, value: u8, count: usize, stream: u64) |caller| {
        begin(stream, caller.correlation, |state| fill(state, target, u32::from(value), 1, count))
    }

    fn cuMemsetD16Async(target: u64, value: u16, count: usize, stream: u64) |caller| {
        begin(stream, caller.correlation, |state| fill(state, target, u32::from(value), 2, count))
    }

    fn cuMemsetD32Async(target: u64, value: u32, count: usize, stream: u64) |caller| {
        begin(stream, caller.correlation, |state| fill(state, target, value, 4, count))
    }
}
