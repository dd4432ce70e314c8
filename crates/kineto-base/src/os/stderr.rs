//! Writes to stderr without waiting for its reader.
#![allow(unsafe_code, reason = "poll and write have no safe form")]

use super::file_limit::FileLimitGuard;

/// Writes a line of at most 4096 bytes, which a pipe takes as a whole. `false` if that would block, or if the pipe has no
/// reader: such a write may end the process by SIGPIPE.
///
/// It can still block if another thread fills the pipe between the poll and the write.
pub fn write_line(line: &[u8]) -> bool {
    write_to(libc::STDERR_FILENO, line)
}

fn write_to(descriptor: i32, line: &[u8]) -> bool {
    let mut ready = libc::pollfd { fd: descriptor, events: libc::POLLOUT, revents: 0 };
    // SAFETY: `ready` is one valid entry.
    let count = unsafe { libc::poll(&raw mut ready, 1, 0) };
    if count != 1 || ready.revents != libc::POLLOUT {
        return false;
    }
    // Stderr may be a file at its size limit.
    let _limit = FileLimitGuard::new();
    // SAFETY: the pointer and the length are those of `line`.
    unsafe { libc::write(descriptor, line.as_ptr().cast(), line.len()) > 0 }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::os::fd::AsRawFd as _;

    #[test]
    fn full_pipe_takes_no_line() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let write = |line: &[u8]| write_to(writer.as_raw_fd(), line);
        let line = [b'x'; 4096];
        let written = (0..100_000).take_while(|_| write(&line)).count();
        assert!(written > 0 && written < 100_000);
        let mut all = vec![0; written * line.len()];
        reader.read_exact(&mut all).unwrap();
        assert!(all.iter().all(|byte| *byte == b'x'), "each line is whole");
        assert!(write(&line));
        drop(reader);
        assert!(!write(&line), "the reader is gone");
        assert!(!write_to(-1, &line), "closed");
    }
}
