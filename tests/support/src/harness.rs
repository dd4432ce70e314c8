//! A harness for test binaries with their own `main`, which start themselves again.

use libtest_mimic::{Arguments, Trial};
use std::process::ExitCode;

/// A test and its name.
pub type Test = (&'static str, fn());

/// Runs the tests that the arguments select, on `threads` threads unless the arguments set the number.
pub fn run(threads: usize, tests: &[&[Test]]) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(threads);
    let trial = |&(name, test): &Test| Trial::test(name, move || (test(), Ok(())).1);
    let trials = tests.iter().copied().flatten().map(trial).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}
