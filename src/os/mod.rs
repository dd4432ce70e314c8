//! What only the operating system can tell or do: threads, forks, memory, counters, stacks, the end of the process.

pub(crate) mod backtrace;
pub(crate) mod counters;
pub(crate) mod exit;
pub(crate) mod fork;
pub(crate) mod memory;
pub(crate) mod process;
pub(crate) mod signal;
pub(crate) mod terminal;
pub(crate) mod thread;
