//! The classifier: two linear layers and plain gradient descent.

use std::{fs, io, iter};

use tracing::{Span, field, info_span, instrument};

use crate::gpu::Gpu;
use crate::loader::{Batch, FEATURES};
use crate::matrix::{Matrix, Pool};
use crate::random::Random;

const HIDDEN: usize = 384;
const CLASSES: usize = 3;
const RATE: f32 = 0.5;

/// A classifier of two linear layers.
pub(crate) struct Model {
    hidden: Linear,
    head: Linear,
    /// The sequence number of the next layer's use; a backward operation has that of its forward operation.
    seq: usize,
}

impl Model {
    pub(crate) fn new() -> Self {
        Model { hidden: Linear::new(FEATURES, HIDDEN, 1), head: Linear::new(HIDDEN, CLASSES, 2), seq: 0 }
    }

    /// One step of gradient descent; returns the loss before it.
    #[instrument(skip(self, pool, gpu, batch), fields(batch = batch.inputs.rows, loss = field::Empty))]
    pub(crate) fn step(&mut self, pool: &Pool, gpu: Option<&Gpu>, batch: &Batch, step: usize) -> f32 {
        if let Some(gpu) = gpu {
            gpu.upload(&batch.inputs.data);
        }
        let seq = self.seq;
        self.seq += 2;
        let (activations, logits) = info_span!("forward").in_scope(|| self.forward(pool, gpu, batch, seq));
        let (loss, gradient) = cross_entropy(&logits, &batch.labels);
        Span::current().record("loss", loss);

        let backward = info_span!("backward").entered();
        let gradient = self.head.backward(pool, gpu, &activations, &gradient, seq + 1);
        let gradient = gradient.zip(&activations, |g, a| if a > 0.0 { g } else { 0.0 });
        self.hidden.backward(pool, gpu, &batch.inputs, &gradient, seq);
        drop(backward);
        if let Some(gpu) = gpu {
            gpu.wait();
        }
        loss
    }

    /// Returns the activations of the hidden layer and the logits.
    fn forward(&self, pool: &Pool, gpu: Option<&Gpu>, batch: &Batch, seq: usize) -> (Matrix, Matrix) {
        let hidden = self.hidden.forward(pool, gpu, &batch.inputs, seq);
        let activations = hidden.map(|v| v.max(0.0));
        if let Some(gpu) = gpu {
            gpu.launch("relu");
        }
        let logits = self.head.forward(pool, gpu, &activations, seq + 1);
        (activations, logits)
    }

    /// Returns the share of `batch` that the model classifies correctly.
    #[instrument(ret, skip_all)]
    pub(crate) fn accuracy(&self, pool: &Pool, gpu: Option<&Gpu>, batch: &Batch) -> f32 {
        let (_, logits) = self.forward(pool, gpu, batch, self.seq);
        if let Some(gpu) = gpu {
            gpu.wait();
        }
        let best = |row: &[f32]| row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map(|(class, _)| class);
        let right = logits.rows().zip(&batch.labels).filter(|(row, label)| best(row) == Some(**label)).count();
        right as f32 / batch.labels.len() as f32
    }

    #[instrument(err, skip(self), fields(bytes = field::Empty))]
    pub(crate) fn checkpoint(&self, path: &str) -> io::Result<()> {
        let weights = [&self.hidden, &self.head].into_iter().flat_map(|layer| layer.weight.data.iter());
        let bytes: Vec<u8> = weights.flat_map(|w| w.to_le_bytes()).collect();
        Span::current().record("bytes", bytes.len());
        fs::write(path, bytes)
    }
}

/// A layer that multiplies by a matrix and adds a bias.
struct Linear {
    weight: Matrix,
    bias: Vec<f32>,
}

impl Linear {
    fn new(inputs: usize, outputs: usize, seed: u64) -> Self {
        let (mut random, scale) = (Random(seed), (6.0 / inputs as f32).sqrt());
        let weight = Matrix::new(inputs, outputs, iter::repeat_with(|| random.signed() * scale));
        Linear { weight, bias: vec![0.0; outputs] }
    }

    /// `dims` and `seq` become Kineto's "Input Dims" and "Sequence number".
    #[instrument(name = "linear", skip(self, pool, gpu, x), fields(dims = ?[x.dims(), self.weight.dims()]))]
    fn forward(&self, pool: &Pool, gpu: Option<&Gpu>, x: &Matrix, seq: usize) -> Matrix {
        if let Some(gpu) = gpu {
            gpu.launch("linear_forward");
        }
        let mut y = pool.matmul(x, &self.weight).data.to_vec();
        for row in y.chunks_exact_mut(self.weight.cols) {
            row.iter_mut().zip(&self.bias).for_each(|(y, b)| *y += b);
        }
        Matrix { rows: x.rows, cols: self.weight.cols, data: y.into() }
    }

    /// Updates the weights by the gradient of the outputs; returns the gradient of the inputs.
    #[instrument(name = "linear_backward", skip(self, pool, gpu, x, gradient), fields(dims = ?[gradient.dims(), x.dims()]))]
    fn backward(&mut self, pool: &Pool, gpu: Option<&Gpu>, x: &Matrix, gradient: &Matrix, seq: usize) -> Matrix {
        if let Some(gpu) = gpu {
            ["linear_backward_input", "linear_backward_weight"].iter().for_each(|kernel| gpu.launch(kernel));
        }
        let of_inputs = pool.matmul(gradient, &self.weight.transposed());
        let of_weight = pool.matmul(&x.transposed(), gradient);
        let _optimizer = info_span!("optimizer").entered();
        if let Some(gpu) = gpu {
            gpu.launch("sgd_update");
        }
        self.weight = self.weight.zip(&of_weight, |w, g| w - RATE * g);
        for row in gradient.rows() {
            self.bias.iter_mut().zip(row).for_each(|(b, g)| *b -= RATE * g);
        }
        of_inputs
    }
}

/// Returns the mean loss and its gradient.
#[instrument(skip_all, fields(dims = ?[logits.dims()]))]
fn cross_entropy(logits: &Matrix, labels: &[usize]) -> (f32, Matrix) {
    let share = 1.0 / labels.len() as f32;
    let mut loss = 0.0;
    let mut gradient = Vec::with_capacity(logits.data.len());
    for (row, &label) in logits.rows().zip(labels) {
        let highest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f32 = row.iter().map(|v| (v - highest).exp()).sum();
        for (class, v) in row.iter().enumerate() {
            let p = (v - highest).exp() / sum;
            let wanted = if class == label { 1.0 } else { 0.0 };
            loss -= wanted * p.ln() * share;
            gradient.push((p - wanted) * share);
        }
    }
    (loss, Matrix { data: gradient.into(), ..*logits })
}
