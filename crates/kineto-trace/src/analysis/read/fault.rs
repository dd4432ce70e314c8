//! Errors in a file, with their position.

use crate::error::{Error, ErrorKind};
use std::io;

/// Why reading stopped.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(super) cause: Cause,
    /// The offset in bytes, from 0.
    pub(super) at: u64,
}

#[derive(Debug)]
pub(crate) enum Cause {
    /// Not JSON; contains what was expected.
    NotJson(&'static str),
    /// Not a file in Perfetto's format; contains what was expected.
    NotProtobuf(&'static str),
    /// Does not begin like a trace in JSON.
    OtherFormat,
    /// Ends too early.
    Truncated,
    /// JSON, but not a trace; contains why.
    NotATrace(&'static str),
    /// Exceeds a fixed limit; contains which.
    TooLarge(&'static str),
    /// Longer than the options allow.
    TooLong,
    /// The time limit passed.
    TimeLimit,
    /// Reading failed.
    Io(io::Error),
}

impl Fault {
    /// Boxed, so that a result is not larger than what was read.
    #[cold]
    pub(super) fn new(cause: Cause, at: u64) -> Box<Fault> {
        Box::new(Fault { cause, at })
    }

    /// Converts it to an error for the caller.
    pub(super) fn into_error(self) -> Error {
        let at = self.at;
        match self.cause {
            Cause::NotJson(expected) => Error::new(
                ErrorKind::Json,
                format!(
                    "not JSON: expected {expected} at byte {at}; correct the file there (PyTorch leaves quotes in metadata unescaped)"
                ),
            ),
            Cause::NotProtobuf(expected) => Error::new(
                ErrorKind::NotATrace,
                format!("damaged Perfetto trace: expected {expected} at byte {at}; copy or record the file again"),
            ),
            Cause::OtherFormat => Error::new(
                ErrorKind::Json,
                format!(
                    "not JSON: no {{ or [ at byte {at}; give a trace file of Kineto, PyTorch, Perfetto or chrome://tracing, plain or gzip"
                ),
            ),
            Cause::Truncated => Error::new(
                ErrorKind::Truncated,
                format!(
                    "cut off at byte {at}, as if its writer was killed; read what is there with ReadOptions::partial"
                ),
            ),
            Cause::NotATrace(why) => Error::new(
                ErrorKind::NotATrace,
                format!(
                    "not a trace: {why} (at byte {at}); give a file of Kineto, PyTorch, Perfetto or chrome://tracing"
                ),
            ),
            Cause::TooLarge(what) => {
                Error::new(ErrorKind::TooLarge, format!("{what} (at byte {at}); shorten the file there"))
            }
            Cause::TooLong => Error::new(
                ErrorKind::TooLarge,
                format!("the file has more than {at} bytes when unpacked; raise ReadOptions::max_bytes"),
            ),
            Cause::TimeLimit => Error::new(
                ErrorKind::Timeout,
                format!("the time limit was reached at byte {at}; raise it in ReadOptions"),
            ),
            Cause::Io(error) => {
                Error::new(ErrorKind::Io, format!("cannot read: {error} (at byte {at}); check the file and its disk"))
            }
        }
    }
}
