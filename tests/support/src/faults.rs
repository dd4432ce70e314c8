//! What tests of faults share: what a trace is like under each, whichever the vendor, and the table of them.

use crate::File;
use crate::gpu::{self, Counts, correlation, events, interval, kernels, losses, tally, under};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tracing_kineto::Loss;
use tracing_kineto::integration::CollectorReport;

/// Each program takes so many steps, of two kernels each.
pub const STEPS: usize = 10;
pub const KERNELS: usize = 2 * STEPS;

/// What a recording may lie beside: work ends after it was given, and clocks may be off by what they step.
const SLACK: u64 = 1_000_000_000;

/// Options of the simulator, and what the trace must then be like.
pub type Fault = (&'static str, fn(&File));

/// How often there is each of these, which are all in order.
fn counts<const N: usize>(counts: [(&str, usize); N]) -> BTreeMap<String, usize> {
    BTreeMap::from(counts.map(|(name, count)| (name.to_owned(), count)))
}

/// The host's part of the trace is whole, whatever the fault, and none of these calls nor a kernel lies where no
/// recording was.
#[track_caller]
pub fn check_cpu(file: &File, calls: Vec<&Value>) {
    let slices = tally(file.slices().iter().map(|slice| slice.name.clone()));
    assert_eq!(slices, counts([("step", STEPS), ("one", STEPS), ("two", STEPS)]));
    let losses = &file.json["tracing_kineto"]["losses"];
    for (loss, count) in file.trace.stats().losses {
        assert_eq!(losses[loss.as_str()], count, "the header says what is lost");
    }
    let (start, end) = gpu::window(file);
    for row in kernels(file).into_iter().chain(calls) {
        let (from, to) = interval(row);
        assert!(from + SLACK >= start && to <= end + SLACK, "{row} in {start}..{end}");
    }
}

/// All kernels are there and linked to the spans that launched them, with these losses alone; a count of 0 stands for any.
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

/// All kernels are in the spans that launched them, with these losses alone; a count of 0 stands for any.
#[track_caller]
pub fn check_spans(file: &File, expected: &[(Loss, usize)]) {
    let spans = tally(kernels(file).iter().map(|kernel| under(file, kernel).to_owned()));
    assert_eq!(spans, counts([("one", STEPS), ("two", STEPS)]));
    let any = |(loss, count): (Loss, usize)| if expected.contains(&(loss, 0)) { (loss, 0) } else { (loss, count) };
    assert_eq!(losses(file).into_iter().map(any).collect::<Vec<_>>(), expected);
}

/// The ids by which calls and their work are joined.
pub fn ids(events: Vec<&Value>) -> HashSet<u64> {
    events.into_iter().map(correlation).collect()
}

/// Of each launch, the kernel or the launch itself is there, or both are counted as lost.
#[track_caller]
pub fn accounted(file: &File, launches: Vec<&Value>) {
    let found = Counts::of(file);
    let (launches, work) = (ids(launches), ids(kernels(file)));
    assert_eq!(file.lost(Loss::LaunchesWithoutWork), launches.difference(&work).count() as u64);
    assert_eq!(file.lost(Loss::WorkWithoutLaunch), work.difference(&launches).count() as u64);
    assert_eq!(found.linked, found.launches, "what has a launch has a span");
    assert!(found.kernels > 0 && found.kernels < KERNELS, "{}", file.trace.stats());
}

/// Each arrow has a name of its own; returns how many there are.
#[track_caller]
pub fn arrows(file: &File) -> usize {
    let ids = |ph: &str| events(file, ph, "ac2g").into_iter().map(|arrow| arrow["id"].as_u64().unwrap()).collect();
    let (starts, ends): (Vec<u64>, Vec<u64>) = (ids("s"), ids("f"));
    let distinct: HashSet<_> = starts.iter().copied().collect();
    assert_eq!((distinct.len(), &distinct), (starts.len(), &ends.iter().copied().collect()));
    ends.len()
}

/// A clock that is off by so much is put right, and the trace says by how much it was off.
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

/// Goes through faults; the rows of the table, and what failed. The machine is kept as it was while they are checked.
pub fn go_through<'f, M>(
    faults: impl IntoIterator<Item = &'f Fault>,
    recorded: impl Fn(&str) -> (M, File),
    row: impl Fn(&str, &File) -> String,
) -> (String, Vec<&'f str>) {
    let (mut rows, mut failed) = (String::new(), Vec::new());
    for (settings, check) in faults {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let (_machine, file) = recorded(settings);
            rows += &row(settings, &file);
            check(&file);
        }));
        failed.extend(outcome.is_err().then_some(*settings));
    }
    (rows, failed)
}

/// What stands above the rows.
pub const HEAD: &str = "| fault | calls | kernels | linked | note in the trace |\n|---|---|---|---|---|\n";

/// What the table says of a fault.
pub fn row(fault: &str, launches: usize, file: &File, report: &CollectorReport) -> String {
    let stats = file.trace.stats();
    let mut says: Vec<String> =
        stats.losses.iter().map(|(loss, count)| format!("{}: {count}", loss.as_str())).collect();
    says.extend(report.state.as_ref().err().map(ToString::to_string));
    says.extend(report.notes.iter().cloned());
    if report.clock_offset_ns.abs() > 1_000_000 {
        says.push(format!("clock off by {} ns, times by {} ns at most", report.clock_offset_ns, report.clock_error_ns));
    }
    let fault = if fault.is_empty() { "none" } else { fault };
    let linked = kernels(file).iter().filter(|kernel| !under(file, kernel).is_empty()).count();
    let (kernels, says) = (kernels(file).len(), says.join("; ").replace('|', "/"));
    format!("| {fault} | {launches} | {kernels} | {linked} | {says} |\n")
}

/// Runs a fault that takes a process of its own; the rows of the table among what it says.
pub fn rows_of(test: &str, env: &[(&str, &str)]) -> String {
    let said = String::from_utf8_lossy(&gpu::in_child(test, env).stdout).into_owned();
    let rows: String = said.lines().filter_map(|line| Some(format!("{}\n", &line[line.find("| ")?..]))).collect();
    assert!(!rows.is_empty(), "{test}: {said}");
    rows
}
