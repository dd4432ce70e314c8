//! Traces on external requests, end to end.
//!
//! Each test starts this program again as the traced program (`--play <name>`), next to a daemon. Times are printed; only
//! requested durations are asserted.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    reason = "a test; clippy knows those of Rust's own harness alone"
)]

#[cfg(target_os = "linux")]
mod ahead;
#[cfg(target_os = "linux")]
mod arbitration;
#[cfg(target_os = "linux")]
mod base;
#[cfg(target_os = "linux")]
mod daemons;
#[cfg(target_os = "linux")]
mod ends;
#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod hostile;
#[cfg(target_os = "linux")]
mod newest;
#[cfg(target_os = "linux")]
mod observers;
#[cfg(target_os = "linux")]
mod scenarios;
#[cfg(target_os = "linux")]
mod soak;
#[cfg(target_os = "linux")]
mod timetable;
#[cfg(target_os = "linux")]
mod traces;
#[cfg(target_os = "linux")]
mod trigger;

use support::harness::{self, Test};

/// Each test mostly waits for the program that it traces.
const THREADS: usize = 8;

#[cfg(target_os = "linux")]
const TESTS: &[&[Test]] = &[
    traces::TESTS,
    arbitration::TESTS,
    newest::TESTS,
    observers::TESTS,
    timetable::TESTS,
    base::TESTS,
    daemons::TESTS,
    hostile::TESTS,
    files::TESTS,
    ahead::TESTS,
    ends::TESTS,
    trigger::TESTS,
    soak::TESTS,
];
#[cfg(not(target_os = "linux"))]
const TESTS: &[&[Test]] = &[];

fn main() -> std::process::ExitCode {
    #[cfg(target_os = "linux")]
    let args: Vec<String> = std::env::args().skip(1).collect();
    #[cfg(target_os = "linux")]
    if let [play, name] = args.as_slice()
        && play == "--play"
    {
        scenarios::play(name);
        return std::process::ExitCode::SUCCESS;
    }
    harness::run(THREADS, TESTS)
}
