//! Wakes the thread that polls for requests.

use crate::os::descriptor::CheckedDescriptor;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

/// A wake-up that any thread may send; it takes no lock and never waits.
#[derive(Debug)]
pub(super) struct Wakeup {
    inside: CheckedDescriptor<UnixStream>,
    outside: CheckedDescriptor<UnixStream>,
}

impl Wakeup {
    pub(super) fn new() -> io::Result<Wakeup> {
        let (inside, outside) = UnixStream::pair()?;
        inside.set_nonblocking(true)?;
        outside.set_nonblocking(true)?;
        Ok(Wakeup { inside: CheckedDescriptor::new(inside), outside: CheckedDescriptor::new(outside) })
    }

    /// Wakes the thread; the signal stays until it is cleared.
    pub(super) fn notify(&self) {
        let _ = self.outside.get().and_then(|mut outside| outside.write(&[1]));
    }

    /// Returns a descriptor that is readable until the signal is cleared; `None` if the program has closed it.
    pub(super) fn descriptor(&self) -> Option<RawFd> {
        self.inside.get().ok().map(AsRawFd::as_raw_fd)
    }

    /// Clears the signal.
    pub(super) fn clear(&self) {
        while self.inside.get().and_then(|mut inside| inside.read(&mut [0; 64])).is_ok_and(|read| read > 0) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::datagram::wait_readable;
    use std::time::{Duration, Instant};

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn notify_wakes_the_waiter_and_never_blocks() {
        let wakeup = Wakeup::new().unwrap();
        let asked = Instant::now();
        wait_readable(wakeup.descriptor().as_slice(), Duration::from_millis(10));
        assert!(asked.elapsed() >= Duration::from_millis(10));
        (0..1_000_000).for_each(|_| wakeup.notify());
        wait_readable(wakeup.descriptor().as_slice(), Duration::from_secs(3600));
        wakeup.clear();
        assert_eq!(wakeup.inside.get().unwrap().read(&mut [0; 1]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
