//! Wakes the signal thread from a handler.
//!
//! A semaphore needs no descriptor, which the program could close and use for a file of its own. Apple's systems have none, so a pipe
//! takes its place there.

#[cfg(target_vendor = "apple")]
pub(super) use pipe::{open, wake};
#[cfg(not(target_vendor = "apple"))]
pub(super) use semaphore::{open, wake};

#[cfg(not(target_vendor = "apple"))]
mod semaphore {
    use std::cell::UnsafeCell;
    use std::io;

    struct Semaphore(UnsafeCell<libc::sem_t>);

    // SAFETY: it is initialized before a thread or handler uses it; the C library's functions may be called by all at once.
    unsafe impl Sync for Semaphore {}

    // SAFETY: plain numbers, for which zeros are valid; `open` initializes it before its first use.
    static WAKE: Semaphore = Semaphore(UnsafeCell::new(unsafe { std::mem::zeroed() }));

    /// Waits for the handler.
    pub(in super::super) struct Waiter(());

    /// Prepares to wait, once in each process.
    pub(in super::super) fn open() -> io::Result<Waiter> {
        // SAFETY: no other thread of this process uses it yet; in a forked child, those of the parent do not exist.
        let failed = unsafe { libc::sem_init(WAKE.0.get(), 0, 0) } != 0;
        if failed { Err(io::Error::last_os_error()) } else { Ok(Waiter(())) }
    }

    /// Wakes the thread; `false` if that is impossible.
    pub(in super::super) fn wake() -> bool {
        // SAFETY: async-signal-safe, and initialized.
        unsafe { libc::sem_post(WAKE.0.get()) == 0 }
    }

    impl Waiter {
        /// Waits until it is woken.
        pub(in super::super) fn wait(&mut self) -> bool {
            // SAFETY: initialized, and never destroyed. Signals interrupt it.
            while unsafe { libc::sem_wait(WAKE.0.get()) } != 0 {
                if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                    return false;
                }
            }
            true
        }
    }
}

#[cfg(target_vendor = "apple")]
mod pipe {
    use crate::os::descriptor::{CheckedDescriptor, DescriptorId};
    use std::io::{self, Read};
    use std::os::fd::IntoRawFd;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

    /// The write end, and its device and inode; a handler may only write to it.
    static PIPE: AtomicI32 = AtomicI32::new(-1);
    static DEVICE: AtomicU64 = AtomicU64::new(0);
    static INODE: AtomicU64 = AtomicU64::new(0);

    /// Waits for the handler.
    pub(in super::super) struct Waiter(CheckedDescriptor<UnixStream>);

    /// Prepares to wait, once in each process.
    pub(in super::super) fn open() -> io::Result<Waiter> {
        let (near, far) = UnixStream::pair()?;
        near.set_nonblocking(true)?;
        // Stays open for as long as the process lives: the handler may run at any time.
        let number = near.into_raw_fd();
        let id = DescriptorId::of_descriptor(number).ok_or(io::ErrorKind::NotConnected)?;
        DEVICE.store(id.device, Ordering::SeqCst);
        INODE.store(id.inode, Ordering::SeqCst);
        PIPE.store(number, Ordering::SeqCst);
        Ok(Waiter(CheckedDescriptor::new(far)))
    }

    /// Wakes the thread; `false` if that is impossible.
    pub(in super::super) fn wake() -> bool {
        let number = PIPE.load(Ordering::SeqCst);
        let id = DescriptorId { device: DEVICE.load(Ordering::SeqCst), inode: INODE.load(Ordering::SeqCst) };
        // SAFETY: write(2) and fstat(2) are async-signal-safe, and the byte outlives the call.
        DescriptorId::of_descriptor(number) == Some(id)
            && unsafe { libc::write(number, [1_u8].as_ptr().cast(), 1) == 1 }
    }

    impl Waiter {
        /// Waits until it is woken.
        pub(in super::super) fn wait(&mut self) -> bool {
            self.0.get().and_then(|mut far| far.read_exact(&mut [0])).is_ok()
        }
    }
}
