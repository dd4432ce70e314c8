//! Wakes the thread that waits for requests.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

/// A bell that any thread may ring; it takes no lock and never waits.
#[derive(Debug)]
pub(super) struct Bell {
    inside: UnixStream,
    outside: UnixStream,
}

impl Bell {
    pub(super) fn new() -> io::Result<Bell> {
        let (inside, outside) = UnixStream::pair()?;
        inside.set_nonblocking(true)?;
        outside.set_nonblocking(true)?;
        Ok(Bell { inside, outside })
    }

    /// Rings; one that rings already does so until it is heard.
    pub(super) fn ring(&self) {
        let _ = (&self.outside).write(&[1]);
    }

    /// Returns what is readable while it rings.
    pub(super) fn descriptor(&self) -> RawFd {
        self.inside.as_raw_fd()
    }

    /// Takes note of all that it was rung for.
    pub(super) fn hear(&self) {
        while (&self.inside).read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::datagram::wait;
    use std::time::{Duration, Instant};

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn it_wakes_who_waits_and_can_be_rung_for_ever() {
        let bell = Bell::new().unwrap();
        let asked = Instant::now();
        wait(&[bell.descriptor()], Duration::from_millis(10));
        assert!(asked.elapsed() >= Duration::from_millis(10));
        (0..1_000_000).for_each(|_| bell.ring());
        wait(&[bell.descriptor()], Duration::from_secs(3600));
        bell.hear();
        assert_eq!((&bell.inside).read(&mut [0; 1]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
