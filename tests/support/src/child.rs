//! Tests in child processes: ignored tests, which other tests start.

pub use test_base::{command_of as command, run_command as run};
