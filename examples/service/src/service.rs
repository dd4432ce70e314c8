//! The service: searches whose query is encoded on the GPU, an index that is rebuilt there, and clients.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower_http::trace::TraceLayer;
use tracing::instrument;

use crate::gpu::{Gpu, Work};

/// Slower requests are dumped.
pub const SLOW: Duration = Duration::from_millis(250);

/// 3 ms of the GPU.
pub const QUERY: Work = ("encode_query", 150_000);
/// 400 ms of the GPU, in one launch.
pub const DOCUMENTS: Work = ("encode_all_documents", 20_000_000);

/// The routes, each request under tower-http's span `request`.
pub fn routes(gpu: Gpu) -> Router {
    Router::new().route("/search", get(search)).layer(TraceLayer::new_for_http()).with_state(gpu)
}

#[instrument(skip_all)]
async fn search(State(gpu): State<Gpu>) -> Result<&'static str, StatusCode> {
    gpu.run(QUERY).await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok("three documents")
}

/// Encodes all documents again. Whatever else needs the GPU waits.
#[instrument(skip_all)]
pub async fn rebuild_index(gpu: Gpu) {
    let _ = gpu.run(DOCUMENTS).await;
}

/// What the clients have seen since the last report.
#[derive(Default)]
pub struct Answers {
    count: AtomicU64,
    slowest_us: AtomicU64,
}

impl Answers {
    /// Prints a line, and begins anew.
    pub fn report(&self, second: u64) {
        let (count, slowest) = (self.count.swap(0, Relaxed), self.slowest_us.swap(0, Relaxed) / 1000);
        println!("second {second}: {count:>4} requests answered, the slowest in {slowest:>3} ms");
    }

    /// Sends one request after another, without an end.
    pub async fn ask(&self, address: SocketAddr) -> io::Result<()> {
        loop {
            let (start, mut answer) = (Instant::now(), String::new());
            let mut stream = TcpStream::connect(address).await?;
            stream.write_all(b"GET /search HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
            stream.read_to_string(&mut answer).await?;
            if !answer.starts_with("HTTP/1.1 200") {
                return Err(io::Error::other(answer));
            }
            self.count.fetch_add(1, Relaxed);
            self.slowest_us.fetch_max(start.elapsed().as_micros() as u64, Relaxed);
            tokio::time::sleep(Duration::from_millis(15)).await;
        }
    }
}
