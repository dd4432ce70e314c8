//! The queues that pass the time of the work: each is a series, and a piece begins when the one before it has ended.

use crate::control;
use crate::shared::clock::now;
use crate::shared::counters::count;
use crate::shared::tracer::{BARRIER, KERNEL, MEMSET, NEVER, Work};
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// From the call until an idle queue begins.
const LATENCY: u64 = 3_000;
/// Between two pieces of work of a queue.
const GAP: u64 = 1_000;

/// A queue that has been made and not destroyed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    pub(crate) device: u32,
    /// [`NO_SYCL_QUEUE`](crate::shared::tracer::NO_SYCL_QUEUE) without SYCL.
    pub(crate) sycl: u64,
    /// When all that is in it has ended.
    tail: u64,
    last_kernel: Option<(u64, u64)>,
}

/// A piece of work that nobody has looked at since it was given to its queue.
#[derive(Clone, Copy, Debug)]
struct Piece {
    work: Work,
    duration: u64,
    endless: bool,
}

#[derive(Debug, Default)]
struct Machine {
    queues: HashMap<u64, Queue>,
    made: u64,
    ids: u64,
    nodes: u64,
    pieces: Vec<Piece>,
}

static MACHINE: LazyLock<Mutex<Machine>> = LazyLock::new(Mutex::default);

fn lock() -> MutexGuard<'static, Machine> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a queue of a device, with an id of SYCL's or without; its handle.
pub(crate) fn make(device: u32, sycl: Option<u64>) -> u64 {
    let mut machine = lock();
    machine.made += 1;
    let handle = 0x5e00_0010_0000 + machine.made * 0x40;
    let sycl = sycl.unwrap_or(crate::shared::tracer::NO_SYCL_QUEUE);
    machine.queues.insert(handle, Queue { device, sycl, tail: 0, last_kernel: None });
    handle
}

/// The queue of that handle.
pub(crate) fn queue(handle: u64) -> Option<Queue> {
    lock().queues.get(&handle).copied()
}

/// Takes a queue away, whose work goes on; false if there is none.
pub(crate) fn destroy(handle: u64) -> bool {
    lock().queues.remove(&handle).is_some()
}

/// Gives work to a queue, which fills in its number and its times; false if there is no such queue.
pub(crate) fn submit(handle: u64, mut work: Work, duration: u64, endless: bool) -> bool {
    let overlap = control::options().overlap;
    let mut guard = lock();
    let machine = &mut *guard;
    let Some(queue) = machine.queues.get_mut(&handle) else { return false };
    machine.ids += 1;
    machine.nodes += 1;
    (work.id, work.node) = (machine.ids, machine.nodes);
    (work.append, work.submit) = (now(), now());
    let behind = match queue.last_kernel {
        Some((start, end)) if overlap && work.kind == KERNEL => start.midpoint(end),
        _ if queue.tail == NEVER => NEVER,
        _ => queue.tail + GAP,
    };
    work.start = behind.max(work.submit + LATENCY);
    work.end = if work.start == NEVER || endless { NEVER } else { work.start + duration };
    queue.tail = queue.tail.max(work.end);
    queue.last_kernel = (work.kind == KERNEL && work.end != NEVER).then_some((work.start, work.end));
    machine.pieces.push(Piece { work, duration, endless });
    let counters = control::counters();
    count(match work.kind {
        KERNEL => &counters.kernels,
        MEMSET => &counters.memsets,
        BARRIER => &counters.barriers,
        _ => &counters.memcpys,
    });
    true
}

/// Waits until all that a queue has now is done, or with `None` until all is.
pub(crate) fn wait(handle: Option<u64>) {
    count(&control::counters().synchronizes);
    let mine = |piece: &&Piece| handle.is_none_or(|handle| piece.work.queue == handle);
    // What is given to it later does not count.
    let last = lock().pieces.iter().filter(mine).map(|piece| piece.work.id).max().unwrap_or_default();
    loop {
        let end = lock().pieces.iter().filter(mine).filter(|p| p.work.id <= last).map(|p| p.work.end).max();
        match end.unwrap_or_default().saturating_sub(now()) {
            0 => return,
            1..60_000 => std::thread::yield_now(),
            left => std::thread::sleep(Duration::from_nanos((left - 50_000).min(200_000))),
        }
    }
}

/// Takes out the work of all queues that has ended, in the order in which it was given.
pub(crate) fn harvest() -> Vec<Work> {
    let now = now();
    lock().pieces.extract_if(.., |piece| piece.work.end <= now).map(|piece| piece.work).collect()
}

/// Ends the endless kernels and finds the time of all that is behind them.
pub(crate) fn finish() {
    let mut guard = lock();
    let Machine { queues, pieces, .. } = &mut *guard;
    let mut tails: HashMap<u64, u64> = HashMap::new();
    for Piece { work, duration, endless } in pieces {
        let tail = tails.entry(work.queue).or_default();
        if work.end == NEVER {
            work.start = if work.start == NEVER { (*tail + GAP).max(work.submit + LATENCY) } else { work.start };
            work.end = if *endless { now().max(work.start) } else { work.start + *duration };
        }
        *tail = (*tail).max(work.end);
    }
    for (handle, queue) in queues.iter_mut().filter(|(_, queue)| queue.tail == NEVER) {
        queue.tail = tails.get(handle).copied().unwrap_or_default();
    }
}

/// Forgets all work, as if it had never been given to a queue.
pub(crate) fn forget() {
    let mut guard = lock();
    guard.pieces.clear();
    guard.queues.values_mut().for_each(|queue| (queue.tail, queue.last_kernel) = (0, None));
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::program;

    /// The machine is one for all tests, which take turns.
    pub(crate) fn turn() -> MutexGuard<'static, ()> {
        static TURN: Mutex<()> = Mutex::new(());
        TURN.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kernel(queue: u64, duration: u64, endless: bool) {
        assert!(submit(queue, Work { queue, ..program::blank(KERNEL) }, duration, endless));
    }

    fn of(queue: u64) -> Vec<Work> {
        lock().pieces.extract_if(.., |piece| piece.work.queue == queue).map(|piece| piece.work).collect()
    }

    #[test]
    fn the_work_of_a_queue_is_a_series() {
        let _turn = turn();
        let queue = make(0, Some(1));
        (0..3).for_each(|_| kernel(queue, 50_000, false));
        wait(Some(queue));
        let work = of(queue);
        assert!(work.iter().all(|work| work.end - work.start == 50_000 && work.start >= work.submit + LATENCY));
        assert!(work.windows(2).all(|pair| pair[1].start >= pair[0].end + GAP && pair[1].id > pair[0].id));
        assert!(work.last().unwrap().end <= now());
        assert!(destroy(queue) && !destroy(queue));
    }

    #[test]
    fn what_is_behind_an_endless_kernel_gets_its_times_when_that_ends() {
        let _turn = turn();
        let queue = make(0, None);
        kernel(queue, 0, true);
        kernel(queue, 10_000, false);
        assert!(lock().pieces.iter().filter(|piece| piece.work.queue == queue).all(|piece| piece.work.end == NEVER));
        finish();
        wait(Some(queue));
        let work = of(queue);
        assert!(work[0].end <= now() && work[1].start >= work[0].end && work[1].end == work[1].start + 10_000);
        kernel(queue, 10_000, false);
        assert!(of(queue)[0].start > work[1].end);
        assert!(destroy(queue));
    }
}
