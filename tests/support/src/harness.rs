//! A harness for tests that start their own program again, which takes a `main` of theirs.

use libtest_mimic::{Arguments, Trial};
use std::process::ExitCode;

/// A test and its name.
pub type Test = (&'static str, fn());

/// Runs the tests that the arguments ask for, on so many threads unless the arguments say how many.
pub fn run(threads: usize, tests: &[&[Test]]) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(threads);
    let trial = |&(name, test): &Test| Trial::test(name, move || (test(), Ok(())).1);
    let trials = tests.iter().copied().flatten().map(trial).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}
