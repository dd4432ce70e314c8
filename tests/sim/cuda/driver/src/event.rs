//! Events: marks in a stream, for which threads and streams wait.

use crate::control;
use crate::engine;
use crate::error::{Error, Outcome, give};
use crate::shared::clock::now;
use crate::shared::counters::count;
use crate::shared::tracer::{EVENT_SYNCHRONIZE, EventRecord, NOT_APPLICABLE, Synchronization};
use crate::state;
use crate::trace;
use sim_core::engine::Moment;

/// An event.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) id: u32,
    context: u32,
    timed: bool,
    /// When the device reaches its last record; none before the first.
    pub(crate) moment: Option<Moment>,
    /// A distinct id for each record, 0 before the first.
    pub(crate) record: u64,
    /// The capture that it was recorded in.
    pub(crate) capture: Option<u64>,
}

/// The flag of an event without times.
const DISABLE_TIMING: u32 = 2;

fn record(event: u64, stream: u64, correlation: u32) -> Outcome {
    match control::options().event_error {
        0 => {}
        code => return Err(Error(code)),
    }
    let record = {
        let mut state = state::ready()?;
        let stream = state.stream(stream)?;
        let id = state.ids.next_id();
        if state.capture_of(stream)?.is_some() {
            let capture = state.stream_and_context(stream)?.0.capture;
            state.events.get_mut(&event).ok_or(Error::INVALID_HANDLE)?.capture = capture;
            return Ok(());
        }
        let moment = engine::mark(&mut state, stream, id)?;
        let done_at = moment.get();
        let (its, context) = state.stream_and_context(stream)?;
        let (stream, handle) = (its.id, its.context);
        let device = state.contexts.get(&handle).ok_or(Error::INVALID_CONTEXT)?.device as u32;
        let event = state.events.get_mut(&event).ok_or(Error::INVALID_HANDLE)?;
        event.moment = Some(moment);
        event.record = id;
        event.capture = None;
        let stamp = engine::stamp(control::options(), done_at);
        EventRecord { correlation, device, context, stream, event: event.id, record: id, stamp, done_at }
    };
    trace::event_recorded(&record);
    Ok(())
}

fn synchronize(event: u64, correlation: u32) -> Outcome {
    count(&control::counters().synchronizes);
    let start = now();
    let (moment, mut synchronization) = {
        let mut state = state::ready()?;
        let event = state.events.get(&event).ok_or(Error::INVALID_HANDLE)?;
        let synchronization = Synchronization {
            kind: EVENT_SYNCHRONIZE,
            correlation,
            context: event.context,
            stream: NOT_APPLICABLE,
            event: event.id,
            result: 0,
            event_record: event.record,
            start,
            end: 0,
        };
        let moment = event.moment.clone();
        if event.capture.is_some() {
            state.forbid_while_capturing()?;
        }
        (moment, synchronization)
    };
    if let Some(moment) = moment {
        moment.wait(now);
    }
    synchronization.end = now();
    trace::synchronized(&synchronization);
    Ok(())
}

fn elapsed(place: *mut f32, start: u64, end: u64) -> Outcome {
    let state = state::ready()?;
    let at = |event: u64| -> Outcome<u64> {
        let event = state.events.get(&event).ok_or(Error::INVALID_HANDLE)?;
        let moment = event.moment.as_ref().filter(|_| event.timed).ok_or(Error::INVALID_HANDLE)?;
        if moment.has_come(now()) { Ok(moment.get()) } else { Err(Error::NOT_READY) }
    };
    let (start, end) = (at(start)?, at(end)?);
    give(place, ((end as f64 - start as f64) / 1e6) as f32)
}

api! {
    fn cuEventCreate(event: *mut u64, flags: u32) |_| {
        let mut state = state::ready()?;
        let context = state.context()?.1.id;
        let handle = state.ids.next_handle();
        state.next_event += 1;
        let (id, timed) = (state.next_event, flags & DISABLE_TIMING == 0);
        state.events.insert(handle, Event { id, context, timed, moment: None, record: 0, capture: None });
        give(event, handle)
    }

    fn cuEventDestroy_v2(event: u64) |_| {
        state::ready()?.events.remove(&event).map(drop).ok_or(Error::INVALID_HANDLE)
    }

    fn cuEventRecord(event: u64, stream: u64) |caller| {
        record(event, stream, caller.correlation)
    }

    fn cuEventRecordWithFlags(event: u64, stream: u64, _flags: u32) |caller| {
        record(event, stream, caller.correlation)
    }

    fn cuEventSynchronize(event: u64) |caller| {
        synchronize(event, caller.correlation)
    }

    fn cuEventQuery(event: u64) |_| {
        let state = state::ready()?;
        let event = state.events.get(&event).ok_or(Error::INVALID_HANDLE)?;
        let ready = event.moment.as_ref().is_none_or(|moment| moment.has_come(now()));
        if ready { Ok(()) } else { Err(Error::NOT_READY) }
    }

    fn cuEventElapsedTime(milliseconds: *mut f32, start: u64, end: u64) |_| {
        elapsed(milliseconds, start, end)
    }

    fn cuEventElapsedTime_v2(milliseconds: *mut f32, start: u64, end: u64) |_| {
        elapsed(milliseconds, start, end)
    }
}
