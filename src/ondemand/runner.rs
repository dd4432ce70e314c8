//! The thread "kineto-ondemand": takes requests from their sources and has the session do them.

use super::bell::Bell;
use super::machine::{Act, Host, Job, Machine, Moment, Offer};
use super::place::Place;
use super::request::{Request, What};
use super::source::{Incoming, RequestSource};
use crate::config::Config;
use crate::diag::diag;
use crate::error::{Error, ErrorKind};
use crate::os::{datagram, fork};
use crate::recorder::listeners::Own;
use crate::session::{Outside, Session, TAKEN};
use std::io;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

/// Does what is asked for, one request at a time.
#[derive(Debug)]
pub(super) struct Runner {
    own: Weak<Runner>,
    session: Weak<Session>,
    machine: Mutex<Machine>,
    /// A file is written.
    written: Condvar,
    bell: Bell,
    is_closing: AtomicBool,
    /// The thread has ended. Who waits for that may be inside of the machine itself, such as when a callback exits.
    has_ended: Mutex<bool>,
    end: Condvar,
    born: u64,
}

/// Nothing is waited for longer before it is looked at again.
const TICK: Duration = Duration::from_secs(1);
/// So long before its time a thread sleeps by the clock, which is more exact than waiting for something to be read.
const EXACT: Duration = Duration::from_millis(3);

impl Runner {
    /// Starts the thread, which opens its sources itself.
    pub(super) fn start(
        session: &Arc<Session>,
        open: impl FnOnce() -> Vec<Box<dyn RequestSource>> + Send + 'static,
    ) -> io::Result<Arc<Runner>> {
        let bell = Bell::new()?;
        let runner = Arc::new_cyclic(|own| Runner {
            own: own.clone(),
            session: Arc::downgrade(session),
            machine: Mutex::default(),
            written: Condvar::new(),
            bell,
            is_closing: AtomicBool::new(false),
            has_ended: Mutex::default(),
            end: Condvar::new(),
            born: fork::generation(),
        });
        let own = runner.clone();
        let thread = std::thread::Builder::new().name("kineto-ondemand".into());
        thread.spawn(move || own.run(open))?;
        session.serve(runner.clone());
        Ok(runner)
    }

    pub(super) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(self: Arc<Self>, open: impl FnOnce() -> Vec<Box<dyn RequestSource>>) {
        // Also while the thread is torn down.
        let _own = ManuallyDrop::new(Own::begin());
        let _end = End(&self);
        let mut sources = open();
        while !sources.is_empty() && !self.is_closing() {
            let Some(session) = self.session.upgrade() else { break };
            for source in &mut sources {
                let busy = self.machine().is_busy() || session.used_by_program().is_some();
                let incoming = source.turn(Instant::now(), busy);
                incoming.iter().for_each(|incoming| self.offer(&session, incoming));
            }
            self.check_guest(&session);
            self.drive(&session, false);
            drop(session);
            self.wait(&sources);
        }
        if let Some(session) = self.session.upgrade() {
            self.finish(&session);
        }
        sources.iter_mut().for_each(|source| source.close(Instant::now() + TICK));
    }

    /// Waits until something comes, or is due.
    fn wait(&self, sources: &[Box<dyn RequestSource>]) {
        let now = Instant::now();
        let due = self.machine().due().into_iter().chain(sources.iter().map(|source| source.due())).min();
        let left = due.map_or(TICK, |due| due.saturating_duration_since(now)).min(TICK);
        if left < EXACT {
            std::thread::sleep(left);
        } else {
            let sources = sources.iter().filter_map(|source| source.descriptor());
            let descriptors: Vec<_> = sources.chain([self.bell.descriptor()]).collect();
            datagram::wait(&descriptors, left - Duration::from_millis(1));
        }
        self.bell.hear();
    }

    /// Reads a request, and says what becomes of it.
    fn offer(&self, session: &Session, incoming: &Incoming) {
        let by = &incoming.by;
        let request = match Request::read(incoming, session.ondemand(), std::process::id(), SystemTime::now()) {
            Ok(request) => request,
            Err(why) => return diag!(Warning, "ondemand", "a request by {by} is refused: {why}"),
        };
        let name = named(&request);
        diag!(Stage, "ondemand", "triggered by {by}{name}: {request}");
        request.warnings.iter().for_each(|warning| diag!(Warning, "ondemand", "the request by {by}{name}: {warning}"));
        // Nobody is told anything while the lock is held: who is told may step, or start.
        let mut machine = self.machine();
        let offer = machine.offer(request, &moment(session));
        session.watch_iteration(machine.watched());
        drop(machine);
        match offer {
            Offer::Accepted => {}
            Offer::Pending => diag!(Stage, "ondemand", "the request by {by}{name} waits for another one to end"),
            Offer::Refused(why) => refuse(by, &name, &why),
        }
    }

    /// Takes back what the program has thrown out of the session.
    fn check_guest(&self, session: &Session) {
        let mut machine = self.machine();
        let Some(ticket) = machine.in_session() else { return };
        if !session.is_evicted(ticket) {
            return;
        }
        let cancelled = machine.cancel(TAKEN);
        drop(machine);
        if let Some(Act::Cancel(job, why)) = cancelled {
            refuse(&job.request.by, &named(&job.request), &why);
        }
    }

    /// Does all that is due; `begins` if an iteration waits for it.
    fn drive(&self, session: &Arc<Session>, begins: bool) {
        loop {
            let host = Host { busy: session.used_by_program(), stopped: session.stopped() };
            let mut machine = self.machine();
            let act = machine.advance(&Moment { begins, ..moment(session) }, &host);
            session.watch_iteration(machine.watched());
            match act {
                None => return,
                // Takes its time, in which the program may come to the start: it has it begin then.
                Some(Act::Prepare(job)) => {
                    drop(machine);
                    self.prepare(session, &job);
                }
                Some(act) => self.perform(session, machine, act),
            }
        }
    }

    fn prepare(&self, session: &Session, job: &Job) {
        if job.plan.is_by_time_instead {
            let request = &job.request;
            diag!(
                Warning,
                "ondemand",
                "the request by {}{} is for iterations, and the program counts none (Profiler::step): it is \
                 traced by time",
                request.by,
                named(request)
            );
        }
        if job.request.what != What::Trace {
            return;
        }
        let Err(why) = session.prepare_for(job.ticket, settings(session, job)) else { return };
        let was_wanted = self.machine().ended(job.ticket);
        if was_wanted {
            refuse(&job.request.by, &named(&job.request), &why.to_string());
        }
    }

    /// Does what takes no time, and has the rest done elsewhere.
    fn perform(&self, session: &Arc<Session>, mut machine: MutexGuard<'_, Machine>, act: Act) {
        // Observers are told when the machine is free again.
        let _call = session.call();
        match act {
            Act::Prepare(_) => {}
            Act::Start(job) => {
                let begun = start(session, &job);
                match &begun {
                    Ok(()) => machine.begun(Instant::now()),
                    Err(_) => drop(machine.ended(job.ticket)),
                }
                drop(machine);
                report_start(&job, begun);
            }
            Act::Stop(job, early) => {
                if job.request.what == What::Trace {
                    // What hinders it is told when it is written.
                    let _ = session.halt_for(job.ticket);
                }
                drop(machine);
                self.write(session, job, early);
            }
            Act::Cancel(job, why) => {
                cancel(session, &job, &why);
                drop(machine);
                refuse(&job.request.by, &named(&job.request), &why);
            }
            Act::Refuse(request, why) => {
                drop(machine);
                refuse(&request.by, &named(&request), &why);
            }
        }
    }

    /// Has the file written by a thread of its own, so that the daemon is answered meanwhile.
    fn write(&self, session: &Arc<Session>, job: Job, early: Option<String>) {
        let Some(runner) = self.own.upgrade() else { return };
        let (owned, lost) = (session.clone(), job.clone());
        let write = move || {
            let _own = Own::begin();
            report_end(&job, early, save(&owned, &job));
            drop(owned);
            runner.written(job.ticket);
        };
        let thread = std::thread::Builder::new().name("kineto-write".into());
        if let Err(why) = thread.spawn(write) {
            let why = format!("no thread can be started to write it: {why}");
            cancel(session, &lost, &why);
            diag!(Error, "ondemand", "a trace is lost: {why}");
            self.written(lost.ticket);
        }
    }

    fn written(&self, ticket: u64) {
        self.machine().ended(ticket);
        self.written.notify_all();
        self.bell.ring();
    }

    /// The program ends.
    fn finish(&self, session: &Arc<Session>) {
        let acts = self.machine().close();
        acts.into_iter().for_each(|act| self.perform(session, self.machine(), act));
        let machine = self.machine();
        // Who closes waits no longer than it may.
        drop(self.written.wait_while(machine, |machine| machine.is_writing()));
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
        }
    }

    fn evicted(&self) {
        self.bell.ring();
    }

    fn close(&self, patience: Duration) {
        // A forked child has no such thread.
        if self.born != fork::generation() {
            return;
        }
        self.is_closing.store(true, Ordering::Relaxed);
        self.bell.ring();
        let deadline = Instant::now() + patience;
        let mut has_ended = self.has_ended.lock().unwrap_or_else(PoisonError::into_inner);
        while !*has_ended {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(has_ended);
                diag!(Error, "ondemand", "a requested trace was not written within {patience:?}; raise flush_timeout");
                return;
            }
            has_ended = self.end.wait_timeout(has_ended, left).unwrap_or_else(PoisonError::into_inner).0;
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

fn moment(session: &Session) -> Moment {
    // In that order, so that a pause between the clocks makes a start later than was said, never earlier.
    let wall = SystemTime::now();
    Moment { now: Instant::now(), wall, iteration: session.iteration(), begins: false }
}

/// The settings of a recording; what it lacks is told once.
fn settings(session: &Session, job: &Job) -> Config {
    let (config, missing) = session.settings_for(&job.request.asked, job.request.output.clone());
    missing.iter().for_each(|missing| diag!(Warning, "ondemand", "the request{}: {missing}", named(&job.request)));
    config
}

fn start(session: &Session, job: &Job) -> Result<(), Error> {
    let path = || job.request.output.clone();
    match job.request.what {
        What::MemoryProfile => session.start_memory_profile(),
        What::Trace => session.start_for(job.ticket, || session.settings_for(&job.request.asked, path()).0),
    }
}

fn cancel(session: &Session, job: &Job, why: &str) {
    match job.request.what {
        What::MemoryProfile => drop(session.stop_memory_profile()),
        What::Trace => session.drop_for(job.ticket, why),
    }
}

/// Ends the recording and writes its file; returns how much is in it.
fn save(session: &Session, job: &Job) -> Result<String, Error> {
    let path = &job.request.output;
    let trace = match job.request.what {
        What::MemoryProfile => session.stop_memory_profile()?,
        What::Trace => session.stop_for(job.ticket)?,
    };
    if !Place::is_unchanged(path) {
        let why = format!("the folder of {} has become another one since it was looked at", path.display());
        return Err(Error::new(ErrorKind::Io, why));
    }
    if job.request.what == What::MemoryProfile {
        return session.export_memory_profile(path).map(|()| "allocations".to_owned());
    }
    // Nobody could take it; they stand in the file.
    let _ = trace.check_violations();
    trace.save_all(path)?;
    Ok(trace.why_empty().map_or_else(|| trace.stats().to_string(), |why| format!("empty: {why}")))
}

fn report_start(job: &Job, begun: Result<(), Error>) {
    /// A start that is later is told so.
    const LATE: Duration = Duration::from_millis(10);
    let (request, late) = (&job.request, job.plan.lateness(Instant::now()));
    let name = named(request);
    match begun {
        Err(why) => refuse(&request.by, &name, &why.to_string()),
        Ok(()) if late > LATE => {
            diag!(Stage, "ondemand", "started what {} has asked for{name}, {} ms late", request.by, late.as_millis());
        }
        Ok(()) => diag!(Stage, "ondemand", "started what {} has asked for{name}", request.by),
    }
}

fn report_end(job: &Job, early: Option<String>, saved: Result<String, Error>) {
    let (name, path) = (named(&job.request), job.request.output.display());
    let early = early.map(|why| format!(" (ended early: {why})")).unwrap_or_default();
    match saved {
        Ok(what) => diag!(Stage, "ondemand", "written{name} to {path}{early}: {what}"),
        Err(why) => diag!(Error, "ondemand", "not written{name}{early}: {why}"),
    }
}

fn refuse(by: &str, name: &str, why: &str) {
    diag!(Warning, "ondemand", "the request by {by}{name} is refused because {why}");
}

/// What the requester calls the trace, to be put behind something.
fn named(request: &Request) -> String {
    match request.trace_id.as_str() {
        "" => String::new(),
        id => format!(", trace {}", id.escape_debug()),
    }
}
