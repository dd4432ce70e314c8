//! Events: marks in a stream, for which threads and streams wait.

use crate::control;
use crate::engine;
use crate::error::{Error, Outcome, give};
use crate::shared::clock::now;
use crate::shared::counters::count;
use crate::shared::tracer::{EVENT_SYNCHRONIZE, EventRecord, Report, Synchronization};
use crate::state;
use crate::trace;

/// The flag of an event without times.
const DISABLE_TIMING: u32 = 2;

fn record(event: u64, stream: u64, correlation: u32) -> Outcome {
    Error::unless(control::options().event_error)?;
    let record = {
        let mut state = state::ready()?;
        let handle = state.stream(stream)?;
        let (stream, context) = state.stream_and_context(handle)?;
        let (stream, context, device) = (stream.id, context.id, context.device as u32);
        let Some(event) = state.objects.record_event(event, handle, now())? else { return Ok(()) };
        let done_at = event.moment.as_ref().map_or(0, |moment| moment.get());
        let stamp = engine::stamp(control::options(), done_at);
        EventRecord { correlation, device, context, stream, event: event.id, record: event.record, stamp, done_at }
    };
    trace::report(Report::EventRecorded(record));
    Ok(())
}

fn synchronize(handle: u64, correlation: u32) -> Outcome {
    count(&control::counters().synchronizes);
    let start = now();
    let (moment, mut wait) = {
        let mut state = state::ready()?;
        let event = state.objects.event(handle)?;
        let mut wait = Synchronization::new(EVENT_SYNCHRONIZE, correlation, event.owner as u32, start);
        (wait.event, wait.event_record) = (event.id, event.record);
        (state.objects.moment_of_event(handle)?, wait)
    };
    if let Some(moment) = moment {
        moment.wait(now);
    }
    wait.end = now();
    trace::report(Report::Synchronized(wait));
    Ok(())
}

fn elapsed(place: *mut f32, start: u64, end: u64) -> Outcome {
    give(place, state::ready()?.objects.elapsed(start, end, now())?)
}

api! {
    fn cuEventCreate(event: *mut u64, flags: u32) |_| {
        let mut state = state::ready()?;
        let context = state.context()?.1.id;
        give(event, state.objects.add_event(context.into(), flags & DISABLE_TIMING == 0))
    }

    fn cuEventDestroy_v2(event: u64) |_| {
        Ok(state::ready()?.objects.remove_event(event)?)
    }

    fn cuEventRecord(event: u64, stream: u64) |caller| {
        record(event, stream, caller.correlation)
    }

    fn cuEventSynchronize(event: u64) |caller| {
        synchronize(event, caller.correlation)
    }

    fn cuEventQuery(event: u64) |_| {
        Ok(state::ready()?.objects.query_event(event, now())?)
    }

    fn cuEventElapsedTime(milliseconds: *mut f32, start: u64, end: u64) |_| {
        elapsed(milliseconds, start, end)
    }

    fn cuEventElapsedTime_v2(milliseconds: *mut f32, start: u64, end: u64) |_| {
        elapsed(milliseconds, start, end)
    }
}
