//! Streams: series of work in a context.

use crate::capture::Status;
use crate::control;
use crate::error::{Error, Outcome, give};
use crate::shared::clock::now;
use crate::shared::counters::count;
use crate::shared::tracer::{NOT_APPLICABLE, STREAM_SYNCHRONIZE, STREAM_WAIT_EVENT, Synchronization};
use crate::state::{self, State};
use crate::trace;
use sim_core::engine::WorkQueue;

/// A stream of a context.
#[derive(Debug)]
pub(crate) struct Stream {
    /// Unique in its context.
    pub(crate) id: u32,
    pub(crate) context: u64,
    pub(crate) priority: i32,
    flags: u32,
    /// It and the default stream wait for each other.
    pub(crate) blocking: bool,
    pub(crate) queue: WorkQueue,
    /// The capture that takes its work.
    pub(crate) capture: Option<u64>,
}

/// The flag of a stream that does not synchronize with the default one.
const NON_BLOCKING: u32 = 1;

impl Stream {
    fn new(id: u32, context: u64, priority: i32, flags: u32) -> Stream {
        Stream {
            id,
            context,
            priority,
            flags,
            blocking: flags & NON_BLOCKING == 0,
            queue: WorkQueue::default(),
            capture: None,
        }
    }

    /// The default stream of a context.
    pub(crate) fn null(id: u32, context: u64) -> Stream {
        Stream { blocking: false, ..Stream::new(id, context, 0, 0) }
    }
}

fn create(place: *mut u64, flags: u32, priority: i32) -> Outcome {
    let mut state = state::ready()?;
    let handle = state.ids.next_handle();
    let (context, current) = state.context()?;
    let id = current.next_stream;
    current.next_stream += 1;
    state.streams.insert(handle, Stream::new(id, context, priority.clamp(-5, 0), flags));
    give(place, handle)
}

/// Waits for the work of a stream.
pub(crate) fn synchronize(stream: u64, correlation: u32) -> Outcome {
    count(&control::counters().synchronizes);
    let start = now();
    let (context, id, all) = {
        let mut state = state::ready()?;
        let handle = state.stream(stream)?;
        state.forbid_on_capturing(handle)?;
        let (stream, context) = state.stream_and_context(handle)?;
        (context, stream.id, stream.queue.moments().cloned().collect::<Vec<_>>())
    };
    all.iter().for_each(|moment| moment.wait(now));
    trace::synchronized(&Synchronization {
        kind: STREAM_SYNCHRONIZE,
        correlation,
        context,
        stream: id,
        event: NOT_APPLICABLE,
        result: 0,
        event_record: u64::from(NOT_APPLICABLE),
        start,
        end: now(),
    });
    Ok(())
}

/// Begins to capture the work of a stream.
pub(crate) fn begin_capture(stream: u64, mode: u32) -> Outcome {
    let mut state = state::ready()?;
    let handle = state.stream(stream)?;
    state.begin_capture(handle, mode)
}

/// Ends a capture, whose graph it writes.
pub(crate) fn end_capture(stream: u64, graph: *mut u64) -> Outcome {
    let mut state = state::ready()?;
    let handle = state.stream(stream)?;
    let captured = state.end_capture(handle)?;
    give(graph, captured)
}

impl State {
    /// A stream by its handle, and the id of its context.
    pub(crate) fn stream_and_context(&self, handle: u64) -> Outcome<(&Stream, u32)> {
        let stream = self.streams.get(&handle).ok_or(Error::INVALID_HANDLE)?;
        let context = self.contexts.get(&stream.context).ok_or(Error::INVALID_CONTEXT)?;
        Ok((stream, context.id))
    }
}

api! {
    fn cuStreamCreate(stream: *mut u64, flags: u32) |_| {
        create(stream, flags, 0)
    }

    fn cuStreamCreateWithPriority(stream: *mut u64, flags: u32, priority: i32) |_| {
        create(stream, flags, priority)
    }

    fn cuStreamDestroy_v2(stream: u64) |_| {
        let mut state = state::ready()?;
        let destroyed = state.streams.remove(&stream).ok_or(Error::INVALID_HANDLE)?;
        if let Some(capture) = destroyed.capture {
            state.captures.remove(&capture);
        }
        Ok(())
    }

    fn cuStreamSynchronize(stream: u64) |caller| {
        synchronize(stream, caller.correlation)
    }

    fn cuStreamQuery(stream: u64) |_| {
        let mut state = state::ready()?;
        let handle = state.stream(stream)?;
        state.forbid_on_capturing(handle)?;
        let (stream, _) = state.stream_and_context(handle)?;
        if stream.queue.is_done(now()) { Ok(()) } else { Err(Error::NOT_READY) }
    }

    fn cuStreamWaitEvent(stream: u64, event: u64, _flags: u32) |caller| {
        let start = now();
        let synchronization = {
            let mut state = state::ready()?;
            let handle = state.stream(stream)?;
            let context = state.stream_and_context(handle)?.1;
            let event = state.events.get(&event).ok_or(Error::INVALID_HANDLE)?;
            let (capture, moment) = (event.capture, event.moment.clone());
            let mut synchronization = Synchronization {
                kind: STREAM_WAIT_EVENT,
                correlation: caller.correlation,
                context,
                stream: 0,
                event: event.id,
                result: 0,
                event_record: event.record,
                start,
                end: 0,
            };
            let stream = state.streams.get_mut(&handle).ok_or(Error::INVALID_HANDLE)?;
            if capture.is_some() {
                stream.capture = capture;
            } else {
                stream.queue.add_wait(moment, now());
            }
            (synchronization.stream, synchronization.end) = (stream.id, now());
            synchronization
        };
        trace::synchronized(&synchronization);
        Ok(())
    }

    fn cuStreamGetPriority(stream: u64, priority: *mut i32) |_| {
        let mut state = state::ready()?;
        let handle = state.stream(stream)?;
        give(priority, state.stream_and_context(handle)?.0.priority)
    }

    fn cuStreamGetFlags(stream: u64, flags: *mut u32) |_| {
        let mut state = state::ready()?;
        let handle = state.stream(stream)?;
        give(flags, state.stream_and_context(handle)?.0.flags)
    }

    fn cuStreamGetCtx(stream: u64, context: *mut u64) |_| {
        let mut state = state::ready()?;
        let handle = state.stream(stream)?;
        give(context, state.stream_and_context(handle)?.0.context)
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
        if state.blocks_legacy_stream(handle) {
            return Err(Error::CAPTURE_IMPLICIT);
        }
        give(status, state.capture_status(handle) as i32)
    }

    fn cuStreamGetCaptureInfo(stream: u64, status: *mut i32, id: *mut u64) |_| {
        capture_info(stream, status, id).map(drop)
    }

    fn cuStreamGetCaptureInfo_v2(
        stream: u64, status: *mut i32, id: *mut u64, graph: *mut u64, dependencies: *mut *const u64, count: *mut usize,
    ) |_| {
        capture_info(stream, status, id)?;
        // The graph does not exist before the end of the capture, and is not needed.
        for place in [graph, dependencies.cast(), count.cast()] {
            if !place.is_null() {
                give(place, 0)?;
            }
        }
        Ok(())
    }
}

fn capture_info(stream: u64, status: *mut i32, id: *mut u64) -> Outcome<Status> {
    let mut state = state::ready()?;
    let handle = state.stream(stream)?;
    let current = state.capture_status(handle);
    give(status, current as i32)?;
    if !id.is_null() {
        give(id, state.stream_and_context(handle)?.0.capture.unwrap_or_default())?;
    }
    Ok(current)
}
