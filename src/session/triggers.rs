//! Dumps that something triggers: which triggers write one and when, and how the others are counted.

use super::Session;
use super::exit::registered_sessions;
use crate::config::DumpTrigger;
use crate::diag::diag;
use crate::os::{fork, signal};
use crate::recorder::{TriggerCause, TriggerEvent};
use crate::text::count_with_noun;
use crate::time::Timestamp;
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Decides about the triggers of a session.
///
/// A trigger is answered by a dump some time later, so that the file shows what follows. Until then, further triggers join that
/// dump; after it, triggers are skipped until the interval is over.
#[derive(Debug, Default)]
pub(crate) struct DumpControl {
    session: OnceLock<Weak<Session>>,
    state: fork::Own<DumpState>,
}

#[derive(Debug, Default)]
struct DumpState {
    /// The thread of the dump that was triggered and is not taken yet.
    waiting: Option<Waiting>,
    /// When the last dump was triggered.
    last: Option<Instant>,
    counts: TriggerCounts,
    /// Whether a trigger was ever skipped, which is reported once.
    has_skipped: bool,
}

#[derive(Debug)]
struct Waiting {
    /// When the dump is taken.
    due: Instant,
    thread: Option<Thread>,
}

/// The triggers that have no dump of their own.
#[derive(Clone, Copy, Debug, Default)]
struct TriggerCounts {
    /// Those that happened while a dump was waiting, since it was triggered.
    joined: u64,
    /// Those too soon after a dump, since then.
    skipped: u64,
}

impl DumpControl {
    /// Sets the session, once.
    pub(super) fn set_session(&self, session: &Arc<Session>) {
        let _ = self.session.set(Arc::downgrade(session));
    }

    /// Answers the triggers that were posted.
    pub(super) fn answer_triggers(&self) {
        let Some(session) = self.session.get().and_then(Weak::upgrade) else { return };
        let triggers = session.recorder.triggers();
        while let Some(trigger) = triggers.take() {
            self.answer(&session, trigger);
        }
        match triggers.take_overflowed() {
            0 => {}
            overflowed => self.state.lock().count(overflowed),
        }
    }

    fn answer(&self, session: &Arc<Session>, trigger: TriggerEvent) {
        let dumps = &session.settings.first_config().dumps;
        let mut state = self.state.lock();
        let is_early = state.last.is_some_and(|last| last.elapsed() < dumps.interval);
        if state.waiting.is_some() || is_early {
            state.count(1);
            let is_first_skipped = state.waiting.is_none() && !std::mem::replace(&mut state.has_skipped, true);
            drop(state);
            if is_first_skipped {
                let (cause, interval) = (trigger.cause, dumps.interval);
                diag!(
                    Warning,
                    "dump",
                    "no dump for: {cause}: one was triggered less than {interval:?} ago; lower DUMP_INTERVAL for more"
                );
            }
            return;
        }
        let now = Instant::now();
        state.last = Some(now);
        state.waiting = Some(Waiting { due: now + dumps.after, thread: None });
        drop(state);
        // The end of the process waits for it.
        let active = session.writes.begin_dumping();
        let dumping = session.clone();
        let take = move || {
            dumping.triggers.wait_until_due();
            dumping.take_triggered_dump(trigger);
            drop((active, dumping));
        };
        match std::thread::Builder::new().name("kineto-dump".into()).spawn(take) {
            Ok(thread) => self.state.lock().waiting.iter_mut().for_each(|it| it.thread = Some(thread.thread().clone())),
            Err(error) => {
                self.state.lock().waiting = None;
                diag!(
                    Error,
                    "dump",
                    "no dump for: {}: cannot start a thread: {error}; end other threads",
                    trigger.cause
                );
            }
        }
    }

    /// Waits until the triggered dump is due.
    fn wait_until_due(&self) {
        let left =
            || self.state.lock().waiting.as_ref().map(|waiting| waiting.due.saturating_duration_since(Instant::now()));
        while let Some(left) = left().filter(|left| !left.is_zero()) {
            std::thread::park_timeout(left);
        }
    }

    /// Makes a waiting dump happen now, because the recording is about to end, and waits for that until `deadline`.
    pub(super) fn hurry(&self, deadline: Instant) {
        const INTERVAL: Duration = Duration::from_millis(1);
        self.answer_triggers();
        while Instant::now() < deadline {
            let mut state = self.state.lock();
            let Some(waiting) = &mut state.waiting else { return };
            waiting.due = Instant::now();
            waiting.thread.iter().for_each(Thread::unpark);
            drop(state);
            std::thread::sleep(INTERVAL);
        }
    }
}

impl DumpState {
    /// Counts triggers that have no dump of their own.
    fn count(&mut self, triggers: u64) {
        let count = if self.waiting.is_some() { &mut self.counts.joined } else { &mut self.counts.skipped };
        *count += triggers;
    }
}

impl Session {
    /// Writes the dump for a trigger.
    fn take_triggered_dump(self: &Arc<Self>, trigger: TriggerEvent) {
        let counts = std::mem::take(&mut self.triggers.state.lock().counts);
        let cause = trigger.cause.to_string();
        let dumped = self.dump_labeled(&trigger.cause.label(), &cause, |metadata| {
            metadata.add_count("dump_triggered_at_ns", Timestamp::from(trigger.at).as_nanos());
            metadata.add_count("dump_triggers_joined", counts.joined);
            metadata.add_count("dump_triggers_skipped", counts.skipped);
        });
        self.triggers.state.lock().waiting = None;
        match dumped {
            Ok(_) if counts.joined > 0 => {
                let joined = count_with_noun(counts.joined, "more trigger");
                diag!(Stage, "dump", "dumping the newest records, because {cause}, and for {joined}");
            }
            Ok(_) => diag!(Stage, "dump", "dumping the newest records, because {cause}"),
            Err(error) => diag!(Warning, "dump", "no dump for: {cause}: {error}"),
        }
    }

    /// Posts a trigger that is not found by a hook, if it is configured.
    pub(super) fn post_trigger(&self, wanted: &DumpTrigger, cause: TriggerCause) {
        if self.settings.first_config().dumps.triggers.contains(wanted) && self.is_recording() {
            self.recorder.post_trigger(cause);
        }
    }

    /// Watches the signals that end the process, and the signal and panics that trigger dumps, as configured.
    pub(crate) fn watch_process(&self) {
        let config = self.settings.first_config();
        if config.flush_on_signals {
            signal::watch_signals();
        }
        let triggers = &config.dumps.triggers;
        if triggers.contains(&DumpTrigger::Panic) {
            watch_panics();
        }
        if triggers.contains(&DumpTrigger::Signal) && !signal::watch_dump_signal() {
            diag!(
                Warning,
                "dump",
                "SIGUSR2 triggers no dump: the program handles or ignores that signal; call Profiler::dump when it \
                 arrives, or remove `signal` from DUMP_ON"
            );
        }
    }
}

/// Calls for a dump of each session that SIGUSR2 triggers.
pub(crate) fn dump_on_signal() {
    for session in triggered_sessions() {
        session.post_trigger(&DumpTrigger::Signal, TriggerCause::Signal);
    }
}

/// Returns the sessions of this process; none while the list is being changed, because that may have panicked.
fn triggered_sessions() -> Vec<Arc<Session>> {
    let sessions = registered_sessions().try_lock();
    sessions.map(|sessions| sessions.iter().filter_map(Weak::upgrade).collect()).unwrap_or_default()
}

/// Calls for a dump whenever a thread panics, after the hook so far.
fn watch_panics() {
    static IS_WATCHING: AtomicBool = AtomicBool::new(false);
    // A thread that panics may not change the hook.
    if std::thread::panicking() || IS_WATCHING.swap(true, Ordering::Relaxed) {
        return;
    }
    let earlier = panic::take_hook();
    panic::set_hook(Box::new(move |panicked| {
        earlier(panicked);
        let sessions = triggered_sessions();
        sessions.iter().for_each(|session| session.post_trigger(&DumpTrigger::Panic, TriggerCause::Panic));
        if cfg!(panic = "abort") {
            wait_for_dumps(&sessions);
        }
    }));
}

/// Waits for the triggered dumps, because the process ends when this returns.
fn wait_for_dumps(sessions: &[Arc<Session>]) {
    let now = Instant::now();
    for session in sessions {
        let deadline = session.settings.exit_deadline(now);
        session.triggers.hurry(deadline);
        session.writes.wait_for_others(deadline, true);
    }
}
