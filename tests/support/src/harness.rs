//! A harness for test binaries with their own `main`, which start themselves again.

use libtest_mimic::{Arguments, Trial};
use std::process::ExitCode;

/// A test and its name.
pub type Test = (&'static str, fn());

/// A group's name, and its tests.
pub type Group = (&'static str, &'static [&'static [Test]]);

/// Runs the tests that the arguments select, on `threads` threads unless the arguments set the number.
pub fn run(threads: usize, groups: &[Group]) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(threads);
    let trials_of = |&(group, tests): &Group| {
        let trial = move |&(name, test): &Test| Trial::test(format!("{group}::{name}"), move || (test(), Ok(())).1);
        tests.iter().copied().flatten().map(trial)
    };
    libtest_mimic::run(&arguments, groups.iter().flat_map(trials_of).collect()).exit_code()
}
