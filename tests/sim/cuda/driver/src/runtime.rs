//! A few functions of the CUDA runtime, traced as runtime calls, for programs that find this library as `libcudart.so.12`.
//!
//! Those whose own names a program with headers of CUDA could take for the real ones have ours.

use crate::control;
use crate::error::{Error, Outcome};
use crate::launch::{self, Dimensions};
use crate::shared::calls::{self, Call};
use crate::trace::{self, Caller};
use crate::transfer::{Direction, begin, copy, fill};
use crate::{memory, state, stream};
use std::ffi::c_char;

/// Runs a runtime call; by option, with a driver call of the same correlation id inside.
fn call(outer: &Call, inner: &Call, symbol: *const c_char, serve: impl FnOnce(Caller) -> Outcome) -> i32 {
    let correlation = trace::next_correlation();
    trace::nested(outer, symbol, correlation, |caller| {
        if !control::options().nested_driver {
            return serve(caller);
        }
        Error::unless(trace::nested(inner, symbol, correlation, serve))
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

/// Functions of the runtime, each with the call that it is, and the driver's call inside. Calls with `params` pass their
/// first argument as their parameters.
macro_rules! runtime {
    ($(fn $name:ident($($argument:ident: $type:ty),*) as $outer:ident, $inner:ident $(, params $first:ident)?
        |$caller:pat_param| $body:block)+) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($argument: $type),*) -> i32 {
            $(trace::set_params(&$first);)?
            call(&calls::$outer, &calls::$inner, std::ptr::null(), |$caller| $body)
        }
    )+};
}

runtime! {
    fn simRuntimeStreamBeginCapture(stream: u64, mode: u32) as cudaStreamBeginCapture, cuStreamBeginCapture_v2,
        params stream |_| {
        stream::begin_capture(stream, mode)
    }

    fn simRuntimeStreamEndCapture(stream: u64, graph: *mut u64) as cudaStreamEndCapture, cuStreamEndCapture,
        params stream |_| {
        stream::end_capture(stream, graph)
    }

    fn cudaStreamSynchronize(stream: u64) as cudaStreamSynchronize, cuStreamSynchronize |caller| {
        stream::synchronize(stream, caller.correlation)
    }

    fn cudaProfilerStart() as cudaProfilerStart, cuProfilerStart |_| {
        state::ready().map(drop)
    }

    fn cudaProfilerStop() as cudaProfilerStop, cuProfilerStop |_| {
        state::ready().map(drop)
    }

    fn cudaMalloc(address: *mut u64, bytes: usize) as cudaMalloc, cuMemAlloc_v2 |caller| {
        memory::allocate_device(caller, address, bytes)
    }

    fn cudaFree(address: u64) as cudaFree, cuMemFree_v2 |caller| {
        memory::release(caller, address, false)
    }

    fn cudaMemcpyAsync(target: u64, source: u64, bytes: usize, _kind: i32, stream: u64)
        as cudaMemcpyAsync, cuMemcpyAsync |caller| {
        begin(stream, caller.correlation, |state| copy(state, Direction::Any, target, source, bytes))
    }

    fn cudaMemsetAsync(target: u64, value: i32, bytes: usize, stream: u64) as cudaMemsetAsync, cuMemsetD8Async |caller| {
        begin(stream, caller.correlation, |state| fill(state, target, value as u32 & 0xff, 1, bytes))
    }
}
