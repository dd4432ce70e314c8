//! Measures writing a recording of a million spans: to Kineto's JSON (nowhere, to a file, to a compressed file), to Perfetto's
//! format, and to a segment, which is read, too.
//!
//! Before the benchmarks it compares saving with two lower bounds: writing the same bytes, and copying them, alternately. The
//! file is in `/dev/shm` if that folder exists.
#![expect(clippy::unwrap_used, reason = "a benchmark panics if its setup fails")]
#![expect(clippy::print_stdout, reason = "a benchmark prints its measurements")]

use std::fs;
use std::hint::black_box;
use std::io::{self, Write};
use std::path::Path;
use std::sync::LazyLock;
use std::time::Instant;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use tracing::{info_span, subscriber};
use tracing_kineto::{Format, KinetoLayer, Trace};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt;

const SPANS: u64 = 1_000_000;

fn main() {
    // Skipped while benchmarks are listed or tested.
    if std::env::args().any(|argument| argument == "--bench") {
        TRACES.into_iter().for_each(compare);
    }
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

/// Records `SPANS` spans in groups of a hundred, and reads the trace once, so that its index exists.
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

/// Prints the median times of saving, formatting, writing and copying, and their ratios.
fn compare(name: &str) {
    const ROUNDS: usize = 11;

    let trace = trace(name);
    let folder = tempfile::tempdir_in(if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "." }).unwrap();
    let path = folder.path().join("x.pt.trace.json");
    trace.save(&path).unwrap();
    let bytes = fs::read(&path).unwrap();
    let mut copy = vec![0; bytes.len()];

    let mut works: [&mut dyn FnMut(); 4] = [
        &mut || trace.save(&path).unwrap(),
        &mut || trace.write(io::sink(), Format::Json).unwrap(),
        &mut || {
            let mut file = fs::File::create(&path).unwrap();
            bytes.chunks(1 << 20).for_each(|piece| file.write_all(piece).unwrap());
        },
        &mut || black_box(&mut copy).copy_from_slice(black_box(&bytes)),
    ];
    let mut times: [Vec<f64>; 4] = Default::default();
    for _ in 0..ROUNDS {
        for (work, times) in works.iter_mut().zip(&mut times) {
            let _ = fs::remove_file(&path);
            let start = Instant::now();
            work();
            times.push(start.elapsed().as_nanos() as f64 / SPANS as f64);
        }
    }
    let [save, format, write, copy] = times.map(|mut times| {
        times.sort_unstable_by(f64::total_cmp);
        times.get(ROUNDS / 2).copied().unwrap()
    });
    println!(
        "{name}: {:.1} bytes an event; ns an event: {save:.1} to save, {format:.1} to format, {write:.1} to write,",
        bytes.len() as f64 / SPANS as f64
    );
    println!(
        "  {copy:.1} to copy; save / write {:.2}, save / copy {:.1}, format / copy {:.1}",
        save / write,
        save / copy,
        format / copy
    );
}

/// Counts the written bytes.
#[derive(Default)]
struct Count(u64);

impl Write for Count {
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
    trace.write(&mut count, Format::Json).unwrap();
    bencher.counter(ItemsCount::new(SPANS)).counter(BytesCount::new(count.0))
}

/// The JSON, discarded.
#[divan::bench(args = TRACES, sample_count = 10, sample_size = 1)]
fn to_nothing(bencher: Bencher<'_, '_>, name: &str) {
    let trace = trace(name);
    counted(bencher, trace).bench_local(|| trace.write(io::sink(), Format::Json).unwrap());
}

/// Perfetto's format, discarded.
#[divan::bench(args = TRACES, sample_count = 10, sample_size = 1)]
fn perfetto_to_nothing(bencher: Bencher<'_, '_>, name: &str) {
    let trace = trace(name);
    let mut count = Count::default();
    trace.write(&mut count, Format::Perfetto).unwrap();
    let bencher = bencher.counter(ItemsCount::new(SPANS)).counter(BytesCount::new(count.0));
    bencher.bench_local(|| trace.write(io::sink(), Format::Perfetto).unwrap());
}

/// A segment, discarded.
#[divan::bench(args = TRACES, sample_count = 10, sample_size = 1)]
fn segment_to_nothing(bencher: Bencher<'_, '_>, name: &str) {
    let trace = trace(name);
    let bencher = bencher.counter(ItemsCount::new(SPANS)).counter(BytesCount::new(segment(trace).len()));
    bencher.bench_local(|| trace.write_segment(1, io::sink()).unwrap());
}

/// A segment, read from memory.
#[divan::bench(args = TRACES, sample_count = 10, sample_size = 1)]
fn segment_from_memory(bencher: Bencher<'_, '_>, name: &str) {
    let segment = segment(trace(name));
    let bencher = bencher.counter(ItemsCount::new(SPANS)).counter(BytesCount::new(segment.len()));
    bencher.bench_local(|| Trace::read_segment_from(&*segment, "memory").unwrap());
}

fn segment(trace: &Trace) -> Vec<u8> {
    let mut segment = Vec::new();
    trace.write_segment(1, &mut segment).unwrap();
    segment
}

/// `.json`.
#[divan::bench(args = TRACES, sample_count = 10, sample_size = 1)]
fn to_file(bencher: Bencher<'_, '_>, name: &str) {
    save(bencher, name, "x.pt.trace.json");
}

/// `.json.gz`, at the default level.
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

/// A program's own iteration over the activities.
#[divan::bench(args = TRACES, sample_count = 10, sample_size = 1)]
fn for_each(bencher: Bencher<'_, '_>, name: &str) {
    let trace = trace(name);
    bencher.counter(ItemsCount::new(SPANS)).bench_local(|| {
        let mut length = 0;
        trace.for_each(|activity| length += activity.name.len());
        length
    });
}
