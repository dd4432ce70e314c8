//! The server: a few routes that wait, compute, and pass work to other tasks and threads.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::get;
use tokio::task;
use tower_http::trace::TraceLayer;
use tracing::{Instrument, Span, field, info_span, instrument};

/// A message to the audit thread, and the span of the request that caused it.
type Entry = (String, Span);

/// The routes, each request under tower-http's span `request`.
pub fn routes() -> Router {
    Router::new()
        .route("/users/{id}", get(user))
        .route("/hash/{text}", get(hash))
        .layer(TraceLayer::new_for_http())
        .with_state(start_audit())
}

/// Runs two queries concurrently, each in its own task.
#[instrument(skip(audit), fields(rows = field::Empty))]
async fn user(Path(id): Path<u64>, State(audit): State<mpsc::Sender<Entry>>) -> String {
    let orders = task::spawn(query("orders", id).in_current_span());
    let (profile, orders) = tokio::join!(query("profile", id), orders);
    let rows = profile + orders.unwrap_or_default();
    Span::current().record("rows", rows);
    drop(audit.send((format!("user {id}"), Span::current())));
    format!("{rows} rows")
}

/// A database query that takes some time.
#[instrument]
async fn query(table: &'static str, id: u64) -> u64 {
    tokio::time::sleep(Duration::from_micros(500 + 300 * (id % 4))).await;
    let rows = info_span!("decode").in_scope(|| digest(&format!("{table}{id}"), 500) % 10);
    tokio::time::sleep(Duration::from_micros(300)).await;
    rows
}

/// Blocking work on another thread, which still belongs to the request.
#[instrument(skip(audit))]
async fn hash(Path(text): Path<String>, State(audit): State<mpsc::Sender<Entry>>) -> String {
    let request = Span::current();
    drop(audit.send((format!("hash {text}"), request.clone())));
    let digest = task::spawn_blocking(move || {
        let _request = request.enter();
        info_span!("digest", bytes = text.len()).in_scope(|| digest(&text, 20_000))
    });
    format!("{:016x}", digest.await.unwrap_or_default())
}

fn digest(text: &str, rounds: u32) -> u64 {
    let mut hasher = DefaultHasher::new();
    for round in 0..rounds {
        (text, round).hash(&mut hasher);
    }
    hasher.finish()
}

/// Starts a thread that logs requests: its work follows from a request, but is not part of it.
fn start_audit() -> mpsc::Sender<Entry> {
    let (sender, entries) = mpsc::channel::<Entry>();
    thread::Builder::new()
        .name("audit".into())
        .spawn(move || {
            for (entry, request) in entries {
                let span = info_span!(parent: None, "audit", entry);
                span.follows_from(&request);
                drop(request);
                span.in_scope(|| digest(&entry, 200));
            }
        })
        .map_or_else(|_| mpsc::channel().0, |_| sender)
}
