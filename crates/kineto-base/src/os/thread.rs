//! Starts threads; ids and names of threads.
#![allow(unsafe_code, reason = "the kernel's thread id has no safe form")]

use std::io;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

/// Starts a thread. The work is boxed, so that the code that starts threads is compiled once.
///
/// # Errors
/// The operating system refuses a thread.
pub fn spawn(name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name.to_owned()).spawn(work)
}

/// Does the same, with a stack of that size.
///
/// # Errors
/// Those of [`spawn`].
pub fn spawn_with_stack(name: &str, bytes: usize, work: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name.to_owned()).stack_size(bytes).spawn(work)
}

/// Starts a thread that ends before `scope` does.
///
/// # Errors
/// Those of [`spawn`].
pub fn spawn_scoped<'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: Box<dyn FnOnce() + Send + 'scope>,
) -> io::Result<ScopedJoinHandle<'scope, ()>> {
    Builder::new().name(name.to_owned()).spawn_scoped(scope, work)
}

/// Returns the calling thread's kernel id (`gettid` on Linux), the number that other tools show.
#[cfg(target_os = "linux")]
pub fn id() -> i64 {
    // SAFETY: gettid takes nothing and cannot fail.
    i64::from(unsafe { libc::gettid() })
}

/// Returns the calling thread's kernel id.
#[cfg(any(target_os = "macos", target_os = "ios"))]
pub fn id() -> i64 {
    let mut id = 0u64;
    // SAFETY: thread 0 means the calling thread, and `id` is valid for writes.
    unsafe { libc::pthread_threadid_np(0, &raw mut id) };
    i64::try_from(id).unwrap_or(0)
}

/// Returns a number of the calling thread that is unique in the process; 0 while its thread-locals are destroyed.
///
/// These platforms' own ids are not used.
#[cfg(not(any(target_os = "linux", target_os = "macos", target_os = "ios")))]
pub fn id() -> i64 {
    use std::sync::atomic::{AtomicI64, Ordering};
    static NEXT: AtomicI64 = AtomicI64::new(1);
    thread_local! { static ID: i64 = NEXT.fetch_add(1, Ordering::Relaxed); }
    ID.try_with(|id| *id).unwrap_or(0)
}

/// Returns the lower half of `pthread_self`, by which CUPTI's records identify a thread; 0 except on Unix.
pub fn pthread_low32() -> u32 {
    #[cfg(unix)]
    {
        // SAFETY: pthread_self takes nothing and cannot fail.
        let this_thread = unsafe { libc::pthread_self() } as u64;
        (this_thread & 0xFFFF_FFFF) as u32
    }
    #[cfg(not(unix))]
    {
        0
    }
}

/// Returns the name that Rust gave the calling thread; empty if it has none.
pub fn rust_name() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}

/// Returns the operating system's name for the calling thread; empty if it has none.
///
/// On Linux, a new thread inherits the name of its creator until it is renamed; at most 15 bytes.
pub fn kernel_name() -> String {
    #[cfg(any(target_os = "linux", target_os = "macos", target_os = "ios"))]
    {
        let mut name = [0_u8; 64];
        // SAFETY: pthread_self takes nothing and cannot fail.
        let this_thread = unsafe { libc::pthread_self() };
        // SAFETY: `own` is the calling thread, which lives, and at most `name.len()` bytes are written.
        let status = unsafe { libc::pthread_getname_np(this_thread, name.as_mut_ptr().cast(), name.len()) };
        let text = name.split(|byte| *byte == 0).next().filter(|_| status == 0).unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }
    #[cfg(not(any(target_os = "linux", target_os = "macos", target_os = "ios")))]
    {
        String::new()
    }
}

/// Returns the kernel's name of a live thread of this process, which may be set late; at most 15 bytes.
pub fn kernel_name_of(id: i64) -> Option<String> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let name = std::fs::read_to_string(format!("/proc/self/task/{id}/comm")).ok()?;
    Some(name.trim_end_matches('\n').to_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn threads_have_distinct_ids_and_names() {
        let here = super::id();
        let there = std::thread::Builder::new()
            .name("worker \"ä\"".into())
            .spawn(|| (super::id(), super::rust_name()))
            .unwrap();
        let (id, name) = there.join().unwrap();
        assert_ne!(here, id);
        assert_eq!(name, "worker \"ä\"");
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn kernel_has_the_thread_name() {
        let thread = std::thread::Builder::new().name("named".into());
        let names = thread.spawn(|| (super::kernel_name(), super::kernel_name_of(super::id()))).unwrap().join();
        assert_eq!(names.unwrap(), ("named".to_owned(), Some("named".to_owned())));
    }
}
