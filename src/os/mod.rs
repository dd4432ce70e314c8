//! What only the operating system can tell or do: threads, forks, memory, counters, stacks, the end of the process.

pub(crate) mod backtrace;
pub(crate) mod counters;
#[cfg(all(target_os = "linux", feature = "ondemand"))]
pub(crate) mod datagram;
pub(crate) mod exit;
pub(crate) mod file_limit;
pub(crate) mod file_lock;
#[cfg(all(target_os = "linux", feature = "ondemand"))]
pub(crate) mod folder;
pub(crate) mod fork;
#[cfg(all(target_os = "linux", feature = "ondemand"))]
pub(crate) mod inotify;
pub(crate) mod memory;
pub(crate) mod note;
pub(crate) mod platform;
pub(crate) mod process;
pub(crate) mod signal;
#[cfg(unix)]
pub(crate) mod stderr;
#[cfg(feature = "analysis")]
pub(crate) mod terminal;
pub(crate) mod thread;

/// Returns the number of the calling thread as traces have it: the kernel's (`gettid` on Linux), the `tid` of its row.
///
/// What a backward operation gives as its field `fwd_thread`, to say where its forward operation ran.
pub fn thread_id() -> i64 {
    thread::id()
}
