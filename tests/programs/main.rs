//! Programs that are traced from their start to their end, however they end, and from outside.
//!
//! Each test starts this program again as the traced one, which takes a `main` of its own.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test; clippy knows those of Rust's own harness alone"
)]

#[cfg(unix)]
mod lifecycle;
#[cfg(target_os = "linux")]
mod ondemand;

use support::harness::{self, Group};

/// Tests mostly wait for processes.
const THREADS: usize = 12;

const GROUPS: &[Group] = &[
    #[cfg(unix)]
    ("lifecycle", lifecycle::TESTS),
    #[cfg(target_os = "linux")]
    ("ondemand", ondemand::TESTS),
];

fn main() -> std::process::ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        #[cfg(unix)]
        ["--play", name, folder] => lifecycle::play(name, folder.as_ref()),
        #[cfg(target_os = "linux")]
        ["--play", name] => ondemand::play(name),
        _ => return harness::run(THREADS, GROUPS),
    }
    std::process::ExitCode::SUCCESS
}
