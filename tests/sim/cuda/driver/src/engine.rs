//! Schedules the work of streams on the engine.

use crate::control;
use crate::error::{Error, Outcome};
use crate::shared::clock::now;
use crate::shared::counters::count;
use crate::shared::options::Options;
use crate::shared::tracer::{KERNEL, MEMSET, NEVER, Work};
use crate::state::State;
use sim_core::engine::{self, GAP, LAUNCH_LATENCY, Moment};

/// Returns work without times, and without the fields that the stream and the launch add.
pub(crate) type Job = engine::Job<Work>;

/// Returns the device's timestamp of a moment.
pub(crate) fn stamp(options: &Options, at: u64) -> u64 {
    if options.timestamp_zero || at == NEVER {
        return 0;
    }
    // A device whose clock is behind: work that begins at once seems to begin before its launch.
    let early = if options.early_kernels_ns == 0 { 0 } else { options.early_kernels_ns + LAUNCH_LATENCY };
    options.reported(at).saturating_sub(early)
}

/// The fields that a launch adds to its work.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Launch {
    pub(crate) correlation: u32,
    /// The executable graph, 0 for none.
    pub(crate) graph: u32,
}

/// Appends jobs to a stream; moves the bytes of copies and fills at once.
///
/// # Errors
/// A job would move bytes outside of an allocation.
pub(crate) fn submit(state: &mut State, stream: u64, jobs: &[Job], launch: Launch) -> Outcome<Vec<Work>> {
    let options = control::options();
    let mut earliest = now() + LAUNCH_LATENCY;
    let mut all = Vec::with_capacity(jobs.len());
    for (index, job) in (1..).zip(jobs) {
        if job.movement.as_ref().is_some_and(|movement| !movement.perform(&state.allocations)) {
            return Err(Error::INVALID_VALUE);
        }
        let mut work = job.work;
        work.id = state.ids.next_id();
        work.correlation = launch.correlation;
        if launch.graph != 0 {
            work.graph = launch.graph;
            work.graph_node = u64::from(launch.graph) << 32 | index;
        }
        let after = dependencies(state, stream)?;
        let queue = &mut state.streams.get_mut(&stream).ok_or(Error::INVALID_HANDLE)?.queue;
        let (start, end) = state.engine.schedule(queue, after, job.timing, work.id, earliest);
        earliest = if end == NEVER { earliest } else { end + GAP };
        (work.begun_at, work.done_at) = (start, end);
        (work.start, work.end) = (stamp(options, start), stamp(options, end));
        describe(state, stream, &mut work)?;
        let counters = control::counters();
        count(match work.kind {
            KERNEL => &counters.kernels,
            MEMSET => &counters.memsets,
            _ => &counters.memcpys,
        });
        all.push(work);
    }
    Ok(all)
}

/// Fills in the work's device, context and stream.
fn describe(state: &State, stream: u64, work: &mut Work) -> Outcome {
    let stream = state.streams.get(&stream).ok_or(Error::INVALID_HANDLE)?;
    let context = state.contexts.get(&stream.context).ok_or(Error::INVALID_CONTEXT)?;
    work.device = context.device as u32;
    work.context = context.id;
    work.stream = stream.id;
    work.priority = stream.priority;
    (work.channel, work.channel_type) = if work.kind == KERNEL { (stream.id, 1) } else { (stream.id + 16, 2) };
    Ok(())
}

/// Returns the moments for which the default stream and other streams of a context wait.
fn dependencies(state: &State, handle: u64) -> Outcome<Vec<Moment>> {
    let stream = state.streams.get(&handle).ok_or(Error::INVALID_HANDLE)?;
    let context = state.contexts.get(&stream.context).ok_or(Error::INVALID_CONTEXT)?;
    if handle == context.null_stream {
        let others = state.streams.values().filter(|other| other.context == stream.context && other.blocking);
        return Ok(others.map(|other| other.queue.tail.clone()).collect());
    }
    let null_stream = state.streams.get(&context.null_stream).filter(|_| stream.blocking);
    Ok(null_stream.into_iter().map(|null_stream| null_stream.queue.tail.clone()).collect())
}

/// Returns when the stream's current work is done. If unknown, the tracer gets it later with this id.
pub(crate) fn mark(state: &mut State, handle: u64, id: u64) -> Outcome<Moment> {
    let after = dependencies(state, handle)?;
    let queue = &state.streams.get(&handle).ok_or(Error::INVALID_HANDLE)?.queue;
    Ok(state.engine.mark(queue, after, id, now() + LAUNCH_LATENCY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_zero_or_early_by_option() {
        let options = Options { clock_skew_ns: 10, ..Options::default() };
        assert_eq!(stamp(&options, 100_000), 100_010);
        assert_eq!(stamp(&Options { early_kernels_ns: 500, ..options }, 100_000), 100_010 - 500 - LAUNCH_LATENCY);
        assert_eq!(stamp(&Options { timestamp_zero: true, ..options }, 100_000), 0);
        assert_eq!(stamp(&options, NEVER), 0);
    }
}
