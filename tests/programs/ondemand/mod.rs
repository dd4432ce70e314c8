//! Traces on external requests, end to end.
//!
//! Each test starts a traced program (`--play <name>`), next to a daemon. Times are printed; only requested durations are asserted.
#![allow(clippy::cast_possible_truncation, clippy::print_stdout, reason = "tests")]

mod ahead;
mod arbitration;
mod base;
mod daemons;
mod ends;
mod files;
mod hostile;
mod newest;
mod observers;
mod scenarios;
mod soak;
mod timetable;
mod traces;
mod trigger;

pub(super) use scenarios::play;

use support::harness::Test;

pub(super) const TESTS: &[&[Test]] = &[
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
