//! A small training loop with real work on several threads: recorded, saved and described.
//!
//! ```sh
//! cd examples/quickstart && cargo run --release [FILE.pt.trace.json.gz]
//! ```
//!
//! An async part reads the data set, two loader threads make batches of it, and the main thread trains a classifier on them
//! with two helper threads and a GPU (a simulated one if there is none). Almost everything in the trace comes from ordinary
//! `tracing` spans; the program uses only the layer, `annotate!` for the steps and `counter!` for the queue of
//! tracing-kineto.

mod dataset;
mod gpu;
mod loader;
mod matrix;
mod model;
mod random;
mod report;

use std::error::Error;
use std::process;
use std::time::{SystemTime, UNIX_EPOCH};

use tracing_kineto::{KinetoLayer, annotate};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::gpu::Gpu;
use crate::matrix::Pool;
use crate::model::Model;

const STEPS: usize = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(default_path);
    let gpu = Gpu::open();
    announce(gpu.as_ref());
    let (layer, guard) = KinetoLayer::builder().output(&path).metadata("model", "three spirals, two layers").build()?;
    tracing_subscriber::registry().with(layer).init();

    let (loss, accuracy) = train(gpu.as_ref())?;

    // Dropping the guard would save the file too; `finish` also returns the trace.
    let trace = guard.finish()?;
    trace.save(&path)?;
    println!("Trained for {STEPS} steps: loss {loss:.3}, accuracy {:.1} %.\n", accuracy * 100.0);
    report::describe(&trace);
    announce(gpu.as_ref());
    report::how_to_open(&path);
    Ok(())
}

/// Returns a name that TensorBoard lists: `<worker>.<digits>.pt.trace.json.gz`.
fn default_path() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    format!("quickstart_{}.{now}.pt.trace.json.gz", process::id())
}

/// Trains the classifier; returns the last loss and the accuracy on unseen points.
fn train(gpu: Option<&Gpu>) -> Result<(f32, f32), Box<dyn Error>> {
    let points = dataset::fetch()?;
    let batches = loader::start(points, STEPS + 1)?;
    let pool = Pool::new(2)?;
    let mut model = Model::new();
    let mut loss = f32::NAN;
    for step in 0..STEPS {
        let _step = annotate!("ProfilerStep#{}", step).entered();
        let batch = batches.next()?;
        loss = model.step(&pool, gpu, &batch, step);
        if step == STEPS / 2 {
            // Fails, and the slice shows the error; the training continues.
            drop(model.checkpoint("no-such-folder/model.bin"));
        }
    }
    let unseen = batches.next()?;
    Ok((loss, model.accuracy(&pool, gpu, &unseen)))
}

/// Prints which GPU ran the kernels of the trace, prominently if it was simulated.
fn announce(gpu: Option<&Gpu>) {
    match gpu {
        Some(Gpu { name, simulated: true, .. }) => {
            println!("*** NO NVIDIA GPU HERE: THE KERNELS IN THIS TRACE ARE SIMULATED, on \"{name}\". ***\n");
        }
        Some(Gpu { name, .. }) => println!("The kernels run on {name}.\n"),
        None => println!("*** Neither a GPU nor its simulator is here: the trace has no kernels. ***\n"),
    }
}
