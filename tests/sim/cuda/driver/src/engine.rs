//! The engines that pass the time of the work: each stream is a series, and a piece begins when all it needs is done.

use crate::control;
use crate::error::{Error, Outcome};
use crate::shared::clock::now;
use crate::shared::counters::count;
use crate::shared::options::Options;
use crate::shared::tracer::{KERNEL, MEMSET, NEVER, Work};
use crate::state::State;
use crate::transfer::Movement;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// From the call until an idle stream begins.
const LAUNCH_LATENCY: u64 = 3_000;
/// Between two nodes of a graph.
const NODE_GAP: u64 = 1_000;

/// A point in time, which is not known behind an endless kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moment {
    at: u64,
    held: Option<Arc<AtomicU64>>,
}

impl Moment {
    pub(crate) fn at(at: u64) -> Moment {
        Moment { at, held: None }
    }

    /// By the true clock, or `NEVER`.
    pub(crate) fn get(&self) -> u64 {
        self.held.as_ref().map_or(self.at, |held| held.load(Ordering::Acquire))
    }

    pub(crate) fn has_come(&self) -> bool {
        self.get() <= now()
    }
}

/// Waits until `moment` has come.
pub(crate) fn wait(moment: &Moment) {
    loop {
        match moment.get().saturating_sub(now()) {
            0 => return,
            1..60_000 => std::thread::yield_now(),
            left => std::thread::sleep(Duration::from_nanos((left - 50_000).min(200_000))),
        }
    }
}

/// A piece of work: what is known of it before it is given to a stream.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// All but the times and what the stream and the launch add.
    pub(crate) work: Work,
    pub(crate) duration: u64,
    pub(crate) endless: bool,
    /// It begins half way through the kernel before it.
    pub(crate) overlaps: bool,
    pub(crate) movement: Option<Movement>,
}

/// A piece of work whose time is not known.
#[derive(Debug)]
pub(crate) struct Held {
    id: u64,
    known: u64,
    after: Vec<Moment>,
    duration: u64,
    endless: bool,
    device_work: bool,
    start: Arc<AtomicU64>,
    end: Arc<AtomicU64>,
}

/// The times that a held piece of work has got: stamps, and its true end.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) id: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) done_at: u64,
}

/// The device's stamp of a moment.
pub(crate) fn stamp(options: &Options, at: u64) -> u64 {
    if options.timestamp_zero || at == NEVER {
        return 0;
    }
    // A device whose clock is behind: what begins at once seems to begin before its launch.
    let early = if options.early_kernels_ns == 0 { 0 } else { options.early_kernels_ns + LAUNCH_LATENCY };
    options.reported(at).saturating_sub(early)
}

/// What a launch adds to its work.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Launch {
    pub(crate) correlation: u32,
    /// The executable graph, 0 for none.
    pub(crate) graph: u32,
}

/// Gives jobs to a stream, one after the other; the bytes of copies and fills are moved now.
///
/// # Errors
/// A job would move bytes out of an allocation.
pub(crate) fn submit(state: &mut State, stream: u64, jobs: &[Job], launch: Launch) -> Outcome<Vec<Work>> {
    let options = control::options();
    let mut earliest = now() + LAUNCH_LATENCY;
    let mut all = Vec::with_capacity(jobs.len());
    for (index, job) in (1..).zip(jobs) {
        if let Some(movement) = &job.movement {
            movement.perform(state)?;
        }
        let mut work = job.work;
        work.id = state.id();
        work.correlation = launch.correlation;
        if launch.graph != 0 {
            work.graph = launch.graph;
            work.graph_node = u64::from(launch.graph) << 32 | index;
        }
        let (start, end) = schedule(state, stream, job, work.id, earliest)?;
        earliest = if end == NEVER { earliest } else { end + NODE_GAP };
        (work.begun_at, work.done_at) = (start, end);
        (work.start, work.end) = (stamp(options, start), stamp(options, end));
        describe(state, stream, &mut work)?;
        let counters = control::counters();
        count(match work.kind {
            KERNEL => &counters.kernels,
            MEMSET => &counters.memsets,
            _ => &counters.memcpys,
        });
        all.push(work);
    }
    Ok(all)
}

/// Fills in where the work runs.
fn describe(state: &State, stream: u64, work: &mut Work) -> Outcome {
    let stream = state.streams.get(&stream).ok_or(Error::INVALID_HANDLE)?;
    let context = state.contexts.get(&stream.context).ok_or(Error::INVALID_CONTEXT)?;
    work.device = context.device as u32;
    work.context = context.id;
    work.stream = stream.id;
    work.priority = stream.priority;
    (work.channel, work.channel_type) = if work.kind == KERNEL { (stream.id, 1) } else { (stream.id + 16, 2) };
    Ok(())
}

/// Finds the time for a job, and keeps it in the stream. Returns its start and end, [`NEVER`] where not known.
fn schedule(state: &mut State, handle: u64, job: &Job, id: u64, earliest: u64) -> Outcome<(u64, u64)> {
    let mut after = dependencies(state, handle)?;
    let stream = state.streams.get_mut(&handle).ok_or(Error::INVALID_HANDLE)?;
    after.append(&mut stream.waits);
    let is_kernel = job.work.kind == KERNEL;
    match stream.last_kernel {
        Some((start, end)) if is_kernel && job.overlaps => after.push(Moment::at(start.midpoint(end))),
        // An engine needs a moment between two pieces of work.
        _ => after.push(match stream.tail.get() {
            0 | NEVER => stream.tail.clone(),
            end => Moment::at(end + NODE_GAP),
        }),
    }
    let start = after.iter().map(Moment::get).fold(earliest, u64::max);
    if start != NEVER && !job.endless {
        let end = start + job.duration;
        stream.tail = Moment::at(stream.tail.get().max(end));
        stream.last_kernel = is_kernel.then_some((start, end));
        return Ok((start, end));
    }
    let end_cell = Arc::new(AtomicU64::new(NEVER));
    stream.tail = Moment { at: NEVER, held: Some(Arc::clone(&end_cell)) };
    stream.last_kernel = None;
    state.held.push(Held {
        id,
        known: earliest,
        after,
        duration: job.duration,
        endless: job.endless,
        device_work: true,
        start: Arc::new(AtomicU64::new(start)),
        end: end_cell,
    });
    Ok((start, NEVER))
}

/// What the default stream and the others of a context wait for in each other.
fn dependencies(state: &State, handle: u64) -> Outcome<Vec<Moment>> {
    let stream = state.streams.get(&handle).ok_or(Error::INVALID_HANDLE)?;
    let context = state.contexts.get(&stream.context).ok_or(Error::INVALID_CONTEXT)?;
    if handle == context.null_stream {
        let others = state.streams.values().filter(|other| other.context == stream.context && other.blocking);
        return Ok(others.map(|other| other.tail.clone()).collect());
    }
    let null_stream = state.streams.get(&context.null_stream).filter(|_| stream.blocking);
    Ok(null_stream.into_iter().map(|null_stream| null_stream.tail.clone()).collect())
}

/// When all that is in a stream now is done; an id is needed to tell the tracer later, if it is not known.
pub(crate) fn mark(state: &mut State, handle: u64, id: u64) -> Outcome<Moment> {
    let mut after = dependencies(state, handle)?;
    let stream = state.streams.get(&handle).ok_or(Error::INVALID_HANDLE)?;
    after.extend(stream.waits.iter().cloned());
    after.push(stream.tail.clone());
    let known = now() + LAUNCH_LATENCY;
    let at = after.iter().map(Moment::get).fold(known, u64::max);
    if at != NEVER {
        return Ok(Moment::at(at));
    }
    let end = Arc::new(AtomicU64::new(NEVER));
    let moment = Moment { at: NEVER, held: Some(Arc::clone(&end)) };
    let start = Arc::new(AtomicU64::new(NEVER));
    state.held.push(Held { id, known, after, duration: 0, endless: false, device_work: false, start, end });
    Ok(moment)
}

/// Ends the endless kernels and finds the time of all that was behind them.
pub(crate) fn finish(state: &mut State) -> Vec<Finished> {
    let options = control::options();
    let held = std::mem::take(&mut state.held);
    let times = held.into_iter().map(|held| {
        let start = held.after.iter().map(Moment::get).fold(held.known, u64::max);
        let start = held.start.load(Ordering::Relaxed).min(start);
        let end = start + held.duration;
        let end = if held.endless { end.max(now()) } else { end };
        held.start.store(start, Ordering::Release);
        held.end.store(end, Ordering::Release);
        let (first, last) = (stamp(options, start), stamp(options, end));
        Finished { id: held.id, start: if held.device_work { first } else { last }, end: last, done_at: end }
    });
    times.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_moment_comes_when_its_cell_is_set() {
        let cell = Arc::new(AtomicU64::new(NEVER));
        let moment = Moment { at: NEVER, held: Some(Arc::clone(&cell)) };
        assert!(!moment.has_come());
        cell.store(5, Ordering::Release);
        assert!(moment.has_come() && moment.get() == 5);
    }

    #[test]
    fn stamps_are_zero_or_early_on_demand() {
        let options = Options { clock_skew_ns: 10, ..Options::default() };
        assert_eq!(stamp(&options, 100_000), 100_010);
        assert_eq!(stamp(&Options { early_kernels_ns: 500, ..options }, 100_000), 100_010 - 500 - LAUNCH_LATENCY);
        assert_eq!(stamp(&Options { timestamp_zero: true, ..options }, 100_000), 0);
        assert_eq!(stamp(&options, NEVER), 0);
    }
}
