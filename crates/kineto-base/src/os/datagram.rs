//! Datagrams between processes of one machine: the sender's credentials, and waiting.
#![allow(unsafe_code, reason = "the sender of a datagram, and poll, have no safe form")]

use crate::wait::{look_until, steady};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

/// A received datagram.
#[derive(Debug)]
pub struct Datagram {
    /// Its length in the buffer, in bytes.
    pub length: usize,
    /// Whether it was longer than the buffer.
    pub is_truncated: bool,
    /// The process and the user that sent it, as verified by the kernel.
    pub sender: Option<(i32, u32)>,
    /// The name of the sender's socket; abstract names begin with a zero byte.
    pub name: Vec<u8>,
}

/// Makes the kernel attach the sender's credentials to each datagram.
///
/// # Errors
/// Those of `setsockopt`.
pub fn enable_sender_credentials(socket: &UnixDatagram) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the option's value is an int, valid for the call, and its length is that of one.
    let failed = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PASSCRED,
            (&raw const on).cast(),
            size_as_socklen::<libc::c_int>(),
        )
    };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A buffer for the kernel's ancillary data, aligned as its headers must be.
#[repr(C, align(8))]
struct Control([u8; 128]);

/// Its length, of the C library's type for it.
#[cfg(not(target_env = "musl"))]
const CONTROL: usize = size_of::<Control>();
#[cfg(target_env = "musl")]
const CONTROL: libc::socklen_t = 128;

#[expect(clippy::cast_possible_truncation, reason = "sizes of small structs")]
const fn size_as_socklen<T>() -> libc::socklen_t {
    size_of::<T>() as libc::socklen_t
}

/// Receives the next datagram without waiting; removes it from the queue even if it is malformed.
///
/// # Errors
/// Those of `recvmsg`; `WouldBlock` if there is none.
pub fn receive(socket: &UnixDatagram, buffer: &mut [u8]) -> io::Result<Datagram> {
    // SAFETY: an all-zero address is valid, of no family.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    let mut control = Control([0; 128]);
    let mut parts = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: an all-zero message header is valid and empty.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = (&raw mut address).cast();
    message.msg_namelen = size_as_socklen::<libc::sockaddr_un>();
    message.msg_iov = &raw mut parts;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control.0).cast();
    message.msg_controllen = CONTROL;
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: name, buffer and control point to memory of the given lengths, which outlives the call.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    let sender = sender_credentials(&message);
    let named = (message.msg_namelen as usize).saturating_sub(size_of::<libc::sa_family_t>());
    let name = address.sun_path.iter().take(named).map(|byte| byte.to_ne_bytes()[0]).collect();
    Ok(Datagram { length, is_truncated: message.msg_flags & libc::MSG_TRUNC != 0, sender, name })
}

/// Returns the sender's credentials from a message. Closes descriptors that came with it.
fn sender_credentials(message: &libc::msghdr) -> Option<(i32, u32)> {
    let mut sender = None;
    // SAFETY: the kernel has filled in the message, whose control part still lives.
    let mut at = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !at.is_null() {
        // SAFETY: the macros give null, or a whole header inside the control part.
        let header = unsafe { at.read() };
        // SAFETY: as above; its data follows it.
        let data = unsafe { libc::CMSG_DATA(at) };
        let length = (header.cmsg_len as usize).saturating_sub(data.addr() - at.addr());
        match (header.cmsg_level, header.cmsg_type) {
            (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) if length >= size_of::<libc::ucred>() => {
                // SAFETY: the length check above covers a `ucred`; the read may be unaligned.
                let user = unsafe { data.cast::<libc::ucred>().read_unaligned() };
                sender = Some((user.pid, user.uid));
            }
            (libc::SOL_SOCKET, libc::SCM_RIGHTS) => close_all(data, length),
            _ => {}
        }
        // SAFETY: `at` is a header of this message.
        at = unsafe { libc::CMSG_NXTHDR(message, at) };
    }
    sender
}

/// Closes descriptors sent by another process.
fn close_all(data: *const u8, length: usize) {
    for nth in 0..length / size_of::<RawFd>() {
        let place = data.wrapping_add(nth * size_of::<RawFd>());
        // SAFETY: `place` lies within the descriptors that `length` covers; the read may be unaligned.
        let descriptor = unsafe { place.cast::<RawFd>().read_unaligned() };
        // SAFETY: the kernel opened it for this process, and no other code knows it.
        unsafe { libc::close(descriptor) };
    }
}

/// Waits until a descriptor is readable, or until the timeout; a signal may end the wait earlier.
pub fn wait_readable(descriptors: &[RawFd], patience: Duration) {
    look_until(steady().checked_add(patience), &mut |time| poll_readable(descriptors, time) != 0);
}

/// Returns how many of the descriptors are readable, once one is, or after the timeout.
fn poll_readable(descriptors: &[RawFd], patience: Duration) -> i32 {
    let poll = |fd: &RawFd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 };
    let mut polls: Vec<_> = descriptors.iter().map(poll).collect();
    // Rounded up: a wait that ends too early would be repeated.
    let milliseconds = i32::try_from(patience.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
    // SAFETY: `polls` has the length that is passed, and outlives the call.
    unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, milliseconds) }
}

/// Returns this process's user.
pub fn effective_user() -> u32 {
    // SAFETY: geteuid takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;

    fn named(name: &str) -> (UnixDatagram, SocketAddr) {
        let name = format!("{name}-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        (UnixDatagram::bind_addr(&address).unwrap(), address)
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn datagram_has_its_senders_credentials() {
        let ((ours, address), (theirs, _)) = (named("kineto-ours"), named("kineto-theirs"));
        enable_sender_credentials(&ours).unwrap();
        let mut buffer = [0; 4];
        assert_eq!(receive(&ours, &mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        theirs.send_to_addr(b"abcdef", &address).unwrap();
        theirs.send_to_addr(b"", &address).unwrap();
        wait_readable(&[ours.as_raw_fd()], Duration::from_secs(5));
        let arrived = receive(&ours, &mut buffer).unwrap();
        assert_eq!((arrived.length, arrived.is_truncated, &buffer), (4, true, b"abcd"));
        assert_eq!(arrived.sender, Some((i32::try_from(std::process::id()).unwrap(), effective_user())));
        assert_eq!(arrived.name, format!("\0kineto-theirs-{}", std::process::id()).as_bytes());
        let empty = receive(&ours, &mut buffer).unwrap();
        assert_eq!((empty.length, empty.is_truncated), (0, false));
        assert!(receive(&ours, &mut buffer).is_err());
    }
}
