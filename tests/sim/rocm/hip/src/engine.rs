//! Gives work to the streams of devices.

use crate::argument::Stream;
use crate::control::{self, MACHINE};
use crate::error::Outcome;
use crate::shared::clock::now;
use crate::shared::counters::count;
use crate::shared::options::Options;
use crate::shared::tracer::{Event, FILL, KERNEL, NEVER, Work};
use crate::state::{self, State};
use crate::trace::Caller;
use sim_core::engine::{self, Moment};

/// Work without times, and without the fields that the stream and the call add.
pub(crate) type Job = engine::Job<Work>;

/// Returns the device's timestamp of a moment.
pub(crate) fn stamp(options: &Options, at: u64) -> u64 {
    if options.timestamp_zero || at == NEVER { 0 } else { options.reported(at) }
}

/// Gives jobs to a stream or to its capture, and tells the tracers. Returns when the work is done.
pub(crate) fn submit(
    stream: Stream,
    caller: Caller,
    in_graph: bool,
    jobs: impl FnOnce(&State) -> Outcome<Vec<Job>>,
) -> Outcome<Moment> {
    let (work, end) = {
        let mut state = state::ready()?;
        let handle = state.stream(stream)?;
        let jobs = jobs(&state)?;
        let (options, counters) = (control::options(), control::counters());
        let work = state.objects.submit(handle, &jobs, now(), |work, stream, _, (id, start, end)| {
            (work.id, work.correlation, work.thread, work.in_graph) = (id, caller.correlation, caller.thread, in_graph);
            (work.device, work.queue, work.done_at) = (stream.owner as u32, stream.id, end);
            (work.start, work.end) = (stamp(options, start), stamp(options, end));
            count(match work.kind {
                KERNEL => &counters.kernels,
                FILL => &counters.memsets,
                _ => &counters.memcpys,
            });
        })?;
        let end = if work.is_empty() { Moment::default() } else { state.objects.stream(handle)?.queue.tail.clone() };
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
    fn timestamps_are_zero_or_off_by_option() {
        let options = Options { clock_skew_ns: 10, ..Options::default() };
        assert_eq!((stamp(&options, 100), stamp(&options, NEVER)), (110, 0));
        assert_eq!(stamp(&Options { timestamp_zero: true, ..options }, 100), 0);
    }
}
