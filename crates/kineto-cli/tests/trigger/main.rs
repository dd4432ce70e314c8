//! Tests of `kineto trigger` and `kineto status` on traced programs.
//!
//! Each test starts this program again as a traced one (`--play <name>`).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test; clippy knows those of Rust's own harness alone"
)]

#[cfg(target_os = "linux")]
mod command;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    /// Tests mostly wait for the traced program.
    const THREADS: usize = 8;
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [play, name] = args.as_slice()
        && play == "--play"
    {
        support::traced::play(name);
        return std::process::ExitCode::SUCCESS;
    }
    support::harness::run(THREADS, &[("command", &[command::TESTS])])
}

#[cfg(not(target_os = "linux"))]
fn main() {}
