//! The batches, prepared ahead of use by two threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::{io, iter, thread};

use tracing::{Span, field, info_span, instrument};
use tracing_kineto::counter;

use crate::dataset::Point;
use crate::matrix::Matrix;
use crate::random::Random;

/// The number of features of a point.
pub(crate) const FEATURES: usize = 96;
const BATCH: usize = 512;

/// Inputs, and the class of each.
pub(crate) struct Batch {
    pub(crate) inputs: Matrix,
    pub(crate) labels: Vec<usize>,
}

/// The prepared batches.
pub(crate) struct Batches {
    queue: mpsc::Receiver<Batch>,
    ready: Arc<AtomicUsize>,
}

impl Batches {
    #[instrument(name = "next_batch", skip_all)]
    pub(crate) fn next(&self) -> Result<Batch, mpsc::RecvError> {
        let batch = self.queue.recv()?;
        counter!("batches", ready = self.ready.fetch_sub(1, Ordering::Relaxed) - 1);
        Ok(batch)
    }
}

/// Starts two threads that prepare `total` batches between them, a few ahead of use.
pub(crate) fn start(points: Vec<Point>, total: usize) -> io::Result<Batches> {
    let (sender, queue) = mpsc::sync_channel(4);
    let (points, next, ready) = (Arc::new(points), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    for worker in 0..2 {
        let (sender, points, next, ready) = (sender.clone(), points.clone(), next.clone(), ready.clone());
        let work = move || {
            let numbers = iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed)).take_while(|&n| n < total);
            for batch in numbers.map(|number| load_batch(&points, number, worker)) {
                counter!("batches", ready = ready.fetch_add(1, Ordering::Relaxed) + 1);
                if sender.send(batch).is_err() {
                    break;
                }
            }
        };
        thread::Builder::new().name(format!("loader-{worker}")).spawn(work)?;
    }
    Ok(Batches { queue, ready })
}

/// Draws points and turns each into features: sines of random mixes of its coordinates.
#[instrument(skip(points), fields(bytes = field::Empty))]
fn load_batch(points: &[Point], number: usize, worker: usize) -> Batch {
    let mut random = Random(number as u64 + 100);
    let drawn: Vec<Point> = info_span!("draw").in_scope(|| {
        iter::repeat_with(|| random.below(points.len())).filter_map(|i| points.get(i).copied()).take(BATCH).collect()
    });
    let span = info_span!("featurize", rows = BATCH, features = FEATURES);
    let features = drawn.iter().flat_map(|p| {
        let mut mix = Random(7);
        iter::repeat_with(move || (6.0 * (p.x * mix.signed() + p.y * mix.signed()) + 3.0 * mix.signed()).sin())
            .take(FEATURES)
    });
    let inputs = span.in_scope(|| Matrix::new(BATCH, FEATURES, features));
    Span::current().record("bytes", size_of_val(&*inputs.data));
    Batch { inputs, labels: drawn.iter().map(|p| p.class).collect() }
}
