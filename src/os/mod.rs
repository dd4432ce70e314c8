//! What only the operating system can tell or do: threads, forks, the end of the process.

pub(crate) mod exit;
pub(crate) mod fork;
pub(crate) mod process;
pub(crate) mod signal;
pub(crate) mod thread;
