//! NVTX: the ranges that a tool receives.

use support::virtual_time;
use support::{child, cuda, layer, name_of};
use tracing::{info, info_span, subscriber};
use tracing_kineto::{Mode, Trace, annotate};
use tracing_subscriber::layer::SubscriberExt;

/// Runs `child`, an ignored test of this file, under the tool; returns the tool's calls.
fn tool_calls(child: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("nvtx.log");
    let mut command = child::command(child);
    command.env("NVTX_INJECTION64_PATH", cuda::library("sim_nvtx")).env("SIM_NVTX_LOG", &log);
    child::run(command.envs(variables.iter().copied()));
    // Without the thread, which is the same in all lines.
    let lines = std::fs::read_to_string(&log).unwrap_or_default();
    lines.lines().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect()
}

fn work(modes: impl Into<tracing_kineto::Modes>) -> Trace {
    let (layer, guard) = layer(|builder| builder.mode(modes).events(tracing_core::Level::INFO));
    subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let _step = annotate!("ProfilerStep#{}", 1).entered();
        let matmul = info_span!("aten::mm", seq = 5, dims = "[[2, 3], [3, 4]]", nvtx.color = "#ff8800");
        matmul.in_scope(|| info!(nvtx.payload = 9_u64, "half way"));
    });
    guard.finish().unwrap()
}

/// Returns the tool's calls without span numbers and target colours.
fn normalized(lines: &[String]) -> Vec<String> {
    let show = |line: &String| {
        let line = line.split(", op_id = ").enumerate().map(|(at, part)| match at {
            0 => part.to_owned(),
            _ => part.trim_start_matches(|character: char| character.is_ascii_digit()).to_owned(),
        });
        line.collect::<String>()
    };
    lines.iter().filter(|line| !line.starts_with("category") && !line.starts_with("thread")).map(show).collect()
}

const EXPECTED_CALLS: [&str; 4] =
    ["push 2 ", " ProfilerStep#1", "push 1 ffff8800 - aten::mm, seq = 5, sizes = [[2, 3], [3, 4]]", "pop"];

#[track_caller]
fn check(lines: &[String]) {
    let normalized = normalized(lines);
    assert_eq!(normalized[0], "initialize 16 unknown=0");
    assert!(
        normalized[1].starts_with(EXPECTED_CALLS[0]) && normalized[1].ends_with(EXPECTED_CALLS[1]),
        "{normalized:?}"
    );
    assert_eq!(normalized[2], EXPECTED_CALLS[2]);
    assert!(normalized[3].starts_with("mark 1 ") && normalized[3].contains(" u9 event "), "{normalized:?}");
    assert_eq!(normalized[4..], ["pop", "pop"]);
    assert!(
        lines.contains(&"category 1 cpu_op".to_owned()) && lines.contains(&"category 2 user_annotation".to_owned())
    );
    assert_eq!(lines.iter().filter(|line| line.starts_with("thread ")).count(), 1);
    assert!(lines[1..].iter().filter(|line| line.contains(", op_id = ")).count() >= 2, "{lines:?}");
}

#[virtual_time]
fn spans_are_ranges() {
    check(&tool_calls(name_of(child_in_nvtx_mode), &[]));
}

#[test]
#[ignore = "run by another test"]
fn child_in_nvtx_mode() {
    let trace = work(Mode::Nvtx);
    assert_eq!(trace.stats().slices, 0);
    assert!(trace.why_empty().unwrap().contains("excludes kineto"));
    assert!(trace.stats().observers[0].state.is_ok());
}

#[virtual_time]
fn spans_are_ranges_and_slices() {
    check(&tool_calls(name_of(child_in_both_modes), &[]));
}

#[test]
#[ignore = "run by another test"]
fn child_in_both_modes() {
    let trace = work(Mode::Nvtx | Mode::Kineto);
    assert_eq!((trace.stats().slices, trace.stats().events), (2, 1));
}

#[virtual_time]
fn mode_can_be_set_by_the_environment() {
    check(&tool_calls(name_of(child_by_environment), &[("KINETO_MODE", "nvtx")]));
}

#[test]
#[ignore = "run by another test"]
fn child_by_environment() {
    let (layer, guard) = layer(|builder| builder.events(tracing_core::Level::INFO));
    subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let _step = annotate!("ProfilerStep#{}", 1).entered();
        let matmul = info_span!("aten::mm", seq = 5, dims = "[[2, 3], [3, 4]]", nvtx.color = "#ff8800");
        matmul.in_scope(|| info!(nvtx.payload = 9_u64, "half way"));
    });
    assert_eq!(guard.finish().unwrap().stats().slices, 0);
}

#[virtual_time]
fn tool_that_refuses_is_never_called() {
    let lines = tool_calls(name_of(child_that_is_refused), &[("SIM_NVTX_REFUSE", "1")]);
    assert_eq!(lines, ["initialize 16 unknown=0"]);
}

#[test]
#[ignore = "run by another test"]
fn child_that_is_refused() {
    let trace = work(Mode::Nvtx | Mode::Kineto);
    let reason = trace.stats().observers[0].state.clone().unwrap_err();
    assert!(reason.message().contains("refused NVTX ranges"), "{reason}");
    assert_eq!(trace.stats().slices, 2);
}

#[virtual_time]
fn invalid_tool_is_reported() {
    for (path, expected) in [("/nowhere/tool.so", "could not be opened"), ("libc.so.6", "no InitializeInjectionNvtx2")]
    {
        let lines =
            tool_calls(name_of(child_without_a_tool), &[("NVTX_INJECTION64_PATH", path), ("EXPECTED", expected)]);
        assert!(lines.is_empty());
    }
}

#[test]
#[ignore = "run by another test"]
#[allow(clippy::disallowed_methods, reason = "the parent test passes the expectation")]
fn child_without_a_tool() {
    let trace = work(Mode::Nvtx);
    let reason = trace.stats().observers[0].state.clone().unwrap_err();
    assert!(reason.message().contains(&std::env::var("EXPECTED").unwrap()), "{reason}");
}
