//! The queues that pass the time of the work: each stream is a series, and a piece begins when all it needs is done.

use crate::control;
use crate::error::{Error, Outcome};
use crate::shared::clock::now;
use crate::shared::counters::count;
use crate::shared::options::Options;
use crate::shared::tracer::{FILL, KERNEL, NEVER, Work};
use crate::state::State;
use crate::trace::Caller;
use crate::transfer::Movement;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// From the call until an idle stream begins.
const LAUNCH_LATENCY: u64 = 3_000;
/// Between two pieces of work.
const GAP: u64 = 1_000;

/// A point in time, which is not known behind an endless kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moment {
    at: u64,
    held: Option<Arc<AtomicU64>>,
}

impl Moment {
    fn at(at: u64) -> Moment {
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
    /// All but the times and what the stream and the call add.
    pub(crate) work: Work,
    pub(crate) duration: u64,
    pub(crate) endless: bool,
    pub(crate) movement: Option<Movement>,
}

/// A piece of work, or a mark, whose time is not known.
#[derive(Debug)]
pub(crate) struct Held {
    id: u64,
    known: u64,
    after: Vec<Moment>,
    duration: u64,
    endless: bool,
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
fn stamp(options: &Options, at: u64) -> u64 {
    if options.timestamp_zero || at == NEVER { 0 } else { options.reported(at) }
}

/// Gives jobs to a stream, one after the other; the bytes of copies and fills are moved now.
///
/// # Errors
/// A job would move bytes out of an allocation.
pub(crate) fn submit(
    state: &mut State,
    stream: u64,
    jobs: &[Job],
    caller: Caller,
    in_graph: bool,
) -> Outcome<Vec<Work>> {
    let options = control::options();
    let mut earliest = now() + LAUNCH_LATENCY;
    let mut all = Vec::with_capacity(jobs.len());
    for job in jobs {
        if let Some(movement) = &job.movement {
            movement.perform(state)?;
        }
        let mut work = Work { correlation: caller.correlation, thread: caller.thread, in_graph, ..job.work };
        work.id = state.id();
        let (start, end) = schedule(state, stream, job, work.id, earliest)?;
        earliest = if end == NEVER { earliest } else { end + GAP };
        work.done_at = end;
        (work.start, work.end) = (stamp(options, start), stamp(options, end));
        let its = state.streams.get(&stream).ok_or(Error::INVALID_HANDLE)?;
        (work.device, work.queue) = (its.device, its.queue);
        let counters = control::counters();
        count(match work.kind {
            KERNEL => &counters.kernels,
            FILL => &counters.memsets,
            _ => &counters.memcpys,
        });
        all.push(work);
    }
    Ok(all)
}

/// Finds the time for a job, and keeps it in the stream. Returns its start and end, [`NEVER`] where not known.
fn schedule(state: &mut State, handle: u64, job: &Job, id: u64, earliest: u64) -> Outcome<(u64, u64)> {
    let mut after = dependencies(state, handle)?;
    let stream = state.streams.get_mut(&handle).ok_or(Error::INVALID_HANDLE)?;
    after.append(&mut stream.waits);
    let overlaps = control::options().overlap && job.work.kind == KERNEL;
    after.push(match (stream.last_kernel, stream.tail.get()) {
        (Some((start, end)), _) if overlaps => Moment::at(start.midpoint(end)),
        (_, 0 | NEVER) => stream.tail.clone(),
        (_, end) => Moment::at(end + GAP),
    });
    let start = after.iter().map(Moment::get).fold(earliest, u64::max);
    if start != NEVER && !job.endless {
        let end = start + job.duration;
        stream.tail = Moment::at(stream.tail.get().max(end));
        stream.last_kernel = (job.work.kind == KERNEL).then_some((start, end));
        return Ok((start, end));
    }
    let end = Arc::new(AtomicU64::new(NEVER));
    stream.tail = Moment { at: NEVER, held: Some(Arc::clone(&end)) };
    stream.last_kernel = None;
    state.held.push(Held { id, known: earliest, after, duration: job.duration, endless: job.endless, end });
    Ok((start, NEVER))
}

/// What the default stream and the others of a device wait for in each other.
fn dependencies(state: &State, handle: u64) -> Outcome<Vec<Moment>> {
    let stream = state.streams.get(&handle).ok_or(Error::INVALID_HANDLE)?;
    let others = state.streams.values().filter(|other| {
        let is_default = other.is_null || stream.is_null;
        other.device == stream.device
            && is_default
            && other.is_null != stream.is_null
            && (other.blocking && stream.blocking)
    });
    Ok(others.map(|other| other.tail.clone()).collect())
}

/// When all that is in a stream now is done.
pub(crate) fn mark(state: &mut State, handle: u64) -> Outcome<Moment> {
    let mut after = dependencies(state, handle)?;
    let stream = state.streams.get(&handle).ok_or(Error::INVALID_HANDLE)?;
    after.extend(stream.all().cloned());
    let known = now() + LAUNCH_LATENCY;
    let at = after.iter().map(Moment::get).fold(known, u64::max);
    if at != NEVER {
        return Ok(Moment::at(at));
    }
    let end = Arc::new(AtomicU64::new(NEVER));
    let moment = Moment { at: NEVER, held: Some(Arc::clone(&end)) };
    // No work has the id 0.
    state.held.push(Held { id: 0, known, after, duration: 0, endless: false, end });
    Ok(moment)
}

/// Ends the endless kernels and finds the time of all that was behind them.
pub(crate) fn finish(state: &mut State) -> Vec<Finished> {
    let options = control::options();
    let held = std::mem::take(&mut state.held);
    let times = held.into_iter().map(|held| {
        let start = held.after.iter().map(Moment::get).fold(held.known, u64::max);
        let end = start + held.duration;
        let end = if held.endless { end.max(now()) } else { end };
        held.end.store(end, Ordering::Release);
        Finished { id: held.id, start: stamp(options, start), end: stamp(options, end), done_at: end }
    });
    times.filter(|finished| finished.id != 0).collect()
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
    fn stamps_are_zero_or_off_on_demand() {
        let options = Options { clock_skew_ns: 10, ..Options::default() };
        assert_eq!((stamp(&options, 100), stamp(&options, NEVER)), (110, 0));
        assert_eq!(stamp(&Options { timestamp_zero: true, ..options }, 100), 0);
    }
}
