//! Graphs: work that is captured once and launched as a unit.

use crate::argument::{Executable, Graph, Node, Stream};
use crate::control;
use crate::engine;
use crate::error::give;
use crate::shared::counters::count;
use crate::state;
use std::ffi::c_char;

api! {
    fn hipGraphInstantiate(
        pGraphExec: *mut Executable, graph: Graph, pErrorNode: *mut Node, pLogBuffer: *mut c_char, bufferSize: usize,
    ) |_| {
        give(pGraphExec, Executable(state::ready()?.objects.instantiate(graph.0)?))
    }

    fn hipGraphLaunch(graphExec: Executable, stream: Stream) |caller| {
        engine::submit(stream, caller, true, |state| {
            count(&control::counters().launches);
            Ok(state.objects.executable(graphExec.0)?.1)
        })
        .map(drop)
    }
}
