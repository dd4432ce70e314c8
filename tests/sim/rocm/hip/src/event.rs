//! Events: marks in a stream, for which threads and streams wait.

use crate::argument::{Event, Stream};
use crate::control;
use crate::engine;
use crate::error::{Error, Outcome, give};
use crate::shared::clock::now;
use crate::shared::counters::count;
use crate::state;
use sim_core::engine::Moment;

/// The moment of an event's last record; none before the first.
fn moment(event: Event) -> Outcome<Option<Moment>> {
    state::ready()?.events.get(&event.0).cloned().ok_or(Error::INVALID_HANDLE)
}

api! {
    fn hipEventCreate(event: *mut Event) |_| {
        let mut state = state::ready()?;
        let handle = state.ids.next_handle();
        state.events.insert(handle, None);
        give(event, Event(handle))
    }

    fn hipEventDestroy(event: Event) |_| {
        state::ready()?.events.remove(&event.0).map(drop).ok_or(Error::INVALID_HANDLE)
    }

    fn hipEventRecord(event: Event, stream: Stream) |_| {
        let mut state = state::ready()?;
        let stream = state.stream(stream)?;
        let moment = engine::mark(&mut state, stream)?;
        *state.events.get_mut(&event.0).ok_or(Error::INVALID_HANDLE)? = Some(moment);
        Ok(())
    }

    fn hipEventSynchronize(event: Event) |_| {
        count(&control::counters().synchronizes);
        if let Some(moment) = moment(event)? {
            moment.wait(now);
        }
        Ok(())
    }

    fn hipEventQuery(event: Event) |_| {
        if moment(event)?.is_none_or(|moment| moment.has_come(now())) { Ok(()) } else { Err(Error::NOT_READY) }
    }

    fn hipEventElapsedTime(ms: *mut f32, start: Event, stop: Event) |_| {
        let at = |event| -> Outcome<u64> {
            let moment = moment(event)?.ok_or(Error::INVALID_HANDLE)?;
            if moment.has_come(now()) { Ok(moment.get()) } else { Err(Error::NOT_READY) }
        };
        let (start, end) = (at(start)?, at(stop)?);
        give(ms, ((end as f64 - start as f64) / 1e6) as f32)
    }
}
