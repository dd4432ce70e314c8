//! The thread that has records handed over while a recording runs, and ends it: roctracer may wait long in a call.

use super::ffi::PoolHandle;
use super::hub::HUB;
use super::start::Loaded;
use crate::collector::contained::run_reader;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};

/// How often records are asked for.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// How long the end waits between two looks, at first and at most.
const SHORTEST_WAIT: Duration = Duration::from_micros(200);
const LONGEST_WAIT: Duration = Duration::from_millis(20);
/// How long it waits for work of which it is not known whether it comes, such as copies that need none.
const PATIENCE: Duration = Duration::from_millis(200);

/// What is asked of the thread.
#[derive(Debug)]
enum WorkerRequest {
    /// To have what is there handed over, and to say when that is done.
    Flush(SyncSender<()>),
    /// To end the recording, waiting no longer than until then for what has been launched, and to say when that is
    /// done.
    End(Instant, SyncSender<()>),
}

/// The way to the thread. If it is dropped, the recording ends.
#[derive(Clone, Debug)]
pub(super) struct WorkerRequests(Sender<WorkerRequest>);

impl WorkerRequests {
    /// Has what is there handed over, and waits for that.
    pub(super) fn flush(&self, patience: Duration) {
        self.give(WorkerRequest::Flush, patience);
    }

    /// Has the recording ended, and waits for that; `false` if it takes longer than `patience`.
    pub(super) fn end(&self, deadline: Instant, patience: Duration) -> bool {
        self.give(|done| WorkerRequest::End(deadline, done), patience)
    }

    fn give(&self, order: impl FnOnce(SyncSender<()>) -> WorkerRequest, patience: Duration) -> bool {
        let (done, is_done) = sync_channel(1);
        // A thread that has ended, by a panic too, keeps nobody waiting.
        self.0.send(order(done)).is_err() || is_done.recv_timeout(patience) != Err(RecvTimeoutError::Timeout)
    }
}

/// A recording, as its thread has it.
#[derive(Debug)]
pub(super) struct Worker {
    loaded: Arc<Loaded>,
    /// Where records of devices are, if any are recorded.
    pool: Option<PoolHandle>,
    commands: Receiver<WorkerRequest>,
    has_failed: bool,
}

impl Worker {
    /// Starts the thread of the recording that the hub has.
    pub(super) fn spawn(loaded: Arc<Loaded>, pool: Option<PoolHandle>) -> std::io::Result<WorkerRequests> {
        let (commands, received) = channel();
        let worker = Worker { loaded, pool, commands: received, has_failed: false };
        std::thread::Builder::new().name("kineto-roctracer".to_owned()).spawn(move || worker.run())?;
        Ok(WorkerRequests(commands))
    }

    fn run(mut self) {
        let mut done = None;
        if let Some(sink) = HUB.with(|recording| recording.sink.clone()) {
            run_reader(&sink, || done = self.record());
        }
        // Also after a panic: the hub is another recording's turn.
        self.loaded.let_go(self.pool.is_some());
        HUB.release();
        if let Some(done) = done {
            let _ = done.try_send(());
        }
    }

    /// Flushes until the recording ends; returns what waits for that.
    fn record(&mut self) -> Option<SyncSender<()>> {
        loop {
            match self.commands.recv_timeout(FLUSH_EVERY) {
                Ok(WorkerRequest::Flush(done)) => {
                    self.flush();
                    let _ = done.try_send(());
                }
                Ok(WorkerRequest::End(deadline, done)) => {
                    self.end(deadline);
                    return Some(done);
                }
                Err(RecvTimeoutError::Timeout) => self.flush(),
                Err(RecvTimeoutError::Disconnected) => {
                    self.end(Instant::now());
                    return None;
                }
            }
        }
    }

    fn flush(&mut self) {
        let Some(pool) = self.pool else { return };
        if let Err(error) = self.loaded.api.flush(pool)
            && !std::mem::replace(&mut self.has_failed, true)
        {
            HUB.with(|recording| recording.sink.note(format!("roctracer_flush_activity_expl: {error}")));
        }
    }

    /// Waits for what was launched, and gives up what the recording held. The program is not made to wait for its
    /// devices: it may be in the middle of a capture.
    fn end(&mut self, deadline: Instant) {
        HUB.with(|recording| recording.ends = true);
        let (mut wait, patience_ends) = (SHORTEST_WAIT, Instant::now() + PATIENCE);
        loop {
            self.flush();
            let [owed, hoped] = HUB.with(|recording| recording.owed()).unwrap_or_default();
            let now = Instant::now();
            let left = deadline.saturating_duration_since(now);
            let is_complete = owed == 0 && (hoped == 0 || now >= patience_ends);
            if left == Duration::ZERO || is_complete {
                break;
            }
            std::thread::sleep(wait.min(left));
            wait = (wait * 2).min(LONGEST_WAIT);
        }
        self.loaded.let_go(self.pool.is_some());
        // What came while that was done.
        self.flush();
        HUB.with(|recording| {
            let [owed, _] = recording.owed();
            if owed > 0 {
                recording
                    .sink
                    .note(format!("of {owed} launches there is no work: they had not ended in time, or failed"));
            }
        });
    }
}
