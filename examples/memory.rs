//! Records a training loop's memory: every allocation in a trace, and a picture by category.
//!
//! ```sh
//! cargo run --release --example memory
//! ```
#![expect(clippy::print_stdout, reason = "it prints the paths of its files")]

use std::hint::black_box;
use tracing_kineto::memory::{self, Category, Device, Tracked};
use tracing_kineto::{Error, KinetoLayer, annotate};
use tracing_subscriber::prelude::*;

/// Counts the program's allocations, and reports them to layers that record memory.
#[global_allocator]
static ALLOCATOR: Tracked = Tracked::system();

const LAYERS: usize = 12;
const STEPS: usize = 4;
const SIZE: usize = 256 * 1024;

/// A layer of the model: its weights, and the optimizer's state for them.
struct Layer {
    weights: Vec<f32>,
    momentum: Option<Vec<f32>>,
}

impl Layer {
    #[tracing::instrument(name = "forward", skip_all, fields(mem.category = "ACTIVATION"))]
    fn forward(&self, input: &[f32]) -> Vec<f32> {
        // Temporary data sets its own category.
        let scope = memory::scope(Category::Temporary);
        let scaled: Vec<f32> = input.iter().zip(&self.weights).map(|(x, w)| x * w).collect();
        drop(scope);
        scaled.iter().map(|x| x.max(0.0) + 0.5).collect()
    }

    #[tracing::instrument(name = "backward", skip_all, fields(mem.category = "GRADIENT"))]
    fn backward(&self, activation: &[f32]) -> Vec<f32> {
        activation.iter().zip(&self.weights).map(|(x, w)| (x - w) * 1e-3).collect()
    }

    #[tracing::instrument(name = "update", skip_all)]
    fn update(&mut self, gradient: &[f32]) {
        let momentum = self.momentum.get_or_insert_with(|| {
            let _scope = memory::scope(Category::OptimizerState);
            vec![0.0; SIZE]
        });
        for ((weight, momentum), gradient) in self.weights.iter_mut().zip(momentum).zip(gradient) {
            *momentum = 0.9 * *momentum + gradient;
            *weight -= *momentum;
        }
    }
}

fn main() -> Result<(), Error> {
    let (layer, guard) = KinetoLayer::builder().no_output().with_memory(true).build()?;
    tracing_subscriber::registry().with(layer).init();
    let mut model: Vec<Layer> = {
        let _scope = memory::scope(Category::Parameter);
        (0..LAYERS).map(|n| Layer { weights: vec![0.1 * n as f32; SIZE], momentum: None }).collect()
    };
    for n in 0..STEPS {
        let _step = annotate!("ProfilerStep#{}", n).entered();
        let batch = {
            let _scope = memory::scope(Category::Input);
            vec![1.0f32; SIZE]
        };
        let mut activations = vec![batch];
        for layer in &model {
            let last = activations.last().map_or(&[][..], Vec::as_slice);
            let next = layer.forward(last);
            activations.push(next);
        }
        let gradients: Vec<Vec<f32>> =
            model.iter().rev().map(|layer| layer.backward(&activations.pop().unwrap_or_default())).collect();
        for (layer, gradient) in model.iter_mut().rev().zip(gradients) {
            layer.update(&gradient);
        }
        black_box(&model);
    }
    let trace = guard.finish()?;
    println!("{}", trace.stats());
    let folder = std::env::temp_dir();
    let (file, picture) = (folder.join("memory.pt.trace.json.gz"), folder.join("memory.html"));
    trace.save(&file)?;
    trace.memory_timeline(Device::CPU).save(&picture)?;
    println!("the trace is in {}, the picture in {}", file.display(), picture.display());
    Ok(())
}
