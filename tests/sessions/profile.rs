//! `profile!`: in processes of their own, since what it installs is there for good, and its tables go to stderr.
#![allow(clippy::disallowed_methods, reason = "tests")]

use support::child;
use tracing::info_span;
use tracing_kineto::{Error, KinetoLayer, Status, profile};
use tracing_subscriber::prelude::*;

/// Runs one of the programs below; returns what it says on stderr.
fn run(program: &str) -> String {
    String::from_utf8(child::run(&mut child::command(program)).stderr).unwrap()
}

/// The names of a printed table's rows, with their counts.
fn rows(said: &str) -> Vec<(&str, &str)> {
    let rows =
        said.lines().filter(|line| line.contains('%') && !line.contains("Self CPU %") && !line.contains("100 % of"));
    rows.map(|line| (line.split_whitespace().next().unwrap(), line.split_whitespace().last().unwrap())).collect()
}

fn work() -> u32 {
    (0..3).for_each(|_| info_span!("work").in_scope(|| info_span!("part").in_scope(|| std::hint::black_box(()))));
    42
}

#[test]
fn the_first_use_installs_a_layer_and_prints_a_table() {
    let said = run("profile::program_without_anything");
    let mut rows = rows(&said);
    rows.sort_unstable();
    assert_eq!(rows, [("again", "1"), ("first_look", "1"), ("part", "3"), ("part", "3"), ("work", "3"), ("work", "3")]);
    assert!(said.contains("profile of \"first_look\"") && said.contains("Self CPU time total: "), "{said}");
}

#[test]
#[ignore = "a program for another test"]
fn program_without_anything() {
    assert_eq!(profile!("first_look", { work() }), 42);
    info_span!("unseen").in_scope(|| {});
    assert_eq!(profile!("again", work()), 42);
}

#[test]
fn a_layer_that_records_nothing_is_started_and_stopped() {
    let said = run("profile::program_with_an_idle_layer");
    let mut rows = rows(&said);
    rows.sort_unstable();
    assert_eq!(rows, [("idle", "1"), ("idle", "1"), ("part", "3"), ("part", "3"), ("work", "3"), ("work", "3")]);
}

#[test]
#[ignore = "a program for another test"]
fn program_with_an_idle_layer() {
    let (layer, guard) = KinetoLayer::builder().no_output().record_from_start(false).build().unwrap();
    tracing_subscriber::registry().with(layer).init();
    profile!("idle", work());
    assert_eq!(guard.profiler().status(), Status::Idle);
    profile!(guard.profiler(), "idle", { work() });
    assert_eq!(guard.profiler().status(), Status::Idle);
}

#[test]
fn a_recording_that_goes_on_is_not_touched_and_the_table_is_of_the_block() {
    let said = run("profile::program_that_records");
    let mut rows = rows(&said);
    rows.sort_unstable();
    assert_eq!(
        rows,
        [("block", "1"), ("inner", "1"), ("inner", "1"), ("part", "3"), ("part", "3"), ("work", "3"), ("work", "3")]
    );
}

#[test]
#[ignore = "a program for another test"]
fn program_that_records() {
    let (layer, guard) = KinetoLayer::builder().no_output().build().unwrap();
    tracing_subscriber::registry().with(layer).init();
    work();
    profile!("block", profile!("inner", work()));
    work();
    assert_eq!(guard.profiler().status(), Status::Recording);
    assert_eq!(guard.finish().unwrap().stats().slices, 3 * 6 + 2);
}

#[test]
fn a_subscriber_without_a_layer_is_left_alone_and_the_block_runs() {
    let said = run("profile::program_with_another_subscriber");
    assert!(
        said.contains("\"other\" ran without a profile: the program's subscriber has no KinetoLayer: add one"),
        "{said}"
    );
    assert!(rows(&said).is_empty());
}

#[test]
#[ignore = "a program for another test"]
fn program_with_another_subscriber() {
    tracing_subscriber::registry().init();
    assert_eq!(profile!("other", work()), 42);
}

#[test]
fn leaving_the_block_early_ends_it_and_a_panic_prints_nothing() {
    let said = run("profile::program_that_leaves");
    assert_eq!(rows(&said), [("leaves", "1")], "{said}");
}

#[test]
#[ignore = "a program for another test"]
fn program_that_leaves() {
    fn leaves() -> Result<u32, Error> {
        let number: u32 = profile!("leaves", {
            "seven".parse().ok().ok_or(tracing_kineto::analysis::Events::read("/no/such/file").unwrap_err())?
        });
        Ok(number)
    }
    assert!(leaves().is_err());
    let fails: fn() -> u32 = || panic!("on purpose");
    assert!(std::panic::catch_unwind(|| profile!("panics", fails())).is_err());
    // Nothing goes on any more, so the next one begins.
    info_span!("after").in_scope(|| {});
}
