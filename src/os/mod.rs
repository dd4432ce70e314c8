//! Operating system services: threads, forks, memory, counters, stacks, the end of the process.

pub(crate) mod backtrace;
pub(crate) mod counters;
#[cfg(all(target_os = "linux", feature = "ondemand"))]
pub(crate) mod datagram;
pub(crate) mod disk;
pub(crate) mod exit;
pub(crate) mod file_limit;
pub(crate) mod file_lock;
pub(crate) mod folder;
pub(crate) mod fork;
#[cfg(all(target_os = "linux", feature = "ondemand"))]
pub(crate) mod inotify;
pub(crate) mod kept;
pub(crate) mod memory;
pub(crate) mod note;
pub(crate) mod platform;
pub(crate) mod process;
#[cfg(target_os = "linux")]
pub(crate) mod process_lock;
pub(crate) mod shared_file;
pub(crate) mod signal;
#[cfg(unix)]
pub(crate) mod stderr;
#[cfg(feature = "analysis")]
pub(crate) mod terminal;
pub(crate) mod thread;

pub use folder::open_entry;

/// Returns the calling thread's id as it appears in traces: the kernel's (`gettid` on Linux), the `tid` of its row.
///
/// Put it into the field `fwd_thread` of a backward operation, to name the thread of its forward operation.
pub fn thread_id() -> i64 {
    thread::id()
}
