//! What a program leaves behind, by whatever way it ends.
//!
//! Each test starts this program again to play a scenario (`--play <name> <folder>`), so that `main` really returns,
//! panics, forks or is killed, and then looks at the folder. That takes a harness of its own; it understands filters,
//! `--skip`, `--exact` and `--list`, and passes over other options.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test; clippy knows those of Rust's own harness alone"
)]

#[cfg(unix)]
mod ends;
#[cfg(unix)]
mod environment;
#[cfg(unix)]
mod faults;
#[cfg(unix)]
mod forks;
#[cfg(unix)]
mod play;
#[cfg(unix)]
mod signals;
#[cfg(unix)]
mod sys;
#[cfg(unix)]
mod threads;

/// A test and its name.
type Test = (&'static str, fn());

/// A scenario's name and what it does in its folder.
#[cfg(unix)]
type Scenario = (&'static str, fn(&std::path::Path));

#[cfg(unix)]
const SCENARIOS: &[&[Scenario]] = &[
    ends::SCENARIOS,
    environment::SCENARIOS,
    faults::SCENARIOS,
    forks::SCENARIOS,
    signals::SCENARIOS,
    threads::SCENARIOS,
];

#[cfg(unix)]
const TESTS: &[&[Test]] =
    &[ends::TESTS, environment::TESTS, faults::TESTS, forks::TESTS, signals::TESTS, threads::TESTS];
#[cfg(not(unix))]
const TESTS: &[&[Test]] = &[];

fn main() -> std::process::ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    #[cfg(unix)]
    if let [play, name, folder] = args.as_slice()
        && play == "--play"
    {
        let scenario = SCENARIOS.iter().copied().flatten().find(|(known, _)| known == name);
        scenario.expect("a scenario of that name").1(folder.as_ref());
        return std::process::ExitCode::SUCCESS;
    }
    run(&args)
}

/// Runs the tests that the arguments ask for, in the manner of Rust's own harness.
#[expect(clippy::print_stdout, reason = "this is the harness, and stdout is where its results belong")]
fn run(args: &[String]) -> std::process::ExitCode {
    let (mut flags, mut filters, mut skipped) = (Vec::new(), Vec::new(), Vec::new());
    let mut rest = args.iter().map(String::as_str);
    while let Some(arg) = rest.next() {
        match arg {
            "--skip" => skipped.extend(rest.next()),
            flag if flag.starts_with('-') => flags.push(flag),
            filter => filters.push(filter),
        }
    }
    let has = |flag: &str| flags.contains(&flag);
    let asked_for = |name: &str| {
        let fits = |text: &&str| if has("--exact") { name == *text } else { name.contains(*text) };
        !has("--ignored") && (filters.is_empty() || filters.iter().any(fits)) && !skipped.iter().any(fits)
    };
    let tests: Vec<Test> = TESTS.iter().copied().flatten().copied().filter(|(name, _)| asked_for(name)).collect();
    if has("--list") {
        tests.iter().for_each(|(name, _)| println!("{name}: test"));
        return std::process::ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", tests.len());
    let mut failed = 0;
    for (name, test) in &tests {
        let passed = std::panic::catch_unwind(test).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failed += usize::from(!passed);
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {result}. {} passed; {failed} failed\n", tests.len() - failed);
    if failed == 0 { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE }
}
