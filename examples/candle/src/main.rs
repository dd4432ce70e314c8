//! Profiles an unmodified candle model: BERT with random weights, on the CPU.
//!
//! ```sh
//! cd examples/candle && cargo run --release [FILE.pt.trace.json.gz]
//! ```
//!
//! candle-transformers has a span for each part of a model. It creates them in the constructors and enters them in every
//! forward pass, so install the layer before building the model.

use std::collections::BTreeMap;
use std::error::Error;

use candle_core::{DType, Device, Tensor};
use candle_nn::{VarBuilder, VarMap};
use candle_transformers::models::bert::{BertModel, Config};
use tracing_kineto::activity::Body;
use tracing_kineto::{KinetoLayer, Trace, annotate};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

const STEPS: u32 = 10;
const BATCH: usize = 4;
const TOKENS: usize = 32;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "candle.pt.trace.json.gz".into());
    let (layer, guard) = KinetoLayer::builder().output(&path).metadata("model", "BERT, 4 layers of 128").build()?;
    tracing_subscriber::registry().with(layer).init();

    let config = Config {
        vocab_size: 1000,
        hidden_size: 128,
        num_hidden_layers: 4,
        num_attention_heads: 4,
        intermediate_size: 512,
        max_position_embeddings: TOKENS,
        ..Config::default()
    };
    let weights = VarMap::new();
    let model = BertModel::load(VarBuilder::from_varmap(&weights, DType::F32, &Device::Cpu), &config)?;
    for step in 0..STEPS {
        let _step = annotate!("ProfilerStep#{}", step).entered();
        let first = forward(&model, step)?;
        println!("step {step}: the first embedding begins with {first:.4}");
    }

    let trace = guard.finish()?;
    trace.save(&path)?;
    describe(&trace);
    println!("The trace is in {path}; drag it onto https://ui.perfetto.dev.");
    Ok(())
}

/// Runs a forward pass over made-up tokens; returns the first number of the output.
fn forward(model: &BertModel, step: u32) -> candle_core::Result<f32> {
    let tokens = annotate!("make input").in_scope(|| {
        let ids: Vec<u32> = (0..).map(|i| (i * 37 + step * 101) % 1000).take(BATCH * TOKENS).collect();
        Tensor::from_vec(ids, (BATCH, TOKENS), &Device::Cpu)
    })?;
    let embeddings = model.forward(&tokens, &tokens.zeros_like()?, None)?;
    embeddings.flatten_all()?.get(0)?.to_scalar()
}

/// Prints how often each part of the model ran, and the total time.
fn describe(trace: &Trace) {
    let mut parts = BTreeMap::<String, (u32, u64)>::new();
    trace.for_each(|activity| {
        if let Body::Slice { start, end } = activity.body {
            let (count, total) = parts.entry(activity.name.to_owned()).or_default();
            *count += 1;
            *total += end.since(start);
        }
    });
    println!("\n{:<20} {:>8} {:>10}", "span", "count", "total ms");
    for (name, (count, total)) in parts.iter().filter(|(name, _)| !name.contains('#')) {
        println!("{name:<20} {count:>8} {:>10.3}", *total as f64 / 1e6);
    }
}
