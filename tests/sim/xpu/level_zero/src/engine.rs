//! The queues, and the work in them.

use crate::control;
use crate::shared::clock::now;
use crate::shared::counters::count;
use crate::shared::tracer::{BARRIER, KERNEL, MEMSET, NO_SYCL_QUEUE, Work};
use sim_core::device::{Objects, Stream};
use sim_core::engine::{Job, Timing, WorkQueue, wait_until};
use sim_core::handles;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard};

#[derive(Debug, Default)]
struct State {
    /// The queues are its streams.
    objects: Objects<Work, ()>,
    /// The queues of SYCL's, with its ids.
    sycl: HashMap<u64, u64>,
    /// The work that no program has waited for since it was given to its queue, in that order.
    work: Vec<Work>,
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);

fn lock() -> MutexGuard<'static, State> {
    handles::lock(&STATE)
}

/// Makes a queue of a device, with an id of SYCL's or without; its handle.
pub(crate) fn make(device: u32, sycl: Option<u64>) -> u64 {
    let mut state = lock();
    let handle = state.objects.add_stream(Stream::new(0, device.into(), 0));
    state.sycl.extend(sycl.map(|id| (handle, id)));
    handle
}

/// The device and the id of SYCL's of the queue of that handle.
pub(crate) fn queue(handle: u64) -> Option<(u32, u64)> {
    let state = lock();
    let device = state.objects.stream(handle).ok()?.owner as u32;
    Some((device, state.sycl.get(&handle).copied().unwrap_or(NO_SYCL_QUEUE)))
}

/// Removes a queue, whose work continues; returns false if it does not exist.
pub(crate) fn destroy(handle: u64) -> bool {
    lock().objects.remove_stream(handle).is_ok()
}

/// Appends work to a queue, which fills in its id and times; returns false if the queue does not exist.
pub(crate) fn submit(handle: u64, work: Work, timing: Timing) -> bool {
    let mut state = lock();
    let (append, submit) = (now(), now());
    let job = Job { work: Work { append, submit, ..work }, timing, movement: None };
    let submitted = state.objects.submit(handle, &[job], submit, |work, _, _, (id, start, end)| {
        (work.id, work.node, work.start, work.end) = (id, id, start, end);
    });
    let Ok(submitted) = submitted else { return false };
    state.work.extend(submitted);
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
    let State { objects, work, .. } = &mut *guard;
    for finished in objects.engine.finish(now()) {
        for work in work.iter_mut().filter(|work| work.id == finished.id) {
            (work.start, work.end) = (finished.start, finished.end);
        }
    }
}

/// Drops all work.
pub(crate) fn forget() {
    let mut state = lock();
    state.work.clear();
    state.objects.streams.values_mut().for_each(|queue| queue.queue = WorkQueue::default());
}
