//! `kineto view`: serves a trace to Perfetto's UI on this machine.

use crate::trace_file::is_standard_stream;
use crate::{RunResult, print_text};
use std::fs::File;
use std::io::{self, Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tiny_http::{Header, Method, Request, Response, Server};

/// Opens a trace in Perfetto: serves it on the loopback interface and prints the link.
///
/// The trace does not leave this machine: the linked page reads it from here. The command ends once the trace has been read,
/// unless `--keep` is given.
///
/// Exit status: 0 if the trace was read; 1 if it could not be served; 2 for wrong arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  kineto view app.pt.trace.json.gz")]
pub(crate) struct ViewArguments {
    /// The trace file: JSON or Perfetto's format, plain or gzip.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Serves on this port. Perfetto's page may read only from 9001.
    #[arg(long, default_value_t = 9001, value_name = "PORT")]
    port: u16,
    /// Serves until the command is interrupted.
    #[arg(long)]
    keep: bool,
}

/// The origin that may read the trace.
const ORIGIN: &str = "https://ui.perfetto.dev";

/// Serves the trace.
pub(crate) fn run(arguments: &ViewArguments) -> RunResult {
    if is_standard_stream(&arguments.trace) {
        return Err("cannot serve -: the page reads the trace under its name; save it to a file first".into());
    }
    serve_trace(arguments).map_err(|error| format!("{}: {error}", arguments.trace.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn serve_trace(arguments: &ViewArguments) -> io::Result<()> {
    let metadata = std::fs::metadata(&arguments.trace)?;
    if !metadata.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, "not a file; name a trace file"));
    }
    let port = arguments.port;
    let busy = |error| Error::other(format!("cannot serve on port {port}: {error}; end the program that uses it"));
    let server = Server::http(("127.0.0.1", port)).map_err(busy)?;
    let port = server.server_addr().to_ip().map_or(port, |address| address.port());
    let path = format!("/{}", url_name(&arguments.trace));
    print_text(&format!("{ORIGIN}/#!/?url=http://127.0.0.1:{port}{path}\n"));
    for request in server.incoming_requests() {
        if answer_request(request, &path, &arguments.trace)? && !arguments.keep {
            break;
        }
    }
    Ok(())
}

/// Answers a request; returns whether the answer was the trace.
fn answer_request(request: Request, path: &str, trace: &Path) -> io::Result<bool> {
    let is_trace = request.url() == path;
    match request.method() {
        Method::Get if is_trace => {
            let response = Response::from_file(File::open(trace)?);
            let response = response_headers().into_iter().fold(response, Response::with_header);
            // The page may have been closed; it can request the trace again.
            Ok(request.respond(response).is_ok())
        }
        Method::Options | Method::Head if is_trace => {
            let response = response_headers().into_iter().fold(Response::empty(204), Response::with_header);
            let _ = request.respond(response);
            Ok(false)
        }
        _ => {
            let _ = request.respond(Response::empty(404));
            Ok(false)
        }
    }
}

/// Returns the headers that let Perfetto's page read from the loopback interface.
fn response_headers() -> Vec<Header> {
    let texts = [
        ("Access-Control-Allow-Origin", ORIGIN),
        ("Access-Control-Allow-Private-Network", "true"),
        ("Access-Control-Allow-Headers", "*"),
        ("Cache-Control", "no-cache"),
        ("Content-Type", "application/octet-stream"),
    ];
    texts.iter().filter_map(|(name, value)| Header::from_bytes(*name, *value).ok()).collect()
}

/// Returns the file's name without characters that have a meaning in a URL.
fn url_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect()
}
