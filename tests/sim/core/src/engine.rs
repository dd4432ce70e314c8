//! The engine that computes the times of work: a queue is a series, and work starts when its dependencies are done.

use crate::clock::sleep;
use crate::kernel::number_after;
use crate::memory::Movement;
use crate::wait::is_virtual;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The time of an event that has no time yet: the end of work that never ends.
pub const NEVER: u64 = u64::MAX;

/// Nanoseconds from the call until an idle queue begins.
pub const LAUNCH_LATENCY: u64 = 3_000;
/// Nanoseconds between two pieces of work.
pub const GAP: u64 = 1_000;

/// Nanoseconds of a kernel whose name gives none, and for each of its blocks.
const KERNEL_DURATION: u64 = 20_000;
const BLOCK_DURATION: u64 = 20;
/// Nanoseconds of an empty transfer.
const LEAST_TRANSFER: u64 = 1_000;
/// Bytes that a copy and a fill move in a nanosecond.
pub const COPY_SPEED: u64 = 25;
pub const FILL_SPEED: u64 = 1_000;

/// A point in time, which is unknown behind an endless kernel.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    at: u64,
    cell: Option<Arc<AtomicU64>>,
}

impl Moment {
    fn known(at: u64) -> Moment {
        Moment { at, cell: None }
    }

    fn unknown() -> (Moment, Arc<AtomicU64>) {
        let cell = Arc::new(AtomicU64::new(NEVER));
        (Moment { at: NEVER, cell: Some(Arc::clone(&cell)) }, cell)
    }

    /// Returns the time by the machine's clock, or [`NEVER`].
    pub fn get(&self) -> u64 {
        self.cell.as_ref().map_or(self.at, |cell| cell.load(Ordering::Acquire))
    }

    pub fn has_come(&self, now: u64) -> bool {
        self.get() <= now
    }

    /// Waits until the moment has come by the machine's clock.
    pub fn wait(&self, clock: fn() -> u64) {
        wait_until(clock, || self.get());
    }
}

/// Waits until `end` has come by the machine's clock. `end` may change meanwhile.
pub fn wait_until(clock: fn() -> u64, end: impl Fn() -> u64) {
    loop {
        match end().saturating_sub(clock()) {
            0 => return,
            left if is_virtual() => sleep(Duration::from_nanos(left.min(1_000_000))),
            1..60_000 => std::thread::yield_now(),
            left => sleep(Duration::from_nanos((left - 50_000).min(200_000))),
        }
    }
}

/// The duration of work, and when it may begin.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timing {
    pub duration: u64,
    /// It ends when a test calls `simFinish`.
    pub endless: bool,
    pub is_kernel: bool,
    /// It begins halfway through the kernel before it.
    pub overlaps: bool,
}

impl Timing {
    /// A kernel. Its name can give its microseconds (`_us500`); one with `no_finish` in its name is endless.
    pub fn kernel(name: &str, blocks: u64, no_finish: &str, overlaps: bool) -> Timing {
        let duration = number_after(name, "_us").map(|us| u64::from(us) * 1_000);
        Timing {
            duration: duration.unwrap_or(KERNEL_DURATION + blocks * BLOCK_DURATION),
            endless: !no_finish.is_empty() && name.contains(no_finish),
            is_kernel: true,
            overlaps,
        }
    }

    /// A copy or a fill.
    pub fn transfer(bytes: u64, speed: u64) -> Timing {
        Timing { duration: LEAST_TRANSFER + bytes / speed, ..Timing::default() }
    }
}

/// Work before it is scheduled.
#[derive(Clone, Debug)]
pub struct Job<W> {
    pub work: W,
    pub timing: Timing,
    pub movement: Option<Movement>,
}

/// A series of work: a stream, or a queue of a device.
#[derive(Debug, Default)]
pub struct WorkQueue {
    /// When all work so far is done.
    pub tail: Moment,
    /// Start and end of the last piece of work, if that is a kernel.
    last_kernel: Option<(u64, u64)>,
    /// What the next piece of work waits for in addition.
    waits: Vec<Moment>,
}

impl WorkQueue {
    /// Returns the moments for which a wait on the queue waits.
    pub fn moments(&self) -> impl Iterator<Item = &Moment> {
        self.waits.iter().chain([&self.tail])
    }

    pub fn is_done(&self, now: u64) -> bool {
        self.moments().all(|moment| moment.has_come(now))
    }

    /// Lets the next piece of work wait for `moment`.
    pub fn add_wait(&mut self, moment: Option<Moment>, now: u64) {
        self.waits.retain(|moment| !moment.has_come(now));
        self.waits.extend(moment);
    }
}

/// Work, or a mark in a queue, whose time is unknown.
#[derive(Debug)]
struct HeldWork {
    id: u64,
    earliest: u64,
    after: Vec<Moment>,
    duration: u64,
    endless: bool,
    end: Arc<AtomicU64>,
}

/// The times that a held piece of work has got.
#[derive(Debug)]
pub struct FinishedWork {
    pub id: u64,
    pub start: u64,
    pub end: u64,
}

/// The work behind endless kernels, in the order of its launch.
#[derive(Debug, Default)]
pub struct Engine {
    held: Vec<HeldWork>,
}

impl Engine {
    /// Adds work to a queue, `after` these moments and not before `earliest`. Returns its start and end, [`NEVER`] where
    /// unknown; [`Engine::finish`] then gives the times of the work with this id.
    pub fn schedule(
        &mut self,
        queue: &mut WorkQueue,
        mut after: Vec<Moment>,
        timing: Timing,
        id: u64,
        earliest: u64,
    ) -> (u64, u64) {
        let Timing { duration, endless, is_kernel, overlaps } = timing;
        after.append(&mut queue.waits);
        after.push(match (queue.last_kernel, queue.tail.get()) {
            (Some((start, end)), _) if is_kernel && overlaps => Moment::known(start.midpoint(end)),
            (_, 0 | NEVER) => queue.tail.clone(),
            (_, end) => Moment::known(end + GAP),
        });
        let start = latest(&after, earliest);
        if start != NEVER && !endless {
            let end = start + duration;
            queue.tail = Moment::known(queue.tail.get().max(end));
            queue.last_kernel = is_kernel.then_some((start, end));
            return (start, end);
        }
        let (tail, end) = Moment::unknown();
        queue.tail = tail;
        queue.last_kernel = None;
        self.held.push(HeldWork { id, earliest, after, duration, endless, end });
        (start, NEVER)
    }

    /// Returns when the queue's current work and `after` are done. If unknown, [`Engine::finish`] returns it with this id.
    pub fn mark(&mut self, queue: &WorkQueue, mut after: Vec<Moment>, id: u64, earliest: u64) -> Moment {
        after.extend(queue.moments().cloned());
        match latest(&after, earliest) {
            NEVER => {
                let (moment, end) = Moment::unknown();
                self.held.push(HeldWork { id, earliest, after, duration: 0, endless: false, end });
                moment
            }
            at => Moment::known(at),
        }
    }

    /// Ends the endless kernels and finds the times of all that was behind them.
    pub fn finish(&mut self, now: u64) -> Vec<FinishedWork> {
        let times = self.held.drain(..).map(|held| {
            let start = latest(&held.after, held.earliest);
            let end = start + held.duration;
            let end = if held.endless { end.max(now) } else { end };
            held.end.store(end, Ordering::Release);
            FinishedWork { id: held.id, start, end }
        });
        times.collect()
    }
}

fn latest(moments: &[Moment], earliest: u64) -> u64 {
    moments.iter().map(Moment::get).fold(earliest, u64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: Timing = Timing { duration: 100, endless: false, is_kernel: true, overlaps: false };

    #[test]
    fn held_moment_comes_when_its_cell_is_set() {
        let (moment, cell) = Moment::unknown();
        assert!(!moment.has_come(5));
        cell.store(5, Ordering::Release);
        assert!(moment.has_come(5) && moment.get() == 5);
    }

    #[test]
    fn queue_is_a_series_that_overlaps_on_demand() {
        let (mut engine, mut queue) = (Engine::default(), WorkQueue::default());
        assert_eq!(engine.schedule(&mut queue, Vec::new(), KERNEL, 1, 10), (10, 110));
        let overlapping = Timing { overlaps: true, ..KERNEL };
        assert_eq!(engine.schedule(&mut queue, Vec::new(), overlapping, 2, 10), (60, 160));
        assert_eq!(engine.schedule(&mut queue, Vec::new(), KERNEL, 3, 10), (160 + GAP, 260 + GAP));
        assert!(engine.finish(0).is_empty() && !queue.is_done(259 + GAP) && queue.is_done(260 + GAP));
    }

    #[test]
    fn finish_gives_times_to_all_behind_an_endless_kernel() {
        let (mut engine, mut queue) = (Engine::default(), WorkQueue::default());
        assert_eq!(engine.schedule(&mut queue, Vec::new(), Timing { endless: true, ..KERNEL }, 1, 10), (10, NEVER));
        assert_eq!(engine.schedule(&mut queue, Vec::new(), KERNEL, 2, 20), (NEVER, NEVER));
        let mark = engine.mark(&queue, Vec::new(), 3, 30);
        assert_eq!(mark.get(), NEVER);
        let times: Vec<_> = engine.finish(5_000).iter().map(|work| (work.id, work.start, work.end)).collect();
        assert_eq!(times, [(1, 10, 5_000), (2, 5_000, 5_100), (3, 5_100, 5_100)]);
        assert_eq!((mark.get(), queue.tail.get()), (5_100, 5_100));
    }
}
