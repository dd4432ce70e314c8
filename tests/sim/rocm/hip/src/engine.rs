//! Schedules the work of streams on the engine.

use crate::control;
use crate::error::{Error, Outcome};
use crate::shared::clock::now;
use crate::shared::counters::count;
use crate::shared::options::Options;
use crate::shared::tracer::{FILL, KERNEL, NEVER, Work};
use crate::state::State;
use crate::trace::Caller;
use sim_core::engine::{self, GAP, LAUNCH_LATENCY, Moment};

/// Returns work without times, and without the fields that the stream and the call add.
pub(crate) type Job = engine::Job<Work>;

/// Returns the device's timestamp of a moment.
pub(crate) fn stamp(options: &Options, at: u64) -> u64 {
    if options.timestamp_zero || at == NEVER { 0 } else { options.reported(at) }
}

/// Appends jobs to a stream; moves the bytes of copies and fills at once.
///
/// # Errors
/// A job would move bytes outside of an allocation.
pub(crate) fn submit(
    state: &mut State,
    stream: u64,
    jobs: &[Job],
    caller: Caller,
    in_graph: bool,
) -> Outcome<Vec<Work>> {
    let options = control::options();
    let mut earliest = now() + LAUNCH_LATENCY;
    let mut all = Vec::with_capacity(jobs.len());
    for job in jobs {
        if job.movement.as_ref().is_some_and(|movement| !movement.perform(&state.allocations)) {
            return Err(Error::INVALID_VALUE);
        }
        let mut work = Work { correlation: caller.correlation, thread: caller.thread, in_graph, ..job.work };
        work.id = state.ids.next_id();
        let after = dependencies(state, stream)?;
        let its = state.streams.get_mut(&stream).ok_or(Error::INVALID_HANDLE)?;
        (work.device, work.queue) = (its.device, its.hsa_queue);
        let (start, end) = state.engine.schedule(&mut its.queue, after, job.timing, work.id, earliest);
        earliest = if end == NEVER { earliest } else { end + GAP };
        work.done_at = end;
        (work.start, work.end) = (stamp(options, start), stamp(options, end));
        let counters = control::counters();
        count(match work.kind {
            KERNEL => &counters.kernels,
            FILL => &counters.memsets,
            _ => &counters.memcpys,
        });
        all.push(work);
    }
    Ok(all)
}

/// Returns the moments for which the default stream and other streams of a device wait.
fn dependencies(state: &State, handle: u64) -> Outcome<Vec<Moment>> {
    let stream = state.streams.get(&handle).ok_or(Error::INVALID_HANDLE)?;
    let others = state.streams.values().filter(|other| {
        let is_default = other.is_null || stream.is_null;
        other.device == stream.device
            && is_default
            && other.is_null != stream.is_null
            && (other.blocking && stream.blocking)
    });
    Ok(others.map(|other| other.queue.tail.clone()).collect())
}

/// Returns when the stream's current work is done.
pub(crate) fn mark(state: &mut State, handle: u64) -> Outcome<Moment> {
    let after = dependencies(state, handle)?;
    let queue = &state.streams.get(&handle).ok_or(Error::INVALID_HANDLE)?.queue;
    // No work has the id 0.
    Ok(state.engine.mark(queue, after, 0, now() + LAUNCH_LATENCY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_zero_or_off_by_option() {
        let options = Options { clock_skew_ns: 10, ..Options::default() };
        assert_eq!((stamp(&options, 100), stamp(&options, NEVER)), (110, 0));
        assert_eq!(stamp(&Options { timestamp_zero: true, ..options }, 100), 0);
    }
}
