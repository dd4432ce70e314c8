//! A service that writes down why a request was slow, by itself.
//!
//! ```sh
//! cd examples/service && cargo run --release [FILE.pt.trace.json.gz]
//! ```
//!
//! The service always records, and keeps its newest records. After two seconds under load, it rebuilds its index on the GPU
//! (a simulated one where there is none), so unrelated requests wait, too. The first of them triggers a
//! dump, which shows it, the GPU, and what came before and after. The service continues meanwhile.

mod dump;
mod gpu;
mod service;

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gpu::Gpu;
use service::Answers;
use tokio::net::TcpListener;
use tracing_kineto::{DumpTrigger, Dumps, KinetoLayer};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let output = std::env::args().nth(1).unwrap_or_else(|| "service.pt.trace.json.gz".into());
    let (gpu, name) = Gpu::open([service::QUERY.0, service::DOCUMENTS.0])?;
    println!("The kernels run on: {name}");

    let slow = DumpTrigger::slow_span("request", service::SLOW);
    let (layer, _guard) = KinetoLayer::builder()
        .output(&output)
        // In production, the default interval of a minute is better.
        .dumps(Dumps::on([slow]).interval(Duration::from_secs(5)).keep(10, 256 << 20))
        .build()?;
    tracing_subscriber::registry().with(layer).init();

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    // At the end, the guard writes the newest records once more, to `output`.
    runtime.block_on(serve(gpu, Path::new(&output)))
}

/// Serves until a dump has shown why a request was slow.
async fn serve(gpu: Gpu, output: &Path) -> Outcome<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let (address, answers) = (listener.local_addr()?, Arc::new(Answers::default()));
    tokio::spawn(axum::serve(listener, service::routes(gpu.clone())).into_future());
    for _ in 0..4 {
        let answers = answers.clone();
        tokio::spawn(async move { answers.ask(address).await });
    }

    let mut missing = Box::<dyn Error>::from("no dump was written");
    for second in 1..=20 {
        if second == 3 {
            tokio::spawn(service::rebuild_index(gpu.clone()));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        answers.report(second);
        let Some(dump) = dump::newest(output)? else { continue };
        match dump::describe(&dump) {
            Ok(text) => {
                println!("\nThe service has written {}:\n{text}\n", dump.display());
                println!("Drag the file onto https://ui.perfetto.dev and search for {}.", service::DOCUMENTS.0);
                return Ok(());
            }
            Err(error) => missing = error,
        }
    }
    Err(missing)
}
