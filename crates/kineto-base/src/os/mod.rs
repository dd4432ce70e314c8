//! Operating system services: threads, forks, memory, counters, stacks, the end of the process.

pub mod backtrace;
pub mod counters;
#[cfg(target_os = "linux")]
pub mod datagram;
pub mod descriptor;
pub mod disk;
pub mod exit;
pub mod file_limit;
pub mod file_lock;
pub mod folder;
pub mod fork;
#[cfg(target_os = "linux")]
pub mod inotify;

pub mod memory;
pub mod note;
pub mod platform;
pub mod process;
#[cfg(target_os = "linux")]
pub mod process_lock;
#[cfg(feature = "segments")]
pub mod shared_file;
#[cfg(not(unix))]
#[path = "signal/absent.rs"]
pub mod signal;
#[cfg(unix)]
pub mod signal;
#[cfg(unix)]
pub mod stderr;
pub mod terminal;
pub mod thread;

pub use folder::open_entry;

/// Returns the calling thread's id as it appears in traces: the kernel's (`gettid` on Linux), the `tid` of its row.
///
/// Put it into the field `fwd_thread` of a backward operation, to name the thread of its forward operation.
pub fn thread_id() -> i64 {
    thread::id()
}
