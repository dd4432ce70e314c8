//! Flushes before SIGINT, SIGTERM or SIGHUP ends the process, and dumps on SIGUSR2.
#![allow(unsafe_code, reason = "signal handlers have no safe form")]

mod chain;
mod wake;

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use wake::wake;

const WATCHED: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

const DUMP: libc::c_int = libc::SIGUSR2;

/// The process that runs the thread; 0 if none does.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// The process that runs the thread or is about to start it.
static EXPECTED: AtomicI32 = AtomicI32::new(0);

/// The signal that is ending the process; 0 if none is.
static FIRST: AtomicI32 = AtomicI32::new(0);

/// Whether the thread was woken for a dump and has not begun it.
static IS_DUMPING: AtomicBool = AtomicBool::new(false);

/// Whether any signal has our handler.
static IS_WATCHING: AtomicBool = AtomicBool::new(false);

extern "C" fn handle_signal(signal: libc::c_int) {
    if !is_ours(signal) {
        return;
    }
    let is_expected = EXPECTED.load(Ordering::Relaxed) == process_id();
    if is_expected && FIRST.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst).is_err() {
        // The second one ends the process at once.
        return end_by_default(signal);
    }
    // The thread is notified now, or when it starts.
    let will_be_handled = is_expected && (PROCESS.load(Ordering::SeqCst) != process_id() || wake());
    if !will_be_handled {
        end_process(signal);
    }
}

extern "C" fn handle_dump_signal(signal: libc::c_int) {
    chain::call(signal);
    if PROCESS.load(Ordering::SeqCst) == process_id() && !IS_DUMPING.swap(true, Ordering::SeqCst) {
        // The code that was interrupted may be about to read `errno`.
        let place = errno_place();
        // SAFETY: the C library's variable of this thread, valid as long as the thread; `None` where it is not known.
        let error = place.map(|place| unsafe { *place });
        wake();
        if let Some((place, error)) = place.zip(error) {
            // SAFETY: as above.
            unsafe { *place = error };
        }
    }
}

/// Returns the place of this thread's `errno`, where its function is known.
fn errno_place() -> Option<*mut libc::c_int> {
    #[cfg(target_os = "linux")]
    // SAFETY: async-signal-safe, takes nothing and cannot fail.
    return Some(unsafe { libc::__errno_location() });
    #[cfg(target_vendor = "apple")]
    // SAFETY: as on Linux.
    return Some(unsafe { libc::__error() });
    #[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
    return None;
}

/// Watches those of SIGINT, SIGTERM and SIGHUP that end the process by default now.
///
/// When one arrives, [`start_signal_thread`]'s thread flushes, then the signal is raised again and ends the process. Process 1, the first
/// of a container, exits with 128 plus the signal's number instead, as shells report it. A second signal ends the process at
/// once.
///
/// An ignored signal stays ignored. A handler of the program, installed before or after, is the only one that acts: if it
/// calls ours, ours does nothing. Before [`start_signal_thread`], and in a forked child that has not called it, a signal ends the process
/// as if there were no handler.
pub fn watch_signals() {
    for signal in WATCHED {
        watch(signal, handle_signal as *const () as libc::sighandler_t);
    }
}

/// Installs a handler where the default action, or the handler of another copy of this crate, is installed.
fn watch(signal: libc::c_int, handler: libc::sighandler_t) {
    let Some(action) = signal_action(signal) else { return };
    let is_of_copy = chain::is_of_copy(&action) && action.sa_sigaction != handler;
    if is_of_copy {
        chain::keep(signal, action.sa_sigaction);
    }
    if is_of_copy || action.sa_sigaction == libc::SIG_DFL {
        set_action(signal, handler);
        IS_WATCHING.store(true, Ordering::Relaxed);
    }
}

/// Watches SIGUSR2, which makes [`start_signal_thread`]'s thread call `dump`; until that runs, the signal has no effect.
///
/// Returns `false` if the signal would not end the process now: the program handles or ignores it.
pub fn watch_dump_signal() -> bool {
    let handler = handle_dump_signal as *const () as libc::sighandler_t;
    watch(DUMP, handler);
    signal_action(DUMP).is_some_and(|action| action.sa_sigaction == handler)
}

/// Announces that [`start_signal_thread`] will be called soon: until then signals are held.
pub fn expect_signal_thread() {
    // Without a handler, the thread never starts, so do not wait for it.
    if !IS_WATCHING.load(Ordering::Relaxed) {
        return;
    }
    let process = process_id();
    if EXPECTED.swap(process, Ordering::Relaxed) != process {
        FIRST.store(0, Ordering::Relaxed);
    }
}

/// Starts the thread that calls `flush` when a watched signal comes, and `dump` when SIGUSR2 does; not twice in a process.
pub fn start_signal_thread(flush: fn(), dump: fn()) {
    static STARTED: AtomicI32 = AtomicI32::new(0);
    let process = process_id();
    if !IS_WATCHING.load(Ordering::Relaxed) || STARTED.swap(process, Ordering::Relaxed) == process {
        return;
    }
    let Ok(mut waiter) = wake::open() else { return give_up() };
    // A forked child may have inherited a dump that its parent has begun.
    IS_DUMPING.store(false, Ordering::SeqCst);
    let run = move || {
        while waiter.wait() {
            // A panic must not end this thread, nor keep a signal from ending the process.
            if IS_DUMPING.swap(false, Ordering::SeqCst) {
                let _ = std::panic::catch_unwind(dump);
            }
            let first = FIRST.load(Ordering::SeqCst);
            if first != 0 {
                let _ = std::panic::catch_unwind(flush);
                end_process(first);
                FIRST.store(0, Ordering::SeqCst);
            }
        }
    };
    if crate::os::thread::spawn("kineto-signals", Box::new(run)).is_ok() {
        PROCESS.store(process, Ordering::SeqCst);
        if FIRST.load(Ordering::SeqCst) != 0 {
            wake();
        }
    } else {
        give_up();
    }
}

/// Notes that there is no thread: signals end the process at once, and so does a pending one.
fn give_up() {
    EXPECTED.store(0, Ordering::SeqCst);
    let first = FIRST.swap(0, Ordering::SeqCst);
    if first != 0 {
        end_process(first);
    }
}

/// Lets a pending signal end the exiting process now: the thread of [`start_signal_thread`] may run too late to do that.
pub fn end_by_pending_signal() {
    let first = FIRST.load(Ordering::SeqCst);
    if first != 0 && EXPECTED.load(Ordering::Relaxed) == process_id() {
        end_process(first);
    }
}

/// Ends the process by the signal, unless the program has installed a handler since. If another copy of this crate
/// handled the signal before, that copy gets it next, and ends the process.
fn end_process(signal: libc::c_int) {
    // The action is the default if another thread is already here.
    if !is_ours(signal) && !is_default(signal) {
        return;
    }
    match chain::take(signal) {
        Some(next) => {
            set_action(signal, next);
            raise(signal);
        }
        None => end_by_default(signal),
    }
}

fn end_by_default(signal: libc::c_int) {
    // The kernel takes no default action for process 1 of a container: it ends here if something was recorded.
    if process_id() == 1 {
        if EXPECTED.load(Ordering::Relaxed) == 1 {
            // SAFETY: async-signal-safe.
            unsafe { libc::_exit(128 + signal) };
        }
        return;
    }
    set_action(signal, libc::SIG_DFL);
    raise(signal);
}

/// Sends this process a signal.
fn raise(signal: libc::c_int) {
    // SAFETY: async-signal-safe; within a handler, the signal is delivered when that returns.
    unsafe { libc::kill(process_id(), signal) };
}

fn process_id() -> libc::pid_t {
    // SAFETY: getpid(2) is async-signal-safe, takes nothing and cannot fail.
    unsafe { libc::getpid() }
}

fn is_ours(signal: libc::c_int) -> bool {
    signal_action(signal).is_some_and(|action| action.sa_sigaction == handle_signal as *const () as libc::sighandler_t)
}

fn is_default(signal: libc::c_int) -> bool {
    signal_action(signal).is_some_and(|action| action.sa_sigaction == libc::SIG_DFL)
}

/// Returns the current action of a signal.
fn signal_action(signal: libc::c_int) -> Option<libc::sigaction> {
    // SAFETY: all zeros are a valid sigaction: default handler, empty mask, no flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: async-signal-safe; a null action changes nothing, and `action` is valid for writes.
    let failed = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) } != 0;
    (!failed).then_some(action)
}

fn set_action(signal: libc::c_int, handler: libc::sighandler_t) {
    // SAFETY: as in `action`.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = libc::SA_RESTART;
    if handler != libc::SIG_DFL {
        chain::mark(&mut action);
    }
    // SAFETY: async-signal-safe; the struct is valid, and its handler is the default or one of ours, which are
    // async-signal-safe themselves.
    unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
}
