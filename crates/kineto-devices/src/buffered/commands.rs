//! Commands to the thread that reads a library's buffers, and their completion.

use super::pool::Pool;
use crate::RecordSink;
use kineto_base::wait::{Condvar, steady};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A channel to the reader thread of a recording.
#[derive(Debug)]
pub(crate) struct ReaderCommands {
    /// The pool on which the thread waits.
    pool: &'static Pool,
    state: Mutex<CommandState>,
    done: Condvar,
    /// Whether a command is pending.
    pending: AtomicBool,
}

#[derive(Debug, Default)]
struct CommandState {
    /// Drains requested, and drains completed.
    drains: u64,
    drained: u64,
    /// How long a drain waits for buffers that the library holds back.
    patience: Duration,
    end: Option<RecordingEnd>,
    ended: bool,
}

/// How a recording is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordingEnd {
    /// The end time, on the clock of the records.
    pub(crate) at: u64,
    /// How long to wait for device work that has begun.
    pub(crate) deadline: Instant,
}

/// Reports the end of the recording on drop, so that it is reported after a panic too.
#[derive(Debug)]
pub(crate) struct EndNotifier(pub(crate) Arc<ReaderCommands>);

impl Drop for EndNotifier {
    fn drop(&mut self) {
        self.0.notify_ended();
    }
}

/// A command to the reader thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReaderCommand {
    /// Read the complete buffers.
    Drain,
    /// End the recording.
    End(RecordingEnd),
    /// Check for other work.
    Poll,
}

/// How long the end of a recording may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndLimits {
    /// Until then, the end waits for device work that has begun.
    pub(crate) work: Instant,
    /// How long it waits for the library.
    pub(crate) library: Duration,
}

impl EndLimits {
    /// Divides the time left until `deadline`. The last part is for the calls that follow the wait for work: the
    /// library flushes its buffers and releases its memory.
    pub(crate) fn new(now: Instant, deadline: Instant) -> EndLimits {
        /// The time reserved for these calls, and so the least that a hung library costs.
        const CALLS: Duration = Duration::from_millis(500);
        let left = deadline.saturating_duration_since(now);
        EndLimits { work: now + (left - CALLS.min(left / 2)), library: left.max(CALLS) }
    }
}

impl ReaderCommands {
    /// Makes a channel to a thread that waits for buffers of this pool.
    pub(crate) fn new(pool: &'static Pool) -> ReaderCommands {
        ReaderCommands { pool, state: Mutex::default(), done: Condvar::new(), pending: AtomicBool::new(false) }
    }

    fn lock_state(&self) -> MutexGuard<'_, CommandState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests a drain of complete buffers, and waits for it, at most until `limit`.
    pub(crate) fn drain_buffers(&self, limit: Duration) {
        self.drain(limit, Duration::ZERO);
    }

    /// Does the same; the drain waits up to `patience` for buffers that the library holds back.
    pub(crate) fn drain(&self, limit: Duration, patience: Duration) {
        let mut state = self.lock_state();
        state.drains += 1;
        let drain = state.drains;
        state.patience = state.patience.max(patience);
        self.submit(state);
        self.wait_until(limit, |state| state.drained >= drain || state.ended);
    }

    /// Requests the end, and waits for it; returns `false` if it takes longer than `patience`.
    pub(crate) fn end_recording(&self, end: RecordingEnd, patience: Duration) -> bool {
        let mut state = self.lock_state();
        state.end = Some(end);
        self.submit(state);
        self.wait_until(patience, |state| state.ended)
    }

    /// Stops the recording at that time, on the clock of the records; returns `false`, and notes it, if the library hangs.
    pub(crate) fn stop_recording(&self, library: &str, sink: &RecordSink, at: u64, deadline: Instant) -> bool {
        let limits = EndLimits::new(steady(), deadline);
        let has_ended = self.end_recording(RecordingEnd { at, deadline: limits.work }, limits.library);
        if !has_ended {
            sink.note(format!("{library} hung during the stop; the records in its buffers are lost"));
        }
        has_ended
    }

    /// Makes the thread check for other work.
    pub(crate) fn request_poll(&self) {
        self.submit(self.lock_state());
    }

    fn submit(&self, state: MutexGuard<'_, CommandState>) {
        self.pending.store(true, Ordering::Release);
        drop(state);
        self.pool.wake_reader();
    }

    fn wait_until(&self, patience: Duration, is_done: impl Fn(&CommandState) -> bool) -> bool {
        let (state, until) = (self.lock_state(), steady() + patience);
        is_done(&self.done.wait_while_until(&self.state, state, until, |state| !is_done(state)))
    }

    /// Returns whether a command is pending.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Acquire)
    }

    /// Takes the next command.
    pub(crate) fn take_command(&self) -> Option<ReaderCommand> {
        if !self.pending.swap(false, Ordering::AcqRel) {
            return None;
        }
        let state = self.lock_state();
        Some(match state.end {
            Some(end) => ReaderCommand::End(end),
            None if state.drained < state.drains => ReaderCommand::Drain,
            None => ReaderCommand::Poll,
        })
    }

    /// Returns how many drains were requested, and takes their patience.
    pub(crate) fn requested_drains(&self) -> (u64, Duration) {
        let mut state = self.lock_state();
        (state.drains, std::mem::take(&mut state.patience))
    }

    /// Reports that all drains up to this number are done.
    pub(crate) fn finish_drains(&self, drains: u64) {
        self.lock_state().drained = drains;
        self.done.notify_all();
    }

    /// Reports that the recording has ended.
    fn notify_ended(&self) {
        self.lock_state().ended = true;
        self.done.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_gets_no_longer_than_the_limit() {
        let now = Instant::now();
        let limits = |ms| {
            let limits = EndLimits::new(now, now + Duration::from_millis(ms));
            ((limits.work - now).as_millis(), limits.library.as_millis())
        };
        assert_eq!([0, 200, 1000, 5000].map(limits), [(0, 500), (100, 500), (500, 1000), (4500, 5000)]);
        assert_eq!(EndLimits::new(now + Duration::from_secs(1), now).library.as_millis(), 500, "the deadline is over");
    }

    #[test]
    fn commands_are_taken_and_awaited() {
        static POOL: Pool = Pool::new();
        let (commands, long) = (ReaderCommands::new(&POOL), Duration::from_secs(60));
        let end = RecordingEnd { at: 7, deadline: Instant::now() };
        assert!(!commands.is_pending() && commands.take_command().is_none());
        commands.request_poll();
        assert!(commands.is_pending());
        assert_eq!(commands.take_command(), Some(ReaderCommand::Poll));
        commands.drain_buffers(Duration::ZERO);
        assert_eq!(commands.take_command(), Some(ReaderCommand::Drain));
        assert_eq!(commands.take_command(), None, "once");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                loop {
                    POOL.take_filled(Instant::now() + long, || commands.is_pending());
                    match commands.take_command() {
                        Some(ReaderCommand::Drain) => commands.finish_drains(commands.requested_drains().0),
                        Some(ReaderCommand::End(RecordingEnd { at: 7, .. })) => return commands.notify_ended(),
                        other => assert_eq!(other, None),
                    }
                }
            });
            commands.drain_buffers(long);
            assert_eq!(commands.lock_state().drained, 2);
            assert!(commands.end_recording(end, long));
        });
        commands.drain_buffers(long);
        assert!(!ReaderCommands::new(&POOL).end_recording(end, Duration::ZERO), "no thread answers");
    }
}
