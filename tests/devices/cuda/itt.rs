//! ITT: the tasks that an ITT collector receives.

use support::virtual_time;
use support::{child, cuda, layer, name_of};
use tracing::{info, info_span, subscriber};
use tracing_kineto::{Mode, Modes, Trace, itt};
use tracing_subscriber::layer::SubscriberExt;

/// Runs `child`, an ignored test of this file, with the collector or without; returns the collector's calls.
fn collector_calls(child: &str, has_collector: bool) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("itt.log");
    let mut command = child::command(child);
    command.env_remove("INTEL_LIBITTNOTIFY64");
    if has_collector {
        command.env("INTEL_LIBITTNOTIFY64", cuda::library("sim_itt"));
        command.env("SIM_ITT_LOG", &log);
    }
    child::run(&mut command);
    std::fs::read_to_string(&log).unwrap_or_default().lines().map(str::to_owned).collect()
}

fn work(modes: impl Into<Modes>) -> Trace {
    let (layer, guard) = layer(|builder| builder.mode(modes).itt_domain("mine").events(tracing_core::Level::INFO));
    subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for _ in 0..2 {
            info_span!("outer").in_scope(|| info_span!("inner", bytes = 3).in_scope(|| info!(name: "now", "an event")));
        }
    });
    guard.finish().unwrap()
}

// Shows the key ITT_DOMAIN.
#[virtual_time]
fn spans_are_tasks() {
    let once = ["begin mine outer", "begin mine inner", "begin mine now", "end mine", "end mine", "end mine"];
    for child in [name_of(child_in_itt_mode), name_of(child_in_both_modes)] {
        assert_eq!(collector_calls(child, true), [once, once].concat(), "{child}");
    }
}

#[test]
#[ignore = "run by another test"]
fn child_in_itt_mode() {
    let trace = work(Mode::Itt);
    assert_eq!(trace.stats().slices, 0);
    assert!(trace.why_empty().unwrap().contains("excludes kineto"));
}

#[test]
#[ignore = "run by another test"]
fn child_in_both_modes() {
    assert_eq!(work(Mode::Itt | Mode::Kineto).stats().slices, 4);
}

#[virtual_time]
fn no_task_is_made_without_a_collector() {
    assert!(collector_calls(name_of(child_without_a_collector), false).is_empty());
}

#[test]
#[ignore = "run by another test"]
fn child_without_a_collector() {
    let reason = work(Mode::Itt | Mode::Kineto).stats().observers[0].state.clone().unwrap_err();
    assert!(reason.to_string().contains("INTEL_LIBITTNOTIFY64"), "{reason}");
    assert!(!itt::is_available());
    itt::mark("unheard");
    drop(itt::range("unheard"));
}

#[virtual_time]
fn manual_tasks_equal_pytorchs() {
    let expected = ["begin PyTorch range", "begin PyTorch mark", "end PyTorch", "end PyTorch"];
    assert_eq!(collector_calls(name_of(child_with_manual_tasks), true), expected);
}

#[test]
#[ignore = "run by another test"]
fn child_with_manual_tasks() {
    assert!(itt::is_available());
    let _range = itt::range("range");
    itt::mark("mark");
}
