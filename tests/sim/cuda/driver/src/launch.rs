//! Launches of kernels.

use crate::attributes;
use crate::control;
use crate::engine::{self, Job};
use crate::error::{Error, Outcome};
use crate::shared::calls;
use crate::shared::counters::count;
use crate::shared::tracer::{KERNEL, Work};
use crate::state::{self, State};
use crate::trace;
use sim_core::engine::Timing;
use sim_core::ffi::StaticText;
use std::ffi::{c_char, c_void};

/// The parameters of a launch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Dimensions {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) cluster: [u32; 3],
    pub(crate) dynamic_shared: u32,
    pub(crate) cooperative: bool,
    /// It may begin before the previous kernel has ended.
    pub(crate) programmatic: bool,
}

/// Returns a launch as work.
pub(crate) fn kernel(state: &State, function: u64, dimensions: Dimensions) -> Outcome<Job> {
    let function = state.functions.get(&function).ok_or(Error::INVALID_HANDLE)?;
    let Dimensions { grid, block, cluster, dynamic_shared, cooperative, programmatic } = dimensions;
    let blocks: u64 = grid.iter().map(|count| u64::from(*count)).product();
    let threads: u64 = block.iter().map(|count| u64::from(*count)).product();
    let fits = threads <= u64::from(attributes::THREADS_PER_BLOCK) && dynamic_shared <= function.max_dynamic_shared;
    if blocks == 0 || threads == 0 || !fits {
        return Err(Error::INVALID_VALUE);
    }
    let options = control::options();
    let name = function.name.to_str().unwrap_or_default();
    let work = Work {
        kind: KERNEL,
        name: StaticText(function.name.as_ptr()),
        grid,
        block,
        cluster,
        static_shared: function.static_shared,
        dynamic_shared,
        shared_executed: function.static_shared + dynamic_shared + attributes::RESERVED_SHARED_PER_BLOCK,
        registers: function.registers,
        launch_type: u32::from(cooperative),
        ..Work::default()
    };
    let timing = Timing::kernel(name, blocks, options.no_finish.as_str(), options.overlap || programmatic);
    Ok(Job { work, timing, movement: None })
}

/// Appends a kernel to a stream, or to its capture.
pub(crate) fn launch(function: u64, dimensions: Dimensions, stream: u64, correlation: u32) -> Outcome {
    let submitted = engine::submit(stream, correlation, |state| {
        let job = kernel(state, function, dimensions)?;
        count(&control::counters().launches);
        Ok((0, vec![job]))
    });
    submitted.map(drop)
}

/// Returns the name of a kernel, or null for an unknown handle.
pub(crate) fn symbol(function: u64) -> *const c_char {
    state::lock().functions.get(&function).map_or(std::ptr::null(), |function| function.name.as_ptr())
}

/// `cuLaunchKernel_params`.
#[derive(Debug)]
#[repr(C)]
struct LaunchParams {
    function: u64,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared: u32,
    stream: u64,
    parameters: u64,
    extra: u64,
}

/// `CUlaunchConfig`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Config {
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared: u32,
    stream: u64,
    attributes: *const Attribute,
    count: u32,
}

/// `CUlaunchAttribute`: the value is a union of 64 bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Attribute {
    id: u32,
    pad: u32,
    value: [u32; 16],
}

/// Ids of launch attributes.
const COOPERATIVE: u32 = 2;
const CLUSTER_DIMENSION: u32 = 4;
const PROGRAMMATIC_STREAM_SERIALIZATION: u32 = 6;

fn configured(config: *const Config) -> Outcome<(Dimensions, u64)> {
    if config.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    // SAFETY: the caller promises a configuration.
    let config = unsafe { *config };
    let (grid, block, dynamic_shared) = (config.grid, config.block, config.dynamic_shared);
    let mut dimensions = Dimensions { grid, block, dynamic_shared, ..Dimensions::default() };
    for index in 0..config.count as usize {
        // SAFETY: the caller promises that many attributes.
        let Attribute { id, value, .. } = unsafe { *config.attributes.add(index) };
        match id {
            COOPERATIVE => dimensions.cooperative = value[0] != 0,
            CLUSTER_DIMENSION => dimensions.cluster = [value[0], value[1], value[2]],
            PROGRAMMATIC_STREAM_SERIALIZATION => dimensions.programmatic = value[0] != 0,
            _ => {}
        }
    }
    Ok((dimensions, config.stream))
}

/// Functions that launch a kernel by three numbers each of blocks and of their threads; they ignore its parameters.
macro_rules! launches {
    ($($(#[$doc:meta])* fn $name:ident($($ignored:ident),+), cooperative $cooperative:literal;)+) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(
            function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
            dynamic_shared: u32, stream: u64, $($ignored: *mut *mut c_void),+
        ) -> i32 {
            let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
            let dimensions =
                Dimensions { grid, block, dynamic_shared, cooperative: $cooperative, ..Dimensions::default() };
            let params = LaunchParams { function, grid, block, dynamic_shared, stream, parameters: 0, extra: 0 };
            trace::set_params(&params);
            trace::launch(&calls::$name, symbol(function), |caller| {
                launch(function, dimensions, stream, caller.correlation)
            })
        }
    )+};
}

launches! {
    fn cuLaunchKernel(_parameters, _extra), cooperative false;
    /// All its blocks run at once.
    fn cuLaunchCooperativeKernel(_parameters), cooperative true;
}

/// Launches a kernel with attributes.
#[unsafe(no_mangle)]
pub extern "C" fn cuLaunchKernelEx(
    config: *const Config,
    function: u64,
    _parameters: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> i32 {
    trace::set_params(&config);
    trace::launch(&calls::cuLaunchKernelEx, symbol(function), |caller| {
        let (dimensions, stream) = configured(config)?;
        launch(function, dimensions, stream, caller.correlation)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launch_structs_have_cudas_sizes() {
        assert_eq!((size_of::<Config>(), size_of::<Attribute>()), (56, 72));
    }
}
