//! Matrices, and the threads that help to multiply them.

use std::sync::{Arc, mpsc};
use std::{io, iter, slice, thread};

use tracing::{Span, info_span, instrument};

/// A matrix by rows; clones share the numbers.
#[derive(Clone)]
pub(crate) struct Matrix {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) data: Arc<[f32]>,
}

impl Matrix {
    pub(crate) fn new(rows: usize, cols: usize, values: impl Iterator<Item = f32>) -> Self {
        Matrix { rows, cols, data: values.take(rows * cols).collect() }
    }

    pub(crate) fn dims(&self) -> [usize; 2] {
        [self.rows, self.cols]
    }

    pub(crate) fn rows(&self) -> slice::ChunksExact<'_, f32> {
        self.data.chunks_exact(self.cols)
    }

    pub(crate) fn map(&self, f: impl Fn(f32) -> f32) -> Matrix {
        Matrix { data: self.data.iter().map(|&v| f(v)).collect(), ..*self }
    }

    pub(crate) fn zip(&self, other: &Matrix, f: impl Fn(f32, f32) -> f32) -> Matrix {
        Matrix { data: self.data.iter().zip(other.data.iter()).map(|(&a, &b)| f(a, b)).collect(), ..*self }
    }

    pub(crate) fn transposed(&self) -> Matrix {
        let column = |col| self.data.iter().copied().skip(col).step_by(self.cols);
        Matrix { rows: self.cols, cols: self.rows, data: (0..self.cols).flat_map(column).collect() }
    }
}

/// Multiplies `count` rows of `a`, from `first` on, by `b`.
#[instrument(level = "debug", skip(a, b))]
fn matmul_rows(a: &Matrix, b: &Matrix, first: usize, count: usize) -> Vec<f32> {
    let mut product = vec![0.0; count * b.cols];
    for (out, row) in product.chunks_exact_mut(b.cols).zip(a.rows().skip(first)) {
        for (x, b_row) in row.iter().zip(b.rows()) {
            out.iter_mut().zip(b_row).for_each(|(out, y)| *out += x * y);
        }
    }
    product
}

type Job = Box<dyn FnOnce() + Send>;

/// Threads that wait for work; they end when the pool is dropped.
pub(crate) struct Pool {
    helpers: Vec<mpsc::Sender<Job>>,
}

impl Pool {
    pub(crate) fn new(helpers: usize) -> io::Result<Pool> {
        let start = |number| {
            let (sender, jobs) = mpsc::channel::<Job>();
            thread::Builder::new().name(format!("matmul-{number}")).spawn(move || jobs.iter().for_each(|job| job()))?;
            Ok(sender)
        };
        Ok(Pool { helpers: (0..helpers).map(start).collect::<io::Result<_>>()? })
    }

    /// Returns `a` × `b`: each helper multiplies a share of the rows, the caller the last one.
    #[instrument(skip_all, fields(dims = ?[a.dims(), b.dims()]))]
    pub(crate) fn matmul(&self, a: &Matrix, b: &Matrix) -> Matrix {
        let share = a.rows / (self.helpers.len() + 1);
        let given = iter::successors(Some(0), |first| Some(first + share)).zip(&self.helpers);
        let parts: Vec<_> = given.map(|(first, helper)| give(helper, a, b, first, share)).collect();
        let first = share * self.helpers.len();
        let own = matmul_rows(a, b, first, a.rows - first);

        let _wait = info_span!("wait for helpers").entered();
        let mut data = Vec::with_capacity(a.rows * b.cols);
        parts.iter().for_each(|part| data.extend(part.recv().unwrap_or_default()));
        data.extend(own);
        Matrix { rows: a.rows, cols: b.cols, data: data.into() }
    }
}

/// Sends some rows to `helper` to multiply, under the caller's span.
fn give(helper: &mpsc::Sender<Job>, a: &Matrix, b: &Matrix, first: usize, count: usize) -> mpsc::Receiver<Vec<f32>> {
    let (done, part) = mpsc::sync_channel(1);
    let (a, b, caller) = (a.clone(), b.clone(), Span::current());
    let job = move || {
        let span = info_span!(parent: &caller, "help");
        drop(done.send(span.in_scope(|| matmul_rows(&a, &b, first, count))));
    };
    drop(helper.send(Box::new(job)));
    part
}
