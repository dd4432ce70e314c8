//! Graphs: work that is captured once and launched as a unit.

use crate::argument::{Executable, Graph, Node, Stream};
use crate::control;
use crate::engine;
use crate::error::{Error, give};
use crate::shared::counters::count;
use crate::state;
use crate::trace;
use std::ffi::c_char;

api! {
    fn hipGraphInstantiate(
        pGraphExec: *mut Executable, graph: Graph, pErrorNode: *mut Node, pLogBuffer: *mut c_char, bufferSize: usize,
    ) |_| {
        let mut state = state::ready()?;
        let jobs = state.graphs.get(&graph.0).ok_or(Error::INVALID_VALUE)?.clone();
        let handle = state.ids.next_handle();
        state.executables.insert(handle, jobs);
        give(pGraphExec, Executable(handle))
    }

    fn hipGraphLaunch(graphExec: Executable, stream: Stream) |caller| {
        let work = {
            let mut state = state::ready()?;
            let handle = state.stream(stream)?;
            let jobs = state.executables.get(&graphExec.0).ok_or(Error::INVALID_VALUE)?.clone();
            count(&control::counters().launches);
            let stream = state.streams.get_mut(&handle).ok_or(Error::INVALID_HANDLE)?;
            if let Some(capture) = &mut stream.capture {
                capture.jobs.extend(jobs);
                return Ok(());
            }
            engine::submit(&mut state, handle, &jobs, caller, true)?
        };
        trace::queued(&work);
        Ok(())
    }

    fn hipGraphExecDestroy(graphExec: Executable) |_| {
        state::ready()?.executables.remove(&graphExec.0).map(drop).ok_or(Error::INVALID_VALUE)
    }

    fn hipGraphDestroy(graph: Graph) |_| {
        state::ready()?.graphs.remove(&graph.0).map(drop).ok_or(Error::INVALID_VALUE)
    }
}
