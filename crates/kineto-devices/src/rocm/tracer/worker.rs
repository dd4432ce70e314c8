//! The thread that flushes records during a recording and ends it: calls of roctracer may block for long.

use super::ffi::PoolHandle;
use super::hub::HUB;
use super::start::Loaded;
use crate::library::contained::run_reader;
use kineto_base::channel::{Receiver, Sender, bounded, channel};
use kineto_base::os::thread;
use kineto_base::text::count_with_noun;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// How often records are flushed.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// The pause between polls at the end of a recording, at first and at most.
const SHORTEST_WAIT: Duration = Duration::from_micros(200);
const LONGEST_WAIT: Duration = Duration::from_millis(20);
/// How long the end waits for work that may not arrive, such as copies by the host.
const PATIENCE: Duration = Duration::from_millis(200);

/// A request to the thread.
#[derive(Debug)]
enum WorkerRequest {
    /// Flush, and signal the completion.
    Flush(Sender<()>),
    /// End the recording, wait until the deadline for launched work, and signal the completion.
    End(Instant, Sender<()>),
}

/// A channel to the thread. Dropping it ends the recording.
#[derive(Clone, Debug)]
pub(super) struct WorkerRequests(Sender<WorkerRequest>);

impl WorkerRequests {
    /// Requests a flush, and waits for it.
    pub(super) fn flush_pool(&self, patience: Duration) {
        self.send_request(WorkerRequest::Flush, patience);
    }

    /// Requests the end, and waits for it; returns `false` if it takes longer than `patience`.
    pub(super) fn end_recording(&self, deadline: Instant, patience: Duration) -> bool {
        self.send_request(|done| WorkerRequest::End(deadline, done), patience)
    }

    fn send_request(&self, order: impl FnOnce(Sender<()>) -> WorkerRequest, patience: Duration) -> bool {
        let (done, is_done) = bounded(1);
        // If the thread has ended, even by a panic, this returns at once.
        self.0.send(order(done)).is_err() || is_done.recv_timeout(patience) != Err(RecvTimeoutError::Timeout)
    }
}

/// The state of a recording's thread.
#[derive(Debug)]
pub(super) struct Worker {
    loaded: Arc<Loaded>,
    /// The pool of device records, if any are recorded.
    pool: Option<PoolHandle>,
    commands: Receiver<WorkerRequest>,
    has_failed: bool,
}

impl Worker {
    /// Starts the thread of the hub's recording.
    pub(super) fn spawn(loaded: Arc<Loaded>, pool: Option<PoolHandle>) -> std::io::Result<WorkerRequests> {
        let (commands, received) = channel();
        let worker = Worker { loaded, pool, commands: received, has_failed: false };
        thread::spawn("kineto-roctracer", Box::new(move || worker.run()))?;
        Ok(WorkerRequests(commands))
    }

    fn run(mut self) {
        let mut done = None;
        if let Some(sink) = HUB.with_recording(|recording| recording.sink.clone()) {
            run_reader(&sink, || done = self.flush_until_end());
        }
        // Also after a panic: another recording may acquire the hub.
        self.loaded.disable_recording(self.pool.is_some());
        HUB.release();
        if let Some(done) = done {
            let _ = done.try_send(());
        }
    }

    /// Flushes until the recording ends; returns the channel that waits for the end.
    fn flush_until_end(&mut self) -> Option<Sender<()>> {
        loop {
            match self.commands.recv_timeout(FLUSH_EVERY) {
                Ok(WorkerRequest::Flush(done)) => {
                    self.flush_pool();
                    let _ = done.try_send(());
                }
                Ok(WorkerRequest::End(deadline, done)) => {
                    self.end_recording(deadline);
                    return Some(done);
                }
                Err(RecvTimeoutError::Timeout) => self.flush_pool(),
                Err(RecvTimeoutError::Disconnected) => {
                    self.end_recording(Instant::now());
                    return None;
                }
            }
        }
    }

    fn flush_pool(&mut self) {
        let Some(pool) = self.pool else { return };
        if let Err(error) = self.loaded.api.flush_pool(pool)
            && !std::mem::replace(&mut self.has_failed, true)
        {
            HUB.with_recording(|recording| recording.sink.note(format!("roctracer_flush_activity_expl: {error}")));
        }
    }

    /// Waits for launched work, and releases the recording's resources. The program's devices are never synchronized:
    /// a capture may be in progress.
    fn end_recording(&mut self, deadline: Instant) {
        HUB.with_recording(|recording| recording.is_ending = true);
        let (mut wait, patience_ends) = (SHORTEST_WAIT, Instant::now() + PATIENCE);
        loop {
            self.flush_pool();
            let [owed, hoped] = HUB.with_recording(|recording| recording.pending_counts()).unwrap_or_default();
            let now = Instant::now();
            let left = deadline.saturating_duration_since(now);
            let is_complete = owed == 0 && (hoped == 0 || now >= patience_ends);
            if left == Duration::ZERO || is_complete {
                break;
            }
            std::thread::sleep(wait.min(left));
            wait = (wait * 2).min(LONGEST_WAIT);
        }
        self.loaded.disable_recording(self.pool.is_some());
        // Records that arrived meanwhile.
        self.flush_pool();
        HUB.with_recording(|recording| {
            let [owed, _] = recording.pending_counts();
            if owed > 0 {
                recording.sink.note(format!(
                    "{} without device work: not ended in time, or failed",
                    count_with_noun(owed as u64, "launch")
                ));
            }
        });
    }
}
