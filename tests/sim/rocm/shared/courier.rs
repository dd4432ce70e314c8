//! A profiler's work that has not ended: its thread writes the records of ended work before it delivers buffers.

use super::clock::now;
use super::link;
use super::tracer::{NEVER, Work};
use sim_core::delivery::DeliveryThread;
use sim_core::handles::lock;
use sim_core::machine::Times;
use std::sync::Mutex;

/// Work that gets a record in a buffer when it has ended.
pub(crate) trait Pending: Send + 'static {
    fn work(&self) -> &Work;

    fn work_mut(&mut self) -> &mut Work;

    /// Writes the record.
    fn write(&self);
}

/// A profiler's thread for buffers, by their handles, and the work that it collects.
#[derive(Debug)]
pub(crate) struct Courier<P> {
    thread: DeliveryThread<u64>,
    pending: Mutex<Vec<P>>,
}

impl<P: Pending> Courier<P> {
    /// `deliver` brings a buffer's records to the client, and `collect` calls [`Courier::collect`].
    pub(crate) const fn new(name: &'static str, deliver: fn(u64), collect: fn()) -> Courier<P> {
        Courier { thread: DeliveryThread::new(name, deliver, Some(collect)), pending: Mutex::new(Vec::new()) }
    }

    /// Starts the thread if necessary.
    pub(crate) fn start(&self) {
        self.thread.start();
    }

    /// Adds work, which gets its record when it has ended.
    pub(crate) fn expect(&self, pending: P) {
        lock(&self.pending).push(pending);
    }

    /// Sets the times of work that have become known.
    pub(crate) fn retime(&self, times: &Times) {
        for work in lock(&self.pending).iter_mut().map(Pending::work_mut).filter(|work| work.id == times.id) {
            (work.start, work.end, work.done_at) = (times.start, times.end, times.done_at);
        }
    }

    /// Flushes a buffer, and returns after its delivery.
    pub(crate) fn empty(&self, buffer: u64) {
        self.thread.deliver(buffer, 0, true);
    }

    /// Writes the records of ended work.
    pub(crate) fn collect(&self) {
        let (late, now) = (link::options().late_buffers * 1_000_000, now());
        let is_due = |pending: &mut P| {
            let done_at = pending.work().done_at;
            done_at != NEVER && done_at + late <= now
        };
        let mut due: Vec<P> = lock(&self.pending).extract_if(.., is_due).collect();
        due.sort_by_key(|pending| pending.work().done_at);
        due.iter().for_each(Pending::write);
    }
}
