//! Copies and fills.

use crate::argument::{CopyKind, Stream};
use crate::control;
use crate::engine::{self, Job};
use crate::error::{Error, Outcome};
use crate::launch::blank;
use crate::shared::clock::now;
use crate::shared::counters::count;
use crate::shared::tracer::{COPY, DEVICE_TO_DEVICE, DEVICE_TO_HOST, FILL, HOST, HOST_TO_DEVICE, HOST_TO_HOST, Work};
use crate::state::State;
use crate::trace::Caller;
use sim_core::engine::{COPY_SPEED, FILL_SPEED, Moment, Timing};
use sim_core::ffi::StaticText;
use sim_core::memory::Movement;
use std::ffi::c_void;

/// Returns the direction of a copy from its addresses.
const ANY_WAY: u32 = 4;

/// A copy from one device to another, or to and from the host.
fn copy(state: &State, target: *mut c_void, source: *const c_void, bytes: usize, kind: CopyKind) -> Outcome<Job> {
    let (target, source) = (target as u64, source as u64);
    let (target_device, source_device) = (state.device_of(target), state.device_of(source));
    let direction = match (source_device == HOST, target_device == HOST) {
        (true, true) => HOST_TO_HOST,
        (true, false) => HOST_TO_DEVICE,
        (false, true) => DEVICE_TO_HOST,
        (false, false) => DEVICE_TO_DEVICE,
    };
    if kind.0 > ANY_WAY || (kind.0 != ANY_WAY && kind.0 != direction) {
        return Err(Error::INVALID_VALUE);
    }
    let work = Work { bytes: bytes as u64, direction, source, target, source_device, target_device, ..blank(COPY) };
    let movement = Some(Movement::Copy { target, source, bytes });
    Ok(Job { work, timing: Timing::transfer(work.bytes, COPY_SPEED), movement })
}

/// A fill, which runs as a kernel of HIP.
fn fill(state: &State, target: *mut c_void, value: i32, bytes: usize) -> Outcome<Job> {
    let (target, kernel) = (target as u64, state.fill_kernel()?);
    let target_device = state.device_of(target);
    if target_device == HOST {
        return Err(Error::INVALID_VALUE);
    }
    let (id, name, blocks) = (kernel.id, StaticText(kernel.name.as_ptr()), (bytes / 4096 + 1) as u32);
    let work = Work {
        kernel: id,
        name,
        grid: [blocks, 1, 1],
        block: [256, 1, 1],
        bytes: bytes as u64,
        target,
        target_device,
        ..blank(FILL)
    };
    let movement = Some(Movement::Fill { target, value: value as u32, width: 1, count: bytes });
    Ok(Job { work, timing: Timing::transfer(work.bytes, FILL_SPEED), movement })
}

/// Appends a transfer to a stream or its capture; returns the moment of its end.
fn start(stream: Stream, caller: Caller, job: impl FnOnce(&State) -> Outcome<Job>) -> Outcome<Moment> {
    engine::submit(stream, caller, false, |state| Ok(vec![job(state)?]))
}

/// Appends a transfer to a stream, and waits for its end.
fn complete(stream: Stream, caller: Caller, job: impl FnOnce(&State) -> Outcome<Job>) -> Outcome {
    count(&control::counters().synchronizes);
    start(stream, caller, job)?.wait(now);
    Ok(())
}

api! {
    fn hipMemcpy(dst: *mut c_void, src: *const c_void, sizeBytes: usize, kind: CopyKind) |caller| {
        complete(Stream(0), caller, |state| copy(state, dst, src, sizeBytes, kind))
    }

    fn hipMemcpyAsync(
        dst: *mut c_void, src: *const c_void, sizeBytes: usize, kind: CopyKind, stream: Stream,
    ) |caller| {
        start(stream, caller, |state| copy(state, dst, src, sizeBytes, kind)).map(drop)
    }

    fn hipMemcpyWithStream(
        dst: *mut c_void, src: *const c_void, sizeBytes: usize, kind: CopyKind, stream: Stream,
    ) |caller| {
        complete(stream, caller, |state| copy(state, dst, src, sizeBytes, kind))
    }

    fn hipMemcpyPeerAsync(
        dst: *mut c_void, dstDeviceId: i32, src: *const c_void, srcDevice: i32, sizeBytes: usize, stream: Stream,
    ) |caller| {
        start(stream, caller, |state| {
            if (state.device_of(dst as u64), state.device_of(src as u64)) != (dstDeviceId, srcDevice) {
                return Err(Error::INVALID_DEVICE);
            }
            copy(state, dst, src, sizeBytes, CopyKind(DEVICE_TO_DEVICE))
        })
        .map(drop)
    }

    fn hipMemset(dst: *mut c_void, value: i32, sizeBytes: usize) |caller| {
        complete(Stream(0), caller, |state| fill(state, dst, value, sizeBytes))
    }

    fn hipMemsetAsync(dst: *mut c_void, value: i32, sizeBytes: usize, stream: Stream) |caller| {
        start(stream, caller, |state| fill(state, dst, value, sizeBytes)).map(drop)
    }
}
