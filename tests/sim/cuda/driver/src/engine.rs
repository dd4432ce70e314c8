//! Gives work to the streams of contexts.

use crate::control::{self, MACHINE};
use crate::error::{Error, Outcome};
use crate::shared::clock::now;
use crate::shared::counters::count;
use crate::shared::options::Options;
use crate::shared::tracer::{Event, KERNEL, MEMSET, NEVER, Work};
use crate::state::{self, State};
use sim_core::engine::{self, LAUNCH_LATENCY, Moment};

/// Work without times, and without the fields that the stream and the launch add.
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

/// Gives jobs to a stream or to its capture, and tells the tracer. `jobs` returns them, and the id of the executable graph
/// that they are of, 0 for none. Returns when the work is done.
pub(crate) fn submit(
    stream: u64,
    correlation: u32,
    jobs: impl FnOnce(&mut State) -> Outcome<(u32, Vec<Job>)>,
) -> Outcome<Moment> {
    let (work, end) = {
        let mut state = state::ready()?;
        let handle = state.stream(stream)?;
        let (graph, jobs) = jobs(&mut state)?;
        let State { objects, contexts, .. } = &mut *state;
        let context = contexts.get(&objects.stream(handle)?.owner).ok_or(Error::INVALID_CONTEXT)?;
        let (options, counters) = (control::options(), control::counters());
        let work = objects.submit(handle, &jobs, now(), |work, stream, position, (id, start, end)| {
            (work.id, work.correlation) = (id, correlation);
            if graph != 0 {
                work.graph = graph;
                work.graph_node = u64::from(graph) << 32 | position;
            }
            (work.begun_at, work.done_at) = (start, end);
            (work.start, work.end) = (stamp(options, start), stamp(options, end));
            (work.device, work.context) = (context.device as u32, context.id);
            (work.stream, work.priority) = (stream.id, stream.priority);
            let is_kernel = work.kind == KERNEL;
            (work.channel, work.channel_type) = if is_kernel { (stream.id, 1) } else { (stream.id + 16, 2) };
            count(match work.kind {
                KERNEL => &counters.kernels,
                MEMSET => &counters.memsets,
                _ => &counters.memcpys,
            });
        })?;
        let end = if work.is_empty() { Moment::default() } else { objects.stream(handle)?.queue.tail.clone() };
        (work, end)
    };
    if !work.is_empty() {
        MACHINE.tell(Event::Work(&work));
    }
    Ok(end)
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
