//! Events: marks in a stream, for which threads and streams wait.

use crate::argument::{Event, Stream};
use crate::control;
use crate::device;
use crate::error::give;
use crate::shared::clock::now;
use crate::shared::counters::count;
use crate::state;

api! {
    fn hipEventCreate(event: *mut Event) |_| {
        give(event, Event(state::ready()?.objects.add_event(device::current().into(), true)))
    }

    fn hipEventRecord(event: Event, stream: Stream) |_| {
        let mut state = state::ready()?;
        let stream = state.stream(stream)?;
        Ok(state.objects.record_event(event.0, stream, now()).map(drop)?)
    }

    fn hipEventSynchronize(event: Event) |_| {
        count(&control::counters().synchronizes);
        let moment = state::ready()?.objects.moment_of_event(event.0)?;
        if let Some(moment) = moment {
            moment.wait(now);
        }
        Ok(())
    }
}
