//! Streams: series of work on a device, each of which goes through one of four HSA queues.

use crate::argument;
use crate::control;
use crate::device;
use crate::error::{Error, Outcome, give};
use crate::shared::clock::now;
use crate::shared::counters::count;
use crate::state;
use sim_core::device::Stream;

/// The queues of a device.
const QUEUES: u32 = 4;

fn create(place: *mut argument::Stream, flags: u32) -> Outcome {
    let mut state = state::ready()?;
    let device = u64::from(device::current());
    let others = state.objects.streams.values().filter(|stream| stream.owner == device && !stream.is_default).count();
    let queue = (others as u32 + 1) % QUEUES;
    give(place, argument::Stream(state.objects.add_stream(Stream::new(queue, device, flags))))
}

api! {
    fn hipStreamCreateWithFlags(stream: *mut argument::Stream, flags: u32) |_| {
        create(stream, flags)
    }

    fn hipStreamDestroy(stream: argument::Stream) |_| {
        Ok(state::ready()?.objects.remove_stream(stream.0)?)
    }

    fn hipStreamSynchronize(stream: argument::Stream) |_| {
        count(&control::counters().synchronizes);
        let moments = {
            let mut state = state::ready()?;
            let handle = state.stream(stream)?;
            state.objects.moments_of_stream(handle)?
        };
        moments.iter().for_each(|moment| moment.wait(now));
        Ok(())
    }

    fn hipDeviceSynchronize() |_| {
        count(&control::counters().synchronizes);
        let moments = state::ready()?.objects.moments_of_owner(device::current().into())?;
        moments.iter().for_each(|moment| moment.wait(now));
        Ok(())
    }

    fn hipStreamWaitEvent(stream: argument::Stream, event: argument::Event, flags: u32) |_| {
        if flags != 0 {
            return Err(Error::INVALID_VALUE);
        }
        let mut state = state::ready()?;
        let handle = state.stream(stream)?;
        Ok(state.objects.wait_for_event(handle, event.0, now())?)
    }

    fn hipStreamBeginCapture(stream: argument::Stream, mode: u32) |_| {
        let mut state = state::ready()?;
        let handle = state.stream(stream)?;
        Ok(state.objects.begin_capture(handle, mode)?)
    }

    fn hipStreamEndCapture(stream: argument::Stream, pGraph: *mut argument::Graph) |_| {
        let mut state = state::ready()?;
        let handle = state.stream(stream)?;
        give(pGraph, argument::Graph(state.objects.end_capture(handle)?))
    }
}

/// Returns the device of a stream, -1 for none; also for profilers.
#[unsafe(no_mangle)]
pub extern "C" fn hipGetStreamDeviceId(stream: argument::Stream) -> i32 {
    let mut state = state::lock();
    let stream = state.stream(stream).and_then(|handle| Ok(state.objects.stream(handle)?.owner));
    stream.map_or(-1, |device| device as i32)
}
