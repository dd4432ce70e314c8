//! Two daemons for traced programs: a stand-in for dynolog's, and a stub that a test controls.

use crate::poll_until;
use serde_json::Value;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A stand-in for dynolog's daemon, in Python.
pub struct Daemon {
    process: Child,
    port: u16,
}

fn script() -> PathBuf {
    crate::root().join("tests/tools/fake_daemon.py")
}

/// Returns whether it can be started; prints why not.
pub fn is_available() -> bool {
    let python = Command::new("python3").arg("--version").output();
    let is_available = python.is_ok_and(|version| version.status.success());
    if !is_available {
        println!("SKIPPED: the stand-in for the daemon needs python3");
    }
    is_available
}

impl Daemon {
    /// Starts a daemon whose sockets are in that folder.
    pub fn start(sockets: &Path, options: &[&str]) -> Daemon {
        let mut command = Command::new("python3");
        command.arg(script()).args(options).env("KINETO_IPC_SOCKET_DIR", sockets);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.strip_prefix("READY ").and_then(|port| port.trim().parse().ok()).expect(&line);
        Daemon { process, port }
    }

    /// Requests a trace as `dyno gputrace` does; returns the daemon's answer.
    pub fn trigger(&self, text: &str, pids: &[u32]) -> Value {
        self.ask(text, pids, 1000)
    }

    /// As [`Daemon::trigger`], once all of these processes are registered.
    pub fn trigger_all(&self, text: &str, pids: &[u32]) -> Value {
        poll_until(|| self.ask("", pids, 0)["processesMatched"].as_array().unwrap().len() == pids.len());
        self.trigger(text, pids)
    }

    fn ask(&self, text: &str, pids: &[u32], limit: u32) -> Value {
        let request = serde_json::json!({
            "fn": "setKinetOnDemandRequest", "config": text, "job_id": 0, "pids": pids, "process_limit": limit,
        });
        let body = request.to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.write_all(&i32::try_from(body.len()).unwrap().to_ne_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        serde_json::from_slice(&answer[4..]).unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A daemon in this process, whose answers the test chooses.
pub struct Stub {
    socket: UnixDatagram,
}

/// Time limit of a poll.
const POLL_TIMEOUT: Duration = Duration::from_secs(60);

/// A received poll.
pub struct Poll {
    pub bytes: Vec<u8>,
    pub from: SocketAddr,
}

impl Poll {
    /// Returns the requested kind: 2 for a trace, 0 for none.
    pub fn wanted(&self) -> i32 {
        i32::from_ne_bytes(self.bytes[40..44].try_into().unwrap())
    }
}

impl Stub {
    pub fn start(sockets: &Path) -> Stub {
        Stub { socket: UnixDatagram::bind(sockets.join("dynolog")).unwrap() }
    }

    /// Starts a stub under the daemon's abstract name.
    pub fn start_abstract() -> Stub {
        let address = SocketAddr::from_abstract_name(b"dynolog\0").unwrap();
        Stub { socket: UnixDatagram::bind_addr(&address).unwrap() }
    }

    /// Waits for the next poll for a trace; answers others with no request.
    pub fn poll_for_a_trace(&self) -> Poll {
        loop {
            let poll = self.poll();
            if poll.wanted() == 2 {
                return poll;
            }
            self.answer(&poll, "");
        }
    }

    /// Waits for the next poll.
    pub fn poll(&self) -> Poll {
        self.receive(POLL_TIMEOUT).expect("a poll")
    }

    /// Returns the next poll, if one has arrived.
    pub fn waiting_poll(&self) -> Option<Poll> {
        self.receive(Duration::from_nanos(1)).ok()
    }

    fn receive(&self, time: Duration) -> io::Result<Poll> {
        let mut bytes = vec![0; 4096];
        self.socket.set_read_timeout(Some(time))?;
        let (length, from) = self.socket.recv_from(&mut bytes)?;
        bytes.truncate(length);
        Ok(Poll { bytes, from })
    }

    /// Answers with any bytes.
    pub fn send(&self, poll: &Poll, bytes: &[u8]) {
        self.socket.send_to_addr(bytes, &poll.from).unwrap();
    }

    /// Answers with the text of a request.
    pub fn answer(&self, poll: &Poll, text: &str) {
        self.send(poll, &answer(text));
    }
}

/// Returns the bytes of an answer.
pub fn answer(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u64).to_ne_bytes().to_vec();
    bytes.extend(b"req");
    bytes.resize(40, 0);
    bytes.extend(text.as_bytes());
    bytes
}
