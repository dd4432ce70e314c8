//! Measures a span: with a layer that does nothing, with the idle layer, and with the recording layer.
//!
//! The difference to `base` is the cost of the layer. The subscriber is set for the thread only, which adds the same few
//! nanoseconds to all three compared with a global one.
#![expect(clippy::unwrap_used, reason = "a benchmark panics if its setup fails")]

use std::cell::Cell;
use std::fmt;
use std::hint::black_box;

use divan::Bencher;
use divan::counter::ItemsCount;
use tracing::{Dispatch, dispatcher, info_span};
use tracing_kineto::{KinetoGuard, KinetoLayer, Stacks};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry};

/// The number of spans in a batch: a root and its descendants.
const BATCH: u64 = 1000;
/// After this number of batches the recording is restarted, long before the buffers are full.
const BATCHES: u32 = 500;
const SOFTWARE: [&str; 4] = ["task-clock", "page-faults", "minor-faults", "major-faults"];
/// Subjects with optional data of slices; stacks need their feature.
const WITH_EXTRAS: &[Subject] = if cfg!(feature = "backtrace") {
    &[Subject::Recording, Subject::Stacks(8), Subject::Stacks(32), Subject::Counting(1), Subject::Counting(4)]
} else {
    &[Subject::Recording, Subject::Counting(1), Subject::Counting(4)]
};

fn main() {
    divan::main();
}

/// The subscriber under which the spans are created.
#[derive(Clone, Copy, Debug)]
enum Subject {
    Base,
    Idle,
    Recording,
    /// With call stacks of that many frames.
    Stacks(usize),
    /// With that many counters, which any kernel has.
    Counting(usize),
}

const SUBJECTS: [Subject; 3] = [Subject::Base, Subject::Idle, Subject::Recording];

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Subject::Base => "base",
            Subject::Idle => "idle",
            Subject::Recording => "recording",
            Subject::Stacks(frames) => return write!(f, "{frames} frames"),
            Subject::Counting(events) => return write!(f, "{events} counters"),
        })
    }
}

/// A layer with only default methods.
struct DefaultMethods;

impl<S: tracing::Subscriber> Layer<S> for DefaultMethods {}

impl Subject {
    fn subscriber(self) -> (Dispatch, Option<KinetoGuard>) {
        if matches!(self, Subject::Base) {
            return (Dispatch::new(Registry::default().with(DefaultMethods)), None);
        }
        let builder = KinetoLayer::builder().no_output().record_from_start(!matches!(self, Subject::Idle));
        let builder = match self {
            Subject::Stacks(frames) => builder.with_stack(Stacks::new().frames(frames)),
            Subject::Counting(events) => builder.performance_events(SOFTWARE.iter().copied().take(events)),
            _ => builder,
        };
        let (layer, guard) = builder.build().unwrap();
        (Dispatch::new(Registry::default().with(layer)), Some(guard))
    }

    /// Measures `batch` under the subscriber.
    fn bench(self, bencher: Bencher<'_, '_>, batch: fn()) {
        let (dispatch, guard) = self.subscriber();
        let profiler = guard.as_ref().map(KinetoGuard::profiler);
        let batches = Cell::new(0u32);
        let begin_anew = || {
            batches.set(batches.get() + 1);
            if batches.get().is_multiple_of(BATCHES) && !matches!(self, Subject::Idle) {
                let profiler = profiler.as_ref().unwrap();
                drop(profiler.stop().unwrap());
                profiler.start().unwrap();
            }
        };
        bencher
            .counter(ItemsCount::new(BATCH))
            .with_inputs(begin_anew)
            .bench_local_values(|()| dispatcher::with_default(&dispatch, batch));
        if let Some(guard) = guard.filter(|_| !matches!(self, Subject::Idle)) {
            let losses = guard.finish().unwrap().stats().losses;
            assert!(losses.is_empty(), "measured spans were lost: {losses:?}");
        }
    }
}

/// Spans without fields, one after another.
#[divan::bench(args = SUBJECTS)]
fn empty(bencher: Bencher<'_, '_>, subject: Subject) {
    subject.bench(bencher, || {
        let _root = info_span!("root").entered();
        for i in 1..BATCH {
            let _span = info_span!("op").entered();
            black_box(i);
        }
    });
}

/// Spans with a whole number, a fraction and a text.
#[divan::bench(args = SUBJECTS)]
fn fields(bencher: Bencher<'_, '_>, subject: Subject) {
    subject.bench(bencher, || {
        let _root = info_span!("root").entered();
        for i in 1..BATCH {
            let _span = info_span!("op", a = black_box(i), b = 3.5f64, c = "float32").entered();
        }
    });
}

/// Spans nested eight deep.
#[divan::bench(args = SUBJECTS)]
fn depth_8(bencher: Bencher<'_, '_>, subject: Subject) {
    fn nest(depth: u32) {
        let _span = info_span!("nest").entered();
        if depth > 1 {
            nest(black_box(depth - 1));
        }
    }
    subject.bench(bencher, || (0..BATCH / 8).for_each(|_| nest(black_box(8))));
}

/// Spans that are created once and entered repeatedly.
#[divan::bench(args = SUBJECTS)]
fn entered_again(bencher: Bencher<'_, '_>, subject: Subject) {
    subject.bench(bencher, || {
        let span = info_span!("layer");
        for i in 0..BATCH {
            let _entered = span.enter();
            black_box(i);
        }
    });
}

/// Spans below 64 calls, with optional data.
#[divan::bench(args = WITH_EXTRAS)]
fn with_extras(bencher: Bencher<'_, '_>, subject: Subject) {
    #[inline(never)]
    fn below(depth: u32) {
        if black_box(depth) > 0 {
            below(depth - 1);
            black_box(depth);
            return;
        }
        for i in 0..BATCH {
            let _span = info_span!("op").entered();
            black_box(i);
        }
    }
    subject.bench(bencher, || black_box(below)(64));
}
