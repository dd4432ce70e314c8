//! Graphs: work that is captured once and launched as a unit.

use crate::control;
use crate::engine;
use crate::error::give;
use crate::shared::counters::count;
use crate::state;

api! {
    fn cuGraphInstantiateWithFlags(executable: *mut u64, graph: u64, _flags: u64) |_| {
        give(executable, state::ready()?.objects.instantiate(graph)?)
    }

    fn cuGraphUpload(executable: u64, _stream: u64) |_| {
        Ok(state::ready()?.objects.executable(executable).map(drop)?)
    }

    fn cuGraphLaunch(executable: u64, stream: u64) |caller| {
        engine::submit(stream, caller.correlation, |state| {
            count(&control::counters().launches);
            Ok(state.objects.executable(executable)?)
        })
        .map(drop)
    }

    fn cuGraphExecDestroy(executable: u64) |_| {
        Ok(state::ready()?.objects.remove_executable(executable)?)
    }

    fn cuGraphDestroy(graph: u64) |_| {
        Ok(state::ready()?.objects.remove_graph(graph)?)
    }
}

/// The name for programs of CUDA 12.
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphInstantiate(executable: *mut u64, graph: u64, flags: u64) -> i32 {
    cuGraphInstantiateWithFlags(executable, graph, flags)
}
