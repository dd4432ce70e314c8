//! Dumps that something triggers: which triggers write one and when, and how the others are counted.

use super::Session;
use super::background::wait_for_saves;
use super::deadline_after;
use super::dumps::DumpSource;
use super::exit::registered_sessions;
use super::lock_within;
use super::observer::SessionEvent;
use crate::config::{DumpConfig, DumpTrigger};
use crate::diag::diag;
use crate::error::Error;
use crate::os::{fork, signal};
use crate::recorder::{TriggerCause, TriggerEvent, TriggerQueue};
use crate::text::count_with_noun;
use crate::time::Timestamp;
use std::fmt::Display;
use std::panic;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Decides about the triggers of a session.
///
/// A trigger causes a dump some time later, so that the file shows what follows. Until then, further triggers join that dump.
/// Afterwards, triggers are skipped until the interval is over.
#[derive(Debug)]
pub(crate) struct DumpControl {
    config: DumpConfig,
    session: OnceLock<Weak<Session>>,
    state: fork::Own<DumpState>,
}

#[derive(Debug, Default)]
struct DumpState {
    pending: Option<PendingDump>,
    /// When the last dump was triggered.
    last: Option<Instant>,
    counts: TriggerCounts,
    /// Whether a trigger was ever skipped, which is reported once.
    has_skipped: bool,
}

/// A dump that was triggered and is not taken yet.
#[derive(Debug)]
struct PendingDump {
    trigger: TriggerEvent,
    due: Instant,
    /// The thread that waits until it is due.
    thread: Option<Thread>,
}

/// The triggers without a dump of their own.
#[derive(Clone, Copy, Debug, Default)]
struct TriggerCounts {
    /// Those that joined the dump.
    joined: u64,
    /// Those that were skipped since the dump before.
    skipped: u64,
}

impl DumpControl {
    pub(super) fn new(config: DumpConfig) -> DumpControl {
        DumpControl { config, session: OnceLock::new(), state: fork::Own::default() }
    }

    /// Sets the session, once.
    pub(super) fn set_session(&self, session: &Arc<Session>) {
        let _ = self.session.set(Arc::downgrade(session));
    }

    /// Decides about the triggers that were posted.
    pub(super) fn handle_triggers(self: &Arc<Self>, posted: &TriggerQueue) {
        while let Some(trigger) = posted.take() {
            self.handle_trigger(trigger);
        }
        match posted.take_overflowed() {
            0 => {}
            overflowed => self.state.lock().count(overflowed),
        }
    }

    fn handle_trigger(self: &Arc<Self>, trigger: TriggerEvent) {
        // After this one, there is no other.
        let is_fatal = cfg!(panic = "abort") && matches!(trigger.cause, TriggerCause::Panic);
        let mut state = self.state.lock();
        let is_early = state.last.is_some_and(|last| last.elapsed() < self.config.interval);
        if state.pending.is_some() || is_early && !is_fatal {
            state.count(1);
            let is_news = state.pending.is_none() && !std::mem::replace(&mut state.has_skipped, true);
            drop(state);
            if is_news {
                let (cause, interval) = (trigger.cause, self.config.interval);
                diag!(
                    Warning,
                    "dump",
                    "no dump for: {cause}: one was triggered less than {interval:?} ago; lower DUMP_INTERVAL for more"
                );
            }
            return;
        }
        state.last = Some(Instant::now());
        state.pending = Some(PendingDump { trigger, due: deadline_after(self.config.after), thread: None });
        drop(state);
        let control = self.clone();
        let thread = std::thread::Builder::new().name("kineto-dump".into());
        match thread.spawn(move || control.dump_when_due()) {
            Ok(thread) => {
                let thread = thread.thread().clone();
                self.state.lock().pending.iter_mut().for_each(|pending| pending.thread = Some(thread.clone()));
            }
            Err(error) => {
                self.state.lock().pending = None;
                let error = Error::io("start a thread for", Path::new("a dump"), error, "end other threads");
                let session = self.session.get().and_then(Weak::upgrade);
                if let Some(session) = &session {
                    report_failure(session, &trigger.cause, error);
                }
            }
        }
    }

    /// Takes the pending dump when it is due, unless the end of the recording has taken it.
    fn dump_when_due(&self) {
        let time_left = || Some(self.state.lock().pending.as_ref()?.due.saturating_duration_since(Instant::now()));
        while let Some(left) = time_left().filter(|left| !left.is_zero()) {
            std::thread::park_timeout(left);
        }
        self.dump_now();
    }

    /// Takes the pending dump, if there is one.
    fn dump_now(&self) {
        let mut state = self.state.lock();
        let Some(PendingDump { trigger, thread, .. }) = state.pending.take() else { return };
        let counts = std::mem::take(&mut state.counts);
        drop(state);
        thread.iter().for_each(Thread::unpark);
        let Some(session) = self.session.get().and_then(Weak::upgrade) else { return };
        let cause = trigger.cause;
        match session.dump_for_trigger(trigger, counts) {
            Ok(()) if counts.joined > 0 => {
                let joined = count_with_noun(counts.joined, "more trigger");
                diag!(Stage, "dump", "dumping the newest records: {cause}; and for {joined}");
            }
            Ok(()) => diag!(Stage, "dump", "dumping the newest records: {cause}"),
            Err(error) => report_failure(&session, &cause, error),
        }
    }

    /// Takes the dump that was triggered, because the recording or the process is about to end.
    pub(super) fn finish_dump(self: &Arc<Self>, posted: &TriggerQueue) {
        self.handle_triggers(posted);
        self.dump_now();
    }
}

/// Reports that a trigger has no dump.
fn report_failure(session: &Session, cause: &impl Display, error: Error) {
    diag!(Warning, "dump", "no dump for: {cause}: {error}");
    session.recording.observers.notify(SessionEvent::DumpEnded { reason: cause.to_string(), dump: Err(error) });
}

impl Default for DumpControl {
    fn default() -> DumpControl {
        DumpControl::new(DumpConfig::default())
    }
}

impl DumpState {
    /// Counts triggers without a dump of their own.
    fn count(&mut self, triggers: u64) {
        let count = if self.pending.is_some() { &mut self.counts.joined } else { &mut self.counts.skipped };
        *count += triggers;
    }
}

impl Session {
    /// Takes the dump that was triggered, because the recording or the process is about to end.
    pub(super) fn finish_dump(&self) {
        self.triggers.finish_dump(self.recorder.triggers());
    }

    /// Begins to write the dump for a trigger; does nothing if there are no records.
    fn dump_for_trigger(&self, trigger: TriggerEvent, counts: TriggerCounts) -> Result<(), Error> {
        let output = self.dump_output()?;
        let mut trace = self.recording.snapshot()?;
        if trace.why_empty().is_some() {
            return Ok(());
        }
        let metadata = trace.separate_metadata();
        metadata.add_count("dump_triggered_at_ns", Timestamp::from(trigger.at).as_nanos());
        metadata.add_count("dump_triggers_joined", counts.joined);
        metadata.add_count("dump_triggers_skipped", counts.skipped);
        self.write_dump(DumpSource::Taken(trace), &output, &trigger.cause.label(), &trigger.cause.to_string()).map(drop)
    }

    /// Posts a trigger that no hook finds, if it is configured.
    fn post_trigger(&self, wanted: &DumpTrigger, cause: TriggerCause) {
        if !self.triggers.config.triggers.contains(wanted) {
            return;
        }
        if self.is_recording() {
            self.recorder.post_trigger(cause);
        } else {
            diag!(Warning, "dump", "no dump for: {cause}: nothing is recorded now; start or resume the recording");
        }
    }

    /// Watches the signals that end the process, and the signal and panics that trigger dumps, as configured.
    pub(crate) fn watch_process(&self) {
        if self.settings.first_config().flush_on_signals {
            signal::watch_signals();
        }
        let triggers = &self.triggers.config.triggers;
        // A panic that aborts ends the wait of any dump.
        if triggers.contains(&DumpTrigger::Panic) || cfg!(panic = "abort") && !triggers.is_empty() {
            watch_panics();
        }
        if triggers.contains(&DumpTrigger::Signal) && !signal::watch_dump_signal() {
            let why = if cfg!(unix) { "the program handles or ignores it" } else { "there are no signals here" };
            diag!(
                Warning,
                "dump",
                "SIGUSR2 triggers no dump: {why}; call Profiler::dump instead of `signal` in DUMP_ON"
            );
        }
    }
}

/// Posts a trigger in each session that SIGUSR2 triggers.
pub(crate) fn dump_on_signal() {
    const WAIT: Duration = Duration::from_secs(1);
    let sessions = lock_within(registered_sessions(), WAIT).map(|sessions| sessions.clone()).unwrap_or_default();
    for session in sessions.iter().filter_map(Weak::upgrade) {
        session.post_trigger(&DumpTrigger::Signal, TriggerCause::Signal);
    }
}

/// Posts a trigger whenever a thread panics, and calls the hook so far.
fn watch_panics() {
    static IS_WATCHING: AtomicBool = AtomicBool::new(false);
    // A thread that panics may not change the hook.
    if std::thread::panicking() || IS_WATCHING.swap(true, Ordering::Relaxed) {
        return;
    }
    let earlier = panic::take_hook();
    panic::set_hook(Box::new(move |panicked| {
        // The thread may have panicked while it changed the list.
        let sessions = registered_sessions().try_lock().map(|sessions| sessions.clone()).unwrap_or_default();
        let sessions: Vec<_> = sessions.iter().filter_map(Weak::upgrade).collect();
        sessions.iter().for_each(|session| session.post_trigger(&DumpTrigger::Panic, TriggerCause::Panic));
        earlier(panicked);
        if cfg!(panic = "abort") {
            dump_before_abort(sessions);
        }
    }));
}

/// Writes the dumps that were triggered. The process ends when this returns, at the latest after the time limit of files.
fn dump_before_abort(sessions: Vec<Arc<Session>>) {
    let now = Instant::now();
    let Some(deadline) = sessions.iter().map(|session| session.settings.exit_deadline(now)).max() else { return };
    let (done, is_done) = mpsc::channel();
    // Another thread takes no lock that the panicking one holds for good, or hangs alone.
    let dump = move || {
        sessions.iter().for_each(|session| session.finish_dump());
        wait_for_saves(now);
        let _ = done.send(());
    };
    if std::thread::Builder::new().name("kineto-dump".into()).spawn(dump).is_ok() {
        let _ = is_done.recv_timeout(deadline.saturating_duration_since(now) + super::saving::TIME_TO_CLOSE);
    }
}
