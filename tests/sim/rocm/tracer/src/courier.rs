//! The thread that writes records of what has ended, and brings buffers to the client.

use crate::pool;
use crate::shared::clock::now;
use crate::shared::link;
use crate::shared::tracer::{NEVER, Work};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

/// How long it sleeps at most.
const NAP: Duration = Duration::from_millis(1);

/// Work that gets a record in a pool when it has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) work: Work,
    pub(crate) operation: u32,
    pub(crate) kind: u32,
    pub(crate) pool: u64,
}

static PENDING: Mutex<Vec<Pending>> = Mutex::new(Vec::new());

/// A pool that somebody wants to be empty, and whom to tell.
type Request = (u64, Sender<()>);

static COURIER: LazyLock<Mutex<Sender<Request>>> = LazyLock::new(|| {
    let (sender, receiver) = channel();
    let courier = std::thread::Builder::new().name("sim-roctracer".to_owned());
    courier.spawn(move || run(receiver)).map(drop).unwrap_or_else(|error| eprintln!("sim-roctracer: {error}"));
    Mutex::new(sender)
});

/// Starts the thread, if that has not been done.
pub(crate) fn start() {
    LazyLock::force(&COURIER);
}

/// Adds work, which gets its record when it has ended.
pub(crate) fn expect(pending: Pending) {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner).push(pending);
}

/// Work whose times were not known now has them.
pub(crate) extern "C" fn retime(id: u64, start: u64, end: u64, done_at: u64) {
    let mut all = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
    for pending in all.iter_mut().filter(|pending| pending.work.id == id) {
        (pending.work.start, pending.work.end, pending.work.done_at) = (start, end, done_at);
    }
}

/// Brings what a pool has, and returns when the client has got it.
pub(crate) fn empty(pool: u64) {
    let (done, is_done) = channel();
    let sent = COURIER.lock().unwrap_or_else(PoisonError::into_inner).send((pool, done));
    // Nobody answers where the thread could not be started.
    let _ = sent.map(|()| is_done.recv());
}

fn run(requests: Receiver<Request>) {
    loop {
        let request = match requests.recv_timeout(NAP) {
            Ok(request) => Some(request),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        collect();
        if let Some((pool, done)) = request {
            pool::deliver(pool);
            // Nobody waits any more: nothing to tell.
            let _ = done.send(());
        }
    }
}

/// Writes the records of what has ended.
fn collect() {
    let (late, now) = (link::options().late_buffers * 1_000_000, now());
    let is_due = |pending: &mut Pending| pending.work.done_at != NEVER && pending.work.done_at + late <= now;
    let mut due: Vec<Pending> = {
        let mut all = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
        all.extract_if(.., is_due).collect()
    };
    due.sort_by_key(|pending| pending.work.done_at);
    for pending in due {
        let (record, name) = pending.record();
        pool::add(pending.pool, record, name);
    }
}
