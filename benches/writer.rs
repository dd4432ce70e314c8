//! From a recording of a million spans to Kineto's JSON: into nothing, into a file, into a compressed file.
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot be set up is none")]

use std::hint::black_box;
use std::io;
use std::sync::LazyLock;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use tracing::{info_span, subscriber};
use tracing_kineto::{KinetoLayer, Trace};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt;

const SPANS: u64 = 1_000_000;

fn main() {
    divan::main();
}

/// Spans without fields.
static EMPTY: LazyLock<Trace> = LazyLock::new(|| {
    record(|i| {
        let _span = info_span!("op").entered();
        black_box(i);
    })
});

/// Spans with a whole number, a fraction and a text.
static FIELDS: LazyLock<Trace> = LazyLock::new(|| {
    record(|i| {
        let _span = info_span!("op", a = i, b = 3.5f64, c = "float32").entered();
    })
});

const TRACES: [&str; 2] = ["empty", "fields"];

fn trace(name: &str) -> &'static Trace {
    match name {
        "empty" => &EMPTY,
        _ => &FIELDS,
    }
}

/// Records `SPANS` spans in groups of a hundred, and has the trace read once, as every reader after the first finds it.
fn record(span: fn(u64)) -> Trace {
    let (layer, guard) = KinetoLayer::builder().no_output().build().unwrap();
    subscriber::with_default(Registry::default().with(layer), || {
        for group in 0..SPANS / 100 {
            let _group = info_span!("group").entered();
            (1..100).for_each(|i| span(group * 100 + i));
        }
    });
    let trace = guard.finish().unwrap();
    assert_eq!(trace.stats().slices, SPANS);
    trace
}

/// Counts what is written.
#[derive(Default)]
struct Count(u64);

impl io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn counted<'a, 'b>(bencher: Bencher<'a, 'b>, trace: &Trace) -> Bencher<'a, 'b> {
    let mut count = Count::default();
    trace.write_chrome(&mut count).unwrap();
    bencher.counter(ItemsCount::new(SPANS)).counter(BytesCount::new(count.0))
}

/// The JSON alone.
#[divan::bench(args = TRACES, sample_count = 10, sample_size = 1)]
fn to_nothing(bencher: Bencher<'_, '_>, name: &str) {
    let trace = trace(name);
    counted(bencher, trace).bench_local(|| trace.write_chrome(io::sink()).unwrap());
}

/// `.json`.
#[divan::bench(args = TRACES, sample_count = 10, sample_size = 1)]
fn to_file(bencher: Bencher<'_, '_>, name: &str) {
    save(bencher, name, "x.pt.trace.json");
}

/// `.json.gz`, at the level that is the default.
#[cfg(feature = "gzip")]
#[divan::bench(args = TRACES, sample_count = 10, sample_size = 1)]
fn to_gzip_file(bencher: Bencher<'_, '_>, name: &str) {
    save(bencher, name, "x.pt.trace.json.gz");
}

fn save(bencher: Bencher<'_, '_>, name: &str, file: &str) {
    let trace = trace(name);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(file);
    counted(bencher, trace).bench_local(|| trace.save(&path).unwrap());
}

/// A program's own walk over the activities.
#[divan::bench(args = TRACES, sample_count = 10, sample_size = 1)]
fn for_each(bencher: Bencher<'_, '_>, name: &str) {
    let trace = trace(name);
    bencher.counter(ItemsCount::new(SPANS)).bench_local(|| {
        let mut length = 0;
        trace.for_each(|activity| length += activity.name.len());
        length
    });
}
