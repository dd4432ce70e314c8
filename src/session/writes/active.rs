//! The writes in progress, for which the end of the process waits.

use super::Writes;
use super::patience::TIME_TO_CLOSE;
use crate::diag::diag;
use crate::error::{Error, ErrorKind};
use crate::os::{fork, thread};
use crate::recorder::memory_listeners::InternalAllocGuard;
use crate::session::settings::exit_deadline;
use crate::trace::Trace;
use crate::wait::{Condvar, sleep, steady};
use crate::write::file::Destination;
use crate::write::sink::{Sinks, Writers};
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The writes of this process; a forked child starts with none.
static ACTIVE: fork::Own<ActiveWrites> = fork::Own::of_first(ActiveWrites { writes: Vec::new(), ending_since: None });

#[derive(Default)]
struct ActiveWrites {
    writes: Vec<Weak<ActiveWrite>>,
    /// When the process began to end.
    ending_since: Option<Instant>,
}

/// A write in progress, from the end of its recording until all that follows its result is done.
pub(crate) struct ActiveWrite {
    /// The service of its session; `None` for a trace that the program saves.
    service: Option<Arc<Writes>>,
    /// The thread that waits for it; `None` if the program continues meanwhile.
    awaited_by: Option<i64>,
    flush_timeout: Duration,
    state: Mutex<WriteState>,
    has_result: Condvar,
}

#[derive(Default)]
struct WriteState {
    /// When the file is closed with the rows written by then.
    deadline: Option<Instant>,
    /// The trace, while it is being written.
    trace: Option<Trace>,
    /// Names the output in messages, once a thread writes.
    output: Option<PathBuf>,
    /// The thread that writes.
    thread: Option<i64>,
    result: Option<Result<(), Error>>,
    /// Whether no caller waits for the result any more.
    is_given_up: bool,
    /// Whether all that follows the result is done.
    is_over: bool,
}

impl ActiveWrite {
    /// Registers a write that the program waits for on this thread, or one that it does not wait for.
    pub(super) fn register(
        service: Option<Arc<Writes>>,
        is_awaited: bool,
        flush_timeout: Duration,
    ) -> Arc<ActiveWrite> {
        let awaited_by = is_awaited.then(thread::id);
        let (state, has_result) = (Mutex::default(), Condvar::new());
        let write = Arc::new(ActiveWrite { service, awaited_by, flush_timeout, state, has_result });
        let mut active = ACTIVE.lock();
        active.writes.retain(|write| write.strong_count() > 0);
        active.writes.push(Arc::downgrade(&write));
        let ending_since = active.ending_since;
        drop(active);
        ending_since.into_iter().for_each(|since| write.close_at(exit_deadline(flush_timeout, since)));
        write
    }

    fn lock(&self) -> MutexGuard<'_, WriteState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and makes the writer close its file in time, if there is a limit.
    fn change<R>(&self, change: impl FnOnce(&mut WriteState) -> R) -> R {
        let mut state = self.lock();
        let changed = change(&mut state);
        if let WriteState { deadline: Some(deadline), trace: Some(trace), .. } = &*state {
            trace.progress().close_at(*deadline);
        }
        changed
    }

    /// Makes the writer close its file at that time, with the rows written by then.
    pub(super) fn close_at(&self, deadline: Instant) {
        self.change(|state| state.deadline = Some(deadline));
    }

    /// Notes the trace that is about to be written.
    pub(crate) fn set_trace(&self, trace: Option<Trace>) {
        // Dropping a trace returns memory, which takes other locks.
        drop(self.change(|state| std::mem::replace(&mut state.trace, trace)));
    }

    /// Writes the file of a trace; a panic of its destination is an error. Segments and memory timelines are written elsewhere.
    pub(crate) fn save(&self, trace: &Trace, to: &dyn Destination, path: &Path) -> Result<PathBuf, Error> {
        self.set_trace(Some(trace.clone()));
        contain_panics(path, || {
            // No caller could handle violations; the file contains them.
            let _ = trace.check_violations();
            trace.save_all(to, path)
        })
    }

    /// Does `work` on a thread of its own, then passes what it returns to `end`; a panic is an error. The records are free again
    /// before that. `output` names the output in messages.
    pub(crate) fn start<T: 'static>(
        self: Arc<Self>,
        output: PathBuf,
        work: impl FnOnce(&ActiveWrite) -> Result<T, Error> + Send + 'static,
        end: impl FnOnce(&ActiveWrite, Result<T, Error>) + Send + 'static,
    ) -> Result<(), UnstartedWrite> {
        self.lock().output = Some(output.clone());
        let named = output.clone();
        let run = move || {
            let _own = InternalAllocGuard::begin();
            self.lock().thread = Some(thread::id());
            let result = contain_panics(&named, || work(&self));
            self.set_trace(None);
            end(&self, result);
            self.lock().is_over = true;
        };
        start_thread(output, Box::new(run))
    }

    /// Sets the result, which those who wait get; returns whether no caller does any more.
    pub(super) fn set_result(&self, result: Result<(), Error>) -> bool {
        let mut state = self.lock();
        state.result = Some(result);
        self.has_result.notify_all();
        state.is_given_up
    }

    /// Returns the result, if there is one.
    pub(super) fn result(&self) -> Option<Result<(), Error>> {
        self.lock().result.clone()
    }

    /// Waits for the result.
    pub(super) fn wait(&self) -> Result<(), Error> {
        let state = self.has_result.wait_while(&self.state, self.lock(), |state| state.result.is_none());
        state.result.clone().unwrap_or(Ok(()))
    }

    /// Waits for the result until then.
    pub(super) fn wait_until(&self, until: Instant) -> Option<Result<(), Error>> {
        let mut state = self.lock();
        while state.result.is_none() && steady() < until {
            state = self.has_result.wait_until(&self.state, state, until);
        }
        state.result.clone()
    }

    /// Gives up: neither the caller nor the end of the process waits for it any more. Returns the result, if there is one.
    pub(super) fn give_up(&self) -> Option<Result<(), Error>> {
        let mut state = self.lock();
        state.is_given_up = state.result.is_none();
        state.result.clone()
    }

    /// Returns whether the program continues meanwhile.
    pub(in crate::session) fn is_in_background(&self) -> bool {
        self.awaited_by.is_none()
    }

    /// Returns whether another thread waits for it.
    pub(in crate::session) fn is_awaited_elsewhere(&self) -> bool {
        self.awaited_by.is_some_and(|id| id != thread::id())
    }
}

impl fmt::Debug for ActiveWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActiveWrite").field("awaited_by", &self.awaited_by).finish_non_exhaustive()
    }
}

type Work = Box<dyn FnOnce() + Send>;

/// Work that no thread could be started for.
pub(crate) struct UnstartedWrite {
    /// Names the output in messages.
    output: PathBuf,
    error: io::Error,
    work: Work,
}

impl UnstartedWrite {
    /// Does the work on the calling thread.
    pub(crate) fn run_here(self) {
        (self.work)();
    }

    /// Forgets the work; returns the reason.
    pub(in crate::session) fn into_error(self) -> Error {
        Error::io("start a thread that writes", &self.output, self.error, "end other threads")
    }
}

/// Starts a thread that writes.
fn start_thread(output: PathBuf, work: Work) -> Result<(), UnstartedWrite> {
    // A thread that is not started drops its closure.
    let kept = Arc::new(Mutex::new(Some(work)));
    let take = |kept: &Mutex<Option<Work>>| kept.lock().unwrap_or_else(PoisonError::into_inner).take();
    let of_thread = kept.clone();
    let run = move || take(&of_thread).into_iter().for_each(|work| work());
    match thread::spawn("kineto-write", Box::new(run)) {
        Ok(_) => Ok(()),
        Err(error) => Err(UnstartedWrite { output, error, work: take(&kept).unwrap_or_else(|| Box::new(|| ())) }),
    }
}

/// Saves to `path` by `save`; a panic is an error.
fn contain_panics<R>(path: &Path, save: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
    catch_unwind(AssertUnwindSafe(save)).unwrap_or_else(|_| {
        let is_ours = Sinks::is_file(path);
        let what = if is_ours { "its writer panicked; please report this" } else { "the program's writer panicked" };
        let text = format!("cannot write {}: {what}", Writers::output_name(path));
        Err(Error::new(ErrorKind::Handler, text))
    })
}

/// Returns the writes that are not over. The list is not locked where they are dropped, which returns memory.
fn active_writes() -> Vec<Arc<ActiveWrite>> {
    let all: Vec<_> = ACTIVE.lock().writes.iter().filter_map(Weak::upgrade).collect();
    let is_active = |write: &Arc<ActiveWrite>| {
        let state = write.lock();
        !state.is_over && !state.is_given_up
    };
    all.into_iter().filter(is_active).collect()
}

/// Returns a number that grows with the progress of a session's writers, plus the number of their traces.
pub(super) fn progress_steps(service: &Arc<Writes>) -> u64 {
    let active = active_writes();
    let own = active.iter().filter(|write| write.service.as_ref().is_some_and(|of| Arc::ptr_eq(of, service)));
    own.filter_map(|write| write.lock().trace.clone()).map(|trace| trace.progress().steps() + 1).sum()
}

/// The end of the process, as far as writes go. It may not come: a program can begin to handle a signal itself.
pub(in crate::session) struct ProcessEnd {
    began: Instant,
}

impl ProcessEnd {
    /// Notes that the process began to end then: until this is dropped, all files are closed in time, also those of later writes.
    pub(in crate::session) fn begin(began: Instant) -> ProcessEnd {
        ACTIVE.lock().ending_since = Some(began);
        active_writes().iter().for_each(|write| write.close_at(exit_deadline(write.flush_timeout, began)));
        ProcessEnd { began }
    }

    /// Waits for these writes, each until its time limit.
    pub(in crate::session) fn wait_for(&self, is_awaited: impl Fn(&ActiveWrite) -> bool) {
        const INTERVAL: Duration = Duration::from_millis(5);
        // An observer of a dump may end the process.
        let own = thread::id();
        let is_awaited = |write: &Arc<ActiveWrite>| is_awaited(write) && write.lock().thread != Some(own);
        let last_deadline = || {
            let awaited = active_writes().into_iter().filter(&is_awaited);
            awaited.map(|write| exit_deadline(write.flush_timeout, self.began)).max()
        };
        while last_deadline().is_some_and(|deadline| steady() < deadline + TIME_TO_CLOSE) {
            sleep(INTERVAL);
        }
        // Those that a thread waits for are reported there.
        let late = active_writes().into_iter().filter(|write| write.is_in_background() && is_awaited(write));
        for output in late.filter_map(|write| write.lock().output.clone()) {
            let output = Writers::output_name(&output);
            diag!(Error, "trace", "{output} was not written: the process ended first; raise flush_timeout");
        }
    }
}

impl Drop for ProcessEnd {
    fn drop(&mut self) {
        ACTIVE.lock().ending_since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(7);

    #[test]
    #[cfg_attr(miri, ignore = "starts a process")]
    fn end_of_the_process_limits_writes_while_it_lasts() {
        let check = || {
            let register = || ActiveWrite::register(None, false, TIMEOUT);
            let deadline_of = |write: &ActiveWrite| write.lock().deadline;
            let (earlier, began) = (register(), steady());
            let end = ProcessEnd::begin(began);
            let later = register();
            assert_eq!([&earlier, &later].map(|write| deadline_of(write)), [Some(began + TIMEOUT); 2]);
            drop(end);
            assert_eq!(deadline_of(&register()), None, "the program handles the signal itself");
        };
        test_base::virtual_time(|clock| clock.run(check));
    }

    #[test]
    #[cfg_attr(miri, ignore = "starts a process")]
    fn end_of_the_process_waits_for_the_writes_of_others() {
        let check = || {
            let began = steady();
            let wait_for = |is_awaited: fn(&ActiveWrite) -> bool| {
                ProcessEnd::begin(began).wait_for(is_awaited);
                steady().saturating_duration_since(began)
            };
            let own = ActiveWrite::register(None, true, TIMEOUT);
            wait_for(ActiveWrite::is_awaited_elsewhere);
            wait_for(ActiveWrite::is_in_background);
            assert!(steady() - began < TIMEOUT, "this thread waits for itself");
            drop(own);
            let background = ActiveWrite::register(None, false, TIMEOUT);
            assert!(wait_for(ActiveWrite::is_in_background) >= TIMEOUT + TIME_TO_CLOSE);
            assert!(background.give_up().is_none(), "it has not ended");
            assert!(active_writes().is_empty(), "it was given up");
        };
        test_base::virtual_time(|clock| clock.run(check));
    }

    #[test]
    #[cfg_attr(miri, ignore = "starts a process")]
    fn panic_ends_a_write() {
        let check = || {
            let write = ActiveWrite::register(None, false, TIMEOUT);
            let fail = |_: &ActiveWrite| -> Result<(), Error> { std::panic::resume_unwind(Box::new("planted")) };
            let note = |write: &ActiveWrite, result| _ = write.set_result(result);
            assert!(write.clone().start("sink://a".into(), fail, note).is_ok());
            let error = write.wait().unwrap_err();
            assert_eq!(error.to_string(), "cannot write sink://a: the program's writer panicked");
            ProcessEnd::begin(steady()).wait_for(ActiveWrite::is_in_background);
            assert!(active_writes().is_empty(), "all that follows the result is done");
        };
        test_base::virtual_time(|clock| clock.run(check));
    }
}
