//! Prints a summary of a trace, and how to open its file.

use std::collections::BTreeMap;
use std::path::Path;

use tracing_kineto::activity::{Body, Lane};
use tracing_kineto::{ActivityType, Timestamp, Trace};

/// The contents of a thread's row.
#[derive(Default)]
struct Row {
    slices: u64,
    busy: u64,
    until: Timestamp,
}

impl Row {
    /// Adds a slice; slices arrive by start, so a slice that starts before `until` lies inside another one.
    fn add(&mut self, start: Timestamp, end: Timestamp) {
        self.slices += 1;
        self.busy += end.since(start.max(self.until));
        self.until = self.until.max(end);
    }
}

/// Prints a line for each thread, a table of the longest operations, and the number of rows of each kind.
pub(crate) fn describe(trace: &Trace) {
    let mut slices = Vec::new();
    let mut kinds = BTreeMap::<&str, u64>::new();
    trace.for_each(|activity| {
        *kinds.entry(activity.kind.as_str()).or_default() += 1;
        // It spans a stream's work, and the time between.
        if activity.kind == ActivityType::GpuUserAnnotation {
            return;
        }
        if let (Body::Slice { start, end }, Lane::Id(thread)) = (activity.body, activity.track.thread) {
            slices.push((thread, start, end));
        }
    });
    slices.sort_by_key(|&(thread, start, end)| (thread, start, std::cmp::Reverse(end)));
    let mut rows = BTreeMap::<i64, Row>::new();
    slices.iter().for_each(|&(thread, start, end)| rows.entry(thread).or_default().add(start, end));

    println!("{:<28} {:>8} {:>10}", "thread", "slices", "busy ms");
    for track in trace.tracks() {
        if let Some(row) = rows.get(&track.thread) {
            println!("{:<28} {:>8} {:>10.3}", track.name, row.slices, ms(row.busy));
        }
    }

    // The first columns of torch's `key_averages().table()`; without a width, all of them.
    println!("\n{}", trace.key_averages().table().row_limit(12).width(110));

    let kinds: Vec<_> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    println!("rows: {}", kinds.join(", "));
    println!("recorded: {}\n", trace.stats());
}

/// Prints the file's path and the tools that read it.
pub(crate) fn how_to_open(path: &str) {
    let folder = Path::new(path).parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = folder.display();
    println!("The trace is in {path}. To open it:");
    println!("  Perfetto     drag the file onto https://ui.perfetto.dev");
    println!("  Chrome       load the file in chrome://tracing");
    println!("  TensorBoard  pip install torch-tb-profiler && tensorboard --logdir {folder}");
    println!("  HTA          pip install HolisticTraceAnalysis, then in Python:");
    println!("               TraceAnalysis(trace_files={{0: '{path}'}}, trace_dir='{folder}').get_profiler_steps()");
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}
