//! Streams: series of work in a context.

use crate::control;
use crate::error::{Error, Outcome, give};
use crate::shared::clock::now;
use crate::shared::counters::count;
use crate::shared::tracer::{Report, STREAM_SYNCHRONIZE, STREAM_WAIT_EVENT, Synchronization};
use crate::state;
use crate::trace;
use sim_core::device::Stream;

fn create(place: *mut u64, flags: u32, priority: i32) -> Outcome {
    let mut state = state::ready()?;
    let (context, current) = state.context()?;
    let id = current.next_stream;
    current.next_stream += 1;
    let stream = Stream { priority: priority.clamp(-5, 0), ..Stream::new(id, context, flags) };
    give(place, state.objects.add_stream(stream))
}

/// Waits for the work of a stream.
pub(crate) fn synchronize(stream: u64, correlation: u32) -> Outcome {
    count(&control::counters().synchronizes);
    let start = now();
    let (moments, mut wait) = {
        let mut state = state::ready()?;
        let handle = state.stream(stream)?;
        let moments = state.objects.moments_of_stream(handle)?;
        let (stream, context) = state.stream_and_context(handle)?;
        let wait = Synchronization::new(STREAM_SYNCHRONIZE, correlation, context.id, start);
        (moments, Synchronization { stream: stream.id, ..wait })
    };
    moments.iter().for_each(|moment| moment.wait(now));
    wait.end = now();
    trace::report(Report::Synchronized(wait));
    Ok(())
}

/// Begins to capture the work of a stream.
pub(crate) fn begin_capture(stream: u64, mode: u32) -> Outcome {
    let mut state = state::ready()?;
    let handle = state.stream(stream)?;
    Ok(state.objects.begin_capture(handle, mode)?)
}

/// Ends a capture, whose graph it writes.
pub(crate) fn end_capture(stream: u64, graph: *mut u64) -> Outcome {
    let mut state = state::ready()?;
    let handle = state.stream(stream)?;
    give(graph, state.objects.end_capture(handle)?)
}

api! {
    fn cuStreamCreate(stream: *mut u64, flags: u32) |_| {
        create(stream, flags, 0)
    }

    fn cuStreamCreateWithPriority(stream: *mut u64, flags: u32, priority: i32) |_| {
        create(stream, flags, priority)
    }

    fn cuStreamDestroy_v2(stream: u64) |_| {
        Ok(state::ready()?.objects.remove_stream(stream)?)
    }

    fn cuStreamSynchronize(stream: u64) |caller| {
        synchronize(stream, caller.correlation)
    }

    fn cuStreamQuery(stream: u64) |_| {
        let mut state = state::ready()?;
        let handle = state.stream(stream)?;
        Ok(state.objects.query_stream(handle, now())?)
    }

    fn cuStreamWaitEvent(stream: u64, event: u64, _flags: u32) |caller| {
        let start = now();
        let wait = {
            let mut state = state::ready()?;
            let handle = state.stream(stream)?;
            state.objects.wait_for_event(handle, event, now())?;
            let (stream, context) = state.stream_and_context(handle)?;
            let event = state.objects.event(event)?;
            let wait = Synchronization::new(STREAM_WAIT_EVENT, caller.correlation, context.id, start);
            Synchronization { stream: stream.id, event: event.id, event_record: event.record, end: now(), ..wait }
        };
        trace::report(Report::Synchronized(wait));
        Ok(())
    }

    fn cuStreamBeginCapture_v2(stream: u64, mode: u32) |_| {
        begin_capture(stream, mode)
    }

    fn cuStreamBeginRecaptureToGraph(stream: u64, mode: u32, _graph: u64, _callback: usize, _user: usize) |_| {
        begin_capture(stream, mode)
    }

    fn cuStreamEndCapture(stream: u64, graph: *mut u64) |_| {
        end_capture(stream, graph)
    }

    fn cuStreamIsCapturing(stream: u64, status: *mut i32) |_| {
        let mut state = state::ready()?;
        let handle = state.stream(stream)?;
        if state.objects.is_blocked_by_capture(handle) {
            return Err(Error::CAPTURE_IMPLICIT);
        }
        give(status, state.objects.capture_status(handle) as i32)
    }
}
