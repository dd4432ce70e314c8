//! Flushes before SIGTERM ends the process, where the user has asked for it.
#![allow(unsafe_code, reason = "signal handlers have no safe form")]

use crate::error::{Error, ErrorKind};

/// Has `flush` called on a thread of its own when SIGTERM comes, then lets the signal do what it did before.
///
/// A handler that the program had installed itself is called after the flush; with none, the process ends by SIGTERM as
/// it would have. Installed once for the process; a forked child, which has the handler but not the thread, takes the
/// signal as if there were no handler here.
///
/// # Errors
/// If the platform has no SIGTERM, or refuses the handler, the pipe or the thread.
#[cfg(unix)]
pub(crate) fn flush_on_sigterm(flush: fn()) -> Result<(), Error> {
    // Fallible: what failed for want of threads or files may be tried again.
    static INSTALLED: once_cell::sync::OnceCell<()> = once_cell::sync::OnceCell::new();
    let installed = INSTALLED.get_or_try_init(|| unix::install(flush));
    installed.copied().map_err(|e| Error::new(ErrorKind::Unsupported, format!("cannot watch for SIGTERM: {e}")))
}

/// There is no SIGTERM on this platform.
#[cfg(not(unix))]
pub(crate) fn flush_on_sigterm(_flush: fn()) -> Result<(), Error> {
    Err(Error::new(ErrorKind::Unsupported, "flush_on_sigterm needs a Unix; call flush_all() from your own handler"))
}

#[cfg(unix)]
mod unix {
    use std::io::{self, Read};
    use std::os::fd::{AsRawFd, IntoRawFd};
    use std::os::unix::net::UnixStream;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicI32, Ordering};

    /// The write end of the pipe; the handler may do no more than write to it.
    static BELL: AtomicI32 = AtomicI32::new(-1);

    /// The process that has the thread.
    static PROCESS: AtomicI32 = AtomicI32::new(-1);

    /// What SIGTERM did before.
    static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

    extern "C" fn ring(signal: libc::c_int) {
        // SAFETY: getpid(2) is async-signal-safe and cannot fail.
        let process = unsafe { libc::getpid() };
        if process != PROCESS.load(Ordering::Relaxed) {
            // A forked child: the bell would ring in the parent.
            let before = BEFORE.get().map_or(std::ptr::null(), std::ptr::from_ref);
            // SAFETY: async-signal-safe; `before` is a valid action, or null, which changes nothing.
            unsafe { libc::sigaction(signal, before, std::ptr::null_mut()) };
            // SAFETY: async-signal-safe; the signal comes when this handler returns.
            unsafe { libc::kill(process, signal) };
            return;
        }
        let byte = 1u8;
        // SAFETY: write(2) is async-signal-safe, and the byte outlives the call.
        unsafe { libc::write(BELL.load(Ordering::Relaxed), (&raw const byte).cast(), 1) };
    }

    pub(super) fn install(flush: fn()) -> io::Result<()> {
        let (bell, mut door) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        BELL.store(bell.as_raw_fd(), Ordering::Relaxed);
        // Open for as long as the process lives: the handler may run at any time.
        let _ = bell.into_raw_fd();
        // SAFETY: getpid(2) takes nothing and cannot fail.
        PROCESS.store(unsafe { libc::getpid() }, Ordering::Relaxed);
        let before = current()?;
        let _ = BEFORE.set(before);
        replace(&ours())?;
        std::thread::Builder::new().name("kineto-sigterm".into()).spawn(move || {
            while door.read_exact(&mut [0]).is_ok() {
                flush();
                let _ = replace(&before);
                // SAFETY: sends the signal to this process again; its handler is the one of before.
                unsafe { libc::kill(PROCESS.load(Ordering::Relaxed), libc::SIGTERM) };
            }
        })?;
        Ok(())
    }

    fn ours() -> libc::sigaction {
        // SAFETY: an all-zero sigaction is a valid one: default handler, empty mask, no flags.
        let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
        ours.sa_sigaction = ring as *const () as libc::sighandler_t;
        ours.sa_flags = libc::SA_RESTART;
        ours
    }

    /// Returns what SIGTERM does now.
    fn current() -> io::Result<libc::sigaction> {
        let mut current = ours();
        // SAFETY: a null action changes nothing, and `current` is a valid place for the answer.
        let failed = unsafe { libc::sigaction(libc::SIGTERM, std::ptr::null(), &raw mut current) } != 0;
        if failed { Err(io::Error::last_os_error()) } else { Ok(current) }
    }

    /// Installs `action` for SIGTERM.
    fn replace(action: &libc::sigaction) -> io::Result<()> {
        // SAFETY: the struct is valid; the handler does only what a handler may, or was installed before.
        let failed = unsafe { libc::sigaction(libc::SIGTERM, action, std::ptr::null_mut()) } != 0;
        if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
