//! Measures the cost of a device's records after a vendor's library has delivered them: packing, linking, rows, file and
//! memory.
//!
//! A simulated collector delivers launches with their kernels, as CUPTI's does: from 4 threads, on 3 streams of 2 devices,
//! each 8th launch a graph of 4 kernels.
//!
//! ```sh
//! cargo bench --package benches --bench devices [-- RECORDS...]
//! ```
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss, reason = "a measurement")]

use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tracing_kineto::activity::CorrelationId;
use tracing_kineto::integration::Collector;
use tracing_kineto::integration::{
    ApiCall, Capabilities, DeviceWork, RecordLayout, RecordSink, RecordView, Recording, Selection, Thread, Unavailable,
};
use tracing_kineto::{ActivityType, ActivityTypes, ArgValue, Format, KinetoLayer, Timestamp, annotate};
use tracing_subscriber::layer::SubscriberExt;

#[derive(Clone, Debug, Default)]
struct Source {
    sink: Arc<Mutex<Option<RecordSink>>>,
    pushed: Arc<Mutex<u64>>,
}

#[derive(Debug)]
struct Kernel;

impl RecordLayout for Kernel {
    fn visit(&self, record: &RecordView<'_>, each: &mut dyn FnMut(&str, ArgValue<'_>)) {
        each("device", ArgValue::I64(record.device_id.into()));
        each("stream", ArgValue::U64(record.stream.into()));
        each("correlation", ArgValue::U64(record.correlation));
        let grid = [record.low(0).into(), record.high(0).into(), 1];
        each("grid", ArgValue::Ints(&grid));
    }
}

impl Collector for Source {
    fn name(&self) -> &'static str {
        "source"
    }
    fn types(&self) -> ActivityTypes {
        ActivityType::ConcurrentKernel.into()
    }
    fn probe(&self) -> Result<Capabilities, Unavailable> {
        Ok(Capabilities::default())
    }
    fn start(&self, _: &Selection, sink: RecordSink) -> Result<(Capabilities, Box<dyn Recording>), Unavailable> {
        *self.sink.lock().unwrap() = Some(sink);
        Ok((self.probe()?, Box::new(self.clone())))
    }
}

impl Recording for Source {
    fn push(&self, id: CorrelationId) -> bool {
        *self.pushed.lock().unwrap() = id.0;
        true
    }
    fn stop(&self, _: Timestamp, _: Instant) {
        self.sink.lock().unwrap().take();
    }
}

impl Source {
    /// Delivers that many records, launches and kernels together; returns the nanoseconds per record.
    fn fill(&self, records: u64) -> f64 {
        let external = *self.pushed.lock().unwrap();
        let sink = self.sink.lock().unwrap().clone().unwrap();
        let begun = Cpu::now();
        let mut start = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap();
        let (mut launch, mut left) = (0_u64, records);
        while left > 0 {
            // Like a full buffer: one lock for many records.
            sink.record(|batch| {
                let names = [batch.name("cuLaunchKernel"), batch.name("void gemm<float, 128, 4>(float*, int)")];
                for _ in 0..4096.min(left) {
                    launch += 1;
                    // Time advances faster than records are delivered, so that all lie within the recording.
                    start += 10;
                    let (thread, correlation) = (Thread::Handle((launch % 4) as u32), launch);
                    let call = ApiCall::new(ActivityType::CudaDriver, names[0], thread, (start, start + 6), &Kernel);
                    batch.call(&ApiCall { correlation, external, launches: true, words: &[307], ..call });
                    let kernels = if launch % 8 == 0 { 4 } else { 1 };
                    for kernel in 0..kernels {
                        let start = start + 7 + kernel;
                        let (kind, stream) = (ActivityType::ConcurrentKernel, u32::try_from(7 + launch % 3).unwrap());
                        let place = ((launch % 2) as i32, stream);
                        let work = DeviceWork::new(kind, names[1], place, (start, start + 1), &Kernel);
                        batch.work(&DeviceWork { correlation, words: &[launch, 1 << 40, 3, 4, 5, 6], ..work });
                    }
                    left = left.saturating_sub(1 + kernels);
                }
            });
        }
        begun.elapsed() / records as f64
    }
}

/// Processor time, which other programs do not lengthen.
struct Cpu(f64);

impl Cpu {
    fn now() -> Cpu {
        let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        Cpu(stat.split(' ').next().unwrap().parse().unwrap())
    }

    fn elapsed(&self) -> f64 {
        Cpu::now().0 - self.0
    }
}

fn resident() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok()).unwrap_or(0.0) * 4096.0
}

fn measure(records: u64) {
    let source = Source::default();
    let builder = KinetoLayer::builder().no_output().collector(source.clone()).buffer_limit_bytes(8 << 30);
    let (layer, guard) = builder.build().unwrap();
    let before = resident();
    let packed = tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let _step = annotate!("step").entered();
        source.fill(records)
    });
    let (kept, trace) = (resident() - before, guard.finish().unwrap());
    let per = |begun: Cpu| begun.elapsed() / records as f64;
    let begun = Cpu::now();
    let stats = trace.stats();
    let linked = per(begun);
    let with_links = resident() - before;
    assert!(stats.losses.iter().all(|(loss, _)| !loss.is_loss()), "{stats}");
    let begun = Cpu::now();
    let mut rows = 0_u64;
    trace.for_each(|_| rows += 1);
    let walked = per(begun);
    let begun = Cpu::now();
    trace.write(std::io::sink(), Format::Json).unwrap();
    let written = per(begun);
    println!(
        "{records:>9} {packed:>8.1} {linked:>8.1} {walked:>8.1} {written:>8.1} {:>8.1} {:>8.1}   {rows} rows",
        kept / records as f64,
        (with_links - kept) / records as f64,
    );
}

fn main() {
    let asked: Vec<u64> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    println!("  records     pack     link     rows     file    bytes  +linked   (ns, ns, ns, ns, bytes a record)");
    for records in if asked.is_empty() { vec![100_000, 10_000_000] } else { asked } {
        measure(records);
    }
}
