//! Tests of `kineto view`: the link, and the answers to requests.

use super::{TRACE, command, run, traces};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

/// Sends a request, and returns the whole answer.
fn ask(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn trace_is_served_to_perfetto_once() {
    let (_folder, whole, _) = traces();
    let mut child = command(&["view", "--port", "0", whole.to_str().unwrap()]).stdout(Stdio::piped()).spawn().unwrap();
    let mut link = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut link).unwrap();
    let address = link.trim_end().strip_prefix("https://ui.perfetto.dev/#!/?url=http://127.0.0.1:").unwrap();
    let (port, path) = address.split_once('/').unwrap();
    let port = port.parse().unwrap();
    assert_eq!(path, "whole.json");
    assert!(ask(port, "GET /other.json").starts_with("HTTP/1.1 404 "));
    assert!(ask(port, "GET /../whole.json").starts_with("HTTP/1.1 404 "));
    assert!(ask(port, "OPTIONS /whole.json").contains("Access-Control-Allow-Origin: https://ui.perfetto.dev\r\n"));
    let answer = ask(port, "GET /whole.json");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(TRACE), "{answer}");
    assert!(answer.contains("Access-Control-Allow-Origin: https://ui.perfetto.dev\r\n"), "{answer}");
    assert!(child.wait().unwrap().success());
}

#[test]
fn view_of_no_file_is_an_error() {
    let (folder, ..) = traces();
    for (path, why) in [(folder.path().join("missing.json"), "No such file"), (folder.path().to_owned(), "not a file")]
    {
        let (out, errors, status) = run(&["view", "--port", "0", path.to_str().unwrap()]);
        assert!(status == Some(1) && out.is_empty() && errors.contains(why), "{errors}");
    }
}
