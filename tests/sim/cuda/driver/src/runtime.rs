//! A few functions of the CUDA runtime, under our own names, traced as runtime calls.
//!
//! Fewer have the runtime's own names too, for programs that find this library as `libcudart.so.12`.

use crate::control;
use crate::error::{Error, Outcome, give};
use crate::launch::{self, Dimensions};
use crate::shared::calls::{self, Call};
use crate::trace::{self, Caller};
use crate::transfer::{Direction, begin, copy, fill};
use crate::{context, memory, state, stream};
use std::ffi::c_char;

/// Runs a runtime call; by option, with a driver call of the same correlation id inside.
fn call(outer: &Call, inner: &Call, symbol: *const c_char, serve: impl FnOnce(Caller) -> Outcome) -> i32 {
    let correlation = trace::next_correlation();
    trace::nested(outer, symbol, correlation, |caller| {
        if !control::options().nested_driver {
            return serve(caller);
        }
        match trace::nested(inner, symbol, correlation, serve) {
            0 => Ok(()),
            code => Err(Error(code)),
        }
    })
}

/// `cudaLaunchKernel_v7000_params`.
#[allow(dead_code, reason = "the tracer reads them")]
#[repr(C)]
struct LaunchParams {
    function: u64,
    grid: [u32; 3],
    block: [u32; 3],
    arguments: u64,
    dynamic_shared: usize,
    stream: u64,
}

/// `cudaLaunchKernel`, for a function of the driver; `grid` and `block` are three numbers each.
#[unsafe(no_mangle)]
pub extern "C" fn simRuntimeLaunchKernel(
    function: u64,
    grid: *const [u32; 3],
    block: *const [u32; 3],
    dynamic_shared: u32,
    stream: u64,
) -> i32 {
    if grid.is_null() || block.is_null() {
        return Error::INVALID_VALUE.0;
    }
    // SAFETY: the caller promises three numbers.
    let grid = unsafe { *grid };
    // SAFETY: the caller promises three numbers.
    let block = unsafe { *block };
    let dimensions = Dimensions { grid, block, dynamic_shared, ..Dimensions::default() };
    let params = LaunchParams { function, grid, block, arguments: 0, dynamic_shared: dynamic_shared as usize, stream };
    trace::set_params(&params);
    call(&calls::cudaLaunchKernel, &calls::cuLaunchKernel, launch::symbol(function), |caller| {
        launch::launch(function, dimensions, stream, caller.correlation)
    })
}

/// `cudaMemcpyAsync`, with the direction from the addresses.
#[unsafe(no_mangle)]
pub extern "C" fn simRuntimeMemcpyAsync(target: u64, source: u64, bytes: usize, stream: u64) -> i32 {
    call(&calls::cudaMemcpyAsync, &calls::cuMemcpyAsync, std::ptr::null(), |caller| {
        begin(stream, caller.correlation, |state| copy(state, Direction::Any, target, source, bytes))
    })
}

/// `cudaMemsetAsync`.
#[unsafe(no_mangle)]
pub extern "C" fn simRuntimeMemsetAsync(target: u64, value: i32, bytes: usize, stream: u64) -> i32 {
    call(&calls::cudaMemsetAsync, &calls::cuMemsetD8Async, std::ptr::null(), |caller| {
        begin(stream, caller.correlation, |state| fill(state, target, value as u32 & 0xff, 1, bytes))
    })
}

/// `cudaStreamSynchronize`.
#[unsafe(no_mangle)]
pub extern "C" fn simRuntimeStreamSynchronize(stream: u64) -> i32 {
    call(&calls::cudaStreamSynchronize, &calls::cuStreamSynchronize, std::ptr::null(), |caller| {
        stream::synchronize(stream, caller.correlation)
    })
}

/// `cudaDeviceSynchronize`.
#[unsafe(no_mangle)]
pub extern "C" fn simRuntimeDeviceSynchronize() -> i32 {
    call(&calls::cudaDeviceSynchronize, &calls::cuCtxSynchronize, std::ptr::null(), |caller| {
        context::synchronize(caller.correlation)
    })
}

/// `cudaStreamBeginCapture`.
#[unsafe(no_mangle)]
pub extern "C" fn simRuntimeStreamBeginCapture(stream: u64, mode: u32) -> i32 {
    trace::set_params(&stream);
    call(&calls::cudaStreamBeginCapture, &calls::cuStreamBeginCapture_v2, std::ptr::null(), |_| {
        stream::begin_capture(stream, mode)
    })
}

/// `cudaStreamEndCapture`.
#[unsafe(no_mangle)]
pub extern "C" fn simRuntimeStreamEndCapture(stream: u64, graph: *mut u64) -> i32 {
    trace::set_params(&stream);
    call(&calls::cudaStreamEndCapture, &calls::cuStreamEndCapture, std::ptr::null(), |_| {
        stream::end_capture(stream, graph)
    })
}

/// `cudaGetDevice`.
#[unsafe(no_mangle)]
pub extern "C" fn simRuntimeGetDevice(device: *mut i32) -> i32 {
    call(&calls::cudaGetDevice, &calls::cuCtxGetDevice, std::ptr::null(), |_| give(device, context::current_device()?))
}

/// `cudaProfilerStart`.
#[unsafe(no_mangle)]
pub extern "C" fn cudaProfilerStart() -> i32 {
    call(&calls::cudaProfilerStart, &calls::cuProfilerStart, std::ptr::null(), |_| state::ready().map(drop))
}

/// `cudaProfilerStop`.
#[unsafe(no_mangle)]
pub extern "C" fn cudaProfilerStop() -> i32 {
    call(&calls::cudaProfilerStop, &calls::cuProfilerStop, std::ptr::null(), |_| state::ready().map(drop))
}

/// `cudaMalloc`.
#[unsafe(no_mangle)]
pub extern "C" fn cudaMalloc(address: *mut u64, bytes: usize) -> i32 {
    call(&calls::cudaMalloc, &calls::cuMemAlloc_v2, std::ptr::null(), |caller| {
        memory::allocate_device(caller, address, bytes)
    })
}

/// `cudaFree`.
#[unsafe(no_mangle)]
pub extern "C" fn cudaFree(address: u64) -> i32 {
    call(&calls::cudaFree, &calls::cuMemFree_v2, std::ptr::null(), |caller| memory::release(caller, address, false))
}

/// `cudaMemcpyAsync`, with the direction from the addresses.
#[unsafe(no_mangle)]
pub extern "C" fn cudaMemcpyAsync(target: u64, source: u64, bytes: usize, _kind: i32, stream: u64) -> i32 {
    simRuntimeMemcpyAsync(target, source, bytes, stream)
}

/// `cudaMemsetAsync`.
#[unsafe(no_mangle)]
pub extern "C" fn cudaMemsetAsync(target: u64, value: i32, bytes: usize, stream: u64) -> i32 {
    simRuntimeMemsetAsync(target, value, bytes, stream)
}

/// `cudaStreamSynchronize`.
#[unsafe(no_mangle)]
pub extern "C" fn cudaStreamSynchronize(stream: u64) -> i32 {
    simRuntimeStreamSynchronize(stream)
}
