//! Measures how long a stop takes: it should depend on the number of chunks, not on the number of records.
#![expect(clippy::unwrap_used, reason = "a benchmark panics if its setup fails")]

use std::hint::black_box;

use divan::Bencher;
use tracing::{Dispatch, dispatcher, info_span};
use tracing_kineto::KinetoLayer;
use tracing_subscriber::Registry;
use tracing_subscriber::layer::SubscriberExt;

fn main() {
    divan::main();
}

/// `Profiler::stop` after that many spans; dropping the trace is not measured.
#[divan::bench(args = [0, 1_000, 100_000, 1_000_000], sample_count = 20, sample_size = 1)]
fn stop(bencher: Bencher<'_, '_>, spans: u32) {
    let (layer, guard) = KinetoLayer::builder().no_output().record_from_start(false).build().unwrap();
    let dispatch = Dispatch::new(Registry::default().with(layer));
    let profiler = guard.profiler();
    let record = || {
        profiler.start().unwrap();
        dispatcher::with_default(&dispatch, || {
            for i in 0..spans {
                let _span = info_span!("op").entered();
                black_box(i);
            }
        });
    };
    bencher.with_inputs(record).bench_local_values(|()| profiler.stop().unwrap());
}

/// `Profiler::start`; the first record starts the session's thread.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn start(bencher: Bencher<'_, '_>) {
    let (_layer, guard) = KinetoLayer::builder().no_output().record_from_start(true).build().unwrap();
    let profiler = guard.profiler();
    bencher.with_inputs(|| drop(profiler.stop())).bench_local_values(|()| profiler.start().unwrap());
}
