//! NVTX ranges of C libraries, in the trace with the spans that called them.

use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;
use support::gpu::{VERSIONS, events, interval, machine, name};
use support::ranges::Ranges;
use support::virtual_time;
use support::{File, child, cuda, gpu, name_of};
use tracing::info_span;
use tracing_kineto::{Devices, Doctor, KinetoLayerBuilder, Mode};

/// Runs `child`, an ignored test of this file, with `tool`; without one, no variable names a tool.
fn play(child: &str, tool: Option<&Path>, variables: &[(&str, &str)]) {
    let mut command = child::command(child);
    command.env_remove("NVTX_INJECTION64_PATH");
    tool.map(|tool| command.env("NVTX_INJECTION64_PATH", tool));
    child::run(command.envs(variables.iter().copied()));
}

fn cupti() -> std::path::PathBuf {
    cuda::library("sim_cupti")
}

fn with_ranges(builder: KinetoLayerBuilder) -> KinetoLayerBuilder {
    gpu::all(builder).devices(Devices::new().nvtx_ranges(true))
}

/// Returns the rows of ranges: annotations that are not spans.
fn ranges_of(file: &File) -> Vec<&Value> {
    let all = events(file, "X", "user_annotation").into_iter();
    all.filter(|event| event["args"].get("nvtx.domain").is_some()).collect()
}

fn range<'f>(file: &'f File, text: &str) -> &'f Value {
    let found: Vec<_> = ranges_of(file).into_iter().filter(|event| name(event) == text).collect();
    assert_eq!(found.len(), 1, "{text} in {found:?}");
    found[0]
}

fn lies_in(inner: (u64, u64), outer: (u64, u64)) -> bool {
    outer.0 <= inner.0 && inner.1 <= outer.1
}

fn thread() -> i64 {
    // SAFETY: gettid takes no argument and cannot fail.
    #[allow(unsafe_code, reason = "a call of C")]
    let thread = unsafe { libc::gettid() };
    thread.into()
}

/// Makes ranges as libraries do; pops a range `before` that was pushed earlier.
fn work(ranges: &Ranges, launch: impl Fn()) {
    ranges.pop();
    info_span!("step").in_scope(|| {
        ranges.push("outer");
        info_span!("inner").in_scope(|| {
            let nccl = ranges.domain("NCCL");
            ranges.push_all(nccl, "all reduce", (7, 0xFF00_80FF, -5));
            ranges.push("within");
            launch();
            // Each domain has its own stack.
            ranges.pop_all(nccl);
            ranges.pop();
            ranges.mark_value("tick", 0.5);
        });
        ranges.pop();
    });
    let process = info_span!("first").in_scope(|| {
        ranges.push("from one to the next");
        ranges.start("of the process")
    });
    info_span!("second").in_scope(|| {
        ranges.pop();
        ranges.end(process);
    });
    ranges.push("never popped");
}

#[test]
fn ranges_nest_with_spans_with_each_version() {
    play(name_of(child_with_each_version), Some(&cupti()), &[]);
}

#[test]
#[ignore = "run by another test"]
fn child_with_each_version() {
    let ranges = Ranges::open();
    let mut table = "| CUPTI | driver | ranges | instants | with details | on other rows | kernels in spans |\n\
                     |---|---|---|---|---|---|---|\n"
        .to_owned();
    for (version, driver) in VERSIONS {
        let machine = machine(&format!("cupti={version},driver={driver}"));
        let context = machine.context(0);
        machine.set_current(context);
        let (stream, kernel) = (machine.stream(), machine.only_kernel("reduce"));
        ranges.push("before");
        let file = support::record_with(with_ranges, || work(&ranges, || machine.launch(kernel, 4, stream)));
        ranges.pop();
        let [found, instants, detailed, moved, kernels] = check(version, &file);
        writeln!(table, "| {version} | {driver} | {found} | {instants} | {detailed} | {moved} | {kernels} |").unwrap();
    }
    gpu::publish("nvtx-versions.md", &table);
}

fn check(version: &str, file: &File) -> [usize; 5] {
    let report = gpu::report(file);
    let rows = ranges_of(file);
    let mut names: Vec<_> = rows.iter().map(|range| name(range)).collect();
    names.sort_unstable();
    let expected = ["all reduce", "from one to the next", "never popped", "of the process", "outer", "within"];
    assert_eq!(names, expected, "{version}");
    let of = |text: &str| interval(range(file, text));
    let slice = |name: &str| (file.slice(name).start, file.slice(name).end);
    for (inner, outer) in [
        (of("outer"), slice("step")),
        (slice("inner"), of("outer")),
        (of("all reduce"), slice("inner")),
        (of("within"), slice("inner")),
    ] {
        assert!(lies_in(inner, outer), "{version}");
    }
    // The thread's row has spans and ranges that nest with them.
    let row = |text: &str| range(file, text)["tid"].as_i64().unwrap();
    assert_eq!(["outer", "all reduce", "never popped"].map(row), [thread(); 3], "{version}");
    assert_eq!(["first", "second", "step"].map(|name| file.slice(name).tid.cast_signed()), [thread(); 3], "{version}");
    assert_eq!(row("from one to the next"), thread() + 10_000_000, "{version}");
    assert_eq!(row("of the process"), i64::from(std::process::id()), "{version}");
    assert_eq!(range(file, "never popped")["args"]["finished"], false, "{version}");
    // The domains overlap.
    assert_eq!(row("within"), thread() + 10_000_000, "{version}");

    let is_whole = !version.starts_with("11");
    let details = json!({"nvtx.domain": "NCCL", "nvtx.category": 7, "nvtx.color": "#0080ff", "nvtx.payload": -5});
    let expected = if is_whole { details } else { json!({"nvtx.domain": "NCCL"}) };
    assert_eq!(range(file, "all reduce")["args"], expected, "{version}");
    assert_eq!(range(file, "outer")["args"], json!({"nvtx.domain": "default"}), "{version}");
    let instants: Vec<_> = events(file, "i", "cpu_instant_event").into_iter().filter(|it| name(it) == "tick").collect();
    assert_eq!(instants.len(), 1, "{version}");
    assert_eq!(instants[0]["args"].get("nvtx.payload"), is_whole.then_some(&json!(0.5)), "{version}");
    assert_eq!(
        report.notes.iter().any(|note| note.contains("payloads of NVTX ranges are not")),
        !is_whole,
        "{version}"
    );
    assert!(!report.notes.iter().any(|note| note.contains("NVTX_INJECTION64_PATH")), "{version}: {:?}", report.notes);

    let kernels = gpu::kernels(file);
    assert!(kernels.iter().all(|kernel| gpu::under(file, kernel) == "inner"), "{version}");
    let stats = file.trace.stats();
    // The end of a range from before the recording.
    assert_eq!(stats.losses, [(tracing_kineto::Loss::OutOfWindow, 1)], "{version}: {stats}");
    let detailed = rows.iter().chain(&instants).filter(|row| row["args"].get("nvtx.payload").is_some()).count();
    let extra_rows = rows.iter().filter(|row| row["tid"].as_i64().unwrap() > 10_000_000).count();
    [rows.len(), instants.len(), detailed, extra_rows, kernels.len()]
}

#[virtual_time]
fn ranges_of_spans_are_not_recorded_twice() {
    play(name_of(child_that_makes_ranges_too), Some(&cupti()), &[]);
}

#[test]
#[ignore = "run by another test"]
fn child_that_makes_ranges_too() {
    let (_machine, ranges) = (machine(""), Ranges::open());
    let both = |builder| with_ranges(builder).mode(Mode::Kineto | Mode::Nvtx).events(tracing_core::Level::INFO);
    let file = support::record_with(both, || {
        info_span!("span").in_scope(|| {
            ranges.push("theirs");
            tracing::info!("event");
            ranges.pop();
        });
    });
    assert!(file.trace.stats().observers[0].state.is_ok(), "{}", file.trace.stats());
    assert_eq!(file.tree(&[]), "main\n  span\n");
    assert_eq!(ranges_of(&file).iter().map(|range| name(range)).collect::<Vec<_>>(), ["theirs"]);
    assert_eq!(events(&file, "i", "cpu_instant_event").len(), 1);
    assert_eq!(file.trace.stats().losses, []);
}

// Shows the key NVTX_RANGES.
#[virtual_time]
fn nvtx_ranges_are_absent_by_default() {
    play(name_of(child_without_ranges_enabled), Some(&cupti()), &[]);
    play(name_of(child_without_ranges_enabled), Some(&cupti()), &[("KINETO_NVTX_RANGES", "1")]);
}

#[test]
#[ignore = "run by another test"]
#[allow(clippy::disallowed_methods, reason = "the parent test passes the expectation")]
fn child_without_ranges_enabled() {
    let (_machine, ranges) = (machine(""), Ranges::open());
    let asked = std::env::var("KINETO_NVTX_RANGES").is_ok();
    let file = gpu::record(|| {
        info_span!("span").in_scope(|| {
            ranges.push("theirs");
            ranges.pop();
        })
    });
    assert!(ranges.has_tool());
    assert_eq!(ranges_of(&file).len(), usize::from(asked));
}

#[virtual_time]
fn missing_variable_is_reported_with_its_value() {
    play(name_of(child_without_the_variable), None, &[]);
    play(name_of(child_without_the_variable), Some(&cuda::library("sim_nvtx")), &[]);
}

#[test]
#[ignore = "run by another test"]
fn child_without_the_variable() {
    let (_machine, ranges) = (machine(""), Ranges::open());
    let file = support::record_with(with_ranges, || {
        info_span!("span").in_scope(|| {
            ranges.push("theirs");
            ranges.pop();
        });
    });
    assert_eq!((ranges_of(&file).len(), file.tree(&[]).as_str()), (0, "main\n  span\n"));
    let advice = format!("start the program with NVTX_INJECTION64_PATH={}", cupti().display());
    let notes = gpu::report(&file).notes;
    assert!(
        notes.iter().any(|note| note.starts_with("NVTX ranges are not recorded") && note.ends_with(&advice)),
        "{notes:?}"
    );
}

#[virtual_time]
fn doctor_reports_the_missing_variable() {
    play(name_of(child_that_runs_the_doctor), None, &[("KINETO_NVTX_RANGES", "1")]);
}

#[test]
#[ignore = "run by another test"]
fn child_that_runs_the_doctor() {
    let _machine = machine("");
    let found = Doctor::new().examine().to_string();
    let advice = format!("NVTX_INJECTION64_PATH={}", cupti().display());
    // The report wraps long lines.
    assert!(found.replace(char::is_whitespace, "").contains(&advice), "{found}");
}

#[virtual_time]
fn annotations_alone_start_cupti_for_ranges() {
    play(name_of(child_without_devices_activities), Some(&cupti()), &[]);
}

#[test]
#[ignore = "run by another test"]
fn child_without_devices_activities() {
    let (_machine, ranges) = (machine(""), Ranges::open());
    let types = tracing_kineto::ActivityTypes::from_type(tracing_kineto::ActivityType::UserAnnotation);
    let file = support::record_with(
        |builder| builder.activities(types).devices(Devices::new().nvtx_ranges(true)),
        || {
            ranges.push("theirs");
            ranges.mark("tick");
            ranges.pop();
        },
    );
    assert_eq!(ranges_of(&file).len(), 1);
    assert!(file.events().all(|event| event["ph"] != "i" || event["cat"] != "cpu_instant_event"));
}
