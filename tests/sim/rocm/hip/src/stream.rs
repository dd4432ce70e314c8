//! Streams: series of work on a device, each of which goes through one of four HSA queues.

use crate::argument;
use crate::control;
use crate::device;
use crate::engine::Job;
use crate::error::{Error, Outcome, give};
use crate::shared::clock::now;
use crate::shared::counters::count;
use crate::state;
use sim_core::engine::{Moment, WorkQueue};

/// A stream of a device.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) device: u32,
    pub(crate) hsa_queue: u32,
    pub(crate) is_null: bool,
    /// It and the default stream wait for each other.
    pub(crate) blocking: bool,
    pub(crate) queue: WorkQueue,
    pub(crate) capture: Option<Capture>,
}

/// A running capture: the work that becomes the nodes of a graph.
#[derive(Debug, Default)]
pub(crate) struct Capture {
    pub(crate) jobs: Vec<Job>,
    spoiled: bool,
}

/// The queues of a device.
const QUEUES: u32 = 4;
/// The flag of a stream that does not synchronize with the default one.
const NON_BLOCKING: u32 = 1;

impl Stream {
    fn new(device: u32, hsa_queue: u32, blocking: bool) -> Stream {
        Stream { device, hsa_queue, is_null: false, blocking, queue: WorkQueue::default(), capture: None }
    }

    /// The default stream of a device.
    pub(crate) fn null(device: u32) -> Stream {
        Stream { is_null: true, ..Stream::new(device, 0, true) }
    }

    /// The handle under which the default stream of a device is kept.
    pub(crate) fn null_handle(device: u32) -> u64 {
        0x10 + u64::from(device)
    }

    /// For calls that wait: during a capture they fail and invalidate it.
    fn forbid_while_capturing(&mut self) -> Outcome {
        match &mut self.capture {
            None => Ok(()),
            Some(capture) => {
                capture.spoiled = true;
                Err(Error::CAPTURE_UNSUPPORTED)
            }
        }
    }
}

fn create(place: *mut argument::Stream, flags: u32) -> Outcome {
    let mut state = state::ready()?;
    let (handle, device) = (state.ids.next_handle(), device::current());
    let others = state.streams.values().filter(|stream| stream.device == device && !stream.is_null).count();
    let queue = (others as u32 + 1) % QUEUES;
    state.streams.insert(handle, Stream::new(device, queue, flags & NON_BLOCKING == 0));
    give(place, argument::Stream(handle))
}

api! {
    fn hipStreamCreate(stream: *mut argument::Stream) |_| {
        create(stream, 0)
    }

    fn hipStreamCreateWithFlags(stream: *mut argument::Stream, flags: u32) |_| {
        create(stream, flags)
    }

    fn hipStreamDestroy(stream: argument::Stream) |_| {
        state::ready()?.streams.remove(&stream.0).map(drop).ok_or(Error::INVALID_HANDLE)
    }

    fn hipStreamSynchronize(stream: argument::Stream) |_| {
        count(&control::counters().synchronizes);
        let moments: Vec<Moment> = {
            let mut state = state::ready()?;
            let handle = state.stream(stream)?;
            let stream = state.streams.get_mut(&handle).ok_or(Error::INVALID_HANDLE)?;
            stream.forbid_while_capturing()?;
            stream.queue.moments().cloned().collect()
        };
        moments.iter().for_each(|moment| moment.wait(now));
        Ok(())
    }

    fn hipDeviceSynchronize() |_| {
        count(&control::counters().synchronizes);
        let moments: Vec<Moment> = {
            let mut state = state::ready()?;
            let device = device::current();
            let own = || |stream: &&mut Stream| stream.device == device;
            state.streams.values_mut().filter(own()).try_for_each(Stream::forbid_while_capturing)?;
            state.streams.values_mut().filter(own()).flat_map(|stream| stream.queue.moments().cloned().collect::<Vec<_>>()).collect()
        };
        moments.iter().for_each(|moment| moment.wait(now));
        Ok(())
    }

    fn hipStreamQuery(stream: argument::Stream) |_| {
        let mut state = state::ready()?;
        let handle = state.stream(stream)?;
        let stream = state.streams.get_mut(&handle).ok_or(Error::INVALID_HANDLE)?;
        stream.forbid_while_capturing()?;
        if stream.queue.is_done(now()) { Ok(()) } else { Err(Error::NOT_READY) }
    }

    fn hipStreamWaitEvent(stream: argument::Stream, event: argument::Event, flags: u32) |_| {
        if flags != 0 {
            return Err(Error::INVALID_VALUE);
        }
        let mut state = state::ready()?;
        let handle = state.stream(stream)?;
        let moment = state.events.get(&event.0).ok_or(Error::INVALID_HANDLE)?.clone();
        let stream = state.streams.get_mut(&handle).ok_or(Error::INVALID_HANDLE)?;
        stream.queue.add_wait(moment, now());
        Ok(())
    }

    fn hipStreamBeginCapture(stream: argument::Stream, mode: u32) |_| {
        let mut state = state::ready()?;
        let handle = state.stream(stream)?;
        let stream = state.streams.get_mut(&handle).ok_or(Error::INVALID_HANDLE)?;
        if stream.is_null || mode > 2 {
            return Err(Error::CAPTURE_UNSUPPORTED);
        }
        if stream.capture.is_some() {
            return Err(Error::ILLEGAL_STATE);
        }
        stream.capture = Some(Capture::default());
        Ok(())
    }

    fn hipStreamEndCapture(stream: argument::Stream, pGraph: *mut argument::Graph) |_| {
        let mut state = state::ready()?;
        let handle = state.stream(stream)?;
        let stream = state.streams.get_mut(&handle).ok_or(Error::INVALID_HANDLE)?;
        let capture = stream.capture.take().ok_or(Error::ILLEGAL_STATE)?;
        if capture.spoiled {
            return Err(Error::CAPTURE_INVALIDATED);
        }
        let handle = state.ids.next_handle();
        state.graphs.insert(handle, capture.jobs);
        give(pGraph, argument::Graph(handle))
    }
}

/// Returns the device of a stream, -1 for none; also for profilers.
#[unsafe(no_mangle)]
pub extern "C" fn hipGetStreamDeviceId(stream: argument::Stream) -> i32 {
    let mut state = state::lock();
    let device = state.stream(stream).ok().and_then(|handle| state.streams.get(&handle)).map(|stream| stream.device);
    device.map_or(-1, |device| device as i32)
}
