//! The queues, and the work in them.

use crate::control;
use crate::shared::clock::now;
use crate::shared::counters::count;
use crate::shared::tracer::{BARRIER, KERNEL, MEMSET, NO_SYCL_QUEUE, Work};
use sim_core::engine::{Engine, LAUNCH_LATENCY, Timing, WorkQueue, wait_until};
use sim_core::ids::Ids;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// A queue that has been made and not destroyed.
#[derive(Debug)]
struct Queue {
    device: u32,
    /// [`NO_SYCL_QUEUE`] without SYCL.
    sycl: u64,
    series: WorkQueue,
}

#[derive(Debug, Default)]
struct Machine {
    queues: HashMap<u64, Queue>,
    ids: Ids,
    engine: Engine,
    /// The work that no program has waited for since it was given to its queue, in that order.
    work: Vec<Work>,
}

static MACHINE: LazyLock<Mutex<Machine>> = LazyLock::new(Mutex::default);

fn lock() -> MutexGuard<'static, Machine> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a queue of a device, with an id of SYCL's or without; its handle.
pub(crate) fn make(device: u32, sycl: Option<u64>) -> u64 {
    let mut machine = lock();
    let handle = machine.ids.next_handle();
    let (sycl, series) = (sycl.unwrap_or(NO_SYCL_QUEUE), WorkQueue::default());
    machine.queues.insert(handle, Queue { device, sycl, series });
    handle
}

/// The device and the id of SYCL's of the queue of that handle.
pub(crate) fn queue(handle: u64) -> Option<(u32, u64)> {
    lock().queues.get(&handle).map(|queue| (queue.device, queue.sycl))
}

/// Removes a queue, whose work continues; returns false if it does not exist.
pub(crate) fn destroy(handle: u64) -> bool {
    lock().queues.remove(&handle).is_some()
}

/// Appends work to a queue, which fills in its id and times; returns false if the queue does not exist.
pub(crate) fn submit(handle: u64, mut work: Work, timing: Timing) -> bool {
    let mut guard = lock();
    let machine = &mut *guard;
    let Some(queue) = machine.queues.get_mut(&handle) else { return false };
    work.id = machine.ids.next_id();
    work.node = work.id;
    (work.append, work.submit) = (now(), now());
    let earliest = work.submit + LAUNCH_LATENCY;
    (work.start, work.end) = machine.engine.schedule(&mut queue.series, Vec::new(), timing, work.id, earliest);
    machine.work.push(work);
    let counters = control::counters();
    count(match work.kind {
        KERNEL => &counters.kernels,
        MEMSET => &counters.memsets,
        BARRIER => &counters.barriers,
        _ => &counters.memcpys,
    });
    true
}

/// Waits for a queue's current work, or with `None` for all work.
pub(crate) fn wait(handle: Option<u64>) {
    count(&control::counters().synchronizes);
    let mine = |work: &&Work| handle.is_none_or(|handle| work.queue == handle);
    // What is given to it later does not count.
    let last = lock().work.iter().filter(mine).map(|work| work.id).max().unwrap_or_default();
    let end = || lock().work.iter().filter(mine).filter(|work| work.id <= last).map(|work| work.end).max();
    wait_until(now, || end().unwrap_or_default());
}

/// Takes the ended work of all queues, in order of submission.
pub(crate) fn harvest() -> Vec<Work> {
    let now = now();
    lock().work.extract_if(.., |work| work.end <= now).collect()
}

/// Ends the endless kernels and computes the times of all work behind them.
pub(crate) fn finish() {
    let mut guard = lock();
    let Machine { engine, work, .. } = &mut *guard;
    for finished in engine.finish(now()) {
        for work in work.iter_mut().filter(|work| work.id == finished.id) {
            (work.start, work.end) = (finished.start, finished.end);
        }
    }
}

/// Drops all work.
pub(crate) fn forget() {
    let mut guard = lock();
    guard.work.clear();
    guard.queues.values_mut().for_each(|queue| queue.series = WorkQueue::default());
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::program;
    use sim_core::engine::{GAP, NEVER};

    /// The machine is one for all tests, which take turns.
    pub(crate) fn turn() -> MutexGuard<'static, ()> {
        static TURN: Mutex<()> = Mutex::new(());
        TURN.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kernel(queue: u64, duration: u64, endless: bool) {
        let timing = Timing { duration, endless, is_kernel: true, overlaps: false };
        assert!(submit(queue, Work { queue, ..program::blank(KERNEL) }, timing));
    }

    fn of(queue: u64) -> Vec<Work> {
        lock().work.extract_if(.., |work| work.queue == queue).collect()
    }

    #[test]
    fn work_of_a_queue_is_a_series() {
        let _turn = turn();
        let queue = make(0, Some(1));
        (0..3).for_each(|_| kernel(queue, 50_000, false));
        wait(Some(queue));
        let work = of(queue);
        assert!(work.iter().all(|work| work.end - work.start == 50_000 && work.start >= work.submit + LAUNCH_LATENCY));
        assert!(work.windows(2).all(|pair| pair[1].start >= pair[0].end + GAP && pair[1].id > pair[0].id));
        assert!(work.last().unwrap().end <= now());
        assert!(destroy(queue) && !destroy(queue));
    }

    #[test]
    fn work_behind_an_endless_kernel_gets_times_when_it_ends() {
        let _turn = turn();
        let queue = make(0, None);
        kernel(queue, 0, true);
        kernel(queue, 10_000, false);
        assert!(lock().work.iter().filter(|work| work.queue == queue).all(|work| work.end == NEVER));
        finish();
        wait(Some(queue));
        let work = of(queue);
        assert!(work[0].end <= now() && work[1].start >= work[0].end && work[1].end == work[1].start + 10_000);
        kernel(queue, 10_000, false);
        assert!(of(queue)[0].start > work[1].end);
        assert!(destroy(queue));
    }
}
