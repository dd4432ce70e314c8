//! The objects of a device that a program makes: streams, events, captures and graphs, and memory.
//!
//! Streams belong to a context or to a device, their owner. Each owner may have a default stream, which waits for those of
//! its streams that block, and they for it. Work of a captured stream becomes a node of a graph; a stream that waits for
//! an event of a capture joins it.

use crate::engine::{Engine, GAP, Job, LAUNCH_LATENCY, Moment, NEVER, WorkQueue};
use crate::ids::Ids;
use crate::memory::Allocations;
use std::collections::HashMap;
use std::thread::ThreadId;

/// Why the device refuses a call, by the codes of CUDA and HIP, which agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    InvalidValue = 1,
    InvalidHandle = 400,
    IllegalState = 401,
    NotReady = 600,
    CaptureUnsupported = 900,
    CaptureInvalidated = 901,
    CaptureUnmatched = 903,
}

pub type Outcome<T = ()> = Result<T, Refusal>;

/// A stream.
#[derive(Debug, Default)]
pub struct Stream {
    /// Unique among those of its owner; of HIP the HSA queue of the device.
    pub id: u32,
    pub owner: u64,
    pub is_default: bool,
    pub priority: i32,
    pub flags: u32,
    /// It and the default stream wait for each other.
    pub blocking: bool,
    pub queue: WorkQueue,
    /// The capture that takes its work.
    pub capture: Option<u64>,
}

impl Stream {
    pub fn new(id: u32, owner: u64, flags: u32) -> Stream {
        /// The flag of a stream that does not synchronize with the default one.
        const NON_BLOCKING: u32 = 1;
        Stream { id, owner, flags, blocking: flags & NON_BLOCKING == 0, ..Stream::default() }
    }
}

/// An event.
#[derive(Debug)]
pub struct Event {
    pub id: u32,
    pub owner: u64,
    timed: bool,
    /// When the device reaches its last record; none before the first.
    pub moment: Option<Moment>,
    /// A distinct id for each record, 0 before the first.
    pub record: u64,
    /// The capture that it was recorded in.
    capture: Option<u64>,
}

/// A running capture.
#[derive(Debug)]
struct Capture<W> {
    /// The stream that it began in.
    stream: u64,
    mode: u32,
    thread: ThreadId,
    spoiled: bool,
    jobs: Vec<Job<W>>,
}

/// Whether a stream captures, by CUDA's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureStatus {
    None = 0,
    Active = 1,
    Invalidated = 2,
}

/// Modes: unsafe calls are forbidden to all threads, to the capturing thread, or to none.
const GLOBAL: u32 = 0;
const THREAD_LOCAL: u32 = 1;
const RELAXED: u32 = 2;

/// The times of work by the machine's clock: its id, start and end.
pub type Scheduled = (u64, u64, u64);

/// The objects that have been made and not destroyed, by handle.
#[derive(Debug)]
pub struct Objects<W, L> {
    pub ids: Ids,
    pub engine: Engine,
    pub streams: HashMap<u64, Stream>,
    pub events: HashMap<u64, Event>,
    captures: HashMap<u64, Capture<W>>,
    /// Graphs, whose nodes run one after the other in the order in which they were added.
    pub graphs: HashMap<u64, Vec<Job<W>>>,
    /// Graphs ready to be launched, each with the id that records carry.
    pub executables: HashMap<u64, (u32, Vec<Job<W>>)>,
    pub allocations: Allocations<L>,
    next_event: u32,
    next_executable: u32,
}

impl<W, L> Default for Objects<W, L> {
    fn default() -> Self {
        Objects {
            ids: Ids::default(),
            engine: Engine::default(),
            streams: HashMap::new(),
            events: HashMap::new(),
            captures: HashMap::new(),
            graphs: HashMap::new(),
            executables: HashMap::new(),
            allocations: Allocations::default(),
            next_event: 0,
            next_executable: 0,
        }
    }
}

impl<W: Clone, L: Copy> Objects<W, L> {
    pub fn add_stream(&mut self, stream: Stream) -> u64 {
        let handle = self.ids.next_handle();
        self.streams.insert(handle, stream);
        handle
    }

    pub fn remove_stream(&mut self, handle: u64) -> Outcome {
        let stream = self.streams.remove(&handle).ok_or(Refusal::InvalidHandle)?;
        stream.capture.and_then(|capture| self.captures.remove(&capture));
        Ok(())
    }

    pub fn stream(&self, handle: u64) -> Outcome<&Stream> {
        self.streams.get(&handle).ok_or(Refusal::InvalidHandle)
    }

    /// Returns the moments for which default and other streams of an owner wait.
    fn dependencies(&self, handle: u64) -> Outcome<Vec<Moment>> {
        let stream = self.stream(handle)?;
        let is_needed = |other: &&Stream| {
            let blocking = if stream.is_default { other.blocking } else { stream.blocking };
            other.owner == stream.owner && other.is_default != stream.is_default && blocking
        };
        Ok(self.streams.values().filter(is_needed).map(|other| other.queue.tail.clone()).collect())
    }

    /// Appends jobs to a stream, or to its capture. Moves the bytes of copies and fills at once. `describe` completes the
    /// work, of which the position is from 1; returns it, nothing of a capture.
    ///
    /// # Errors
    /// A job would move bytes outside of an allocation, or the capture has been invalidated.
    pub fn submit(
        &mut self,
        handle: u64,
        jobs: &[Job<W>],
        now: u64,
        mut describe: impl FnMut(&mut W, &Stream, u64, Scheduled),
    ) -> Outcome<Vec<W>> {
        if let Some(capture) = self.capture_of(handle)? {
            capture.jobs.extend_from_slice(jobs);
            return Ok(Vec::new());
        }
        let mut earliest = now + LAUNCH_LATENCY;
        let mut all = Vec::with_capacity(jobs.len());
        for (position, job) in (1..).zip(jobs) {
            if job.movement.as_ref().is_some_and(|movement| !movement.perform(&self.allocations)) {
                return Err(Refusal::InvalidValue);
            }
            let (mut work, id) = (job.work.clone(), self.ids.next_id());
            let after = self.dependencies(handle)?;
            let stream = self.streams.get_mut(&handle).ok_or(Refusal::InvalidHandle)?;
            let (start, end) = self.engine.schedule(&mut stream.queue, after, job.timing, id, earliest);
            earliest = if end == NEVER { earliest } else { end + GAP };
            describe(&mut work, stream, position, (id, start, end));
            all.push(work);
        }
        Ok(all)
    }

    /// Returns the moments for which a wait for a stream waits, which it must not while the stream is captured.
    pub fn moments_of_stream(&mut self, handle: u64) -> Outcome<Vec<Moment>> {
        if let Some(capture) = self.capture_of(handle)? {
            capture.spoiled = true;
            return Err(Refusal::CaptureUnsupported);
        }
        Ok(self.stream(handle)?.queue.moments().cloned().collect())
    }

    /// Returns the moments for which a wait for an owner waits.
    pub fn moments_of_owner(&mut self, owner: u64) -> Outcome<Vec<Moment>> {
        self.forbid_while_capturing()?;
        let streams = self.streams.values().filter(|stream| stream.owner == owner);
        Ok(streams.flat_map(|stream| stream.queue.moments()).cloned().collect())
    }

    /// Succeeds if all work of a stream has ended.
    pub fn query_stream(&mut self, handle: u64, now: u64) -> Outcome {
        let moments = self.moments_of_stream(handle)?;
        if moments.iter().all(|moment| moment.has_come(now)) { Ok(()) } else { Err(Refusal::NotReady) }
    }

    pub fn add_event(&mut self, owner: u64, timed: bool) -> u64 {
        let handle = self.ids.next_handle();
        self.next_event += 1;
        let id = self.next_event;
        self.events.insert(handle, Event { id, owner, timed, moment: None, record: 0, capture: None });
        handle
    }

    pub fn remove_event(&mut self, handle: u64) -> Outcome {
        self.events.remove(&handle).map(drop).ok_or(Refusal::InvalidHandle)
    }

    pub fn event(&self, handle: u64) -> Outcome<&Event> {
        self.events.get(&handle).ok_or(Refusal::InvalidHandle)
    }

    /// Records an event in a stream. Returns it, or none in a capture.
    pub fn record_event(&mut self, event: u64, stream: u64, now: u64) -> Outcome<Option<&Event>> {
        self.capture_of(stream)?;
        let (capture, record) = (self.stream(stream)?.capture, self.ids.next_id());
        let after = self.dependencies(stream)?;
        let its = self.events.get_mut(&event).ok_or(Refusal::InvalidHandle)?;
        its.capture = capture;
        if capture.is_some() {
            return Ok(None);
        }
        let queue = &self.streams.get(&stream).ok_or(Refusal::InvalidHandle)?.queue;
        its.moment = Some(self.engine.mark(queue, after, record, now + LAUNCH_LATENCY));
        its.record = record;
        Ok(Some(its))
    }

    /// Returns the moment of an event's last record, for which a thread is to wait.
    pub fn moment_of_event(&mut self, handle: u64) -> Outcome<Option<Moment>> {
        let event = self.event(handle)?;
        let moment = event.moment.clone();
        if event.capture.is_some() {
            self.forbid_while_capturing()?;
        }
        Ok(moment)
    }

    /// Lets a stream wait for an event; for one of a capture, it joins that.
    pub fn wait_for_event(&mut self, stream: u64, event: u64, now: u64) -> Outcome {
        let Event { capture, moment, .. } = self.events.get(&event).ok_or(Refusal::InvalidHandle)?;
        let stream = self.streams.get_mut(&stream).ok_or(Refusal::InvalidHandle)?;
        match capture {
            Some(capture) => stream.capture = Some(*capture),
            None => stream.queue.add_wait(moment.clone(), now),
        }
        Ok(())
    }

    /// Succeeds if the device has reached an event's last record, or if the event was never recorded.
    pub fn query_event(&self, handle: u64, now: u64) -> Outcome {
        let is_ready = self.event(handle)?.moment.as_ref().is_none_or(|moment| moment.has_come(now));
        if is_ready { Ok(()) } else { Err(Refusal::NotReady) }
    }

    /// Returns the milliseconds between two events.
    pub fn elapsed(&self, start: u64, end: u64, now: u64) -> Outcome<f32> {
        let at = |handle: u64| -> Outcome<u64> {
            let event = self.event(handle)?;
            let moment = event.moment.as_ref().filter(|_| event.timed).ok_or(Refusal::InvalidHandle)?;
            if moment.has_come(now) { Ok(moment.get()) } else { Err(Refusal::NotReady) }
        };
        let (start, end) = (at(start)?, at(end)?);
        Ok(((end as f64 - start as f64) / 1e6) as f32)
    }

    pub fn begin_capture(&mut self, handle: u64, mode: u32) -> Outcome {
        let id = self.ids.next_id();
        let stream = self.streams.get_mut(&handle).ok_or(Refusal::InvalidHandle)?;
        if stream.capture.is_some() {
            return Err(Refusal::IllegalState);
        }
        if stream.is_default || mode > RELAXED {
            return Err(Refusal::CaptureUnsupported);
        }
        stream.capture = Some(id);
        let thread = std::thread::current().id();
        self.captures.insert(id, Capture { stream: handle, mode, thread, spoiled: false, jobs: Vec::new() });
        Ok(())
    }

    /// Ends the capture that began in a stream; returns the graph's handle.
    pub fn end_capture(&mut self, handle: u64) -> Outcome<u64> {
        let id = self.stream(handle)?.capture.ok_or(Refusal::IllegalState)?;
        if self.captures.get(&id).is_none_or(|capture| capture.stream != handle) {
            return Err(Refusal::CaptureUnmatched);
        }
        for stream in self.streams.values_mut().filter(|stream| stream.capture == Some(id)) {
            stream.capture = None;
        }
        for event in self.events.values_mut().filter(|event| event.capture == Some(id)) {
            event.capture = None;
        }
        let capture = self.captures.remove(&id).ok_or(Refusal::IllegalState)?;
        if capture.spoiled { Err(Refusal::CaptureInvalidated) } else { Ok(self.add_graph(capture.jobs)) }
    }

    pub fn capture_status(&self, handle: u64) -> CaptureStatus {
        match self.streams.get(&handle).and_then(|stream| self.captures.get(&stream.capture?)) {
            None => CaptureStatus::None,
            Some(capture) if capture.spoiled => CaptureStatus::Invalidated,
            Some(_) => CaptureStatus::Active,
        }
    }

    /// Returns whether that is a default stream, and one that synchronizes with it is being captured.
    pub fn is_blocked_by_capture(&self, handle: u64) -> bool {
        let blocks = |owner: u64| {
            let mut own = self.streams.values().filter(|other| other.owner == owner && !other.is_default);
            own.any(|other| other.blocking && other.capture.is_some())
        };
        self.streams.get(&handle).is_some_and(|stream| stream.is_default && blocks(stream.owner))
    }

    /// Returns the capture of a stream.
    ///
    /// # Errors
    /// The capture has been invalidated.
    fn capture_of(&mut self, handle: u64) -> Outcome<Option<&mut Capture<W>>> {
        let Some(id) = self.streams.get(&handle).and_then(|stream| stream.capture) else { return Ok(None) };
        match self.captures.get_mut(&id) {
            Some(capture) if capture.spoiled => Err(Refusal::CaptureInvalidated),
            capture => Ok(capture),
        }
    }

    /// For calls that may wait for any stream: they fail and invalidate all captures whose mode forbids them.
    pub fn forbid_while_capturing(&mut self) -> Outcome {
        let thread = std::thread::current().id();
        let cares = |capture: &Capture<W>| match capture.mode {
            GLOBAL => true,
            THREAD_LOCAL => capture.thread == thread,
            _ => false,
        };
        let mut found = false;
        for capture in self.captures.values_mut().filter(|capture| cares(capture)) {
            capture.spoiled = true;
            found = true;
        }
        if found { Err(Refusal::CaptureUnsupported) } else { Ok(()) }
    }

    pub fn add_graph(&mut self, jobs: Vec<Job<W>>) -> u64 {
        let handle = self.ids.next_handle();
        self.graphs.insert(handle, jobs);
        handle
    }

    /// Makes a graph ready to be launched.
    pub fn instantiate(&mut self, graph: u64) -> Outcome<u64> {
        let jobs = self.graphs.get(&graph).ok_or(Refusal::InvalidValue)?.clone();
        let handle = self.ids.next_handle();
        self.next_executable += 1;
        self.executables.insert(handle, (self.next_executable, jobs));
        Ok(handle)
    }

    /// Returns the id and the jobs of a graph that is ready.
    pub fn executable(&self, handle: u64) -> Outcome<(u32, Vec<Job<W>>)> {
        self.executables.get(&handle).cloned().ok_or(Refusal::InvalidValue)
    }

    pub fn remove_graph(&mut self, handle: u64) -> Outcome {
        self.graphs.remove(&handle).map(drop).ok_or(Refusal::InvalidValue)
    }

    pub fn remove_executable(&mut self, handle: u64) -> Outcome {
        self.executables.remove(&handle).map(drop).ok_or(Refusal::InvalidValue)
    }
}
