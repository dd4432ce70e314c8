//! Allocations in the trace: reported by any allocator, or by the program's tracked one.
//!
//! This program's allocator is the tracked one, so a custom harness runs the tests one after the other.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test; clippy knows those of Rust's own harness alone"
)]

mod records;
mod timeline;
mod tracked;

use support::harness;
use tracing_kineto::memory::Tracked;

#[global_allocator]
static ALLOCATOR: Tracked = Tracked::system();

fn main() -> std::process::ExitCode {
    harness::run(1, &[("records", &[records::TESTS]), ("timeline", &[timeline::TESTS]), ("tracked", &[tracked::TESTS])])
}
