//! Graphs: work that is described once and launched as a unit.

use crate::engine::{self, Job, Launch};
use crate::error::{Error, Outcome, give};
use crate::launch::{self, Dimensions};
use crate::shared::counters::count;
use crate::state;
use crate::transfer::{Direction, copy, fill};
use crate::{control, trace};
use std::ffi::{c_char, c_void};

/// A graph. Its nodes run one after the other, in the order in which they were added.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub(crate) jobs: Vec<Job>,
}

/// A graph ready to be launched.
#[derive(Debug)]
pub(crate) struct Executable {
    /// The id that records carry.
    id: u32,
    jobs: Vec<Job>,
}

fn instantiate(place: *mut u64, graph: u64) -> Outcome {
    let mut state = state::ready()?;
    let jobs = state.graphs.get(&graph).ok_or(Error::INVALID_VALUE)?.jobs.clone();
    let handle = state.ids.next_handle();
    state.next_graph += 1;
    let id = state.next_graph;
    state.executables.insert(handle, Executable { id, jobs });
    give(place, handle)
}

fn start(executable: u64, stream: u64, correlation: u32) -> Outcome {
    let work = {
        let mut state = state::ready()?;
        let stream = state.stream(stream)?;
        let Executable { id, jobs } = state.executables.get(&executable).ok_or(Error::INVALID_VALUE)?;
        let (graph, jobs) = (*id, jobs.clone());
        count(&control::counters().launches);
        if let Some(capture) = state.capture_of(stream)? {
            capture.jobs.extend(jobs);
            return Ok(());
        }
        engine::submit(&mut state, stream, &jobs, Launch { correlation, graph })?
    };
    trace::queued(&work);
    Ok(())
}

/// Adds a node; its handle is a unique number.
fn add(place: *mut u64, graph: u64, job: impl FnOnce(&state::State) -> Outcome<Job>) -> Outcome {
    let mut state = state::ready()?;
    let job = job(&state)?;
    let handle = state.ids.next_handle();
    state.graphs.get_mut(&graph).ok_or(Error::INVALID_VALUE)?.jobs.push(job);
    give(place, handle)
}

/// `CUDA_KERNEL_NODE_PARAMS`, the part that both its versions have.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct KernelNode {
    function: u64,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared: u32,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
}

/// One side of a `CUDA_MEMCPY3D`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CopySide {
    x_in_bytes: usize,
    y: usize,
    z: usize,
    lod: usize,
    memory_type: u32,
    host: u64,
    device: u64,
    array: u64,
    reserved: u64,
    pitch: usize,
    height: usize,
}

/// `CUDA_MEMCPY3D`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CopyNode {
    source: CopySide,
    target: CopySide,
    width_in_bytes: usize,
    height: usize,
    depth: usize,
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FillNode {
    target: u64,
    pitch: usize,
    value: u32,
    element_size: u32,
    width: usize,
    height: usize,
}

/// The memory type of addresses of the host.
const HOST: u32 = 1;

impl CopySide {
    fn address(&self) -> u64 {
        let first = if self.memory_type == HOST { self.host } else { self.device };
        first + self.x_in_bytes as u64
    }
}

/// Returns the value behind the caller's pointer.
fn read<T: Copy>(parameters: *const T) -> Outcome<T> {
    // SAFETY: the caller promises parameters of that type, or null.
    unsafe { parameters.as_ref() }.copied().ok_or(Error::INVALID_VALUE)
}

fn add_kernel(place: *mut u64, graph: u64, parameters: *const KernelNode) -> Outcome {
    let KernelNode { function, grid, block, dynamic_shared, .. } = read(parameters)?;
    let dimensions = Dimensions { grid, block, dynamic_shared, ..Dimensions::default() };
    add(place, graph, |state| launch::kernel(state, function, dimensions))
}

api! {
    fn cuGraphCreate(graph: *mut u64, _flags: u32) |_| {
        let mut state = state::ready()?;
        let handle = state.ids.next_handle();
        state.graphs.insert(handle, Graph::default());
        give(graph, handle)
    }

    fn cuGraphAddKernelNode(
        node: *mut u64, graph: u64, _after: *const u64, _count: usize, parameters: *const KernelNode,
    ) |_| {
        add_kernel(node, graph, parameters)
    }

    fn cuGraphAddKernelNode_v2(
        node: *mut u64, graph: u64, _after: *const u64, _count: usize, parameters: *const KernelNode,
    ) |_| {
        add_kernel(node, graph, parameters)
    }

    fn cuGraphAddMemcpyNode(
        node: *mut u64, graph: u64, _after: *const u64, _count: usize, parameters: *const CopyNode, _context: u64,
    ) |_| {
        let CopyNode { source, target, width_in_bytes, height, depth } = read(parameters)?;
        let bytes = width_in_bytes * height.max(1) * depth.max(1);
        add(node, graph, |state| copy(state, Direction::Any, target.address(), source.address(), bytes))
    }

    fn cuGraphAddMemsetNode(
        node: *mut u64, graph: u64, _after: *const u64, _count: usize, parameters: *const FillNode, _context: u64,
    ) |_| {
        let FillNode { target, value, element_size, width, height, .. } = read(parameters)?;
        add(node, graph, |state| fill(state, target, value, element_size as usize, width * height.max(1)))
    }

    fn cuGraphInstantiateWithFlags(executable: *mut u64, graph: u64, _flags: u64) |_| {
        instantiate(executable, graph)
    }

    fn cuGraphInstantiate_v2(
        executable: *mut u64, graph: u64, _error_node: *mut u64, _log: *mut c_char, _size: usize,
    ) |_| {
        instantiate(executable, graph)
    }

    fn cuGraphUpload(executable: u64, _stream: u64) |_| {
        state::ready()?.executables.get(&executable).map(|_| ()).ok_or(Error::INVALID_VALUE)
    }

    fn cuGraphLaunch(executable: u64, stream: u64) |caller| {
        start(executable, stream, caller.correlation)
    }

    fn cuGraphExecDestroy(executable: u64) |_| {
        state::ready()?.executables.remove(&executable).map(drop).ok_or(Error::INVALID_VALUE)
    }

    fn cuGraphDestroy(graph: u64) |_| {
        state::ready()?.graphs.remove(&graph).map(drop).ok_or(Error::INVALID_VALUE)
    }
}

/// The name for programs of CUDA 12.
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphInstantiate(executable: *mut u64, graph: u64, flags: u64) -> i32 {
    cuGraphInstantiateWithFlags(executable, graph, flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_structs_have_cudas_sizes() {
        assert_eq!((size_of::<KernelNode>(), size_of::<CopyNode>(), size_of::<FillNode>()), (56, 200, 40));
    }
}
