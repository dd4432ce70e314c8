//! Differences between traces of other programs, where it is known that nothing changed.
#![cfg(feature = "gzip")]

use std::path::PathBuf;
use support::traces::{are_available, folder};
use tracing_kineto::analysis::{ChangeVerdict, Diff, DiffPart, EventFilter, Events, MatchReason, TraceProfile};

fn trace_paths() -> Vec<PathBuf> {
    if !are_available() {
        return Vec::new();
    }
    let files = ["gpu", "torch215_cpu"].map(|name| std::fs::read_dir(folder().join(name)).unwrap());
    let paths: Vec<_> = files.into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    assert!(paths.len() >= 12, "{paths:?}");
    paths
}

fn compare(a: &TraceProfile, b: &TraceProfile) -> Diff {
    let diff = Diff::between(std::slice::from_ref(a), std::slice::from_ref(b));
    let sum = |ns: fn(&DiffPart) -> u64| diff.parts.iter().map(ns).sum::<u64>();
    assert_eq!((sum(|part| part.a_ns), sum(|part| part.b_ns)), (diff.total.a_ns, diff.total.b_ns));
    assert_eq!(diff.parts.iter().map(DiffPart::change_ns).sum::<i64>(), diff.total.change_ns());
    diff
}

#[test]
fn trace_equals_itself_and_parts_add_up() {
    let profiles: Vec<_> = trace_paths().iter().map(|path| Events::read(path).unwrap().profile()).collect();
    for (number, profile) in profiles.iter().enumerate() {
        let same = compare(profile, profile);
        assert!(same.changes().count() == 0 && !same.is_slower(), "{}", same.screen());
        assert!(same.classes.iter().all(|change| change.matched == MatchReason::Name));
        if let Some(other) = profiles.get(number + 1) {
            compare(profile, other);
        }
    }
}

#[test]
fn steps_of_one_run_are_no_slower_than_each_other() {
    let mut compared = 0;
    for path in trace_paths() {
        let events = Events::read(&path).unwrap();
        let step = |number| events.clone().filtered(&EventFilter::new().step(number)).ok().map(|step| step.profile());
        let steps: Vec<_> = (0..20).filter_map(step).collect();
        for (a, b) in steps.iter().zip(steps.iter().skip(1)) {
            let diff = compare(a, b);
            let is_changed = |verdict| diff.with_verdict(verdict).next().is_some();
            assert!(
                !is_changed(ChangeVerdict::Slower) && !is_changed(ChangeVerdict::Faster),
                "{path:?} {}",
                diff.screen()
            );
            assert!(!diff.is_slower());
            compared += 1;
        }
    }
    assert!(compared > 0 || !are_available());
}
