//! The load: clients that each keep one connection and send one request after another.

use std::net::SocketAddr;

use axum::body::Body;
use http_body_util::BodyExt;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tracing::{Instrument, Span, field, info_span, instrument};

/// An error that can cross threads.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Sends `requests` requests; returns how many were answered with 200.
pub async fn run(address: SocketAddr, id: u32, requests: u32) -> Result<u32, Error> {
    let span = info_span!("client", id);
    async {
        let stream = TcpStream::connect(address).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let mut answered = 0;
        for number in 0..requests {
            let path = if number % 3 == 2 { format!("/hash/text{number}") } else { format!("/users/{}", id + number) };
            answered += u32::from(ask(&mut sender, address, &path).await? == StatusCode::OK);
        }
        drop(sender);
        connection.await??;
        Ok(answered)
    }
    .instrument(span)
    .await
}

/// Sends a request; the size of its answer is recorded late.
#[instrument(err, skip(sender, address), fields(bytes = field::Empty))]
async fn ask(sender: &mut http1::SendRequest<Body>, address: SocketAddr, path: &str) -> Result<StatusCode, Error> {
    let request = Request::get(path).header(header::HOST, address.to_string()).body(Body::empty())?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    Span::current().record("bytes", response.into_body().collect().await?.to_bytes().len());
    Ok(status)
}
