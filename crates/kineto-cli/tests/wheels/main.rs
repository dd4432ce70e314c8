//! Tests NVIDIA's libraries and headers, and Intel's libraries, of several versions against our knowledge of them.
//!
//! `CUPTI_WHEELS` names a folder that `scripts/wheels.sh` has filled; without it the tests print that they are skipped.
//! Some of these libraries crash the process, so each is opened in a child: this program, started again (`--play
//! <scenario> <arguments>`). Results are printed as tables at the end, and written to `target/wheels.md`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test; clippy knows those of Rust's own harness alone"
)]

#[cfg(target_os = "linux")]
mod child;
#[cfg(target_os = "linux")]
mod headers;
#[cfg(target_os = "linux")]
mod loader;
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "NVIDIA's functions are called, in a child")]
mod metrics;
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "Intel's functions are called, in a child")]
mod pti;
#[cfg(target_os = "linux")]
mod report;
#[cfg(target_os = "linux")]
mod walker;
#[cfg(target_os = "linux")]
mod wheel;

use support::harness;

#[cfg(target_os = "linux")]
#[expect(clippy::print_stdout, reason = "there is no harness of Rust's to do it")]
fn main() -> std::process::ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [play, scenario, rest @ ..] = args.as_slice()
        && play == "--play"
    {
        child::play(scenario, rest);
        return std::process::ExitCode::SUCCESS;
    }
    if !args.iter().any(|arg| arg == "--list") && wheel::all().is_empty() {
        println!("skipped: CUPTI_WHEELS names no folder with the vendors' libraries (scripts/wheels.sh)");
        return std::process::ExitCode::SUCCESS;
    }
    let code = harness::run(
        1,
        &[
            ("loader", &[loader::TESTS]),
            ("metrics", &[metrics::TESTS]),
            ("walker", &[walker::TESTS]),
            ("headers", &[headers::TESTS]),
            ("pti", &[pti::TESTS]),
        ],
    );
    report::publish();
    code
}

#[cfg(not(target_os = "linux"))]
fn main() -> std::process::ExitCode {
    harness::run(1, &[])
}
