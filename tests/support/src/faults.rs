//! Shared parts of the fault tests: checks of traces for any vendor, and the table of faults.

use crate::File;
use crate::gpu::{self, Counts, correlation, events, interval, kernels, losses, tally, under};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tracing_kineto::Loss;
use tracing_kineto::integration::CollectorReport;

/// Steps of each program, of two kernels each.
pub const STEPS: usize = 10;
pub const KERNELS: usize = 2 * STEPS;

/// Time by which device rows may exceed the window: work ends after its launch, and clocks may step.
const SLACK: u64 = 1_000_000_000;

/// Options of the simulator, and the check of the resulting trace.
pub type Fault = (&'static str, fn(&File));

/// Returns these counts as a map.
fn counts<const N: usize>(counts: [(&str, usize); N]) -> BTreeMap<String, usize> {
    BTreeMap::from(counts.map(|(name, count)| (name.to_owned(), count)))
}

/// Checks that all host rows are present, and that these calls and all kernels lie in the recording.
#[track_caller]
pub fn check_cpu(file: &File, calls: Vec<&Value>) {
    let slices = tally(file.slices().iter().map(|slice| slice.name.clone()));
    assert_eq!(slices, counts([("step", STEPS), ("one", STEPS), ("two", STEPS)]));
    let losses = &file.json["tracing_kineto"]["losses"];
    for (loss, count) in file.trace.stats().losses {
        assert_eq!(losses[loss.as_str()], count, "the header has the losses");
    }
    let (start, end) = gpu::window(file);
    for row in kernels(file).into_iter().chain(calls) {
        let (from, to) = interval(row);
        assert!(from + SLACK >= start && to <= end + SLACK, "{row} in {start}..{end}");
    }
}

/// Checks that all kernels are present and linked to their spans, with only these losses; a count of 0 matches any.
#[track_caller]
pub fn whole(file: &File, expected: &[(Loss, usize)]) {
    let all = Counts {
        launches: KERNELS,
        kernels: KERNELS,
        linked: KERNELS,
        starts: KERNELS,
        ends: KERNELS,
        ..Counts::default()
    };
    assert_eq!(Counts::of(file), all, "{}", file.trace.stats());
    check_spans(file, expected);
}

/// Checks that all kernels are in their spans, with only these losses; a count of 0 matches any.
#[track_caller]
pub fn check_spans(file: &File, expected: &[(Loss, usize)]) {
    let spans = tally(kernels(file).iter().map(|kernel| under(file, kernel).to_owned()));
    assert_eq!(spans, counts([("one", STEPS), ("two", STEPS)]));
    let any = |(loss, count): (Loss, usize)| if expected.contains(&(loss, 0)) { (loss, 0) } else { (loss, count) };
    assert_eq!(losses(file).into_iter().map(any).collect::<Vec<_>>(), expected);
}

/// Returns the correlation ids of these events.
pub fn ids(events: Vec<&Value>) -> HashSet<u64> {
    events.into_iter().map(correlation).collect()
}

/// Checks that each launch and kernel is present, or counted as missing.
#[track_caller]
pub fn check_accounted(file: &File, launches: Vec<&Value>) {
    let found = Counts::of(file);
    let (launches, work) = (ids(launches), ids(kernels(file)));
    assert_eq!(file.lost(Loss::LaunchesWithoutWork), launches.difference(&work).count() as u64);
    assert_eq!(file.lost(Loss::WorkWithoutLaunch), work.difference(&launches).count() as u64);
    assert_eq!(found.linked, found.launches, "work with a launch has a span");
    assert!(found.kernels > 0 && found.kernels < KERNELS, "{}", file.trace.stats());
}

/// Checks that arrow ids are distinct; returns the number of arrows.
#[track_caller]
pub fn arrows(file: &File) -> usize {
    let ids = |ph: &str| events(file, ph, "ac2g").into_iter().map(|arrow| arrow["id"].as_u64().unwrap()).collect();
    let (starts, ends): (Vec<u64>, Vec<u64>) = (ids("s"), ids("f"));
    let distinct: HashSet<_> = starts.iter().copied().collect();
    assert_eq!((distinct.len(), &distinct), (starts.len(), &ends.iter().copied().collect()));
    ends.len()
}

/// Checks that a clock offset of `by` is corrected and reported.
#[track_caller]
pub fn check_clock(file: &File, report: &CollectorReport, by: i64, launches: Vec<&Value>) {
    assert!((report.clock_offset_ns + by).abs() < 100_000_000, "{report:?}");
    assert!(report.clock_error_ns < 100_000_000, "{report:?}");
    let begins: BTreeMap<_, _> = launches.into_iter().map(|call| (correlation(call), interval(call).0)).collect();
    for kernel in kernels(file) {
        let after = interval(kernel).0.saturating_sub(begins[&correlation(kernel)]);
        assert!(after < SLACK, "{kernel}");
    }
}

/// Checks faults; returns the table's rows, and the failed faults. The machine keeps its state during a check.
pub fn go_through<'f, M>(
    faults: impl IntoIterator<Item = &'f Fault>,
    record: impl Fn(&str) -> (M, File),
    row: impl Fn(&str, &File) -> String,
) -> (String, Vec<&'f str>) {
    let (mut rows, mut failed) = (String::new(), Vec::new());
    for (settings, check) in faults {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let (_machine, file) = record(settings);
            rows += &row(settings, &file);
            check(&file);
        }));
        failed.extend(outcome.is_err().then_some(*settings));
    }
    (rows, failed)
}

/// The head of the table.
pub const HEAD: &str = "| fault | calls | kernels | linked | note in the trace |\n|---|---|---|---|---|\n";

/// Returns the table row of a fault.
pub fn row(fault: &str, launches: usize, file: &File, report: &CollectorReport) -> String {
    let stats = file.trace.stats();
    let mut notes: Vec<String> =
        stats.losses.iter().map(|(loss, count)| format!("{}: {count}", loss.as_str())).collect();
    notes.extend(report.state.as_ref().err().map(ToString::to_string));
    notes.extend(report.notes.iter().cloned());
    if report.clock_offset_ns.abs() > 1_000_000 {
        notes
            .push(format!("clock off by {} ns, times by {} ns at most", report.clock_offset_ns, report.clock_error_ns));
    }
    let fault = if fault.is_empty() { "none" } else { fault };
    let linked = kernels(file).iter().filter(|kernel| !under(file, kernel).is_empty()).count();
    let (kernels, notes) = (kernels(file).len(), notes.join("; ").replace('|', "/"));
    format!("| {fault} | {launches} | {kernels} | {linked} | {notes} |\n")
}

/// Runs a fault in a child process; returns the table rows in its output.
pub fn rows_of(test: &str, env: &[(&str, &str)]) -> String {
    let output = String::from_utf8_lossy(&gpu::in_child(test, env).stdout).into_owned();
    let rows: String = output.lines().filter_map(|line| Some(format!("{}\n", &line[line.find("| ")?..]))).collect();
    assert!(!rows.is_empty(), "{test}: {output}");
    rows
}
