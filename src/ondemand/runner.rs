//! The thread "kineto-ondemand": takes requests from their sources and has the session do them.

use super::base::Base;
use super::bell::Bell;
use super::job::{Job, Saved};
use super::machine::{Act, Host, Machine, Moment, Offer};
use super::outcome::Outcome;
use super::place::WrittenFiles;
use super::request::Request;
use super::source::{Incoming, RequestSource, id_of, tell, tell_end};
use crate::config::Asked;
use crate::diag::diag;
use crate::error::{Error, ErrorKind};
use crate::os::{datagram, fork};
use crate::recorder::listeners::Own;
use crate::session::{Outside, Patience, Session};
use crate::text::counted;
use std::io;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

/// Does what is asked for, one request at a time.
#[derive(Debug)]
pub(super) struct Runner {
    own: Weak<Runner>,
    session: Weak<Session>,
    machine: Mutex<Machine>,
    /// A file is written, or a recording thrown away.
    ended: Condvar,
    bell: Bell,
    is_closing: AtomicBool,
    /// The thread has ended. Who waits for that may be inside of the machine itself, such as when a callback exits.
    has_ended: Mutex<bool>,
    end: Condvar,
    born: u64,
    /// The files that requests may replace.
    written: WrittenFiles,
    /// How the last request ended.
    last: Mutex<Option<String>>,
}

/// How often a file that is written at the end is asked how far it has come.
const LOOK: Duration = Duration::from_millis(100);

/// A start that lies so far ahead is reported.
const REPORTED_AHEAD: Duration = Duration::from_secs(1);

/// Nothing is waited for longer before it is looked at again.
const TICK: Duration = Duration::from_secs(1);

impl Runner {
    pub(super) fn new(session: &Arc<Session>) -> io::Result<Arc<Runner>> {
        let bell = Bell::new()?;
        Ok(Arc::new_cyclic(|own| Runner {
            own: own.clone(),
            session: Arc::downgrade(session),
            machine: Mutex::default(),
            ended: Condvar::new(),
            bell,
            is_closing: AtomicBool::new(false),
            has_ended: Mutex::default(),
            end: Condvar::new(),
            born: fork::generation(),
            written: WrittenFiles::default(),
            last: Mutex::default(),
        }))
    }

    /// Begins with what has come already, and starts the thread, which opens its sources itself.
    pub(super) fn start(
        self: Arc<Self>,
        session: &Arc<Session>,
        first: &[Incoming],
        base: Base,
        open: impl FnOnce() -> Vec<Box<dyn RequestSource>> + Send + 'static,
    ) -> io::Result<()> {
        session.serve(self.clone());
        first.iter().for_each(|incoming| self.offer(session, incoming));
        self.drive(session, false);
        let own = self.clone();
        let thread = std::thread::Builder::new().name("kineto-ondemand".into());
        let started = thread.spawn(move || own.run(base, open)).map(drop);
        if started.is_err() {
            let _end = End(&self);
            self.finish(session);
        }
        started
    }

    pub(super) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(self: Arc<Self>, mut base: Base, open: impl FnOnce() -> Vec<Box<dyn RequestSource>>) {
        // Also while the thread is torn down.
        let _own = ManuallyDrop::new(Own::begin());
        let _end = End(&self);
        let mut sources = open();
        while !sources.is_empty() && !self.is_closing() {
            let Some(session) = self.session.upgrade() else { break };
            base.follow(&session, &mut sources);
            for source in &mut sources {
                let busy = self.machine().is_busy() || session.used_by_program().is_some();
                let incoming = source.turn(Instant::now(), busy);
                incoming.iter().for_each(|incoming| self.offer(&session, incoming));
            }
            self.check_guest(&session);
            self.drive(&session, false);
            let status = self.status(&session);
            sources.iter_mut().for_each(|source| source.publish(&status));
            drop(session);
            self.wait(&sources);
        }
        if let Some(session) = self.session.upgrade() {
            self.finish(&session);
        }
        sources.iter_mut().for_each(|source| source.close(Instant::now() + TICK));
    }

    /// Waits until something comes, or is due. The clock may be set meanwhile, so that is looked at each second.
    fn wait(&self, sources: &[Box<dyn RequestSource>]) {
        let moment = moment(None);
        let due = self.machine().due(&moment).into_iter().chain(sources.iter().map(|source| source.due())).min();
        let left = due.map_or(TICK, |due| due.saturating_duration_since(moment.now)).min(TICK);
        let sources = sources.iter().filter_map(|source| source.descriptor());
        let descriptors: Vec<_> = sources.chain([self.bell.descriptor()]).collect();
        datagram::wait(&descriptors, left);
        self.bell.hear();
    }

    /// Reads a request, and says what becomes of it.
    fn offer(&self, session: &Session, incoming: &Incoming) {
        let by = &incoming.by;
        diag!(Verbose, "ondemand", "a request has come by {by}: {:?}", incoming.text);
        if Asked::is_cancel(&incoming.text) {
            return self.cancel_requests(incoming);
        }
        let settings = session.settings();
        let request = match Request::read(incoming, &settings.ondemand, &settings.name_parts()) {
            Ok(request) => request,
            Err(why) => {
                let outcome = Outcome::new(id_of(&incoming.text).unwrap_or(""), Outcome::REFUSED).because(&why);
                let text = format!("a request by {by} is refused: {why}");
                return self.note(tell_end!(Warning, Failed, incoming.answer, outcome, "{text}"));
            }
        };
        let name = request.name();
        tell!(Stage, GoesOn, request.answer, "triggered by {by}{}: {request}", request.trace());
        for warning in &request.asked.warnings {
            tell!(Warning, GoesOn, request.answer, "{name}: {warning}");
        }
        // Nobody is told anything while the lock is held: who is told may step, or start.
        let moment = moment(session.iteration());
        let mut machine = self.machine();
        let offer = machine.offer(request.clone(), &moment);
        session.watch_iteration(machine.watched());
        drop(machine);
        match offer {
            Offer::Accepted if request.ahead(&moment) >= REPORTED_AHEAD => {
                let ahead = Duration::from_secs(request.ahead(&moment).as_secs());
                let text = format!("{name} starts in {ahead:?}; others go before it, and CANCEL=true takes it back");
                tell!(Stage, GoesOn, request.answer, "{text}");
            }
            Offer::Accepted => {}
            Offer::Pending => tell!(Stage, GoesOn, request.answer, "{name} waits for another one to end"),
            Offer::Refused(why) => self.refuse(&request, &why),
        }
    }

    /// Cancels all requests from outside.
    fn cancel_requests(&self, incoming: &Incoming) {
        let Some(session) = self.session.upgrade() else { return };
        let by = &incoming.by;
        let acts = self.machine().cancel_requests(&format!("{by} asked for it"));
        let count = acts.len() as u64;
        acts.into_iter().for_each(|act| self.perform(&session, act));
        let outcome = Outcome::new(id_of(&incoming.text).unwrap_or(""), Outcome::DONE);
        tell_end!(Stage, Done, incoming.answer, outcome, "{} cancelled by {by}", counted(count, "request"));
    }

    /// Takes back what the program has thrown out of the session.
    fn check_guest(&self, session: &Arc<Session>) {
        let ticket = self.machine().in_session();
        let Some(why) = ticket.and_then(|ticket| session.why_evicted(ticket)) else { return };
        let mut machine = self.machine();
        let act = if machine.in_session() == ticket { machine.cancel(why) } else { None };
        drop(machine);
        act.into_iter().for_each(|act| self.perform(session, act));
    }

    /// Does all that is due; `begins` if an iteration waits for it.
    fn drive(&self, session: &Arc<Session>, begins: bool) {
        // Who is under way does not keep others, and goes on with what is due.
        while !self.machine().is_underway() {
            let host = Host { busy: session.used_by_program(), stopped: session.stopped() };
            let moment = Moment { begins, ..moment(session.iteration()) };
            let mut machine = self.machine();
            let act = machine.advance(&moment, &host);
            session.watch_iteration(machine.watched());
            drop(machine);
            let Some(act) = act else { return };
            self.perform(session, act);
        }
    }

    /// Does what was decided. It may take its time, in which the program may step, start or end, so no lock is held.
    fn perform(&self, session: &Arc<Session>, act: Act) {
        match act {
            Act::Prepare(job) => self.prepare(session, &job),
            Act::Start(job) => self.begin(session, &job),
            Act::Stop(job, early) => {
                job.halt(session);
                self.write(session, job, early);
            }
            Act::Cancel(job, why) => {
                job.cancel(session, &why);
                self.ended(job.ticket);
                self.report_cancelled(&job.request, &why);
            }
            Act::Refuse(request, why) => self.refuse(&request, &why),
            Act::CancelWaiting(request, why) => self.report_cancelled(&request, &why),
        }
    }

    fn prepare(&self, session: &Session, job: &Job) {
        let request = &job.request;
        if job.plan.is_by_time_instead {
            let why = "is for iterations, and the program counts none (Profiler::step): it is traced by time";
            tell!(Warning, GoesOn, request.answer, "{} {why}", request.name());
        }
        let Err(why) = job.prepare(session) else { return };
        let is_news = self.machine().failed(job.ticket);
        if is_news {
            self.refuse(request, &why.to_string());
        }
    }

    fn begin(&self, session: &Session, job: &Job) {
        let begun = job.start(session);
        let moment = moment(session.iteration());
        let is_wanted = match &begun {
            Ok(()) => self.machine().begun(job.ticket, &moment),
            Err(_) => self.machine().failed(job.ticket),
        };
        // Else whoever takes it back says so.
        if is_wanted {
            match begun {
                Ok(()) => report_start(job, *job.late.get_or_init(|| job.plan.lateness(&moment))),
                Err(why) => self.refuse(&job.request, &why.to_string()),
            }
        }
    }

    /// Has the file written by a thread of its own, so that the daemon is answered meanwhile.
    fn write(&self, session: &Arc<Session>, job: Job, early: Option<String>) {
        let Some(runner) = self.own.upgrade() else { return };
        let (owned, lost) = (session.clone(), job.clone());
        let write = move || {
            let _own = Own::begin();
            // What the program's own sinks do is foreign code, and the next request is to be done all the same.
            let saved = catch_unwind(AssertUnwindSafe(|| job.save(&owned, &runner.written)));
            let panicked = || Error::new(ErrorKind::Handler, "what writes it panicked");
            runner.note(report_end(&job, early.as_deref(), saved.unwrap_or_else(|_| Err(panicked()))));
            drop(owned);
            runner.ended(job.ticket);
        };
        let thread = std::thread::Builder::new().name("kineto-write".into());
        if let Err(why) = thread.spawn(write) {
            let why = format!("no thread can be started to write it: {why}");
            lost.cancel(session, &why);
            let outcome = Outcome::new(&lost.request.asked.trace_id, Outcome::FAILED).because(&why);
            self.note(tell_end!(Error, Failed, lost.request.answer, outcome, "a trace is lost: {why}"));
            self.ended(lost.ticket);
        }
    }

    fn refuse(&self, request: &Request, why: &str) {
        let outcome = Outcome::new(&request.asked.trace_id, Outcome::REFUSED).because(why);
        let text = format!("{} is refused because {why}", request.name());
        self.note(tell_end!(Warning, Failed, request.answer, outcome, "{text}"));
    }

    /// Reports the end of a request that had been accepted.
    fn report_cancelled(&self, request: &Request, why: &str) {
        let outcome = Outcome::new(&request.asked.trace_id, Outcome::CANCELLED).because(why);
        let text = format!("{} was cancelled because {why}", request.name());
        self.note(tell_end!(Warning, Failed, request.answer, outcome, "{text}"));
    }

    /// Keeps the outcome of the last request.
    fn note(&self, outcome: String) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        self.bell.ring();
    }

    /// Returns what the process is doing, as a JSON object in one line.
    fn status(&self, session: &Session) -> String {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // The session may be busy for seconds, so it is asked before the machine is locked.
        let by_program = session.used_by_program().is_some();
        let machine = self.machine();
        let (state, request, waiting) = machine.status();
        let state = if by_program && matches!(state, "idle") { "recording by itself" } else { state };
        let id = serde_json::Value::from(request.map(|request| request.asked.trace_id.as_str()));
        let last = last.unwrap_or_else(|| "null".to_owned());
        format!("{{\"state\":\"{state}\",\"request\":{id},\"waiting\":{waiting},\"last\":{last}}}")
    }

    /// A request is done: the next one may be.
    fn ended(&self, ticket: u64) {
        self.machine().ended(ticket);
        self.ended.notify_all();
        self.bell.ring();
    }

    /// The program ends.
    fn finish(&self, session: &Arc<Session>) {
        let acts = self.machine().close(&moment(session.iteration()));
        acts.into_iter().for_each(|act| self.perform(session, act));
        let machine = self.machine();
        // Who closes waits no longer than it may.
        drop(self.ended.wait_while(machine, |machine| machine.is_underway()));
    }
}

impl Outside for Runner {
    fn reached(&self, iteration: u64) {
        let Some(session) = self.session.upgrade() else { return };
        let has_time = self.machine().has_time(iteration);
        if has_time {
            self.bell.ring();
        } else {
            self.drive(&session, true);
            // What is due by time is another thing now.
            self.bell.ring();
        }
    }

    fn evicted(&self) {
        self.bell.ring();
    }

    fn close(&self, patience: Patience) {
        // A forked child has no such thread.
        if self.born != fork::generation() {
            return;
        }
        self.is_closing.store(true, Ordering::Relaxed);
        self.bell.ring();
        let session = self.session.upgrade();
        let mut wait = patience.wait();
        let mut has_ended = self.has_ended.lock().unwrap_or_else(PoisonError::into_inner);
        while !*has_ended {
            // A trace is announced when its recording has ended.
            session.iter().for_each(|session| session.limit_writes(patience));
            let left = wait.left(session.as_ref().map_or(0, |session| session.write_steps()));
            if left.is_zero() {
                drop(has_ended);
                diag!(Error, "ondemand", "a requested trace was not written: {}", wait.why_over());
                return;
            }
            has_ended = self.end.wait_timeout(has_ended, left.min(LOOK)).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Says that the thread has ended, however it does.
struct End<'r>(&'r Runner);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.is_closing.store(true, Ordering::Relaxed);
        *self.0.has_ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.end.notify_all();
    }
}

fn moment(iteration: Option<u64>) -> Moment {
    // In that order, so that a pause between the clocks makes a start later than was said, never earlier.
    let wall = SystemTime::now();
    Moment { now: Instant::now(), wall, iteration, begins: false }
}

fn report_start(job: &Job, late: Duration) {
    /// A start that is later than the time that was said is told so.
    const LATE: Duration = Duration::from_millis(1);
    let request = &job.request;
    let trace = request.trace();
    if late > LATE {
        let (by, late) = (&request.by, late.as_secs_f64() * 1e3);
        tell!(Stage, GoesOn, request.answer, "started what {by} has asked for{trace}, {late:.1} ms late");
    } else {
        tell!(Stage, GoesOn, request.answer, "started what {} has asked for{trace}", request.by);
    }
}

/// Reports how a recording ended; returns the outcome as a JSON object.
fn report_end(job: &Job, reason: Option<&str>, saved: Result<Saved, Error>) -> String {
    let (request, trace) = (&job.request, job.request.trace());
    let early = reason.map(|why| format!(" (ended early: {why})")).unwrap_or_default();
    match saved {
        Ok(Saved { path, content, stats }) => {
            let late = job.late.get().copied().unwrap_or_default();
            let outcome = Outcome::new(&request.asked.trace_id, Outcome::WRITTEN).because(reason.unwrap_or_default());
            let outcome = outcome.with_file(&path, &stats, late);
            let lost = stats.lost_slices();
            if lost > 0 {
                let all = lost.saturating_add(stats.slices);
                let text =
                    format!("written{trace} to {}{early}, without {lost} of {all} slices: {content}", path.display());
                return tell_end!(Warning, Done, request.answer, outcome, "{text}");
            }
            let text = format!("written{trace} to {}{early}: {content}", path.display());
            tell_end!(Stage, Done, request.answer, outcome, "{text}")
        }
        Err(why) => {
            let reason = why.to_string();
            let outcome = Outcome::new(&request.asked.trace_id, Outcome::FAILED).because(&reason);
            tell_end!(Error, Failed, request.answer, outcome, "not written{trace}{early}: {why}")
        }
    }
}
