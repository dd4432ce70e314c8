//! The thread "kineto-ondemand": takes requests from their sources and performs them with the session.

use super::job::{Job, SavedFile, SharedPart};
use super::machine::{Admission, ClockReading, ProgramState, RequestAction, RequestMachine};
use super::place::WrittenFiles;
use super::plan::RequestPlan;
use super::reload::ConfigReloader;
use super::request::Request;
use super::source::{Incoming, RequestSource, id_of, outcome_json, report_outcome, report_progress};
use super::wakeup::Wakeup;
use crate::config::ParsedRequest;
use crate::diag::diag;
use crate::error::Error;
use crate::os::{datagram, fork, thread};
use crate::recorder::memory_listeners::InternalAllocGuard;
use crate::session::{ActiveWrite, Patience, RequestHandler, Session, UnstartedWrite};
use crate::text::count_with_noun;
use crate::wait::{Condvar, steady, wall};
use std::io;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, UNIX_EPOCH};

/// Serves requests, one at a time.
#[derive(Debug)]
pub(super) struct Runner {
    own: Weak<Runner>,
    session: Weak<Session>,
    machine: Mutex<RequestMachine>,
    /// Signals that a file was written or a recording discarded.
    ended: Condvar,
    wakeup: Wakeup,
    is_closing: AtomicBool,
    /// The requests outside of the machine that get the last records of the program's own recording.
    last_requests: Mutex<LastRequests>,
    /// Whether the thread has ended. It has its own lock, because a callback may exit the process while the machine is
    /// locked.
    has_ended: Mutex<bool>,
    end: Condvar,
    born: u64,
    /// The files that requests may replace.
    written: WrittenFiles,
    /// The outcome of the last request.
    last: Mutex<Option<String>>,
}

/// Requests for the last records. The next one may begin while the end of the one before is reported.
#[derive(Debug, Default)]
struct LastRequests {
    /// The one whose file is being written.
    writing: Option<Job>,
    /// How many are not reported.
    unreported: usize,
}

/// How often the progress of a file is checked at the end of the process.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// A start is reported if it is at least that far ahead.
const REPORTED_AHEAD: Duration = Duration::from_secs(1);

/// The longest wait before the sources are polled again.
const TICK: Duration = Duration::from_secs(1);

impl Runner {
    pub(super) fn new(session: &Arc<Session>) -> io::Result<Arc<Runner>> {
        let wakeup = Wakeup::new()?;
        Ok(Arc::new_cyclic(|own| Runner {
            own: own.clone(),
            session: Arc::downgrade(session),
            machine: Mutex::default(),
            ended: Condvar::new(),
            wakeup,
            is_closing: AtomicBool::new(false),
            last_requests: Mutex::default(),
            has_ended: Mutex::default(),
            end: Condvar::new(),
            born: fork::generation(),
            written: WrittenFiles::default(),
            last: Mutex::default(),
        }))
    }

    /// Serves the first requests, and starts the thread, which opens its sources itself.
    pub(super) fn start_serving(
        self: Arc<Self>,
        session: &Arc<Session>,
        first: &[Incoming],
        reloader: ConfigReloader,
        open: impl FnOnce() -> Vec<Box<dyn RequestSource>> + Send + 'static,
    ) -> io::Result<()> {
        session.requests.set_handler(self.clone());
        first.iter().for_each(|incoming| self.admit_incoming(session, incoming));
        self.perform_due(session, false);
        let own = self.clone();
        let started = thread::spawn("kineto-ondemand", Box::new(move || own.run(reloader, open))).map(drop);
        if started.is_err() {
            let _end = EndSignal(&self);
            self.end_all_requests(session);
        }
        started
    }

    pub(super) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    fn lock_last_requests(&self) -> MutexGuard<'_, LastRequests> {
        self.last_requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_machine(&self) -> MutexGuard<'_, RequestMachine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(self: Arc<Self>, mut reloader: ConfigReloader, open: impl FnOnce() -> Vec<Box<dyn RequestSource>>) {
        // Never dropped: allocations during thread teardown must not be recorded.
        let _own = ManuallyDrop::new(InternalAllocGuard::begin());
        let _end = EndSignal(&self);
        let mut sources = open();
        while !sources.is_empty() && !self.is_closing() {
            let Some(session) = self.session.upgrade() else { break };
            reloader.reload_if_changed(&session, &mut sources);
            for source in &mut sources {
                let busy = self.lock_machine().is_busy() || session.requests.why_busy().is_some();
                let incoming = source.poll_requests(steady(), busy);
                incoming.iter().for_each(|incoming| self.admit_incoming(&session, incoming));
            }
            self.cancel_if_evicted(&session);
            self.perform_due(&session, false);
            let status = self.status_json(&session);
            sources.iter_mut().for_each(|source| source.publish_status(&status));
            drop(session);
            self.wait_for_requests(&sources);
        }
        if let Some(session) = self.session.upgrade() {
            self.end_all_requests(&session);
        }
        sources.iter_mut().for_each(|source| source.close(steady() + TICK));
    }

    /// Waits until a request arrives or something is due; at most a second, because the clock may be set meanwhile.
    fn wait_for_requests(&self, sources: &[Box<dyn RequestSource>]) {
        let moment = read_clocks(None);
        let due = self
            .lock_machine()
            .next_due_time(&moment)
            .into_iter()
            .chain(sources.iter().map(|source| source.next_poll_time()))
            .min();
        let left = due.map_or(TICK, |due| due.saturating_duration_since(moment.now)).min(TICK);
        let sources = sources.iter().filter_map(|source| source.descriptor());
        let descriptors: Vec<_> = sources.chain(self.wakeup.descriptor()).collect();
        datagram::wait_readable(&descriptors, left);
        self.wakeup.clear();
    }

    /// Reads a request, and reports whether it is admitted.
    fn admit_incoming(&self, session: &Arc<Session>, incoming: &Incoming) {
        let by = &incoming.by;
        diag!(Verbose, "ondemand", "received a request by {by}: {:?}", incoming.text);
        if ParsedRequest::is_cancel(&incoming.text) {
            return self.cancel_requests(session, incoming);
        }
        let settings = session.settings.next_config();
        let request = match Request::from_incoming(incoming, &settings.ondemand, &settings.placeholder_values()) {
            Ok(request) => request,
            Err(why) => {
                let outcome = outcome_json(id_of(&incoming.text).unwrap_or(""), "refused", &why, None);
                let text = format!("the request by {by} was refused: {why}");
                return self.keep_outcome(report_outcome!(Warning, Failed, incoming.answer, outcome, "{text}"));
            }
        };
        let name = request.display_name();
        report_progress!(Stage, Ongoing, request.answer, "triggered by {by}{}: {request}", request.trace_suffix());
        for warning in &request.asked.warnings {
            report_progress!(Warning, Ongoing, request.answer, "{name}: {warning}");
        }
        let moment = read_clocks(session.steps.current_iteration());
        if let Some(last) = request.asked.last {
            return self.write_last(session, request, last, &moment);
        }
        // No message while the lock is held: a message sink may step, or start.
        let mut machine = self.lock_machine();
        let admission = machine.admit_request(request.clone(), &moment);
        session.requests.watch_iteration(machine.next_due_iteration());
        drop(machine);
        match admission {
            Admission::Accepted if request.time_until_start(&moment) >= REPORTED_AHEAD => {
                let ahead = Duration::from_secs(request.time_until_start(&moment).as_secs());
                let text = format!("{name} starts in {ahead:?}; earlier requests go first, and CANCEL=true cancels it");
                report_progress!(Stage, Ongoing, request.answer, "{text}");
            }
            Admission::Accepted => {}
            Admission::Pending => {
                report_progress!(Stage, Ongoing, request.answer, "{name} is queued behind the running request")
            }
            Admission::Refused(why) => self.report_unserved(&request, "refused", &why),
        }
    }

    /// Writes what the program has recorded in the time before the request; waits for no other request.
    fn write_last(&self, session: &Arc<Session>, request: Request, last: Duration, moment: &ClockReading) {
        let part = SharedPart::new(moment.wall.checked_sub(last).unwrap_or(UNIX_EPOCH), moment.wall);
        let plan = match RequestPlan::new(&request, moment) {
            Err(why) => return self.report_unserved(&request, "refused", &why),
            Ok(plan) => plan,
        };
        let job = Job { part, ..Job::new(Arc::new(request), plan) };
        let mut last = self.lock_last_requests();
        if last.writing.is_some() {
            drop(last);
            let why = "another request for the last records is being written; try again";
            return self.report_unserved(&job.request, "refused", why);
        }
        last.writing = Some(job.clone());
        last.unreported += 1;
        drop(last);
        self.write_job(session, job, None);
    }

    /// Cancels all external requests.
    fn cancel_requests(&self, session: &Arc<Session>, incoming: &Incoming) {
        let by = &incoming.by;
        let actions = self.lock_machine().cancel_requests(&format!("{by} requested it"));
        let count = actions.len() as u64;
        actions.into_iter().for_each(|action| self.perform_action(session, action));
        let outcome = outcome_json(id_of(&incoming.text).unwrap_or(""), "done", "", None);
        report_outcome!(
            Stage,
            Done,
            incoming.answer,
            outcome,
            "{} cancelled by {by}",
            count_with_noun(count, "request")
        );
    }

    /// Cancels the request that the program has evicted from the session.
    fn cancel_if_evicted(&self, session: &Arc<Session>) {
        let id = self.lock_machine().in_session();
        let Some(why) = id.and_then(|id| session.why_evicted(id)) else { return };
        let mut machine = self.lock_machine();
        let action = if machine.in_session() == id { machine.cancel_current(why) } else { None };
        drop(machine);
        if let Some(action) = action {
            self.perform_action(session, action);
        }
    }

    /// Performs all due actions; with `begins`, an iteration of the program waits for them.
    fn perform_due(&self, session: &Arc<Session>, begins: bool) {
        // If another caller is starting or ending a recording, it performs the next due actions.
        while !self.lock_machine().is_underway() {
            let program =
                ProgramState { busy: session.requests.why_busy(), stopped: session.requests.stopped_collector() };
            let moment = ClockReading { begins, ..read_clocks(session.steps.current_iteration()) };
            let mut machine = self.lock_machine();
            let action = machine.advance(&moment, &program);
            session.requests.watch_iteration(machine.next_due_iteration());
            drop(machine);
            let Some(action) = action else { return };
            self.perform_action(session, action);
        }
    }

    /// Performs an action. It may take long while the program steps, starts or ends, so no lock is held.
    fn perform_action(&self, session: &Arc<Session>, action: RequestAction) {
        match action {
            RequestAction::Prepare(job) => self.prepare_job(session, &job),
            RequestAction::Start(job) => self.start_job(session, &job),
            RequestAction::Stop(job, early) => {
                job.halt(session);
                self.write_job(session, job, early);
            }
            RequestAction::Cancel(job, why) => {
                job.cancel(session, &why);
                self.end_request(job.id);
                self.report_unserved(&job.request, "cancelled", &why);
            }
            RequestAction::Refuse(request, why) => self.report_unserved(&request, "refused", &why),
            RequestAction::CancelWaiting(request, why) => self.report_unserved(&request, "cancelled", &why),
        }
    }

    fn prepare_job(&self, session: &Session, job: &Job) {
        let request = &job.request;
        if job.plan.falls_back_to_time {
            let why = "is traced by time: it asks for iterations, but the program counts none; call Profiler::step";
            report_progress!(Warning, Ongoing, request.answer, "{} {why}", request.display_name());
        }
        let Err(why) = job.prepare(session) else { return };
        let is_news = self.lock_machine().mark_failed(job.id);
        if is_news {
            self.report_unserved(request, "refused", &why.to_string());
        }
    }

    fn start_job(&self, session: &Session, job: &Job) {
        let begun = job.start(session);
        let moment = read_clocks(session.steps.current_iteration());
        let is_wanted = match &begun {
            Ok(()) => self.lock_machine().mark_begun(job.id, &moment),
            Err(_) => self.lock_machine().mark_failed(job.id),
        };
        // Otherwise the caller that cancelled it reports that.
        if is_wanted {
            match begun {
                Ok(()) => report_start(job, *job.late.get_or_init(|| job.plan.lateness(&moment))),
                Err(why) => self.report_unserved(&job.request, "refused", &why.to_string()),
            }
        }
    }

    /// Writes the file on a new thread, so that the daemon gets answers meanwhile.
    fn write_job(&self, session: &Arc<Session>, job: Job, early: Option<String>) {
        let Some(runner) = self.own.upgrade() else { return };
        let (owned, of_writer, saving) = (session.clone(), runner.clone(), job.clone());
        let work = move |write: &ActiveWrite| saving.stop_and_save(&owned, write, &of_writer.written);
        let output = job.request.output.clone();
        let end = move |_: &ActiveWrite, saved| {
            runner.allow_next_last(job.id);
            runner.keep_outcome(report_end(&job, early.as_deref(), saved));
            runner.end_request(job.id);
        };
        let started = session.writes.register_background().start(output, work, end);
        // Without a thread, the daemon waits for answers meanwhile.
        started.unwrap_or_else(UnstartedWrite::run_here);
    }

    /// Reports that a request gets no file: it was `refused`, or `cancelled` after it had been accepted.
    fn report_unserved(&self, request: &Request, outcome: &str, why: &str) {
        let text = format!("{} was {outcome}: {why}", request.display_name());
        let outcome = outcome_json(&request.asked.trace_id, outcome, why, None);
        self.keep_outcome(report_outcome!(Warning, Failed, request.answer, outcome, "{text}"));
    }

    /// Keeps the outcome of the last request.
    fn keep_outcome(&self, outcome: String) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        self.wakeup.notify();
    }

    /// Returns the state of the process as a JSON object in one line.
    fn status_json(&self, session: &Session) -> String {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // The session may be busy for seconds, so its state is read before the machine is locked.
        let by_program = session.requests.used_by_program().is_some();
        let machine = self.lock_machine();
        let (state, request, waiting) = machine.state_summary();
        let state = if by_program && matches!(state, "idle") { "recording by itself" } else { state };
        let id = serde_json::Value::from(request.map(|request| request.asked.trace_id.as_str()));
        let last = last.unwrap_or_else(|| "null".to_owned());
        format!("{{\"state\":\"{state}\",\"request\":{id},\"waiting\":{waiting},\"last\":{last}}}")
    }

    /// Admits the next request for the last records if this was one. It is reported later, so its requester may ask again
    /// at once.
    fn allow_next_last(&self, id: u64) {
        if id == 0 {
            let ended = self.lock_last_requests().writing.take();
            drop(ended);
        }
    }

    /// Ends a request, so that the next one may begin.
    fn end_request(&self, id: u64) {
        if id == 0 {
            self.lock_last_requests().unreported -= 1;
        }
        self.lock_machine().mark_ended(id);
        self.ended.notify_all();
        self.wakeup.notify();
    }

    /// Ends all requests because the program ends.
    fn end_all_requests(&self, session: &Arc<Session>) {
        let actions = self.lock_machine().end_all_requests(&read_clocks(session.steps.current_iteration()));
        actions.into_iter().for_each(|action| self.perform_action(session, action));
        let machine = self.lock_machine();
        // The wait of `close` has its own limit.
        drop(self.ended.wait_while(&self.machine, machine, |machine| {
            machine.is_underway() || self.lock_last_requests().unreported > 0
        }));
    }
}

impl RequestHandler for Runner {
    fn handle_iteration(&self, iteration: u64) {
        let Some(session) = self.session.upgrade() else { return };
        let has_time = self.lock_machine().has_time(iteration);
        if has_time {
            self.wakeup.notify();
        } else {
            self.perform_due(&session, true);
            // The next due time may have changed.
            self.wakeup.notify();
        }
    }

    fn handle_eviction(&self) {
        self.wakeup.notify();
    }

    fn handle_recording_end(&self) {
        let Some(session) = self.session.upgrade() else { return };
        let moment = read_clocks(None);
        let last = self.lock_last_requests().writing.clone();
        let current = self.lock_machine().current_job().cloned();
        // The thread wakes up a little before a given start time.
        let has_begun = |job: &Job| job.plan.time_until_start(&moment).is_zero();
        current.into_iter().chain(last).filter(has_begun).for_each(|job| drop(job.take_part(&session)));
        self.wakeup.notify();
    }

    fn close(&self, patience: Patience) {
        // A forked child has no such thread.
        if self.born != fork::generation() {
            return;
        }
        self.is_closing.store(true, Ordering::Relaxed);
        self.wakeup.notify();
        let session = self.session.upgrade();
        let mut wait = patience.start_wait();
        let mut has_ended = self.has_ended.lock().unwrap_or_else(PoisonError::into_inner);
        while !*has_ended {
            let left = wait.time_left(session.as_ref().map_or(0, |session| session.writes.progress_steps()));
            if left.is_zero() {
                drop(has_ended);
                let why = wait.why_over();
                let has_last = !self.last_requests.try_lock().is_ok_and(|last| last.unreported == 0);
                match self.machine.try_lock() {
                    Ok(machine) if !machine.is_underway() && !has_last => {
                        diag!(Error, "ondemand", "the thread that serves requests has not ended: {why}");
                    }
                    // A callback may exit the process while the machine is locked.
                    _ => diag!(Error, "ondemand", "a requested trace was not written: {why}"),
                }
                return;
            }
            has_ended = self.end.wait_until(&self.has_ended, has_ended, steady() + left.min(PROGRESS_INTERVAL));
        }
    }
}

/// Signals the end of the thread, even if it panics.
struct EndSignal<'r>(&'r Runner);

impl Drop for EndSignal<'_> {
    fn drop(&mut self) {
        self.0.is_closing.store(true, Ordering::Relaxed);
        *self.0.has_ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.end.notify_all();
    }
}

fn read_clocks(iteration: Option<u64>) -> ClockReading {
    // In this order, so that a pause between the two reads delays a start and never advances it.
    let wall = wall();
    ClockReading { now: steady(), wall, iteration, begins: false }
}

fn report_start(job: &Job, late: Duration) {
    /// A start that is at least this late is reported as late.
    const LATE: Duration = Duration::from_millis(1);
    let request = &job.request;
    let trace = request.trace_suffix();
    if late > LATE {
        let by = &request.by;
        report_progress!(
            Stage,
            Ongoing,
            request.answer,
            "recording started (requested by {by}{trace}), {late:.1?} late"
        );
    } else {
        report_progress!(Stage, Ongoing, request.answer, "recording started (requested by {}{trace})", request.by);
    }
}

/// Reports how a recording ended; returns the outcome as a JSON object.
fn report_end(job: &Job, reason: Option<&str>, saved: Result<SavedFile, Error>) -> String {
    let (request, trace) = (&job.request, job.request.trace_suffix());
    let early = reason.map(|why| format!(" (ended early: {why})")).unwrap_or_default();
    match saved {
        Ok(SavedFile { path, content, stats }) => {
            let late = job.late.get().copied().unwrap_or_default();
            let file = Some((&*path, &stats, late));
            let outcome = outcome_json(&request.asked.trace_id, "written", reason.unwrap_or_default(), file);
            let lost = stats.lost(kineto_model::Loss::SlicesOverLimit);
            if lost > 0 {
                let all = count_with_noun(lost.saturating_add(stats.slices), "slice");
                let text = format!("written{trace} to {}{early}, without {lost} of {all}: {content}", path.display());
                return report_outcome!(Warning, Done, request.answer, outcome, "{text}");
            }
            let text = format!("written{trace} to {}{early}: {content}", path.display());
            report_outcome!(Stage, Done, request.answer, outcome, "{text}")
        }
        Err(why) => {
            let outcome = outcome_json(&request.asked.trace_id, "failed", &why.to_string(), None);
            report_outcome!(Error, Failed, request.answer, outcome, "not written{trace}{early}: {why}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ondemand::source::{AnswerChannel, RequestProgress};
    use std::sync::mpsc::{self, Receiver, Sender};

    /// Sends the end of a request to the test, and waits for its permission to continue.
    #[derive(Debug)]
    struct Gate {
        ended: Mutex<Sender<RequestProgress>>,
        permission: Mutex<Receiver<()>>,
    }

    impl AnswerChannel for Gate {
        fn send_line(&self, _line: &str, progress: RequestProgress) {
            if progress != RequestProgress::Ongoing {
                self.ended.lock().unwrap().send(progress).unwrap();
                self.permission.lock().unwrap().recv().unwrap();
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn end_waits_for_a_request_for_the_last_records() {
        test_base::virtual_time(|_| end_while_a_request_is_answered());
    }

    fn end_while_a_request_is_answered() {
        let folder = tempfile::tempdir().unwrap();
        let session = Session::for_tests();
        session.start().unwrap();
        let ((ended, end), (permit, permission)) = (mpsc::channel(), mpsc::channel());
        let answer = Arc::new(Gate { ended: ended.into(), permission: permission.into() });
        let text = format!("PROFILE_LAST_MSECS=9000\nACTIVITIES_LOG_FILE={}/{{pid}}.json", folder.path().display());
        let request = Incoming { text, by: "a test".to_owned(), output: None, answer: Some(answer) };
        let runner = Runner::new(&session).unwrap();
        let reloader = ConfigReloader::new(session.settings.next_config());
        // Without a source, the thread ends at once.
        runner.clone().start_serving(&session, &[request], reloader, Vec::new).unwrap();
        assert_eq!(end.recv().unwrap(), RequestProgress::Done);
        test_base::wait_for_rest();
        assert!(!*runner.has_ended.lock().unwrap());
        permit.send(()).unwrap();
        runner.close(session.settings.patience());
        assert!(*runner.has_ended.lock().unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
