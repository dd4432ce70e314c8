//! Dumps that something triggers: which triggers write one and when, and how the others are counted.

use super::Session;
use super::deadline_after;
use super::exit::live_sessions;
use super::observer::SessionEvent;
use super::writes::{ActiveWrite, ProcessEnd, TIME_TO_CLOSE};
use crate::config::{DumpConfig, DumpTrigger};
use crate::diag::diag;
use crate::error::{Error, ErrorKind};
use crate::os::{fork, signal, thread};
use crate::recorder::{TriggerCause, TriggerEvent, TriggerQueue};
use crate::text::count_with_noun;
use crate::time::Timestamp;
use crate::wait::{park_until, sleep, steady, unpark};
use kineto_base::channel::channel;
use std::fmt::Display;
use std::panic;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, Weak};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Decides about the triggers of a session.
///
/// A trigger causes a dump some time later, so that the file shows what follows. Until then, further triggers join that dump.
/// Afterwards, triggers are skipped until the interval is over.
#[derive(Debug)]
pub(crate) struct DumpControl {
    config: DumpConfig,
    session: Weak<Session>,
    state: fork::Own<DumpState>,
}

#[derive(Debug, Default)]
struct DumpState {
    pending: Option<PendingDump>,
    /// Those that threads take now.
    taking: Vec<Weak<TakingDump>>,
    /// Until when triggers are skipped, since the last dump.
    skips_until: Option<Instant>,
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

/// A dump that a thread takes now. It keeps the end of the recording and of the process waiting, until it is dropped.
#[derive(Debug)]
struct TakingDump {
    thread: i64,
    cause: TriggerCause,
    /// Whether a writer has the records: the recording may end, and only the report of a failure may follow.
    is_taken: AtomicBool,
}

/// How long triggers are skipped at most after a dump that failed.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The triggers without a dump of their own.
#[derive(Clone, Copy, Debug, Default)]
struct TriggerCounts {
    /// Those that joined the dump.
    joined: u64,
    /// Those that were skipped since the dump before.
    skipped: u64,
}

impl DumpControl {
    pub(super) fn new(config: DumpConfig, session: Weak<Session>) -> DumpControl {
        DumpControl { config, session, state: fork::Own::default() }
    }

    /// Decides about the triggers that were posted.
    pub(super) fn handle_triggers(self: &Arc<Self>, posted: &TriggerQueue) {
        loop {
            // The end of the recording sees each trigger either in the queue or as a pending dump.
            let state = self.state.lock();
            let Some(trigger) = posted.take() else { break };
            self.handle_trigger(trigger, state);
        }
        match posted.take_overflowed() {
            0 => {}
            overflowed => self.state.lock().count(overflowed),
        }
    }

    fn handle_trigger(self: &Arc<Self>, trigger: TriggerEvent, mut state: MutexGuard<'_, DumpState>) {
        // After this one, there is no other.
        let is_fatal = cfg!(panic = "abort") && matches!(trigger.cause, TriggerCause::Panic);
        let is_early = state.skips_until.is_some_and(|until| steady() < until);
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
        state.skips_until = Some(deadline_after(self.config.interval));
        state.pending = Some(PendingDump { trigger, due: deadline_after(self.config.after), thread: None });
        drop(state);
        let control = self.clone();
        match thread::spawn("kineto-dump", Box::new(move || control.dump_when_due())) {
            Ok(thread) => {
                let thread = thread.thread().clone();
                self.state.lock().pending.iter_mut().for_each(|pending| pending.thread = Some(thread.clone()));
            }
            Err(error) => {
                if self.state.lock().pending.take().is_none() {
                    // The end of the recording has taken it.
                    return;
                }
                let error = Error::io("start a thread for", Path::new("a dump"), error, "end other threads");
                let session = self.session.upgrade();
                if let Some(session) = &session {
                    report_failure(session, &trigger.cause, error);
                }
            }
        }
    }

    /// Takes the pending dump when it is due, unless the end of the recording has taken it.
    fn dump_when_due(&self) {
        let due = || Some(self.state.lock().pending.as_ref()?.due).filter(|due| *due > steady());
        while let Some(due) = due() {
            park_until(Some(due));
        }
        self.dump_now();
    }

    /// Takes the pending dump, if there is one.
    fn dump_now(&self) {
        let mut state = self.state.lock();
        let Some(PendingDump { trigger, thread, .. }) = state.pending.take() else { return };
        let counts = std::mem::take(&mut state.counts);
        let (thread_id, cause, is_taken) = (thread::id(), trigger.cause, AtomicBool::new(false));
        let taking = Arc::new(TakingDump { thread: thread_id, cause, is_taken });
        state.taking.retain(|dump| dump.strong_count() > 0);
        state.taking.push(Arc::downgrade(&taking));
        drop(state);
        thread.iter().for_each(unpark);
        let Some(session) = self.session.upgrade() else { return };
        let dumped = session.dump_for_trigger(trigger, counts);
        taking.is_taken.store(true, Ordering::Relaxed);
        match dumped {
            Ok(()) if counts.joined > 0 => {
                let joined = count_with_noun(counts.joined, "more trigger");
                diag!(Stage, "dump", "dumping the newest records: {cause}; and for {joined}");
            }
            Ok(()) => diag!(Stage, "dump", "dumping the newest records: {cause}"),
            Err(error) => report_failure(&session, &cause, error),
        }
    }

    /// Takes the dump that was triggered, and waits for those that other threads take: until their records are taken, or
    /// if the process ends at `deadline`, until they are being written or their failures are reported.
    fn finish_dump(self: &Arc<Self>, posted: &TriggerQueue, deadline: Option<Instant>) {
        const INTERVAL: Duration = Duration::from_millis(1);
        self.handle_triggers(posted);
        self.dump_now();
        let own = thread::id();
        let awaited = |dump: &Weak<TakingDump>| {
            let dump = dump.upgrade().filter(|dump| dump.thread != own)?;
            let is_taken = dump.is_taken.load(Ordering::Relaxed);
            (deadline.is_some() || !is_taken).then_some((dump.cause, is_taken))
        };
        let first_awaited = || self.state.lock().taking.iter().find_map(awaited);
        while let Some((cause, is_taken)) = first_awaited() {
            if deadline.is_some_and(|deadline| steady() >= deadline) {
                if !is_taken {
                    diag!(Error, "dump", "no dump for: {cause}: the process ended first; raise flush_timeout");
                }
                return;
            }
            sleep(INTERVAL);
        }
    }

    /// Makes triggers after a failed dump wait no longer than a second.
    pub(super) fn note_failure(&self) {
        let mut state = self.state.lock();
        state.skips_until = state.skips_until.map(|until| until.min(deadline_after(RETRY_AFTER)));
    }
}

/// Reports that a trigger has no dump.
fn report_failure(session: &Session, cause: &impl Display, error: Error) {
    session.triggers.note_failure();
    diag!(Warning, "dump", "no dump for: {cause}: {error}");
    session.recording.observers.notify(SessionEvent::DumpEnded { reason: cause.to_string(), dump: Err(error) });
}

impl DumpState {
    /// Counts triggers without a dump of their own.
    fn count(&mut self, triggers: u64) {
        let count = if self.pending.is_some() { &mut self.counts.joined } else { &mut self.counts.skipped };
        *count += triggers;
    }
}

impl Session {
    /// Takes the dump that was triggered, because the recording ends, or the process at `deadline`.
    pub(super) fn finish_dump(&self, deadline: Option<Instant>) {
        self.triggers.finish_dump(self.recorder.triggers(), deadline);
    }

    /// Begins to write the dump for a trigger.
    ///
    /// # Errors
    /// If no recording is running, if there are no records, or if no thread can be started.
    fn dump_for_trigger(&self, trigger: TriggerEvent, counts: TriggerCounts) -> Result<(), Error> {
        let output = self.dump_output()?;
        let mut trace = self.recording.snapshot()?;
        if let Some(why) = trace.why_empty() {
            return Err(Error::new(ErrorKind::NotActive, why));
        }
        let metadata = trace.separate_metadata();
        metadata.add_count("dump_triggered_at_ns", Timestamp::from(trigger.at).as_nanos());
        metadata.add_count("dump_triggers_joined", counts.joined);
        metadata.add_count("dump_triggers_skipped", counts.skipped);
        let (triggers, cause) = (Some(self.triggers.clone()), trigger.cause);
        self.write_dump(|| Ok(trace), triggers, &output, &cause.label(), &cause.to_string()).map(drop)
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
    for session in live_sessions(Duration::from_secs(1)) {
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
        let sessions = live_sessions(Duration::ZERO);
        sessions.iter().for_each(|session| session.post_trigger(&DumpTrigger::Panic, TriggerCause::Panic));
        earlier(panicked);
        if cfg!(panic = "abort") {
            dump_before_abort(sessions);
        }
    }));
}

/// Writes the dumps that were triggered. The process ends when this returns, at the latest after the time limit of files.
fn dump_before_abort(sessions: Vec<Arc<Session>>) {
    let now = steady();
    let Some(deadline) = sessions.iter().map(|session| session.settings.exit_deadline(now)).max() else { return };
    let (done, is_done) = channel();
    // Another thread takes no lock that the panicking one holds for good, or hangs alone.
    let dump = move || {
        let end = ProcessEnd::begin(now);
        sessions.iter().for_each(|session| session.finish_dump(Some(deadline)));
        end.wait_for(ActiveWrite::is_in_background);
        let _ = done.send(());
    };
    if thread::spawn("kineto-dump", Box::new(dump)).is_ok() {
        let _ = is_done.recv_timeout(deadline.saturating_duration_since(now) + TIME_TO_CLOSE);
    }
}

#[cfg(test)]
mod tests {
    use super::super::observer::{NamedObserver, SessionObserver};
    use super::*;
    use crate::config::{Config, Output};
    use std::sync::Mutex;

    #[derive(Clone, Debug, Default)]
    struct DumpLog(Arc<Mutex<Vec<String>>>);

    impl SessionObserver for DumpLog {
        fn dump_ended(&self, reason: &str, dump: Result<&Path, &Error>) {
            let dump = dump.map_or_else(ToString::to_string, |_| "written".to_owned());
            self.0.lock().unwrap().push(format!("{reason}: {dump}"));
        }
    }

    impl DumpLog {
        fn take(&self) -> Vec<String> {
            std::mem::take(&mut *self.0.lock().unwrap())
        }
    }

    /// Returns a session that records nothing yet, dumps at once when a thread panics, and reports to the log.
    fn session_with_dumps() -> (Arc<Session>, DumpLog) {
        let mut config = Config::default();
        config.output = Output::Exact("/no/such/folder/a.json".into());
        config.dumps.triggers = vec![DumpTrigger::Panic];
        config.dumps.after = Duration::ZERO;
        let (session, log) = (Session::with_config(config), DumpLog::default());
        session.set_observers(vec![NamedObserver::new(log.clone())]);
        session.start().unwrap();
        (session, log)
    }

    fn trigger(session: &Session) {
        session.post_trigger(&DumpTrigger::Panic, TriggerCause::Panic);
        session.triggers.handle_triggers(session.recorder.triggers());
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn end_waits_for_a_dump_that_a_thread_takes() {
        let (session, log) = session_with_dumps();
        // The thread needs the state for the snapshot.
        let state = session.recording.lock_state().unwrap();
        trigger(&session);
        while session.triggers.state.lock().taking.is_empty() {
            std::thread::yield_now();
        }
        session.finish_dump(Some(Instant::now()));
        let (done, ended) = channel();
        for deadline in [None, Some(deadline_after(Duration::MAX))] {
            let (owned, done, log) = (session.clone(), done.clone(), log.clone());
            let finish = move || {
                owned.finish_dump(deadline);
                done.send(deadline.is_none() || !log.take().is_empty()).unwrap();
            };
            std::thread::Builder::new().spawn(finish).unwrap();
        }
        assert!(ended.recv_timeout(Duration::from_millis(50)).is_err(), "the dump was not taken");
        drop(state);
        assert_eq!([ended.recv().unwrap(), ended.recv().unwrap()], [true; 2], "the failure is reported");
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn failed_dump_is_reported_and_tried_again() {
        let (session, log) = session_with_dumps();
        let retries_soon = || {
            let until = session.triggers.state.lock().skips_until.replace(deadline_after(Duration::MAX));
            until.is_some_and(|until| until <= Instant::now() + RETRY_AFTER)
        };
        trigger(&session);
        session.finish_dump(Some(deadline_after(Duration::MAX)));
        assert!(retries_soon());
        let ended = log.take();
        assert!(ended.len() == 1 && ended[0].contains("no span reached the layer"), "{ended:?}");
        assert!(!retries_soon());
        let trace = session.recording.snapshot().unwrap();
        let output = session.dump_output().unwrap();
        let triggers = Some(session.triggers.clone());
        session.write_dump(|| Ok(trace), triggers, &output, "panic", "a panic").unwrap();
        ProcessEnd::begin(Instant::now()).wait_for(ActiveWrite::is_in_background);
        assert!(retries_soon());
        let ended = log.take();
        assert!(ended.len() == 1 && ended[0].starts_with("a panic: cannot create"), "{ended:?}");
    }
}
