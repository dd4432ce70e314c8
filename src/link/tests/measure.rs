//! Measures the time and memory of linking, for each device record.
//!
//! `cargo test --release --lib link::tests::measure -- --ignored --nocapture`

use std::hint::black_box;
use std::time::Instant;

use super::fake::FakeRecords;
use crate::link::{Links, RecordSource, Spans};
use crate::time::Timestamp;
use kineto_base::fallible::List;

/// Spans that are free to query: a span for each slice, in steps of a thousand, which are annotations.
struct StepSpans;

impl Spans for StepSpans {
    fn span_of(&self, slice: u64) -> Option<u64> {
        Some(slice)
    }
    fn parent_of(&self, span: u64) -> u64 {
        if span > STEPS { STEPS - span / 1000 } else { 0 }
    }
    fn annotation_of(&self, span: u64) -> u64 {
        if span > STEPS { 0 } else { span }
    }
    fn innermost_slices(&self, questions: &[(u32, Timestamp)]) -> List<u64> {
        (STEPS + 1..).take(questions.len()).collect()
    }
}

/// Ids up to this one are steps, those above spans.
const STEPS: u64 = 1 << 40;

/// Four threads launch onto three streams of two devices, each eighth time a graph with four kernels. A tenth of the
/// launches and of the kernels arrive after their successors.
fn launches(kernels: usize, is_paired: bool, has_ids: bool, spread: u64) -> FakeRecords {
    let mut records = FakeRecords::default();
    for launch in (1u64..).take_while(|launch| *launch <= kernels as u64 * 8 / 11) {
        let late = if launch % 10 == 0 { 5000 } else { 0 };
        let (start, thread) = (launch * 1000 - late, u32::try_from(launch % 4).unwrap());
        let slice = if has_ids { STEPS + launch } else { 0 };
        records.add_call(launch * spread, thread, (start, start + 900), slice);
        if is_paired {
            records.add_call(launch * spread, thread, (start + 100, start + 800), slice);
        }
        records.calls.last_mut().unwrap().launches = true;
        let stream = (i32::try_from(launch % 2).unwrap(), u32::try_from(launch % 3).unwrap());
        for nth in 0..if launch % 8 == 0 { 4 } else { 1 } {
            let start = launch * 1000 + 20_000 + nth * 200 - 2 * late;
            records.add_work(launch * spread, stream, (start, start + 150));
        }
    }
    records
}

#[expect(clippy::print_stdout, reason = "a measurement prints its results")]
fn measure(what: &str, records: &FakeRecords) {
    let (mut read, mut join, mut walk, mut kept) = (f64::MAX, f64::MAX, f64::MAX, 0);
    let count = records.work.len() as f64;
    for _ in 0..5 {
        let began = Instant::now();
        black_box((records.calls().max_by_key(|call| call.start), records.work().max_by_key(|work| work.start)));
        read = read.min(began.elapsed().as_nanos() as f64 / count);

        let began = Instant::now();
        let links = black_box(Links::new(records, &StepSpans));
        join = join.min(began.elapsed().as_nanos() as f64 / count);

        let began = Instant::now();
        for call in links.threads.lanes().flat_map(|(_, calls)| calls).map(|at| records.call_at(*at)) {
            black_box((links.has_work(&call), links.slice_of(&call)));
        }
        for work in links.streams.lanes().flat_map(|(_, work)| work).map(|at| records.work_at(*at)) {
            let launch = links.launch_of(&work).map(|at| records.call_at(at));
            black_box(launch.map(|launch| links.slice_of(&launch)));
        }
        walk = walk.min(began.elapsed().as_nanos() as f64 / count);
        assert_eq!(links.counts.work_without_launch, 0);
        kept = links.heap_bytes();
    }
    let (kept, calls) = (kept as f64 / count, records.calls.len() as f64 / count);
    println!(
        "{what:<24} {count:>9} device records, {calls:.2} calls each: \
         read once {read:4.1} ns, join {join:5.1} ns, walk {walk:5.1} ns, {kept:5.1} bytes kept"
    );
}

#[test]
#[ignore = "measures"]
fn figures() {
    for kernels in [100_000, 10_000_000] {
        measure("launches", &launches(kernels, false, true, 1));
        measure("a driver call in each", &launches(kernels, true, true, 1));
        measure("without ids", &launches(kernels, false, false, 1));
        measure("ids far apart", &launches(kernels, false, true, 100));
    }
}
