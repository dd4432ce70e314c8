//! What only the operating system can tell or do: threads, forks, memory, the end of the process.

pub(crate) mod exit;
pub(crate) mod fork;
pub(crate) mod memory;
pub(crate) mod process;
pub(crate) mod signal;
pub(crate) mod terminal;
pub(crate) mod thread;
