//! Profiles an axum server under its own load over the loopback interface, then exits.
//!
//! ```sh
//! cd examples/axum && cargo run --release [FILE.pt.trace.json.gz]
//! ```
//!
//! Any free thread polls a request, so its slices are spread over the workers; its async track shows it as one bar from the
//! first poll to the end.

mod client;
mod server;

use std::collections::BTreeMap;

use tokio::net::TcpListener;
use tracing_kineto::activity::Body;
use tracing_kineto::{KinetoLayer, Trace, annotate};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

const ROUNDS: u32 = 5;
const CLIENTS: u32 = 8;
const REQUESTS: u32 = 10;

fn main() -> Result<(), client::Error> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "axum.pt.trace.json.gz".into());
    let (layer, guard) = KinetoLayer::builder().output(&path).build()?;
    tracing_subscriber::registry().with(layer).init();

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build()?;
    let answered = runtime.block_on(serve_and_load())?;
    // Joins the workers, so that every request has ended.
    drop(runtime);

    let trace = guard.finish()?;
    trace.save(&path)?;
    println!("{answered} requests answered.");
    describe(&trace);
    println!("The trace is in {path}; drag it onto https://ui.perfetto.dev.");
    Ok(())
}

/// Serves until the clients are done; returns how many requests were answered.
async fn serve_and_load() -> Result<u32, client::Error> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = axum::serve(listener, server::routes()).with_graceful_shutdown(async { drop(stopped.await) });
    let server = tokio::spawn(serving.into_future());

    let mut answered = 0;
    for round in 0..ROUNDS {
        let clients: Vec<_> = (0..CLIENTS).map(|id| tokio::spawn(client::run(address, id, REQUESTS))).collect();
        for client in clients {
            answered += client.await??;
        }
        annotate!("round {}", round).in_scope(|| println!("round {round}: {answered} answers"));
    }
    drop(stop);
    server.await??;
    Ok(answered)
}

/// Prints the number of slices of each span, and their total time.
fn describe(trace: &Trace) {
    let mut spans = BTreeMap::<String, (u32, u64)>::new();
    trace.for_each(|activity| {
        if let Body::Slice { start, end } = activity.body {
            let (count, total) = spans.entry(activity.name.to_owned()).or_default();
            *count += 1;
            *total += end.since(start);
        }
    });
    println!("\n{:<20} {:>8} {:>10}", "span", "slices", "total ms");
    for (name, (count, total)) in &spans {
        println!("{name:<20} {count:>8} {:>10.3}", *total as f64 / 1e6);
    }
}
