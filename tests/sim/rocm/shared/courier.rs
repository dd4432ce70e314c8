//! A profiler's thread, which writes records of ended work and delivers buffers to the client.

use super::clock::now;
use super::link;
use super::tracer::{NEVER, Work};
use sim_core::channel::{Receiver, Sender, channel};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// The longest sleep.
const NAP: Duration = Duration::from_millis(1);

/// Work that gets a record in a buffer when it has ended.
pub(crate) trait Pending: Send + 'static {
    fn work(&self) -> &Work;

    fn work_mut(&mut self) -> &mut Work;

    /// Writes the record.
    fn write(&self);
}

/// A profiler's thread, once started, and its tasks.
#[derive(Debug)]
pub(crate) struct Courier<P> {
    name: &'static str,
    /// Delivers a buffer's records to the client.
    deliver: fn(u64),
    pending: Mutex<Vec<P>>,
    requests: OnceLock<Mutex<Sender<Request>>>,
}

/// A buffer to flush, and the channel for its completion.
type Request = (u64, Sender<()>);

impl<P: Pending> Courier<P> {
    pub(crate) const fn new(name: &'static str, deliver: fn(u64)) -> Courier<P> {
        Courier { name, deliver, pending: Mutex::new(Vec::new()), requests: OnceLock::new() }
    }

    /// Starts the thread if necessary.
    pub(crate) fn start(&'static self) -> &'static Mutex<Sender<Request>> {
        self.requests.get_or_init(|| {
            let (sender, receiver) = channel();
            let thread = std::thread::Builder::new().name(self.name.to_owned());
            let started = thread.spawn(move || self.run(receiver));
            started.map(drop).unwrap_or_else(|error| eprintln!("{}: {error}", self.name));
            Mutex::new(sender)
        })
    }

    /// Adds work, which gets its record when it has ended.
    pub(crate) fn expect(&self, pending: P) {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).push(pending);
    }

    /// Sets the times of work that have become known.
    pub(crate) fn retime(&self, id: u64, start: u64, end: u64, done_at: u64) {
        let mut all = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        for work in all.iter_mut().map(Pending::work_mut).filter(|work| work.id == id) {
            (work.start, work.end, work.done_at) = (start, end, done_at);
        }
    }

    /// Flushes a buffer, and returns after its delivery.
    pub(crate) fn empty(&'static self, buffer: u64) {
        let (done, is_done) = channel();
        let sent = self.start().lock().unwrap_or_else(PoisonError::into_inner).send((buffer, done));
        // An error means that the thread could not be started.
        let _ = sent.map(|()| is_done.recv());
    }

    fn run(&self, requests: Receiver<Request>) {
        loop {
            let request = match requests.recv_timeout(NAP) {
                Ok(request) => Some(request),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            self.collect();
            if let Some((buffer, done)) = request {
                (self.deliver)(buffer);
                // An error means that no thread waits.
                let _ = done.send(());
            }
        }
    }

    /// Writes the records of ended work.
    fn collect(&self) {
        let (late, now) = (link::options().late_buffers * 1_000_000, now());
        let is_due = |pending: &mut P| {
            let done_at = pending.work().done_at;
            done_at != NEVER && done_at + late <= now
        };
        let mut due: Vec<P> = {
            let mut all = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
            all.extract_if(.., is_due).collect()
        };
        due.sort_by_key(|pending| pending.work().done_at);
        due.iter().for_each(Pending::write);
    }
}
