//! Dumps that something triggers: which triggers write one and when, and how the others are counted.

use super::Session;
use super::deadline_after;
use super::dumps::dump_path_now;
use super::exit::live_sessions;
use super::machine::SnapshotMark;
use super::observer::SessionEvent;
use super::writes::{ActiveWrite, ProcessEnd, TIME_TO_CLOSE, report_written_trace};
use crate::config::{DumpConfig, DumpTrigger};
use crate::diag::diag;
use crate::error::{Error, ErrorKind};
use crate::os::{fork, signal, thread};
use crate::recorder::{TriggerCause, TriggerEvent, TriggerQueue};
use crate::text::count_with_noun;
use crate::time::Timestamp;
use crate::wait::steady;
use kineto_base::channel::channel;
use std::panic;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

/// Decides about the triggers of a session.
///
/// A trigger causes a dump some time later, so that the file shows what follows. Until then, further triggers join that dump.
/// Afterwards, triggers are skipped until the interval is over.
#[derive(Debug)]
pub(crate) struct DumpControl {
    config: DumpConfig,
    state: fork::Own<DumpState>,
}

#[derive(Debug, Default)]
struct DumpState {
    /// The trigger of the next dump, and when that is due.
    pending: Option<(TriggerEvent, Instant)>,
    /// Until when triggers are skipped, since the last dump.
    skips_until: Option<Instant>,
    counts: TriggerCounts,
    /// Whether a trigger was ever skipped, which is reported once.
    has_skipped: bool,
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
    pub(super) fn new(config: DumpConfig) -> DumpControl {
        DumpControl { config, state: fork::Own::default() }
    }

    /// Decides about the triggers that were posted, and begins the dump that is due. Returns when the next one is.
    pub(super) fn handle_triggers(&self, session: &Arc<Session>, posted: &TriggerQueue) -> Option<Instant> {
        self.take_posted(posted);
        let next = || self.state.lock().pending.as_ref().map(|(_, due)| *due);
        if next()? <= steady() {
            self.begin_dump(session);
        }
        next()
    }

    fn take_posted(&self, posted: &TriggerQueue) {
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

    fn handle_trigger(&self, trigger: TriggerEvent, mut state: MutexGuard<'_, DumpState>) {
        // After this one, there is no other.
        let is_fatal = cfg!(panic = "abort") && matches!(trigger.cause, TriggerCause::Panic);
        let is_early = state.skips_until.is_some_and(|until| steady() < until);
        if state.pending.is_none() && (!is_early || is_fatal) {
            state.skips_until = Some(deadline_after(self.config.interval));
            state.pending = Some((trigger, deadline_after(self.config.after)));
            return;
        }
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
    }

    /// Marks what the pending dump holds, if there is one, and begins to write it.
    fn begin_dump(&self, session: &Arc<Session>) {
        let mut state = self.state.lock();
        let Some((trigger, _)) = state.pending.take() else { return };
        let counts = std::mem::take(&mut state.counts);
        // The end of the recording waits for the lock, so it comes later than the mark.
        let mark = session.recording.mark();
        drop(state);
        session.write_triggered(trigger, counts, mark);
    }

    /// Makes triggers after a failed dump wait no longer than a second.
    fn note_failure(&self) {
        let mut state = self.state.lock();
        state.skips_until = state.skips_until.map(|until| until.min(deadline_after(RETRY_AFTER)));
    }
}

/// Reports that a trigger has no dump.
fn report_failure(session: &Session, cause: &TriggerCause, error: Error) {
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
    /// Begins the dump that was triggered, because the recording or the process ends.
    pub(super) fn finish_dump(&self) {
        let Some(own) = self.own.upgrade() else { return };
        self.triggers.take_posted(self.recorder.triggers());
        self.triggers.begin_dump(&own);
    }

    /// Begins to write the dump for a trigger. Observers get a failure on the thread that writes.
    fn write_triggered(
        self: &Arc<Self>,
        trigger: TriggerEvent,
        counts: TriggerCounts,
        mark: Result<Arc<SnapshotMark>, Error>,
    ) {
        let (session, of_end, taken, cause) = (self.clone(), self.clone(), mark.clone(), trigger.cause);
        let number = if mark.is_ok() { self.next_dump_number() } else { 0 };
        let work = move |write: &ActiveWrite| session.save_triggered(write, trigger, counts, number, &taken?);
        let end = move |_: &ActiveWrite, saved: Result<PathBuf, Error>| match saved {
            Ok(path) => {
                of_end.recording.observers.notify(SessionEvent::DumpEnded { reason: cause.to_string(), dump: Ok(path) })
            }
            Err(error) => report_failure(&of_end, &cause, error),
        };
        if let Err(unstarted) = self.writes.register_background().start("a dump".into(), work, end) {
            mark.iter().for_each(|mark| self.recording.machine.remove_mark(mark));
            report_failure(self, &cause, unstarted.into_error());
        }
    }

    /// Writes the dump for a trigger; returns its path.
    ///
    /// # Errors
    /// If there are no records, or those of writing.
    fn save_triggered(
        &self,
        write: &ActiveWrite,
        trigger: TriggerEvent,
        counts: TriggerCounts,
        number: u64,
        mark: &Arc<SnapshotMark>,
    ) -> Result<PathBuf, Error> {
        let mut trace = self.recording.take_snapshot(mark)?;
        if let Some(why) = trace.why_empty() {
            return Err(Error::new(ErrorKind::NotActive, why));
        }
        let (cause, output) = (trigger.cause, self.dump_output()?);
        let joined = match counts.joined {
            0 => String::new(),
            joined => format!("; and for {}", count_with_noun(joined, "more trigger")),
        };
        diag!(Stage, "dump", "dumping the newest records: {cause}{joined}");
        let metadata = trace.separate_metadata();
        metadata.add_count("dump_triggered_at_ns", Timestamp::from(trigger.at).as_nanos());
        metadata.add_count("dump_triggers_joined", counts.joined);
        metadata.add_count("dump_triggers_skipped", counts.skipped);
        let path = dump_path_now(&output, number, &cause.label());
        self.save_dump(write, &mut trace, &path, &cause.to_string())?;
        report_written_trace(&trace, &path);
        Ok(path)
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
        sessions.iter().for_each(|session| session.finish_dump());
        end.wait_for(ActiveWrite::is_in_background);
        let _ = done.send(());
    };
    if thread::spawn("kineto-dump", Box::new(dump)).is_ok() {
        let _ = is_done.recv_timeout(deadline.saturating_duration_since(now) + TIME_TO_CLOSE);
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::SessionMachine;
    use super::super::observer::{NamedObserver, SessionObserver};
    use super::*;
    use crate::config::{Config, Output};
    use std::path::Path;
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

    fn trigger(session: &Arc<Session>) {
        session.post_trigger(&DumpTrigger::Panic, TriggerCause::Panic);
        session.triggers.handle_triggers(session, session.recorder.triggers());
    }

    fn wait_for_dumps() {
        ProcessEnd::begin(Instant::now()).wait_for(ActiveWrite::is_in_background);
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn end_takes_the_dump_that_was_triggered() {
        let (session, log) = session_with_dumps();
        session.record_instants(10);
        // The thread that writes needs it for the snapshot.
        let state = session.recording.lock_state().unwrap();
        trigger(&session);
        let ending = session.clone();
        let end = std::thread::Builder::new().spawn(move || ending.stop().unwrap().stats().events).unwrap();
        while session.recording.machine.read(SessionMachine::is_recording) {
            std::thread::yield_now();
        }
        trigger(&session);
        drop(state);
        assert_eq!(end.join().unwrap(), 10);
        wait_for_dumps();
        let ended = log.take();
        assert!(ended.len() == 1 && ended[0].contains("cannot create"), "it has records: {ended:?}");
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
        wait_for_dumps();
        assert!(retries_soon());
        let ended = log.take();
        assert!(ended.len() == 1 && ended[0].contains("no span reached the layer"), "{ended:?}");
        assert!(!retries_soon());
        session.triggers.state.lock().skips_until = None;
        session.record_instants(1);
        trigger(&session);
        wait_for_dumps();
        assert!(retries_soon());
        let ended = log.take();
        assert!(ended.len() == 1 && ended[0].contains("cannot create"), "{ended:?}");
    }
}
