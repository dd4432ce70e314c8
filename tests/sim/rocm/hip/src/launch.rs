//! Launches of kernels.

use crate::argument::{Dimensions, Event, Function, Stream};
use crate::control;
use crate::engine::{self, Job};
use crate::error::{Error, Outcome};
use crate::module;
use crate::shared::counters::count;
use crate::shared::tracer::{HOST, KERNEL, Work};
use crate::state::State;
use crate::trace::Caller;
use sim_core::engine::Timing;
use sim_core::ffi::StaticText;
use std::ffi::c_void;

const MAX_THREADS_PER_BLOCK: u64 = 1024;

/// Returns work of a kind, with the host as source and target.
pub(crate) fn blank(kind: u32) -> Work {
    Work { kind, source_device: HOST, target_device: HOST, ..Work::default() }
}

/// The parameters of a launch: blocks, threads of each, bytes of shared memory.
#[derive(Clone, Copy, Debug)]
struct Size {
    grid: [u32; 3],
    block: [u32; 3],
    shared: usize,
}

/// Returns a launch as work.
fn kernel(state: &State, function: u64, size: Size) -> Outcome<Job> {
    let function = state.functions.get(&function).ok_or(Error::INVALID_DEVICE_FUNCTION)?;
    let product = |counts: [u32; 3]| counts.iter().map(|count| u64::from(*count)).product::<u64>();
    let (blocks, threads) = (product(size.grid), product(size.block));
    if blocks == 0 || threads == 0 || threads > MAX_THREADS_PER_BLOCK {
        return Err(Error::INVALID_VALUE);
    }
    let name = function.name.to_str().unwrap_or_default();
    let options = control::options();
    let work = Work {
        kernel: function.id,
        name: StaticText(function.name.as_ptr()),
        grid: size.grid,
        block: size.block,
        group: function.group + size.shared as u32,
        ..blank(KERNEL)
    };
    let timing = Timing::kernel(name, blocks, options.no_finish.as_str(), options.overlap);
    Ok(Job { work, timing, movement: None })
}

/// Appends a kernel to a stream, or to its capture.
fn launch(function: u64, size: Size, stream: Stream, caller: Caller) -> Outcome {
    module::tell(function);
    let submitted = engine::submit(stream, caller, false, |state| {
        let job = kernel(state, function, size)?;
        count(&control::counters().launches);
        Ok(vec![job])
    });
    submitted.map(drop)
}

api! {
    fn hipLaunchKernel(
        function_address: *const c_void, numBlocks: Dimensions, dimBlocks: Dimensions, args: *mut *mut c_void,
        sharedMemBytes: usize, stream: Stream,
    ) |caller| {
        let size = Size { grid: numBlocks.into(), block: dimBlocks.into(), shared: sharedMemBytes };
        launch(function_address as u64, size, stream, caller)
    }

    fn hipModuleLaunchKernel(
        func: Function, gridDimX: u32, gridDimY: u32, gridDimZ: u32, blockDimX: u32, blockDimY: u32, blockDimZ: u32,
        sharedMemBytes: u32, stream: Stream, kernelParams: *mut *mut c_void, extra: *mut *mut c_void,
    ) |caller| {
        let (grid, block) = ([gridDimX, gridDimY, gridDimZ], [blockDimX, blockDimY, blockDimZ]);
        launch(func.0, Size { grid, block, shared: sharedMemBytes as usize }, stream, caller)
    }

    fn hipExtModuleLaunchKernel(
        func: Function, globalWorkSizeX: u32, globalWorkSizeY: u32, globalWorkSizeZ: u32, localWorkSizeX: u32,
        localWorkSizeY: u32, localWorkSizeZ: u32, sharedMemBytes: usize, stream: Stream,
        kernelParams: *mut *mut c_void, extra: *mut *mut c_void, startEvent: Event, stopEvent: Event, flags: u32,
    ) |caller| {
        let (all, block) = (
            [globalWorkSizeX, globalWorkSizeY, globalWorkSizeZ],
            [localWorkSizeX, localWorkSizeY, localWorkSizeZ],
        );
        let blocks = |index: usize| all[index].checked_div(block[index]).unwrap_or(0);
        launch(func.0, Size { grid: [blocks(0), blocks(1), blocks(2)], block, shared: sharedMemBytes }, stream, caller)
    }
}
