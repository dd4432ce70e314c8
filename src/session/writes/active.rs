//! What is being ended or written now: the end of the process waits for it.

use super::Writes;
use super::patience::TIME_TO_CLOSE;
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

/// A trace that is being ended, taken or written, until this is dropped or over.
pub(crate) struct ActiveWrite {
    /// The service of its session; `None` for a trace that the program saves.
    of: Option<Arc<Writes>>,
    /// The thread that waits for it; `None` if the program continues meanwhile.
    awaited_by: Option<i64>,
    flush_timeout: Duration,
    state: Mutex<WriteState>,
    has_ended: Condvar,
}

#[derive(Default)]
struct WriteState {
    /// When the file is closed with the rows written by then.
    deadline: Option<Instant>,
    /// The trace, while it is being written.
    trace: Option<Trace>,
    result: Option<Result<(), Error>>,
    /// Whether no caller waits for the result any more.
    is_given_up: bool,
    /// Whether all that follows the result is done.
    is_over: bool,
}

impl ActiveWrite {
    /// Registers a write that the program waits for on this thread, or one that it does not wait for.
    pub(super) fn register(of: Option<Arc<Writes>>, is_awaited: bool, flush_timeout: Duration) -> Arc<ActiveWrite> {
        let awaited_by = is_awaited.then(thread::id);
        let (state, has_ended) = (Mutex::default(), Condvar::new());
        let write = Arc::new(ActiveWrite { of, awaited_by, flush_timeout, state, has_ended });
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

    /// Writes a trace: all files that the crate writes by itself are written here. A panic is an error.
    pub(crate) fn save(&self, trace: &Trace, to: &dyn Destination, path: &Path) -> Result<PathBuf, Error> {
        self.set_trace(Some(trace.clone()));
        contain_panics(path, || {
            // No caller could handle violations; the file contains them.
            let _ = trace.check_violations();
            trace.save_all(to, path)
        })
    }

    /// Does `work` on a thread of its own, then passes what it returns to `end`; a panic is an error. The records are free again
    /// before that. `path` names the output in messages.
    pub(crate) fn start<T: 'static>(
        self: Arc<Self>,
        path: PathBuf,
        work: impl FnOnce(&ActiveWrite) -> Result<T, Error> + Send + 'static,
        end: impl FnOnce(&ActiveWrite, Result<T, Error>) + Send + 'static,
    ) -> Result<(), UnstartedWrite> {
        start_thread(Box::new(move || {
            let _own = InternalAllocGuard::begin();
            let result = contain_panics(&path, || work(&self));
            self.set_trace(None);
            end(&self, result);
            self.lock().is_over = true;
        }))
    }

    /// Sets the result, which those who wait get; returns whether no caller does any more.
    pub(super) fn set_result(&self, result: Result<(), Error>) -> bool {
        let mut state = self.lock();
        state.result = Some(result);
        self.has_ended.notify_all();
        state.is_given_up
    }

    /// Returns the result, if there is one.
    pub(super) fn result(&self) -> Option<Result<(), Error>> {
        self.lock().result.clone()
    }

    /// Waits for the result.
    pub(super) fn wait(&self) -> Result<(), Error> {
        let state = self.has_ended.wait_while(&self.state, self.lock(), |state| state.result.is_none());
        state.result.clone().unwrap_or(Ok(()))
    }

    /// Waits for the result until then.
    pub(super) fn wait_until(&self, until: Instant) -> Option<Result<(), Error>> {
        let mut state = self.lock();
        while state.result.is_none() && steady() < until {
            state = self.has_ended.wait_until(&self.state, state, until);
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

/// Work that no thread could be started for.
pub(crate) struct UnstartedWrite {
    error: io::Error,
    work: Box<dyn FnOnce() + Send>,
}

impl UnstartedWrite {
    /// Does the work on the calling thread.
    pub(crate) fn run_here(self) {
        (self.work)();
    }

    /// Forgets the work; returns the reason.
    pub(in crate::session) fn into_error(self, path: &Path) -> Error {
        Error::io("start a thread that writes", path, self.error, "end other threads")
    }
}

/// Starts a thread that writes.
fn start_thread(work: Box<dyn FnOnce() + Send>) -> Result<(), UnstartedWrite> {
    // A thread that is not started drops its closure.
    let kept = Arc::new(Mutex::new(Some(work)));
    let take =
        |kept: &Mutex<Option<Box<dyn FnOnce() + Send>>>| kept.lock().unwrap_or_else(PoisonError::into_inner).take();
    let of_thread = kept.clone();
    let run = move || take(&of_thread).into_iter().for_each(|work| work());
    match thread::spawn("kineto-write", Box::new(run)) {
        Ok(_) => Ok(()),
        Err(error) => Err(UnstartedWrite { error, work: take(&kept).unwrap_or_else(|| Box::new(|| ())) }),
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
pub(super) fn progress_steps(of: &Arc<Writes>) -> u64 {
    let active = active_writes();
    let own = active.iter().filter(|write| write.of.as_ref().is_some_and(|service| Arc::ptr_eq(service, of)));
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
        let last_deadline = || {
            let awaited = active_writes().into_iter().filter(|write| is_awaited(write));
            awaited.map(|write| exit_deadline(write.flush_timeout, self.began)).max()
        };
        while last_deadline().is_some_and(|deadline| steady() < deadline + TIME_TO_CLOSE) {
            sleep(INTERVAL);
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
